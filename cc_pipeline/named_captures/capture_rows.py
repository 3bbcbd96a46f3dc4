"""Converts rows of a file to captures: checks the location, and adds the columns that follow from the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.paths import WarcFile, current_key, parse_arc_key, segment_of, subset_of
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.index.locator import NAMED_CAPTURES
from cc_pipeline.index.shards import is_arc
from cc_pipeline.named_captures.reading import Chunk, RejectedRows
from cc_pipeline.records.range_plan import MAX_RECORD_BYTES

_TEXTS: Final = (
    "content_mime_type", "content_mime_detected", "content_charset", "content_languages", "content_truncated",
    "fetch_redirect",
)  # fmt: skip
_MAX_OFFSET: Final = 1 << 62
#: Maximum number of cached file names: rows of an index are ordered by host, each of another file.
_MAX_CACHED_NAMES: Final = 1 << 17
#: Subsets of a crawl's archive files that hold captures.
_SUBSETS: Final = ("warc", "crawldiagnostics", "robotstxt", "news-warc")


class _InvalidRow(ValueError):
    """A row cannot be used, with the reason."""


@dataclass(slots=True)
class CaptureRowParser:
    """Parses rows to captures. ``has_crawl`` tells whether the source has a crawl. Unusable rows are added to
    ``wrong``."""

    has_crawl: Callable[[str], bool]
    wrong: RejectedRows
    _files: dict[str, Mapping[str, Any] | str] = field(default_factory=dict)
    _crawls: dict[str, bool] = field(default_factory=dict)

    def parse(self, chunk: Chunk) -> pa.Table:
        """Returns the captures of the rows (``CAPTURE_SCHEMA``)."""
        number, count, columns = chunk
        captures: list[dict[str, Any]] = []
        names, values = [*columns], [*columns.values()]
        for place in range(count):
            row = {name: _clean_value(column[place]) for name, column in zip(names, values, strict=True)}
            if not any(value is not None for value in row.values()):
                continue
            try:
                captures.append(self._capture(row))
            except _InvalidRow as error:
                self.wrong.add(number + place, str(error))
        columns_of_captures = [
            pa.array([capture.get(column.name) for capture in captures], column.type) for column in CAPTURE_SCHEMA
        ]
        return pa.Table.from_arrays(columns_of_captures, schema=CAPTURE_SCHEMA)

    def _capture(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if row.get("warc_filename") is None or row.get("warc_record_offset") is None:
            raise _InvalidRow("the row has no location (file and offset)")
        file = self._file(str(row["warc_filename"]))
        if (crawl := row.get("crawl")) is not None and _crawl(crawl) != file["crawl"]:
            raise _InvalidRow(f"{file['warc_filename']} is a file of {file['crawl']}, and the row says {crawl}")
        length = row.get("warc_record_length")
        return {
            **file,
            **_url_columns(row.get("url")),
            **{name: _text(row.get(name)) for name in _TEXTS},
            "fetch_time": _moment(row.get("fetch_time")),
            "fetch_status": _status(row.get("fetch_status")),
            "content_digest": (_text(row.get("content_digest")) or "").removeprefix("sha1:") or None,
            "warc_record_offset": _number("offset", row["warc_record_offset"], 0, _MAX_OFFSET),
            "warc_record_length": None if length is None else _number("length", length, 1, MAX_RECORD_BYTES),
            "located_by": NAMED_CAPTURES,
        }

    def _file(self, name: str) -> Mapping[str, Any]:
        """Returns the columns that follow from the name of an archive file. Raises ``_InvalidRow``."""
        file_columns = self._files.get(name)
        if file_columns is None:
            if len(self._files) >= _MAX_CACHED_NAMES:
                self._files.clear()
            try:
                file_columns = self._read(name)
            except (DataFault, UserInputError, _InvalidRow) as error:
                file_columns = f"{name[:200]!r} {error.reason if isinstance(error, DataFault) else error}"
            self._files[name] = file_columns
        if isinstance(file_columns, str):
            raise _InvalidRow(file_columns)
        return file_columns

    def _read(self, name: str) -> Mapping[str, Any]:
        key = current_key(name)
        arc = is_arc(key)
        if arc:
            crawl, subset = parse_arc_key(key).crawl, "warc"
        else:
            file = WarcFile.from_path(key)
            crawl, subset = file.crawl, subset_of(key)
            if file.subset not in _SUBSETS:
                raise _InvalidRow(f"is a file of {file.subset}, which holds no captures")
        if not self._is_crawl_known(crawl):
            raise _InvalidRow(f"is of {crawl}, and the source has no such crawl")
        return {
            "crawl": crawl,
            "subset": subset,
            "warc_filename": key,
            "warc_segment": segment_of(key),
            "archive_format": "arc" if arc else "warc",
        }

    def _is_crawl_known(self, crawl: str) -> bool:
        if crawl not in self._crawls:
            self._crawls[crawl] = self.has_crawl(crawl)
        return self._crawls[crawl]


def _clean_value(value: Any) -> Any:
    """Returns a value without blanks around it; ``None`` for empty text and NaN."""
    if isinstance(value, str):
        return value.strip() or None
    return None if value is None or value != value else value


def _crawl(text: Any) -> str:
    try:
        return validate_crawl_id(str(text))
    except UserInputError as error:
        raise _InvalidRow(str(error)) from None


def _url_columns(url: Any) -> dict[str, Any]:
    if url is None:
        return {}
    text = _text(url) or ""
    columns = host_columns(text)
    domain = columns["url_host_registered_domain"] or columns["url_host_name"] or None
    return {**columns, "url": text, "url_surtkey": surt_key(text), "domain": domain}


def _text(value: Any) -> str | None:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return None if value is None else str(value).encode("utf-8", "backslashreplace").decode()


def _number(label: str, value: Any, minimum: int, maximum: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or (isinstance(value, float) and value != number):
        raise _InvalidRow(f"the {label} {str(value)[:50]!r} is no whole number")
    if not minimum <= number <= maximum:
        raise _InvalidRow(
            f"the {label} {number} is " + ("negative" if number < 0 else f"not between {minimum} and {maximum}")
        )
    return number


def _status(value: Any) -> int | None:
    """Returns the status; ``None`` if the value is no status, as in rows of revisits."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _moment(value: Any) -> datetime | None:
    """Parses a time of 14 digits, in ISO 8601, or of a column of times; without a zone it is UTC."""
    if value is None:
        return None
    try:
        if isinstance(value, datetime):
            moment = value
        else:
            text = str(value).removesuffix(" UTC")
            moment = datetime.fromisoformat(f"{text[:8]}T{text[8:]}" if len(text) == 14 and text.isdigit() else text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _InvalidRow(
            f"the time {str(value)[:50]!r} cannot be read; write 20240131235959 or 2024-01-31T23:59:59Z"
        ) from None
