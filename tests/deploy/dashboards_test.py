"""deploy/grafana: what is committed is what the definitions give, and each dashboard passes the lint."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import dashboard_lint  # noqa: E402
import promql  # noqa: E402

GRAFANA = promql.SOURCE / "deploy" / "grafana"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}


class DashboardsTest(unittest.TestCase):
    def test_the_committed_files_are_what_the_generator_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([GRAFANA / "generate", "--output", folder], check=True)
            made = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
        committed = {path.name: path.read_text() for path in (GRAFANA / "dashboards").iterdir()}
        self.assertEqual(set(made), set(committed))
        for name, text in made.items():
            self.assertEqual(text, committed[name], f"{name}: run deploy/grafana/generate")

    def test_the_base_of_the_runbooks_is_in_one_place(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([GRAFANA / "generate", "--output", folder, "--runbooks", "https://x.example/r"], check=True)
            text = (pathlib.Path(folder) / "job.json").read_text()
        self.assertNotIn("docs/runbooks", text)
        self.assertIn('"query": "https://x.example/r"', text)

    def test_all_boards_are_there(self):
        self.assertEqual(set(BOARDS), {"cluster", "job", "roofline", "communication", "memory", "gpu", "profiler"})
        self.assertEqual({board["uid"] for board in BOARDS.values()}, {f"fsdp-{name}" for name in BOARDS})

    def test_the_overview_names_every_board(self):
        page = (promql.SOURCE / "docs" / "monitoring.md").read_text()
        for board in BOARDS.values():
            self.assertIn(f"| {board['title']} |", page)

    def test_boards_pass_the_lint(self):
        for name, board in BOARDS.items():
            self.assertEqual(dashboard_lint.lint(board), [], name)

    def test_queries_are_valid(self):
        expressions = [target["expr"] for board in BOARDS.values() for _, target in dashboard_lint.queries_of(board)]
        self.assertGreater(len(expressions), 100)
        self.assertEqual(dashboard_lint.parse_faults(expressions), "")

    def test_provisioning_fits(self):
        source = yaml.safe_load((GRAFANA / "provisioning/datasources/fsdp.yaml").read_text())["datasources"][0]
        scrape = yaml.safe_load((promql.SOURCE / "deploy/prometheus/prometheus.example.yaml").read_text())
        # $__rate_interval is at least four of these.
        self.assertEqual(source["jsonData"]["timeInterval"], scrape["global"]["scrape_interval"])
        provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/fsdp.yaml").read_text())["providers"][0]
        self.assertFalse(provider["allowUiUpdates"])

    def test_every_metric_is_shown_or_alerted_on(self):
        """A metric that nobody looks at is a cost: each is on a panel, in a rule, or named here."""
        texts = [target["expr"] for board in BOARDS.values() for _, target in dashboard_lint.queries_of(board)]
        for file in ("recording_rules.yaml", "alerting_rules.yaml"):
            groups = yaml.safe_load((promql.SOURCE / "deploy/prometheus" / file).read_text())["groups"]
            texts += [rule["expr"] for group in groups for rule in group["rules"]]
        used = {selector.name for text in texts
                for selector in promql.read(dashboard_lint.substitute(text))[0]}
        left = {name for name in promql.metrics() if not name.endswith(("_sum", "_count"))} - used
        self.assertEqual(left, {
            # Looked up by hand, once something is wrong.
            "fsdp_attempts", "fsdp_worker_connected", "fsdp_worker_stale_commands_total",
            "fsdp_spool_reports", "fsdp_spool_corrupt_total"}, "give it a panel, a rule, or a place in this list")


def ranks(name, *values, labels=""):
    """A series of each rank of job j: values as promtool writes them."""
    return {f'{name}{{job_id="j",rank="{rank}"{labels}}}': value for rank, value in enumerate(values)}


# What a CPU job has no data for. Scrapes are 15 s apart: 15x20 is one per second.
SERIES = {
    **ranks("fsdp_step", "0+30x20", "0+30x20"),
    **ranks("fsdp_steps_total", "0+30x20", "0+30x20"),
    **ranks("fsdp_mfu_ratio", "0.5+0x20", "0.25+0x20"),
    **ranks("fsdp_hfu_ratio", "0.75+0x20", "0.5+0x20"),
    **ranks("fsdp_kernel_tensor_ratio", "0.5+0x20", "0.75+0x20", labels=',kernel_family="matmul.mlp"'),
    **ranks("fsdp_kernel_savable_seconds", "0.5+0x20", "0.25+0x20", labels=',kernel_family="gather"'),
    **ranks("fsdp_collectives_total", "0+60x20", "0+60x20", labels=',collective="all_gather"'),
    **ranks("fsdp_collective_seconds_total", "0+7.5x20", "0+7.5x20", labels=',collective="all_gather"'),
    **ranks("fsdp_collective_bytes_total", "0+15000x20", "0+15000x20", labels=',collective="all_gather"'),
    **ranks("fsdp_collective_seconds_total", "0+7.5x20", "0+7.5x20", labels=',collective="all_reduce"'),
    **ranks("fsdp_collective_bytes_total", "0+15000x20", "0+15000x20", labels=',collective="all_reduce"'),
    **ranks("fsdp_ceiling_bytes_per_second", "4000+0x20", "4000+0x20", labels=',kind="collective"'),
    **ranks("fsdp_straggler_score_ratio", "1+0x20", "0.75+0x20"),
    **ranks("fsdp_collective_skew_seconds", "0+0x20", "0.25+0x20"),
    **ranks("fsdp_profiler_state", "1+0x20", "1+0x20", labels=',state="idle"'),
    **ranks("fsdp_profiler_windows_total", "0+0.25x20", "0+0.25x20"),
    **ranks("fsdp_profiler_samples_total", "0+45x20", "0+45x20"),
    **ranks("fsdp_profiler_dropped_total", "0+15x20", "0+15x20", labels=',reason="overflow"'),
    **ranks("fsdp_profiler_dropped_total", "0+30x20", "0+30x20", labels=',reason="edge"'),
    **ranks("fsdp_profiler_overhead_seconds_total", "0+7.5x20", "0+3.75x20", labels=',kind="decode"'),
    'fsdp_job_step{job_id="j"}': "0+30x20",
    'fsdp_checkpoint_step{job_id="j"}': "0+0x10 500+0x20",
    'fsdp_checkpoint_interval_steps{job_id="j"}': "250+0x20",
    **{f'fsdp_worker_rank_active{{worker="{worker}"}}': f"{on}+0x20" for worker, on in (("a", 1), ("b", 0))},
    **{f'{name}{{worker="{worker}",device="cuda:0"}}': f"{value}+0x20" for name, values in {
        "fsdp_device_memory_bytes": (800, 800), "fsdp_device_memory_used_bytes": (600, 200),
        "fsdp_device_power_watts": (650, 70), "fsdp_device_temperature_celsius": (60, 35),
        "fsdp_device_sm_clock_hertz": (1980000000, 345000000)}.items() for worker, value in zip("ab", values)},
    'fsdp_device_throttled_seconds_total{worker="a",device="cuda:0",reason="power"}': "0+3.75x20",
    'fsdp_device_ecc_errors_total{worker="a",device="cuda:0",kind="uncorrected"}': "0+15x20",
    'fsdp_device_link_bytes_total{worker="a",device="cuda:0",kind="nvlink_rx"}': "0+30000x20",
}
A, B = 'worker="a",device="cuda:0"', 'worker="b",device="cuda:0"'
# (board, panel, legend) -> {labels: value} at minute 5.
VALUES = {
    ("job", "MFU", ""): {"": 0.375},
    ("job", "MFU and HFU", "MFU"): {"": 0.375},
    ("job", "MFU and HFU", "HFU"): {"": 0.625},
    ("job", "Unsaved steps", ""): {"": 100},
    ("job", "Steps not saved", "not saved"): {"": 100},
    ("job", "Steps not saved", "interval"): {"": 250},
    ("job", "Speed of ranks", "rank {{rank}}"): {'rank="0"': 1, 'rank="1"': 0.75},
    ("roofline", "Tensor pipes active", "{{kernel_family}}"): {'kernel_family="matmul.mlp"': 0.625},
    ("roofline", "Savable", "{{kernel_family}}"): {'kernel_family="gather"': 0.375},
    ("communication", "Slowest rank", ""): {"": 0.75},
    ("communication", "Latest rank", ""): {"": 0.25},
    ("communication", "Collectives", ""): {"": 4},
    ("communication", "Skew by rank", "rank {{rank}}"): {'rank="0"': 0, 'rank="1"': 0.25},
    # Half of the bytes cross the link of each of two ranks; of an all-reduce twice that.
    ("communication", "Bus bandwidth", "{{collective}}"): [{'collective="all_gather"': 1000},
                                                           {'collective="all_reduce"': 2000}],
    ("communication", "Bus bandwidth", "roof"): {"": 4000},
    ("communication", "Seconds of a collective", "{{collective}}"): {'collective="all_gather"': 0.125},
    ("communication", "Collectives of a step", "{{collective}}"): {'collective="all_gather"': 2},
    ("communication", "Bytes", "{{collective}}"): {'collective="all_gather"': 2000, 'collective="all_reduce"': 2000},
    ("memory", "Fullest device", ""): {"": 0.75},
    ("memory", "Devices", "{{worker}}"): {A: 0.75, B: 0.25},
    ("gpu", "Hottest", ""): {"": 60},
    ("gpu", "Power", ""): {"": 720},
    # The other one idles.
    ("gpu", "Slowest clock", ""): {"": 1980000000},
    ("gpu", "Uncorrected memory errors", ""): {"": 60},
    ("gpu", "Power by device", "{{worker}}"): {A: 650, B: 70},
    ("gpu", "Temperature", "{{worker}}"): {A: 60, B: 35},
    ("gpu", "SM clock", "{{worker}}"): {A: 1980000000, B: 345000000},
    ("gpu", "Throttled", "{{worker}} {{reason}}"): {A + ',reason="power"': 0.25},
    ("gpu", "Memory errors", "{{worker}} {{kind}}"): {A + ',kind="uncorrected"': 1},
    ("gpu", "Links", "{{worker}} {{kind}}"): {A + ',kind="nvlink_rx"': 2000},
    ("gpu", "Memory in use", "{{worker}}"): {A: 600, B: 200},
    ("profiler", "State", "{{state}}"): {'state="idle"': 1},
    ("profiler", "States", "{{state}}"): {'state="idle"': 2},
    ("profiler", "Windows", ""): {"": 1},
    ("profiler", "Dropped", ""): {"": 0.25},
    ("profiler", "Overhead", ""): {"": 0.5},
    ("profiler", "Samples", "rank {{rank}}"): {'rank="0"': 3, 'rank="1"': 3},
    ("profiler", "Dropped by reason", "{{reason}}"): {'reason="overflow"': 2, 'reason="edge"': 4},
    ("profiler", "Overhead by kind", "{{kind}}"): {'kind="decode"': 0.375},
}


class ValuesTest(unittest.TestCase):
    """Panels whose data need a GPU return what such data say; monitoring_test has the others."""

    def cases(self):
        for (name, title, legend), expected in VALUES.items():
            found = [target["expr"] for panel, target in dashboard_lint.queries_of(BOARDS[name])
                     if (panel["title"], target["legendFormat"]) == (title, legend)]
            expected = expected if isinstance(expected, list) else [expected]
            self.assertEqual(len(found), len(expected), (name, title, legend))
            for expression, samples in zip(found, expected):
                yield {"expr": dashboard_lint.substitute(expression, job_id="j", __range="1m"), "eval_time": "5m",
                       "exp_samples": [{"labels": f"{{{labels}}}", "value": value}
                                       for labels, value in samples.items()]}

    def test_values(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "values.yaml"
            file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "15s", "tests": [{
                "interval": "15s", "promql_expr_test": list(self.cases()),
                "input_series": [{"series": name, "values": values} for name, values in SERIES.items()]}]}))
            done = subprocess.run(["promtool", "test", "rules", file], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class LintTest(unittest.TestCase):
    """Each rule finds its fault in a board that is otherwise right."""

    def assert_found(self, fault, change):
        board = copy.deepcopy(BOARDS["job"])
        change(board)
        found = dashboard_lint.lint(board)
        self.assertTrue(any(fault in text for text in found), f"{fault} is not in {found}")

    @staticmethod
    def panel(board):
        return dashboard_lint.panels_of(board)[7]

    def change_query(self, fault, **values):
        self.assert_found(fault, lambda board: self.panel(board)["targets"][0].update(values))

    def test_of_the_board(self):
        for fault, values in {"uid is not fixed": {"uid": None}, "editable is not false": {"editable": True},
                              "schemaVersion is not 39": {"schemaVersion": 22}, "no description": {"description": ""},
                              "id belongs to one Grafana": {"id": 7}}.items():
            self.assert_found(fault, lambda board, values=values: board.update(values))

    def test_of_datasources(self):
        self.assert_found("is not the variable", lambda b: self.panel(b).update(datasource={"uid": "abc"}))
        self.assert_found("is not the variable", lambda b: self.panel(b).update(datasource=None))
        self.assert_found("no variable datasource", lambda b: b["templating"]["list"].pop(0))

    def test_of_variables(self):
        self.change_query("$other is not declared", expr='fsdp_loss{job_id="$other"}')
        self.assert_found("variable spare is not used", lambda b: b["templating"]["list"].append(
            {"name": "spare", "type": "constant"}))
        self.assert_found("has no label worker", lambda b: b["templating"]["list"][1].update(
            definition='label_values(fsdp_loss{worker="a"}, job_id)'))
        self.assert_found("is no label_values()", lambda b: b["templating"]["list"][1].update(definition="fsdp_loss"))

    def test_of_panels(self):
        for fault, values in {"no title": {"title": ""}, "no description": {"description": ""},
                              "no query": {"targets": []}}.items():
            self.assert_found(fault, lambda board, values=values: self.panel(board).update(values))
        self.assert_found("unit percent is none", lambda b: self.panel(b)["fieldConfig"]["defaults"].update(
            unit="percent"))
        self.assert_found("which does not exist", lambda b: self.panel(b)["links"][0].update(url="${runbooks}/No.md"))
        self.assert_found("two panels are called so", lambda b: self.panel(b).update(title="Step"))
        self.assert_found("overlaps", lambda b: self.panel(b)["gridPos"].update(x=4, w=24))
        self.assert_found("its id is taken", lambda b: self.panel(b).update(id=2))

    def test_of_queries(self):
        self.change_query("no metric is named fsdp_los", expr="fsdp_los")
        self.change_query("is not in rate()", expr="sum(fsdp_steps_total)")
        self.change_query("window [5m]", expr="sum(rate(fsdp_steps_total[5m]))")
        self.change_query("the legend's worker", legendFormat="{{worker}}")
        self.assert_found("with a query of a range", lambda b: self.panel(b).update(type="stat"))

    def test_of_syntax(self):
        self.assertIn("parse error", dashboard_lint.parse_faults(["sum(fsdp_loss", "fsdp_loss"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
