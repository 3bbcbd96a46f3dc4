"""The format ``wacz`` of ``export``: the stored records of some targets, with an index and a list of pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline.advice import ANY, advise, option
from cc_pipeline.capture_columns import CAPTURE, NO_STATUS
from cc_pipeline.commoncrawl.target_text import text_of_key
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.export.files import (
    ExportedTable,
    open_scratch_folder,
    refuse_empty,
    whole_file,
    write_export_documents,
)
from cc_pipeline.export.format import RecordsRequest, Written
from cc_pipeline.export.stored_state import StoredState
from cc_pipeline.export.wacz import Page, Wacz, write_wacz
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

_ORDER = ("warc_filename", "warc_record_offset", "outcome")
_PAGE = ("warc_filename", "warc_record_offset", "url", "fetch_time", "fetch_status", "title", "text_type")
_GOOD = range(200, 300)


@dataclass(slots=True)
class _OutcomeCounts:
    """The numbers of planned captures by outcome, and of exported records by crawl."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crawls: Counter[str] = field(default_factory=Counter)

    @property
    def planned(self) -> int:
        """The number of all planned captures."""
        return sum(self.outcomes.values())


def write_wacz_export(request: RecordsRequest) -> Written:
    """Writes the stored records of targets to a WACZ file, with its documents. Memory stays constant.

    Planned captures that are missing become the error of the result. Raises ``EnvironmentFault`` if nothing of the
    targets is stored, and if lake or disk fail.
    """
    out = request.out
    with open_scratch_folder(out) as scratch, whole_file(out) as path:
        wacz, ledger = _write_wacz(request.workspace, request.state, request.crawls, path, scratch)
        if not wacz.records:
            refuse_empty(out)
    lost = {name: count for name, count in ledger.outcomes.items() if name != "fetched"}
    if wacz.left_out:
        lost["left out"] = wacz.left_out
    loss_counts = ", ".join(f"{count:,} {name}" for name, count in sorted(lost.items()))
    note = f"{format_count(ledger.planned, 'capture', 'were')} planned, {wacz.records:,} fetched" + (
        f"; {loss_counts}" if lost else ""
    )
    delivered_table = ExportedTable("records", wacz.records, ledger.crawls, note=note)
    left_out_section = (
        "## Left out\n\n" + "\n".join(f"- {left_out}" for left_out in wacz.examples) if wacz.examples else ""
    )
    files = write_export_documents(
        out, request.description, request.provenance, [delivered_table], [out], left_out_section
    )
    notes = (
        f"{note}; {format_count(wacz.pages, 'page', 'are')} listed",
        *(f"left out: {left_out}" for left_out in wacz.examples),
    )
    incomplete = Incomplete(
        f"{out} lacks {sum(lost.values()):,} of {ledger.planned:,} planned captures ({loss_counts})",
        advise(
            "run",
            _name_targets(request.state),
            crawl=request.crawls,
            subset=sorted({row.slice_.subset for row in request.state.slice_rows if row.slice_.target}),
            refetch=True,
            sentence=f"Fetch them again: {{}}, then export again. Or accept it: {option(allow_missing=True)}",
        ),
    )
    rows = tuple(sorted(ledger.crawls.items(), reverse=True))
    return Written(files, ("crawl", "records"), rows, notes, incomplete if lost else None)


def _name_targets(state: StoredState) -> str:
    """Returns the target in a command; ``…`` for several, which may be thousands."""
    return text_of_key(next(iter(state.targets))) if len(state.targets) == 1 else ANY


def _write_wacz(
    workspace: Workspace, state: StoredState, crawls: Sequence[str], path: Path, scratch: Path
) -> tuple[Wacz, _OutcomeCounts]:
    ledger = _OutcomeCounts()
    names = ", ".join(target.definition for target in state.targets.values())
    wacz = write_wacz(
        path,
        _records(workspace, crawls, state, ledger, scratch),
        _pages(workspace, crawls, state, scratch),
        workspace.storage,
        scratch,
        title=f"{names} in {', '.join(crawls)}"[:500],
        description=f"Records of Common Crawl, {', '.join(crawls)}, selected by {names}"[:2000],
        address=workspace.address_of,
    )
    if not ledger.planned:
        raise EnvironmentFault(
            f"this home has no captures of {names}" + (f" in {', '.join(crawls)}" if crawls else ""),
            advise(
                "run",
                _name_targets(state),
                crawl=crawls or "newest",
                sentence="Fetch them first: {}",
            ),
        )
    return wacz, ledger


def _records(
    workspace: Workspace, crawls: Sequence[str], state: StoredState, ledger: _OutcomeCounts, scratch: Path
) -> Iterator[Mapping[str, Any]]:
    """Yields each fetched capture once, in the order of the files. The ledger counts the other captures too."""
    schema = workspace.lake.specs["records"].schema
    for crawl in crawls:
        rows = OrderedRows(schema, _ORDER, scratch)
        for batch in state.stream(workspace.lake, "records", crawl, schema.names):
            rows.add(batch)
        previous_place: tuple[Any, ...] | None = None
        for batch in rows.batches():
            for row in batch.to_pylist():
                place = tuple(row[name] for name in CAPTURE)
                # The fetched row comes first if a capture has rows of several targets.
                if place == previous_place:
                    continue
                previous_place = place
                ledger.outcomes[row["outcome"]] += 1
                if row["outcome"] == "fetched":
                    ledger.crawls[crawl] += 1
                    yield row


def _pages(workspace: Workspace, crawls: Sequence[str], state: StoredState, scratch: Path) -> Iterator[Page]:
    schema = pa.schema([workspace.lake.specs["page_text"].schema.field(name) for name in _PAGE])
    for crawl in crawls:
        rows = OrderedRows(schema, ("warc_filename", "warc_record_offset"), scratch)
        for batch in state.stream(workspace.lake, "page_text", crawl, _PAGE):
            rows.add(batch)
        previous_place: tuple[Any, ...] | None = None
        for batch in rows.batches():
            for row in batch.to_pylist():
                place = (row["warc_filename"], row["warc_record_offset"])
                if place == previous_place or row["fetch_time"] is None or row["text_type"] != "html" or not row["url"]:
                    continue
                previous_place = place
                if row["fetch_status"] in (None, NO_STATUS) or row["fetch_status"] in _GOOD:
                    yield Page(row["url"], row["fetch_time"], row["title"])
