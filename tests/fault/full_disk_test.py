"""A disk that is full: under the checkpoints, and under the coordinator's state."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402
from small_disk import small_disk  # noqa: E402


class FullDiskTest(unittest.TestCase):
    def test_a_checkpoint_that_does_not_fit_says_where_and_why(self):
        with small_disk(2048) as disk, Cluster(workers=3) as cluster:
            folder = disk.path / "checkpoints"
            folder.mkdir()
            # Some ranks have room for their shards, others have not.
            for kibibytes in (0, 100):
                disk.fill()
                with open(disk.filler, "rb+") as file:
                    file.truncate(disk.filler.stat().st_size - kibibytes * 1024)
                name = cluster.submit(tiny_job(name="full", ranks=3, checkpoint=folder))
                cluster.wait_state(name, "FAILED")
                job = cluster.job(name)
                self.assertEqual(job["cause"], "CHECKPOINT")
                for text in ("No space left on device", str(folder), "free space there"):
                    self.assertIn(text, job["rootCause"]["message"])
                    self.assertIn(text, cluster.ctl("describe", name).stdout)
                    self.assertIn(text, cluster.ctl("logs", name).stdout)
                waited = cluster.ctl("wait", name, check=False)
                self.assertEqual(waited.returncode, 100)
                self.assertIn("No space left on device", waited.stderr)
                disk.free()
                cluster.ctl("restart", name)
                cluster.wait_state(name, "SUCCEEDED")

    def test_a_store_without_room_refuses_says_why_and_goes_on_once_there_is(self):
        with small_disk(1200) as disk, Cluster(workers=1) as cluster:
            cluster.kill("coordinator")
            (cluster.root / "coordinator").rename(cluster.root / "before")
            (cluster.root / "coordinator").symlink_to(disk.path)
            cluster.start_coordinator()
            # A job that nothing here can run: its state is the store's business alone.
            kept = cluster.submit(tiny_job(name="kept", ranks=2))
            disk.fill()
            request_id = "0a1b2c3d-0000-4000-8000-000000000042"
            refused = None
            # Pages that SQLite has already may take a few.
            for index in range(200):
                job = json.dumps(tiny_job(name=f"extra{index}", ranks=2))
                refused = cluster.ctl("submit", "-f", "-", "--request-id", request_id[:-3] + f"{index:03}",
                                      stdin=job, check=False)
                if refused.returncode != 0:
                    break
            self.assertEqual(refused.returncode, 4, refused.stderr)
            for text in ("[STORE_FAILED]", "database or disk is full", "jobs.db", "free space in"):
                self.assertIn(text, refused.stderr)

            # The process ends, and its last words say the same.
            self.assertEqual(cluster.processes["coordinator"].wait(60), 1)
            log = (cluster.root / "coordinator.log").read_text()
            self.assertIn("cannot go on: the store failed", log)
            self.assertIn("free space in", log)

            # A supervisor's next try finds the disk as full, or room enough to read.
            disk.free()
            cluster.start_coordinator()
            listed = [entry["name"] for entry in cluster.json("list")]
            self.assertIn(f"jobs/{kept.removeprefix('jobs/')}", listed)
            self.assertFalse([name for name in listed if f"extra{index}-" in name], "nothing is half there")
            again = cluster.ctl("submit", "-f", "-", "--request-id", request_id[:-3] + f"{index:03}", "-o", "name",
                                stdin=job).stdout.split()[-1]
            wait_for(lambda: cluster.state(again) == "QUEUED", "the job that was refused")


if __name__ == "__main__":
    unittest.main(verbosity=2)
