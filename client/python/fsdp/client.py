"""The client for threads. One may be shared by them; the asyncio one is fsdp.AsyncClient."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import grpc

from fsdp import _calls as calls
from fsdp._retry import CallWindow, StreamWindow
from fsdp.errors import DeadlineExceededError, FsdpError, from_rpc_error
from fsdp.options import ClientOptions
from fsdp.spec import JobSource
from fsdp.v1 import (cluster_service_pb2, cluster_service_pb2_grpc, job_record_pb2, job_service_pb2,
                     job_service_pb2_grpc, plan_pb2, queue_pb2)

T = TypeVar("T")
Job = job_record_pb2.Job
JobRef = str | Job
# The clients have a method of this name.
List = list
OnReconnect = Callable[[FsdpError], None]


class Client:
    """The coordinator's API; does not connect before the first call.

        with fsdp.Client("127.0.0.1:7070") as client:
            job = client.submit(pathlib.Path("job.yaml"))
            for now in client.watch(job):
                print(fsdp.state_name(now.state), now.progress.step)

    Jobs are named by "ID", "jobs/ID" or a Job. Errors are subclasses of fsdp.FsdpError. Calls are
    repeated within retry_window where that is safe; streams are taken up again where they broke,
    without a repeat or a gap, for reconnect_window. on_reconnect is told of each broken connection.
    """

    def __init__(self, server: str | None = None, *, options: ClientOptions | None = None,
                 on_reconnect: OnReconnect | None = None, **settings: Any) -> None:
        """options: all at once; else `server` and `settings`, which are ClientOptions' fields."""
        if options is not None and (server is not None or settings):
            raise ValueError("give options, or server and single settings, not both")
        if server is not None:
            settings["server"] = server
        self.options = options or ClientOptions(**settings)
        self._on_reconnect = on_reconnect
        self._closed = False
        credentials = self.options.credentials()
        arguments = self.options.channel_arguments()
        if credentials is None:
            self._channel = grpc.insecure_channel(self.options.server, arguments)
        else:
            self._channel = grpc.secure_channel(self.options.server, credentials, arguments)
        self._stubs: dict[str, Any] = {
            "JobService": job_service_pb2_grpc.JobServiceStub(  # type: ignore[no-untyped-call]
                self._channel),
            "ClusterService": cluster_service_pb2_grpc.ClusterServiceStub(  # type: ignore[no-untyped-call]
                self._channel)}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all calls and streams, with FsdpError (CANCELLED)."""
        self._closed = True
        self._channel.close()

    def submit(self, job: JobSource, *, request_id: str = "") -> Job:
        """Validates, plans and enqueues; the job is on disk when this returns.

        job: a TrainingJob, a dict, YAML or JSON text, or a pathlib.Path. The same request_id with
        the same job returns the first call's job.
        """
        return self._run(calls.create(job, request_id, False)).job

    def validate(self, job: JobSource) -> job_service_pb2.CreateJobResponse:
        """The coordinator's verdict, nothing stored: the job with its defaults, and its plan."""
        return self._run(calls.create(job, "", True))

    def plan(self, job: JobSource) -> plan_pb2.Plan:
        """Bytes per rank and schedule."""
        return self._run(calls.plan(job))

    def get(self, job: JobRef) -> Job:
        return self._run(calls.get(job))

    def list(self, *, states: Iterable[str | int] = (), queue: str = "",
             labels: Mapping[str, str] | None = None, limit: int = 0) -> List[Job]:
        """Newest first; states such as "RUNNING"; limit 0: all."""
        return self._pages(calls.list_jobs(states, queue, labels or {}, limit))

    def cancel(self, job: JobRef, reason: str = "") -> Job:
        """Stops it and saves nothing; only restart starts it again."""
        return self._run(calls.cancel(job, reason))

    def suspend(self, job: JobRef, reason: str = "") -> Job:
        """Checkpoints, stops, and keeps it until resume."""
        return self._run(calls.suspend(job, reason))

    def resume(self, job: JobRef) -> Job:
        return self._run(calls.resume(job))

    def restart(self, job: JobRef, reason: str = "") -> Job:
        """Another try from the last checkpoint."""
        return self._run(calls.restart(job, reason))

    def delete(self, job: JobRef) -> None:
        """Removes a finished job; its checkpoints stay."""
        self._run(calls.delete(job))

    def checkpoints(self, job: JobRef) -> List[job_record_pb2.CheckpointInfo]:
        """The durable ones, newest first."""
        return self._pages(calls.list_checkpoints(job))

    def workers(self) -> List[cluster_service_pb2.Worker]:
        return self._pages(calls.list_workers())

    def cluster(self) -> cluster_service_pb2.GetClusterResponse:
        """Version and state of the coordinator."""
        return self._run(calls.cluster())

    def queues(self) -> List[queue_pb2.Queue]:
        """By name: quotas, what is used, borrowed and waited for, shares."""
        return self._pages(calls.list_queues())

    def queue(self, name: str) -> queue_pb2.Queue:
        return self._run(calls.queue(name))

    def maintenance(self) -> cluster_service_pb2.Maintenance:
        return self.cluster().maintenance

    def set_maintenance(self, mode: str | int,
                        reason: str = "") -> cluster_service_pb2.Maintenance:
        """HOLD: jobs wait; CLOSED: new ones are refused too; OFF. What runs goes on."""
        return self._run(calls.set_maintenance(mode, reason))

    def drain(self, worker: str, *, stop_ranks: bool = False,
              reason: str = "") -> cluster_service_pb2.Worker:
        """No new ranks on it; with stop_ranks the job on it saves and moves."""
        return self._run(calls.drain(worker, stop_ranks, reason))

    def uncordon(self, worker: str) -> cluster_service_pb2.Worker:
        return self._run(calls.uncordon(worker))

    def watch(self, job: JobRef, *, timeout: float | None = None) -> Iterator[Job]:
        """The job as it is, then as it changes, until it is finished; the finished job comes always.

        DeadlineExceededError after `timeout` seconds.
        """
        cursor, last = calls.Watch(job), None
        for last in self._stream(cursor, timeout):
            yield last
            if calls.is_finished(last.state):
                return
        # The stream's end says that the job is finished, at the revision seen last or after it.
        now = self.get(job)
        if last is None or now.revision != last.revision:
            yield now

    def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        """The finished job; its state says how it ended."""
        now = None
        for now in self.watch(job, timeout=timeout):
            pass
        if now is None:
            raise DeadlineExceededError("the watch ended without a job")
        return now

    def logs(self, job: JobRef, *, follow: bool = False, rank: int | None = None, attempt: int = 0,
             tail: int = 0, after_offset: int = 0,
             timeout: float | None = None) -> Iterator[job_record_pb2.LogEntry]:
        """Lines of all ranks, or one; with follow until the job is finished."""
        return self._stream(calls.Logs(job, follow, rank, attempt, tail, after_offset), timeout)

    def metrics(self, job: JobRef, *, follow: bool = False, after_offset: int = 0,
                timeout: float | None = None) -> Iterator[job_record_pb2.StepMetrics]:
        """One per step; with follow until the job is finished."""
        return self._stream(calls.Metrics(job, follow, after_offset), timeout)

    def events(self, job: JobRef, *, follow: bool = False, after_sequence: int = 0,
               timeout: float | None = None) -> Iterator[job_record_pb2.JobEvent]:
        return self._stream(calls.Events(job, follow, after_sequence), timeout)

    def _method(self, name: str) -> Any:
        service, _, method = name.partition(".")
        return getattr(self._stubs[service], method)

    def _error(self, error: grpc.RpcError) -> FsdpError:
        if self._closed:
            return FsdpError("the client was closed", code=grpc.StatusCode.CANCELLED)
        return from_rpc_error(error, self.options.server)

    def _run(self, call: calls.Call[T]) -> T:
        window = CallWindow(time.monotonic, self.options.call_timeout, self.options.retry_window)
        while True:
            try:
                response = self._method(call.method)(
                    call.request, timeout=window.remaining(),
                    metadata=self.options.call_metadata())
                return call.result(response)
            except grpc.RpcError as error:
                failed = self._error(error)
            time.sleep(window.after(failed, call.repeatable))

    def _pages(self, pages: calls.Pages[T]) -> List[T]:
        while pages.take(self._run(pages.next_call())):
            pass
        return pages.found

    def _stream(self, cursor: calls.Cursor[T], timeout: float | None) -> Iterator[T]:
        deadline = None if timeout is None else time.monotonic() + timeout
        was_finished = False
        while True:
            yield from self._connected(cursor, deadline)
            if not cursor.follow or was_finished:
                return
            # Finished only now: what came between the stream's end and this look is still to be
            # read. A server that ends the stream of an unfinished job (it drains) is asked again.
            was_finished = calls.is_finished(self.get(cursor.job).state)
            if not was_finished:
                time.sleep(0.05)

    def _connected(self, cursor: calls.Cursor[T], deadline: float | None) -> Iterator[T]:
        """Until the server ends the stream well."""
        window = StreamWindow(time.monotonic, self.options.retry_window,
                              self.options.reconnect_window)
        while True:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            call = self._method(cursor.method)(cursor.request, timeout=left,
                                               metadata=self.options.call_metadata())
            try:
                for response in call:
                    window.delivered()
                    yield from cursor.take(response)
                return
            except grpc.RpcError as error:
                failed = self._error(error)
            finally:
                # Also when the caller leaves the loop.
                call.cancel()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceededError("the time given is over")
            wait = window.after(failed, self.options.server)
            if self._on_reconnect is not None:
                self._on_reconnect(failed)
            time.sleep(wait)
