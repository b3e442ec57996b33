"""A running job looked into from the command line, on four CPU ranks: profiles, what bounds its kernels, its
collectives, and a rank that stands still."""

import contextlib
import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402

RANKS = 4
FILES = {"kernels.txt", "profile.pb", "report.html", "roofline.svg", "trace.json.gz", "trace.perfetto-trace"}


def endless(name, **spec):
    return tiny_job(name=name, ranks=RANKS, steps=10_000_000, train={"globalBatch": 16, "microBatch": 2}, **spec)


class ProfileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=RANKS).__enter__()
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.name = cls.cluster.submit(endless("looked-into"))
        cls.cluster.wait_step(cls.name, 3)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.ctl("cancel", cls.name, check=False)
        cls.folder.cleanup()
        cls.cluster.__exit__(None, None, None)

    def profile(self, *arguments, code=0):
        done = self.cluster.ctl("profile", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    @staticmethod
    def events(folder):
        return json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]

    def test_a_running_job_gives_one_merged_trace_of_all_ranks(self):
        before = self.cluster.job(self.name)
        target = self.root / "all"
        done = self.profile(self.name, "--steps", 3, "--output", target)
        self.assertEqual({path.name for path in target.iterdir()}, FILES)
        self.assertIn("4 ranks, 3 steps each", done.stdout)
        self.assertIn("matmul.mlp", done.stdout)
        self.assertIn("rank 0", done.stderr)
        spans = [e for e in self.events(target) if e.get("ph") == "X"]
        processes = {e["pid"] for e in spans}
        self.assertEqual(len(processes), RANKS)
        # Every rank recorded the same steps, and did as many launches in them as the others.
        kernels = {pid: [e for e in spans if e["pid"] == pid and e["name"].startswith("matmul")] for pid in processes}
        self.assertEqual(len({len(found) for found in kernels.values()}), 1, {p: len(k) for p, k in kernels.items()})
        steps = {pid: {e["args"]["step"] for e in found} for pid, found in kernels.items()}
        self.assertEqual(len(set(map(frozenset, steps.values()))), 1, steps)
        self.assertEqual(len(next(iter(steps.values()))), 3)
        # Of one host: what all ranks wait for together overlaps in time.
        agree = [e for e in spans if e["name"] == "all_gather agree"]
        by_sequence = {}
        for event in agree:
            by_sequence.setdefault(event["args"]["sequence"], []).append(event)
        for sequence, found in by_sequence.items():
            self.assertEqual(len(found), RANKS, sequence)
            self.assertLess(max(e["ts"] for e in found), min(e["ts"] + e["dur"] for e in found), sequence)
        # Nothing was restarted for it.
        after = self.cluster.job(self.name)
        self.assertEqual((before["epoch"], before["attempt"]), (after["epoch"], after["attempt"]))
        self.assertNotRegex((target / "report.html").read_text(), r"(src|href)=\"(?!#)", "no external assets")

    def test_some_ranks_and_a_comparison(self):
        first, second = self.root / "first", self.root / "second"
        self.assertIn("2 ranks", self.profile(self.name, "--ranks", "1,3", "--output", first).stdout)
        self.profile(self.name, "--ranks", "1,3", "--steps", 8, "--counters", "--output", second)
        self.assertIn("without hardware counters: this device has no hardware counters", (second / "report.html").read_text())
        compared = self.profile("--compare", first, second / "profile.pb").stdout
        self.assertIn("matmul", compared)
        self.assertIn("ms", compared)
        (self.root / "cut.pb").write_bytes((second / "profile.pb").read_bytes()[:-9])
        self.assertIn("cut.pb", self.profile("--compare", first, self.root / "cut.pb", code=1).stderr)
        self.profile("--compare", first, code=2)
        # Asked for before: the same recordings again. A folder with a profile is not written over.
        name = re.search(r"p[0-9a-f]{11}-[0-9a-f]{4}", (first / "report.html").read_text()).group()
        again = self.root / "again"
        self.profile(self.name, "--fetch", name, "--output", again)
        self.assertEqual((first / "profile.pb").read_bytes(), (again / "profile.pb").read_bytes())
        self.assertIn("holds a profile", self.profile(self.name, "--output", first, code=2).stderr)
        (self.root / "file").write_text("")
        self.assertIn("cannot be written", self.profile(self.name, "--output", self.root / "file", code=2).stderr)
        self.profile("--compare", first, self.root / "nowhere", code=102)

    def test_what_cannot_be_profiled_is_said(self):
        self.assertIn("has ranks 0 to 3", self.profile(self.name, "--ranks", "4", code=2).stderr)
        self.assertIn("0,2", self.profile(self.name, "--ranks", "first", code=2).stderr)
        self.profile(self.name, "--steps", 0, code=2)
        self.profile("nobody-00000000", code=102)
        short = self.cluster.submit(tiny_job(name="short", ranks=RANKS, steps=1))
        self.assertIn("only a job whose ranks train", self.profile(short, code=2).stderr)
        self.cluster.ctl("cancel", short)

    def test_top_and_metrics_tell_where_the_time_goes(self):
        top = self.cluster.ctl("top", "--once").stdout
        for word in ("FAMILY", "matmul.mlp", "exposed gather", "STRAGGLER SCORE"):
            self.assertIn(word, top)
        text = urllib.request.urlopen(self.cluster.metrics_url, timeout=10).read().decode()
        job = self.name.removeprefix("jobs/")
        scores = re.findall(rf'fsdp_straggler_score_ratio{{job_id="{job}",rank="(\d)"}} (\S+)', text)
        self.assertEqual([rank for rank, _ in scores], ["0", "1", "2", "3"])
        for _, score in scores:
            self.assertTrue(0 < float(score) <= 1, scores)
        self.assertIn(f'fsdp_job_step{{job_id="{job}"}}', text)
        workers = urllib.request.urlopen(self.cluster.worker_metrics_url(), timeout=10).read().decode()
        for series in ("fsdp_collectives_total", "fsdp_mfu_ratio", "fsdp_hfu_ratio", "fsdp_kernel_savable_seconds"):
            self.assertEqual(len(set(re.findall(rf'{series}{{job_id="{job}",rank="(\d)"', workers))), RANKS, series)
        self.assertIn('state="analytic"', workers)
        # Recomputation aside, a model's FLOPs are those of its kernels.
        rows = self.cluster.metrics(self.name)
        last = rows[-1]
        self.assertGreater(last["mfu"], 0)
        self.assertGreaterEqual(last["hfu"] * 1.5, last["mfu"])

    def test_collectives_of_a_healthy_job(self):
        done = self.cluster.ctl("collectives", self.name, "--tail", 2)
        self.assertRegex(done.stdout, r"(all_gather|reduce_scatter|all_reduce) +\S+")
        self.assertRegex(done.stdout, r"^nothing is pending for long: the ranks' newest collectives are sequences? \d+")
        whole = json.loads(self.cluster.ctl("collectives", self.name, "--tail", 12, "-o", "json").stdout)
        self.assertEqual([int(r.get("rank", 0)) for r in whole["ranks"]], [0, 1, 2, 3])
        for rank in whole["ranks"]:
            self.assertEqual(len(rank["dump"]["records"]), 12)
        types = {e["type"] for e in self.cluster.events(self.name)}
        self.assertNotIn("COLLECTIVE_DUMP", types, "a caller's question is no event of the job")

    # The last by its name: the job goes on in another attempt.
    def test_z_a_rank_that_is_killed_leaves_what_it_recorded(self):
        target = self.root / "killed"
        log = self.root / "killed.log"
        with open(log, "w", encoding="utf-8") as stderr:
            command = subprocess.Popen(
                [str(BIN / "fsdpctl"), "profile", self.name, "--steps", "1000", "--output", str(target), "--server",
                 self.cluster.server], stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            wait_for(lambda: sum(path.stat().st_size > 100_000 for path in self.cluster.root.rglob("*.pieces")) == RANKS,
                     "every rank to have written some steps")
            os.kill(self.cluster.job(self.name)["ranks"][2]["pid"], signal.SIGKILL)
            self.assertEqual(command.wait(timeout=90), 0, log.read_text())
        finally:
            command.kill()
            command.wait()
        kernels = (target / "kernels.txt").read_text()
        self.assertIn(f"{RANKS} ranks, ", kernels)
        self.assertRegex(kernels, r"- rank 2: the trainer was ended by signal 9 \(Killed\): [0-9]+ steps are recorded")
        self.assertFalse(list(self.cluster.root.rglob("*.pieces")), "pieces are left")


class HangTest(unittest.TestCase):
    def test_a_rank_that_stands_still_is_named_with_what_the_others_wait_in(self):
        with Cluster(workers=RANKS) as cluster:
            name = cluster.submit(endless("hangs", limits={"hangTimeoutSeconds": 12}))
            pids = cluster.wait_ranks(name, RANKS)
            cluster.wait_step(name, 5)
            os.kill(pids[2], signal.SIGSTOP)
            try:
                def compared():
                    found = [e for e in cluster.events(name) if e["type"] == "COLLECTIVES_COMPARED"]
                    return found[0] if found else None

                event = wait_for(compared, "the ranks' collectives to be compared", 60)
                self.assertEqual(int(event.get("rank", 0)), 2)
                self.assertRegex(event["message"], r"ranks? [013][013, and]* waits? in \w+ \S+, sequence \d+")
                self.assertIn("rank 2", event["message"])
                asked = cluster.ctl("collectives", name, check=False)
                if asked.returncode == 0:
                    self.assertIn("rank 2 told nothing", asked.stdout)
                self.assertRegex(cluster.job(name)["reason"], "rank 2", "where people look first")
                cause = wait_for(lambda: cluster.job(name).get("rootCause"), "the hang to be aborted", 60)
                self.assertEqual(cause["cause"].removeprefix("FAILURE_CAUSE_"), "HANG")
                self.assertEqual(int(cause.get("rank", 0)), 2)
                self.assertRegex(cause["message"], r"waits? in")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[2], signal.SIGCONT)
            cluster.ctl("cancel", name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
