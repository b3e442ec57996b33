"""`fsdpctl local` with its real processes: what it starts, it also brings back."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, SOURCE, Cluster, tiny_job, wait_for  # noqa: E402


def stat_of(pid):
    """(state, parent) of a process; None when there is none."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    state, parent = text.rsplit(")", 1)[1].split()[:2]
    return state, int(parent)


class Local(Cluster):
    """The same calls, with coordinator and workers under `fsdpctl local`."""

    def start_coordinator(self):
        self._spawn("local", BIN / "fsdpctl", "local", "--devices=cpu", f"--workers={self.num_workers}",
                    f"--state-dir={self.root / 'state'}")
        path = self.root / "state" / "server"

        def ready():
            process = self.processes["local"]
            if process.poll() is not None:
                raise AssertionError(f"local exited with {process.returncode}")
            return path.exists() and path.read_text().strip()

        self.server = wait_for(ready, f"{path} to appear")

    def start_workers(self):
        self.wait_workers(self.num_workers)


class LocalTest(unittest.TestCase):
    def test_a_killed_daemon_comes_back_and_its_job_goes_on(self):
        with Local(workers=2) as c:
            folder = c.root / "checkpoints"
            name = c.submit(tiny_job(ranks=2, steps=150, checkpoint=folder))
            trainer = c.wait_ranks(name, 2)[0]
            c.wait_checkpoint(folder, 5)
            local = c.processes["local"]
            daemon = stat_of(trainer)[1]
            self.assertNotEqual(daemon, local.pid)
            subprocess.run(["kill", "-KILL", str(daemon)], check=True)
            # It dies with its daemon and is inherited by `local`, which must reap it.
            wait_for(lambda: stat_of(trainer) is None, f"trainer {trainer} to be reaped", 20)
            c.wait_state(name, "SUCCEEDED", timeout=60)
            self.assertGreater(len({row["epoch"] for row in c.metrics(name)}), 1)
            self.assertIsNone(local.poll())

    def test_what_quickstart_says_at_ctrl_c_is_what_the_next_one_does(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            text = root / "text.txt"
            text.write_text("".join(f"line {i} of a text\n" for i in range(60000)), encoding="ascii")

            def run_until_submitted(log):
                with open(log, "wb") as out:
                    local = subprocess.Popen(
                        [BIN / "fsdpctl", "local", "--devices=cpu", f"--state-dir={root / 'state'}", "--",
                         SOURCE / "deploy/examples/quickstart_job", text],
                        stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                        env={**os.environ, "FSDPCTL_QUICKSTART_OUT": str(root / "state")})
                try:
                    said = wait_for(lambda: [line for line in log.read_text().splitlines()
                                             if line.startswith("Submitted ")], "quickstart to submit")
                    # As a terminal does: to all of them.
                    os.killpg(local.pid, signal.SIGINT)
                    local.wait(timeout=60)
                finally:
                    if local.poll() is None:
                        os.killpg(local.pid, signal.SIGKILL)
                return said[0].split()[1], log.read_text()

            job, said = run_until_submitted(root / "first.log")
            self.assertIn(f"The next ./quickstart cancels {job} and starts over.", said)
            self.assertIn(f"local --state-dir {root / 'state'}", said)
            other, said = run_until_submitted(root / "second.log")
            self.assertNotEqual(job, other)
            self.assertIn("Starting over", said)
            self.assertIn(f"job {job}: CANCELLED", said)


if __name__ == "__main__":
    unittest.main()
