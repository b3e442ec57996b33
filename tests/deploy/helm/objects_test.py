"""deploy/helm/fsdp: every object of a matrix of values against Kubernetes' schemas, and against each other."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

import chart

HERE = pathlib.Path(__file__).resolve().parent

# A damage of the rendered text, and what validate_objects must say of it.
DAMAGES = [
    ("podManagementPolicy: Parallel", "podManagmentPolicy: Parallel", "unknown field /spec/podManagmentPolicy"),
    ("tcpSocket: {port: grpc}", "tcpSocket: {port: grpc, hots: a}", "livenessProbe/tcpSocket/hots"),
    ("medium: Memory", "mediun: Memory", "emptyDir/mediun"),
    ("interval: 5s", "intervall: 5s", "unknown field /spec/podMetricsEndpoints/0/intervall"),
    ("      - alert: FsdpNoProgress", "      - alret: x\n        alert: FsdpNoProgress", "/alret"),
    ("containerPort: 7070", 'containerPort: "7070"', "containerPort must be integer"),
    ("maxUnavailable: 1", "maxUnavailable: 1\n  minAvailabel: 1", "unknown field /spec/minAvailabel"),
    ("apiVersion: policy/v1", "apiVersion: policy/v7", "no schema for apiVersion policy/v7"),
    ("automountServiceAccountToken: false\n---", "automountServiceAccountToken: false\nkind: ServiceAccount\n---",
     "unique"),
]


def validate(*files):
    done = subprocess.run(["node", HERE / "validate_objects.mjs", chart.TOOLS, *files], text=True,
                          capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


class ObjectsTest(unittest.TestCase):
    def test_every_object_fits_the_schemas_of_kubernetes(self):
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for case in chart.MATRIX:
                files.append(pathlib.Path(folder) / f"{case}.yaml")
                files[-1].write_text(chart.rendered_text(case), encoding="utf-8")
            code, text = validate(*files)
            print(text.strip().splitlines()[-1])
            self.assertEqual(code, 0, text)

    def test_the_check_itself_finds_faults(self):
        sound = chart.rendered_text("everything")
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "damaged.yaml"
            for before, after, message in DAMAGES:
                with self.subTest(damage=after):
                    self.assertTrue(before in sound)
                    file.write_text(sound.replace(before, after, 1), encoding="utf-8")
                    code, text = validate(file)
                    self.assertEqual(code, 1, text)
                    self.assertIn(message, text)

    def test_helm_3_and_4_render_the_same(self):
        for case in chart.MATRIX:
            with self.subTest(case=case):
                self.assertEqual(chart.rendered_text(case, "helm3"), chart.rendered_text(case, "helm4"))

    def test_names_and_namespaces(self):
        for release, values in (("fsdp", {}), ("a-rather-long-name-of-a-release-of-this-chart", {}), ("x", {}),
                                ("x", {"nameOverride": "train"})):
            code, text, errors = chart.template("helm4", values, release=release)
            self.assertEqual(code, 0, errors)
            names = [(item["kind"], item["metadata"]["name"]) for item in chart.objects_of(text)]
            self.assertEqual(len(names), len(set(names)))
            (worker,) = [name for kind, name in names if kind == "StatefulSet" and name.endswith("-worker")]
            # A worker's id has 63 at most, a StatefulSet's name 52.
            self.assertLessEqual(len(f"{worker}-999-cuda-15"), 63)
            for item in chart.objects_of(text):
                self.assertEqual(item["metadata"]["namespace"], "train")

    def test_selectors_find_their_pods_and_ports(self):
        for case in chart.MATRIX:
            objects = chart.rendered(case)
            labels_and_ports = [(labels, {port["name"]: port["containerPort"] for container in spec["containers"]
                                          for port in container.get("ports", [])})
                                for labels, spec in chart.pods(objects).values()]
            for (kind, name), item in objects.items():
                spec = item.get("spec", {})
                selector = {"Service": spec.get("selector"),
                            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
                            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
                            "PodMonitor": spec.get("selector", {}).get("matchLabels"),
                            "StatefulSet": spec.get("selector", {}).get("matchLabels"),
                            "DaemonSet": spec.get("selector", {}).get("matchLabels")}.get(kind)
                if selector is None:
                    continue
                with self.subTest(case=case, kind=kind, name=name):
                    found = [ports for labels, ports in labels_and_ports if selector.items() <= labels.items()]
                    self.assertEqual(len(found), 1)
                    wanted = spec.get("ports", []) if kind == "Service" else spec.get("podMetricsEndpoints", [])
                    for port in wanted:
                        self.assertIn(port.get("targetPort", port.get("port")), found[0])

    def test_pods_are_confined(self):
        for case in chart.MATRIX:
            for name, (_, spec) in chart.pods(chart.rendered(case)).items():
                with self.subTest(case=case, pod=name):
                    self.assertIs(spec["automountServiceAccountToken"], False)
                    self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                    self.assertGreater(spec["securityContext"]["runAsUser"], 0)
                    self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertNotIn("hostPID", spec)
                    self.assertNotIn("hostIPC", spec)
                    for container in spec["containers"]:
                        context = container["securityContext"]
                        self.assertIs(context["allowPrivilegeEscalation"], False)
                        self.assertIs(context["readOnlyRootFilesystem"], True)
                        self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                        rdma = chart.MATRIX[case].get("worker", {}).get("rdma", {}).get("enabled", False)
                        self.assertEqual(context["capabilities"].get("add", []),
                                         ["IPC_LOCK"] if rdma and container["name"] == "worker" else [])
                        self.assertIn("memory", container["resources"]["limits"])
                        self.assertNotRegex(container["image"], r":latest$|:$")
                    mounted = {mount["name"] for c in spec["containers"] for mount in c["volumeMounts"]}
                    claims = {"state"} if name.endswith(("-coordinator", "-worker")) else set()
                    self.assertEqual(mounted, {volume["name"] for volume in spec["volumes"]} | claims)
        for case in chart.MATRIX:
            for kind, _ in chart.rendered(case):
                self.assertNotIn(kind, ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret"))

    def test_images(self):
        def images(case):
            return {spec["containers"][0]["name"]: spec["containers"][0]["image"]
                    for _, spec in chart.pods(chart.rendered(case)).values()}
        self.assertEqual(images("default"), {"coordinator": "fsdpctl/fsdp-coordinator:0.1.0",
                                             "worker": "fsdpctl/fsdp-worker:0.1.0",
                                             "submit": "fsdpctl/fsdp-coordinator:0.1.0"})
        self.assertEqual(images("everything")["worker"], "registry.example/fsdp/fsdpctl/fsdp-worker:0.1.0")
        self.assertEqual(images("digests")["worker"], "fsdpctl/fsdp-worker@sha256:" + "b" * 64)
        version = re.search(r"project\(fsdpctl VERSION ([0-9.]+)", (chart.SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertEqual(yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"], version)


if __name__ == "__main__":
    unittest.main()
