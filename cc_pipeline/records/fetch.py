"""From planned captures to stored, verified records: every capture gets exactly one outcome.

A capture that the source lacks, has damaged or does not give now becomes a row and raises nothing. When an
``EnvironmentFault`` is raised (the disk), all records fetched so far lie in complete segments, which the next run
adopts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from cc_pipeline.records.options import RecordOptions
from cc_pipeline.records.outcomes import Name
from cc_pipeline.records.run import FetchRun, Progress
from cc_pipeline.records.segments import SegmentWriter, adopt, forget_journals, segment_head
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

__all__ = ["RecordOptions", "RecordsResult", "fetch_records", "settle"]


@dataclass(frozen=True, slots=True)
class RecordsResult:
    """``table`` has one row per capture asked for (``RECORD_SCHEMA``, the captures' order).

    ``reused`` captures were stored before this run, ``adopted`` ones came from the segments of a killed run.
    ``requests`` and ``bytes`` were spent on the source. ``files`` are the new complete files. ``settled`` are the files
    all of whose records are in the table (or were before). ``fetched`` captures are good ones read in this run;
    ``answered`` says whether the source gave anything that settles a capture, or was not asked. Call ``settle`` once
    the table is committed.
    """

    table: pa.Table
    reused: int
    adopted: int
    requests: int
    bytes: int
    seconds: float
    files: tuple[str, ...]
    settled: tuple[str, ...]
    fetched: int
    answered: bool
    outcomes: Mapping[str, int]


def fetch_records(
    captures: pa.Table,
    transport: Transport,
    storage: RecordStorage,
    *,
    crawl: str,
    commit: str,
    held: pa.Table | None = None,
    options: RecordOptions | None = None,
    plan: str = "",
    progress: Progress | None = None,
    holding: Callable[[set[str]], None] | None = None,
    in_table: Callable[[], pa.Table] | None = None,
) -> RecordsResult:
    """Fetches, verifies and stores the captures (``CAPTURE_SCHEMA`` and ``target``) of one crawl.

    ``commit`` names the new files and must be unused; ``plan`` (a digest) goes into their warcinfo. ``held`` are
    rows of the records table for this crawl (``HELD_COLUMNS``), of any target: the records they name are not fetched
    again. ``holding`` is told the files taken over from killed runs, before anything is fetched. ``in_table`` gives the
    places of all records that the table has of this crawl; it is called only where a killed run left something
    (default: those of ``held``). Raises ``EnvironmentFault`` when the disk or the lake's own place fails.
    """
    run = FetchRun(captures, transport, crawl, options or RecordOptions(), progress)
    info = {
        "software": run.options.software,
        "format": "WARC File Format 1.0",
        "description": f"Records of {crawl}, extracted from Common Crawl",
        "isPartOf": crawl,
        "plan": plan,
        "source": transport.source,
    }
    writer = SegmentWriter(
        storage, crawl, commit, lambda kind, name: segment_head(kind, name, info), run.options.rotation
    )
    started = time.monotonic()
    requests, read = transport.stats.requests, transport.stats.bytes
    left = list(adopt(storage, crawl))
    if holding is not None:
        holding({row["stored_file"] for row in left})
    reused, adopted = run.take(held, left)
    try:
        run.fetch(writer)
    finally:
        writer.close()
    table = run.outcomes.table(answered=run.answered)
    mine = {row["stored_file"] for row in left} | set(writer.files)
    known = run.outcomes.wanted.keys() | (_names(in_table() if in_table is not None else held) if left else set())
    others = {row["stored_file"] for row in left if (row["warc_filename"], row["warc_record_offset"]) not in known}
    return RecordsResult(
        table=table,
        reused=reused,
        adopted=adopted,
        requests=transport.stats.requests - requests,
        bytes=transport.stats.bytes - read,
        seconds=time.monotonic() - started,
        files=tuple(writer.files),
        settled=tuple(sorted(mine - others)),
        fetched=run.fetched,
        answered=run.answered,
        outcomes=Counter(table.column("outcome").to_pylist()),
    )


def settle(storage: RecordStorage, result: RecordsResult) -> None:
    """Removes the journals of files whose records are all in the lake. Call it once the result's rows are committed.

    A file of a killed run that also holds records of other targets keeps its journal until those are in the lake too.
    """
    forget_journals(storage, result.settled)


def _names(rows: pa.Table | None) -> set[Name]:
    if rows is None:
        return set()
    columns = (rows.column("warc_filename").to_pylist(), rows.column("warc_record_offset").to_pylist())
    return set(zip(*columns, strict=True))
