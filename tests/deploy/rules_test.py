"""deploy/prometheus: the rules are valid, use metrics that exist, fire when they should and no other time, and
every alert has its page in docs/runbooks.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import promql  # noqa: E402

RULES = promql.SOURCE / "deploy" / "prometheus"
RUNBOOKS = promql.SOURCE / "docs" / "runbooks"
CASES = sorted((HERE / "prometheus").glob("*.yaml"))
# How many steps a rank has made since its worker first ran it; how many a new counter begins with.
COUNTED = {"FsdpCheckpointOverdue": {"fsdp_steps_total"}, "FsdpStepsSkipped": {"fsdp_steps_skipped_total"}}
SECTIONS = ["What it means", "See it", "Likely causes", "What to do", "When to silence it"]


def rules_of(file, kind):
    groups = yaml.safe_load((RULES / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


RECORDED = {rule["record"]: rule["expr"] for rule in rules_of("recording_rules.yaml", "record")}
ALERTS = {rule["alert"]: rule for rule in rules_of("alerting_rules.yaml", "alert")}


def level_labels(name):
    """The labels that a recorded series has: those of the grouping that its name's level spells."""
    level = name.split(":")[0]
    for _, labels in promql.read(RECORDED[name])[1]:
        if "_".join(labels) == level:
            return set(labels)
    return None


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, check=False)


class RulesTest(unittest.TestCase):
    def assert_promtool(self, *arguments):
        done = promtool(*arguments)
        self.assertEqual(done.returncode, 0, f"promtool {arguments}\n{done.stdout}{done.stderr}")

    def test_the_example_loads_both_files(self):
        self.assert_promtool("check", "config", RULES / "prometheus.example.yaml")
        config = yaml.safe_load((RULES / "prometheus.example.yaml").read_text())
        self.assertEqual(set(config["rule_files"]), {"recording_rules.yaml", "alerting_rules.yaml"})
        self.assertEqual([scrape["job_name"] for scrape in config["scrape_configs"]],
                         ["fsdp-coordinator", "fsdp-worker"])

    def test_alerts_fire_and_stay_quiet(self):
        for file in CASES:
            with self.subTest(file.name):
                self.assert_promtool("test", "rules", file)

    def test_every_alert_is_tested_both_ways(self):
        fires, quiet = set(), set()
        for file in CASES:
            for group in yaml.safe_load(file.read_text())["tests"]:
                for case in group.get("alert_rule_test", []):
                    (fires if case["exp_alerts"] else quiet).add(case["alertname"])
        self.assertEqual(fires, set(ALERTS), "alerts with a test in which they fire")
        self.assertEqual(quiet, set(ALERTS), "alerts with a test in which they stay quiet")

    def test_every_case_evaluates_all_groups_in_order(self):
        names = [group["name"] for file in ("recording_rules.yaml", "alerting_rules.yaml")
                 for group in yaml.safe_load((RULES / file).read_text())["groups"]]
        for file in CASES:
            self.assertEqual(yaml.safe_load(file.read_text())["group_eval_order"], names, file.name)

    def test_recorded_names_say_what_they_are(self):
        for name in RECORDED:
            self.assertRegex(name, r"^[a-z_]+:fsdp_[a-z_]+:[a-z]+[0-9a-z]*$")
            self.assertIsNotNone(level_labels(name), f"{name}: no grouping by its level's labels")

    def test_every_recorded_series_is_used(self):
        used = {selector.name for expression in [*RECORDED.values(), *(a["expr"] for a in ALERTS.values())]
                for selector in promql.read(expression)[0]}
        self.assertEqual(set(RECORDED) - used, set())

    def test_metrics_and_labels_exist(self):
        recorded = {name: level_labels(name) for name in RECORDED}
        for name, expression in [*RECORDED.items(), *((n, a["expr"]) for n, a in ALERTS.items())]:
            self.assertEqual(promql.faults(expression, recorded, COUNTED.get(name, ())), [], name)

    def test_texts_use_labels_that_the_alert_has(self):
        recorded = {name: level_labels(name) for name in RECORDED}
        for name, alert in ALERTS.items():
            selectors, groupings = promql.read(alert["expr"])
            by = {label for keyword, labels in groupings if keyword == "by" for label in labels}
            for selector in selectors:
                by |= recorded.get(selector.name, set()) or promql.TARGET_LABELS
            for text in alert["annotations"].values():
                self.assertLessEqual(set(re.findall(r"\$labels\.(\w+)", text)), by, name)

    def test_alerts_are_complete(self):
        for name, alert in ALERTS.items():
            with self.subTest(name):
                self.assertRegex(name, "^Fsdp[A-Z][A-Za-z]+$")
                self.assertIn("for", alert)
                self.assertIn(alert["labels"]["severity"], ("critical", "warning"))
                self.assertEqual(set(alert["annotations"]), {"summary", "description", "runbook_url"})
                self.assertEqual(alert["annotations"]["runbook_url"], f"docs/runbooks/{name}.md")
                if "up{" not in alert["expr"]:
                    self.assertRegex(alert["annotations"]["description"], r"\$value|query", "without a number")


class RunbooksTest(unittest.TestCase):
    """The pages, and what they tell people to type."""

    @classmethod
    def setUpClass(cls):
        cls.pages = {page.stem: page.read_text() for page in RUNBOOKS.glob("*.md") if page.stem != "README"}

    def test_one_page_per_alert(self):
        self.assertEqual(set(self.pages), set(ALERTS))
        index = (RUNBOOKS / "README.md").read_text()
        self.assertEqual(set(re.findall(r"\]\((\w+)\.md\)", index)), set(ALERTS), "docs/runbooks/README.md")
        for name, alert in ALERTS.items():
            row = next(line for line in index.splitlines() if f"({name}.md)" in line)
            self.assertIn(f"| {alert['labels']['severity']} |", row)

    def test_the_overview_names_every_alert(self):
        page = (promql.SOURCE / "docs" / "monitoring.md").read_text()
        table = page.split("## Alerts")[1].split("## Limits")[0]
        self.assertEqual(set(re.findall(r"`(Fsdp\w+)`", table)), set(ALERTS))

    def test_pages_have_their_sections(self):
        for name, page in self.pages.items():
            self.assertTrue(page.startswith(f"# {name}\n"), name)
            self.assertEqual(re.findall(r"^## (.*)$", page, re.MULTILINE), SECTIONS, name)

    def test_queries_are_valid_and_use_known_metrics(self):
        recorded = {name: level_labels(name) for name in RECORDED}
        queries = {}
        for name, page in self.pages.items():
            found = re.findall(r"^```promql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
            self.assertTrue(found, f"{name} has no query")
            for query in (line for block in found for line in block.splitlines() if line.strip()):
                self.assertEqual(promql.faults(query.replace("JOB", "x"), recorded), [], f"{name}: {query}")
                queries[f"{name}:{len(queries)}"] = query
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "queries.yaml"
            file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": [
                {"record": "query", "expr": query, "labels": {"of": where}} for where, query in queries.items()]}]}))
            done = promtool("check", "rules", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_commands_exist(self):
        commands = promql.SOURCE / "client" / "commands"
        for name, page in self.pages.items():
            used = re.findall(r"\bfsdpctl ([a-z]+)([^`\n]*)", page)
            for verb, rest in used:
                source = commands / f"{verb}.cc"
                self.assertTrue(source.exists(), f"{name}: fsdpctl {verb}")
                for flag in re.findall(r"--([a-z-]+)", rest):
                    self.assertIn(f'"{flag}"', source.read_text(), f"{name}: fsdpctl {verb} --{flag}")

    def test_links_lead_somewhere(self):
        for page in RUNBOOKS.glob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")


class ReaderTest(unittest.TestCase):
    """tests/support/promql.py finds what is wrong."""

    def test_finds_faults(self):
        for expression, fault in {
                "fsdp_los": "no metric is named fsdp_los",
                'fsdp_loss{worker="a"}': "fsdp_loss has no label worker",
                "sum(fsdp_steps_total)": "the counter fsdp_steps_total is not in rate() or increase()",
                "fsdp_steps_total[5m]": "the counter fsdp_steps_total is not in rate() or increase()",
                "rate(fsdp_loss[5m])": "fsdp_loss is no counter, but in rate()",
                "sum by (worker) (fsdp_loss)": "none of the metrics has the label worker of by()",
                "fsdp_loss / on (phase) fsdp_grad_norm": "none of the metrics has the label phase of on()",
                "fsdp_submit_seconds": "no metric is named fsdp_submit_seconds"}.items():
            self.assertEqual(promql.faults(expression), [fault])

    def test_accepts_what_is_right(self):
        for expression in (
                'sum by (job_id) (rate(fsdp_steps_total{rank=~"$rank"}[$__rate_interval])) > 0',
                "histogram_quantile(0.99, sum by (le) (rate(fsdp_submit_seconds_bucket[5m])))",
                "max by (job_id) (fsdp_job_step) - on (job_id) group_left () max by (job_id) (fsdp_checkpoint_step)",
                'up{job="fsdp-worker"} == 0 or absent(up{job="a, b"})',
                "quantile_over_time(0.5, fsdp_loss[1h] offset 15m) and on (job_id) fsdp_loss offset 45m"):
            self.assertEqual(promql.faults(expression), [], expression)


if __name__ == "__main__":
    unittest.main(verbosity=2)
