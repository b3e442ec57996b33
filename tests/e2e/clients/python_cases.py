"""The installed Python client against a real coordinator and real workers; run by python_test.py."""

import asyncio
import pathlib
import sys
import tempfile
import threading
import unittest

import fsdp
import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from cluster import SOURCE, Cluster, tiny_job  # noqa: E402
from secure_cluster import SecureCluster  # noqa: E402


def slow_job(steps, **more):
    """Some seconds long: there is time to lose a coordinator meanwhile."""
    return tiny_job(steps=steps, model={"dim": 64}, data={"sequenceLength": 128}, **more)


class PythonClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(workers=2).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)

    def setUp(self):
        self.client = fsdp.Client(self.cluster.server)
        self.addCleanup(self.client.close)

    def test_it_is_the_installed_one(self):
        self.assertIn("site-packages", fsdp.__file__)

    def test_a_job_from_submit_to_result(self):
        job = self.client.submit(SOURCE / "deploy/examples/tiny.yaml")
        self.assertTrue(job.name.startswith("jobs/tiny-"))
        states = [fsdp.state_name(now.state) for now in self.client.watch(job, timeout=120)]
        self.assertEqual(states[-1], "SUCCEEDED")
        self.assertEqual([step.step for step in self.client.metrics(job)], list(range(1, 21)))
        self.assertTrue(all(entry.rank == 1 for entry in self.client.logs(job, rank=1)))
        self.assertTrue(any(self.client.logs(job)))
        kinds = [event.sequence for event in self.client.events(job)]
        self.assertEqual(kinds, sorted(set(kinds)))
        self.assertIn(job.name, [one.name for one in self.client.list(states=["SUCCEEDED"])])
        self.assertEqual(self.client.list(states=["succeeded"], limit=1)[0].state, self.client.get(job).state)
        self.client.delete(job)
        with self.assertRaises(fsdp.NotFoundError) as raised:
            self.client.get(job)
        self.assertEqual(raised.exception.reason, "JOB_NOT_FOUND")
        self.assertEqual(raised.exception.code, grpc.StatusCode.NOT_FOUND)
        self.assertEqual(raised.exception.metadata["job"], job.name.removeprefix("jobs/"))

    def test_the_same_request_makes_one_job(self):
        first = self.client.submit(tiny_job("once", steps=2), request_id="abc-1")
        self.assertEqual(self.client.submit(tiny_job("once", steps=2), request_id="abc-1").name, first.name)
        with self.assertRaises(fsdp.AlreadyExistsError):
            self.client.submit(tiny_job("once", steps=3), request_id="abc-1")
        self.client.wait(first, timeout=120)

    def test_bad_fields_are_violations(self):
        job = tiny_job("bad")
        job["spec"]["model"]["numHeads"] = 7
        job["spec"]["train"]["globalBatch"] = -1
        with self.assertRaises(fsdp.InvalidArgumentError) as raised:
            self.client.submit(job)
        fields = {violation.field for violation in raised.exception.violations}
        self.assertLessEqual({"spec.model.numHeads", "spec.train.globalBatch"}, fields)
        self.assertIn("spec.model.numHeads", str(raised.exception))

    def test_plan_and_validate_store_nothing(self):
        before = len(self.client.list())
        self.assertGreater(self.client.plan(tiny_job()).total_bytes, 0)
        self.assertEqual(self.client.validate(tiny_job()).job.spec.metadata.name, "tiny")
        self.assertEqual(len(self.client.list()), before)

    def test_suspend_resume_restart_cancel(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.client.submit(slow_job(100000, checkpoint=folder))
            self.until(job, "RUNNING", step=1)
            self.client.suspend(job, "for a test")
            self.until(job, "SUSPENDED")
            with self.assertRaises(fsdp.FailedPreconditionError):
                self.client.suspend(job)
            self.assertTrue(self.client.checkpoints(job))
            self.client.resume(job)
            self.until(job, "RUNNING")
            self.client.restart(job, "again")
            self.client.cancel(job, "enough")
            self.assertEqual(fsdp.state_name(self.client.wait(job, timeout=120).state), "CANCELLED")

    def until(self, job, state, step=0):
        for now in self.client.watch(job, timeout=120):
            if fsdp.state_name(now.state) == state and now.progress.step >= step:
                return
        self.fail(f"the job ended before it was {state}")

    def test_workers_and_drain(self):
        worker = self.client.workers()[0]
        self.assertTrue(self.client.drain(worker.name).cordoned)
        self.assertFalse(self.client.uncordon(worker.name.removeprefix("workers/")).cordoned)
        self.assertEqual(self.client.cluster().version, "0.1.0")
        with self.assertRaises(fsdp.NotFoundError):
            self.client.drain("nobody")

    def test_queues_and_maintenance(self):
        self.addCleanup(self.client.set_maintenance, "OFF")
        self.client.set_maintenance("HOLD")
        job = self.client.submit(tiny_job("held", ranks=1, steps=2, queue="nightly"))
        queue = self.client.queue("nightly")
        self.assertEqual((queue.name, queue.configured), ("queues/nightly", False))
        self.assertIn("queues/nightly", [one.name for one in self.client.queues()])
        with self.assertRaises(fsdp.NotFoundError):
            self.client.queue("nobody")
        held = self.client.set_maintenance("closed", "a new switch")
        self.assertEqual((held.reason, held), ("a new switch", self.client.maintenance()))
        with self.assertRaises(fsdp.FailedPreconditionError) as raised:
            self.client.submit(tiny_job("late"))
        self.assertEqual(raised.exception.reason, "MAINTENANCE")
        with self.assertRaisesRegex(ValueError, "'shut' is no mode of maintenance; use OFF, HOLD, CLOSED"):
            self.client.set_maintenance("shut")

        async def drive():
            async with fsdp.AsyncClient(self.cluster.server) as client:
                return (await client.maintenance(), await client.queues(), await client.queue("nightly"),
                        await client.set_maintenance("OFF"))

        before, queues, nightly, after = asyncio.run(drive())
        self.assertEqual(before, held)
        self.assertFalse(after.HasField("start_time"))
        self.assertIn(nightly.name, [one.name for one in queues])
        self.client.wait(job, timeout=120)

    def test_a_time_limit_ends_a_watch(self):
        job = self.client.submit(slow_job(100000))
        with self.assertRaises(fsdp.DeadlineExceededError):
            self.client.wait(job, timeout=1)
        self.client.cancel(job)
        self.client.wait(job, timeout=120)

    def test_streams_outlive_the_coordinator(self):
        job = self.client.submit(slow_job(400))
        lost = []
        follower = fsdp.Client(self.cluster.server, on_reconnect=lost.append)
        self.addCleanup(follower.close)
        steps, states = [], []
        watcher = threading.Thread(target=lambda: states.extend(
            now.state for now in follower.watch(job, timeout=240)))
        watcher.start()
        for metrics in follower.metrics(job, follow=True, timeout=240):
            steps.append(metrics.step)
            if metrics.step == 20:
                self.cluster.kill("coordinator")
                self.cluster.start_coordinator()
        watcher.join()
        # Nothing twice, nothing missing.
        self.assertEqual(steps, list(range(1, 401)))
        self.assertEqual(fsdp.state_name(states[-1]), "SUCCEEDED")
        self.assertTrue(lost)
        self.assertTrue(all(isinstance(error, fsdp.UnavailableError) for error in lost))

    def test_nobody_there(self):
        with fsdp.Client("127.0.0.1:1", retry_window=0.3, call_timeout=2) as client:
            with self.assertRaisesRegex(fsdp.UnavailableError, "127.0.0.1:1"):
                client.get("x")
            with self.assertRaises(fsdp.UnavailableError):
                next(client.watch("x"))

    def test_close_ends_a_stream(self):
        job = self.client.submit(slow_job(100000))
        other = fsdp.Client(self.cluster.server)
        with self.assertRaisesRegex(fsdp.FsdpError, "closed"):
            for _ in other.metrics(job, follow=True):
                other.close()
        self.client.cancel(job)
        self.client.wait(job, timeout=120)

    def test_asyncio(self):
        async def drive():
            async with fsdp.AsyncClient(self.cluster.server) as client:
                jobs = [await client.submit(tiny_job(f"async-{i}", ranks=1, steps=5)) for i in range(2)]

                async def follow(job):
                    return [step.step async for step in client.metrics(job, follow=True, timeout=120)]

                steps = await asyncio.gather(*map(follow, jobs))
                ends = await asyncio.gather(*(client.wait(job, timeout=120) for job in jobs))
                with self.assertRaises(fsdp.NotFoundError):
                    await client.get("nobody")
                with self.assertRaises(fsdp.FailedPreconditionError):
                    await client.cancel(jobs[0])
                listed = await client.list(limit=1)
                return steps, ends, listed

        steps, ends, listed = asyncio.run(drive())
        self.assertEqual(steps, [[1, 2, 3, 4, 5]] * 2)
        self.assertEqual([fsdp.state_name(job.state) for job in ends], ["SUCCEEDED"] * 2)
        self.assertEqual(len(listed), 1)

    def test_asyncio_streams_outlive_the_coordinator(self):
        async def drive():
            async with fsdp.AsyncClient(self.cluster.server) as client:
                job = await client.submit(slow_job(300))
                steps = []
                async for metrics in client.metrics(job, follow=True, timeout=240):
                    steps.append(metrics.step)
                    if metrics.step == 20:
                        self.cluster.kill("coordinator")
                        await asyncio.to_thread(self.cluster.start_coordinator)
                return steps

        self.assertEqual(asyncio.run(drive()), list(range(1, 301)))


class SecureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="fsdp-secure-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.cluster = SecureCluster(cls.folder, workers=1).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)

    def options(self, **more):
        return {"tls_ca": str(self.cluster.authority), "retry_window": 0.5, **more}

    def test_tls_and_a_token(self):
        options = fsdp.ClientOptions.from_environment(self.cluster.environment)
        with fsdp.Client(options=options) as client:
            job = client.submit(tiny_job("secure", ranks=1, steps=3))
            self.assertEqual(job.owner, "alice")
            self.assertEqual(fsdp.state_name(client.wait(job, timeout=120).state), "SUCCEEDED")
            with self.assertRaises(fsdp.PermissionDeniedError):
                client.drain(client.workers()[0].name)

        async def again():
            async with fsdp.AsyncClient(options=options) as client:
                return await client.get(job)

        self.assertEqual(asyncio.run(again()).owner, "alice")

    def test_who_is_not_known_is_told_so(self):
        wrong = self.folder / "wrong"
        wrong.write_text("fsdp_nonsense\n", encoding="ascii")
        for options in (self.options(), self.options(token_file=str(wrong))):
            with fsdp.Client(self.cluster.server, **options) as client:
                with self.assertRaises(fsdp.UnauthenticatedError) as raised:
                    client.list()
                self.assertNotIn("nonsense", str(raised.exception))

    def test_an_authority_that_is_not_trusted_is_no_coordinator(self):
        for options in ({"tls": True, "retry_window": 0.5}, {"retry_window": 0.5}):
            with fsdp.Client(self.cluster.server, **options) as client:
                with self.assertRaises(fsdp.UnavailableError):
                    client.list()


if __name__ == "__main__":
    unittest.main()
