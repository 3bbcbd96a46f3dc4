"""How the assets over crawl × domain run: many partitions at once, each recorded when it is done, with its own figures.

Belongs here: what such a partition shows in the UI, progress in a run's log. Not here: what a stage does, or how events
are recorded (recording).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.metadata import PREVIEW_ROWS, figures, preview
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.defs.recording import Described, PartitionRun, wanted_keys
from cc_pipeline.lake.streaming import first_rows
from cc_pipeline.stages.extract import Made, extract
from cc_pipeline.stages.isolation import is_nobodys
from cc_pipeline.stages.slice import StageReport
from cc_pipeline.stages.workspace import Workspace

#: Seconds between two lines of progress of one stage in a run's log.
_EVERY_SECONDS = 5.0


@contextmanager
def logged_progress(log: dg.DagsterLogManager) -> Iterator[None]:
    """Writes progress to the run's log, unless someone at a terminal watches already."""
    if progress.someone_watches():
        yield
        return
    last: dict[str, float] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        now = time.monotonic()
        if now - last.get(stage, 0.0) >= _EVERY_SECONDS:
            last[stage] = now
            of = f" of {total:,}" if total is not None else ""
            log.info(f"{stage}: {done:,}{of} {detail}".rstrip())

    with progress.progress_to(sink):
        yield


#: One run takes many partitions: starting a run costs seconds, a partition inside it costs milliseconds.
BACKFILL = dg.BackfillPolicy.multi_run(max_partitions_per_run=200)

#: What a step over partitions yields: a record of each, then an output of each asset.
Yielded = Iterator[dg.AssetMaterialization | dg.MaterializeResult[None]]


def extract_partitions(
    context: dg.AssetExecutionContext, workspace: Workspace, shown: Mapping[str, Sequence[str]]
) -> Yielded:
    """Makes the selected tables of every partition of the run.

    ``shown`` maps each table (= asset) to the columns of its preview. Raises ``dg.Failure`` when partitions failed,
    after all others were recorded; what is no partition's fault at once.
    """
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    tables = [table for table in shown if table in selected]
    run = PartitionRun(context, wanted_keys(context), tables)
    with logged_progress(context.log):
        for made in extract(workspace, [_pair(key) for key in run.left], tables):
            key = partition_key(made.crawl, made.slug)
            yield from run.done(key, {table: _shown(workspace, made, table, shown[table]) for table in made.reports})
            if made.error is not None:
                run.failed(key, made.error, [table for table in tables if table not in made.reports])
    yield from run.end()


def each_alone(
    context: dg.AssetExecutionContext, run: PartitionRun, make: Callable[[str], Mapping[str, Described]]
) -> Yielded:
    """Calls ``make`` with the key of each partition that is left, and records what it gives. Raises as
    :func:`extract_partitions` does."""
    with logged_progress(context.log):
        for key in run.left:
            try:
                made = make(key)
            except Exception as error:
                if is_nobodys(error):
                    raise
                run.failed(key, error)
            else:
                yield from run.done(key, made)
    yield from run.end()


def _pair(key: str) -> tuple[str, str]:
    crawl, _, domain = key.partition("|")
    return crawl, domain


def own_figures(report: StageReport, slug: str, table: str) -> dict[str, dg.MetadataValue]:
    """Figures of one partition of ``table``. What was spent on several together is named so."""
    own = report.per_target[slug]
    values: dict[str, int | float | str] = {"dagster/row_count": own[f"rows:{table}"]}
    if f"written:{table}" in own:
        values["rows written"] = own[f"written:{table}"]
    values |= {name: value for name, value in own.items() if ":" not in name}
    group = "" if len(report.per_target) == 1 else "group "
    if group:
        values["group partitions"] = len(report.per_target)
    if report.requests:
        values |= {f"{group}bytes read": report.bytes, f"{group}requests": report.requests}
    values[f"{group}seconds"] = round(report.seconds, 3)
    notes = {f"{group}notes": dg.MetadataValue.md("\n".join(f"- {note}" for note in report.notes))}
    return figures(values) | (notes if report.notes else {})


def _shown(workspace: Workspace, made: Made, table: str, columns: Sequence[str]) -> Described:
    report = made.reports[table]
    metadata = own_figures(report, made.slug, table)
    version = report.per_target[made.slug].get(f"version:{table}")
    if metadata["dagster/row_count"].value:
        slices = workspace.parts([made.slug])[made.slug]
        rows = first_rows(workspace.lake, table, {"crawl": made.crawl, "target": slices}, columns, PREVIEW_ROWS)
        metadata["preview"] = preview(rows, columns)
    return metadata, None if version is None else str(version)
