"""Finds the capture of one page that is nearest to a date: in the home if it is stored there, else in the source.

Crawls are asked in the order of their distance to the date, each through its cheapest index, until one has the page.
Nothing is committed, and no home is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cc_pipeline.advice import option
from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.commoncrawl.crawls import Crawl, Span, estimate_capture_span, measure_gap, parse_collinfo
from cc_pipeline.commoncrawl.paths import parse_arc_key
from cc_pipeline.commoncrawl.surt import KeyRule
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extraction.blocklist import read_blocklist
from cc_pipeline.harvesting.crawls import is_published, known_crawls
from cc_pipeline.harvesting.index_sources import index_sources
from cc_pipeline.home import read_note
from cc_pipeline.index.locator import NoSuchIndex
from cc_pipeline.index.lookup import look_up
from cc_pipeline.progress import format_count
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.verification import expected_record, verify_record
from cc_pipeline.workspace.workspace import Workspace

Row = Mapping[str, Any]

#: Columns read from the columnar index: enough to choose, fetch and verify a capture.
COLUMNS = ("url", "url_host_name", "url_surtkey", "fetch_time", "fetch_status", "content_digest", "content_mime_type",
           "content_mime_detected", "content_languages", "content_charset", "content_truncated", "warc_filename",
           "warc_record_offset", "warc_record_length", "warc_segment")  # fmt: skip
#: Bytes that differ from what the index predicts are fetched once more: they may have been damaged on the way.
_TRIES = 2
_DAY_SECONDS = 86_400
_SUCCESS_STATUSES = range(200, 300)


@dataclass(frozen=True, slots=True)
class CrawlLookup:
    """The result of asking one crawl: how many captures of the page it has, and a note if there is any. ``announced``:
    the crawl is in the list of crawls, and nothing of it is published yet."""

    crawl: str
    captures: int
    note: str | None = None
    announced: bool = False


@dataclass(frozen=True, slots=True)
class Nearest:
    """A verified capture. ``row`` has columns of ``captures``; ``member`` has the exact bytes of the record as
    archived.

    ``stored``: the record was in the home. ``address`` is its address at the source.
    """

    row: Row
    record: ArchivedRecord
    member: bytes
    digest_check: str
    stored: bool
    address: str


class NoSuchCapture(EnvironmentFault):
    """None of the crawls that were asked has the page."""


def find_nearest_capture(
    workspace: Workspace,
    target: Target,
    period: Span | None,
    *,
    crawls: Sequence[Crawl] | None = None,
    max_crawls: int = 10,
    on_lookup: Callable[[CrawlLookup], None] = lambda lookup: None,
) -> Nearest:
    """The capture of ``target`` (a ``url:``) nearest to ``period``; with ``None`` the newest one.

    In the first crawl that has the page, successful captures come before others, then the nearest time counts.
    ``crawls`` are the crawls to ask (default: all listed ones; also these, if those given are only announced); at most
    ``max_crawls`` of them are asked. ``on_lookup`` is called with the result of each.
    Raises ``NoSuchCapture``, and ``EnvironmentFault`` if the source does not answer.
    """
    read_blocklist(workspace).refuse(target.value)
    stored_capture = crawls is None and _find_stored_offline(workspace, target, period)
    if stored_capture:
        return stored_capture
    listed_crawls = known_crawls(workspace).crawls if crawls is None else crawls
    order = sort_by_distance(listed_crawls, period)
    searched_crawls: list[str] = []
    announced = unusable = 0
    for crawl in order:
        if len(searched_crawls) == max_crawls:
            break
        nearest, lookup = _search_crawl(workspace, crawl.id, target, period)
        on_lookup(lookup)
        if nearest is not None:
            return nearest
        searched_crawls.append(crawl.id)
        announced += lookup.announced
        unusable += lookup.captures
    if crawls and announced == len(order):
        other_crawls = [
            other_crawl for other_crawl in known_crawls(workspace).crawls if other_crawl.id not in searched_crawls
        ]
        return find_nearest_capture(
            workspace, target, period, crawls=other_crawls, max_crawls=max_crawls, on_lookup=on_lookup
        )
    raise _build_not_found_error(target, searched_crawls, len(order), unusable)


def _build_not_found_error(
    target: Target, searched_crawls: Sequence[str], available_crawls: int, unusable_captures: int
) -> NoSuchCapture:
    names = ", ".join(searched_crawls) or "any crawl"
    remaining_crawls = available_crawls - len(searched_crawls)
    if remaining_crawls:
        advice = option(max_crawls=available_crawls, sentence=f"{remaining_crawls} more crawls can be searched: {{}}")
    elif unusable_captures:
        advice = option(crawl="CRAWL", sentence="Run it again later, or name another crawl: {}")
    else:
        advice = option(
            subset="crawldiagnostics", sentence="Check the spelling of the address. Errors and redirects since 2013: {}"
        )
    if unusable_captures:
        return NoSuchCapture(
            f"{names}: the index lists {format_count(unusable_captures, 'capture')} of {target.value}, but no record "
            "of them could be used",
            advice,
        )
    return NoSuchCapture(f"no capture of {target.value} was found in {names}", advice)


def sort_by_distance(crawls: Sequence[Crawl], period: Span | None) -> list[Crawl]:
    """``crawls`` (newest first) with the nearest to ``period`` first; of equally near ones the newest."""
    return (
        list(crawls)
        if period is None
        else sorted(crawls, key=lambda crawl: measure_gap(period, estimate_capture_span(crawl)))
    )


def _find_stored_offline(workspace: Workspace, target: Target, period: Span | None) -> Nearest | None:
    """The capture, if the home stores one of the nearest crawl and the home's copy of the crawl list shows that it is
    the nearest."""
    copy = workspace.settings.cache_path / "collinfo.json"
    try:
        listed_crawls = parse_collinfo(copy.read_bytes(), str(copy))
        age = time.time() - copy.stat().st_mtime
    except (OSError, DataFault):
        return None
    # a crawl that appeared since is newer than all of these
    is_past = period is not None and bool(listed_crawls) and period[1] <= estimate_capture_span(listed_crawls[0])[0]
    if not listed_crawls or not (is_past or age < _DAY_SECONDS):
        return None
    return _find_stored(workspace, sort_by_distance(listed_crawls, period)[0].id, target, period)


def _search_crawl(
    workspace: Workspace, crawl: str, target: Target, period: Span | None
) -> tuple[Nearest | None, CrawlLookup]:
    stored = _find_stored(workspace, crawl, target, period)
    if stored is not None:
        return stored, CrawlLookup(crawl, 1, "the capture is in this home")
    sources = replace(index_sources(workspace, crawl), columns=COLUMNS)
    settings = workspace.settings
    try:
        lookup = look_up(crawl, target.subsets(settings.subsets), [target], sources, via=settings.index)
    except NoSuchIndex as no_index:
        is_available = is_published(workspace, crawl)
        return None, CrawlLookup(
            crawl,
            0,
            str(no_index) if is_available else "the crawl is announced, but not published yet",
            not is_available,
        )
    rows = lookup.captures[target.slug].to_pylist()
    problems: list[str] = []
    for row in _sort_by_distance(rows, period):
        outcome = fetch_record(workspace, row)
        if isinstance(outcome, Nearest):
            return outcome, CrawlLookup(crawl, len(rows), "; ".join(problems) or None)
        problems.append(
            f"the capture at {row['warc_filename']} byte {row['warc_record_offset']} is not usable: {outcome}"
        )
    return None, CrawlLookup(crawl, len(rows), "; ".join(problems) or None)


def _sort_by_distance(rows: Sequence[Row], period: Span | None) -> list[Row]:
    def key(row: Row) -> tuple[bool, float, float]:
        moment = read_capture_time(row)
        status = row["fetch_status"]
        is_success = status is None or status <= 0 or status in _SUCCESS_STATUSES
        if moment is None:
            return not is_success, float("inf"), 0.0
        distance = 0.0 if period is None else measure_gap(period, (moment, moment)).total_seconds()
        return not is_success, distance, -moment.timestamp()

    return sorted(rows, key=key)


def read_capture_time(row: Row) -> datetime | None:
    """The time of a capture (aware UTC). A capture of the 2012 index has the time when its file was begun."""
    if row["fetch_time"] is not None or row["archive_format"] != "arc":
        moment: datetime | None = row["fetch_time"]
        return moment
    try:
        return datetime.fromtimestamp(parse_arc_key(row["warc_filename"]).file_date_ms / 1000, UTC)
    except (DataFault, OverflowError, OSError):
        return None


def fetch_record(workspace: Workspace, row: Row) -> Nearest | str:
    """Fetches the record of a capture from the source. Returns a text with the problem if the bytes are not the record.
    Raises ``EnvironmentFault`` if the source does not answer."""
    transport = workspace.archives(row["crawl"])
    key, offset, length = (row[name] for name in ("warc_filename", "warc_record_offset", "warc_record_length"))
    expected = expected_record(row)
    problem = ""
    for _ in range(_TRIES):
        try:
            answer = transport.read(key, offset, length)
        except DataFault as fault:
            return str(fault)
        verdict = verify_record(answer.data, expected)
        if verdict.reason is None and verdict.record is not None:
            check = verdict.digest_check or "unchecked"
            return Nearest(row, verdict.record, verdict.member, check, False, transport.url(key))
        problem = ": ".join(part for part in (verdict.reason, verdict.detail) if part)
    return problem


def _find_stored(workspace: Workspace, crawl: str, target: Target, period: Span | None) -> Nearest | None:
    """The nearest readable capture that the home's lake stores, if any."""
    # only the index decides conditions
    if target.where or read_note(workspace.settings.home) is None:
        return None
    # rows of a B-tree have current keys in every crawl
    ranges = (keys for rule in KeyRule for keys in target.ranges_by(rule))
    keys = sorted({keys.start.decode("utf-8", "backslashreplace") for keys in ranges})
    rows = workspace.lake.read("records", {"crawl": crawl, "url_surtkey": keys}).to_pylist()
    rows_by_location = {
        (row["warc_filename"], row["warc_record_offset"]): row
        for row in rows
        if row["outcome"] == "fetched" and row["subset"] in workspace.settings.subsets and target.matches(row["url"])
    }
    for row in _sort_by_distance(list(rows_by_location.values()), period):
        [(_, member)] = read_members([row], workspace.storage)
        if isinstance(member, bytes):
            read_record = arc.read_record if row["archive_format"] == "arc" else warc.read_record
            record = read_record(member, row["warc_filename"], row["warc_record_offset"])
            address = workspace.address_of(row["warc_filename"])
            return Nearest(row, record, member, row["digest_check"], True, address)
    return None
