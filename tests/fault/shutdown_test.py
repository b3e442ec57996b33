"""A worker's daemon that is stopped while its rank trains: the job moves, at no cost and without losing a step."""

import pathlib
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402

# Long enough for the blow to come in time on a busy machine.
STEPS = 500
BATCH = {"globalBatch": 32, "microBatch": 4}


def worker_of(cluster, name, rank):
    """The name of the worker that runs this rank; the process of w1 is "worker1"."""
    return next(r["worker"] for r in cluster.job(name)["ranks"] if int(r.get("rank", 0)) == rank).split("/")[1]


class ShutdownTest(unittest.TestCase):
    def stop_worker(self, cluster, worker):
        key = worker.replace("w", "worker", 1)
        cluster.kill(key, signal.SIGTERM)
        self.assertEqual(cluster.processes[key].returncode, 0)

    def check_moved(self, cluster, name, worker):
        """What was no failure is not told or charged as one."""
        cluster.wait_state(name, "SUCCEEDED")
        job = cluster.job(name)
        self.assertEqual(int(job["epoch"]), 2)
        self.assertEqual(int(job["restarts"]["free"]), 1, job["restarts"])
        self.assertEqual(int(job["restarts"].get("infrastructure", 0)), 0, job["restarts"])
        self.assertNotIn(worker, [r["worker"].split("/")[1] for r in job["ranks"]])
        self.assertIn("DRAINED", job["attempts"][0]["cause"])
        events = cluster.events(name)
        told = [e["message"] for e in events if e["type"] == "DRAINING"]
        self.assertEqual(told, [f"worker {worker} is shutting down: Terminated"])
        self.assertFalse([e for e in events if "ORPHANED" in e["type"] or "although nobody" in e["message"]])
        states = {w["name"].split("/")[1]: w["state"] for w in cluster.json("workers")}
        self.assertEqual(states[worker], "LEFT")
        return job, events

    def test_a_rank_of_a_stopped_daemon_saves_and_moves(self):
        # Rank 0 publishes; any rank may be the one whose worker goes.
        for rank in (0, 1):
            with self.subTest(rank=rank), Cluster(workers=3, separate=True) as cluster, \
                    tempfile.TemporaryDirectory() as folder:
                name = cluster.submit(tiny_job(name="moved", steps=STEPS, checkpoint=folder, train=BATCH))
                cluster.wait_ranks(name, 2)
                worker = worker_of(cluster, name, rank)
                cluster.wait_checkpoint(folder, 5)
                self.stop_worker(cluster, worker)
                job, events = self.check_moved(cluster, name, worker)
                # The checkpoint of the grace period is the one that the next epoch starts from.
                self.assertEqual([int(row["step"]) for row in cluster.metrics(name)],
                                 list(range(1, STEPS + 1)), "no step repeated or lost")
                self.assertEqual(int(job["attempts"][1]["firstStep"]), int(job["attempts"][0]["lastStep"]) + 1)
                self.assertFalse([e for e in events if e["type"] == "PROGRESS_LOST"])

    def test_without_a_checkpoint_folder_the_lost_progress_is_told(self):
        with Cluster(workers=3, separate=True) as cluster:
            name = cluster.submit(tiny_job(name="forgetful", steps=STEPS, train=BATCH))
            cluster.wait_ranks(name, 2)
            worker = worker_of(cluster, name, 1)
            wait_for(lambda: cluster.job(name)["attempts"][0].get("lastStep"), "a first step", 90, 0.01)
            self.stop_worker(cluster, worker)
            job, events = self.check_moved(cluster, name, worker)
            self.assertEqual(int(job["attempts"][1]["firstStep"]), 1)
            lost = [e for e in events if e["type"] == "PROGRESS_LOST"]
            self.assertEqual([e["severity"] for e in lost], ["WARNING"])
            self.assertIn("Set checkpoint.dir", lost[0]["message"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
