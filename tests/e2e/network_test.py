"""Clusters of several hosts, each a network namespace with addresses of its own (tests/support/host_network.py).

Jobs run across the hosts over Gloo; which network their ranks use is the worker's configuration. IPv4, IPv6 alone and
both together; a wrong interface, network or address family is an error that says what there is.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import tiny_job  # noqa: E402
from host_cluster import HostCluster  # noqa: E402
from host_network import CONTROL, JOBS, host_network  # noqa: E402

BIN = HostCluster.BIN
STEPS = 12


def spread(name, nodes, steps=STEPS, **spec):
    """One rank on each of `nodes` hosts; the global batch is the same for any number."""
    job = tiny_job(name=name, ranks=1, steps=steps, train={"globalBatch": 6, "microBatch": 2}, **spec)
    job["spec"]["resources"].update({"nodes": nodes, "devicesPerNode": 1, "anyNode": False})
    return job


class NetworkTest(unittest.TestCase):
    def run_across(self, cluster, name="across", nodes=3):
        """A job with a rank on each host; returns its losses by step."""
        cluster.wait_workers(nodes)
        job = cluster.submit(spread(name, nodes))
        cluster.wait_state(job, "SUCCEEDED")
        losses = cluster.losses(job)
        self.assertEqual(sorted(losses), list(range(1, STEPS + 1)))
        return losses

    def test_three_hosts_use_the_job_network_and_train_as_one_does(self):
        with host_network(3) as network, HostCluster(network) as cluster:
            for host in network.hosts:
                cluster.start_worker(host, "--job-network=10.77.2.0/24")
            cluster.wait_workers(3)
            job = cluster.submit(spread("three", 3, steps=4000))
            cluster.wait_step(job, 20)
            for host in network.hosts:
                own = host.address(JOBS)
                peers = {peer for local, peer in host.connections() if local == own}
                self.assertEqual(peers, {other.address(JOBS) for other in network.hosts if other is not host})
                ((_, pid),) = [(rank, pid) for rank, pid in cluster.ranks(job).items()
                               if cluster.host_of(job, rank) == host.name]
                environment = pathlib.Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")
                for entry in ("NCCL_SOCKET_IFNAME==eth1", "NCCL_SOCKET_FAMILY=AF_INET", "GLOO_SOCKET_IFNAME=eth1"):
                    self.assertIn(entry, environment)
            cluster.ctl("cancel", job)
            cluster.wait_state(job, "CANCELLED")
            three = self.run_across(cluster)
            one = self.run_across(cluster, "alone", nodes=1)
            for step, loss in one.items():
                self.assertAlmostEqual(three[step], loss, delta=2e-5 * loss, msg=f"step {step}")

    def test_ipv6_alone(self):
        with host_network(3, families=(6,)) as network, HostCluster(network) as cluster:
            self.assertRegex(cluster.server, r"^\[fd77:1::1\]:\d+$")
            for host in network.hosts:
                cluster.start_worker(host, "--interface=eth1")
            self.run_across(cluster)
            workers = cluster.json("workers")
            self.assertEqual({worker["rankAddress"] for worker in workers},
                             {host.address(JOBS) for host in network.hosts})
            report = json.loads(cluster.ctl("doctor", "--only=cluster", "-o", "json").stdout)
            self.assertEqual((report["faults"], report["warnings"]), (0, 0), report)
            (ranks,) = [finding for finding in report["findings"] if finding["check"] == "rank-addresses"]
            self.assertEqual(ranks["measured"], "0 IPv4, 3 IPv6, 0 loopback")
            scraped = [finding["measured"] for finding in report["findings"] if finding["check"] == "metrics"]
            self.assertEqual(len(scraped), 4)
            for address in scraped:
                self.assertRegex(address, r"^\[fd77:1::\d\]:\d+$")
                page = network.hosts[1].run("curl", "-sS", "--max-time", "10", f"http://{address}/metrics").stdout
                self.assertIn("fsdp_build_info", page)

    def test_both_families_and_workers_that_dial_over_either(self):
        with host_network(3, families=(4, 6)) as network, HostCluster(network, every_address=True) as cluster:
            families = (4, 6, 6)
            for host, family in zip(network.hosts, families):
                cluster.start_worker(host, "--job-network=fd77:2::/64", family=family)
            self.run_across(cluster)
            for host, family in zip(network.hosts[1:], families[1:]):
                self.assertIn((host.address(CONTROL, family), network.hosts[0].address(CONTROL, family)),
                              host.connections())

    def test_mutual_tls_between_hosts(self):
        with host_network(3, families=(4, 6)) as network, tempfile.TemporaryDirectory() as folder:
            def ca(*words):
                subprocess.run([str(BIN / "fsdpctl"), "ca", *words, "--dir", folder], check=True, capture_output=True)

            def pair(name):
                return (f"--tls-certificate={folder}/{name}.crt", f"--tls-key={folder}/{name}.key")

            first = network.hosts[0]
            ca("init")
            ca("issue", "server", "coordinator", "--host", first.address(CONTROL, 4), "--host", first.address(CONTROL, 6))
            ca("issue", "worker", "host*")
            ca("issue", "user", "alice")
            trust = f"--tls-ca={folder}/ca.crt"
            with HostCluster(network, every_address=True, client_flags=(trust, *pair("alice")),
                             coordinator_flags=(f"--tls-client-ca={folder}/ca.crt", *pair("coordinator"))) as cluster:
                for host, family in zip(network.hosts, (4, 6, 4)):
                    cluster.start_worker(host, "--job-network=10.77.2.0/24", trust, *pair("hostany"), family=family)
                self.run_across(cluster)
                report = json.loads(cluster.ctl("doctor", "--only=cluster", "-o", "json").stdout)
                self.assertEqual(report["faults"], 0, report)
                shown = {finding["subject"]: finding for finding in report["findings"] if finding["scope"] == "tls"}
                self.assertEqual({"own", "coordinator"} - set(shown), set(), report)
                self.assertIn("fsdp://user/alice", shown["own"]["measured"])
                # Without a certificate of this authority nobody is let in, from whatever host.
                refused = network.hosts[1].run(BIN / "fsdpctl", "workers", "--server", cluster.server, trust,
                                               "--call-timeout=5s", check=False, env={**os.environ, "HOME": folder})
                self.assertIn(refused.returncode, (4, 5), refused.stderr)

    def test_hosts_of_one_job_must_share_a_family(self):
        with host_network(2, families=(4, 6)) as network, HostCluster(network) as cluster:
            cluster.start_worker(network.hosts[0], "--job-network=10.77.2.0/24")
            cluster.start_worker(network.hosts[1], "--job-network=fd77:2::/64")
            cluster.wait_workers(2)
            job = cluster.submit(spread("mixed", 2))
            cluster.wait_state(job, "FAILED")
            text = cluster.ctl("describe", job).stdout
            self.assertIn("one is IPv4 and the other IPv6; start both with --job-network of one", text)

    def test_loopback_serves_one_host_only_and_says_so(self):
        with host_network(2) as network, HostCluster(network) as cluster:
            for host in network.hosts:
                cluster.start_worker(host)
            cluster.wait_workers(2)
            job = cluster.submit(spread("apart", 2))
            cluster.wait_state(job, "FAILED")
            text = cluster.ctl("describe", job).stdout
            self.assertRegex(text, r"keeps its ranks to loopback \(127\.0\.0\.1\)")
            self.assertIn("--job-network, --interface or --bind-address", text)
            report = json.loads(cluster.ctl("doctor", "--only=cluster", "-o", "json").stdout)
            (found,) = [finding for finding in report["findings"] if finding["check"] == "rank-addresses"]
            self.assertEqual(found["level"], "warning", found)

    def test_a_wrong_interface_ends_the_worker_and_names_those_there_are(self):
        with host_network(1, families=(4, 6)) as network:
            host = network.hosts[0]
            # An address that routers announce, on a loopback unlike any other host's.
            host.run("ip", "address", "add", "10.99.0.1/32", "dev", "lo")
            host.run("ip", "link", "set", "eth0", "down")

            def refused(*flags):
                done = host.run(HostCluster.BIN / "fsdp-worker", "--state-dir=/nonexistent/fsdp", "--devices=cpu",
                                *flags, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                return done.stderr

            text = refused("--interface=ib0")
            self.assertIn("--interface=ib0: this host has no such interface", text)
            for shown in ("lo (127.0.0.1, 10.99.0.1, ::1)", "eth0 (down, 10.77.1.1", "eth1 (10.77.2.1, fd77:2::1"):
                self.assertIn(shown, text)
            self.assertIn("--interface=eth0: the interface is down", refused("--interface=eth0"))
            self.assertIn("no address of this host fits", refused("--job-network=10.77.9.0/24"))
            self.assertIn("is not an address of this host", refused("--bind-address=10.77.2.9"))
            self.assertIn("write 10.77.2.0/24", refused("--job-network=10.77.2.1/24"))
            # A port without brackets could be part of the address.
            self.assertIn("an IPv6 address needs brackets: [fd77:2::1]:7070", refused("--coordinator=fd77:2::1:7070"))

    def test_a_host_whose_loopback_has_no_ipv4_still_trains(self):
        with host_network(1, families=(6,)) as network, HostCluster(network) as cluster:
            host = network.hosts[0]
            # The network 127/8 stays, for metrics endpoints; the address that is asked for goes.
            host.run("ip", "address", "delete", "127.0.0.1/8", "dev", "lo")
            host.run("ip", "address", "add", "127.0.0.2/8", "dev", "lo")
            cluster.start_worker(host, devices="cpu:2")
            cluster.wait_workers(2)
            job = cluster.submit(tiny_job(name="six", ranks=2, steps=STEPS))
            cluster.wait_state(job, "SUCCEEDED")
            self.assertEqual({worker["rankAddress"] for worker in cluster.json("workers")}, {"::1"})
            log = (cluster.root / "worker-host0.log").read_text(encoding="utf-8")
            self.assertTrue(re.search(r"ranks at ::1 of lo", log), log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
