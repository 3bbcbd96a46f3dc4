"""A slice, the unit of a stage: its name, and the report of a stage over some slices.

A slice is a crawl, a target in a crawl, or a file read whole. Its state is a row of the table ``slices``
(``slices.py``).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from cc_pipeline.commoncrawl.slice_slugs import defined_slug, subset_of, whole_slug

#: The tables of parsed pages; ``page_metadata`` has a row for each.
PAGE_TABLES: Final = ("page_text", "page_links", "feed_items", "page_metadata")

Metrics: TypeAlias = dict[str, int | float | str]
#: Prefix of a metric's name before that of a table: the content digest of the slice's rows in that table.
VERSION: Final = "version:"


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """One target in one crawl; ``target`` is empty if a stage makes the whole crawl at a time. Parts of a set, and
    captures of a subset other than ``warc``, are slices of their own (``commoncrawl/slice_slugs.py``)."""

    crawl: str
    target: str = ""

    @property
    def where(self) -> dict[str, str]:
        """The values of the slice columns, as the lake takes them."""
        return {"crawl": self.crawl} | ({"target": self.target} if self.target else {})

    @property
    def partition(self) -> Slice:
        """The partition of the slice."""
        return Slice(self.crawl, whole_slug(self.target))

    @property
    def definition_slug(self) -> str:
        """The slug of the target or part whose definition the slice follows."""
        return defined_slug(self.target)

    @property
    def subset(self) -> str:
        """The subset of the slice."""
        return subset_of(self.target)


def slices_of(crawl: str, targets: Iterable[str]) -> list[Slice]:
    """The slices of ``targets`` in ``crawl``, in their order."""
    return [Slice(crawl, target) for target in targets]


def group_targets_by_crawl(slices: Iterable[Slice]) -> dict[str, list[str]]:
    """The targets of each crawl, in the order given: the lake is read once a crawl."""
    grouped: dict[str, list[str]] = {}
    for slice_ in slices:
        grouped.setdefault(slice_.crawl, []).append(slice_.target)
    return grouped


def group_by_partition(slices: Iterable[Slice]) -> dict[Slice, list[Slice]]:
    """The slices of each partition, in the order given."""
    grouped: dict[Slice, list[Slice]] = {}
    for slice_ in slices:
        grouped.setdefault(slice_.partition, []).append(slice_)
    return grouped


@dataclass(frozen=True, slots=True)
class StageReport:
    """The metrics of one stage over some slices; everything it counts has been committed.

    ``rows`` are rows now in the table for the slices asked for, ``written`` those written by this call (0 when the
    inputs were already there). ``bytes`` and ``requests`` were spent on the source, ``seconds`` in the stage.
    ``per_target`` maps a slug to its own metrics (for per-partition metadata); ``written:TABLE`` among them are the
    rows of a table that this call wrote.
    """

    stage: str
    rows: int
    written: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    fresh_slices: int = 0
    reused_slices: int = 0
    notes: tuple[str, ...] = ()
    per_target: dict[str, Metrics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: it makes slices of some ``tables``, of which the last has a row for each unit of work. ``label`` is its
    name in ``slices``."""

    label: str
    tables: tuple[str, ...]

    @property
    def main_table(self) -> str:
        """The table with a row for each unit of work."""
        return self.tables[-1]

    def report(
        self,
        metrics: Mapping[Slice, Metrics],
        fresh: Collection[Slice],
        started: float,
        *,
        bytes: int = 0,
        requests: int = 0,
        notes: tuple[str, ...] = (),
        counted_tables: Sequence[str] = (),
    ) -> StageReport:
        """The report of the stage: ``metrics`` of every slice asked for, ``fresh`` ones made since ``started``.

        ``counted_tables`` are the tables whose rows are added up (default: the main one).
        """
        # Arrow keeps freed memory for new rows, and the next stage needs memory of other kinds
        pa.default_memory_pool().release_unused()
        names = [f"rows:{table}" for table in counted_tables or (self.main_table,)]
        fresh_slices = set(fresh)
        return StageReport(
            self.label,
            rows=sum(int(slice_metrics[name]) for slice_metrics in metrics.values() for name in names),
            written=sum(int(metrics[slice_][name]) for slice_ in fresh for name in names),
            bytes=bytes,
            requests=requests,
            seconds=time.monotonic() - started,
            fresh_slices=len(fresh),
            reused_slices=len(metrics) - len(fresh),
            notes=notes,
            per_target={
                slice_.target: slice_metrics | count_written(slice_metrics, slice_ in fresh_slices)
                for slice_, slice_metrics in metrics.items()
            },
        )


def count_written(metrics: Metrics, is_fresh: bool) -> Metrics:
    """``written:TABLE`` for each ``rows:TABLE`` of a slice: all rows if it was made now, else 0."""
    rows = {name.removeprefix("rows:"): count for name, count in metrics.items() if name.startswith("rows:")}
    return {f"written:{table}": count if is_fresh else 0 for table, count in rows.items()}


MANIFEST: Final = Stage("manifest", ("index_manifest",))
HARVEST: Final = Stage("row_groups", ("row_groups",))
#: Captures that a person named one by one, before a target has them.
NAMED_CAPTURES: Final = Stage("given", ("named_captures",))
LOCATE: Final = Stage("locate", ("captures",))
FETCH: Final = Stage("fetch", ("records",))
PARSE: Final = Stage("parse", PAGE_TABLES)
#: An archive file that is indexed here: its unreadable parts.
BUILT: Final = Stage("built index", ("source_faults",))
#: A file read whole: its partition key is the ``target`` of its rows, and is unique without the crawl.
READ_FILES: Final = Stage("sources", ("source_faults", *PAGE_TABLES))
