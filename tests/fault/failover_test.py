"""Three etcd members and two coordinators, any one of each killed: jobs go on, nothing acknowledged is lost.

The short slice. FSDP_FAILOVER_ROUNDS=N kills at random for N rounds more (tests/run_long failover); the seed is printed.
"""

import collections
import os
import pathlib
import random
import sys
import threading
import time
import unittest
import urllib.request
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import tiny_job, wait_for  # noqa: E402
from etcd_cluster import HaCluster  # noqa: E402

# A step of some 20 ms, and far more of them than the test takes.
BATCH = {"globalBatch": 64, "microBatch": 4}
ENDLESS = 1_000_000
ROUNDS = int(os.environ.get("FSDP_FAILOVER_ROUNDS", "0"))


class Submitter:
    """Submits tiny jobs that wait for ever, one after the other, each with its own request id; a call that fails is
    repeated with the same id, as a user would."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.accepted = {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.stopping.set()
        self.thread.join()

    def run(self):
        while not self.stopping.is_set():
            request = str(uuid.uuid4())
            # More devices than there are: it stays in the queue.
            job = tiny_job(name="waits", ranks=64)
            while not self.stopping.is_set():
                try:
                    self.accepted[request] = self.cluster.submit(job, "--request-id", request)
                    break
                except AssertionError:
                    time.sleep(0.1)
            self.stopping.wait(0.2)


class FailoverTest(unittest.TestCase):
    def goes_on(self, cluster, name, what):
        """The job has made new steps, with the ranks that it had."""
        before = int(cluster.job(name).get("progress", {}).get("step", 0))
        cluster.wait_step(name, before + 5)
        job = cluster.job(name)
        self.assertEqual(int(job["epoch"]), 1, f"{what}: the ranks were started again")

    def kill_leader(self, cluster, took):
        leader = cluster.leader()
        killed = time.time()
        cluster.kill(f"coordinator{leader}")
        other = cluster.wait_leader()
        self.assertNotEqual(other, leader)
        took.append(cluster.time_to_lead(other, killed))

    def check_nothing_lost(self, cluster, name, accepted):
        listed = cluster.json("list")
        names = collections.Counter(job["name"].removeprefix("jobs/") for job in listed)
        self.assertTrue(accepted)
        for request, job in accepted.items():
            self.assertEqual(names[job.removeprefix("jobs/")], 1, f"{job} of request {request}")
        requests = collections.Counter(job.get("requestId") for job in listed)
        self.assertEqual([r for r in accepted if requests[r] != 1], [], "one job for each request id")
        steps = [int(row["step"]) for row in cluster.metrics(name)]
        self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "each step once, in order")
        self.assertEqual(steps[0], 1)
        job = cluster.job(name)
        self.assertEqual(len(job["attempts"]), 1)
        self.assertNotIn("rootCause", job)

    def test_any_one_of_each_may_die(self):
        took = []
        with HaCluster() as cluster:
            name = cluster.submit(tiny_job(name="steady", steps=ENDLESS, train=BATCH))
            cluster.wait_step(name, 1)
            with Submitter(cluster) as submitter:
                self.kill_leader(cluster, took)
                self.goes_on(cluster, name, "the leading coordinator was killed")
                cluster.revive()
                standby = 1 - cluster.wait_leader()
                cluster.kill(f"coordinator{standby}")
                self.goes_on(cluster, name, "the coordinator that stood by was killed")
                cluster.revive()
                for member in range(3):
                    cluster.etcd.kill(member)
                    cluster.wait_leader()
                    self.goes_on(cluster, name, f"etcd member {member} was killed")
                    cluster.revive()
                self.random_rounds(cluster, name, took)
            self.check_nothing_lost(cluster, name, submitter.accepted)
            cluster.ctl("cancel", name)
            cluster.wait_state(name, "CANCELLED")
            done = cluster.submit(tiny_job(name="last", steps=3))
            cluster.wait_state(done, "SUCCEEDED")
            print(f"{len(submitter.accepted)} submits; a standby served after "
                  + ", ".join(f"{seconds:.1f} s" for seconds in took), file=sys.stderr)

    def random_rounds(self, cluster, name, took):
        seed = int(os.environ.get("FSDP_SEED", random.SystemRandom().randrange(1 << 30)))
        chooser = random.Random(seed)
        if ROUNDS:
            print(f"seed {seed}", file=sys.stderr)
        for number in range(ROUNDS):
            victim = chooser.choice(["leader", "standby", 0, 1, 2])
            if victim == "leader":
                self.kill_leader(cluster, took)
            elif victim == "standby":
                cluster.kill(f"coordinator{1 - cluster.wait_leader()}")
            else:
                cluster.etcd.kill(victim)
            cluster.wait_leader()
            self.goes_on(cluster, name, f"round {number} of seed {seed}: {victim}")
            cluster.revive()
            # As when there were two again: a member of etcd that came back catches up first.
            wait_for(lambda: all(cluster.alive(index) for index in range(2)), "both coordinators run")


class StandbyTest(unittest.TestCase):
    def test_a_standby_says_who_leads_and_takes_over_from_one_that_is_stopped(self):
        with HaCluster(workers=1, members=1) as cluster:
            leader = cluster.wait_leader()
            done = cluster.ask(1 - leader, "get", "x")
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn(f"the one at {cluster.addresses[leader]} leads", done.stderr)
            self.assertIn("NOT_LEADER", done.stderr)
            metrics = cluster._port_file(f"coordinator{1 - leader}")["metrics"]
            self.assertIn("fsdp_coordinator_leader 0", scrape(metrics))
            job = cluster.submit(tiny_job(name="kept", ranks=8))
            # SIGTERM gives the lease back: the other one leads at once.
            cluster.processes[f"coordinator{leader}"].terminate()
            self.assertEqual(cluster.processes[f"coordinator{leader}"].wait(timeout=30), 0)
            self.assertEqual(cluster.wait_leader(), 1 - leader)
            self.assertEqual(cluster.state(job), "QUEUED")
            self.assertIn("fsdp_coordinator_leader 1", scrape(metrics))

    def test_a_leader_without_etcd_ends_itself(self):
        with HaCluster(workers=1, members=1) as cluster:
            leader = cluster.wait_leader()
            cluster.etcd.kill(0)
            process = cluster.processes[f"coordinator{leader}"]
            self.assertEqual(process.wait(timeout=60), 1)
            self.assertTrue(cluster.alive(1 - leader), "it waits for etcd")
            log = (cluster.root / f"coordinator{leader}.log").read_text()
            self.assertIn("no longer leads: its lease of 3s may be over", log)
            cluster.revive()
            cluster.wait_leader()
            cluster.wait_workers(1)


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    unittest.main(verbosity=2)
