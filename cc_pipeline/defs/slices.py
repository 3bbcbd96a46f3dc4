"""How an asset over crawl × domain runs: many partitions at once, one call of its stage per crawl.

Belongs here: the loop all such assets share, progress in a run's log. Not here: what a stage does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.internals import attach_metadata
from cc_pipeline.defs.metadata import PREVIEW_ROWS, figures, preview, stage_metadata
from cc_pipeline.defs.partitions import by_crawl, partition_key
from cc_pipeline.errors import Incomplete
from cc_pipeline.lake.streaming import first_rows
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

#: A run over more partitions than this makes no previews, because each is read back from the lake.
_PREVIEWED_PARTITIONS = 10

Stage = Callable[[Workspace, str, Sequence[str]], StageReport]


def materialize_slices(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, shown: Mapping[str, Sequence[str]]
) -> Iterator[dg.MaterializeResult[None]]:
    """Runs ``stage`` for every (crawl, targets) of the run and gives one result per asset.

    ``shown`` maps each table (= asset) to the columns of its preview; an empty list means all columns.
    Where the source did not give everything of a crawl, the others are made first; then it raises ``Incomplete``.
    """
    keys = list(context.partition_keys)
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    tables = [table for table in shown if table in selected]
    incomplete: Incomplete | None = None
    with logged_progress(context.log):
        for crawl, slugs in by_crawl(keys).items():
            try:
                report = stage(workspace, crawl, slugs)
            except Incomplete as error:
                context.log.warning(f"{crawl}: {error}")
                incomplete = incomplete or error
                continue
            for slug in slugs:
                for table in tables:
                    metadata = _partition_metadata(workspace, report, table, crawl, slug, shown[table], len(keys))
                    attach_metadata(context, metadata, table, partition_key(crawl, slug))
    if incomplete is not None:
        raise incomplete
    for table in tables:
        yield dg.MaterializeResult(asset_key=table)


def _partition_metadata(
    workspace: Workspace,
    report: StageReport,
    table: str,
    crawl: str,
    slug: str,
    columns: Sequence[str],
    partitions: int,
) -> dict[str, dg.MetadataValue]:
    own = dict(report.per_target.get(slug, {}))
    rows = own.pop(f"rows:{table}", None)
    metadata = stage_metadata(report, rows=int(rows) if rows is not None else None)
    metadata |= figures({name: value for name, value in own.items() if not name.startswith("rows:")})
    if partitions <= _PREVIEWED_PARTITIONS:
        schema = workspace.lake.specs[table].schema
        names = [name for name in columns or schema.names if name in schema.names]
        slices = workspace.parts([slug])[slug]
        rows = first_rows(workspace.lake, table, {"crawl": crawl, "target": slices}, names, PREVIEW_ROWS)
        metadata["preview"] = preview(rows, names)
    return metadata
