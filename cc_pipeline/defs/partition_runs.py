"""Runs the assets over crawl × target: many partitions at once, each recorded when it is done, with its own metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.declared.assets import EXTRACTED
from cc_pipeline.defs.engines import LOCAL, find_engine
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lineage import event_metadata
from cc_pipeline.defs.metadata import format_list, row_counts, to_metadata
from cc_pipeline.defs.partitions import StepContext, partition_key
from cc_pipeline.defs.partitions_in_flight import EXTRACTED as LAST_FIRST
from cc_pipeline.defs.publication import RunPublisher
from cc_pipeline.defs.recording import Described, PartitionRun
from cc_pipeline.extraction.failure_isolation import Throttling, affects_all_targets
from cc_pipeline.extraction.run import PartitionResult
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

#: Seconds between two lines of progress of one stage in a run's log.
_EVERY_SECONDS = 5.0
#: Values that events leave out.
_ZERO: Final = (0, "0 %")

#: The results of a step over partitions: a record of each, then its checks.
Yielded: TypeAlias = Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]


@contextmanager
def logged_progress(log: dg.DagsterLogManager) -> Iterator[None]:
    """Writes progress to the run's log, unless a person at a terminal sees it already."""
    if progress.someone_watches():
        yield
        return
    last: dict[str, float] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        if stage == progress.WAITING and not detail:
            return  # a wait has ended
        now = time.monotonic()
        if now - last.get(stage, 0.0) >= _EVERY_SECONDS:
            last[stage] = now
            total_text = f" of {total:,}" if total is not None else ""
            log.info(f"{stage}: {done:,}{total_text} {detail}".rstrip())

    with progress.progress_to(sink):
        yield


def extract_partitions(
    context: StepContext, workspace: Workspace, namespace: HomeNamespace, run: PartitionRun, tables: Sequence[str]
) -> Yielded:
    """Makes ``tables`` of every partition of the run.

    Raises ``dg.Failure`` when partitions failed, after all others were recorded. Errors that affect all partitions are
    raised at once.
    """
    descriptions = _Descriptions(context, workspace, namespace)
    publishing = RunPublisher(context, workspace, namespace)
    with logged_progress(context.log), run.track_attempts():
        for partition_result in _extract(context, workspace, run, tables):
            key = partition_key(partition_result.crawl, partition_result.slug)
            # the asset that decides whether a partition is made comes last: a process may be killed between two records
            ordered = sorted(partition_result.reports, key=LAST_FIRST.index, reverse=True)
            yield from run.record_done(
                key, {table: descriptions.describe(partition_result, table) for table in ordered}
            )
            if partition_result.error is not None:
                run.record_failure(
                    key, partition_result.error, [table for table in tables if table not in partition_result.reports]
                )
            publishing.publish_if_due()
        publishing.publish_at_end(run.reasons)
    yield from run.end()


def _extract(
    context: StepContext, workspace: Workspace, run: PartitionRun, tables: Sequence[str]
) -> Iterator[PartitionResult]:
    """Yields the result of each partition, on any engine."""
    pairs = [_pair(key) for key in run.remaining_keys]

    def on_start(group: Sequence[tuple[str, str]]) -> None:
        run.mark_started(partition_key(*pair) for pair in group)

    return find_engine(workspace.settings.engine).extract(context, workspace, pairs, tables, on_start)


def run_each(context: StepContext, run: PartitionRun, make: Callable[[str], Mapping[str, Described]]) -> Yielded:
    """Calls ``make`` with the key of each remaining partition, and records the result. Raises as
    :func:`extract_partitions` does."""
    throttling = Throttling()
    with logged_progress(context.log):
        for key in run.remaining_keys:
            try:
                metadata_by_asset = make(key)
            except Exception as error:
                if affects_all_targets(error) or throttling.note_error(error):
                    raise
                run.record_failure(key, error)
            else:
                throttling = Throttling()
                yield from run.record_done(key, metadata_by_asset)
    yield from run.end()


def _pair(key: str) -> tuple[str, str]:
    crawl, _, domain = key.partition("|")
    return crawl, domain


def partition_metadata(report: StageReport, slug: str, table: str) -> dict[str, dg.MetadataValue]:
    """Returns the metrics of one partition of ``table``.

    An event is stored twice and permanently, so it has no zeros, and no costs of several partitions together:
    :func:`group_costs` has those.
    """
    target_metrics = report.per_target[slug]
    rows = int(target_metrics[f"rows:{table}"])
    values: dict[str, int | float | str] = {}
    if target_metrics.get(f"written:{table}", rows) != rows:
        values["rows written"] = target_metrics[f"written:{table}"]
    values |= {name: value for name, value in target_metrics.items() if ":" not in name and value not in _ZERO}
    notes: dict[str, dg.MetadataValue] = {}
    if len(report.per_target) == 1:
        if report.requests:
            values |= {"bytes read": report.bytes, "requests": report.requests}
        values["seconds"] = round(report.seconds, 3)
        if report.notes:
            notes["notes"] = format_list(report.notes)
    return {**row_counts(rows), **to_metadata(values), **notes}


def group_costs(report: StageReport, table: str) -> str:
    """Returns the costs of a stage for several partitions together, for the log of the run."""
    spent = f"{table} of {format_count(len(report.per_target), 'partition')}: {report.seconds:.1f} s"
    if report.requests:
        spent += f", {report.bytes:,} bytes read in {format_count(report.requests, 'request')}"
    return "\n".join([spent, *report.notes])


class _Descriptions:
    """Builds the metadata of partitions for events: counts and versions. It has no text of a page, since Dagster has no
    public way to delete an event."""

    def __init__(self, context: StepContext, workspace: Workspace, namespace: HomeNamespace) -> None:
        self._context = context
        self._workspace = workspace
        self._namespace = namespace
        self._described_tables: set[str] = set()
        self._logged_reports: dict[str, StageReport] = {}

    def describe(self, partition_result: PartitionResult, table: str) -> Described:
        """Returns the metadata of a partition of ``table`` for the UI, and the version of its rows if the stage has
        one."""
        report = partition_result.reports[table]
        target_metrics = report.per_target[partition_result.slug]
        if self._logged_reports.get(table) is not report and len(report.per_target) > 1:
            self._context.log.info(group_costs(report, table))
        self._logged_reports[table] = report
        metadata = partition_metadata(report, partition_result.slug, table) | self._engine(table)
        if self._workspace.settings.column_events and table not in self._described_tables:
            self._described_tables.add(table)
            metadata |= event_metadata(table, EXTRACTED[table], self._namespace)
        version = target_metrics.get(f"version:{table}")
        return metadata, None if version is None else str(version)

    def _engine(self, table: str) -> dict[str, dg.MetadataValue]:
        """Returns the engine that made the rows, unless it is the local one."""
        settings = self._workspace.settings
        if settings.engine == LOCAL or table == "captures":
            return {}
        return {"engine": dg.MetadataValue.text(find_engine(settings.engine).describe(settings))}
