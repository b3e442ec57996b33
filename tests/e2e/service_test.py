"""The service through its real binaries: submit, train, follow, measure, stop."""

import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402
from prometheus import Prometheus  # noqa: E402


def trainers(ancestor):
    """Pids of the trainers below a process."""
    parents, names = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, rest = stat.read_text(encoding="ascii", errors="replace").split("(", 1)[1].rsplit(")", 1)
            pid = int(stat.parent.name)
            names[pid], parents[pid] = name, int(rest.split()[1])

    def below(pid):
        while pid in parents and pid != ancestor:
            pid = parents[pid]
        return pid == ancestor

    return {pid for pid, name in names.items() if name.startswith("fsdp-trainer") and below(pid)}


class ServiceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=4).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def test_submitted_job_trains_and_succeeds(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            name = c.submit(tiny_job(ranks=2, steps=20, checkpoint=folder))
            done = c.ctl("wait", name, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            job = c.job(name)
            self.assertEqual(job["state"].removeprefix("JOB_STATE_"), "SUCCEEDED")
            self.assertEqual(int(job["result"]["steps"]), 20)
            self.assertEqual(int(job["checkpoint"]["step"]), 20)
            losses = c.losses(name)
            self.assertEqual(sorted(losses), list(range(1, 21)))
            # Uniform synthetic tokens: the loss starts near ln(vocabulary).
            self.assertAlmostEqual(losses[1], math.log(64), delta=0.3)
            self.assertTrue(all(int(r["memoryPeakBytes"]) > 0 for r in job["ranks"]))
            logs = c.ctl("logs", name).stdout
            self.assertIn("Step | Loss | Peak memory per rank", logs)
            # What cannot come any more, or was never there, is no success and no empty answer.
            late = c.ctl("wait", name, "--for", "state=RUNNING", check=False)
            self.assertEqual(late.returncode, 101, late.stdout + late.stderr)
            self.assertIn("has ended as SUCCEEDED, so it does not become RUNNING any more", late.stderr)
            nobody = c.ctl("logs", name, "--rank", "9", check=False)
            self.assertEqual((nobody.returncode, nobody.stdout), (2, ""), nobody.stderr)
            self.assertIn("has ranks 0..1", nobody.stderr)

    def test_exit_code_follows_the_job(self):
        c = self.cluster
        document = tiny_job(name="missing-data", ranks=2, data={"source": "text", "path": "/nonexistent/x"},
                            model={"vocabSize": 256})
        done = c.ctl("submit", "-f", "-", "--wait", check=False, stdin=json.dumps(document))
        self.assertEqual(done.returncode, 100, done.stdout + done.stderr)
        self.assertIn("/nonexistent/x", done.stdout + done.stderr)

    def test_cancel_suspend_resume(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            name = c.submit(tiny_job(name="long", ranks=2, steps=100000, checkpoint=folder,
                                     train={"globalBatch": 64}))
            c.wait_step(name, 3)
            suspended = c.ctl("suspend", "--wait", name)
            self.assertEqual(suspended.stdout, f"job {name}: SUSPENDED\n")
            self.assertEqual(c.ctl("suspend", name, check=False).returncode, 2)
            c.wait_state(name, "SUSPENDED")
            saved = int(c.job(name)["checkpoint"]["step"])
            self.assertGreaterEqual(saved, 3)
            c.ctl("resume", name)
            c.wait_state(name, "RUNNING")
            c.wait_step(name, saved + 2)
            steps = [int(row["step"]) for row in c.metrics(name)]
            self.assertEqual(steps, sorted(set(steps)), "no step is lost or repeated over a suspend")
            c.ctl("cancel", name)
            c.wait_state(name, "CANCELLED")
            self.assertEqual(c.ctl("wait", name, check=False).returncode, 103)
            c.ctl("delete", name)
            self.assertEqual(c.ctl("get", name, check=False).returncode, 102)

    def test_a_verb_that_loses_progress_says_so(self):
        c = self.cluster
        name = c.submit(tiny_job(name="careless", ranks=2, steps=100000, train={"globalBatch": 64}))
        self.addCleanup(c.ctl, "cancel", name, check=False)
        c.wait_step(name, 3)
        suspended = c.ctl("suspend", name)
        self.assertIn("warning:", suspended.stderr)
        self.assertIn("Set checkpoint.dir", suspended.stderr)
        c.wait_state(name, "SUSPENDED")
        lost = [e for e in c.events(name) if e["type"] == "PROGRESS_LOST"]
        self.assertEqual([e["severity"] for e in lost], ["WARNING"])
        # Resume takes a suspend back; restart is for what runs or has ended without success.
        refused = c.ctl("restart", name, check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("it cannot be restarted; resume it", refused.stderr)
        c.ctl("resume", name)
        c.wait_state(name, "RUNNING")
        c.ctl("cancel", "--wait", name)
        refused = c.ctl("resume", name, check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("restart this one", refused.stderr)
        late = c.ctl("wait", name, "--for", "state=SUSPENDED", check=False)
        self.assertEqual(late.returncode, 103, late.stdout + late.stderr)

    def test_restart_of_a_cancelled_job_goes_on_from_its_checkpoint(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            name = c.submit(tiny_job(name="again", steps=100000, checkpoint=folder, train={"globalBatch": 64}))
            self.addCleanup(c.ctl, "cancel", name, check=False)
            c.wait_step(name, 12)
            c.ctl("cancel", name)
            c.wait_state(name, "CANCELLED")
            saved = int(c.job(name)["checkpoint"]["step"])
            c.ctl("restart", name)
            c.wait_state(name, "QUEUED", "STARTING", "RUNNING")
            c.wait_step(name, saved + 2)
            # A cancel between a manifest's admission and its renaming costs that checkpoint: the one before
            # is taken, by a third epoch.
            job = c.job(name)
            self.assertIn((int(job["epoch"]), int(job["attempts"][-1]["firstStep"])),
                          [(2, saved + 1), (3, saved - 4)])
            c.losses(name)
            c.ctl("cancel", name)
            c.wait_state(name, "CANCELLED")

    def test_restart_of_a_failed_job_after_its_cause_is_gone(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text"
            name = c.submit(tiny_job(name="mended", steps=3, model={"vocabSize": 256},
                                     data={"source": "text", "path": str(text)}))
            c.wait_state(name, "FAILED")
            self.assertIn("the spec allows no user restarts (failurePolicy.maxUserRestarts is 0)",
                          c.job(name)["reason"])
            text.write_text("all work and no play makes jack a dull boy\n" * 100)
            c.ctl("restart", name)
            self.assertEqual(c.ctl("wait", name, check=False).returncode, 0)
            job = c.job(name)
            self.assertNotIn("cause", job)
            self.assertEqual(int(job["result"]["steps"]), 3)

    def test_drain_moves_a_job_with_its_checkpoint(self):
        c = self.cluster
        with tempfile.TemporaryDirectory() as folder:
            name = c.submit(tiny_job(name="moving", steps=100000, checkpoint=folder,
                                     train={"globalBatch": 64}))
            c.wait_step(name, 3)
            drained = c.job(name)["ranks"][1]["worker"]
            c.ctl("drain", drained, "--stop-ranks", "--reason", "new fan")
            try:
                wait_for(lambda: int(c.job(name)["epoch"]) == 2, "the second epoch", 20)
                c.wait_state(name, "RUNNING")
                job = c.job(name)
                self.assertNotIn(drained, [rank["worker"] for rank in job["ranks"]])
                first, second = job["attempts"][:2]
                self.assertIn("DRAINED", first["cause"])
                self.assertEqual(job.get("restarts", {}).get("infrastructure", 0), 0)
                c.wait_step(name, int(job["checkpoint"]["step"]) + 1)
                steps = [int(row["step"]) for row in c.metrics(name)]
                self.assertEqual(steps, list(range(1, len(steps) + 1)), "no step is done twice or lost")
                self.assertGreater(int(c.job(name)["attempts"][1]["firstStep"]), 3, second)
            finally:
                c.ctl("cancel", name)
                c.ctl("uncordon", drained)
            c.wait_state(name, "CANCELLED")
            c.wait_workers(4)

    def test_the_queue_goes_by_priority_then_by_age(self):
        c = self.cluster
        blocker = c.submit(tiny_job(name="blocker", ranks=4, steps=100000, train={"globalBatch": 64}))
        self.addCleanup(c.ctl, "cancel", blocker, check=False)
        c.wait_state(blocker, "RUNNING")
        names = [c.submit(tiny_job(name=f"p{priority}", ranks=4, steps=1, priority=priority))
                 for priority in (0, 0, 7)]
        for name in names:
            job = c.job(name)
            self.assertIn("QUEUED", job["state"])
            self.assertIn("4", job["reason"])
        c.ctl("cancel", blocker)
        for name in names:
            c.wait_state(name, "SUCCEEDED")
        starts = [c.job(name)["startTime"] for name in names]
        self.assertLess(starts[2], starts[0], "the higher priority goes first")
        self.assertLess(starts[0], starts[1], "then the older")

    def test_cancel_of_a_job_that_cannot_start(self):
        c = self.cluster
        parent = c.processes["workers"].pid
        before = trainers(parent)
        with tempfile.TemporaryDirectory() as folder:
            # Long to read, so that the trainers are stopped before they have joined.
            text = pathlib.Path(folder) / "zeros"
            with open(text, "wb") as file:
                file.truncate(256 << 20)
            name = c.submit(tiny_job(name="stuck", steps=3, model={"vocabSize": 256},
                                     data={"source": "text", "path": str(text)},
                                     limits={"gracePeriodSeconds": 1}))
            self.addCleanup(c.ctl, "cancel", name, check=False)
            fresh = wait_for(lambda: len(new := trainers(parent) - before) == 2 and new, "two trainers", 20, 0.002)
            for pid in fresh:
                os.kill(pid, signal.SIGSTOP)
            self.assertEqual(c.state(name), "STARTING")
            c.ctl("cancel", name)
            c.wait_state(name, "CANCELLED", timeout=20)
        self.assertFalse(any(os.path.exists(f"/proc/{pid}") for pid in fresh), "nothing stays behind")
        self.assertEqual(int(c.job(name).get("progress", {}).get("step", 0)), 0)
        c.wait_workers(4)

    def test_waiting_job_says_what_it_waits_for(self):
        c = self.cluster
        name = c.submit(tiny_job(name="huge", ranks=64))
        job = wait_for(lambda: (j := c.job(name)).get("reason") and j, "a reason")
        self.assertIn("64", job["reason"])
        self.assertIn("QUEUED", job["state"])
        c.ctl("cancel", name)

    def test_same_request_id_makes_one_job(self):
        c = self.cluster
        document = tiny_job(name="once", ranks=64)

        def create(_):
            return c.submit(document, "--request-id", "9f0c6a56-0000-4000-8000-000000000001")

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            names = set(pool.map(create, range(100)))
        self.assertEqual(len(names), 1)
        c.ctl("cancel", names.pop())

    def test_metrics_are_clean_and_true_in_a_real_prometheus(self):
        c = self.cluster
        name = c.submit(tiny_job(name="measured", ranks=2, steps=100000, train={"globalBatch": 16}))
        self.addCleanup(c.ctl, "cancel", name, check=False)
        c.wait_step(name, 5)
        urls = [c.metrics_url, c.worker_metrics_url()]
        for url in urls:
            text = urllib.request.urlopen(url, timeout=10).read()
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
            self.assertEqual(lint.returncode, 0, lint.stderr.decode() + lint.stdout.decode())
        with Prometheus({"fsdp-coordinator": urls[:1], "fsdp-worker": urls[1:]}) as prometheus:
            job_id = name.removeprefix("jobs/")
            loss = wait_for(lambda: prometheus.query(f'fsdp_loss{{job_id="{job_id}"}}'), "fsdp_loss", 40)
            self.assertAlmostEqual(loss[0][1], math.log(64), delta=0.7)
            peaks = prometheus.query(f'fsdp_memory_peak_bytes{{job_id="{job_id}"}}')
            self.assertEqual({labels["rank"] for labels, _ in peaks}, {"0", "1"})
            families = prometheus.query(f'fsdp_kernel_seconds_total{{job_id="{job_id}"}}')
            self.assertEqual({labels["source"] for labels, _ in families}, {"analytic"})
            self.assertTrue(any(labels["kernel_family"].startswith("matmul") for labels, _ in families))
            # Of the coordinator's endpoint, which is scraped at another time than the workers'.
            wait_for(lambda: prometheus.query('fsdp_jobs{state="running"} >= 1'), "a running job", 20)
        c.ctl("cancel", name)
        c.wait_state(name, "CANCELLED")


if __name__ == "__main__":
    unittest.main(verbosity=2)
