"""What each executable links, and what it says about itself."""

import os
import pathlib
import re
import subprocess
import unittest

BIN = pathlib.Path(os.environ["FSDP_BINARY_DIR"])
PROGRAMS = ["fsdpctl", "fsdp-coordinator", "fsdp-worker", "fsdp-trainer"]
# A rank's process stays free of servers and their threads, the others of the engine; none needs a GPU's.
FORBIDDEN = {
    "fsdp-trainer": r"grpc|prometheus|civetweb|sqlite|cuda|cublas|nccl",
    "fsdp-worker": r"dnnl|gloo|gomp|sqlite|cuda|cublas|nccl",
    "fsdp-coordinator": r"dnnl|gloo|gomp|cuda|cublas|nccl",
    "fsdpctl": r"dnnl|gloo|gomp|sqlite|prometheus|civetweb|cuda|cublas|nccl",
}


def run(program, *arguments):
    done = subprocess.run([str(BIN / program), *arguments], text=True, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


class ExecutablesTest(unittest.TestCase):
    def test_links_no_more_than_its_part(self):
        for program, forbidden in FORBIDDEN.items():
            libraries = subprocess.run(["ldd", str(BIN / program)], text=True, capture_output=True,
                                       check=True).stdout
            names = re.findall(r"^\s*(\S+)", libraries, re.MULTILINE)
            self.assertTrue(any(name.startswith("libstdc++") for name in names), libraries)
            found = [name for name in names if re.search(forbidden, name)]
            self.assertEqual(found, [], program)

    def test_version(self):
        versions = set()
        for program in PROGRAMS:
            code, text = run(program, "version" if program == "fsdpctl" else "--version")
            self.assertEqual(code, 0, text)
            self.assertNotIn("Debug build", text)
            versions.update(re.findall(r"\d+\.\d+\.\d+", text.splitlines()[0]))
        self.assertEqual(len(versions), 1, versions)

    def test_help_lists_the_flags_and_no_library_s(self):
        for program, flag in (("fsdp-coordinator", "--suspect_after"), ("fsdp-worker", "--bind_address")):
            code, text = run(program, "--help")
            self.assertIn(code, (0, 1), text)  # Abseil ends --help with 1.
            self.assertIn(flag, text)
            self.assertIn("--state-dir=", text, "an example")
            self.assertNotIn("No flags matched", text)
            self.assertNotIn("--undefok", text)

    def test_dashes_and_underscores_are_the_same(self):
        for flag in ("--state-dir", "--state_dir"):
            code, text = run("fsdp-coordinator", flag + "=/dev/null/no-folder", "--listen=127.0.0.1:0",
                             "--metrics-listen=")
            self.assertNotEqual(code, 0)
            self.assertIn("/dev/null/no-folder", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
