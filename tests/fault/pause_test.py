"""A coordinator that stands still (SIGSTOP) for longer than its limits: nobody else is blamed for it."""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job  # noqa: E402

# Longer than a silent worker is waited for, and than a collective may take (both 5 s here).
LIMITS = ("--suspect-after=3s", "--lost-after=5s")
HANG_SECONDS = 5
PAUSE_SECONDS = 12
# While the coordinator is away a save waits 2 s for its verdict: with one every 5 steps, the job is far from
# its end when the pause is over.
STEPS = 800
BATCH = {"globalBatch": 32, "microBatch": 4}


class PauseTest(unittest.TestCase):
    def test_a_coordinator_that_stood_still_aborts_nothing(self):
        with Cluster(workers=2, coordinator_flags=LIMITS) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="patient", steps=STEPS, checkpoint=folder, train=BATCH,
                                           limits={"hangTimeoutSeconds": HANG_SECONDS}))
            pids = cluster.wait_ranks(name, 2)
            cluster.wait_checkpoint(folder, 5)
            coordinator = cluster.processes["coordinator"].pid
            os.kill(coordinator, signal.SIGSTOP)
            try:
                time.sleep(PAUSE_SECONDS)
                for pid in pids.values():
                    os.kill(pid, 0)  # still training
            finally:
                os.kill(coordinator, signal.SIGCONT)
            cluster.wait_state(name, "SUCCEEDED")
            job = cluster.job(name)
            self.assertEqual(int(job["epoch"]), 1, "the trainers went on, nothing was restarted")
            self.assertEqual(len(job["attempts"]), 1)
            self.assertNotIn("rootCause", job)
            self.assertEqual([int(row["step"]) for row in cluster.metrics(name)], list(range(1, STEPS + 1)))
            bad = [e for e in cluster.events(name) if e.get("severity") not in ("INFO", None)]
            self.assertEqual(bad, [])
            self.assertIn("the coordinator stood still for",
                          (cluster.root / "coordinator.log").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
