"""Parsing: from stored records to metadata, text, links and feed items, one pass, four commits.

``page_metadata`` is committed last. A slice is complete only when all four tables have the same digest. After a run
was killed between two commits the digests differ, and publishing leaves the slice out (see stages/publish).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, ToParse
from cc_pipeline.extraction.expanding import over_parts
from cc_pipeline.extraction.held import gone, slices_that_lost
from cc_pipeline.extraction.pages_before import PagesBefore
from cc_pipeline.extraction.paging import options_of
from cc_pipeline.extraction.slice import (
    FETCH,
    PAGE_TABLES,
    PARSE,
    Figures,
    Slice,
    StageReport,
    slices_of,
    targets_by_crawl,
)
from cc_pipeline.keys import CAPTURE_ORDER
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.stages.workspace import Workspace


@over_parts(PARSE)
def parse_records(workspace: Workspace, crawl: str, slugs: Sequence[str], *, engine: Engine = LOCAL) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables, where ``engine`` does; unchanged inputs
    stay.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake cannot be
    read or written, ``UserInputError`` where other homes on it parse otherwise, and, once the other slices are
    committed, ``EnvironmentFault`` for slices whose stored bytes are gone: their pages would say of records that were
    fetched that they are missing.
    """
    started = time.monotonic()
    wanted, stale = to_parse(workspace, crawl, slugs)
    lost = slices_that_lost(workspace, stale)
    if sound := {slice_: wanted[slice_] for slice_ in stale if slice_ not in lost}:
        workspace.choose()
        _parse(workspace, crawl, sound, engine)
    if lost:
        raise gone(crawl, lost)
    return PARSE.report(page_figures(workspace, wanted.keys()), stale, started)


def to_parse(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> tuple[dict[Slice, str], list[Slice]]:
    """The digest that each of the fetched slices ``slugs`` would get, and those that are to be parsed. Raises
    ``EnvironmentFault`` for slices that were never fetched."""
    wanted = _digests(workspace, slices_of(crawl, slugs))
    return wanted, PARSE.stale(workspace.lake, wanted)


def is_behind(workspace: Workspace, slices: Collection[Slice]) -> set[Slice]:
    """Those of ``slices`` that parsing would make again, because their records are others than they were made from."""
    fetched = FETCH.made_from(workspace.lake, slices)
    known = [slice_ for slice_ in slices if fetched[slice_] is not None]
    stale = PARSE.stale(workspace.lake, _digests(workspace, known))
    return {*stale, *(slice_ for slice_ in slices if fetched[slice_] is None)}


def parse_options(workspace: Workspace) -> ParseOptions:
    """How this workspace's settings want pages parsed."""
    return options_of(workspace.settings)


def _parse(workspace: Workspace, crawl: str, made_from: Mapping[Slice, str], engine: Engine) -> None:
    where = {"crawl": crawl, "target": [slice_.target for slice_ in made_from]}
    with workspace.scratch_folder("parse") as folder:
        before = PagesBefore(workspace, made_from, parse_options(workspace))
        records = (before.take(batch) for batch in stream_rows(workspace.lake, "records", where))
        engine.parse(workspace, ToParse(crawl, made_from, records, before, folder))


def _digests(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, str]:
    options = parse_options(workspace)
    fetched = FETCH.made_from(workspace.lake, slices)
    outcomes = _outcomes(workspace, slices)
    for slice_, digest in fetched.items():
        if digest is None:
            raise EnvironmentFault(
                f"{whole_slug(slice_.target)} in {slice_.crawl} has not been fetched", "Materialize records first."
            )
    return {
        slice_: PARSE.digest(
            parser=PARSER_VERSION,
            # a word more only where Markdown is asked for: without it the digest stays what it was
            main_content=f"{options.main_content} markdown" if options.markdown else options.main_content,
            fetched=digest,
            outcomes=outcomes[slice_],
        )
        for slice_, digest in fetched.items()
    }


def _outcomes(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, str]:
    """The outcomes of each target's captures: a replay changes these, and not the digest of the fetch."""
    digests = {slice_: hashlib.sha256() for slice_ in slices}
    columns = [*CAPTURE_ORDER, "outcome"]
    for crawl, targets in targets_by_crawl(slices).items():
        with workspace.scratch_folder("outcomes") as folder:
            rows = OrderedRows(pa.schema([RECORD_SCHEMA.field(name) for name in columns]), columns, folder)
            for batch in stream_rows(workspace.lake, "records", {"crawl": crawl, "target": targets}, columns):
                rows.add(batch)
            for batch in rows.batches():
                for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    digests[Slice(crawl, row[0])].update(repr([*row]).encode())
    return {slice_: digest.hexdigest()[:16] for slice_, digest in digests.items()}


def page_figures(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, Figures]:
    """``rows:<table>`` and ``version:<table>`` of every page table for each slice."""
    figures: dict[Slice, Figures] = {slice_: {f"rows:{table}": 0 for table in PAGE_TABLES} for slice_ in slices}
    for crawl, targets in targets_by_crawl(slices).items():
        for table in PAGE_TABLES:
            counts = count_rows(workspace.lake, table, {"crawl": crawl, "target": targets}, ["target"])
            for (target,), count in counts.items():
                figures[Slice(crawl, target)][f"rows:{table}"] = count
    for slice_, versions in PARSE.versions(workspace.lake, slices).items():
        figures[slice_] |= versions
    return figures
