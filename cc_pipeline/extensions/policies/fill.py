"""Fills the table ``site_policies``: each robots.txt capture of targets in a crawl, with its content.

Each row is a capture, so every fetch of a file counts. The lines of a file are stored once a slice, at the first
capture with this content; the published view repeats them for each capture.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.advice import advise
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.commoncrawl.slice_slugs import with_subset
from cc_pipeline.documents.headers import header_values
from cc_pipeline.documents.html.urls import resolve_header
from cc_pipeline.documents.page import PageInput
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extensions.policies.robots import parse_robots
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_SCHEMA, VERSION
from cc_pipeline.extensions.policies.tables import POLICIES
from cc_pipeline.extraction.group_state import RunState, run_and_replan
from cc_pipeline.extraction.lookup_notes import split_into_commits
from cc_pipeline.extraction.slice_selection import TargetSlices, empty_obsolete_slices
from cc_pipeline.lake.slice import FETCH, Slice, StageReport
from cc_pipeline.lake.slices import Base, SliceRow, commit_stage, find_stale, read_epochs, read_slice_rows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import find_part_slugs
from cc_pipeline.records.pages import page_of
from cc_pipeline.records.reading import Row, read_members
from cc_pipeline.workspace.workspace import Workspace

SUBSET: Final = "robotstxt"
#: Maximum redirects to follow (RFC 9309, 2.3.1.2).
_MAX_REDIRECTS: Final = 5
_SEGMENT = re.compile(r"/segments/([^/]+)/")
_ORIGIN = re.compile(r"([^/?#:]*):?//(?:[^/?#@]*@)?([^/?#]*)")
_PORT = re.compile(r":([0-9]*)$")
_PAGE = re.compile(rb"\s*<(?:!doctype|html|head|body)", re.IGNORECASE)


#: Columns of ``records`` that are kept.
_RECORD_COLUMNS: Final = tuple(dict.fromkeys(("crawl", "url", "domain", "fetch_time", "fetch_status", *PLACE)))
_LINES: Final = pa.schema([SITE_POLICIES_SCHEMA.field("lines")])
#: Maximum rows, with the lines of their bodies, of one batch.
_BATCH_ROWS: Final = 10_000


class _Bodies:
    """The lines of each body, spilled to a file while the captures of a slice are read. Keeps, by digest, the batch in
    the file and the signals of the body.
    """

    def __init__(self, writer: pa.RecordBatchWriter) -> None:
        self._writer = writer
        self.by_digest: dict[str, tuple[int, frozenset[str]]] = {}

    def signals(self, digest: str, payload: bytes) -> frozenset[str]:
        """The signals of a body, which is parsed if it is new."""
        if digest not in self.by_digest:
            lines = [asdict(line) for line in parse_robots(payload)]
            self._writer.write_batch(pa.RecordBatch.from_pylist([{"lines": lines}], _LINES))
            self.by_digest[digest] = len(self.by_digest), frozenset(line["signal"] for line in lines)
        return self.by_digest[digest][1]


@dataclass(slots=True)
class _RobotsCapture:
    """One robots.txt capture: some columns of its row of ``records``, its state, the target of its redirect, and the
    digest of the ``body`` with its lines.
    """

    row: Row
    segment: str
    state: str
    location: str | None = None
    body: str | None = None


def fill_policies(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    """Reads the fetched robots.txt captures of ``slugs`` in ``crawl``. Unchanged slices are skipped.

    Raises ``EnvironmentFault`` for a target whose robots.txt captures were never fetched and if the lake or the stored
    bytes cannot be read. Raises ``SlicesChanged`` if other processes keep
    changing the slices.
    """
    run = RunState(workspace)
    return run_and_replan(run, crawl, slugs, partial(_fill, workspace, crawl, slugs))


def _fill(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    started = time.monotonic()
    requested = _requested_slices(workspace, crawl, slugs)
    rows = read_slice_rows(workspace.lake, requested.requested_slices, (FETCH, POLICIES))
    epochs = read_epochs(workspace.lake, requested.requested_slices)
    inputs = _build_inputs(requested, rows)
    if missing := [slice_ for slice_ in requested.requested_slices if slice_ not in inputs]:
        raise EnvironmentFault(
            f"the robots.txt captures of {missing[0].partition.target} in {crawl} have not been fetched",
            advise("policies", missing[0].partition.target, crawl=crawl, sentence="Fetch and read them: {}"),
        )
    stored = {slice_: row for (slice_, label), row in rows.items() if label == POLICIES.label}
    stale = [slice_ for slice_, input_ in inputs.items() if slice_ not in stored or stored[slice_].input != input_]
    for number, slices in enumerate(split_into_commits(sorted(stale))):
        progress.report("policies", number, None, crawl)
        replaced = {slice_: stored[slice_] for slice_ in slices if slice_ in stored}
        expected = {(slice_, FETCH.label): rows[slice_, FETCH.label] for slice_ in slices}
        base = Base({slice_: epochs[slice_] for slice_ in slices}, replaced, expected)
        with workspace.scratch_folder("policies") as folder:
            batches = (
                batch for slice_ in slices for batch in _batches(_rows(workspace, slice_, folder / "lines.arrow"))
            )
            own = {slice_: inputs[slice_] for slice_ in slices}
            committed = commit_stage(workspace.lake, POLICIES, own, {"site_policies": batches}, base=base)
        stored |= {row.slice_: row for row in committed}
    report = POLICIES.report({slice_: stored[slice_].metrics for slice_ in inputs}, stale, started)
    empty_obsolete_slices(workspace, POLICIES, requested)
    return requested.fold_by_target(report)


def find_stale_targets(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> list[str]:
    """The ``slugs`` with fetched robots.txt captures in ``crawl`` that were not yet read by this version."""
    requested = _requested_slices(workspace, crawl, slugs)
    rows = read_slice_rows(workspace.lake, requested.requested_slices, (FETCH,))
    stale = find_stale(workspace.lake, POLICIES, _build_inputs(requested, rows))
    return list(dict.fromkeys(slice_.partition.target for slice_ in stale))


def _requested_slices(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> TargetSlices:
    parts = find_part_slugs(workspace.lake, slugs)
    slices_by_target = {
        slug: tuple(Slice(crawl, with_subset(part, SUBSET)) for part in target_parts)
        for slug, target_parts in parts.items()
    }
    return TargetSlices(crawl, slices_by_target, dict.fromkeys(slices_by_target, ()))


def _build_inputs(requested: TargetSlices, rows: Mapping[tuple[Slice, str], SliceRow]) -> dict[Slice, dict[str, str]]:
    """The input of each slice. Slices that were not fetched have none."""
    fetched = {slice_: rows.get((slice_, FETCH.label)) for slice_ in requested.requested_slices}
    return {
        slice_: {"version": str(VERSION), "records": row.content}
        for slice_, row in fetched.items()
        if row is not None and row.tables
    }


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    pending_rows: list[dict[str, Any]] = []
    pending_size = 0
    for row in rows:
        pending_rows.append(row)
        pending_size += 1 + len(row["lines"] or ())
        if pending_size > _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(pending_rows, SITE_POLICIES_SCHEMA)
            pending_rows, pending_size = [], 0
    yield pa.RecordBatch.from_pylist(pending_rows, SITE_POLICIES_SCHEMA)


def _rows(workspace: Workspace, slice_: Slice, lines_path: Path) -> Iterator[dict[str, Any]]:
    with pa.ipc.new_file(str(lines_path), _LINES) as writer:
        bodies = _Bodies(writer)
        answers = list(_read_captures(workspace, slice_, bodies))
    with pa.OSFile(str(lines_path)) as source:
        line_batches = pa.ipc.open_file(source)

        def lines_of(body: str) -> Any:
            return line_batches.get_batch(bodies.by_digest[body][0]).column(0)[0].as_py()

        yield from _build_rows(slice_, answers, lines_of)


def _build_rows(
    slice_: Slice, answers: Sequence[_RobotsCapture], lines_of: Callable[[str], Any]
) -> Iterator[dict[str, Any]]:
    by_url: dict[tuple[str, str], list[_RobotsCapture]] = {}
    for answer in answers:
        by_url.setdefault((answer.segment, answer.row["url"]), []).append(answer)
    written_bodies: set[str] = set()
    for answer in answers:
        final_answer = _follow_redirects(answer, by_url)
        scheme, host, port = origin_of(answer.row["url"])
        lines = None
        if final_answer.body is not None and final_answer.body not in written_bodies:
            lines = lines_of(final_answer.body)
            written_bodies.add(final_answer.body)
        yield {
            **{name: answer.row[name] for name in ("crawl", "url", "domain", "fetch_time", "fetch_status")},
            **{name: final_answer.row[name] for name in PLACE},
            "target": slice_.target,
            "robots": _robots_name(answer, scheme, host, port),
            "scheme": scheme,
            "host": host,
            "port": port,
            "segment": answer.segment,
            "state": "unresolved" if final_answer.state == "redirect" else final_answer.state,
            "content_digest": final_answer.body,
            "read_from": final_answer.row["url"],
            "lines": lines,
        }


def _robots_name(answer: _RobotsCapture, scheme: str, host: str, port: int) -> str:
    """The name of a robots.txt capture, the same for all targets that have it."""
    fetched_at = answer.row["fetch_time"]
    timestamp = "" if fetched_at is None else f"{fetched_at:%Y%m%d%H%M%S}"
    # The offset distinguishes two captures of the same second.
    record = answer.row["warc_record_offset"]
    return f"{answer.row['crawl']} {answer.segment} {scheme}://{host}:{port} {timestamp} {record}"


def _follow_redirects(answer: _RobotsCapture, by_url: dict[tuple[str, str], list[_RobotsCapture]]) -> _RobotsCapture:
    """Follows redirects within the segment and returns the last answer, or the first one if a redirect leads to no
    archived capture. Its rules hold for the origin that was requested first.
    """
    final_answer = answer
    for _ in range(_MAX_REDIRECTS):
        if final_answer.state != "redirect":
            break
        targets = by_url.get((answer.segment, final_answer.location or ""))
        if targets is None:
            break
        final_answer = min(targets, key=lambda answer_there: abs(_seconds(answer_there) - _seconds(answer)))
    return answer if final_answer.state == "redirect" else final_answer


def _seconds(answer: _RobotsCapture) -> float:
    fetched_at: datetime | None = answer.row["fetch_time"]
    return fetched_at.timestamp() if fetched_at else 0.0


def _read_captures(workspace: Workspace, slice_: Slice, bodies: _Bodies) -> Iterator[_RobotsCapture]:
    records = (row for batch in stream_rows(workspace.lake, "records", slice_.where) for row in batch.to_pylist())
    for row, member in read_members(records, workspace.storage, lambda row: row["outcome"] == "fetched"):
        segment = _SEGMENT.search(row["warc_filename"])
        answer = _RobotsCapture(
            {name: row[name] for name in _RECORD_COLUMNS}, segment[1] if segment else "", "unreadable"
        )
        page = None if member is None or isinstance(member, DataFault) else page_of((row, member))
        if isinstance(page, PageInput):
            _fill_state(answer, page, bodies)
        yield answer


def _fill_state(answer: _RobotsCapture, page: PageInput, bodies: _Bodies) -> None:
    """Sets state, redirect and body of a robots.txt answer, in the words of RFC 9309 (2.3.1)."""
    status = page.http_status or 0
    if 300 <= status < 400:
        location = next(iter(header_values(page.http_headers, "location")), None)
        answer.state = "redirect"
        url = None if location is None else resolve_header(page.url, location)  # without a URL it is unresolved
        answer.location = url and url.partition("#")[0]
    elif 400 <= status < 600:
        answer.state = "unavailable" if status < 500 else "unreachable"
    elif 200 <= status < 300:
        digest = base64.b32encode(hashlib.sha1(page.payload, usedforsecurity=False).digest()).decode()
        signals = bodies.signals(digest, page.payload)
        answer.body = digest
        # Many servers answer every request with a web page.
        is_web_page = not signals and _PAGE.match(page.payload)
        answer.state = "cut" if "cut" in signals or page.truncated else "no robots.txt" if is_web_page else "read"


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL. ``policies/policy_queries.py`` does the same in SQL."""
    match = _ORIGIN.match(url)
    scheme, authority = (match[1].lower(), match[2].lower()) if match else ("", "")
    port_match = _PORT.search(authority)
    port = int(port_match[1]) if port_match and port_match[1] and len(port_match[1]) < len("2147483647") else None
    return scheme, _PORT.sub("", authority), port if port is not None else 443 if scheme == "https" else 80
