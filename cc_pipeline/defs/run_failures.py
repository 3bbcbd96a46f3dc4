"""Reads why a run failed from the failure events of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Final

import dagster as dg

from cc_pipeline.defs.metadata import as_table
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, Incomplete, PlaceFault, disk_is_full

_NOT_RECORDED: Final = (
    "Dagster could not record the result of the run: its database refused to write\nFree some space, or check the "
    "database that dagster.yaml names. Then run the same again: committed rows are kept, and are recorded then"
)
_NO_REASON: Final = "the run failed and no step gave a reason; its log is in the UI (cc-pipeline ui)"
#: Metadata of the failure of a step over partitions: the failed ones.
FAILED: Final = "failed partitions"


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that failed: its key, the class of the error, and its message."""

    partition: str
    error_class: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The failure of a run. ``reason`` is the message of the error that a step raised, preceded by the name of a class
    that is not ours.

    ``error_class`` is the name of that error's class, ``None`` if no step failed. ``partitions`` are those that failed
    by themselves, while all others of the run were made; ``error_class`` is then the gravest of theirs.
    """

    reason: str
    error_class: str | None = None
    partitions: Sequence[FailedPartition] = ()


def describe_failure(events: Iterable[dg.DagsterEvent]) -> RunFailure:
    """Returns the failure of a run, from its step failure events in their order; the first with a reason counts."""
    for event in events:
        user_failure = event.step_failure_data.user_failure_data
        if user_failure is not None and (partitions := read_failed_partitions(user_failure.metadata)):
            return RunFailure(user_failure.description or "", gravest_class(partitions), partitions)
        error = event.step_failure_data.error
        if error is not None:
            # Dagster wraps the error of a step in one of its own
            raised = error.cause or error
            if _is_of_a_database(raised.cls_name):
                # the message is an SQL statement; the error itself, with its number, is not available
                return RunFailure(_NOT_RECORDED, raised.cls_name)
            return RunFailure(read_message(raised.message, raised.cls_name), raised.cls_name)
    return RunFailure(_NO_REASON)


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Turns an error of Dagster's database inside the block into an ``EnvironmentFault``, that of a full disk into a
    ``PlaceFault``."""
    # code servers do not load SQLAlchemy for it
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    try:
        yield
    except DBAPIError as error:
        problem, _, advice = _NOT_RECORDED.partition("\n")
        if disk_is_full(error):
            raise PlaceFault(f"{problem}, since the disk is full", advice) from error
        raise EnvironmentFault(problem, advice) from error


def read_failed_partitions(metadata: Mapping[str, object]) -> list[FailedPartition]:
    """Returns the partitions in the metadata of a step's ``dg.Failure``; none for another failure."""
    value = metadata.get(FAILED)
    rows = value.records if isinstance(value, dg.TableMetadataValue) else ()
    return [FailedPartition(**{name: str(cell) for name, cell in row.data.items()}) for row in rows]


def failed_partitions_table(failed: Iterable[FailedPartition]) -> dg.MetadataValue:
    """Returns the metadata that :func:`read_failed_partitions` reads, and that a person reads in the UI."""
    names = [field.name for field in fields(FailedPartition)]
    return as_table(names, ([getattr(failure, name) for name in names] for failure in failed))


def read_reasons(instance: dg.DagsterInstance, run_id: str) -> dict[str, str]:
    """Returns the first line of why partitions failed in a run, by key; ``""`` has the reason of the run itself."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    if not events:
        return {}
    failure = describe_failure(events)
    reasons = {partition.partition: partition.reason for partition in failure.partitions} | {"": failure.reason}
    return {key: reason.partition("\n")[0] for key, reason in reasons.items()}


def gravest_class(partitions: Sequence[FailedPartition]) -> str:
    """Returns the class name of the gravest error of ``partitions`` (one at least). Missing data of the source is the
    least grave; data that is lost for good is graver than data that may still come."""
    for partition in partitions:
        if not is_error_class(partition.error_class, Incomplete):
            return partition.error_class
    return next(
        (failure.error_class for failure in partitions if failure.error_class != Incomplete.__name__),
        Incomplete.__name__,
    )


def read_message(logged: str, error_class: str | None) -> str:
    """Returns the message of an error in the event log, preceded by the name of a class that is not ours.

    ``logged`` is the line that Python prints for an error: its module and class, a colon, its message.
    """
    _, separator, message = logged.strip().partition(f"{error_class}: ")
    if not separator or error_class is None:
        return logged.strip()
    return message if is_error_class(error_class, CcPipelineError) else f"{error_class}: {message}"


def is_error_class(error_class: str | None, family: type[BaseException]) -> bool:
    """Whether ``error_class`` is the name of ``family`` or of a class derived from it."""
    return error_class in _names_of(family)


def _names_of(family: type[BaseException]) -> set[str]:
    return {family.__name__}.union(*(_names_of(derived) for derived in family.__subclasses__()))


def _is_of_a_database(error_class: str | None) -> bool:
    # code servers do not load SQLAlchemy for it
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    return is_error_class(error_class, DBAPIError)
