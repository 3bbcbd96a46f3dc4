"""The state of stored targets that an export tells of: its rows and its documents come from one state, of a published
file or of the lake, so they cannot disagree while runs commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.quoting import is_one_of
from cc_pipeline.lake.slice import FETCH, HARVEST, LOCATE, MANIFEST, PARSE, Slice
from cc_pipeline.lake.slices import SLICES_SCHEMA, SliceRow, parse_rows, stream_slice_rows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import build_targets
from cc_pipeline.publish.views import WHOLE_TARGET
from cc_pipeline.workspace.workspace import Workspace

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Tables whose versions documents name.
_TABLES: Final = ("captures", "records", "page_text")
#: Stages of crawls and lookups; with those of the rows of records.
_STAGES: Final = (MANIFEST, HARVEST, LOCATE)
_BATCH_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is stored of ``targets``, by slug: those that were named, sets with their members, or all (``is_all``).
    ``slice_rows`` are the rows of ``slices`` of their lookups and of crawls; those of the lake have the fetched and
    parsed slices too. ``versions`` are of the lake's tables, ``published`` is the time of the publication."""

    targets: Mapping[str, Target]
    slice_rows: Iterable[SliceRow]
    versions: Mapping[str, int]
    is_all: bool = False
    published: datetime | None = None

    def count_rows(self, table: str) -> dict[str, int]:
        """The rows of the targets in ``table`` by crawl, without crawls that have none."""
        counts: dict[str, int] = {}
        for row in self.slice_rows:
            if row.slice_.target and (stored := row.tables.get(table)) is not None and stored.rows:
                counts[row.slice_.crawl] = counts.get(row.slice_.crawl, 0) + stored.rows
        return counts

    def stream(
        self,
        lake: Lake,
        table: str,
        crawl: str,
        columns: Sequence[str],
        slices: Collection[Slice] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """``columns`` (numbers and names) of the rows of the targets, or of ``slices``, in a crawl, in no order.

        Raises ``EnvironmentFault`` if the lake cannot be read; and at the end, if it has other rows than the state.
        """
        states = {
            row.slice_.target: row.tables[table]
            for row in self.slice_rows
            if row.slice_.crawl == crawl and row.slice_.target and table in row.tables
            if slices is None or row.slice_ in slices
        }
        missing = sum(state.rows for state in states.values())
        generations = [state.generation for state in states.values()]
        for batch in stream_rows(lake, table, {"crawl": crawl, "target": [*states]}, columns, generations):
            missing -= batch.num_rows
            yield batch
        # superseded rows are dropped after an hour, and an export may take longer
        if missing:
            raise EnvironmentFault(
                f"the rows of {table} in {crawl} changed or are missing", "Run cc-pipeline doctor, then export again."
            )


def read_lake_state(workspace: Workspace, targets: Sequence[Target], crawls: Sequence[str] = ()) -> StoredState:
    """The current state of ``targets`` in ``crawls`` (none: all). Raises ``EnvironmentFault`` if the lake cannot be
    read."""
    lake = workspace.lake
    by_slug = {target.slug: target for target in targets}
    by_slug |= workspace.targets(_list_unread_sets(by_slug))
    slugs = [part for parts in workspace.rows_of([*by_slug]).values() for part in parts]
    # rows of crawls have no target
    where: dict[str, Any] = {"target": [*slugs, ""]} | ({"crawl": list(crawls)} if crawls else {})
    rows = [*stream_slice_rows(lake, (*_STAGES, FETCH, PARSE), where, details=True)]
    # the tables after the slices: they have all rows of these
    versions = {table: lake.version(table) for table in _TABLES}
    return StoredState(by_slug, rows, {table: version for table, version in versions.items() if version >= 0})


def read_published_state(
    connection: DuckDBPyConnection, targets: Sequence[Target] = (), crawls: Sequence[str] = ()
) -> StoredState:
    """The state of ``targets`` (none: all) in ``crawls`` (none: all) that a published file shows. The rows of slices
    are read once, as they are needed. Raises ``duckdb.Error``, and ``EnvironmentFault`` for a file of another
    version."""
    by_slug = {target.slug: target for target in targets}
    stored_rows = _read_definitions(connection)
    wanted = _list_unread_sets(by_slug) if targets else sorted({*map(whole_slug, stored_rows)})
    by_slug |= build_targets(
        [slug for slug in wanted if slug in stored_rows or not targets],
        stored_rows,
        lambda slugs: {slug: stored_rows[slug]["definition"] for slug in slugs if slug in stored_rows},
    )
    published = connection.execute(
        f"SELECT table_name, version, published_at FROM main.publication WHERE {is_one_of('table_name', _TABLES)}"
    ).fetchall()
    return StoredState(
        by_slug,
        _stream_published_rows(connection, [*by_slug] if targets else [], crawls),
        {table: version for table, version, _ in published if version >= 0},
        not targets,
        max((moment for *_, moment in published), default=None),
    )


def _list_unread_sets(targets: Mapping[str, Target]) -> list[str]:
    """The sets that are given by their names alone: captures are counted by member."""
    return [slug for slug, target in targets.items() if target.kind == "set" and not target.members]


def _read_definitions(connection: DuckDBPyConnection) -> dict[str, dict[str, Any]]:
    rows = connection.execute("SELECT slug, definition, parts FROM lake.targets").fetchall()
    return {slug: {"definition": definition, "parts": parts} for slug, definition, parts in rows}


def _stream_published_rows(
    connection: DuckDBPyConnection, slugs: Sequence[str], crawls: Sequence[str]
) -> Iterator[SliceRow]:
    conditions = [is_one_of("stage", [stage.label for stage in _STAGES])]
    conditions += [f"(target = '' OR {is_one_of(WHOLE_TARGET, slugs)})"] if slugs else []
    conditions += [is_one_of("crawl", crawls)] if crawls else []
    columns = ", ".join(SLICES_SCHEMA.names)
    query = f"SELECT {columns} FROM lake.slices ANTI JOIN lake.left_out USING (crawl, target, epoch)"
    reader = connection.sql(f"{query} WHERE {' AND '.join(conditions)}").to_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        yield from parse_rows(pa.Table.from_batches([batch]))
