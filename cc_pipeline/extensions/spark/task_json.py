"""A task and its result as JSON, for running a task without Spark.

Nothing is pickled: reading an object of a bucket must not run code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.spark.code_check import check_processes, describe_process
from cc_pipeline.extensions.spark.messages import error_as_json, error_from_json
from cc_pipeline.extensions.spark.tasks import (
    Count,
    FetchJob,
    FetchTaskResult,
    Job,
    ParseTaskResult,
    fetch_task,
    parse_task,
)

_T = TypeVar("_T")
TaskResult = FetchTaskResult | ParseTaskResult
#: Values of the field ``cc_pipeline``: the kind of a document.
_TASK: Final = "task"
_RESULT: Final = "result"


@dataclass(frozen=True, slots=True)
class _Stage:
    """The types of a stage's job and result, and the function for one of its tasks."""

    job_type: type[Job]
    result_type: type[TaskResult]
    work: Any


_STAGES: Final = {
    "fetch": _Stage(FetchJob, FetchTaskResult, fetch_task),
    "parse": _Stage(Job, ParseTaskResult, parse_task),
}


def task_document(stage: str, job: Job, number: int) -> bytes:
    """Plan ``number`` of a job as JSON, without credentials. Its captures or records are in the object beside it."""
    return _packed({"cc_pipeline": _TASK, "stage": stage, "number": number, "job": as_json(job)})


def run_task(document: bytes, count: Count) -> tuple[bytes, Exception | None]:
    """Runs the task of a document. Returns the document of its result, and the error if it failed.

    Raises ``UserInputError`` for bytes that are no such document.
    """
    try:
        fields_by_name = json.loads(document)
        stage, number = _STAGES[fields_by_name["stage"]], int(fields_by_name["number"])
        job = from_json(stage.job_type, fields_by_name["job"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserInputError(f"this is not a task of cc_pipeline: {type(error).__name__}: {error}") from error
    try:
        check_processes([describe_process()], job.driver, "this machine")
        task_result: TaskResult = stage.work(job, number, count)
    except Exception as error:
        return _packed({"cc_pipeline": _RESULT, "error": error_as_json(error)}), error
    return _packed({"cc_pipeline": _RESULT, "done": as_json(task_result)}), None


def read_result(stage: str, document: bytes) -> Any:
    """The result of a task of a stage. Raises the error that the task ended with, and ``ValueError``
    for other bytes.
    """
    fields_by_name = json.loads(document)
    if fields_by_name.get("cc_pipeline") != _RESULT:
        raise ValueError("this is no result of a task")
    if "error" in fields_by_name:
        raise error_from_json(fields_by_name["error"])
    return from_json(_STAGES[stage].result_type, fields_by_name["done"])


def as_json(value: Any) -> Any:
    """A value of plain dataclasses, collections and texts as JSON values. A mapping with other keys than texts becomes
    a list of pairs.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {attribute.name: as_json(getattr(value, attribute.name)) for attribute in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {str(key): as_json(member) for key, member in value.items()}
        return [[as_json(key), as_json(member)] for key, member in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(member) for member in value]
    return value


def from_json(kind: type[_T], encoded: Any) -> _T:
    """The value of a type from the result of :func:`as_json`. Raises ``TypeError``, ``KeyError`` or ``ValueError``."""
    value: _T = _read(kind, encoded)
    return value


def _read(kind: Any, encoded: Any) -> Any:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        [inner_kind] = [argument for argument in arguments if argument is not NoneType]
        return None if encoded is None else _read(inner_kind, encoded)
    if is_dataclass(kind):
        hints = _hints(origin)
        return kind(
            **{attribute.name: _read(hints[attribute.name], encoded[attribute.name]) for attribute in fields(kind)}
        )  # type: ignore[operator]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        keys, values = (*arguments, int)[:2] if arguments else (Any, Any)
        pairs = encoded.items() if isinstance(encoded, dict) else encoded
        read = {_read(keys, key): _read(values, member) for key, member in pairs}
        return Counter(read) if origin is Counter else read
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(_read(member_kind, member) for member_kind, member in zip(arguments, encoded, strict=True))
    if origin in (tuple, list, frozenset, Sequence):
        container = tuple if origin is Sequence else origin
        return container(_read(arguments[0], member) for member in encoded)
    if kind is not Any and not isinstance(encoded, (int, float) if kind is float else kind):
        raise TypeError(f"{encoded!r} is no {kind.__name__}")
    return encoded


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _packed(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()
