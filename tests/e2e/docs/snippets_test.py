"""What README.md and docs/clients.md tell readers to type, typed: in a network of its own, so that the ports are the ones
that are written there, and in a copy of the tree, so that nothing is left behind."""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve()
SOURCE = HERE.parents[3]
sys.path.insert(0, str(SOURCE / "tests/support"))
import snippets  # noqa: E402
from cluster import wait_for  # noqa: E402

BIN = pathlib.Path(os.environ.get("FSDP_BINARY_DIR", "build/dev/bin")).resolve()
PAGES = ("README.md", "docs/clients.md")
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


def enter_own_network():
    """A loopback of this process alone; False where that is not allowed."""
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        import fcntl
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(control, 0x8914, up)  # SIOCSIFFLAGS
    return True


class PagesTest(unittest.TestCase):
    """Without running anything."""

    def test_every_block_says_what_it_is(self):
        for page in PAGES:
            for snippet in snippets.read(SOURCE / page):
                if snippet.instead:
                    reason, path = snippet.instead
                    self.assertGreater(len(reason), 10, f"{page}:{snippet.line}")
                    self.assertTrue((SOURCE / path).exists(), f"{page}:{snippet.line}: there is no {path}")

    def test_a_block_without_a_kind_is_found(self):
        with tempfile.NamedTemporaryFile("w", suffix=".md") as page:
            for text, part in (("```\nx\n```\n", "what it is"), ("```bash\nx\n```\n", "what it is"),
                               ("```sh\nx\n", "does not end")):
                page.seek(0)
                page.truncate()
                page.write(text)
                page.flush()
                with self.assertRaisesRegex(ValueError, part):
                    snippets.read(page.name)


class Session:
    """A folder as a reader has it after building, and the programs of `fsdpctl local` while a page is followed."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("deploy", "docs", "proto", "client"):
            shutil.copytree(SOURCE / name, folder / name, symlinks=True,
                            ignore=shutil.ignore_patterns("node_modules", "__pycache__", "build"))
        (folder / "build/dev").mkdir(parents=True)
        (folder / "build/dev/bin").symlink_to(BIN)
        shutil.copy(SOURCE / "deploy/examples/tiny.yaml", folder / "job.yaml")
        # A tokenizer and a text of the user's.
        (folder / "qwen").mkdir()
        # Byte-level BPE writes each byte as a letter: the printable ones as themselves, the others from 256 on.
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        letters = {chr(byte if byte in plain else 256 + others.index(byte)): byte for byte in range(256)}
        (folder / "qwen/tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [{"id": 256, "content": "<|endoftext|>", "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": letters, "merges": []}}), encoding="utf-8")
        (folder / "corpus.jsonl").write_text('{"text": "some words"}\n{"text": "and more"}\n', encoding="utf-8")
        # `python3` of a reader on Debian is Debian's.
        self.environment = {**os.environ, "HOME": str(folder), "NO_COLOR": "1",
                            "PATH": f"{BIN}:/usr/bin:/bin:{os.environ['PATH']}"}
        self.environment.pop("FSDPCTL_SERVER", None)
        self.local = None

    def run(self, command, timeout=240):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], text=True, cwd=self.folder, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=self.environment, timeout=timeout)
        print(f"$ {command}\n{done.stdout[-1500:]}", flush=True)
        return done

    def check(self, command):
        done = self.run(command)
        if done.returncode != 0:
            raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}")
        return done.stdout

    def start_local(self, command):
        self.local = subprocess.Popen(command.split(), cwd=self.folder, env=self.environment, start_new_session=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.run("fsdpctl workers -o name", 60).stdout.count("cpu") >= 2, "workers of `fsdpctl local`")

    def close(self):
        if self.local is None or self.local.poll() is not None:
            return
        self.local.send_signal(signal.SIGINT)
        try:
            self.local.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.local.pid, signal.SIGKILL)
            raise

    def submitted(self, steps, *sets):
        """A job of the session's own that the page's JOB stands for."""
        return self.check(" ".join(["fsdpctl submit job.yaml -o name", f"--set limits.maxSteps={steps}", *sets])).strip()


class SnippetsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fsdp-snippets-")
        cls.addClassCleanup(folder.cleanup)
        cls.session = Session(pathlib.Path(folder.name))
        cls.addClassCleanup(cls.session.close)

    def blocks(self, page):
        return [snippet for snippet in snippets.read(SOURCE / page) if snippet.kind != "text" and not snippet.instead]

    def type_in(self, command, jobs):
        """One line of a page; JOB is a job that fits the command."""
        session = self.session
        if re.match(r"fsdpctl local\b(?!.*--)", command):
            return session.start_local(command)
        if "JOB" not in command:
            return session.check(command)
        if not command.startswith("fsdpctl profile"):
            if "finished" not in jobs:
                jobs["finished"] = session.submitted(20)
                session.check(f"fsdpctl wait {jobs['finished']} --timeout 240s")
            return session.check(re.sub(r"\bJOB\b", jobs["finished"], command))
        # A recording needs steps to record; everything else reads what there is.
        running = session.submitted(100000, "--set limits.maxRunSeconds=600")
        session.check(f"fsdpctl wait {running} --for RUNNING --timeout 240s")
        output = session.check(re.sub(r"\bJOB\b", running, command))
        session.check(f"fsdpctl cancel {running} --wait")
        return output

    def test_readme(self):
        jobs = {}
        for snippet in self.blocks("README.md"):
            with self.subTest(line=snippet.line):
                if snippet.kind == "console":
                    for command, output in snippet.dialogue():
                        self.assertEqual(self.session.run(command).stdout, output)
                    continue
                for command in snippet.commands():
                    self.type_in(command, jobs)
        self.assertTrue(self.session.local, "the page starts no cluster")

    def test_z_clients(self):
        """Behind test_readme, whose cluster it uses as a reader would."""
        if self.session.local is None:
            self.session.start_local("fsdpctl local")
        python, jobs = None, {}
        for snippet in self.blocks("docs/clients.md"):
            with self.subTest(line=snippet.line):
                if snippet.kind == "sh":
                    for command in snippet.commands():
                        self.type_in(command, jobs)
                    continue
                python = python or self.session.folder / ".venv/bin/python"
                program = self.session.folder / "snippet.py"
                program.write_text(snippet.text, encoding="utf-8")
                self.assertTrue(self.session.check(f"{python} snippet.py").strip(), "it prints nothing")


if __name__ == "__main__":
    # Its ports are the machine's only where a network of one's own is not allowed.
    if not enter_own_network():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 7070)) == 0:
                print("skipped: no network of one's own is allowed here, and port 7070 is in use")
                sys.exit(77)
    unittest.main()
