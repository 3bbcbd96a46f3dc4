"""Captures that are known by URL and time: they are looked up in the index of the crawl of that time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import Crawl, estimate_capture_span, index_is_built, measure_gap
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import hashed_slug
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.named_captures.capture_rows import REQUEST_SCHEMA
from cc_pipeline.named_captures.reading import RejectedRows

#: Maximum URLs of one lookup. They are in the order of the index, so that its pages are rarely read twice.
MAX_URLS_PER_LOOKUP: Final = 20_000
#: Maximum number of crawls that are searched for a capture by its time, and their maximum distance: of old crawls only
#: the week after their captures is known.
_MAX_CRAWLS: Final = 2
_MAX_DISTANCE: Final = timedelta(days=31)

#: Captures (``CAPTURE_SCHEMA``) of targets in a crawl.
CaptureLookup: TypeAlias = Callable[[str, Sequence[Target]], Iterable[pa.Table]]


class UrlRequests:
    """Collects requests (``REQUEST_SCHEMA``) and finds their captures. ``crawls`` are those of the source, ``subsets``
    the searched subsets of its index. ``folder`` is for spill files."""

    def __init__(self, crawls: Sequence[Crawl], subsets: Sequence[str], folder: Path) -> None:
        self._subsets = ", ".join(subsets)
        self._crawls = [(crawl.id, estimate_capture_span(crawl)) for crawl in crawls if not index_is_built(crawl.id)]
        self._folder = folder
        self._rows = self._ordered()

    def _ordered(self) -> OrderedRows:
        return OrderedRows(REQUEST_SCHEMA, ("crawl", "url_surtkey", "row"), self._folder)

    def add(self, requests: pa.Table) -> None:
        """Adds requests."""
        self._rows.add(requests)

    @property
    def rows(self) -> int:
        """The number of requests."""
        return self._rows.rows

    def by_crawl(self, wrong: RejectedRows) -> OrderedRows:
        """Returns the requests with the crawl to be searched first. Those that no crawl can have are added to
        ``wrong``."""
        requests = self._ordered()
        for rows in _row_batches(self._rows):
            rows_with_crawl = []
            for row in rows:
                crawl = row["crawl"] or next(iter(self._likely_crawls(row["fetch_time"])), None)
                if crawl is None:
                    wrong.add(row["row"], f"no crawl was made at that time ({row['fetch_time']:%Y-%m-%d})")
                else:
                    rows_with_crawl.append(row | {"crawl": crawl})
            requests.add(pa.Table.from_pylist(rows_with_crawl, REQUEST_SCHEMA))
        return requests

    def locate(self, rows: OrderedRows, find_captures: CaptureLookup, wrong: RejectedRows) -> Iterator[pa.Table]:
        """Yields the captures of the requests ``rows``. Requests without a capture are added to ``wrong``."""
        retries = self._ordered()
        for crawl, crawl_rows in group_by_lookup(rows):
            tables, missing_rows = _find_answers(crawl, crawl_rows, find_captures)
            yield from tables
            retries.add(
                pa.Table.from_pylist(list(self._retry_elsewhere_or_reject(crawl, missing_rows, wrong)), REQUEST_SCHEMA)
            )
        for crawl, crawl_rows in group_by_lookup(retries):
            tables, missing_rows = _find_answers(crawl, crawl_rows, find_captures)
            yield from tables
            for row in missing_rows:
                wrong.add(row["row"], self._describe_missing(row, *self._likely_crawls(row["fetch_time"])))

    def _retry_elsewhere_or_reject(
        self, crawl: str, rows: Iterable[dict[str, Any]], wrong: RejectedRows
    ) -> Iterator[dict[str, Any]]:
        for row in rows:
            other_crawls = (
                []
                if row["named"]
                else [other_crawl for other_crawl in self._likely_crawls(row["fetch_time"]) if other_crawl != crawl]
            )
            if other_crawls:
                yield row | {"crawl": other_crawls[0]}
            else:
                wrong.add(row["row"], self._describe_missing(row, crawl))

    def _describe_missing(self, row: dict[str, Any], *crawls: str) -> str:
        fetch_time = row["fetch_time"]
        time_note = "" if fetch_time is None else f" of {fetch_time:%Y-%m-%d %H:%M:%S}"
        indexes = " and ".join(crawls)
        return f"the index of {indexes} ({self._subsets}) has no capture of {row['url'][:200]}{time_note}"

    def _likely_crawls(self, moment: datetime | None) -> list[str]:
        """Returns the crawls that may have a capture of a time, the likeliest first."""
        if moment is None:
            return []
        distances = [(measure_gap(span, (moment, moment)), crawl) for crawl, span in self._crawls]
        return [crawl for distance, crawl in sorted(distances) if distance <= _MAX_DISTANCE][:_MAX_CRAWLS]


def _row_batches(rows: OrderedRows) -> Iterator[list[dict[str, Any]]]:
    return (batch.to_pylist() for batch in rows.batches())


def group_by_lookup(rows: OrderedRows) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields the crawl and the rows of each lookup."""
    waiting: list[dict[str, Any]] = []
    for batch_rows in _row_batches(rows):
        for row in batch_rows:
            if waiting and (row["crawl"] != waiting[0]["crawl"] or len(waiting) >= MAX_URLS_PER_LOOKUP):
                yield waiting[0]["crawl"], waiting
                waiting = []
            waiting.append(row)
    if waiting:
        yield waiting[0]["crawl"], waiting


def target_of(rows: Iterable[dict[str, Any]]) -> Target:
    """Returns one target with the pages of all rows."""
    urls = {row["url_surtkey"]: row["url"] for row in rows}
    members = tuple(Target("url", url, hashed_slug("url", url)) for url in urls.values())
    return Target("set", "asked", "set-asked", members)


def _find_answers(
    crawl: str, rows: list[dict[str, Any]], find_captures: CaptureLookup
) -> tuple[list[pa.Table], list[dict[str, Any]]]:
    """Returns the captures of the rows in an index, and the rows without captures."""
    rows_by_key: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        rows_by_key.setdefault(row["url_surtkey"], []).append(row)
    tables = [table for table in find_captures(crawl, [target_of(rows)]) if table.num_rows]
    if not tables:
        return [], rows
    all_captures = pa.concat_tables(tables)
    captures: dict[str, list[tuple[int, str, datetime | None]]] = {}
    columns = (all_captures[name].to_pylist() for name in ("url", "fetch_time"))
    for number, (url, fetch_time) in enumerate(zip(*columns, strict=True)):
        # the key in the index follows the rule of its crawl
        if (key := surt_key(url)) in rows_by_key:
            captures.setdefault(key, []).append(
                (number, url, None if fetch_time is None else fetch_time.replace(microsecond=0))
            )
    capture_numbers: dict[int, None] = {}
    missing_rows = []
    for key, key_rows in rows_by_key.items():
        for row in key_rows:
            matches = _match_captures(row, captures.get(key, ()))
            capture_numbers |= dict.fromkeys(matches)
            if not matches:
                missing_rows.append(row)
    return [all_captures.take(pa.array(sorted(capture_numbers), pa.int64()))], missing_rows


def _match_captures(row: dict[str, Any], captures: Iterable[tuple[int, str, datetime | None]]) -> list[int]:
    """Returns the captures that match a row: those of its time, if both have one; of these, those of the exact URL if
    there are any."""
    fetch_time = row["fetch_time"]
    same_time = [
        (number, url)
        for number, url, capture_time in captures
        if fetch_time is None or capture_time is None or capture_time == fetch_time
    ]
    return [number for number, url in same_time if url == row["url"]] or [number for number, _ in same_time]
