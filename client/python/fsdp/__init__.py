"""Client of the fsdpctl training service. See fsdp.Client and fsdp.AsyncClient."""

from fsdp._calls import is_finished, job_name, state_name
from fsdp.aio import AsyncClient
from fsdp.client import Client
from fsdp.errors import (AbortedError, AlreadyExistsError, DeadlineExceededError,
                         FailedPreconditionError, FieldViolation, FsdpError, InvalidArgumentError,
                         NotFoundError, PermissionDeniedError, ResourceExhaustedError,
                         UnauthenticatedError, UnavailableError)
from fsdp.options import DEFAULT_SERVER, ClientOptions
from fsdp.spec import load_job
from fsdp.v1.job_pb2 import TrainingJob
from fsdp.v1.job_record_pb2 import Job, JobEvent, JobState, LogEntry, StepMetrics

__version__ = "0.1.0"

__all__ = ["AbortedError", "AlreadyExistsError", "AsyncClient", "Client", "ClientOptions",
           "DEFAULT_SERVER", "DeadlineExceededError", "FailedPreconditionError", "FieldViolation",
           "FsdpError", "InvalidArgumentError", "Job", "JobEvent", "JobState", "LogEntry",
           "NotFoundError", "PermissionDeniedError", "ResourceExhaustedError", "StepMetrics",
           "TrainingJob", "UnauthenticatedError", "UnavailableError", "is_finished", "job_name",
           "load_job", "state_name"]
