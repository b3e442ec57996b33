"""Checkpoints that are proposed while the coordinator is down: none of them counts before it is written."""

import os
import pathlib
import signal
import sys
import tempfile
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
            self.assertEqual(int(job["restarts"].get("user", 0)), 0)
            dropped = [e for e in cluster.events(name) if e["type"] == "CHECKPOINT_DROPPED"]
            self.assertGreaterEqual(len(dropped), 2)
            self.assertEqual(sorted(cluster.losses(name)), list(range(1, STEPS + 1)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
