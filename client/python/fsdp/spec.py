"""Job specs: YAML or JSON text, or a dict, as a TrainingJob.

Names are those of docs/job_spec.md: keys in camelCase, enum values short ("bf16", "llama"). Strict: an
unknown key, a wrong type or a value that does not fit is an error that names the field. What the
values mean together is the coordinator's to judge.
"""

from __future__ import annotations

import difflib
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Union

import yaml
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from fsdp.errors import FieldViolation, InvalidArgumentError
from fsdp.v1 import job_pb2

JobSource = Union[job_pb2.TrainingJob, Mapping[str, Any], str, "os.PathLike[str]"]

MAX_TEXT = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 32


class _Plain(str):
    """A YAML scalar without quotes: its text, whatever type it has."""


def load_job(source: JobSource) -> job_pb2.TrainingJob:
    """The job of a TrainingJob (copied), a dict, YAML or JSON text, or a file (os.PathLike).

    Raises InvalidArgumentError with one violation per bad field; OSError for a file.
    """
    if isinstance(source, job_pb2.TrainingJob):
        copied = job_pb2.TrainingJob()
        copied.CopyFrom(source)
        return copied
    if isinstance(source, os.PathLike):
        source = pathlib.Path(source).read_text(encoding="utf-8")
    document = _parse(source) if isinstance(source, str) else source
    job = job_pb2.TrainingJob()
    decoder = _Decoder()
    decoder.fill(job, document, "")
    if decoder.violations:
        first, more = decoder.violations[0], len(decoder.violations) - 1
        others = f" (and {more} more)" if more else ""
        raise InvalidArgumentError(f"{first.field or 'the job'}: {first.description}{others}",
                                   reason="INVALID_JOB", violations=tuple(decoder.violations))
    return job


def _parse(text: str) -> Any:
    if len(text.encode("utf-8")) > MAX_TEXT:
        raise InvalidArgumentError(f"the spec is longer than {MAX_TEXT} bytes")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"the spec is not YAML: {error}") from None
    budget = [MAX_NODES]
    return None if node is None else _plain_value(node, budget, 0)


def _plain_value(node: yaml.Node, budget: list[int], depth: int) -> Any:
    budget[0] -= 1
    line = node.start_mark.line + 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise InvalidArgumentError(f"line {line}: the spec is too large or too deep")
    if isinstance(node, yaml.ScalarNode):
        if node.style in ("'", '"', "|", ">"):
            return str(node.value)
        return None if node.tag == "tag:yaml.org,2002:null" else _Plain(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_plain_value(item, budget, depth + 1) for item in node.value]
    members: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidArgumentError(f"line {key.start_mark.line + 1}: a key must be a name")
        if key.value in members:
            raise InvalidArgumentError(
                f"line {key.start_mark.line + 1}: {key.value} is given twice; keep one")
        members[key.value] = _plain_value(value, budget, depth + 1)
    return members


def enum_prefix(enum: EnumDescriptor) -> str:
    """What all values' names begin with: "JOB_STATE_"."""
    return str(enum.values[0].name.removesuffix("UNSPECIFIED"))


def _meant(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _Decoder:
    def __init__(self) -> None:
        self.violations: list[FieldViolation] = []

    def fail(self, path: str, description: str) -> None:
        self.violations.append(FieldViolation(path, description))

    def fill(self, message: Any, value: Any, path: str) -> None:
        if value is None:
            return
        if not isinstance(value, Mapping):
            self.fail(path, f"must be an object (key: value), not {_shown(value)}")
            return
        descriptor: Descriptor = message.DESCRIPTOR
        fields = {field.json_name: field for field in descriptor.fields}
        for key, item in value.items():
            child = f"{path}.{key}" if path else str(key)
            field = fields.get(key)
            if field is None:
                self.fail(child, f"unknown key{_meant(str(key), list(fields))}")
            elif item is not None:
                self.set(message, field, item, child)

    def set(self, message: Any, field: FieldDescriptor, value: Any, path: str) -> None:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            self.fill_map(message, field, value, path)
        elif field.label == FieldDescriptor.LABEL_REPEATED:
            self.fill_list(message, field, value, path)
        elif kind is not None:
            child = getattr(message, field.name)
            # Given, also when empty.
            child.SetInParent()
            self.fill(child, value, path)
        else:
            converted = self.scalar(field, value, path)
            if converted is not None:
                setattr(message, field.name, converted)

    def fill_map(self, message: Any, field: FieldDescriptor, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            self.fail(path, f'must be an object (name: "text"), not {_shown(value)}')
            return
        target = getattr(message, field.name)
        for key, item in value.items():
            text = self.scalar(field.message_type.fields_by_name["value"], item, f'{path}["{key}"]')
            if text is not None:
                target[str(key)] = text

    def fill_list(self, message: Any, field: FieldDescriptor, value: Any, path: str) -> None:
        if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
            self.fail(path, f"must be a list, not {_shown(value)}")
            return
        target = getattr(message, field.name)
        for index, item in enumerate(value):
            child = f"{path}[{index}]"
            if field.message_type is not None:
                self.fill(target.add(), item, child)
                continue
            converted = self.scalar(field, item, child)
            if converted is not None:
                target.append(converted)

    def scalar(self, field: FieldDescriptor, value: Any, path: str) -> Any:
        """None when it does not fit; the violation is noted."""
        if field.enum_type is not None:
            return self.enum(field.enum_type, value, path)
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self.boolean(value, path)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            if isinstance(value, str):
                return str(value)
            self.fail(path, f"must be a string, not {_shown(value)}")
            return None
        return self.number(field, value, path)

    def enum(self, enum: EnumDescriptor, value: Any, path: str) -> Any:
        prefix = enum_prefix(enum)
        short = [one.name.removeprefix(prefix).lower() for one in enum.values if one.number != 0]
        name = value.lower() if isinstance(value, str) else ""
        name = name.removeprefix(prefix.lower())
        if name in short:
            return enum.values_by_name[prefix + name.upper()].number
        self.fail(path, f"{_shown(value)} is not a known name; allowed: {', '.join(short)}"
                  + _meant(name, short))
        return None

    def boolean(self, value: Any, path: str) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, _Plain) and value in ("true", "false"):
            return value == "true"
        self.fail(path, f"must be true or false, not {_shown(value)}")
        return None

    def number(self, field: FieldDescriptor, value: Any, path: str) -> Any:
        real = field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
        words = "a number" if real else "a whole number"
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, _Plain)):
                raise ValueError
            number = float(value) if real else _whole(value)
        except (ValueError, OverflowError):
            self.fail(path, f"must be {words}, not {_shown(value)}")
            return None
        if real and not math.isfinite(number):
            self.fail(path, "must be finite")
            return None
        low, high = _RANGES.get(field.cpp_type, (-math.inf, math.inf))
        if not low <= number <= high:
            self.fail(path, f"{number} is out of range ({low}..{high})")
            return None
        return number


_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _whole(value: Any) -> int:
    """Also 1e6 and 8.0, which are whole."""
    if isinstance(value, int):
        return value
    try:
        return int(value) if isinstance(value, str) else _exact(value)
    except ValueError:
        return _exact(float(value))


def _exact(value: float) -> int:
    if not value.is_integer():
        raise ValueError
    return int(value)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
