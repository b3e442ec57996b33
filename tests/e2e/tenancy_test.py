"""Queues, preemption, arrays, maintenance, run time and time to live, with real daemons on the CPU."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.cluster import Cluster, tiny_job, wait_for  # noqa: E402

QUEUES = """\
apiVersion: fsdp.v1
kind: QueueConfig
queues:
  - name: prod
    devices: [{device: cpu, quota: 2}]
  - name: batch
    devices: [{device: cpu, quota: 1, max: 4}]
    preemption: {graceSeconds: 60}
"""


class TenancyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fsdp-tenancy-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, workers, queues=None):
        flags = []
        if queues is not None:
            (self.folder / "queues.yaml").write_text(queues)
            flags = [f"--queues={self.folder / 'queues.yaml'}"]
        cluster = Cluster(workers=workers, coordinator_flags=flags)
        cluster.__enter__()
        self.addCleanup(lambda: cluster.__exit__(None, None, None))
        return cluster

    def test_borrowed_devices_are_taken_back_and_the_borrower_goes_on_bit_for_bit(self):
        cluster = self.start(3, QUEUES)
        steps = 400
        reference = cluster.submit(tiny_job("alone", ranks=3, steps=steps, queue="batch",
                                            checkpoint=self.folder / "alone"))
        cluster.wait_state(reference, "SUCCEEDED")
        borrower = cluster.submit(tiny_job("borrower", ranks=3, steps=steps, queue="batch",
                                           checkpoint=self.folder / "borrower"))
        cluster.wait_step(borrower, 8)
        queue = cluster.json("queues", "batch")
        self.assertEqual(queue["usage"][0]["borrowed"], 2)
        owner = cluster.submit(tiny_job("owner", ranks=2, steps=30, queue="prod"))
        wait_for(lambda: cluster.job(borrower).get("restarts", {}).get("preemptions"), "the preemption")
        page = cluster.ctl("describe", borrower).stdout
        self.assertIn("Queue:        batch: CPU", page)
        cluster.wait_state(owner, "SUCCEEDED")
        cluster.wait_state(borrower, "SUCCEEDED")
        job = cluster.job(borrower)
        self.assertEqual(job["restarts"].get("infrastructure", 0), 0)
        self.assertEqual(job["restarts"]["preemptions"], 1)
        self.assertEqual(job["attempts"][0]["cause"].removeprefix("FAILURE_CAUSE_"), "PREEMPTED")
        # It saved the step that it was at, and no other was trained twice.
        saved = int(job["attempts"][0]["lastStep"])
        self.assertEqual(int(job["attempts"][1]["firstStep"]), saved + 1)
        alone, shared = cluster.losses(reference), cluster.losses(borrower)
        self.assertEqual(sorted(shared), list(range(1, steps + 1)))
        self.assertEqual(alone, shared)
        kinds = [event["type"] for event in cluster.events(borrower)]
        self.assertIn("PREEMPTED", kinds)
        self.assertNotIn("STOP_OVERDUE", kinds)

    def test_an_unknown_queue_is_refused_with_those_there_are(self):
        cluster = self.start(1, QUEUES)
        refused = cluster.ctl("submit", "-f", "-", check=False,
                              stdin=json.dumps(tiny_job(queue="bach", ranks=1)))
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("allowed: batch, prod; did you mean batch?", refused.stderr)

    def test_an_array_runs_two_at_a_time(self):
        cluster = self.start(4)
        document = tiny_job("sweep", ranks=1, steps=40)
        document["spec"]["array"] = {
            "count": 6, "maxParallel": 2, "set": ["train.seed={index}", "optimizer.lr={lr}"],
            "parameters": [{"name": "lr", "values": [1e-3, 1e-3, 5e-4, 5e-4, 1e-4, 1e-4]}]}
        array = cluster.submit(document)
        most = 0

        def finished():
            nonlocal most
            status = cluster.job(array).get("array", {})
            most = max(most, int(status.get("active", 0)))
            return cluster.state(array) == "SUCCEEDED"

        wait_for(finished, "the array to end", timeout=240)
        self.assertIn(most, (1, 2))
        tasks = cluster.json("list", "--array", array)
        self.assertEqual(len(tasks), 6)
        by_index = {int(task.get("arrayIndex", 0)): task for task in tasks}
        self.assertEqual(by_index[5]["spec"]["spec"]["env"]["FSDP_ARRAY_INDEX"], "5")
        self.assertEqual(by_index[4]["spec"]["spec"]["optimizer"]["lr"], 1e-4)
        losses = {float(task["result"]["trainLoss"]) for task in tasks}
        self.assertEqual(len(losses), 6, "each task has a seed of its own")
        # At no time did more than two hold devices.
        spans = []
        for task in tasks:
            attempt = task["attempts"][0]
            spans += [(attempt["startTime"], 1), (attempt["endTime"], -1)]
        running = peak = 0
        for _, change in sorted(spans):
            running += change
            peak = max(peak, running)
        self.assertLessEqual(peak, 2)
        listed = cluster.ctl("list").stdout
        self.assertEqual(listed.count("sweep-"), 1, listed)
        self.assertIn("6/6 done", listed)

    def test_maintenance_holds_and_lasts_over_a_kill_of_the_coordinator(self):
        cluster = self.start(1)
        cluster.ctl("maintenance", "on", "--reason", "new switches")
        job = cluster.submit(tiny_job(ranks=1, steps=5))
        wait_for(lambda: "maintenance (hold)" in cluster.job(job).get("reason", ""), "the reason")
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_workers(1)
        self.assertIn("new switches", cluster.ctl("maintenance", "status").stdout)
        self.assertEqual(cluster.state(job), "QUEUED")
        cluster.ctl("maintenance", "on", "--closed")
        refused = cluster.ctl("submit", "-f", "-", check=False,
                              stdin=json.dumps(tiny_job(ranks=1)))
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("no jobs are taken: maintenance (closed)", refused.stderr)
        cluster.ctl("maintenance", "off")
        cluster.wait_state(job, "SUCCEEDED")

    def test_run_time_ends_a_job_and_time_to_live_forgets_it(self):
        cluster = self.start(1)
        job = cluster.submit(tiny_job(ranks=1, steps=10_000_000, checkpoint=self.folder / "long",
                                      limits={"maxRunSeconds": 2, "ttlAfterFinishedSeconds": 3}))
        cluster.wait_state(job, "FAILED")
        self.assertIn("limits.maxRunSeconds = 2 is used up", cluster.job(job)["reason"])
        self.assertGreater(int(cluster.job(job)["checkpoint"]["step"]), 0)
        wait_for(lambda: cluster.ctl("get", job, check=False).returncode == 102, "the job to be forgotten",
                 timeout=60)
        self.assertTrue(list((self.folder / "long").glob("*/step-*/manifest.json")), "checkpoints stay")


if __name__ == "__main__":
    unittest.main()
