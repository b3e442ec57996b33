"""The API's calls as data: what is asked, whether it may be repeated, what of the answer counts.

Both clients run these; neither knows a message.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from fsdp.spec import JobSource, enum_prefix, load_job
from fsdp.v1 import (cluster_service_pb2, job_pb2, job_record_pb2, job_service_pb2, plan_pb2,
                     queue_pb2)

T = TypeVar("T")
Job = job_record_pb2.Job
JobState = job_record_pb2.JobState

PAGE_SIZE = 500
_FINISHED = frozenset((job_record_pb2.JOB_STATE_SUCCEEDED, job_record_pb2.JOB_STATE_FAILED,
                       job_record_pb2.JOB_STATE_CANCELLED))


def job_name(job: str | Job) -> str:
    """ "jobs/ID" of "jobs/ID", "ID" or a Job."""
    name = job.name if isinstance(job, Job) else job
    if not name or name == "jobs/":
        raise ValueError("a job's name is empty")
    return name if name.startswith("jobs/") else f"jobs/{name}"


def worker_name(worker: str) -> str:
    if not worker:
        raise ValueError("a worker's name is empty")
    return worker if worker.startswith("workers/") else f"workers/{worker}"


def queue_name(queue: str) -> str:
    if not queue:
        raise ValueError("a queue's name is empty")
    return queue if queue.startswith("queues/") else f"queues/{queue}"


def is_finished(state: int) -> bool:
    """SUCCEEDED, FAILED or CANCELLED: the job does not change any more."""
    return state in _FINISHED


def state_name(state: int) -> str:
    """ "RUNNING" of JOB_STATE_RUNNING; the number of a state that this release does not know."""
    enum = JobState.DESCRIPTOR
    value = enum.values_by_number.get(state)
    return value.name.removeprefix(enum_prefix(enum)) if value else str(state)


def _parse_enum(enum: Any, name: str | int, what: str) -> int:
    """Of a number, or a name with or without its prefix."""
    if isinstance(name, int):
        return name
    prefix = enum_prefix(enum)
    value = enum.values_by_name.get(prefix + name.upper().removeprefix(prefix))
    if value is None or value.number == 0:
        known = [one.name.removeprefix(prefix) for one in enum.values if one.number]
        raise ValueError(f"{name!r} is no {what}; use {', '.join(known)}")
    return int(value.number)


def parse_state(name: str | int) -> int:
    return _parse_enum(JobState.DESCRIPTOR, name, "state of a job")


def parse_maintenance(mode: str | int) -> int:
    return _parse_enum(cluster_service_pb2.MaintenanceMode.DESCRIPTOR, mode, "mode of maintenance")


@dataclasses.dataclass(frozen=True)
class Call(Generic[T]):
    """A unary call. method: "JobService.GetJob"."""

    method: str
    request: Any
    result: Callable[[Any], T]
    # Also after it was sent.
    repeatable: bool = True


def _job_of(response: Any) -> Job:
    job: Job = response.job
    return job


def create(job: JobSource, request_id: str, validate_only: bool,
           ) -> Call[job_service_pb2.CreateJobResponse]:
    request = job_service_pb2.CreateJobRequest(
        job=load_job(job), validate_only=validate_only,
        # Repeats after a lost answer make no second job.
        request_id=request_id or str(uuid.uuid4()))
    return Call("JobService.CreateJob", request, lambda response: response)


def plan(job: JobSource) -> Call[plan_pb2.Plan]:
    request = job_service_pb2.PlanJobRequest(job=load_job(job))
    return Call("JobService.PlanJob", request, lambda response: response.plan)


def get(job: str | Job) -> Call[Job]:
    return Call("JobService.GetJob", job_service_pb2.GetJobRequest(name=job_name(job)), _job_of)


def cancel(job: str | Job, reason: str) -> Call[Job]:
    request = job_service_pb2.CancelJobRequest(name=job_name(job), reason=reason)
    return Call("JobService.CancelJob", request, _job_of)


def suspend(job: str | Job, reason: str) -> Call[Job]:
    request = job_service_pb2.SuspendJobRequest(name=job_name(job), reason=reason)
    return Call("JobService.SuspendJob", request, _job_of, repeatable=False)


def resume(job: str | Job) -> Call[Job]:
    request = job_service_pb2.ResumeJobRequest(name=job_name(job))
    return Call("JobService.ResumeJob", request, _job_of, repeatable=False)


def restart(job: str | Job, reason: str) -> Call[Job]:
    request = job_service_pb2.RestartJobRequest(name=job_name(job), reason=reason)
    return Call("JobService.RestartJob", request, _job_of, repeatable=False)


def delete(job: str | Job) -> Call[None]:
    request = job_service_pb2.DeleteJobRequest(name=job_name(job))
    return Call("JobService.DeleteJob", request, lambda response: None, repeatable=False)


def cluster() -> Call[cluster_service_pb2.GetClusterResponse]:
    return Call("ClusterService.GetCluster", cluster_service_pb2.GetClusterRequest(),
                lambda response: response)


def queue(name: str) -> Call[queue_pb2.Queue]:
    request = cluster_service_pb2.GetQueueRequest(name=queue_name(name))
    return Call("ClusterService.GetQueue", request, lambda response: response.queue)


def set_maintenance(mode: str | int, reason: str) -> Call[cluster_service_pb2.Maintenance]:
    request = cluster_service_pb2.SetMaintenanceRequest(
        mode=parse_maintenance(mode), reason=reason)  # type: ignore[arg-type]
    return Call("ClusterService.SetMaintenance", request, lambda response: response.maintenance)


def drain(worker: str, stop_ranks: bool, reason: str) -> Call[cluster_service_pb2.Worker]:
    request = cluster_service_pb2.DrainWorkerRequest(name=worker_name(worker),
                                                     stop_ranks=stop_ranks, reason=reason)
    return Call("ClusterService.DrainWorker", request, lambda response: response.worker)


def uncordon(worker: str) -> Call[cluster_service_pb2.Worker]:
    request = cluster_service_pb2.UncordonWorkerRequest(name=worker_name(worker))
    return Call("ClusterService.UncordonWorker", request, lambda response: response.worker)


class Pages(Generic[T]):
    """A list call, page by page."""

    def __init__(self, method: str, request: Any, items: Callable[[Any], Iterable[T]],
                 limit: int = 0) -> None:
        if limit < 0:
            raise ValueError(f"limit {limit} must be 0 (all) or more")
        self.found: list[T] = []
        self._call = Call(method, request, lambda response: response)
        self._items = items
        self._limit = limit

    def next_call(self) -> Call[Any]:
        missing = self._limit - len(self.found) if self._limit else PAGE_SIZE
        self._call.request.page_size = min(missing, PAGE_SIZE)
        return self._call

    def take(self, response: Any) -> bool:
        """True when there is more to ask for."""
        self.found.extend(self._items(response))
        self._call.request.page_token = response.next_page_token
        return bool(response.next_page_token) and not 0 < self._limit <= len(self.found)


def list_jobs(states: Iterable[str | int], queue: str, labels: Mapping[str, str],
              limit: int) -> Pages[Job]:
    request = job_service_pb2.ListJobsRequest(
        states=[parse_state(state) for state in states],  # type: ignore[misc]
        queue=queue, labels=dict(labels))
    return Pages("JobService.ListJobs", request, lambda response: response.jobs, limit)


def list_workers() -> Pages[cluster_service_pb2.Worker]:
    return Pages("ClusterService.ListWorkers", cluster_service_pb2.ListWorkersRequest(),
                 lambda response: response.workers)


def list_queues() -> Pages[queue_pb2.Queue]:
    return Pages("ClusterService.ListQueues", cluster_service_pb2.ListQueuesRequest(),
                 lambda response: response.queues)


def list_checkpoints(job: str | Job) -> Pages[job_record_pb2.CheckpointInfo]:
    request = job_service_pb2.ListCheckpointsRequest(name=job_name(job))
    return Pages("JobService.ListCheckpoints", request, lambda response: response.checkpoints)


class Cursor(Generic[T]):
    """A stream that can be taken up where it broke: `request` always says where to go on."""

    def __init__(self, method: str, request: Any, follow: bool) -> None:
        self.method = method
        self.request = request
        self.job: str = request.name
        # Goes on until the job is finished, also when the server ends the stream before.
        self.follow = follow

    def take(self, response: Any) -> list[T]:
        """What is new in it."""
        raise NotImplementedError


class Watch(Cursor[Job]):
    def __init__(self, job: str | Job) -> None:
        super().__init__("JobService.WatchJob",
                         job_service_pb2.WatchJobRequest(name=job_name(job)), True)

    def take(self, response: Any) -> list[Job]:
        self.request.after_revision = response.job.revision
        return [response.job]


class Logs(Cursor[job_record_pb2.LogEntry]):
    def __init__(self, job: str | Job, follow: bool, rank: int | None, attempt: int, tail: int,
                 after_offset: int) -> None:
        request = job_service_pb2.StreamLogsRequest(
            name=job_name(job), follow=follow, attempt=attempt, tail=tail,
            after_offset=after_offset)
        if rank is not None:
            request.rank = rank
        super().__init__("JobService.StreamLogs", request, follow)

    def take(self, response: Any) -> list[job_record_pb2.LogEntry]:
        new = [entry for entry in response.entries if entry.offset > self.request.after_offset]
        newest = max([self.request.after_offset, response.next_offset - 1,
                      *(entry.offset for entry in new)])
        if new or response.next_offset > 0:
            # `tail` is a place to start: once anything came, the offset says where to go on.
            self.request.tail = 0
            self.request.after_offset = newest
        return new


class Metrics(Cursor[job_record_pb2.StepMetrics]):
    def __init__(self, job: str | Job, follow: bool, after_offset: int) -> None:
        super().__init__("JobService.StreamMetrics", job_service_pb2.StreamMetricsRequest(
            name=job_name(job), follow=follow, after_offset=after_offset), follow)

    def take(self, response: Any) -> list[job_record_pb2.StepMetrics]:
        new = [one for one in response.metrics if one.offset > self.request.after_offset]
        if new:
            self.request.after_offset = new[-1].offset
        return new


class Events(Cursor[job_record_pb2.JobEvent]):
    def __init__(self, job: str | Job, follow: bool, after_sequence: int) -> None:
        super().__init__("JobService.StreamEvents", job_service_pb2.StreamEventsRequest(
            name=job_name(job), follow=follow, after_sequence=after_sequence), follow)

    def take(self, response: Any) -> list[job_record_pb2.JobEvent]:
        new = [one for one in response.events if one.sequence > self.request.after_sequence]
        if new:
            self.request.after_sequence = new[-1].sequence
        return new


__all__ = ["Call", "Cursor", "Events", "Job", "JobState", "Logs", "Metrics", "Pages", "Watch",
           "cancel", "cluster", "create", "delete", "drain", "get", "is_finished", "job_name",
           "job_pb2", "list_checkpoints", "list_jobs", "list_queues", "list_workers",
           "parse_maintenance", "parse_state", "plan", "queue", "queue_name", "restart", "resume",
           "set_maintenance", "state_name", "suspend", "uncordon", "worker_name"]
