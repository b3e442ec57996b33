"""`fsdpctl tokenize` with its real process: killed anywhere, it goes on where it was."""

import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["FSDP_BINARY_DIR"])


def shard_ids(path):
    data = path.read_bytes()
    magic, version, count = struct.unpack_from("<3i", data)
    assert (magic, version) == (20240520, 1), path
    ids = struct.unpack_from(f"<{count}H", data, 1024)
    assert len(data) == 1024 + 2 * count, path
    return list(ids)


class TokenizeTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-tokenize-"))
        self.addCleanup(shutil.rmtree, self.root)
        generator = random.Random(1)
        words = ["".join(generator.choice("abcdefgh") for _ in range(generator.randint(1, 9))) for _ in range(500)]
        self.text = "\n".join(" ".join(generator.choice(words) for _ in range(12)) for _ in range(60000))
        (self.root / "text.txt").write_text(self.text, encoding="utf-8")
        self.out = self.root / "out"

    def command(self, *arguments):
        return [str(BIN / "fsdpctl"), "tokenize", "--tokenizer", "bytes", "--output", str(self.out), *arguments,
                str(self.root / "text.txt")]

    def run_to_end(self, *arguments):
        return subprocess.run(self.command(*arguments), text=True, capture_output=True, timeout=120, check=False)

    def test_killed_runs_go_on_and_leave_finished_shards_alone(self):
        flags = ("--shard-tokens", "20000", "--threads", "2")
        kills = 0
        written = {}
        generator = random.Random(2)
        for _ in range(60):
            process = subprocess.Popen(self.command(*flags), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # Some way into a shard that is new, however fast this machine is.
            while (code := process.poll()) is None and len(list(self.out.glob("tokens_*.bin"))) <= len(written):
                time.sleep(0.0005)
            if code is None:
                time.sleep(generator.uniform(0, 0.004))
                # The tokenizer dies with fsdpctl.
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                time.sleep(0.05)
            for path, modified in written.items():
                self.assertEqual(path.stat().st_mtime_ns, modified, path)
            if self.out.exists():
                for path in self.out.glob("tokens_*.bin"):
                    written.setdefault(path, path.stat().st_mtime_ns)
            if code == 0:
                break
        done = self.run_to_end(*flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(kills, 0)
        manifest = json.loads((self.out / "manifest.json").read_text(encoding="utf-8"))
        ids = [token for shard in manifest["shards"] for token in shard_ids(self.out / shard["file"])]
        self.assertEqual(bytes(ids), self.text.encode())
        self.assertEqual(manifest["tokens"], len(ids))
        self.assertEqual(sorted(path.name for path in self.out.iterdir() if path.name != ".lock"),
                         ["manifest.json", *(shard["file"] for shard in manifest["shards"])])
        self.assertIn("there already", self.run_to_end(*flags).stdout)

    def test_progress_bar_on_a_terminal(self):
        terminal, ours = pty.openpty()
        process = subprocess.Popen(self.command("--overwrite"), stdout=subprocess.PIPE, stderr=ours, text=True)
        os.close(ours)
        shown = b""
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:  # The other end is closed.
            pass
        os.close(terminal)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertRegex(shown.decode(), r"━+  100%  [0-9.]+ of [0-9.]+ MB")
        self.assertRegex(process.stdout.read(), r"(?m)^\d+ tokens of 1 documents")
        process.stdout.close()

    def test_mistakes_are_named(self):
        for flags, code, words in ((["--threads", "0"], 2, "threads"),
                                   (["--document-separator", "<eos>"], 2, "neither a token nor an id"),
                                   (["--tokenizer", "/nonexistent/tokenizer.json"], 2, "tokenizer"),
                                   (["--format", "xml"], 2, "xml")):
            done = self.run_to_end(*flags)
            self.assertEqual(done.returncode, code, f"{flags}: {done.stderr}")
            self.assertIn(words, done.stderr)
        done = subprocess.run([str(BIN / "fsdpctl"), "tokenize", "--tokenizer", "/nonexistent/t.json", "--output",
                               str(self.out), "x.txt"], text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 102, done.stderr)
        self.assertTrue(re.search(r"/nonexistent/t\.json.*No such file", done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
