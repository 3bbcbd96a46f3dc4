"""Adds captures to a name, each location once and with flat memory. The captures of a file are compared with the
existing ones; existing ones are changed or removed only on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE_ORDER
from cc_pipeline.commoncrawl.slice_slugs import with_subset
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.content_digests import NOTHING, compute_content_digests, compute_input_digest, hash_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.ordered import OrderedRows, complete_groups, find_group_starts
from cc_pipeline.lake.predicates import Prefix
from cc_pipeline.lake.slice import NAMED_CAPTURES, Slice, group_targets_by_crawl
from cc_pipeline.lake.slices import (
    Base,
    SliceRow,
    SlicesChanged,
    commit_stage,
    list_slices,
    read_epochs,
    read_slice_rows,
)
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import define_named_captures
from cc_pipeline.workspace.schemas import CAPTURES_SCHEMA

_TABLE: Final = "named_captures"
#: Whether a row is of the file (1) or existed before (0). If both have a location, the existing row is kept, unless it
#: is replaced.
_NEW: Final = pa.field("new", pa.int8(), nullable=False)
_SCHEMA: Final = pa.schema([*CAPTURES_SCHEMA, _NEW])
#: The last row of the file for a location is used, so one with a length, whatever the order of the file.
_ORDER: Final = (*CAPTURE_ORDER, _NEW.name, "warc_record_length", "url")
#: Maximum bytes of a crawl's rows in memory: a file may have captures of all crawls.
_IN_MEMORY: Final = 4 << 20


@dataclass(slots=True)
class Counts:
    """Numbers of locations in a crawl: existing ones (``earlier``), those of them that the file has too (``matched``),
    those of these with other values (``changed``), and ``new`` ones of the file. ``repeats`` are rows that repeat a
    location."""

    earlier: int = 0
    matched: int = 0
    changed: int = 0
    new: int = 0
    repeats: int = 0

    @property
    def unmatched(self) -> int:
        """The number of existing locations that the file does not have."""
        return self.earlier - self.matched

    def __add__(self, addend: Counts) -> Counts:
        return Counts(
            self.earlier + addend.earlier,
            self.matched + addend.matched,
            self.changed + addend.changed,
            self.new + addend.new,
            self.repeats + addend.repeats,
        )


class Adding:
    """The captures of one name, and those to be added. ``replace``: the captures of the file replace the existing ones.
    ``folder`` is deleted by the caller. Raises ``EnvironmentFault`` if its files or the lake cannot be written or
    read."""

    def __init__(self, lake: Lake, target: Target, folder: Path, *, replace: bool = False) -> None:
        self._lake = lake
        self._target = target
        self._folder = folder
        self._replace = replace
        self._rows: dict[str, OrderedRows] = {}
        #: The existing slices, read before their rows.
        self._stored = self._read_stored()
        for crawl, targets in group_targets_by_crawl(self._stored).items():
            numbers = [self._stored[Slice(crawl, target)].tables[_TABLE].generation for target in targets]
            for batch in stream_rows(lake, _TABLE, {"crawl": crawl, "target": targets}, generations=numbers):
                self._store_rows(crawl, pa.Table.from_batches([batch]), new=0)

    def add(self, captures: pa.Table) -> None:
        """Adds captures (``CAPTURE_SCHEMA``) of any crawls."""
        for crawl in pc.unique(captures["crawl"]).to_pylist():
            crawl_captures = captures.filter(pc.equal(captures["crawl"], crawl))
            subsets = crawl_captures["subset"].to_pylist()
            targets = pa.array([with_subset(self._target.slug, subset) for subset in subsets], pa.string())
            self._store_rows(crawl, crawl_captures.add_column(0, CAPTURES_SCHEMA.field("target"), targets), new=1)

    def _store_rows(self, crawl: str, rows: pa.Table, *, new: int) -> None:
        if crawl not in self._rows:
            self._rows[crawl] = OrderedRows(_SCHEMA, _ORDER, self._folder, _IN_MEMORY)
        flag = pa.repeat(pa.scalar(new, _NEW.type), rows.num_rows)
        self._rows[crawl].add(rows.select(CAPTURES_SCHEMA.names).append_column(_NEW, flag).cast(_SCHEMA))

    def counts(self) -> dict[str, Counts]:
        """Counts the locations by crawl. Call it after all captures were added."""
        counts_by_crawl = {}
        excluded_columns = self._lake.specs[_TABLE].provenance_columns
        for crawl, rows in sorted(self._rows.items()):
            crawl_counts = Counts()
            for places, first, last in _by_place(rows):
                is_new = np.asarray(places.column(_NEW.name))
                is_old, is_from_file = is_new[first] == 0, is_new[last] == 1
                is_matched = is_old & is_from_file
                crawl_counts.earlier += int(is_old.sum())
                crawl_counts.matched += int(is_matched.sum())
                row_digests = [
                    hash_rows(places.take(pa.array(rows[is_matched])), (_NEW.name, *excluded_columns))
                    for rows in (first, last)
                ]
                crawl_counts.changed += int((row_digests[0] != row_digests[1]).sum())
                crawl_counts.new += int((~is_old).sum())
                crawl_counts.repeats += int(is_new.sum()) - int(is_from_file.sum())
            counts_by_crawl[crawl] = crawl_counts
        return counts_by_crawl

    def commit(self) -> None:
        """Commits the captures of each crawl that changed, then the version of the target.

        If it was killed between two crawls, the same call continues there. Raises ``EnvironmentFault`` if another
        process changed the captures since they were read.
        """
        define_named_captures(self._lake, self._target)  # its slices have the epoch of a definition
        excluded_columns = (*self._lake.specs[_TABLE].provenance_columns, "crawl")
        contents = {f"{slice_.crawl}:{slice_.target}": row.content for slice_, row in self._stored.items()}
        for crawl in sorted(self._rows):
            content_digests = compute_content_digests(self._batches(crawl), "target", excluded_columns)
            slices = {slice_ for slice_ in self._stored if slice_.crawl == crawl}
            slices |= {Slice(crawl, target) for target in content_digests}
            inputs = {slice_: {"rows": content_digests.get(slice_.target, NOTHING)} for slice_ in sorted(slices)}
            if any(slice_ not in self._stored or self._stored[slice_].input != item for slice_, item in inputs.items()):
                replaced = {slice_: self._stored[slice_] for slice_ in slices if slice_ in self._stored}
                base = Base(read_epochs(self._lake, slices), replaced)
                try:
                    commit_stage(self._lake, NAMED_CAPTURES, inputs, {_TABLE: self._batches(crawl)}, base=base)
                except SlicesChanged as error:
                    raise EnvironmentFault(
                        f"another process changed {self._target.definition} meanwhile, so not all captures of the "
                        "file were added",
                        "The captures of the other process are kept. Run the command again.",
                    ) from error
            contents |= {f"{slice_.crawl}:{slice_.target}": item["rows"] for slice_, item in inputs.items()}
        define_named_captures(self._lake, self._target, version_of(compute_input_digest({"captures": contents})))

    def _read_stored(self) -> dict[Slice, SliceRow]:
        where = {"target": Prefix(self._target.slug)}
        slices = [
            slice_
            for slice_ in list_slices(self._lake, NAMED_CAPTURES, where)
            if slice_.partition.target == self._target.slug
        ]
        rows = read_slice_rows(self._lake, slices, (NAMED_CAPTURES,))
        return {slice_: row for (slice_, _), row in rows.items()}

    def _batches(self, crawl: str) -> Iterator[pa.RecordBatch]:
        """Yields the final rows of a crawl, in the order of their table."""
        for places, first, last in _by_place(self._rows[crawl]):
            is_new = np.asarray(places.column(_NEW.name))
            stay = last[is_new[last] == 1] if self._replace else np.where(is_new[first] == 1, last, first)
            yield places.take(pa.array(stay)).select(CAPTURES_SCHEMA.names)


def list_named_captures(lake: Lake) -> Mapping[str, dict[str, list[Slice]]]:
    """Returns the slices of all named captures, by slug and by crawl."""
    slices_by_slug: dict[str, dict[str, list[Slice]]] = {}
    for slice_ in list_slices(lake, NAMED_CAPTURES):
        slices_by_slug.setdefault(slice_.partition.target, {}).setdefault(slice_.crawl, []).append(slice_)
    return slices_by_slug


def _by_place(rows: OrderedRows) -> Iterator[tuple[pa.RecordBatch, Any, Any]]:
    """Yields rows with complete locations, and the numbers of the first and the last row of each location."""
    for places in complete_groups(rows.batches(), CAPTURE_ORDER):
        first = find_group_starts(places, CAPTURE_ORDER)
        yield places, first, np.append(first[1:] - 1, places.num_rows - 1)
