"""The Python client's decisions, without a server and without waiting."""

import pathlib
import tempfile
import unittest

import fsdp
import grpc
from fsdp import _calls, _retry
from fsdp.v1 import job_record_pb2, job_service_pb2


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class SpecTest(unittest.TestCase):
    def violations(self, source):
        with self.assertRaises(fsdp.InvalidArgumentError) as raised:
            fsdp.load_job(source)
        return dict(raised.exception.violations)

    def test_text_dict_and_message_are_the_same_job(self):
        text = "spec:\n  model: {family: llama, dim: 64}\n  optimizer: {lr: 1e-3}\n  data: {source: synthetic}\n"
        tree = {"spec": {"model": {"family": "LLAMA", "dim": 64}, "optimizer": {"lr": 0.001},
                         "data": {"source": "synthetic"}}}
        job = fsdp.load_job(text)
        self.assertEqual(job.spec.model.dim, 64)
        self.assertEqual(job.spec.optimizer.lr, 0.001)
        self.assertEqual(fsdp.load_job(tree), job)
        self.assertEqual(fsdp.load_job(job), job)
        self.assertIsNot(fsdp.load_job(job), job)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            self.assertEqual(fsdp.load_job(pathlib.Path(file.name)), job)

    def test_every_bad_field_is_named(self):
        found = self.violations({"sepc": {}, "spec": {
            "model": {"family": "lama", "dim": 1.5}, "data": [1], "priority": 2**40,
            "optimizer": {"lr": float("nan")}, "resources": {"anyNode": "yes"}}})
        self.assertIn("did you mean spec?", found["sepc"])
        self.assertIn("did you mean llama?", found["spec.model.family"])
        self.assertIn("whole number", found["spec.model.dim"])
        self.assertIn("must be an object", found["spec.data"])
        self.assertIn("out of range", found["spec.priority"])
        self.assertIn("finite", found["spec.optimizer.lr"])
        self.assertIn("true or false", found["spec.resources.anyNode"])

    def test_yaml_that_would_surprise(self):
        # YAML 1.1 reads these as a bool and as text.
        job = fsdp.load_job("metadata: {name: no}\nspec: {optimizer: {lr: 3e-4}, train: {seed: 010}}\n")
        self.assertEqual(job.metadata.name, "no")
        self.assertEqual(job.spec.optimizer.lr, 3e-4)
        self.assertEqual(job.spec.train.seed, 10)
        for text, part in (("a: 1\na: 2\n", "given twice"), ("a: [", "is not YAML"),
                           ("spec: {a: 1, a: 2}", "given twice"), ("[" * 100 + "]" * 100, "too deep")):
            with self.assertRaisesRegex(fsdp.InvalidArgumentError, part):
                fsdp.load_job(text)
        bomb = "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [" + ",".join(
            [f"*{chr(97 + i)}"] * 10) + "]\n" for i in range(8))
        with self.assertRaisesRegex(fsdp.InvalidArgumentError, "too large"):
            fsdp.load_job(bomb)


class OptionsTest(unittest.TestCase):
    def test_a_token_does_not_leave_the_machine_in_the_clear(self):
        with self.assertRaisesRegex(ValueError, "unencrypted"):
            fsdp.ClientOptions("host:1", token_file="/t")
        for options in ({"server": "127.0.0.1:1"}, {"server": "[::1]:1"}, {"server": "unix:/s"},
                        {"server": "host:1", "tls": True},
                        {"server": "host:1", "allow_plaintext_token": True}):
            fsdp.ClientOptions(token_file="/t", **options)

    def test_half_an_identity_is_refused(self):
        with self.assertRaisesRegex(ValueError, "together"):
            fsdp.ClientOptions(tls_key="k")
        with self.assertRaisesRegex(ValueError, "without TLS"):
            fsdp.ClientOptions(tls_server_name="x")

    def test_environment(self):
        options = fsdp.ClientOptions.from_environment(
            {"FSDPCTL_SERVER": "h:1", "FSDPCTL_TLS_CA": "/ca"}, call_timeout=3.0)
        self.assertEqual((options.server, options.tls_ca, options.call_timeout), ("h:1", "/ca", 3.0))
        system = fsdp.ClientOptions.from_environment({"FSDPCTL_TLS_CA": "system"})
        self.assertEqual((system.tls_ca, system.uses_tls), (None, True))
        token = {"FSDPCTL_SERVER": "h:1", "FSDPCTL_TOKEN_FILE": "/t"}
        with self.assertRaisesRegex(ValueError, "unencrypted"):
            fsdp.ClientOptions.from_environment(token)
        fsdp.ClientOptions.from_environment({**token, "FSDPCTL_ALLOW_PLAINTEXT_TOKEN": "1"})

    def test_the_token_is_read_at_each_call(self):
        with tempfile.NamedTemporaryFile("w") as file:
            options = fsdp.ClientOptions(token_file=file.name)
            with self.assertRaisesRegex(ValueError, "no token"):
                options.call_metadata()
            for token in ("one", "two"):
                pathlib.Path(file.name).write_text(token + "\n", encoding="ascii")
                self.assertEqual(options.call_metadata(), [("authorization", f"Bearer {token}")])


class RetryTest(unittest.TestCase):
    AWAY = fsdp.UnavailableError("away")

    def test_waits_grow_to_a_second(self):
        waits = [_retry.backoff(tries, lambda: 1.0) for tries in range(8)]
        self.assertEqual(waits, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])

    def test_a_call_is_repeated_within_its_window_only(self):
        clock = Clock()
        window = _retry.CallWindow(clock, call_timeout=10, retry_window=4)
        self.assertGreater(window.after(self.AWAY, True), 0)
        clock.now += 4
        with self.assertRaises(fsdp.UnavailableError):
            window.after(self.AWAY, True)
        self.assertEqual(window.remaining(), 6)

    def test_what_must_not_be_repeated_is_not(self):
        window = _retry.CallWindow(Clock(), 10, 4)
        for error, repeatable in ((self.AWAY, False), (fsdp.NotFoundError("x"), True),
                                  (fsdp.UnavailableError("x", reason="STORE_FAILED"), True)):
            with self.assertRaises(fsdp.FsdpError):
                window.after(error, repeatable)

    def test_a_stream_that_delivered_gets_its_whole_window_again(self):
        clock = Clock()
        window = _retry.StreamWindow(clock, retry_window=4, reconnect_window=60)
        for _ in range(3):
            window.delivered()
            window.after(self.AWAY, "h:1")
            clock.now += 59
        clock.now += 2
        with self.assertRaisesRegex(fsdp.UnavailableError, "did not come back within 60 s"):
            window.after(self.AWAY, "h:1")

    def test_a_stream_that_never_was_says_why(self):
        clock = Clock()
        window = _retry.StreamWindow(clock, retry_window=4, reconnect_window=60)
        clock.now += 5
        with self.assertRaisesRegex(fsdp.UnavailableError, "away"):
            window.after(self.AWAY, "h:1")


class CursorTest(unittest.TestCase):
    def test_metrics_go_on_behind_the_last(self):
        cursor = _calls.Metrics("a", True, 0)
        answer = job_service_pb2.StreamMetricsResponse(metrics=[
            job_record_pb2.StepMetrics(offset=offset, step=offset) for offset in (1, 2, 3)])
        self.assertEqual([one.step for one in cursor.take(answer)], [1, 2, 3])
        self.assertEqual(cursor.request.after_offset, 3)
        answer.metrics.add(offset=4, step=4)
        self.assertEqual([one.step for one in cursor.take(answer)], [4])

    def test_a_tail_is_where_logs_start_not_where_they_go_on(self):
        cursor = _calls.Logs("a", True, 1, 0, 10, 0)
        self.assertEqual((cursor.request.tail, cursor.request.rank), (10, 1))
        cursor.take(job_service_pb2.StreamLogsResponse())
        self.assertEqual(cursor.request.tail, 10)
        cursor.take(job_service_pb2.StreamLogsResponse(next_offset=8))
        self.assertEqual((cursor.request.tail, cursor.request.after_offset), (0, 7))

    def test_pages_end_at_the_limit(self):
        pages = _calls.list_jobs(["running"], "", {}, 3)
        self.assertEqual(pages.next_call().request.page_size, 3)
        self.assertTrue(pages.take(job_service_pb2.ListJobsResponse(
            jobs=[job_record_pb2.Job()] * 2, next_page_token="t")))
        self.assertEqual(pages.next_call().request.page_size, 1)
        self.assertEqual(pages.next_call().request.page_token, "t")
        self.assertFalse(pages.take(job_service_pb2.ListJobsResponse(
            jobs=[job_record_pb2.Job()], next_page_token="u")))
        self.assertEqual(len(pages.found), 3)

    def test_names_and_states(self):
        self.assertEqual(fsdp.job_name("a"), "jobs/a")
        self.assertEqual(fsdp.job_name(fsdp.Job(name="jobs/b")), "jobs/b")
        with self.assertRaises(ValueError):
            fsdp.job_name("")
        self.assertEqual(fsdp.state_name(fsdp.JobState.Value("JOB_STATE_RUNNING")), "RUNNING")
        self.assertEqual(fsdp.state_name(99), "99")
        with self.assertRaisesRegex(ValueError, "RUNNING"):
            _calls.parse_state("UNSPECIFIED")


class ErrorTest(unittest.TestCase):
    class Broken:
        def __init__(self, code, details="", metadata=()):
            self.code, self.details, self.trailing_metadata = (
                lambda: code, lambda: details, lambda: metadata)

    def test_a_broken_connection_is_unavailable(self):
        from fsdp.errors import from_rpc_error, may_pass
        for code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED):
            error = from_rpc_error(self.Broken(code, "RST_STREAM"), "h:1")
            self.assertIsInstance(error, fsdp.UnavailableError)
            self.assertTrue(may_pass(error))
        garbage = from_rpc_error(self.Broken(grpc.StatusCode.NOT_FOUND, "no",
                                             (("grpc-status-details-bin", b"\xff\xff"),)), "h:1")
        self.assertIsInstance(garbage, fsdp.NotFoundError)
        self.assertEqual(garbage.reason, "")


if __name__ == "__main__":
    unittest.main()
