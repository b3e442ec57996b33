"""Dashboards and rules with a real Prometheus, fed by a real job of two CPU ranks: every panel's query is run, those
that such a job has data for return the values that fsdpctl tells, alerts are quiet, and a job's series go away.
"""

import json
import math
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import dashboard_lint  # noqa: E402
from cluster import SOURCE, Cluster, tiny_job, wait_for  # noqa: E402
from dashboards_test import VALUES  # noqa: E402
from prometheus import Prometheus  # noqa: E402

TOKENS_OF_A_STEP = 4 * 32
ADDING = ("data", "compute", "exposed_gather", "exposed_scatter", "optimizer", "checkpoint", "evaluate", "other",
          "unattributed")

# (board, panel) or (board, panel, legend): queries that only a GPU has data for. They must be empty here.
NOT_ON_A_CPU = {
    ("roofline", "Tensor pipes active"),
    ("memory", "Fullest device"), ("memory", "Devices"),
    ("gpu", "Hottest"), ("gpu", "Power"), ("gpu", "Slowest clock"), ("gpu", "Uncorrected memory errors"),
    ("gpu", "Power by device"), ("gpu", "Temperature"), ("gpu", "SM clock"), ("gpu", "Throttled"),
    ("gpu", "Memory errors"), ("gpu", "Links"), ("gpu", "Memory in use"),
    ("profiler", "Dropped"),
}
# What shows only what has happened: nothing, in a healthy job.
NOTHING_HAPPENED = {
    # Without TLS and without an access file.
    ("cluster", "Certificates end in"), ("cluster", "Denied calls", "{{reason}}"),
    ("cluster", "Firing alerts"), ("cluster", "Restarts by cause"), ("cluster", "Detection"), ("cluster", "Recovery"),
}
# By labels that begin with the first event, such as a call that a client broke off.
PERHAPS = {
    ("cluster", "Refused calls and submissions", "{{method}} {{code}}"),
    ("profiler", "Overhead"), ("profiler", "Overhead by kind"), ("profiler", "Dropped by reason"),
}


def listed(where, which):
    return where in which or where[:2] in which


class MonitoringTest(unittest.TestCase):
    """One job's life, watched; the tests look at what was seen."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        queues = pathlib.Path(folder) / "queues.yaml"
        # The job of two ranks borrows one.
        queues.write_text("apiVersion: fsdp.v1\nkind: QueueConfig\nqueues:\n"
                          "  - {name: default, devices: [{device: cpu, quota: 1, max: 128}]}\n", encoding="utf-8")
        cls.cluster = cls.enterClassContext(Cluster(workers=2, worker_flags=["--metrics-linger=5s"],
                                                    coordinator_flags=[f"--queues={queues}"]))
        c = cls.cluster
        cls.prometheus = cls.enterClassContext(Prometheus(
            {"fsdp-coordinator": [c.metrics_url], "fsdp-worker": [c.worker_metrics_url()]}))
        name = c.submit(tiny_job(
            name="watched", ranks=2, steps=1000000, checkpoint=c.root / "checkpoints", model={"vocabSize": 256},
            data={"source": "text", "path": str(SOURCE / "README.md"), "validationFraction": 0.1,
                  "evaluationSets": [{"name": "notes", "path": str(SOURCE / "CHANGELOG.md")}]},
            train={"evaluateEverySteps": 50, "evaluateSequences": 4}))
        cls.waiting = c.submit(tiny_job(name="waits", ranks=64))
        cls.job_id = name.removeprefix("jobs/")
        cls.watch_it_run()
        cls.job = c.job(name)
        # All ranks stop after the same step.
        c.ctl("suspend", "--wait", name)
        cls.history = {int(row["step"]): row for row in c.metrics(name)}
        cls.watch_it_stand()
        c.ctl("cancel", name)
        cls.watch_it_go()
        c.ctl("cancel", cls.waiting)

    @classmethod
    def watch_it_run(cls):
        p = cls.prometheus
        # Enough scrapes for every rate, and an evaluation.
        wait_for(lambda: p.query(f'min(count_over_time(fsdp_validation_loss{{job_id="{cls.job_id}"}}[1m])) >= 10'
                                 f' and min(fsdp_step{{job_id="{cls.job_id}"}}) > 110'), "a dozen scrapes", 120, 0.5)
        # What was scraped by then is stored by now: all panels see the same scrape.
        (_, now), = p.query("time() - 2")
        cls.panels = {}
        for file in sorted((SOURCE / "deploy/grafana/dashboards").glob("*.json")):
            for panel, target in dashboard_lint.queries_of(json.loads(file.read_text())):
                text = dashboard_lint.substitute(target["expr"], job_id=cls.job_id, __rate_interval="1m", __range="1m")
                cls.panels.setdefault((file.stem, panel["title"], target["legendFormat"]), []).append(
                    p.query(text, time=now))
        cls.alerts_while_running = p.api("alerts")["alerts"]
        cls.rules = [rule for group in p.api("rules")["groups"] for rule in group["rules"]]
        cls.recorded = {labels["__name__"] for labels, _ in p.query(f'{{__name__=~".+:.+",job_id="{cls.job_id}"}}')}

    @classmethod
    def watch_it_stand(cls):
        p, of = cls.prometheus, f'job_id="{cls.job_id}"'
        last = max(cls.history)
        lingering = f'fsdp_step{{{of}}} == {last} and on (rank) fsdp_rank_state{{{of},state="exited"}}'
        wait_for(lambda: len(p.query(lingering)) == 2, "the last step of both ranks, which lingers", 20, 0.2)
        cls.last_loss = p.query(f'fsdp_loss{{{of}}}')
        cls.phases = {labels["phase"]: value for labels, value in
                      p.query(f'fsdp_step_phase_seconds_total{{{of},rank="0"}}')}
        (_, cls.tokens), = p.query(f'max(fsdp_tokens_total{{{of}}})')
        cls.alerts_while_suspended = p.api("alerts")["alerts"]

    @classmethod
    def watch_it_go(cls):
        p, of = cls.prometheus, f'job_id="{cls.job_id}"'
        wait_for(lambda: not p.query(f'{{{of},__name__=~"fsdp_.+"}}'), "no series of the job", 30, 0.5)
        cls.alerts_after = p.api("alerts")["alerts"]

    def answer(self, board, panel, legend=None):
        """The vectors of a panel's queries, in one list."""
        found = [row for where, answers in self.panels.items() if where[:2] == (board, panel)
                 and legend in (None, where[2]) for answer in answers for row in answer]
        self.assertTrue(found, f"{board}: {panel}: no series")
        return found

    def value(self, board, panel, legend=None):
        (_, value), = self.answer(board, panel, legend)
        return value

    def by(self, label, board, panel, legend=None):
        return {labels[label]: value for labels, value in self.answer(board, panel, legend) if label in labels}

    def test_every_query_has_the_series_that_it_should(self):
        wrong = []
        for where, answers in self.panels.items():
            for answer in answers:
                if listed(where, NOT_ON_A_CPU) or listed(where, NOTHING_HAPPENED):
                    if answer:
                        wrong.append(f"{where}: not empty: {answer}")
                elif not answer and not listed(where, PERHAPS):
                    wrong.append(f"{where}: empty")
                wrong += [f"{where}: {row}" for row in answer if not math.isfinite(row[1])]
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_the_lists_name_queries_that_exist(self):
        for where in NOT_ON_A_CPU | NOTHING_HAPPENED | PERHAPS:
            self.assertTrue(any(listed(known, {where}) for known in self.panels), where)

    def test_what_needs_a_gpu_is_tested_without_one(self):
        for where in self.panels:
            if listed(where, NOT_ON_A_CPU):
                self.assertIn(where, VALUES)

    def test_jobs_workers_and_queue(self):
        self.assertEqual(self.value("cluster", "Coordinator"), 1)
        self.assertEqual(self.value("cluster", "Alerts"), 0)
        self.assertEqual(self.value("cluster", "Running jobs"), 1)
        self.assertEqual(self.value("cluster", "Queued jobs"), 1)
        self.assertEqual(self.value("cluster", "Busy workers"), 1)
        states = self.by("state", "cluster", "Unfinished jobs by state")
        self.assertEqual({state: count for state, count in states.items() if count}, {"running": 1, "queued": 1})
        (labels, waiting), = self.answer("cluster", "Queue by reason")
        self.assertEqual((labels["queue"], waiting), ("default", 1))
        self.assertEqual(self.by("state", "cluster", "Workers by state")["busy"], 2)
        self.assertEqual(self.by("state", "job", "State"), {"running": 1})
        self.assertEqual(self.by("state", "job", "States of ranks"), {"running": 2})
        self.assertEqual(self.value("gpu", "Active"), 2)
        self.assertLess(max(self.by("worker", "cluster", "Age of the last heartbeat").values()), 5)

    def assert_one_of(self, value, expected):
        """The text format has 16 digits."""
        self.assertTrue(any(math.isclose(value, one, rel_tol=1e-14) for one in expected), f"{value} of {expected}")

    def test_losses_are_those_that_fsdpctl_tells(self):
        step = int(self.value("job", "Step"))
        # A scrape asks one rank after the other, while they take a step in milliseconds.
        near = [row["loss"] for s, row in self.history.items() if abs(s - step) <= 20]
        self.assert_one_of(self.value("job", "Last loss"), near)
        evaluated = [row for s, row in sorted(self.history.items()) if s <= step + 20 and "validationLoss" in row]
        recent = evaluated[-3:]
        self.assert_one_of(self.value("job", "Loss", "validation"), [row["validationLoss"] for row in recent])
        self.assert_one_of(self.by("kind", "job", "Loss")["notes"], [row["evaluations"][0]["loss"] for row in recent])
        for rank, (labels, value) in enumerate(sorted(self.last_loss, key=lambda row: row[0]["rank"])):
            self.assertEqual(labels["rank"], str(rank))
            self.assert_one_of(value, [self.history[max(self.history)]["loss"]])
        self.assertEqual(len(self.last_loss), 2)

    def test_the_anatomy_adds_up(self):
        told = sum(row["stepSeconds"] for row in self.history.values())
        adding = {phase: self.phases[phase] for phase in ADDING}
        self.assertAlmostEqual(sum(adding.values()) / told, 1, places=6)
        self.assertAlmostEqual(sum(adding.values()) - adding["unattributed"], told, delta=adding["unattributed"] + 1e-6)
        for phase in ADDING:
            key = phase.split("_")[0] + "".join(part.title() for part in phase.split("_")[1:]) + "Seconds"
            self.assertAlmostEqual(adding[phase], sum(row["phases"][key] for row in self.history.values()), places=6)
        # As the panels have it.
        seconds = self.by("phase", "job", "Step anatomy")
        shares = self.by("phase", "job", "Step anatomy, shares")
        self.assertEqual(set(seconds), set(ADDING))
        self.assertAlmostEqual(sum(shares.values()), 1, places=9)
        for phase in ADDING:
            self.assertAlmostEqual(seconds[phase] / sum(seconds.values()), shares[phase], places=9)
        self.assertEqual(set(self.by("phase", "job", "Within the phases")),
                         {"overlapped_gather", "overlapped_scatter", "launch_gap", "host_idle"})

    def test_rates_and_totals(self):
        self.assertEqual(self.tokens, max(self.history) * TOKENS_OF_A_STEP)
        # Of the measured matmul rate, where there is no datasheet.
        self.assertTrue(0 < self.value("job", "MFU") < 1, self.value("job", "MFU"))
        flops_of_a_token = self.history[1]["flops"] / TOKENS_OF_A_STEP
        self.assertAlmostEqual(self.value("job", "Model FLOP/s") / self.value("job", "Tokens"), flops_of_a_token,
                               delta=1e-6 * flops_of_a_token)
        self.assertEqual(max(self.by("rank", "job", "Peak memory").values()),
                         max(int(rank["memoryPeakBytes"]) for rank in self.job["ranks"]))
        self.assertEqual(self.value("memory", "Peak"), max(self.by("rank", "job", "Peak memory").values()))
        self.assertAlmostEqual(
            self.value("memory", "Peak of the device") * self.value("memory", "Smallest device"),
            self.value("memory", "Peak"), places=3)

    def test_shares_of_kernel_time_add_up(self):
        families = self.by("kernel_family", "roofline", "By family")
        self.assertLessEqual({"gather", "scatter", "matmul.mlp", "attention.fwd", "optimizer"}, set(families))
        for panel, label in (("By family", "kernel_family"), ("By bound", "bound"), ("By source", "source")):
            self.assertAlmostEqual(sum(self.by(label, "roofline", panel).values()), 1, places=9)
        self.assertEqual(set(self.by("source", "roofline", "By source")), {"analytic"})
        ratios = self.by("kernel_family", "roofline", "Of the compute roof")
        self.assertTrue(all(0 <= ratio <= 1 for ratio in ratios.values()), ratios)
        self.assertEqual(set(self.by("kind", "roofline", "FLOP/s by family", "roof {{kind}}")), {"fp32", "bf16"})

    def test_communication(self):
        collectives = self.by("collective", "communication", "Collectives of a step")
        # The gathers of a step are as many as its units have passes; the scalars take one all-reduce.
        self.assertGreaterEqual(collectives["all_gather"], 3)
        self.assertGreaterEqual(collectives["reduce_scatter"], 3)
        self.assertLessEqual({"all_gather", "reduce_scatter"},
                             set(self.by("collective", "communication", "Bus bandwidth")))
        shares = self.by("phase", "job", "Step anatomy, shares")
        self.assertAlmostEqual(self.value("communication", "Exposed"),
                               shares["exposed_gather"] + shares["exposed_scatter"], places=9)
        self.assertEqual(max(self.by("rank", "communication", "Speed of ranks").values()), 1)

    def test_what_is_not_saved(self):
        # Steps and manifests are reported one after the other, in either order.
        self.assertLessEqual(abs(self.value("job", "Unsaved steps")), 4 * 5)
        self.assertEqual(self.value("job", "Steps not saved", "interval"), 5)

    def test_rules_work_and_alerts_are_quiet(self):
        self.assertEqual([(rule["name"], rule["health"], rule.get("lastError")) for rule in self.rules
                          if rule["health"] != "ok"], [])
        self.assertEqual([a for a in self.alerts_while_running if a["state"] == "firing"], [])
        # Ranks that share two cores with everything else are slow at times; that does not last for minutes.
        speed = {"FsdpExposedCommunicationHigh", "FsdpDataStall", "FsdpStraggler"}
        self.assertEqual({a["labels"]["alertname"] for a in self.alerts_while_running} - speed, set())
        self.assertEqual([a for a in self.alerts_while_suspended if a["state"] == "firing"], [])
        self.assertEqual(self.alerts_after, [])
        self.assertLessEqual({"job_id:fsdp_job_running:max", "job_id:fsdp_step_idle_seconds:min",
                              "job_id:fsdp_step_seconds:mean5m", "job_id:fsdp_exposed_communication:ratio5m",
                              "job_id:fsdp_data_wait:ratio5m", "job_id:fsdp_checkpoint_lag_steps:max"}, self.recorded)


if __name__ == "__main__":
    unittest.main(verbosity=2)
