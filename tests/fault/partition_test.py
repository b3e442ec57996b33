"""Partitions between hosts: packets dropped by nft between network namespaces, both ways and one way.

Connections do not close: nobody gets a FIN or RST, as when a switch dies. Every case ends with the losses of the same job
left in peace, so no step was lost, repeated or applied twice.
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import tiny_job, wait_for  # noqa: E402
from host_cluster import HostCluster  # noqa: E402
from host_network import host_network  # noqa: E402

STEPS = 3000
LOST_AFTER = 4
LIMITS = ("--suspect-after=2s", f"--lost-after={LOST_AFTER}s")


def alive(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        return stat.rsplit(")", 1)[1].split()[0] != "Z"
    return False


def spread(name, nodes, folder, **limits):
    job = tiny_job(name=name, ranks=1, steps=STEPS, checkpoint=folder, limits=limits)
    job["spec"]["checkpoint"]["everySteps"] = 100
    job["spec"]["resources"].update({"nodes": nodes, "devicesPerNode": 1, "anyNode": False})
    return job


class PartitionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """What the disturbed runs must equal; the losses are those of any number of ranks, but for rounding."""
        with host_network(1) as network, HostCluster(network) as cluster, tempfile.TemporaryDirectory() as folder:
            cluster.start_worker(network.hosts[0])
            cluster.wait_workers(1)
            name = cluster.submit(spread("calm", 1, folder))
            cluster.wait_state(name, "SUCCEEDED")
            cls.calm = cluster.losses(name)
        assert sorted(cls.calm) == list(range(1, STEPS + 1))

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = stack.enter_context(tempfile.TemporaryDirectory())
        # The coordinator, two hosts for the job, one to spare.
        self.network = stack.enter_context(host_network(4))
        self.cluster = stack.enter_context(HostCluster(self.network, coordinator_flags=LIMITS))
        self.coordinator, *self.workers = self.network.hosts
        for host in self.workers:
            self.cluster.start_worker(host, "--job-network=10.77.2.0/24")
        self.cluster.wait_workers(3)

    def start(self, name, nodes=2, **limits):
        """Submits, waits for a checkpoint; returns the job, its hosts in rank order, its trainers' pids."""
        job = self.cluster.submit(spread(name, nodes, self.folder, **limits))
        pids = self.cluster.wait_ranks(job, nodes)
        self.cluster.wait_checkpoint(self.folder, 100)
        names = [self.cluster.host_of(job, rank) for rank in range(nodes)]
        return job, [next(host for host in self.workers if host.name == name) for name in names], pids

    def check_recovered(self, job, cause):
        self.cluster.wait_state(job, "SUCCEEDED", timeout=240)
        record = self.cluster.job(job)
        self.assertIn(cause, record["attempts"][0]["cause"])
        self.assertEqual(int(record["restarts"].get("user", 0)), 0, "nobody's fault but the network's")
        losses = self.cluster.losses(job)
        self.assertEqual(sorted(losses), list(range(1, STEPS + 1)))
        for step, loss in self.calm.items():
            self.assertAlmostEqual(losses[step], loss, delta=1e-3 * loss, msg=f"step {step}")
        return record

    def states(self):
        return {worker["host"]: worker["state"].removeprefix("WORKER_STATE_")
                for worker in self.cluster.json("workers")}

    def test_a_host_that_is_cut_off_is_lost_and_comes_back(self):
        job, hosts, pids = self.start("cut")
        for other in (self.coordinator, *(host for host in self.workers if host is not hosts[1])):
            self.network.cut(hosts[1], other)
        wait_for(lambda: self.states()[hosts[1].name] == "LOST", "the host to be LOST", 60)
        # The job goes on without it, on the spare host, while the host is still cut off.
        record = self.check_recovered(job, "WORKER_LOST")
        self.assertEqual(self.states()[hosts[1].name], "LOST")
        self.assertEqual(int(record["epoch"]), 2)
        self.assertIn(f"worker-{hosts[1].name}", self.cluster.processes)
        self.network.heal()
        wait_for(lambda: self.states()[hosts[1].name] == "READY", "the host to be back", 60)
        # Its old rank, of a dead epoch, is gone by then.
        wait_for(lambda: not any(alive(pid) for pid in pids.values()), "the old ranks to be gone", 30)
        self.assertEqual(int(self.cluster.job(job)["epoch"]), 2, "nothing that it said later counted")

    def one_way(self, to_host):
        """Only what the coordinator sends is lost, or only what the host sends."""
        job, hosts, _ = self.start("oneway")
        if to_host:
            self.network.cut(hosts[1], self.coordinator, both_ways=False)
        else:
            self.network.cut(self.coordinator, hosts[1], both_ways=False)
        wait_for(lambda: self.states()[hosts[1].name] == "LOST", "the host to be LOST", 90)
        self.check_recovered(job, "WORKER_LOST")
        self.network.heal()
        wait_for(lambda: self.states()[hosts[1].name] == "READY", "the host to be back", 90)

    def test_a_host_that_hears_nothing_from_the_coordinator(self):
        self.one_way(to_host=True)

    def test_a_host_whose_words_do_not_reach_the_coordinator(self):
        self.one_way(to_host=False)

    def test_ranks_that_cannot_reach_each_other_are_a_hang_and_recover(self):
        job, hosts, _ = self.start("apart", hangTimeoutSeconds=6)
        self.network.cut(hosts[0], hosts[1])
        # The coordinator reaches both, so nobody is lost: it is the collective that stands.
        wait_for(lambda: int(self.cluster.job(job)["epoch"]) > 1
                 or self.cluster.state(job) in ("RECOVERING", "QUEUED"), "the epoch to end", 120)
        self.assertNotIn("LOST", self.states().values())
        self.network.heal()
        self.check_recovered(job, "HANG")

    def test_a_rank_that_is_cut_off_for_good_stops_by_its_own_rule(self):
        seconds = 6
        job, (host,), pids = self.start("orphan", nodes=1, stopAfterDisconnectSeconds=seconds)
        cut = time.monotonic()
        self.network.cut(host, self.coordinator)
        wait_for(lambda: not alive(pids[0]), "the cut-off rank to stop", 90, 0.05)
        # Its link has to be found dead first; then the rule's seconds. Never before them.
        self.assertGreater(time.monotonic() - cut, seconds)
        self.assertIsNone(self.cluster.processes[f"worker-{host.name}"].poll(), "the daemon lives")
        self.check_recovered(job, "WORKER_LOST")
        os.kill(self.cluster.processes[f"worker-{host.name}"].pid, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
