"""The chart, rendered by Helm 3 and 4: what the tests of this folder share. deploy/ci/helm_check fetches both."""

import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[3]
CHART = SOURCE / "deploy" / "helm" / "fsdp"
TOOLS = pathlib.Path(os.environ["FSDP_HELM_TOOLS"])
BIN = pathlib.Path(os.environ["FSDP_BINARY_DIR"])
HELMS = {name: TOOLS / name for name in ("helm3", "helm4")}

EVERYTHING_ON = {
    "commonLabels": {"team": "research"},
    "coordinator": {"queues": [{"name": "prod", "weight": 3, "devices": [{"device": "cuda", "quota": 16, "max": 32}],
                                "preemption": {"withinQueue": "lower_priority", "graceSeconds": 300}},
                               {"name": "default"}],
                    "pdb": {"enabled": True}, "web": {"enabled": True, "service": True}, "podLabels": {"a": "b"},
                    "podAnnotations": {"c": "d"},
                    "extraArgs": ["--verbose", "--lost-after=20s"], "extraEnv": [{"name": "TZ", "value": "UTC"}],
                    "nodeSelector": {"disk": "ssd"}, "priorityClassName": "high",
                    "persistence": {"storageClassName": "fast", "annotations": {"e": "f"}},
                    "tolerations": [{"key": "infra", "operator": "Exists"}],
                    "affinity": {"nodeAffinity": {}},
                    "extraVolumes": [{"name": "more", "emptyDir": {}}],
                    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}]},
    "worker": {"replicas": 3, "persistence": {"enabled": True, "storageClassName": "fast"},
               "rdma": {"enabled": True, "count": 2}, "networkInterface": "net1", "runtimeClassName": "nvidia",
               "extraArgs": ["--metrics-linger=2m"], "extraEnv": [{"name": "NCCL_DEBUG", "value": "WARN"}],
               "extraResources": {"hugepages-2Mi": "2Gi"}, "cpu": {"request": "64", "limit": "96"},
               "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "nodeSelector": {"gpu": "h100"},
               "priorityClassName": "high", "extraVolumes": [{"name": "more", "emptyDir": {}}],
               "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
               "affinity": {"podAntiAffinity": {}},
               "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                                              "whenUnsatisfiable": "DoNotSchedule"}]},
    "sharedVolume": {"existingClaim": "training-data"},
    "image": {"registry": "registry.example/fsdp/", "pullSecrets": [{"name": "pull"}]},
    "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
                      "web": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
                      "extraWorkerEgress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}]},
    "metrics": {"monitors": {"enabled": True, "labels": {"release": "kps"}},
                "rules": {"enabled": True, "labels": {"release": "kps"}},
                "dashboards": {"enabled": True, "annotations": {"grafana_folder": "FSDP"}},
                "runbookBaseUrl": "https://wiki.example/fsdp/"},
    "serviceAccount": {"annotations": {"g": "h"}},
}
# Release "fsdp" in namespace "train", but for the case that is about names.
MATRIX = {
    "default": {},
    "everything": EVERYTHING_ON,
    "cpu": {"worker": {"devices": "cpu:2", "memory": "2Gi", "shm": {"size": "64Mi"}, "cpu": {"request": "1"}}},
    "daemonset": {"worker": {"kind": "DaemonSet", "nodeSelector": {"gpu": "h100"}}},
    "host_network": {"worker": {"hostNetwork": True, "rdma": {"enabled": True}},
                     "networkPolicy": {"workerCidrs": ["10.0.0.0/16"]}},
    "tls": {"tls": {"enabled": True, "secrets": {"coordinator": "c-tls", "worker": "w-tls", "client": "u-tls"}},
            "metrics": {"monitors": {"enabled": True}}},
    "cert_manager": {"tls": {"enabled": True, "metrics": False, "certManager": {"enabled": True}},
                     "coordinator": {"web": {"enabled": True, "service": True}}, "networkPolicy": {"web": []}},
    "cert_manager_daemonset": {"tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {
        "kind": "ClusterIssuer", "name": "mine"}}}, "worker": {"kind": "DaemonSet"}},
    "tls_and_access": {"tls": {"enabled": True}, "access": {"existingSecret": "access", "workerTokenSecret": "worker-token",
                                                            "testTokenSecret": "test-token"}},
    "web": {"coordinator": {"web": {"enabled": True, "port": 7777}}},
    "open": {"networkPolicy": {"enabled": False}, "coordinator": {"service": {"type": "LoadBalancer",
             "loadBalancerSourceRanges": ["192.0.2.0/24"]}}, "metrics": {"monitors": {"enabled": True}}},
    "coordinator_only": {"worker": {"enabled": False}, "serviceAccount": {"create": False, "name": "mine"},
                         "metrics": {"monitors": {"enabled": True}}},
    "hardened": {"coordinator": {"hardened": True, "web": {"enabled": True, "service": True}}, "tls": {"enabled": True},
                 "access": {"existingSecret": "who-may", "workerTokenSecret": "worker-token",
                            "testTokenSecret": "test-token", "auditLog": True, "allowedPaths": ["/shared"]}},
    "ipv6": {"ipFamily": "IPv6", "worker": {"jobNetwork": "fd00:1::/64"},
             "coordinator": {"web": {"enabled": True, "service": True}}},
    "rolling": {"worker": {"updateStrategy": "RollingUpdate", "pdb": {"enabled": False}}, "tests": {"enabled": False},
                "fullnameOverride": "a234567890123456789012345678901234567890"},
    "access": {"access": {"existingSecret": "who-may", "workerTokenSecret": "worker-token", "testTokenSecret": "test-token",
                          "auditLog": True, "allowedPaths": ["/shared", "/scratch"]},
               "sharedVolume": {"existingClaim": "training-data"}},
    "digests": {"coordinator": {"image": {"digest": "sha256:" + "a" * 64}},
                "worker": {"image": {"digest": "sha256:" + "b" * 64}}, "image": {"tag": "1.2.3"}},
}


def helm(which, *words):
    """Exit code, standard output, standard error without the lines about the chart's links."""
    done = subprocess.run([str(HELMS[which]), *map(str, words)], text=True, capture_output=True, check=False)
    errors = "\n".join(line for line in done.stderr.splitlines() if "found symbolic link" not in line)
    return done.returncode, done.stdout, errors


def template(which, values=None, chart=CHART, release="fsdp", namespace="train", extra=()):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        return helm(which, "template", release, chart, "--namespace", namespace, "--values", file.name, *extra)


@functools.cache
def rendered_text(case, which="helm4"):
    code, text, errors = template(which, MATRIX[case])
    if code != 0:
        raise AssertionError(f"{which} cannot render '{case}': {errors}")
    return text


def notes(values):
    """NOTES.txt. `helm template` leaves it out, and an install, dry or not, wants a cluster: inside of an object."""
    with tempfile.TemporaryDirectory() as folder:
        copied = pathlib.Path(folder) / "fsdp"
        subprocess.run(["cp", "-rL", CHART, copied], check=True)
        text = (copied / "templates/NOTES.txt").read_text(encoding="utf-8")
        (copied / "templates/_notes.tpl").write_text('{{ define "notes" }}' + text + "{{ end }}", encoding="utf-8")
        (copied / "templates/notes.yaml").write_text('notes: {{ include "notes" . | quote }}', encoding="utf-8")
        code, text, errors = template("helm4", values, chart=copied, extra=("--show-only", "templates/notes.yaml"))
    if code != 0:
        raise AssertionError(errors)
    return yaml.safe_load(text)["notes"]


def objects_of(text):
    return [document for document in yaml.safe_load_all(text) if document is not None]


def rendered(case):
    """(kind, name) -> object."""
    return {(item["kind"], item["metadata"]["name"]): item for item in objects_of(rendered_text(case))}


def pod_of(item):
    """A pod's labels and spec, of a Pod or of what makes pods; None of others."""
    if item["kind"] == "Pod":
        return item["metadata"]["labels"], item["spec"]
    pod = item.get("spec", {}).get("template")
    return (pod["metadata"]["labels"], pod["spec"]) if pod else None


def pods(objects):
    """name of the object -> (labels, spec)."""
    return {f"{kind}/{name}": pod_of(item) for (kind, name), item in objects.items() if pod_of(item)}


def help_flags(program):
    """The flags that --help of a program names."""
    text = subprocess.run([BIN / program, "--help"], text=True, capture_output=True, check=False).stdout
    return set(re.findall(r"^  --([a-z-]+) ", text, re.MULTILINE))


def flag_names(arguments):
    return {word.split("=")[0].removeprefix("--") for word in arguments if word.startswith("--")}
