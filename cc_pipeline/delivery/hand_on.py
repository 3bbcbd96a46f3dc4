"""What a home has of some targets, handed on in files that need neither the home nor this pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE, NO_STATUS
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.delivery.wacz import Page, Wacz, write_wacz
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.streaming import count_rows, stream_rows, stream_slices
from cc_pipeline.pagefiles.export import EXPORT_KINDS, export_slices
from cc_pipeline.workspace.workspace import Workspace, export_prefix

_ORDER = ("warc_filename", "warc_record_offset", "outcome")
_PAGE = ("warc_filename", "warc_record_offset", "url", "fetch_time", "fetch_status", "title", "text_type")
_GOOD = range(200, 300)


@dataclass(slots=True)
class Ledger:
    """What became of the planned captures of what is handed on: outcomes, and records by crawl."""

    outcomes: Counter[str] = field(default_factory=Counter)
    crawls: Counter[str] = field(default_factory=Counter)

    @property
    def planned(self) -> int:
        """All captures that were planned."""
        return sum(self.outcomes.values())


def crawls_with_records(workspace: Workspace, targets: Sequence[Target]) -> list[str]:
    """Crawls of which the home has planned captures of ``targets``, newest first."""
    slugs = [part for own in workspace.rows_of([target.slug for target in targets]).values() for part in own]
    return sorted({crawl for (crawl,) in count_rows(workspace.lake, "records", {"target": slugs}, ["crawl"])})[::-1]


def hand_on_wacz(
    workspace: Workspace, targets: Sequence[Target], crawls: Sequence[str], path: Path, scratch: Path
) -> tuple[Wacz, Ledger]:
    """Writes the stored records of ``targets`` in ``crawls`` to a WACZ file, and says what became of those planned.

    Memory stays flat. Raises ``EnvironmentFault`` when nothing of them is stored, and where lake or disk refuse.
    """
    slugs = [part for own in workspace.rows_of([target.slug for target in targets]).values() for part in own]
    ledger = Ledger()
    names = ", ".join(target.definition for target in targets)
    wacz = write_wacz(
        path,
        _records(workspace, crawls, slugs, ledger, scratch),
        _pages(workspace, crawls, slugs, scratch),
        workspace.storage,
        scratch,
        title=f"{names} in {', '.join(crawls)}"[:500],
        description=f"Records of Common Crawl, {', '.join(crawls)}, selected by {names}"[:2000],
        address=workspace.address_of,
    )
    if not ledger.planned:
        raise EnvironmentFault(
            f"this home has no captures of {names}" + (f" in {', '.join(crawls)}" if crawls else ""),
            "Fetch them first: cc-pipeline run … --crawl …",
        )
    return wacz, ledger


def hand_on_sequencefiles(
    workspace: Workspace, targets: Sequence[Target], crawls: Sequence[str], folder: Path
) -> tuple[Ledger, list[str]]:
    """Writes the SequenceFiles of 2012 of ``targets`` in ``crawls`` below ``folder``, and what is to be noted.

    Raises ``EnvironmentFault`` for a partition that was not parsed, and where lake or disk refuse.
    """
    ledger = Ledger()
    notes: list[str] = []
    place = workspace.place
    for crawl in crawls:
        report = export_slices(workspace, crawl, [target.slug for target in targets])
        notes += report.notes
        for target in targets:
            ledger.crawls[crawl] += int(report.per_target[target.slug]["metadata records"])
            prefix = export_prefix(crawl, target.slug)
            here = folder / crawl / target.slug
            here.mkdir(parents=True)
            for kind in EXPORT_KINDS:
                for number in range(int(report.per_target[target.slug][f"{kind} files"])):
                    name = f"{kind}-{number:05d}"
                    (here / name).write_bytes(place.read_all(prefix + name, 1 << 40).data)
    return ledger, notes


def _records(
    workspace: Workspace, crawls: Sequence[str], slugs: Sequence[str], ledger: Ledger, scratch: Path
) -> Iterator[Mapping[str, Any]]:
    """Fetched captures, each once, in the order of their files; the ledger counts the others too."""
    schema = workspace.lake.specs["records"].schema
    for crawl in crawls:
        rows = OrderedRows(schema, _ORDER, scratch)
        for batch in stream_rows(workspace.lake, "records", {"crawl": crawl, "target": list(slugs)}):
            rows.add(batch)
        before: tuple[Any, ...] | None = None
        for batch in rows.batches():
            for row in batch.to_pylist():
                place = tuple(row[name] for name in CAPTURE)
                # of several targets' rows the fetched one comes first
                if place == before:
                    continue
                before = place
                ledger.outcomes[row["outcome"]] += 1
                if row["outcome"] == "fetched":
                    ledger.crawls[crawl] += 1
                    yield row


def _pages(workspace: Workspace, crawls: Sequence[str], slugs: Sequence[str], scratch: Path) -> Iterator[Page]:
    schema = pa.schema([workspace.lake.specs["page_text"].schema.field(name) for name in _PAGE])
    for crawl in crawls:
        rows = OrderedRows(schema, ("warc_filename", "warc_record_offset"), scratch)
        for batch in stream_slices(workspace.lake, "page_text", crawl, slugs, _PAGE):
            rows.add(batch)
        before: tuple[Any, ...] | None = None
        for batch in rows.batches():
            for row in batch.to_pylist():
                place = (row["warc_filename"], row["warc_record_offset"])
                if place == before or row["fetch_time"] is None or row["text_type"] != "html" or not row["url"]:
                    continue
                before = place
                if row["fetch_status"] in (None, NO_STATUS) or row["fetch_status"] in _GOOD:
                    yield Page(row["url"], row["fetch_time"], row["title"])
