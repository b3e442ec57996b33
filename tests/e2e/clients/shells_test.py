"""Completion in the shells themselves: bash, zsh and fish, interactive on a terminal of their own, with a real
coordinator's jobs. What they offer is asked with the Tab key (fish: by its own question)."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from cluster import BIN, Cluster, tiny_job  # noqa: E402

ESCAPES = re.compile(r"\x1b(\[[0-9;?=>]*[A-Za-z]|[=>]|\][^\x07]*\x07)|\r|\x07")


class Terminal:
    """A shell with a terminal; `press` types and returns what the screen got until it is quiet or has `until`."""

    def __init__(self, command, environment):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)

    def press(self, keys, until, limit=30.0):
        os.write(self.fd, keys.encode())
        text, end = "", time.monotonic() + limit
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                text += os.read(self.fd, 65536).decode(errors="replace")
            plain = ESCAPES.sub("", text)
            if re.search(until, plain):
                return plain
        raise AssertionError(f"no {until!r} within {limit} s in {ESCAPES.sub('', text)!r}")

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


class ShellsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=1).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)
        cls.jobs = [cls.cluster.submit(tiny_job(name, ranks=1, steps=2, queue=name))
                    for name in ("apple", "pear")]
        folder = tempfile.TemporaryDirectory(prefix="fsdp-shells-")
        cls.addClassCleanup(folder.cleanup)
        cls.home = pathlib.Path(folder.name)
        (cls.home / "only-file.yaml").touch()
        cls.environment = {
            "PATH": f"{BIN.resolve()}:{os.environ['PATH']}", "HOME": str(cls.home), "TERM": "dumb", "PS1": "ready> ",
            "LC_ALL": "C.UTF-8", "FSDPCTL_SERVER": cls.cluster.server,
            # Under load a second is short; what is asked here is not how fast it is.
            "COLUMNS": "200"}
        subprocess.run([BIN / "fsdpctl", "context", "set", "orchard", f"server={cls.cluster.server}"], check=True,
                       env=cls.environment, stdout=subprocess.DEVNULL)

    def terminal(self, *command):
        terminal = Terminal(command, self.environment)
        self.addCleanup(terminal.close)
        terminal.press(f"cd {self.home}\n", "ready> ")
        return terminal

    def check(self, terminal):
        """A line is typed, completed where only one word fits, and thrown away (Ctrl-U)."""
        for typed, completed in (
                ("fsdpctl descr", "fsdpctl describe "),
                ("fsdpctl get app", f"fsdpctl get {self.jobs[0]} "),
                ("fsdpctl get apple --out", "--output"),
                ("fsdpctl list -o ya", "-o yaml "),
                ("fsdpctl list --output=ya", "--output=yaml"),
                ("fsdpctl list --output=jsonp", "--output=jsonpath="),
                ("fsdpctl list --queue pe", "--queue pear "),
                ("fsdpctl list --context or", "--context orchard "),
                ("fsdpctl context set orchard server", "set orchard server="),
                (f"fsdpctl drain {self.worker()[:-1]}", f"drain {self.worker()} "),
                (f"fsdpctl get --server {self.cluster.server} pea", f"--server {self.cluster.server} {self.jobs[1]} "),
                ("fsdpctl submit only", "submit only-file.yaml "),
                ("fsdpctl submit --file=only", "--file=only-file.yaml"),
                ("fsdpctl checkpoint resh", "checkpoint reshard ")):
            with self.subTest(typed=typed):
                terminal.press(typed + "\t", re.escape(completed))
                terminal.press("\x15\n", "ready> ")
        # Several fit: all are shown.
        shown = terminal.press("fsdpctl get \t\t", re.escape(self.jobs[1]))
        self.assertIn(self.jobs[0], shown)
        terminal.press("\x15\n", "ready> ")

    def worker(self):
        return self.cluster.json("workers")[0]["name"].removeprefix("workers/")

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_bash(self):
        terminal = self.terminal("bash", "--norc", "--noprofile", "-i")
        terminal.press("source <(fsdpctl completion bash); echo loa''ded\n", "loaded\nready> ")
        self.check(terminal)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh (deploy/packages/install_deps test)")
    def test_zsh(self):
        terminal = self.terminal("zsh", "-f", "-i", "-o", "no_prompt_sp")
        terminal.press("autoload -Uz compinit; compinit -u; source <(fsdpctl completion zsh); echo loa''ded\n",
                       "loaded\nready> ")
        self.check(terminal)

    @unittest.skipUnless(shutil.which("fish"), "no fish (deploy/packages/install_deps test)")
    def test_fish(self):
        def ask(line):
            done = subprocess.run(
                ["fish", "--no-config", "-c", "fsdpctl completion fish | source; complete -C $argv[1]", line],
                text=True, capture_output=True, check=True, env=self.environment, cwd=self.home)
            return done.stdout.splitlines()

        self.assertEqual(ask("fsdpctl get app"), [f"{self.jobs[0]}\tSUCCEEDED"])
        self.assertEqual(sorted(line.split("\t")[0] for line in ask("fsdpctl get ")), sorted(self.jobs))
        self.assertTrue(ask("fsdpctl descr")[0].startswith("describe\tAll about one job"))
        self.assertEqual(ask("fsdpctl list --output=ya"), ["--output=yaml"])
        self.assertEqual(ask("fsdpctl list --context or"), [f"orchard\t{self.cluster.server}"])
        self.assertEqual(ask(f"fsdpctl get --server {self.cluster.server} pea")[0].split("\t")[0], self.jobs[1])
        self.assertEqual(ask("fsdpctl submit only")[0].split("\t")[0], "only-file.yaml")

    def test_a_coordinator_that_is_away_costs_a_second_at_most_and_offers_nothing(self):
        for words in (["get", ""], ["workers", "-o", "jso"]):
            done = subprocess.run([BIN / "fsdpctl", "__complete", "--", *words], text=True, capture_output=True,
                                  check=True, env={**self.environment, "FSDPCTL_SERVER": "127.0.0.1:1"})
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout, ":words\n" + ("json\njsonpath=\n" if words[-1] else ""))


if __name__ == "__main__":
    unittest.main()
