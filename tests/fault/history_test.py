"""The history checker finds what it is to find: each case breaks one promise in a history that keeps all of them."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import tiny_job  # noqa: E402
from history import BrokenPromise, History, key_of  # noqa: E402

STEPS = 4
LOSSES = {step: 5.0 - step / 10 for step in range(1, STEPS + 1)}


class Told:
    """A cluster that tells what the test says."""

    def __init__(self, folder):
        rows = [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4)]
        self.rows = [{"epoch": epoch, "step": step, "loss": LOSSES[step]} for epoch, step in rows]
        self.record = {"state": "JOB_STATE_SUCCEEDED", "epoch": 2, "attempts": [
            {"attempt": 1, "epoch": 1, "startTime": "2026-01-01T00:00:01Z", "endTime": "2026-01-01T00:00:02Z"},
            {"attempt": 2, "epoch": 2, "startTime": "2026-01-01T00:00:03Z", "endTime": "2026-01-01T00:00:04Z"}]}
        self.told = [{"sequence": number, "state": f"JOB_STATE_{state}", "epoch": epoch} for number, (state, epoch) in
                     enumerate([("QUEUED", 0), ("STARTING", 1), ("RECOVERING", 1), ("STARTING", 2), ("SUCCEEDED", 2)], 1)]
        self.lines = ["a line", "another"]
        for step, epoch in ((2, 1), (4, 2)):
            self.save(folder, step, epoch)

    @staticmethod
    def save(folder, step, epoch, position=None):
        where = pathlib.Path(folder) / "j" / f"step-{step:08}.e{epoch:05}"
        where.mkdir(parents=True, exist_ok=True)
        (where / "manifest.json").write_text(json.dumps({"job": "jobs/j", "step": step, "epoch": epoch,
                                                         "position": position or 4 * step}), encoding="utf-8")

    def ctl(self, verb, *_, **__):
        text = {"submit": "jobs/j\n", "get": json.dumps({"job": self.record}), "logs": "\n".join(self.lines),
                "metrics": "\n".join(map(json.dumps, self.rows))}[verb]
        return subprocess.CompletedProcess([], 0, stdout=text, stderr="")

    def events(self, _):
        return self.told

    def metrics(self, _):
        return self.rows

    def job(self, _):
        return self.record


class HistoryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = Told(self.folder)
        self.spec = tiny_job(name="j", steps=STEPS, checkpoint=self.folder)
        self.history = History(self.cluster)
        self.history.submit(self.spec)

    def check(self):
        self.history.check({key_of(self.spec): LOSSES})

    def finds(self, words):
        with self.assertRaises(BrokenPromise) as broken:
            self.check()
        self.assertIn(words, str(broken.exception))
        self.assertIn("1 promises broken", str(broken.exception))

    def test_nothing_where_nothing_is_wrong(self):
        self.check()

    def test_a_job_that_ends_twice(self):
        self.cluster.told.append({"sequence": 6, "state": "JOB_STATE_FAILED", "epoch": 2})
        self.finds("with 2 ends")

    def test_a_job_that_does_not_end(self):
        self.cluster.told.pop()
        self.finds("with 0 ends")

    def test_an_event_that_is_missing(self):
        del self.cluster.told[2]
        self.finds("events are numbered [1, 2, 4, 5]")

    def test_an_epoch_that_comes_back(self):
        self.cluster.told.insert(4, {"sequence": 5, "epoch": 1})
        self.cluster.told[5]["sequence"] = 6
        self.finds("its epochs come as [1, 2, 1, 2]")

    def test_attempts_that_overlap(self):
        self.cluster.record["attempts"][0]["endTime"] = "2026-01-01T00:00:09Z"
        self.finds("before the one before it ended")

    def test_steps_of_an_epoch_that_is_over(self):
        self.cluster.rows.append({"epoch": 1, "step": 3, "loss": LOSSES[3]})
        self.finds("steps of an epoch that was over")

    def test_a_step_that_was_left_out(self):
        del self.cluster.rows[3]
        with self.assertRaises(BrokenPromise) as broken:
            self.check()
        self.assertIn("no metrics of steps [3]", str(broken.exception))

    def test_another_loss_than_the_calm_run(self):
        self.cluster.rows[-1]["loss"] += 1e-3
        self.finds("in the calm run")

    def test_two_losses_of_a_step(self):
        self.cluster.rows[1]["loss"] += 1e-3
        with self.assertRaises(BrokenPromise) as broken:
            self.check()
        self.assertIn("in another epoch", str(broken.exception))

    def test_metrics_and_logs_that_were_there_before(self):
        rows, lines = copy.copy(self.cluster.rows), self.cluster.lines
        self.cluster.rows, self.cluster.lines = rows + [rows[-1]] * 2, [*lines, "one more"]
        self.history.count("jobs/j")
        self.cluster.rows = rows
        self.cluster.lines = lines
        with self.assertRaises(BrokenPromise) as broken:
            self.check()
        self.assertIn("5 metrics, 7 were there before", str(broken.exception))
        self.assertIn("2 logs, 3 were there before", str(broken.exception))

    def test_an_end_that_is_taken_back(self):
        self.history.look("jobs/j")
        self.cluster.record["state"] = "JOB_STATE_RUNNING"
        with self.assertRaises(BrokenPromise) as broken:
            self.check()
        self.assertIn("RUNNING after SUCCEEDED", str(broken.exception))

    def test_a_step_that_was_applied_twice(self):
        self.cluster.save(self.folder, 4, 2, position=20)
        self.finds("position 20 after 4 steps")

    def test_a_checkpoint_of_an_epoch_that_was_given_up(self):
        self.cluster.save(self.folder, 4, 1)
        self.cluster.save(self.folder, 3, 2)
        pathlib.Path(self.folder, "j/step-00000004.e00002/manifest.json").unlink()
        self.finds("checkpoints of steps [2, 3, 4] are of epochs [1, 2, 1]")


if __name__ == "__main__":
    unittest.main(verbosity=2)
