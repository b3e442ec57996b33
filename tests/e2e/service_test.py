"""The service through its real binaries: submit, train, follow, measure, stop."""

import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402


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
            c.ctl("suspend", name)
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
        c.wait_step(name, 5)
        urls = [c.metrics_url, c.worker_metrics_url()]
        for url in urls:
            text = urllib.request.urlopen(url, timeout=10).read()
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
            self.assertEqual(lint.returncode, 0, lint.stderr.decode() + lint.stdout.decode())
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "prometheus.yml"
            targets = ", ".join("'" + urllib.parse.urlparse(u).netloc + "'" for u in urls)
            config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n"
                              f"- job_name: fsdp\n  static_configs:\n  - targets: [{targets}]\n")
            port = 20000 + int(time.time()) % 20000
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
            try:
                def query(expression):
                    url = (f"http://127.0.0.1:{port}/api/v1/query?"
                           + urllib.parse.urlencode({"query": expression}))
                    try:
                        answer = json.loads(urllib.request.urlopen(url, timeout=5).read())
                    except OSError:
                        return []
                    return answer["data"]["result"]

                job_id = name.removeprefix("jobs/")
                loss = wait_for(lambda: query(f'fsdp_loss{{job_id="{job_id}"}}'), "fsdp_loss", 40)
                self.assertAlmostEqual(float(loss[0]["value"][1]), math.log(64), delta=0.7)
                peaks = query(f'fsdp_memory_peak_bytes{{job_id="{job_id}"}}')
                self.assertEqual({row["metric"]["rank"] for row in peaks}, {"0", "1"})
                families = query(f'fsdp_kernel_seconds_total{{job_id="{job_id}"}}')
                self.assertTrue({row["metric"]["source"] for row in families} == {"analytic"}, families)
                self.assertTrue(any(row["metric"]["kernel_family"].startswith("matmul") for row in families))
                running = query('sum(fsdp_jobs{state="RUNNING"}) or sum(fsdp_jobs{state="running"})')
                self.assertGreaterEqual(float(running[0]["value"][1]), 1)
            finally:
                prometheus.terminate()
                prometheus.wait()
        c.ctl("cancel", name)
        c.wait_state(name, "CANCELLED")


if __name__ == "__main__":
    unittest.main(verbosity=2)
