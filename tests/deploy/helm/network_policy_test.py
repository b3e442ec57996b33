"""deploy/helm/fsdp: who reaches whom."""

import unittest

import chart
import network


class NetworkPolicyTest(unittest.TestCase):
    def pods(self, case):
        labels = {name.split("/")[1].removeprefix("fsdp-"): found[0]
                  for name, found in chart.pods(chart.rendered(case)).items()}
        pods = {name: {"namespace": "train", "labels": found} for name, found in labels.items()}
        pods["stranger"] = {"namespace": "train", "labels": {"app": "x"}}
        pods["stranger_elsewhere"] = {"namespace": "other", "labels": labels["worker"]}
        pods["prometheus"] = {"namespace": "monitoring", "labels": {"app": "prometheus"}}
        pods["client_elsewhere"] = {"namespace": "other", "labels": {"fsdp-client": "true"}}
        return pods

    def test_who_reaches_whom(self):
        pods = self.pods("default")
        policies = [item for (kind, _), item in chart.rendered("default").items() if kind == "NetworkPolicy"]
        self.assertEqual(len(policies), 2)
        for source, target, port, expected in (
                ("worker", "coordinator", 7070, True), ("test", "coordinator", 7070, True),
                ("stranger", "coordinator", 7070, False), ("stranger_elsewhere", "coordinator", 7070, False),
                ("client_elsewhere", "coordinator", 7070, False), ("prometheus", "coordinator", 7070, False),
                ("prometheus", "coordinator", 9464, True), ("worker", "coordinator", 9464, False),
                ("stranger", "coordinator", 9464, False),
                ("worker", "worker", 31234, True), ("stranger", "worker", 31234, False),
                ("stranger_elsewhere", "worker", 31234, False), ("test", "worker", 31234, False),
                ("prometheus", "worker", 9465, True), ("prometheus", "worker", 31234, False),
                ("coordinator", "worker", 31234, False), ("worker", "stranger", 443, False),
                ("worker", "stranger", 53, True), ("coordinator", "stranger", 443, False)):
            with self.subTest(source=source, target=target, port=port):
                self.assertIs(network.allowed(policies, pods[source], pods[target], port), expected)

    def test_workers_of_the_host_network_come_by_address(self):
        objects = chart.rendered("host_network")
        self.assertNotIn(("NetworkPolicy", "fsdp-worker"), objects)
        peers = objects["NetworkPolicy", "fsdp-coordinator"]["spec"]["ingress"][0]["from"]
        self.assertIn({"ipBlock": {"cidr": "10.0.0.0/16"}}, peers)


if __name__ == "__main__":
    unittest.main()
