"""deploy/helm/fsdp: rules, dashboards, the packed chart, the notes, and docs/kubernetes.md."""

import base64
import gzip
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

import chart


class MonitoringTest(unittest.TestCase):
    def test_scrape_jobs_have_the_names_that_rules_go_by(self):
        objects = chart.rendered("everything")
        for kind, field, name in (("ServiceMonitor", "endpoints", "fsdp-coordinator"),
                                  ("PodMonitor", "podMetricsEndpoints", "fsdp-worker")):
            spec = objects[kind, name]["spec"]
            self.assertEqual(spec[field][0]["relabelings"], [{"targetLabel": "job", "replacement": name}])
            self.assertEqual((spec[field][0]["interval"], spec[field][0]["scrapeTimeout"]), ("5s", "4s"))
            self.assertEqual(objects[kind, name]["metadata"]["labels"]["release"], "kps")

    def test_rules_are_those_of_deploy_prometheus_and_valid(self):
        groups = chart.rendered("everything")["PrometheusRule", "fsdp"]["spec"]["groups"]
        source = []
        for name in ("recording_rules.yaml", "alerting_rules.yaml"):
            text = (chart.SOURCE / "deploy/prometheus" / name).read_text(encoding="utf-8")
            source += yaml.safe_load(text.replace("docs/runbooks/", "https://wiki.example/fsdp/"))["groups"]
        self.assertEqual(groups, source)
        self.assertIn("https://wiki.example/fsdp/FsdpNoProgress.md", json.dumps(groups))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": groups}, file)
            file.flush()
            done = subprocess.run(["promtool", "check", "rules", file.name], text=True, capture_output=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_dashboards_are_those_of_deploy_grafana(self):
        """With the runbooks' address as deploy/grafana/generate --runbooks writes it."""
        objects = chart.rendered("everything")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, chart.SOURCE / "deploy/grafana/generate", "--runbooks",
                            "https://wiki.example/fsdp", "--output", folder], check=True, capture_output=True)
            files = sorted(pathlib.Path(folder).glob("*.json"))
            self.assertGreater(len(files), 3)
            for file in files:
                item = objects["ConfigMap", f"fsdp-dashboard-{file.stem}"]
                self.assertEqual(item["metadata"]["labels"]["grafana_dashboard"], "1")
                self.assertEqual(item["metadata"]["annotations"], {"grafana_folder": "FSDP"})
                text = item["data"][f"fsdp-{file.name}"]
                self.assertTrue(json.loads(text) == json.loads(file.read_text(encoding="utf-8")), file.name)
                self.assertTrue("https://wiki.example/fsdp" in text, file.name)

    def test_a_release_fits_into_a_secret(self):
        """Helm keeps chart and manifest of a release, compressed and encoded, in a Secret of at most 1 MiB."""
        kept = chart.rendered_text("everything").encode()
        for file in chart.CHART.rglob("*"):
            if file.is_file():
                kept += base64.b64encode(file.read_bytes())
        for file in (chart.SOURCE / "deploy/grafana/dashboards").glob("*.json"):
            kept += base64.b64encode(file.read_bytes())
        self.assertLess(len(base64.b64encode(base64.b64encode(gzip.compress(kept)))), 2**20 * 3 // 4)


class PackageTest(unittest.TestCase):
    def test_a_packed_chart_has_the_linked_files_and_renders_the_same(self):
        for which in chart.HELMS:
            with self.subTest(helm=which), tempfile.TemporaryDirectory() as folder:
                code, text, errors = chart.helm(which, "package", chart.CHART, "--destination", folder)
                self.assertEqual(code, 0, text + errors)
                (archive,) = pathlib.Path(folder).glob("fsdp-*.tgz")
                with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as packed:
                    self.assertTrue(all(member.isreg() for member in packed))
                    held = {member.name: packed.extractfile(member).read() for member in packed}
                for source in sorted((chart.SOURCE / "deploy/grafana/dashboards").glob("*.json")):
                    self.assertEqual(held[f"fsdp/files/dashboards/{source.name}"], source.read_bytes())
                for name in ("alerting_rules.yaml", "recording_rules.yaml"):
                    self.assertEqual(held[f"fsdp/files/{name}"],
                                     (chart.SOURCE / "deploy/prometheus" / name).read_bytes())
                code, text, errors = chart.template(which, chart.MATRIX["everything"], chart=archive)
                self.assertEqual(code, 0, errors)
                self.assertEqual(text, chart.rendered_text("everything"))


class NotesTest(unittest.TestCase):
    def test_commands_name_objects_that_exist(self):
        for case in chart.MATRIX:
            notes, objects = chart.notes(chart.MATRIX[case]), chart.rendered(case)
            with self.subTest(case=case):
                tls = chart.MATRIX[case].get("tls", {}).get("enabled", False)
                wanted = "speaks TLS" if tls else "NOT ENCRYPTED" if case == "access" else "NOT PROTECTED"
                self.assertIn(wanted, notes)
                self.assertEqual("NOT" in notes, not tls)
                for kind, name in re.findall(r"(statefulset|service)/(\S+)", notes):
                    self.assertIn(({"statefulset": "StatefulSet", "service": "Service"}[kind], name), objects)
                self.assertEqual("helm test" in notes, ("Pod", "fsdp-test") in objects)

    def test_the_state_of_protection_is_said(self):
        self.assertIn("every pod of the cluster reaches it", chart.notes(chart.MATRIX["open"]))
        self.assertIn('fsdp-client: "true"', chart.notes(chart.MATRIX["default"]))
        self.assertIn("no NetworkPolicy holds", chart.notes(chart.MATRIX["host_network"]))


class PageTest(unittest.TestCase):
    """docs/kubernetes.md and README.md: their commands name values, objects, files and flags that exist."""

    @classmethod
    def setUpClass(cls):
        text = (chart.SOURCE / "docs/kubernetes.md").read_text(encoding="utf-8")
        readme = (chart.SOURCE / "README.md").read_text(encoding="utf-8")
        (on_kubernetes,) = (block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "helm install" in block)
        blocks = "\n".join([*re.findall(r"```\n(.*?)```", text, re.DOTALL), on_kubernetes])
        cls.lines = re.sub(r"\\\n\s*", " ", blocks).splitlines()
        cls.text = text

    def test_helm_commands_render(self):
        commands = [line for line in self.lines if re.match(r"helm (install|upgrade) ", line)]
        self.assertGreater(len(commands), 4)
        for line in commands:
            words = line.split("#")[0].split()
            self.assertEqual(words[2:4], ["fsdp", "deploy/helm/fsdp"], line)
            options = [word for word in words[4:] if word not in ("--create-namespace", "--reset-then-reuse-values")]
            code, _, errors = chart.helm("helm4", "template", "fsdp", chart.CHART, *options)
            self.assertEqual(code, 0, f"{line}: {errors}")

    def test_images_that_are_built_are_those_that_pods_run(self):
        built = set()
        for file, tag in re.findall(r"docker build -f (\S+) +-t (\S+) \.", "\n".join(self.lines)):
            self.assertTrue((chart.SOURCE / file).is_file(), file)
            built.add(tag)
        pushed = set(re.findall(r"docker push (\S+)", "\n".join(self.lines)))
        self.assertEqual(built, pushed)
        _, text, _ = chart.template("helm4", {"image": {"registry": "registry.example"}})
        pods = [pod for pod in map(chart.pod_of, chart.objects_of(text)) if pod]
        run = {container["image"] for _, spec in pods for container in spec["containers"]}
        self.assertEqual(run, built)

    def test_objects_and_verbs_exist(self):
        objects = chart.rendered("default")
        text = "\n".join(self.lines)
        for name in re.findall(r"service/(\S+)", text):
            self.assertIn(("Service", name), objects)
        (pod,) = set(re.findall(r"delete pod (\S+)", text))
        self.assertIn(("StatefulSet", pod.rsplit("-", 1)[0]), objects)
        for verb, rest in re.findall(r"\bfsdpctl (\w+)([^;&#\n]*)", text):
            done = subprocess.run([chart.BIN / "fsdpctl", verb, "--help"], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, verb)
            for flag in re.findall(r"--[a-z-]+", rest):
                self.assertIn(flag, done.stdout, f"fsdpctl {verb}")

    def test_values_that_it_names_exist(self):
        values = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
        sections = "worker|coordinator|metrics|networkPolicy|sharedVolume|image"
        named = set(re.findall(rf"`((?:{sections})\.[A-Za-z.]+)", self.text))
        self.assertGreater(len(named), 10)
        for path in named:
            node = values
            for key in path.split("."):
                self.assertIn(key, node, path)
                node = node[key]


if __name__ == "__main__":
    unittest.main()
