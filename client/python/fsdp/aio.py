"""The client for asyncio: fsdp.Client's methods as coroutines, its iterators as async iterators."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, TypeVar

import grpc
import grpc.aio

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


class AsyncClient:
    """As fsdp.Client; make and use it inside one event loop.

        async with fsdp.AsyncClient("127.0.0.1:7070") as client:
            job = await client.submit(pathlib.Path("job.yaml"))
            async for step in client.metrics(job, follow=True):
                print(step.step, step.loss)

    Leaving an `async for` early ends its stream.
    """

    def __init__(self, server: str | None = None, *, options: ClientOptions | None = None,
                 on_reconnect: OnReconnect | None = None, **settings: Any) -> None:
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
            self._channel = grpc.aio.insecure_channel(self.options.server, arguments)
        else:
            self._channel = grpc.aio.secure_channel(self.options.server, credentials, arguments)
        self._stubs: dict[str, Any] = {
            "JobService": job_service_pb2_grpc.JobServiceStub(  # type: ignore[no-untyped-call]
                self._channel),
            "ClusterService": cluster_service_pb2_grpc.ClusterServiceStub(  # type: ignore[no-untyped-call]
                self._channel)}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()

    async def submit(self, job: JobSource, *, request_id: str = "") -> Job:
        return (await self._run(calls.create(job, request_id, False))).job

    async def validate(self, job: JobSource) -> job_service_pb2.CreateJobResponse:
        return await self._run(calls.create(job, "", True))

    async def plan(self, job: JobSource) -> plan_pb2.Plan:
        return await self._run(calls.plan(job))

    async def get(self, job: JobRef) -> Job:
        return await self._run(calls.get(job))

    async def list(self, *, states: Iterable[str | int] = (), queue: str = "",
                   labels: Mapping[str, str] | None = None, limit: int = 0) -> List[Job]:
        return await self._pages(calls.list_jobs(states, queue, labels or {}, limit))

    async def cancel(self, job: JobRef, reason: str = "") -> Job:
        return await self._run(calls.cancel(job, reason))

    async def suspend(self, job: JobRef, reason: str = "") -> Job:
        return await self._run(calls.suspend(job, reason))

    async def resume(self, job: JobRef) -> Job:
        return await self._run(calls.resume(job))

    async def restart(self, job: JobRef, reason: str = "") -> Job:
        return await self._run(calls.restart(job, reason))

    async def delete(self, job: JobRef) -> None:
        await self._run(calls.delete(job))

    async def checkpoints(self, job: JobRef) -> List[job_record_pb2.CheckpointInfo]:
        return await self._pages(calls.list_checkpoints(job))

    async def workers(self) -> List[cluster_service_pb2.Worker]:
        return await self._pages(calls.list_workers())

    async def cluster(self) -> cluster_service_pb2.GetClusterResponse:
        return await self._run(calls.cluster())

    async def queues(self) -> List[queue_pb2.Queue]:
        return await self._pages(calls.list_queues())

    async def queue(self, name: str) -> queue_pb2.Queue:
        return await self._run(calls.queue(name))

    async def maintenance(self) -> cluster_service_pb2.Maintenance:
        return (await self.cluster()).maintenance

    async def set_maintenance(self, mode: str | int,
                              reason: str = "") -> cluster_service_pb2.Maintenance:
        return await self._run(calls.set_maintenance(mode, reason))

    async def drain(self, worker: str, *, stop_ranks: bool = False,
                    reason: str = "") -> cluster_service_pb2.Worker:
        return await self._run(calls.drain(worker, stop_ranks, reason))

    async def uncordon(self, worker: str) -> cluster_service_pb2.Worker:
        return await self._run(calls.uncordon(worker))

    async def watch(self, job: JobRef, *, timeout: float | None = None) -> AsyncGenerator[Job, None]:
        last = None
        async with contextlib.aclosing(self._stream(calls.Watch(job), timeout)) as stream:
            async for last in stream:
                yield last
                if calls.is_finished(last.state):
                    return
        now = await self.get(job)
        if last is None or now.revision != last.revision:
            yield now

    async def wait(self, job: JobRef, *, timeout: float | None = None) -> Job:
        now = None
        async for now in self.watch(job, timeout=timeout):
            pass
        if now is None:
            raise DeadlineExceededError("the watch ended without a job")
        return now

    def logs(self, job: JobRef, *, follow: bool = False, rank: int | None = None, attempt: int = 0,
             tail: int = 0, after_offset: int = 0,
             timeout: float | None = None) -> AsyncGenerator[job_record_pb2.LogEntry, None]:
        return self._stream(calls.Logs(job, follow, rank, attempt, tail, after_offset), timeout)

    def metrics(self, job: JobRef, *, follow: bool = False, after_offset: int = 0,
                timeout: float | None = None) -> AsyncGenerator[job_record_pb2.StepMetrics, None]:
        return self._stream(calls.Metrics(job, follow, after_offset), timeout)

    def events(self, job: JobRef, *, follow: bool = False, after_sequence: int = 0,
               timeout: float | None = None) -> AsyncGenerator[job_record_pb2.JobEvent, None]:
        return self._stream(calls.Events(job, follow, after_sequence), timeout)

    def _method(self, name: str) -> Any:
        service, _, method = name.partition(".")
        return getattr(self._stubs[service], method)

    def _error(self, error: grpc.aio.AioRpcError) -> FsdpError:
        if self._closed:
            return FsdpError("the client was closed", code=grpc.StatusCode.CANCELLED)
        return from_rpc_error(error, self.options.server)

    async def _run(self, call: calls.Call[T]) -> T:
        window = CallWindow(time.monotonic, self.options.call_timeout, self.options.retry_window)
        while True:
            try:
                response = await self._method(call.method)(
                    call.request, timeout=window.remaining(),
                    metadata=self.options.call_metadata())
                return call.result(response)
            except grpc.aio.AioRpcError as error:
                failed = self._error(error)
            await asyncio.sleep(window.after(failed, call.repeatable))

    async def _pages(self, pages: calls.Pages[T]) -> List[T]:
        while pages.take(await self._run(pages.next_call())):
            pass
        return pages.found

    async def _stream(self, cursor: calls.Cursor[T], timeout: float | None) -> AsyncGenerator[T, None]:
        deadline = None if timeout is None else time.monotonic() + timeout
        was_finished = False
        while True:
            async with contextlib.aclosing(self._connected(cursor, deadline)) as items:
                async for item in items:
                    yield item
            if not cursor.follow or was_finished:
                return
            was_finished = calls.is_finished((await self.get(cursor.job)).state)
            if not was_finished:
                await asyncio.sleep(0.05)

    async def _connected(self, cursor: calls.Cursor[T],
                         deadline: float | None) -> AsyncGenerator[T, None]:
        window = StreamWindow(time.monotonic, self.options.retry_window,
                              self.options.reconnect_window)
        while True:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            call = self._method(cursor.method)(cursor.request, timeout=left,
                                               metadata=self.options.call_metadata())
            try:
                async for response in call:
                    window.delivered()
                    for item in cursor.take(response):
                        yield item
                return
            except grpc.aio.AioRpcError as error:
                failed = self._error(error)
            finally:
                call.cancel()
            if deadline is not None and time.monotonic() >= deadline:
                raise DeadlineExceededError("the time given is over")
            wait = window.after(failed, self.options.server)
            if self._on_reconnect is not None:
                self._on_reconnect(failed)
            await asyncio.sleep(wait)
