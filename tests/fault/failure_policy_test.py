"""failurePolicy through the real binaries: rules, budgets, backoff, exit code 93."""

import os
import pathlib
import signal
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402

# A trainer that ends before it has begun, with the code that the job asks for: each time, or once.
TRAINER = """#!/bin/sh
if [ -n "$FSDP_EXIT_CODE" ] && [ ! -e "${{FSDP_EXIT_ONCE:-/nonexistent}}" ]; then
  [ -z "$FSDP_EXIT_ONCE" ] || : > "$FSDP_EXIT_ONCE"
  echo "the device is on fire" >&2
  exit "$FSDP_EXIT_CODE"
fi
exec {trainer} "$@"
"""
# Weight decay times learning rate is 10: weights grow ninefold a step, until they are infinite.
DIVERGES = {"optimizer": {"lr": 1000}}


class FailurePolicyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        trainer = pathlib.Path(cls.folder.name) / "trainer"
        trainer.write_text(TRAINER.format(trainer=BIN.resolve() / "fsdp-trainer"))
        trainer.chmod(trainer.stat().st_mode | stat.S_IXUSR)
        cls.cluster = Cluster(workers=3, worker_flags=[f"--trainer={trainer}"]).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)
        cls.folder.cleanup()

    def submit(self, name, policy, **job):
        """A job with checkpoints of its own."""
        folder = pathlib.Path(self.folder.name) / name
        return self.cluster.submit(tiny_job(name=name, checkpoint=folder, failurePolicy=policy, **job)), folder

    def ended(self, name):
        """The job and the texts of its restarts."""
        def over():
            job = self.cluster.job(name)
            return job if "endTime" in job else None

        job = wait_for(over, f"{name} to end", 120)
        restarts = [e["message"] for e in self.cluster.events(name) if e["type"] == "RESTARTING"]
        return job, job["state"].removeprefix("JOB_STATE_"), restarts

    def kill_rank_1(self, name, folder):
        pids = self.cluster.wait_ranks(name, 2)
        self.cluster.wait_checkpoint(folder, 5)
        worker = self.cluster.job(name)["ranks"][1]["worker"]
        os.kill(pids[1], signal.SIGKILL)
        return worker

    def test_the_first_rule_that_matches_ends_the_job(self):
        name, folder = self.submit("ruled", {"rules": [
            {"signals": [11], "action": "restart"},
            {"signals": [9], "phases": ["train", "checkpoint"], "action": "fail"},
            {"causes": ["rank_died"], "action": "restart_free"}]}, steps=100000)
        self.kill_rank_1(name, folder)
        job, state, restarts = self.ended(name)
        self.assertEqual((state, restarts), ("FAILED", []))
        self.assertIn("a failure rule ends the job (failurePolicy.rules[1])", job["reason"])

    def test_exclude_worker_goes_on_without_it(self):
        name, folder = self.submit("moved", {"rules": [{"signals": [9], "action": "exclude_worker"}]}, steps=100000)
        excluded = self.kill_rank_1(name, folder)
        job = wait_for(lambda: j if int((j := self.cluster.job(name))["epoch"]) == 2 else None, "the next epoch")
        self.assertNotIn(excluded, [rank["worker"] for rank in job["ranks"]])
        self.assertEqual(int(job["restarts"]["infrastructure"]), 1)
        self.cluster.ctl("cancel", name)
        self.cluster.wait_state(name, "CANCELLED")

    def test_a_rule_by_exit_code_log_and_phase_restarts_free(self):
        once = pathlib.Path(self.folder.name) / "once"
        name, _ = self.submit("on-fire", {"rules": [
            {"exitCodes": [7], "logRegex": "on (fire|ice)", "phases": ["start"], "action": "restart_free"}]},
            ranks=1, steps=3, env={"FSDP_EXIT_CODE": "7", "FSDP_EXIT_ONCE": str(once)})
        job, state, restarts = self.ended(name)
        self.assertEqual(state, "SUCCEEDED", job.get("reason"))
        self.assertEqual(restarts, ["restart without charge (failurePolicy.rules[0])"])
        self.assertEqual({kind: count for kind, count in job["restarts"].items() if count}, {"free": 1})

    def test_exit_code_93_never_restarts(self):
        name, _ = self.submit("never", {"maxUserRestarts": 5, "rules": [{"exitCodes": [93], "action": "restart_free"}]},
                              ranks=1, steps=3, env={"FSDP_EXIT_CODE": "93"})
        job, state, restarts = self.ended(name)
        self.assertEqual((state, restarts), ("FAILED", []))
        self.assertIn("exited with code 93: never restarted", job["reason"])

    def test_the_users_own_failure_is_not_retried_unless_the_spec_says_so(self):
        name, _ = self.submit("diverges", {}, steps=400, **DIVERGES)
        job, state, restarts = self.ended(name)
        self.assertEqual((state, restarts), ("FAILED", []))
        self.assertIn("NON_FINITE", job["cause"])
        self.assertIn("failurePolicy.maxUserRestarts is 0", job["reason"])

    def test_restarts_without_progress_end_and_wait_twice_as_long_each(self):
        name, _ = self.submit("stuck", {"maxUserRestarts": 10, "maxNoProgressRestarts": 2, "backoffInitialSeconds": 0.1,
                                        "backoffMaxSeconds": 0.15}, steps=400, **DIVERGES)
        job, state, restarts = self.ended(name)
        self.assertEqual(state, "FAILED")
        self.assertIn("no progress in 2 restarts in a row", job["reason"])
        # It fails at the same step again: the first time that was progress.
        self.assertEqual(restarts, ["user restart 1 of 10", "user restart 2 of 10 in 100ms",
                                    "user restart 3 of 10 in 150ms"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
