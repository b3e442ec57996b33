"""deploy/helm/fsdp: what TLS changes in pods, monitors and probes, and what cert-manager is asked for."""

import unittest

import chart

COORDINATOR, WORKER, TEST = "StatefulSet/fsdp-coordinator", "StatefulSet/fsdp-worker", "Pod/fsdp-test"


def container(objects, name):
    return chart.pods(objects)[name][1]["containers"][0]


def secret(objects, name):
    (volume,) = [v for v in chart.pods(objects)[name][1]["volumes"] if v["name"] == "tls"]
    return volume["secret"]


class CertificatesTest(unittest.TestCase):
    def test_without_tls_nothing_of_it_is_there(self):
        text = chart.rendered_text("default")
        for word in ("tls", "cert-manager", "HTTPS", "https"):
            self.assertNotIn(word, text.split("kind: ConfigMap")[0])

    def test_programs_get_their_secrets(self):
        objects = chart.rendered("tls")
        for name, wanted in ((COORDINATOR, "c-tls"), (WORKER, "w-tls"), (TEST, "u-tls")):
            self.assertEqual(secret(objects, name), {"secretName": wanted, "defaultMode": 0o440})
            mounts = {m["name"]: m for m in container(objects, name)["volumeMounts"]}
            self.assertEqual(mounts["tls"], {"name": "tls", "mountPath": "/etc/fsdp/tls", "readOnly": True})
        arguments = container(objects, COORDINATOR)["args"]
        self.assertIn("--require-client-certificate", arguments)
        self.assertIn("--tls-client-ca=/etc/fsdp/tls/ca.crt", arguments)
        self.assertNotIn("--insecure", arguments + container(objects, WORKER)["args"])
        self.assertIn("--tls-ca=/etc/fsdp/tls/ca.crt", container(objects, WORKER)["args"])
        environment = {e["name"]: e["value"] for e in container(objects, TEST)["env"]}
        self.assertEqual(environment["FSDPCTL_TLS_KEY"], "/etc/fsdp/tls/tls.key")

    def test_with_tokens_a_certificate_is_no_must(self):
        objects = chart.rendered("tls_and_access")
        self.assertNotIn("--require-client-certificate", container(objects, COORDINATOR)["args"])
        self.assertIn("--tls-client-ca=/etc/fsdp/tls/ca.crt", container(objects, COORDINATOR)["args"])
        names = {e["name"] for e in container(objects, TEST)["env"]}
        self.assertLessEqual({"FSDPCTL_TOKEN_FILE", "FSDPCTL_TLS_CA"}, names)
        self.assertNotIn("FSDPCTL_ALLOW_PLAINTEXT_TOKEN", names)

    def test_probes_and_scrapes_speak_what_the_ports_speak(self):
        objects = chart.rendered("tls")
        for probe in ("startupProbe", "readinessProbe"):
            self.assertEqual(container(objects, COORDINATOR)[probe]["tcpSocket"], {"port": "grpc"})
            self.assertNotIn("grpc", container(objects, COORDINATOR)[probe])
        self.assertEqual(container(objects, WORKER)["readinessProbe"]["httpGet"]["scheme"], "HTTPS")
        (endpoint,) = objects["ServiceMonitor", "fsdp-coordinator"]["spec"]["endpoints"]
        self.assertEqual(endpoint["scheme"], "https")
        self.assertEqual(endpoint["tlsConfig"]["serverName"], "fsdp-coordinator.train.svc")
        (endpoint,) = objects["PodMonitor", "fsdp-worker"]["spec"]["podMetricsEndpoints"]
        self.assertEqual(endpoint["tlsConfig"], {"ca": {"secret": {"name": "w-tls", "key": "ca.crt"}},
                                                 "serverName": "fsdp-worker"})

    def test_what_stays_in_the_clear_says_so(self):
        objects = chart.rendered("cert_manager")
        for name in (COORDINATOR, WORKER):
            arguments = container(objects, name)["args"]
            self.assertIn("--insecure", arguments)
            self.assertFalse([a for a in arguments if a.startswith("--metrics-tls")])
        self.assertNotIn("scheme", container(objects, WORKER)["readinessProbe"]["httpGet"])

    def test_cert_manager_is_asked_for_what_the_programs_check(self):
        certificates = {name: item["spec"] for (kind, name), item in chart.rendered("cert_manager").items()
                        if kind == "Certificate"}
        self.assertEqual(set(certificates), {"fsdp-coordinator", "fsdp-worker", "fsdp-client"})
        server = certificates["fsdp-coordinator"]
        arguments = container(chart.rendered("cert_manager"), WORKER)["args"]
        (dialled,) = [a.split("=")[1].split(":")[0] for a in arguments if a.startswith("--coordinator=")]
        self.assertIn(dialled, server["dnsNames"])
        self.assertIn("server auth", server["usages"])
        # A worker's id is its pod's name and its device.
        self.assertEqual(certificates["fsdp-worker"]["uris"], ["fsdp://worker/fsdp-worker-*"])
        self.assertIn("fsdp-worker", certificates["fsdp-worker"]["dnsNames"])
        self.assertEqual(set(certificates["fsdp-worker"]["usages"]),
                         {"digital signature", "client auth", "server auth"})
        for spec in certificates.values():
            self.assertEqual(spec["issuerRef"], {"kind": "Issuer", "name": "fsdp-ca", "group": "cert-manager.io"})
        objects = chart.rendered("cert_manager")
        for name, of in ((COORDINATOR, "coordinator"), (WORKER, "worker"), (TEST, "client")):
            self.assertEqual(secret(objects, name)["secretName"], certificates[f"fsdp-{of}"]["secretName"])
        of_nodes = chart.rendered("cert_manager_daemonset")["Certificate", "fsdp-worker"]["spec"]
        self.assertEqual(of_nodes["uris"], ["fsdp://worker/*"])
        self.assertEqual(of_nodes["issuerRef"]["kind"], "ClusterIssuer")


if __name__ == "__main__":
    unittest.main()
