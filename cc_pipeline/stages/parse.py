"""Parsing: from stored records to metadata, text, links and feed items, one pass, four commits.

``page_metadata`` is committed last. A run killed in between is told by the digests that differ (see stages/publish);
only one digest in all four says that a slice is here.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.legacy2012.mapping import failed_page
from cc_pipeline.documents.page import PARSER_VERSION, PageInput, ParsedPage, ParseOptions
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.fetch import read_stored
from cc_pipeline.records.storage import RecordShelf
from cc_pipeline.stages.fetch import fetch_digest_name, fetched_otherwise
from cc_pipeline.stages.locate import located_otherwise
from cc_pipeline.stages.report import StageReport
from cc_pipeline.stages.workspace import Workspace

Row = Mapping[str, Any]

_KEYS = (
    "crawl", "subset", "target", "url", "url_surtkey", "fetch_time", "fetch_status", "content_digest",
    "warc_filename", "warc_record_offset", "warc_record_length", "domain", "archive_format",
)  # fmt: skip


def page_of(item: tuple[Row, bytes | None]) -> PageInput | ParsedPage:
    """What there is to parse of one row of ``records``, given its stored bytes (``None``: none, or unreadable).

    A capture that was not fetched, or whose bytes are gone, is a finished page that says so: every row of
    ``records`` gets exactly one row of ``page_metadata``.
    """
    row, member = item
    bare = PageInput(payload=b"", http_status=row["fetch_status"], **{key: row[key] for key in _KEYS})
    if row["outcome"] != "fetched" or member is None:
        reason = ": ".join(part for part in (row["reason"], row["detail"]) if part) or "its stored bytes are gone"
        return failed_page(bare, "Quarantined" if row["outcome"] == "quarantined" else "Missing", reason)
    try:
        return _input(row, _record(row, member))
    except DataFault as fault:
        return failed_page(bare, "ParseFailed", fault.reason)


def _record(row: Row, member: bytes) -> ArchivedRecord:
    read = arc.read_record if row["archive_format"] == "arc" else warc.read_record
    return read(member, row["stored_file"], row["stored_offset"])


def _input(row: Row, record: ArchivedRecord) -> PageInput:
    return PageInput(
        payload=record.payload,
        http_status=record.http_status,
        http_status_line=record.http_status_line,
        http_headers=record.http_headers,
        server_ip=record.server_ip,
        truncated=record.truncated,
        mime_detected=_identified(record),
        record_headers=record.record_headers,
        **{key: row[key] for key in _KEYS},
    )


def _identified(record: ArchivedRecord) -> str | None:
    return next((v for name, v in record.record_headers if name.lower() == "warc-identified-payload-type"), None)


#: The order of commits.
PAGE_TABLES = ("page_text", "page_links", "feed_items", "page_metadata")
_BATCH_ROWS = 64
_BATCH_BYTES = 16 << 20
_PARSERS = "cc_pipeline.documents.batch.worker"


def parse_records(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables; unchanged inputs stay.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake
    cannot be read or written.
    """
    started = time.monotonic()
    wanted = _digests(workspace, crawl, slugs)
    here = workspace.lake.agreed(PAGE_TABLES, [_name(crawl, slug) for slug in slugs])
    stale = [slug for slug in slugs if here[_name(crawl, slug)] != wanted[slug]]
    if stale:
        _parse(workspace, crawl, stale, {_name(crawl, slug): wanted[slug] for slug in stale})
    per_target = _per_target(workspace, crawl, slugs)
    return StageReport(
        "parse",
        rows=sum(int(figures["rows:page_metadata"]) for figures in per_target.values()),
        written=sum(int(per_target[slug]["rows:page_metadata"]) for slug in stale),
        seconds=time.monotonic() - started,
        fresh_slices=len(stale),
        reused_slices=len(slugs) - len(stale),
        per_target=per_target,
    )


def out_of_date(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> set[str]:
    """Slugs of ``targets`` whose pages in ``crawl`` are not of the definition, index and records there are now."""
    if not targets:
        return set()
    behind = located_otherwise(workspace, crawl, targets)
    behind |= fetched_otherwise(workspace, crawl, [target.slug for target in targets if target.slug not in behind])
    slugs = [target.slug for target in targets if target.slug not in behind]
    wanted = _digests(workspace, crawl, slugs)
    here = workspace.lake.agreed(PAGE_TABLES, [_name(crawl, slug) for slug in slugs])
    return behind | {slug for slug in slugs if here[_name(crawl, slug)] != wanted[slug]}


def parse_options(workspace: Workspace) -> ParseOptions:
    """How this workspace's settings want pages parsed."""
    return ParseOptions(main_content="quality" if workspace.settings.extractor == "quality" else "fast")


def _parse(workspace: Workspace, crawl: str, stale: Sequence[str], digests: dict[str, str]) -> None:
    rows = workspace.lake.read("records", {"crawl": crawl, "target": list(stale)})
    rows = rows.sort_by([(name, "ascending") for name in ("target", "warc_filename", "warc_record_offset")])
    folder = workspace.scratch / f"parse-{time.monotonic_ns()}"
    with disk_trouble(folder):
        folder.mkdir()
    try:
        _spill(workspace, rows, workspace.shelf, folder)
        slices = [{"crawl": crawl, "target": slug} for slug in stale]
        for table in PAGE_TABLES:
            path = folder / f"{table}.arrow"
            if not workspace.lake.holds(table, digests):
                workspace.lake.commit_stream(table, partial(_batches, path), slices, digests)
    finally:
        rmtree(folder, ignore_errors=True)


def _spill(workspace: Workspace, rows: pa.Table, shelf: RecordShelf, folder: Path) -> None:
    """Parsed batches go to one Arrow file a table, so that memory stays flat however many pages there are."""
    schemas = {table: workspace.lake.specs[table].schema for table in PAGE_TABLES}
    done, total = 0, rows.num_rows
    with disk_trouble(folder), ExitStack() as open_files:
        writers = {
            table: open_files.enter_context(pa.ipc.new_stream(str(folder / f"{table}.arrow"), schema))
            for table, schema in schemas.items()
        }
        tasks = _tasks(rows, shelf)
        for batches in parse_batches(tasks, parse_options(workspace), _workers(workspace, total), page_of):
            for table, batch in batches.items():
                if batch.num_rows:
                    writers[table].write_batch(batch)
            done += batches["page_metadata"].num_rows
            progress.report("parse", done, total)


def _tasks(rows: pa.Table, shelf: RecordShelf) -> Iterator[list[tuple[dict[str, object], bytes | None]]]:
    task: list[tuple[dict[str, object], bytes | None]] = []
    size = 0
    for batch in rows.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            member = _member(row, shelf)
            task.append((row, member))
            size += len(member or b"")
            if len(task) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield task
                task, size = [], 0
    if task:
        yield task


def _workers(workspace: Workspace, records: int) -> int:
    """Processes to parse in: never this one, since a hostile page may loop or end its process."""
    # the server that workers are forked from imports the parsers once, not every worker anew
    multiprocessing.get_context("forkserver").set_forkserver_preload(["cc_pipeline.stages.parse", _PARSERS])
    wanted = workspace.settings.workers or len(os.sched_getaffinity(0))
    return max(1, min(wanted, -(-records // _BATCH_ROWS)))


def _member(row: dict[str, object], shelf: RecordShelf) -> bytes | None:
    if row["outcome"] != "fetched":
        return None
    try:
        return read_stored(shelf, row)
    except DataFault:
        return None


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source:
        yield from pa.ipc.open_stream(source)


def _name(crawl: str, slug: str) -> str:
    return f"parse:{crawl}:{slug}"


def _digests(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, str]:
    fetched = workspace.lake.digests("records", [fetch_digest_name(crawl, slug) for slug in slugs])
    options = parse_options(workspace)
    outcomes = _outcomes(workspace, crawl, slugs)
    digests: dict[str, str] = {}
    for slug in slugs:
        digest = fetched[fetch_digest_name(crawl, slug)]
        if digest is None:
            raise EnvironmentFault(f"{slug} in {crawl} has not been fetched", "Materialize records first.")
        made_from = {
            "stage": "parse",
            "parser": PARSER_VERSION,
            "main_content": options.main_content,
            "fetched": digest,
            "outcomes": outcomes[slug],
        }
        digests[slug] = input_digest(made_from)
    return digests


def _outcomes(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, str]:
    """What became of each target's captures: a replay changes that and not what was asked for."""
    columns = ["target", "warc_filename", "warc_record_offset", "outcome"]
    rows = workspace.lake.read("records", {"crawl": crawl, "target": list(slugs)}, columns)
    digests = {slug: hashlib.sha256() for slug in slugs}
    for row in rows.sort_by([(name, "ascending") for name in columns]).to_pylist():
        digests[row["target"]].update(repr(list(row.values())).encode())
    return {slug: digest.hexdigest()[:16] for slug, digest in digests.items()}


def _per_target(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, int | float | str]]:
    figures: dict[str, dict[str, int | float | str]] = {
        slug: {f"rows:{table}": 0 for table in PAGE_TABLES} for slug in slugs
    }
    for table in PAGE_TABLES:
        rows = workspace.lake.read(table, {"crawl": crawl, "target": list(slugs)}, ["target"])
        for row in rows.group_by("target").aggregate([([], "count_all")]).to_pylist():
            figures[row["target"]][f"rows:{table}"] = row["count_all"]
    return figures
