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
        self.filler.unlink(missing_ok=True)

    def freeze(self):
        """What is written from now on waits, as on a disk that does not answer. Of a block_disk alone."""
        subprocess.run(["fsfreeze", "--freeze", self.path], check=True, capture_output=True)

    def thaw(self):
        subprocess.run(["fsfreeze", "--unfreeze", self.path], check=False, capture_output=True)


@contextlib.contextmanager
def block_disk(mebibytes):
    """An ext4 of that size in a file, on a loop device; skips the test where that is not permitted."""
    with tempfile.TemporaryDirectory(prefix="fsdp-disk-") as root:
        image, folder = pathlib.Path(root) / "image", pathlib.Path(root) / "mounted"
        folder.mkdir()
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        mounted = False
        for command in (["mkfs.ext4", "-q", "-m", "0", image], ["mount", "-o", "loop", image, folder]):
            done = subprocess.run(command, text=True, capture_output=True, check=False)
            if done.returncode != 0:
                raise unittest.SkipTest(f"needs mkfs.ext4 and the right to mount a file: {done.stderr.strip()}")
            mounted = command[0] == "mount"
        disk = SmallDisk(folder)
        try:
            yield disk
        finally:
            disk.thaw()
            if mounted:
                subprocess.run(["umount", "-l", folder], check=True)


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
