"""Backups of a coordinator that serves, and its jobs moved to etcd and back, by the commands that people type."""

import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402
from etcd_cluster import EtcdCluster  # noqa: E402


def coordinator(*arguments):
    return subprocess.run([str(BIN / "fsdp-coordinator"), *map(str, arguments)], text=True, capture_output=True,
                          timeout=120, check=False)


class BackupTest(unittest.TestCase):
    def test_back_up_while_it_serves_restore_and_move(self):
        with Cluster(workers=2) as cluster:
            name = cluster.submit(tiny_job(name="kept", steps=5))
            cluster.wait_state(name, "SUCCEEDED")
            before = (cluster.events(name), cluster.metrics(name), cluster.ctl("logs", name).stdout)
            state, backup = cluster.root / "coordinator", cluster.root / "jobs.backup"
            done = cluster.ctl("admin", "backup", "--state-dir", state, "--to", backup)
            self.assertIn(f"backed up to {backup}", done.stdout)
            again = cluster.ctl("admin", "backup", "--state-dir", state, "--to", backup, check=False)
            self.assertNotEqual(again.returncode, 0)
            self.assertIn("exists: give a new name", again.stderr)

            # Where one serves, nothing is restored or moved.
            etcd = EtcdCluster(cluster.root, members=1)
            self.addCleanup(etcd.stop)
            etcd.start(0)
            for verb, flags in (("restore", (f"--from={backup}", f"--state-dir={state}")),
                                ("migrate", (f"--from={state}", f"--to={etcd.url()}"))):
                refused = coordinator(verb, *flags)
                self.assertEqual(refused.returncode, 2, refused.stderr)
                self.assertIn(f"another coordinator (pid {cluster.processes['coordinator'].pid} on ", refused.stderr)

            cluster.kill("coordinator")
            other = cluster.root / "restored"
            restored = cluster.ctl("admin", "restore", "--from", backup, "--state-dir", other)
            self.assertIn(f"restored {backup} into {other}", restored.stdout)
            moved = wait_for(lambda: done if (done := coordinator(
                "migrate", f"--from={other}", f"--to={etcd.url()}")).returncode == 0 else None, "etcd answers")
            self.assertIn("copied 1 jobs", moved.stdout)
            twice = coordinator("migrate", f"--from={other}", f"--to={etcd.url()}")
            self.assertEqual(twice.returncode, 2)
            self.assertIn("has 1 jobs", twice.stderr)
            back = cluster.root / "back"
            self.assertEqual(coordinator("migrate", f"--from={etcd.url()}", f"--to={back}").returncode, 0)

            # What came the whole way round is served as it was.
            state.rename(cluster.root / "old")
            back.rename(state)
            cluster.start_coordinator()
            self.assertEqual((cluster.events(name), cluster.metrics(name), cluster.ctl("logs", name).stdout), before)

    def test_flags_that_are_missing_are_named(self):
        for arguments, missing in ((("backup", "--state-dir=x"), "--to"), (("restore", "--state-dir=x"), "--from"),
                                   (("backup", "--to=x"), "--state-dir"), (("migrate", "--from=x"), "--to")):
            done = coordinator(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{missing} is not set", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
