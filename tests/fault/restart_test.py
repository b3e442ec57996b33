"""Coordinator and workers stopped and started again on the same state: what was stored is stored once."""

import collections
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job  # noqa: E402

STEPS = 12


def restart(cluster):
    cluster.stop()
    cluster.start_coordinator()
    cluster.start_workers()


class RestartTest(unittest.TestCase):
    def check(self, separate):
        with Cluster(workers=2, separate=separate) as cluster:
            name = cluster.submit(tiny_job(name="once", steps=STEPS))
            cluster.wait_state(name, "SUCCEEDED")
            logs = cluster.ctl("logs", name).stdout
            events = cluster.events(name)
            steps = [int(row["step"]) for row in cluster.metrics(name)]
            self.assertIn("Step | Loss | Peak memory per rank", logs)
            self.assertEqual(steps, list(range(1, STEPS + 1)))
            for _ in range(2):
                restart(cluster)
                # A job of the new life brings its own lines and none of the old ones.
                other = cluster.submit(tiny_job(name="next", steps=2))
                cluster.wait_state(other, "SUCCEEDED")
                self.assertEqual(cluster.ctl("logs", name).stdout, logs)
                self.assertEqual(cluster.events(name), events)
                self.assertEqual([int(row["step"]) for row in cluster.metrics(name)], steps)
                starts = collections.Counter(line for line in cluster.ctl("logs", other).stdout.splitlines()
                                             if "trainer started" in line)
                self.assertTrue(all(count == 1 for count in starts.values()), starts)

    def test_one_parent_of_all_workers(self):
        self.check(separate=False)

    def test_workers_of_their_own(self):
        self.check(separate=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
