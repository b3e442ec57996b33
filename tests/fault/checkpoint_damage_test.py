"""Manifests that are not what was written: the job goes back to the checkpoint before, and says so."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402


def truncate(path):
    path.write_bytes(path.read_bytes()[:100])


def fill_with_garbage(path):
    path.write_bytes(b"\x00\xff{not a manifest" * 50)


def change_a_digit(path):
    """Still JSON with all its keys, but its checksum is of other bytes."""
    text = path.read_text()
    begin = text.index('"tokens": ') + len('"tokens": ')
    path.write_text(text[:begin] + ("1" if text[begin] != "1" else "2") + text[begin + 1:])


class CheckpointDamageTest(unittest.TestCase):
    def suspend_after(self, cluster, name, count):
        """Lets the job publish so many checkpoints in its newest epoch, then suspends it."""
        def published():
            return [e for e in cluster.events(name) if e.get("type") == "CHECKPOINT_PUBLISHED"
                    and e.get("epoch") == cluster.job(name)["epoch"]]

        wait_for(lambda: len(published()) >= count, f"{count} checkpoints", 120)
        cluster.ctl("suspend", name)
        cluster.wait_state(name, "SUSPENDED")
        return cluster.job(name)["checkpoint"]

    def test_the_job_goes_back_to_the_checkpoint_before_and_names_the_file(self):
        with Cluster(workers=2) as cluster, tempfile.TemporaryDirectory() as folder:
            name = cluster.submit(tiny_job(name="damaged", ranks=2, steps=1000000, checkpoint=folder,
                                           train={"globalBatch": 64, "microBatch": 2}))
            for damage in (truncate, fill_with_garbage, change_a_digit):
                newest = self.suspend_after(cluster, name, 2)
                manifest = pathlib.Path(newest["path"]) / "manifest.json"
                damage(manifest)
                restarts = cluster.job(name).get("restarts", {}).get("user", 0)
                cluster.ctl("resume", name)
                dropped = wait_for(lambda step=newest["step"]: [
                    e["message"] for e in cluster.events(name)
                    if e.get("type") == "CHECKPOINT_DROPPED" and f"of step {step} " in e["message"]],
                    f"{damage.__name__}: the fall back", 120)
                self.assertEqual(len(dropped), 1)
                self.assertIn(str(manifest), dropped[0])
                self.assertIn("going back to step ", dropped[0])
                cluster.wait_state(name, "RUNNING")
                self.assertLess(int(dropped[0].rsplit(" ", 1)[1]), int(newest["step"]))
                self.assertEqual(cluster.job(name).get("restarts", {}).get("user", 0), restarts)

            # None is left.
            self.suspend_after(cluster, name, 2)
            for manifest in pathlib.Path(folder).rglob("manifest.json"):
                truncate(manifest)
            cluster.ctl("resume", name)
            cluster.wait_state(name, "FAILED")
            job = cluster.job(name)
            self.assertIn("manifest.json", job["reason"])
            self.assertIn("no other checkpoint of the job is left", job["reason"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
