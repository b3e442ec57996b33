"""The installed C++ client, used from a project outside of the tree: with CMake's find_package and with pkg-config."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from cluster import BIN, SOURCE, Cluster  # noqa: E402


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class CppClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fsdp-cpp-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run("cmake", "--install", BIN.parent, "--component", "devel", "--prefix", cls.folder / "first")
        # Nothing in it may know where it was installed to.
        cls.prefix = cls.folder / "moved"
        (cls.folder / "first").rename(cls.prefix)
        # Outside of the tree, so that no header of it is found by chance.
        cls.project = cls.folder / "project"
        shutil.copytree(SOURCE / "client/examples", cls.project)
        cls.cluster = Cluster(workers=2).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)

    def check(self, program):
        done = run(program, self.cluster.server, SOURCE / "deploy/examples/tiny.yaml", timeout=180)
        lines = done.splitlines()
        name = re.fullmatch(r"submitted jobs/(tiny-\w{8})", lines[0])[1]
        self.assertEqual(lines[-1], "ended JOB_STATE_SUCCEEDED")
        self.assertEqual(lines[1:-1], [f"step {step} loss {loss:.4f}"
                                       for step, loss in sorted(self.cluster.losses(name).items())])
        self.assertEqual(len(lines), 22)
        bad = self.folder / "bad.yaml"
        bad.write_text("apiVersion: fsdp.v1\nkind: TrainingJob\nspec: {modle: {}}\n")
        refused = subprocess.run([program, self.cluster.server, bad], text=True, capture_output=True, check=False)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("bad.yaml:3:8: error: spec.modle", refused.stderr)
        lost = subprocess.run([program, "127.0.0.1:1", SOURCE / "deploy/examples/tiny.yaml"], text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(lost.returncode, 4)
        self.assertIn("no coordinator answers at 127.0.0.1:1", lost.stderr)

    def test_cmake(self):
        build = self.folder / "by-cmake"
        run("cmake", "-G", "Ninja", "-S", self.project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.check(build / "submit")
        # Another minor release may differ: it is not taken for this one.
        refused = subprocess.run(
            ["cmake", "-S", self.other_version("0.2"), "-B", self.folder / "newer", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
            text=True, capture_output=True, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("0.1.0", refused.stderr)

    def other_version(self, version):
        project = self.folder / "other"
        shutil.copytree(self.project, project)
        lists = project / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("find_package(fsdp 0.1 ", f"find_package(fsdp {version} "))
        return project

    def test_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(next(self.prefix.glob("lib*/**/pkgconfig")))}
        self.assertEqual(run("pkg-config", "--modversion", "fsdp-client", env=environment).strip(), "0.1.0")
        flags = run("pkg-config", "--cflags", "--libs", "fsdp-client", env=environment).split()
        self.assertFalse([flag for flag in flags if str(SOURCE) in flag])
        program = self.folder / "by-pkg-config"
        run("c++", "-std=c++20", self.project / "submit.cc", *flags, "-o", program)
        self.check(program)

    def test_the_tree_knows_nothing_of_its_builder(self):
        for file in self.prefix.rglob("*"):
            if file.suffix in (".cmake", ".pc", ".h"):
                self.assertNotIn(str(SOURCE), file.read_text(), file)


if __name__ == "__main__":
    unittest.main()
