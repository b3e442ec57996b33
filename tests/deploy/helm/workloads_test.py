"""deploy/helm/fsdp: the pods of coordinator and workers, their flags, and what an upgrade does to them."""

import copy
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

import chart


class CoordinatorTest(unittest.TestCase):
    def setUp(self):
        self.objects = chart.rendered("default")
        self.set = self.objects["StatefulSet", "fsdp-coordinator"]
        self.pod = self.set["spec"]["template"]["spec"]
        self.container = self.pod["containers"][0]

    def test_queues_are_a_file_that_the_coordinator_takes(self):
        objects = chart.rendered("everything")
        text = objects["ConfigMap", "fsdp-queues"]["data"]["queues.yaml"]
        done = subprocess.run([chart.BIN / "fsdpctl", "queues", "--check", "-"], input=text, text=True,
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "<stdin>: 2 queues\n")
        _, pod = chart.pod_of(objects["StatefulSet", "fsdp-coordinator"])
        container = pod["containers"][0]
        mount = next(m for m in container["volumeMounts"] if m["name"] == "queues")
        self.assertIn(f"--queues={mount['mountPath']}/queues.yaml", container["args"])
        self.assertIn({"name": "queues", "configMap": {"name": "fsdp-queues"}}, pod["volumes"])
        self.assertNotIn(("ConfigMap", "fsdp-queues"), chart.rendered("default"))

    def test_one_writer_of_one_volume(self):
        self.assertEqual(self.set["spec"]["replicas"], 1)
        (claim,) = self.set["spec"]["volumeClaimTemplates"]
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOnce"])
        self.assertEqual(self.set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"], "Retain")
        mount = {mount["name"]: mount["mountPath"] for mount in self.container["volumeMounts"]}["state"]
        self.assertIn(f"--state-dir={mount}", self.container["args"])

    def test_flags_and_probes(self):
        self.assertIn("--listen=0.0.0.0:7070", self.container["args"])
        self.assertIn("--metrics-listen=0.0.0.0:9464", self.container["args"])
        self.assertIn("--insecure", self.container["args"])
        self.assertEqual(self.container["startupProbe"]["grpc"], {"port": 7070})
        self.assertEqual(self.container["readinessProbe"]["grpc"], {"port": 7070})
        # Health is NOT_SERVING while it drains, which is no reason to kill it.
        self.assertNotIn("grpc", self.container["livenessProbe"])
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], 5)
        self.assertGreaterEqual(self.container["startupProbe"]["periodSeconds"]
                                * self.container["startupProbe"]["failureThreshold"], 120)

    def test_the_status_page_is_off_and_then_on_loopback(self):
        self.assertFalse([arg for arg in self.container["args"] if arg.startswith("--web-listen")])
        objects = chart.rendered("web")
        container = objects["StatefulSet", "fsdp-coordinator"]["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("--web-listen=127.0.0.1:7777", container["args"])
        self.assertNotIn(("Service", "fsdp-coordinator-web"), objects)
        policy = objects["NetworkPolicy", "fsdp-coordinator"]["spec"]["ingress"]
        self.assertNotIn(7777, [port["port"] for rule in policy for port in rule["ports"]])

    def test_the_status_page_as_a_service(self):
        objects = chart.rendered("everything")
        container = objects["StatefulSet", "fsdp-coordinator"]["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("--web-listen=0.0.0.0:7080", container["args"])
        service = objects["Service", "fsdp-coordinator-web"]["spec"]
        self.assertEqual((service["type"], service["ports"][0]["port"]), ("ClusterIP", 7080))
        policy = objects["NetworkPolicy", "fsdp-coordinator"]["spec"]["ingress"]
        self.assertEqual([rule["from"] for rule in policy if rule["ports"][0]["port"] == 7080],
                         [[{"namespaceSelector": {"matchLabels": {"team": "research"}}}]])

    def test_hardened_has_what_the_coordinator_asks_for(self):
        self.assertNotIn("--hardened", self.container["args"])
        objects = chart.rendered("hardened")
        arguments = objects["StatefulSet", "fsdp-coordinator"]["spec"]["template"]["spec"]["containers"][0]["args"]
        self.assertNotIn("--insecure", arguments)
        self.assertIn("--web-listen=0.0.0.0:7080", arguments)
        # The coordinator's own verdict: with every piece it gets as far as the files that a cluster would mount.
        command = [chart.BIN / "fsdp-coordinator", *(word for word in arguments if not word.startswith("--state-dir"))]
        done = subprocess.run([*command, "--state-dir=/nonexistent"], text=True, capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/etc/fsdp/tls/tls.crt", done.stderr)
        self.assertNotIn("--hardened", done.stderr)

    def test_metrics_are_not_on_a_load_balancer(self):
        objects = chart.rendered("open")
        ports = objects["Service", "fsdp-coordinator"]["spec"]["ports"]
        self.assertEqual([port["name"] for port in ports], ["grpc"])
        inside = objects["Service", "fsdp-coordinator-metrics"]
        self.assertEqual(inside["spec"]["type"], "ClusterIP")
        selector = objects["ServiceMonitor", "fsdp-coordinator"]["spec"]["selector"]["matchLabels"]
        self.assertLessEqual(selector.items(), inside["metadata"]["labels"].items())


class AccessTest(unittest.TestCase):
    def container(self, kind, name):
        item = chart.rendered("access")[kind, name]
        pod = item["spec"] if kind == "Pod" else item["spec"]["template"]["spec"]
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: secrets[mount["name"]] for mount in container["volumeMounts"]
                  if mount["name"] in secrets}
        return container, mounts

    def test_the_coordinator_asks_and_records(self):
        container, mounts = self.container("StatefulSet", "fsdp-coordinator")
        for flag in ("--access=/etc/fsdp-access/access.yaml", "--audit-log=/var/lib/fsdp-coordinator/audit.jsonl",
                     "--allow-path=/shared", "--allow-path=/scratch"):
            self.assertIn(flag, container["args"])
        self.assertEqual(mounts, {"/etc/fsdp-access": "who-may"})
        # A file mounted by itself (subPath) is never updated.
        self.assertFalse([mount for mount in container["volumeMounts"] if "subPath" in mount])

    def test_workers_and_the_test_have_their_tokens(self):
        container, mounts = self.container("StatefulSet", "fsdp-worker")
        for flag in ("--token-file=/etc/fsdp-token/token", "--allow-path=/shared", "--allow-path=/scratch"):
            self.assertIn(flag, container["args"])
        self.assertEqual(mounts, {"/etc/fsdp-token": "worker-token"})
        container, mounts = self.container("Pod", "fsdp-test")
        self.assertEqual(mounts, {"/token": "test-token"})
        self.assertIn({"name": "FSDPCTL_TOKEN_FILE", "value": "/token/token"}, container["env"])

    def test_without_it_nothing_is_asked(self):
        args = chart.rendered("default")["StatefulSet", "fsdp-coordinator"]["spec"]["template"]["spec"]["containers"][0][
            "args"]
        self.assertFalse([flag for flag in args if flag.startswith(("--access", "--audit-log", "--allow-path"))])


class WorkerTest(unittest.TestCase):
    def worker(self, case, kind="StatefulSet"):
        item = chart.rendered(case)[kind, "fsdp-worker"]
        return item["spec"], item["spec"]["template"]["spec"], item["spec"]["template"]["spec"]["containers"][0]

    def test_one_pod_owns_the_gpus_of_its_node(self):
        spec, pod, container = self.worker("default")
        self.assertEqual(spec["podManagementPolicy"], "Parallel")
        self.assertIn("--devices=all", container["args"])
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], 8)
        self.assertEqual(container["resources"]["requests"]["nvidia.com/gpu"], 8)
        self.assertEqual(pod["tolerations"][0]["key"], "nvidia.com/gpu")

    def test_shared_memory_is_counted(self):
        for case, memory, size in (("default", 80 * 1024, "16Gi"), ("cpu", 2 * 1024 + 64, "64Mi")):
            _, pod, container = self.worker(case)
            self.assertEqual(container["resources"]["limits"]["memory"], f"{memory}Mi")
            self.assertEqual(container["resources"]["requests"]["memory"], f"{memory}Mi")
            (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
            self.assertEqual(volume["emptyDir"], {"medium": "Memory", "sizeLimit": size})
            self.assertIn({"name": "shm", "mountPath": "/dev/shm"}, container["volumeMounts"])

    def test_addresses_come_from_the_pod(self):
        for case, kind, name in (("default", "StatefulSet", "POD_NAME"), ("daemonset", "DaemonSet", "NODE_NAME")):
            _, _, container = self.worker(case, kind)
            self.assertIn("--bind-address=$(POD_IP)", container["args"])
            self.assertIn("--metrics-listen=$(POD_IP):9465", container["args"])
            self.assertIn(f"--name=$({name})", container["args"])
            self.assertIn("--coordinator=fsdp-coordinator.train.svc:7070", container["args"])
            defined = {entry["name"] for entry in container["env"]}
            for variable in re.findall(r"\$\((\w+)\)", " ".join(container["args"])):
                self.assertIn(variable, defined)

    def test_ipv6_addresses_stand_in_brackets(self):
        _, _, container = self.worker("ipv6")
        self.assertIn("--metrics-listen=[$(POD_IP)]:9465", container["args"])
        self.assertIn("--job-network=fd00:1::/64", container["args"])
        self.assertFalse([word for word in container["args"] if word.startswith(("--bind-address", "--interface"))])
        coordinator = chart.pod_of(chart.rendered("ipv6")["StatefulSet", "fsdp-coordinator"])[1]["containers"][0]
        for flag in ("--listen=[::]:7070", "--metrics-listen=[::]:9464", "--web-listen=[::]:7080"):
            self.assertIn(flag, coordinator["args"])

    def test_no_liveness_probe_can_end_a_rank(self):
        _, pod, container = self.worker("default")
        self.assertNotIn("livenessProbe", container)
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/metrics", "port": "metrics"})
        # limits.gracePeriodSeconds is 60 s by default, and reports are delivered after it.
        self.assertGreater(pod["terminationGracePeriodSeconds"], 60 + 5)

    def test_without_gpus(self):
        _, pod, container = self.worker("cpu")
        self.assertEqual(set(container["resources"]["limits"]), {"memory"})
        self.assertNotIn("tolerations", pod)
        self.assertIn("--devices=cpu:2", container["args"])

    def test_a_daemon_set_has_no_fields_of_a_stateful_set(self):
        objects = chart.rendered("daemonset")
        spec, _, _ = self.worker("daemonset", "DaemonSet")
        self.assertEqual(set(spec), {"selector", "updateStrategy", "template"})
        self.assertNotIn(("PodDisruptionBudget", "fsdp-worker"), objects)

    def test_rdma_and_host_network(self):
        _, pod, container = self.worker("everything")
        self.assertEqual(container["resources"]["limits"]["rdma/hca"], 2)
        self.assertEqual(container["resources"]["limits"]["hugepages-2Mi"], "2Gi")
        self.assertEqual(container["resources"]["limits"]["cpu"], "96")
        self.assertIn("--interface=net1", container["args"])
        self.assertFalse([word for word in container["args"] if word.startswith(("--bind-address", "--job-network"))])
        self.assertNotIn("hostNetwork", pod)
        _, pod, container = self.worker("host_network")
        self.assertIs(pod["hostNetwork"], True)
        self.assertEqual(pod["dnsPolicy"], "ClusterFirstWithHostNet")

    def test_shared_volume_and_claims(self):
        spec, pod, container = self.worker("everything")
        self.assertIn({"name": "shared", "persistentVolumeClaim": {"claimName": "training-data"}}, pod["volumes"])
        self.assertIn({"name": "shared", "mountPath": "/shared"}, container["volumeMounts"])
        self.assertEqual([claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]], ["state"])


class FlagsTest(unittest.TestCase):
    def test_every_flag_is_one_of_the_program(self):
        programs = {"coordinator": "fsdp-coordinator", "worker": "fsdp-worker"}
        for program in programs.values():
            self.assertGreater(len(chart.help_flags(program)), 10, program)
        for case in chart.MATRIX:
            for name, (_, spec) in chart.pods(chart.rendered(case)).items():
                for container in spec["containers"]:
                    if container["name"] not in programs:
                        continue
                    known = chart.help_flags(programs[container["name"]])
                    with self.subTest(case=case, pod=name):
                        self.assertEqual(chart.flag_names(container["args"]) - known, set())

    def test_flags_in_the_values_comments(self):
        known = chart.help_flags("fsdp-coordinator") | chart.help_flags("fsdp-worker")
        text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
        named = set(re.findall(r"--([a-z][a-z-]+)", text))
        self.assertGreater(len(named), 5)
        self.assertEqual(named - known, set())


class UpgradeTest(unittest.TestCase):
    def test_a_new_chart_changes_no_pod(self):
        """Another version of chart and program, other labels: with the image as it was, pods stay as they are."""
        with tempfile.TemporaryDirectory() as folder:
            newer = pathlib.Path(folder) / "fsdp"
            # Links become files, as in a package.
            subprocess.run(["cp", "-rL", chart.CHART, newer], check=True)
            metadata = yaml.safe_load((newer / "Chart.yaml").read_text())
            metadata.update(version="9.9.9", appVersion="9.9.9")
            (newer / "Chart.yaml").write_text(yaml.safe_dump(metadata))
            pinned = {"image": {"tag": "0.1.0"}}
            after = {**copy.deepcopy(pinned), "commonLabels": {"new": "label"}, "metrics": {"rules": {"enabled": True}}}
            templates = []
            for values, source in ((pinned, chart.CHART), (after, newer)):
                code, text, errors = chart.template("helm4", values, chart=source)
                self.assertEqual(code, 0, errors)
                templates.append({item["metadata"]["name"]: {key: item["spec"].get(key)
                                  for key in ("template", "selector", "serviceName", "volumeClaimTemplates")}
                                  for item in chart.objects_of(text) if item["kind"] == "StatefulSet"})
            self.assertEqual(len(templates[0]), 2)
            self.assertEqual(templates[0], templates[1])

    def test_running_workers_are_left_alone(self):
        for case, kind in (("default", "StatefulSet"), ("daemonset", "DaemonSet")):
            self.assertEqual(chart.rendered(case)[kind, "fsdp-worker"]["spec"]["updateStrategy"], {"type": "OnDelete"})
        budget = chart.rendered("default")["PodDisruptionBudget", "fsdp-worker"]["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)


if __name__ == "__main__":
    unittest.main()
