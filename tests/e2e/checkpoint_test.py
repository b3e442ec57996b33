"""Checkpoints from the command line: looked at, compared, rewritten and brought to this machine."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job  # noqa: E402


class CheckpointTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=2).__enter__()
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        job = tiny_job(ranks=2, steps=10, checkpoint=root / "written")
        job["spec"]["checkpoint"] |= {"async": True, "keepLast": 0}
        cls.name = cls.cluster.submit(job)
        done = cls.cluster.ctl("wait", cls.name, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.written = next((root / "written").glob("tiny-*"))
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        cls.cluster.__exit__(None, None, None)

    def checkpoint(self, *arguments, code=0):
        done = self.cluster.ctl("checkpoint", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_list_inspect_and_verify(self):
        known = json.loads(self.checkpoint("list", self.name, "-o", "json").stdout)["checkpoints"]
        self.assertEqual([int(one["step"]) for one in known], [10, 5])
        there = json.loads(self.checkpoint("list", self.written, "-o", "json").stdout)
        self.assertEqual([one["step"] for one in there], [5, 10])
        self.assertEqual(there[0]["world_size"], 2)
        self.assertIn("PATH", self.checkpoint("list", self.name).stdout)
        manifest = json.loads(self.checkpoint("inspect", self.name, "-o", "json").stdout)
        self.assertEqual((manifest["step"], len(manifest["files"])), (10, 2))
        self.assertIn("train_loss", self.checkpoint("inspect", self.written).stdout)
        self.assertEqual(self.checkpoint("verify", self.written).stdout.count(": ok, 2 files"), 2)
        self.checkpoint("verify", self.root / "nowhere", code=102)
        self.checkpoint("look", self.name, code=2)

    def test_diff_and_reshard(self):
        steps = sorted(self.written.glob("step-*"))
        self.assertIn("0 of", self.checkpoint("diff", steps[0], steps[0]).stdout)
        apart = json.loads(self.checkpoint("diff", steps[0], steps[1], "-o", "json", code=20).stdout)
        self.assertFalse(apart["same"])
        self.assertGreater(apart["different"][0]["master"]["largest"], 0)
        for world in (1, 3, 8):
            target = self.root / f"for-{world}"
            made = self.checkpoint("reshard", steps[1], "--world-size", world, "--to", target).stdout.strip()
            self.assertEqual(len(list(pathlib.Path(made).glob("rank-*.safetensors"))), world)
            same = self.checkpoint("diff", steps[1], made).stdout
            self.assertIn(f"written by 2 and {world} ranks: 0 of", same)
            self.checkpoint("reshard", steps[1], "--world-size", world, "--to", target, code=1)
        # The service starts from it.
        job = tiny_job(name="goes-on", ranks=2, steps=12)
        job["spec"]["checkpoint"] = {"resumeFrom": made}
        name = self.cluster.submit(job)
        done = self.cluster.ctl("wait", name, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(self.cluster.losses(name)), [11, 12])

    def test_fetch_copies_and_goes_on_where_it_was_broken_off(self):
        target = self.root / "fetched"
        made = pathlib.Path(self.checkpoint("fetch", self.name, "--to", target).stdout.strip())
        source = sorted(self.written.glob("step-*"))[1]
        self.assertEqual(made.name, source.name)

        def same():
            names = {path.name for path in source.iterdir()}
            self.assertEqual({path.name for path in made.iterdir()}, names)
            for name in names:
                self.assertEqual((made / name).read_bytes(), (source / name).read_bytes(), name)

        same()
        self.checkpoint("verify", made)
        # Broken off in the middle of a file: half of it is there, and no manifest.
        shard = made / "rank-00001.safetensors"
        whole = shard.read_bytes()
        shard.unlink()
        (made / "manifest.json").unlink()
        (made / "rank-00001.safetensors.part").write_bytes(whole[: len(whole) // 2])
        self.checkpoint("fetch", self.name, "--to", target)
        same()
        # What is there is damaged, and so is what was begun.
        shard.write_bytes(b"x" + whole[1:])
        (made / "rank-00001.safetensors.part").write_bytes(b"x" + whole[1:100])
        self.checkpoint("fetch", self.name, "--to", target)
        same()
        first = self.checkpoint("fetch", self.name, "--step", 5, "--to", target).stdout.strip()
        self.assertEqual(pathlib.Path(first).name, sorted(self.written.glob("step-*"))[0].name)
        self.checkpoint("fetch", self.name, "--step", 6, "--to", target, code=102)
        self.checkpoint("fetch", self.name, code=2)


if __name__ == "__main__":
    unittest.main()
