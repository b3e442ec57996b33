"""Jobs whose number of ranks changes, and spares, through the real binaries.

Fewer or more ranks share the same global batch, so the losses are those of a run that nothing disturbed; what
is left is the order in which fp32 sums are added up.
"""

import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402

STEPS = 160
SLOW = {"train": {"globalBatch": 24, "microBatch": 4}, "data": {"sequenceLength": 64},
        # Ranks are stopped while a worker starts.
        "limits": {"hangTimeoutSeconds": 300}}


def elastic_job(name, folder, **resources):
    job = tiny_job(name=name, ranks=3, steps=STEPS, checkpoint=folder, **SLOW)
    job["spec"]["resources"].update(resources)
    return job


def losses(cluster, name):
    """step -> loss of the attempt that went on from there; no step is missing."""
    found = {int(row["step"]): float(row["loss"]) for row in cluster.metrics(name)}
    assert sorted(found) == list(range(1, STEPS + 1)), sorted(found)
    return found


@contextlib.contextmanager
def stopped(pids):
    """Processes that stand still, so that what happens meanwhile happens before their next step."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class ElasticTest(unittest.TestCase):
    def wait_epoch(self, cluster, name, epoch):
        """Until all ranks of the epoch train; returns the job."""
        def trains():
            job = cluster.job(name)
            state = job["state"].removeprefix("JOB_STATE_")
            self.assertNotIn(state, ("FAILED", "SUCCEEDED"), job.get("reason"))
            steps = [int(rank.get("step", 0)) for rank in job.get("ranks", [])]
            return job if int(job["epoch"]) >= epoch and state == "RUNNING" and min(steps) > 0 else None

        job = wait_for(trains, f"{name} to train in epoch {epoch}", 120)
        self.assertEqual(int(job["epoch"]), epoch)
        return job

    def test_goes_on_with_two_of_three_ranks_and_takes_the_third_back(self):
        with Cluster(workers=3, separate=True, coordinator_flags=["--shrink-after=1s"]) as cluster, \
                tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(elastic_job("calm", calm))
            cluster.wait_state(name, "SUCCEEDED")
            undisturbed = losses(cluster, name)

            name = cluster.submit(elastic_job("elastic", folder, minRanks=2, maxRanks=3))
            pids = cluster.wait_ranks(name, 3)
            cluster.wait_checkpoint(folder, 10)
            lost = next(rank for rank in cluster.job(name)["ranks"] if int(rank.get("rank", 0)) == 2)
            key = "worker" + lost["worker"].removeprefix("workers/w")
            cluster.kill(key)
            fewer = self.wait_epoch(cluster, name, 2)
            self.assertEqual(len(fewer["ranks"]), 2)
            self.assertIn("elastic from 2 to 3 ranks (2, 3); grows at a checkpoint once 1 more worker is free",
                          fewer["reason"])
            survivors = {int(rank["pid"]) for rank in fewer["ranks"]}
            self.assertEqual(len(survivors - set(pids.values())), 2)

            with stopped(survivors):
                cluster.start_worker(int(key.removeprefix("worker")))
                cluster.wait_workers(1)
            whole = self.wait_epoch(cluster, name, 3)
            self.assertEqual(len(whole["ranks"]), 3)
            cluster.wait_state(name, "SUCCEEDED")

            job = cluster.job(name)
            self.assertEqual(int(job["restarts"].get("infrastructure", 0)), 1)
            self.assertEqual(int(job["restarts"].get("free", 0)), 1)
            first, second, third = job["attempts"]
            self.assertEqual(int(second["firstStep"]) % 5, 1, "it goes on after a checkpoint")
            self.assertLessEqual(int(second["firstStep"]), int(first["lastStep"]) + 1)
            self.assertEqual(int(third["firstStep"]), int(second["lastStep"]) + 1,
                             "growing repeats no step")
            types = [event["type"] for event in cluster.events(name)]
            self.assertEqual(types.count("RANKS_CHANGED"), 2, types)
            for step, loss in losses(cluster, name).items():
                self.assertAlmostEqual(loss, undisturbed[step], delta=1e-5, msg=f"step {step}")

    def test_a_spare_takes_the_lost_workers_place_and_is_nobody_elses(self):
        with Cluster(workers=3, separate=True) as cluster, tempfile.TemporaryDirectory() as folder:
            job = elastic_job("spared", folder, devicesPerNode=2, spares=1)
            job["spec"]["limits"]["maxSteps"] = 100000
            name = cluster.submit(job)
            self.wait_epoch(cluster, name, 1)
            wait_for(lambda: "holds 1 of 1 spare" in cluster.job(name)["reason"], "a spare to be held")
            other = cluster.submit(tiny_job(name="other", ranks=1, steps=5))
            wait_for(lambda: "holds 3" in cluster.job(other).get("reason", ""), "the other job to wait")
            cluster.wait_checkpoint(folder, 10)
            lost = cluster.job(name)["ranks"][1]["worker"]
            cluster.kill("worker" + lost.removeprefix("workers/w"))
            again = self.wait_epoch(cluster, name, 2)
            self.assertNotIn(lost, [rank["worker"] for rank in again["ranks"]])
            self.assertEqual(cluster.state(other), "QUEUED")
            cluster.start_worker(int(lost.removeprefix("workers/w")))
            cluster.wait_state(other, "SUCCEEDED")
            cluster.ctl("cancel", name)
            cluster.wait_state(name, "CANCELLED")


if __name__ == "__main__":
    unittest.main(verbosity=2)
