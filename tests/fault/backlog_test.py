"""Checkpoints that are proposed while the coordinator is down: none of them counts before it is written."""

import datetime
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402

# Long enough for the blow to come in time on a busy machine.
STEPS = 400
BATCH = {"globalBatch": 32, "microBatch": 4}


def checkpoints(folder):
    """The steps whose manifest is there, and those that only have shards."""
    written, waiting = [], []
    for path in pathlib.Path(folder).glob("*/step-*"):
        step = int(path.name.split("-")[1].split(".")[0])
        (written if (path / "manifest.json").exists() else waiting).append(step)
    return sorted(written), sorted(waiting)


def moment(text):
    """Of an event; fractions of a second beyond microseconds are cut."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{seconds}.{fraction[:6]:0<6}+00:00")


class BacklogTest(unittest.TestCase):
    def test_proposals_that_were_never_written_cost_no_checkpoint(self):
        with Cluster(workers=1) as cluster, tempfile.TemporaryDirectory() as folder:
            document = tiny_job(name="backlog", ranks=1, steps=STEPS, checkpoint=folder, train=BATCH,
                                limits={"hangTimeoutSeconds": 600})
            document["spec"]["checkpoint"]["keepLast"] = 1
            name = cluster.submit(document)
            pid = cluster.wait_ranks(name, 1)[0]
            cluster.wait_checkpoint(folder, 5)
            cluster.kill("coordinator")
            wait_for(lambda: len(checkpoints(folder)[1]) >= 3, "three checkpoints that wait for a verdict")
            # It gets its verdicts and can do nothing with them.
            os.kill(pid, signal.SIGSTOP)
            written, waiting = checkpoints(folder)
            cluster.start_coordinator()

            def admitted():
                return [int(e["step"]) for e in cluster.events(name)
                        if e["type"] == "CHECKPOINT_PUBLISHED" and int(e["step"]) > written[-1]]

            wait_for(lambda: len(admitted()) >= 2, "the proposals to be admitted")
            os.kill(pid, signal.SIGKILL)
            cluster.wait_state(name, "SUCCEEDED")
            job = cluster.job(name)
            self.assertEqual(int(job["attempts"][-1]["firstStep"]), written[-1] + 1,
                             f"it goes on from what was written: {written}, not {waiting}")
            self.assertEqual(int(job["epoch"]), 2, "the shards without a manifest cost no epoch")
            self.assertEqual(int(job["restarts"].get("user", 0)), 0)
            dropped = [e for e in cluster.events(name) if e["type"] == "CHECKPOINT_DROPPED"]
            self.assertGreaterEqual(len(dropped), 2)
            self.assertEqual(sorted(cluster.losses(name)), list(range(1, STEPS + 1)))

    def test_a_rank_that_died_meanwhile_is_the_cause_and_costs_one_epoch(self):
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="widowed", steps=STEPS, checkpoint=folder, train=BATCH,
                                           limits={"hangTimeoutSeconds": 600}))
            pid = cluster.wait_ranks(name, 2)[0]
            cluster.wait_checkpoint(folder, 5)
            cluster.kill("coordinator")
            wait_for(lambda: len(checkpoints(folder)[1]) >= 3, "three checkpoints that wait for a verdict")
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon to notice")
            written, _ = checkpoints(folder)
            time.sleep(1)
            back = datetime.datetime.now(datetime.timezone.utc)
            cluster.start_coordinator()
            cluster.wait_state(name, "SUCCEEDED")
            job = cluster.job(name)
            self.assertEqual(int(job["epoch"]), 2, "the shards without a manifest cost no epoch")
            self.assertEqual(int(job["attempts"][-1]["firstStep"]), written[-1] + 1)
            self.assertEqual(int(job["restarts"]["infrastructure"]), 1)
            for cause in (job["attempts"][0]["rootCause"], job["rootCause"]):
                self.assertEqual(cause["cause"].removeprefix("FAILURE_CAUSE_"), "RANK_DIED")
                self.assertEqual(int(cause.get("rank", 0)), 0)
            events = cluster.events(name)
            self.assertEqual([int(e["sequence"]) for e in events], list(range(1, len(events) + 1)))
            died = [e for e in events if e["type"] == "RANK_DIED"]
            self.assertEqual(len(died), 1)
            self.assertLess(moment(died[0]["time"]), back, "when it happened, not when it was told")
            restarting = next(e for e in events if e["type"] == "RESTARTING")
            self.assertGreater(moment(restarting["time"]), back)


if __name__ == "__main__":
    unittest.main(verbosity=2)
