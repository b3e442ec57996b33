"""Kills through the real binaries: the coordinator, a trainer, a daemon; a stopped trainer; a stale epoch.

Every case compares with the same job left in peace: equal final loss, no step lost or repeated.
"""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402

STEPS = 60
BATCH = {"globalBatch": 32, "microBatch": 4}


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class KillTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The undisturbed run that all others must equal."""
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="calm", steps=STEPS, checkpoint=folder, train=BATCH))
            cluster.wait_state(name, "SUCCEEDED", timeout=180)
            cls.calm = cluster.losses(name)
        assert sorted(cls.calm) == list(range(1, STEPS + 1))

    def check_equals_calm(self, cluster, name):
        losses = cluster.losses(name)
        self.assertEqual(sorted(losses), list(range(1, STEPS + 1)))
        for step, loss in self.calm.items():
            self.assertAlmostEqual(losses[step], loss, delta=1e-6 * loss, msg=f"step {step}")

    def test_kill_9_of_the_coordinator_loses_no_step(self):
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="survivor", steps=STEPS, checkpoint=folder, train=BATCH))
            pids = cluster.wait_ranks(name, 2)
            before = cluster.job(name)
            cluster.wait_checkpoint(folder, 5)
            cluster.kill("coordinator")
            time.sleep(1.0)
            cluster.start_coordinator()
            cluster.wait_state(name, "SUCCEEDED", timeout=180)
            after = cluster.job(name)
            self.assertEqual(after["epoch"], before["epoch"], "the trainers were adopted, not restarted")
            self.assertEqual(len(pids), 2)
            steps = [int(row["step"]) for row in cluster.metrics(name)]
            self.assertEqual(steps, list(range(1, STEPS + 1)), "no step repeated or lost")
            self.check_equals_calm(cluster, name)

    def test_kill_9_of_a_trainer_restarts_from_the_checkpoint(self):
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="orphaned", steps=STEPS, checkpoint=folder, train=BATCH))
            pids = cluster.wait_ranks(name, 2)
            cluster.wait_checkpoint(folder, 10)
            os.kill(pids[1], signal.SIGKILL)
            killed = time.monotonic()
            wait_for(lambda: not any(alive(pid) for pid in pids.values()), "all ranks to stop", 30, 0.01)
            self.assertLess(time.monotonic() - killed, 2.0, "all ranks stop within 2 s of the death")
            cluster.wait_state(name, "SUCCEEDED", timeout=180)
            job = cluster.job(name)
            self.assertEqual(int(job["epoch"]), 2)
            self.assertEqual(int(job["restarts"]["infrastructure"]), 1)
            first = job["attempts"][0]
            self.assertIn("RANK_DIED", first["cause"])
            self.assertEqual(int(first["rootCause"].get("rank", 0)), 1)
            self.assertEqual(int(first["rootCause"]["signal"]), 9)
            second = job["attempts"][1]
            self.assertEqual(int(second["firstStep"]) % 5, 1, "it goes on after a checkpoint")
            self.check_equals_calm(cluster, name)

    def test_kill_9_of_a_daemon_takes_its_trainer_and_recovers(self):
        with Cluster(workers=2, separate=True) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="widowed", steps=STEPS, checkpoint=folder, train=BATCH))
            pids = cluster.wait_ranks(name, 2)
            cluster.wait_checkpoint(folder, 5)
            cluster.kill("worker0")
            killed = time.monotonic()
            wait_for(lambda: not any(alive(pid) for pid in pids.values()), "all ranks to stop", 30, 0.01)
            self.assertLess(time.monotonic() - killed, 2.0)
            cluster.start_worker(0)
            cluster.wait_state(name, "SUCCEEDED", timeout=180)
            self.assertGreaterEqual(int(cluster.job(name)["epoch"]), 2)
            self.check_equals_calm(cluster, name)

    def test_stopped_trainer_is_named_as_a_hang(self):
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="frozen", steps=STEPS, checkpoint=folder, train=BATCH,
                                           limits={"hangTimeoutSeconds": 8}))
            pids = cluster.wait_ranks(name, 2)
            cluster.wait_checkpoint(folder, 10)
            os.kill(pids[1], signal.SIGSTOP)
            # Ten times as long when it was stopped while both were inside the checkpoint.
            wait_for(lambda: [e for e in cluster.events(name) if "rank 1" in e.get("message", "")],
                     "an event that names rank 1", 120)
            cluster.wait_state(name, "SUCCEEDED", timeout=180)
            first = cluster.job(name)["attempts"][0]
            self.assertIn("HANG", first["cause"])
            self.assertEqual(int(first["rootCause"].get("rank", 0)), 1)
            self.assertIn("rank 1's process is stopped (state T)", first["rootCause"]["message"])
            self.assertRegex(first["rootCause"]["collective"],
                             "all_gather|reduce_scatter|all_reduce|barrier|broadcast")
            self.check_equals_calm(cluster, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
