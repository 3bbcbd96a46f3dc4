"""Compares stored files with the rows that name them: finds lost and damaged records and the targets that have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import DataFault
from cc_pipeline.extraction.reusable_records import Place, read_lost_rows
from cc_pipeline.extraction.slice_state import read_slice_states
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, Slice, group_targets_by_crawl, slices_of
from cc_pipeline.lake.slices import list_slices, read_liveness
from cc_pipeline.lake.streaming import stream_crawl
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.storage import STORED, RecordStorage, are_bytes_missing
from cc_pipeline.records.sweep import NamedFiles
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.workspace.workspace import Workspace

#: Number of stored records that ``verify`` reads by default.
SAMPLE = 1_000
_VERIFIED_COLUMNS = (
    "target", "url", "url_surtkey", "content_digest", "warc_filename", "warc_record_offset", "warc_record_length",
    "archive_format", "outcome", "digest_check", *STORED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CrawlLosses:
    """Rows of a crawl without bytes: their number by target, and the files that are missing or too short."""

    crawl: str
    targets: Mapping[str, int]
    files: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(self.targets.values())


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The outcome of a verification: numbers of records ``read`` and ``stored``, whether all were read
    (``is_complete``), the reason of each ``damaged`` record by crawl and location, and the number of ``mismatched``
    records, which are as they were fetched, with another payload than the index names."""

    read: int
    stored: int
    is_complete: bool = True
    damaged: Mapping[str, Mapping[Place, str]] = field(default_factory=dict)
    mismatched: int = 0

    @property
    def records(self) -> int:
        """The number of damaged records."""
        return sum(map(len, self.damaged.values()))


def list_named_files(lake: Lake, crawl: str) -> NamedFiles:
    """Returns the stored files that rows of ``crawl`` name now, or may name once a run commits them; reads one column
    of the crawl. Whoever still reads rows that were superseded has a lease on their files."""
    pinned = lake.pin("records")
    liveness = read_liveness(lake, "records", crawl)
    files: set[str] = set()
    excluded = liveness.dead | liveness.purged
    for batch in stream_crawl(lake, "records", crawl, ["stored_file"], excluded=excluded):
        files.update(batch.column(0).unique().drop_null().to_pylist())
    return NamedFiles(files, tuple(file.path for file in pinned.stored_files([crawl])))


def find_lost_records(workspace: Workspace, slices: Collection[Slice] | None = None) -> list[CrawlLosses]:
    """Returns the crawls in which ``slices`` (default: all fetched ones) have rows without bytes. Checks each stored
    file, or lists those of a crawl once, and reads the rows of files that differ from their note.

    Raises ``EnvironmentFault`` if the lake or its store cannot be read.
    """
    losses = []
    fetched = list_slices(workspace.lake, FETCH)
    if slices is not None:
        fetched = [slice_ for slice_ in fetched if slice_ in {*slices}]
    for crawl, targets in group_targets_by_crawl(fetched).items():
        slice_states = read_slice_states(workspace, slices_of(crawl, targets), (FETCH,))
        lost = {
            slice_: slice_state.lost_records for slice_, slice_state in slice_states.items() if slice_state.lost_records
        }
        counts: Counter[str] = Counter()
        for slice_, count in lost.items():
            counts[slice_.partition.target] += count
        files: set[str] = set()
        for _, rows in read_lost_rows(workspace, lost):
            files.update(rows.column("stored_file").to_pylist())
        if lost:
            losses.append(CrawlLosses(crawl, dict(sorted(counts.items())), tuple(sorted(files))))
    return losses


def verify(
    lake: Lake, storage: RecordStorage, sample: int | None = SAMPLE, seed: int | None = None
) -> VerificationReport:
    """Reads about ``sample`` stored records (``None``: all) and compares them with their rows: lengths, the gzip
    checksum, the record, and the payload's digest if the row has one. Lost records are not counted as damaged.

    Raises ``EnvironmentFault`` if the lake or its store cannot be read.
    """
    pinned = lake.pin("records")
    share = 1.0 if sample is None or pinned.rows <= sample else sample / pinned.rows
    draw = np.random.default_rng(seed)
    damaged: dict[str, dict[Place, str]] = {}
    read = mismatched = 0
    stored: Counter[str] = Counter()
    for crawl in pinned.crawls:
        rows = _draw_sample(stream_crawl(lake, "records", crawl, _VERIFIED_COLUMNS), share, draw, stored)
        for row, member in read_members(rows, storage):
            damage = _find_damage(row, member) if isinstance(member, bytes) else _fault_reason(member)
            read += 1
            mismatched += damage is None and row["digest_check"] == "mismatch"
            progress.report("verify", read)
            if damage is not None:
                damaged.setdefault(crawl, {})[row["warc_filename"], row["warc_record_offset"]] = damage
    return VerificationReport(read, stored.total(), share == 1, damaged, mismatched)


def find_holders(lake: Lake, crawl: str, places: Mapping[Place, str]) -> list[str]:
    """Returns the targets of ``crawl`` that have a record at any of ``places`` (archive file and offset; the values are
    not read)."""
    files = pa.array(sorted({file for file, _ in places}))
    slugs: set[str] = set()
    for batch in stream_crawl(lake, "records", crawl, ["target", "warc_filename", "warc_record_offset"]):
        file_rows = batch.filter(pc.is_in(batch.column("warc_filename"), value_set=files))
        slugs |= {
            whole_slug(row["target"])
            for row in file_rows.to_pylist()
            if (row["warc_filename"], row["warc_record_offset"]) in places
        }
    return sorted(slugs)


def _draw_sample(
    batches: Iterator[pa.RecordBatch], share: float, draw: np.random.Generator, count: Counter[str]
) -> Iterator[dict[str, Any]]:
    for batch in batches:
        stored = batch.filter(pc.is_valid(batch.column("stored_file")))
        count["rows"] += stored.num_rows
        if share < 1:
            stored = stored.filter(pa.array(draw.random(stored.num_rows) < share))
        for start in range(0, stored.num_rows, SAMPLE):
            yield from stored.slice(start, SAMPLE).to_pylist()


def _fault_reason(fault: DataFault | None) -> str | None:
    return None if fault is None or are_bytes_missing(fault) else fault.reason


def _find_damage(row: Mapping[str, Any], data: bytes) -> str | None:
    """Returns what is wrong with the stored member of a row; ``None`` if nothing is. Bytes in quarantine of the right
    length are not checked: they are stored because they are broken."""
    if row["outcome"] != "fetched":
        return None
    expected = ExpectedRecord(
        archive_format=row["archive_format"],
        key=row["stored_file"],
        offset=row["stored_offset"],
        length=len(data),
        url=row["url"],
        surtkey=row["url_surtkey"],
        digest=row["content_digest"],
    )
    verification = verify_record(data, expected)
    if verification.reason is not None:
        return f"{verification.reason}: {verification.detail}"
    if verification.digest_check == "mismatch" and row["digest_check"] != "mismatch":
        return verification.detail
    return None
