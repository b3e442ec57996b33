"""What a call can raise: one class per gRPC code that the service uses, all with the service's details."""

from __future__ import annotations

import functools
import pathlib
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError


class FieldViolation(NamedTuple):
    """One bad field: "spec.model.dim" and what is wrong with it."""

    field: str
    description: str


class FsdpError(Exception):
    """Any failed call.

    code: of gRPC. reason: UPPER_SNAKE_CASE, for programs; empty when the error was not made by a
    coordinator (a broken connection, a proxy's answer). metadata: what the reason speaks of.
    violations: one per bad field.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, code: grpc.StatusCode | None = None, reason: str = "",
                 domain: str = "", metadata: dict[str, str] | None = None,
                 violations: tuple[FieldViolation, ...] = ()) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        self.domain = domain
        self.metadata = dict(metadata or {})
        self.violations = violations

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.reason}]" if self.reason else self.message]
        # The message of a single bad field is that field's already.
        lines += [f"  {violation.field}: {violation.description}" for violation in self.violations
                  if violation.description not in self.message]
        return "\n".join(lines)


class InvalidArgumentError(FsdpError):
    """The request, or a field of the spec (violations), is wrong."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFoundError(FsdpError):
    """There is no such job, worker, checkpoint or profile."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(FsdpError):
    """The request id was used with another spec."""

    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPreconditionError(FsdpError):
    """The job's state does not allow it."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhaustedError(FsdpError):
    """The job fits no cluster of this kind, the queue is full, or a limit is reached."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(FsdpError):
    """No identity, or one that is not known (any more)."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(FsdpError):
    """The identity may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnavailableError(FsdpError):
    """No coordinator answers, or it was lost and did not come back in time."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceededError(FsdpError):
    """The time given is over."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class AbortedError(FsdpError):
    """Something else is under way that excludes it; try again."""

    code = grpc.StatusCode.ABORTED


_CLASSES = {cls.code: cls for cls in (
    InvalidArgumentError, NotFoundError, AlreadyExistsError, FailedPreconditionError,
    ResourceExhaustedError, UnauthenticatedError, PermissionDeniedError, UnavailableError,
    DeadlineExceededError, AbortedError)}

# What a broken connection looks like when no coordinator made the error.
_BROKEN = (grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)

_DETAILS_KEY = "grpc-status-details-bin"


@functools.cache
def _messages() -> dict[str, Any]:
    """google.rpc's messages, from a pool of their own."""
    files = descriptor_pb2.FileDescriptorSet.FromString(
        (pathlib.Path(__file__).parent / "error_details.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    names = ("google.rpc.Status", "google.rpc.ErrorInfo", "google.rpc.BadRequest")
    return {name: factory.GetPrototype(pool.FindMessageTypeByName(name)) for name in names}


def _details(raw: bytes) -> dict[str, Any]:
    """ErrorInfo and BadRequest by name; what cannot be read is left out: the message stands alone."""
    found: dict[str, Any] = {}
    try:
        status = _messages()["google.rpc.Status"].FromString(raw)
        for detail in status.details:
            name = detail.type_url.rpartition("/")[2]
            if name in _messages():
                found[name] = _messages()[name].FromString(detail.value)
    except DecodeError:
        pass
    return found


def make_error(code: grpc.StatusCode, message: str, **details: Any) -> FsdpError:
    """The class of the code."""
    return _CLASSES.get(code, FsdpError)(message, code=code, **details)


def from_rpc_error(error: Any, server: str) -> FsdpError:
    """A grpc.RpcError or grpc.aio.AioRpcError as one of ours."""
    code = error.code()
    metadata = error.trailing_metadata() or ()
    raw = next((value for key, value in metadata if key == _DETAILS_KEY), b"")
    details = _details(raw)
    info = details.get("google.rpc.ErrorInfo")
    if info is None and code in _BROKEN:
        return UnavailableError(
            f"the connection to the coordinator at {server} broke ({error.details()})")
    if info is None and code is grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(f"no coordinator answers at {server} ({error.details()})")
    request = details.get("google.rpc.BadRequest")
    violations = tuple(FieldViolation(one.field, one.description)
                       for one in (request.field_violations if request else ()))
    if info is None:
        return make_error(code, error.details() or code.name, violations=violations)
    return make_error(code, error.details() or code.name, reason=info.reason, domain=info.domain,
                      metadata=dict(info.metadata), violations=violations)


def may_pass(error: FsdpError) -> bool:
    """The coordinator is away, perhaps to be back soon: the same call may succeed."""
    return isinstance(error, UnavailableError) and error.reason != "STORE_FAILED"
