"""Pages of a set that were parsed already, from the same records and by the same parser: they stay as they are.

So a member that comes costs its own pages. Only pages that were parsed in full are kept; what failed is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.extraction.slice import PARSE, Slice
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.lake.streaming import stream_rows, stream_slices
from cc_pipeline.records.places import PLACE_NAME, Places, PlacesFound
from cc_pipeline.stages.workspace import Workspace


class PagesBefore:
    """The pages of slices of sets (of one crawl, about to be parsed again) that can be kept. Of other slices there are
    none: their captures change only with the index."""

    def __init__(self, workspace: Workspace, slices: Mapping[Slice, str], options: ParseOptions) -> None:
        self._workspace = workspace
        self._by = input_digest({"parser": PARSER_VERSION, "main_content": options.main_content})
        self._sets = [slice_ for slice_ in slices if slice_.target.startswith(SET_SLUG)]
        self._crawl = next((slice_.crawl for slice_ in self._sets), "")
        self._there = self._places(self._same_parser())
        self._kept: dict[str, PlacesFound] = {}

    def take(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Those of ``records`` that are to be parsed. The pages of the others are kept: of all that were there, those
        whose records are given here."""
        if not self._there:
            return records
        kept = pc.and_(_among(records, self._there), pc.equal(records.column("outcome"), "fetched"))
        _collect(records.filter(kept), self._kept)
        return records.filter(pc.invert(kept))

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a page table that are kept, in its schema; call it when all records were taken."""
        schema = self._workspace.lake.specs[table].schema
        names = [name for name in schema.names if name != "crawl"]
        kept = {target: places.places() for target, places in self._kept.items()}
        for batch in stream_slices(self._workspace.lake, table, self._crawl, [*kept], names):
            own = pa.Table.from_batches([batch.filter(_among(batch, kept))])
            if own.num_rows:
                crawl = pa.repeat(pa.scalar(self._crawl, pa.string()), own.num_rows)
                whole = own.append_column("crawl", crawl).select(schema.names).cast(schema)
                yield from whole.combine_chunks().to_batches()

    def beside(self) -> dict[str, dict[str, str]]:
        """Digests to keep with the pages, by table: what they were parsed with."""
        return {PARSE.main_table: {_name(slice_): self._by for slice_ in self._sets}} if self._sets else {}

    def _same_parser(self) -> list[str]:
        """The targets whose pages are whole and were all made with this parser and these options."""
        lake = self._workspace.lake
        by = lake.digests(PARSE.main_table, [_name(slice_) for slice_ in self._sets])
        mine = [slice_ for slice_ in self._sets if by[_name(slice_)] == self._by]
        return [slice_.target for slice_, digest in PARSE.made_from(lake, mine).items() if digest is not None]

    def _places(self, targets: list[str]) -> dict[str, Places]:
        where = {"crawl": self._crawl, "target": targets}
        columns = ["target", "disposition", "source_kind", "parser_version", *PLACE_NAME]
        found: dict[str, PlacesFound] = {}
        for batch in stream_rows(self._workspace.lake, PARSE.main_table, where, columns):
            sound = pc.and_(
                pc.equal(batch.column("disposition"), "SUCCESS"),
                pc.and_(
                    pc.equal(batch.column("parser_version"), PARSER_VERSION),
                    pc.equal(batch.column("source_kind"), "records"),
                ),
            )
            _collect(batch.filter(pc.fill_null(sound, False)), found)
        return {target: places.places() for target, places in found.items()}


def _collect(rows: pa.RecordBatch, found: dict[str, PlacesFound]) -> None:
    """Adds the places of ``rows`` to those of their targets."""
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        found.setdefault(target, PlacesFound()).add(rows.filter(pc.equal(targets, target)))


def _among(rows: pa.RecordBatch, places: Mapping[str, Places]) -> pa.Array:
    """For each of ``rows`` whether its place is one of its target's."""
    mask = pa.array([False] * rows.num_rows, pa.bool_())
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        if target in places:
            mask = pc.or_(mask, pc.and_(pc.equal(targets, target), places[target].among(rows)))
    return mask


def _name(slice_: Slice) -> str:
    return f"parsed_with:{slice_.crawl}:{slice_.target}"
