"""deploy/helm/fsdp: values.yaml and its schema.

Started, as its neighbours, by deploy/ci/helm_check.
"""

import json
import re
import unittest

import yaml

import chart


HARDENED = {"coordinator": {"hardened": True}, "tls": {"enabled": True, "metrics": True},
            "access": {"existingSecret": "who-may", "workerTokenSecret": "worker-token", "auditLog": True,
                       "allowedPaths": ["/shared"]}}
# Values that must be refused, with what the error has to name.
REFUSED = [
    ({"bogus": 1}, "bogus"),
    ({"coordinator": {"replicas": 2}}, "replicas"),
    ({"coordinator": {"tls": {"enabled": True}}}, "tls"),
    ({"coordinator": {"queues": {"prod": {}}}}, "queues"),
    ({"coordinator": {"queues": [{"name": "Prod"}]}}, "name"),
    ({"coordinator": {"queues": [{"name": "a", "devices": [{"device": "gpu"}]}]}}, "device"),
    ({"coordinator": {"queues": [{"name": "a", "wieght": 2}]}}, "wieght"),
    ({"coordinator": {"queues": [{"name": "a", "preemption": {"reclaim": "all"}}]}}, "reclaim"),
    ({"tls": {"enabled": "yes"}}, "enabled"),
    ({"tls": {"certificate": "x"}}, "certificate"),
    ({"tls": {"secrets": {"coordinator": "Upper"}}}, "coordinator"),
    ({"tls": {"certManager": {"issuerRef": {"kind": "Secret", "name": "x"}}}}, "kind"),
    ({"tls": {"certManager": {"duration": "90d"}}}, "duration"),
    ({"auth": {"tokens": {}}}, "auth"),
    ({"access": {"tokens": ["secret"]}}, "tokens"),
    ({"access": {"existingSecret": "Not A Name"}}, "existingSecret"),
    ({"access": {"allowedPaths": ["shared"]}}, "allowedPaths"),
    ({"access": {"auditLog": "yes"}}, "auditLog"),
    ({"worker": {"tls": {}}}, "tls"),
    ({"worker": {"gpusPerPod": 8}}, "gpusPerPod"),
    ({"worker": {"gpus": 0}}, "gpus"),
    ({"worker": {"gpus": "8"}}, "gpus"),
    ({"worker": {"devices": "cuda:0"}}, "devices"),
    ({"worker": {"devices": "cpu:0"}}, "devices"),
    ({"worker": {"kind": "Deployment"}}, "kind"),
    ({"worker": {"networkInterface": "^docker,lo"}}, "networkInterface"),
    ({"worker": {"jobNetwork": "10.1.0.0"}}, "jobNetwork"),
    ({"ipFamily": "ipv6"}, "ipFamily"),
    ({"worker": {"memory": "64G"}}, "memory"),
    ({"worker": {"memory": "1.5Gi"}}, "memory"),
    ({"worker": {"shm": {"size": "0Gi"}}}, "size"),
    ({"worker": {"terminationGracePeriodSeconds": 0}}, "terminationGracePeriodSeconds"),
    ({"worker": {"updateStrategy": "Recreate"}}, "updateStrategy"),
    ({"worker": {"spoolBytes": 1}}, "spoolBytes"),
    ({"worker": {"metricsPort": 80}}, "metricsPort"),
    ({"worker": {"extraArgs": ["verbose"]}}, "extraArgs"),
    ({"worker": {"extraEnv": [{"value": "x"}]}}, "extraEnv"),
    ({"worker": {"pdb": {"maxUnavailable": 0}}}, "maxUnavailable"),
    ({"worker": {"image": {"digest": "sha256:abc"}}}, "digest"),
    ({"worker": {"readinessProbe": {"httpGet": {}}}}, "httpGet"),
    ({"worker": {"cpu": {"request": "eight"}}}, "request"),
    ({"coordinator": {"persistence": {"enabled": False}}}, "enabled"),
    ({"coordinator": {"persistence": {"size": "10GB"}}}, "size"),
    ({"coordinator": {"service": {"type": "NodePort"}}}, "type"),
    ({"coordinator": {"service": {"port": 70700}}}, "port"),
    ({"coordinator": {"service": {"loadBalancerSourceRanges": ["everybody"]}}}, "loadBalancerSourceRanges"),
    ({"coordinator": {"web": {"port": 80}}}, "port"),
    ({"coordinator": {"web": {"service": "NodePort"}}}, "service"),
    ({"coordinator": {"web": {"tls": True}}}, "tls"),
    ({"networkPolicy": {"web": ["everybody"]}}, "web"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"image": {"tag": "a b"}}, "tag"),
    ({"fullnameOverride": "a" * 41}, "fullnameOverride"),
    ({"fullnameOverride": "Upper"}, "fullnameOverride"),
    ({"networkPolicy": {"workerCidrs": ["10.0.0.1"]}}, "workerCidrs"),
    ({"networkPolicy": {"clients": [{}]}}, "clients"),
    ({"metrics": {"monitors": {"intervalSeconds": 30}}}, "intervalSeconds"),
    ({"metrics": {"runbookBaseUrl": "https://wiki.example/fsdp"}}, "runbookBaseUrl"),
    ({"sharedVolume": {"mountPath": "shared"}}, "mountPath"),
    ({"tests": {"timeoutSeconds": 1}}, "timeoutSeconds"),
    # By the templates, for what the schema cannot say.
    ({"coordinator": {"hardened": "yes"}}, "hardened"),
    ({"worker": {"kind": "DaemonSet", "persistence": {"enabled": True}}}, "worker.persistence.enabled=true"),
    ({"worker": {"hostNetwork": True}}, "networkPolicy.workerCidrs"),
    ({"tls": {"certManager": {"enabled": True}}}, "tls.enabled=true"),
    ({"tls": {"enabled": True, "certManager": {"enabled": True, "duration": "24h"}}}, "tls.certManager.renewBefore=720h"),
    ({"coordinator": {"drainTimeoutSeconds": 30}}, "coordinator.drainTimeoutSeconds=30"),
    ({"access": {"existingSecret": "access"}}, "access.workerTokenSecret"),
    ({"access": {"workerTokenSecret": "token"}}, "access.existingSecret"),
    # Each piece that hardened wants, left out.
    *(({**HARDENED, section: {**HARDENED[section], key: value}}, f"{section}.{key}")
      for section, key, value in (("tls", "enabled", False), ("tls", "metrics", False), ("access", "existingSecret", ""),
                                  ("access", "auditLog", False), ("access", "allowedPaths", []))),
]


class ValuesTest(unittest.TestCase):
    def test_lint_is_strict_and_clean(self):
        for which in chart.HELMS:
            code, text, errors = chart.helm(which, "lint", "--strict", chart.CHART)
            self.assertEqual(code, 0, text + errors)
            self.assertNotIn("WARNING", text)

    def test_bad_values_are_refused_by_name(self):
        for which in chart.HELMS:
            for values, name in REFUSED:
                with self.subTest(helm=which, values=values):
                    code, _, errors = chart.template(which, values)
                    self.assertNotEqual(code, 0)
                    self.assertIn(name, errors)

    def test_versions_of_kubernetes(self):
        for which in chart.HELMS:
            for version, accepted in (("1.26.9", False), ("1.27.0", True), ("1.35.2", True)):
                code, _, errors = chart.template(which, extra=("--kube-version", version))
                self.assertEqual(code == 0, accepted, errors)

    def test_every_value_has_an_explanation_and_a_schema(self):
        text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
        schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
        explained = set()
        path, pending = [], False
        for line in text.splitlines():
            comment, key = re.match(r"\s*# -- \S", line), re.match(r"( *)([A-Za-z]+):", line)
            if comment:
                pending = True
            elif key:
                path = path[:len(key[1]) // 2] + [key[2]]
                if pending:
                    explained.add(".".join(path))
                pending = False

        def walk(values, node, path):
            node = schema["definitions"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node
            if not isinstance(values, dict) or node.get("properties") is None or path in explained:
                self.assertIn(path, explained, f"{path} has no '# --' comment")
                return
            self.assertIs(node.get("additionalProperties"), False, path)
            allowed = set(node["properties"]) - {"global"}
            self.assertEqual(allowed, set(values), f"schema and values differ below '{path}'")
            for key, inner in values.items():
                walk(inner, node["properties"][key], f"{path}.{key}" if path else key)

        walk(yaml.safe_load(text), schema, "")

    def test_nothing_is_offered_for_what_does_not_exist(self):
        names = re.findall(r"^\s*([A-Za-z]+):", (chart.CHART / "values.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        for word in ("cert", "token", "auth", "role", "rbac", "ha", "standby"):
            self.assertNotIn(word, [name.lower() for name in names])


if __name__ == "__main__":
    unittest.main()
