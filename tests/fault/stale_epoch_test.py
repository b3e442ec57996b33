"""A daemon that sleeps through the end of its epoch: nothing that its old epoch says counts.

Its trainer goes on for a while, so reports, log lines and a checkpoint's manifest wait in the link when the
daemon wakes up, after the job has been placed anew on other workers.
"""

import contextlib
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402


def published(cluster, name):
    """(epoch, step) of every checkpoint that the coordinator admitted, in order."""
    return [(int(e["epoch"]), int(e["step"])) for e in cluster.events(name)
            if e.get("type") == "CHECKPOINT_PUBLISHED"]


def stale_messages(cluster):
    """kind -> how many the coordinator refused for being of a dead epoch or life."""
    text = urllib.request.urlopen(cluster.metrics_url, timeout=10).read().decode()
    return {kind: float(value) for kind, value in
            re.findall(r'^fsdp_stale_messages_total\{[^}]*kind="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE)}


class StaleEpochTest(unittest.TestCase):
    def test_nothing_of_a_dead_epoch_is_accepted(self):
        with Cluster(workers=3, separate=True) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="sleeper", ranks=2, steps=1000000, checkpoint=folder,
                                           train={"globalBatch": 64, "microBatch": 2}))
            cluster.wait_step(name, 7)
            rank0 = cluster.job(name)["ranks"][0]
            key = "worker" + rank0["worker"].removeprefix("workers/w")
            old_trainer = int(rank0["pid"])
            cluster.kill(key, signal.SIGSTOP, wait=False)
            try:
                wait_for(lambda: int(cluster.job(name)["epoch"]) == 2, "the second epoch", 120)
                cluster.wait_state(name, "RUNNING", timeout=120)
                first_of_new = published(cluster, name)
            finally:
                cluster.kill(key, signal.SIGCONT, wait=False)

            # It hears that its epoch is over, kills its trainer, and is of use again.
            wait_for(lambda: not os.path.exists(f"/proc/{old_trainer}"), "the old trainer to end", 60)
            cluster.wait_workers(1)
            wait_for(lambda: sum(stale_messages(cluster).values()) > 0, "a refusal to be counted", 60)

            # The new epoch goes on, and the line of checkpoints is its own from its start on.
            wait_for(lambda: len(published(cluster, name)) >= len(first_of_new) + 2, "more checkpoints", 120)
            line = published(cluster, name)
            self.assertEqual(line, sorted(line), "steps and epochs only grow")
            self.assertEqual({epoch for epoch, _ in line[len(first_of_new):]}, {2})
            job = cluster.job(name)
            self.assertEqual(int(job["epoch"]), 2)
            self.assertEqual(int(job["checkpoint"]["epoch"]), 2)

            # Every step has one loss, whoever reported it; in the order of the log the old epoch ends once.
            cluster.losses(name)
            epochs = [int(row["epoch"]) for row in cluster.metrics(name)]
            self.assertEqual(epochs, sorted(epochs), "no step of epoch 1 is taken after epoch 2 began")
            with contextlib.suppress(AssertionError):
                cluster.ctl("cancel", name)
            cluster.wait_state(name, "CANCELLED")


if __name__ == "__main__":
    unittest.main(verbosity=2)
