"""Records each partition of a step when it is done; each partition fails by itself.

Dagster's own results record all partitions of a run at its end, and none if one fails. So a step yields an event for
each partition, in a run; a command reports the same events without a run.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import split_key
from cc_pipeline.errors import (
    CcPipelineError,
    EnvironmentFault,
    Incomplete,
    IndexIncomplete,
    PlaceFault,
    SourceRefuses,
)
from cc_pipeline.extraction.failure_isolation import affects_all_targets

#: Metadata of the failure of a step: its failed partitions.
FAILED: Final = "failed partitions"
#: The most failed partitions in the message of a run, and in its metadata.
_MAX_NAMED_PARTITIONS = 5
_MAX_TABLE_ROWS = 1_000
#: The most characters of a reason in the metadata.
_MAX_REASON_LENGTH = 500
#: Seconds between two lines of progress of one stage in a run's log.
_EVERY_SECONDS = 5.0

#: Metadata of a partition, and the version of its data if it is known.
Described: TypeAlias = tuple[Mapping[str, dg.MetadataValue], str | None]
Events: TypeAlias = Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]


@dataclass(slots=True)
class PartitionLog:
    """The results of the partitions of one step or command: ``described`` has the metadata of those that were made, by
    key and asset, ``errors`` the first error of each failed one."""

    namespace: HomeNamespace
    log: logging.Logger
    described: dict[str, Mapping[str, Described]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)

    def record_done(self, key: str, described: Mapping[str, Described]) -> Iterator[dg.AssetMaterialization]:
        """Yields the records of a partition: one for each asset that was made."""
        self.described[key] = described
        for asset, (metadata, version) in described.items():
            yield materialization(self.namespace.key(asset), key, metadata, version)

    def record_failure(self, key: str, error: Exception) -> None:
        """Notes why a partition, or some of its assets, were not made."""
        self.errors[key] = error
        text = str(error) if isinstance(error, CcPipelineError) else "".join(traceback.format_exception(error))
        self.log.error(f"{key} failed: {text.rstrip()}")

    @property
    def made_keys(self) -> list[str]:
        """The partitions that were made without an error."""
        return [key for key in self.described if key not in self.errors]

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each failed partition: the message of its error, and on further lines what to do."""
        return {key: describe_error(error) for key, error in self.errors.items()}

    def raise_failures(self) -> None:
        """Raises ``dg.Failure`` with a table of the failed partitions, if any failed."""
        if not self.errors:
            return
        rows = [
            (key, type(error).__name__, describe_error(error)[:_MAX_REASON_LENGTH])
            for key, error in [*self.errors.items()][:_MAX_TABLE_ROWS]
        ]
        total = len(self.described.keys() | self.errors.keys())
        raise dg.Failure(
            summarize_failures(self.reasons, total),
            {"partitions failed": len(rows), FAILED: as_table(["partition", "error", "reason"], rows)},
        )


class PartitionsFailed(Exception):
    """Partitions of a command failed, while all others were made. ``errors`` has the error of each."""

    def __init__(self, errors: Mapping[str, Exception], total: int) -> None:
        self.errors = dict(errors)
        super().__init__(summarize_failures({key: describe_error(error) for key, error in errors.items()}, total))

    @property
    def family(self) -> type[EnvironmentFault]:
        """``EnvironmentFault``, or the kind of ``Incomplete`` if the source did not return everything and nothing else
        is wrong."""
        errors = self.errors.values()
        if not all(isinstance(error, Incomplete) for error in errors):
            return EnvironmentFault
        kinds = (IndexIncomplete, SourceRefuses)
        return next((kind for kind in kinds if any(isinstance(error, kind) for error in errors)), Incomplete)


def describe_error(error: Exception) -> str:
    """Returns the message of an error, with the class of one that is not ours."""
    return str(error) if isinstance(error, CcPipelineError) else repr(error)


def materialization(
    asset: dg.AssetKey, key: str, metadata: Mapping[str, dg.MetadataValue], version: str | None = None
) -> dg.AssetMaterialization:
    """Returns the record of a partition of an asset."""
    partition, tags = event_partition(key)
    if version is not None:
        tags |= {"dagster/data_version": version}
    return dg.AssetMaterialization(asset, partition=partition, metadata=dict(metadata), tags=tags)


def event_partition(key: str) -> tuple[str, dict[str, str]]:
    """Returns a partition as it is named in events, and the tags from which Dagster reads a key of two dimensions."""
    crawl, target = split_key(key)
    if not target:
        return key, {}
    dimensions = {"crawl": crawl, "target": target}
    return dg.MultiPartitionKey(dimensions), {f"dagster/partition/{name}": part for name, part in dimensions.items()}


def record_each(log: PartitionLog, keys: Sequence[str], make: Callable[[str], Mapping[str, Described]]) -> Events:
    """Calls ``make`` for each partition, and yields its records. Errors that affect all partitions are raised."""
    for key in keys:
        try:
            described = make(key)
        except Exception as error:
            if affects_all_targets(error):
                raise
            log.record_failure(key, error)
        else:
            yield from log.record_done(key, described)


def summarize_failures(reasons: Mapping[str, str], total: int) -> str:
    """Describes failed partitions for a person: the message of a single error, else those of the first few, and below
    them what to do."""
    if len(reasons) == total == 1:
        return next(iter(reasons.values()))
    named_failures = [(key, *reason.partition("\n")[::2]) for key, reason in [*reasons.items()][:_MAX_NAMED_PARTITIONS]]
    examples = "; ".join(f"{key}: {problem}" for key, problem, _ in named_failures)
    remainder = f"; and {len(reasons) - len(named_failures):,} more" if len(reasons) > len(named_failures) else ""
    done = ", the others are done" if len(reasons) < total else ""
    advice = dict.fromkeys(text for _, _, text in named_failures if text)
    return "\n".join([f"{len(reasons):,} of {total:,} partitions failed{done}. {examples}{remainder}", *advice])


def read_failure(events: Sequence[dg.DagsterEvent]) -> tuple[str, dict[str, str]]:
    """Returns the reason of a failed run, from its step failure events, and those of its failed partitions, by key. The
    reason is empty if no step failed: the process of the run was killed, or a person ended it."""
    for event in events:
        data = event.step_failure_data
        failure = data.user_failure_data
        table = failure.metadata.get(FAILED) if failure is not None else None
        if failure is not None and isinstance(table, dg.TableMetadataValue):
            rows = [row.data for row in table.records]
            return failure.description or "", {str(row["partition"]): str(row["reason"]) for row in rows}
        # Dagster wraps the error of a step in one of its own
        error = (data.error.cause or data.error) if data.error is not None else None
        if error is not None:
            return error.message.strip(), {}
    return "", {}


@contextmanager
def database_errors() -> Iterator[None]:
    """Turns an error of Dagster's database inside the block into an ``EnvironmentFault``, that of a full disk into a
    ``PlaceFault``."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    from cc_pipeline.errors import disk_is_full  # noqa: PLC0415

    try:
        yield
    except DBAPIError as error:
        family = PlaceFault if disk_is_full(error) else EnvironmentFault
        raise family(
            "Dagster could not record the results: its database refused to write",
            "Free some space, or check the database that dagster.yaml names. Then run the command again: committed "
            "rows are kept, and are recorded then.",
        ) from error


@contextmanager
def logged_progress(log: logging.Logger) -> Iterator[None]:
    """Writes progress to the run's log, unless a person at a terminal sees it already."""
    if progress.someone_watches():
        yield
        return
    last: dict[str, float] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        now = time.monotonic()
        has_news = stage != progress.WAITING or bool(detail)
        if has_news and now - last.get(stage, 0.0) >= _EVERY_SECONDS:
            last[stage] = now
            total_text = f" of {total:,}" if total is not None else ""
            log.info(f"{stage}: {done:,}{total_text} {detail}".rstrip())

    with progress.progress_to(sink):
        yield
