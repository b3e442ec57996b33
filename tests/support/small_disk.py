"""A file system of its own that is easily filled."""

import contextlib
import pathlib
import subprocess
import tempfile
import unittest


class SmallDisk:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.filler = self.path / "filler"

    def fill(self):
        """Leaves not a byte."""
        with open(self.filler, "ab", buffering=0) as file:
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def free(self):
        self.filler.unlink()


@contextlib.contextmanager
def small_disk(kibibytes):
    """Mounts a tmpfs of that size; skips the test where that is not permitted."""
    folder = tempfile.mkdtemp(prefix="fsdp-disk-")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "fsdp-test", folder],
                          text=True, capture_output=True, check=False)
    try:
        if done.returncode != 0:
            raise unittest.SkipTest(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
        yield SmallDisk(folder)
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)
        pathlib.Path(folder).rmdir()
