"""Captures that an index lists, and one page of them: the view of a notebook before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.api.lookups import (
    LookupRequest,
    columns_to_read,
    look_up_captures,
    look_up_each_crawl,
    refuse_failed,
    report_costs,
)
from cc_pipeline.api.rows import SHOWN_ROWS, MemoryRows, Rows, first_rows
from cc_pipeline.progress import format_count
from cc_pipeline.terminal import escape_controls

if TYPE_CHECKING:
    import pyarrow as pa

    from cc_pipeline.export.capture_forms import Form
    from cc_pipeline.extraction.nearest_capture import Nearest

#: The columns that are read by default; fewer columns are cheaper. The first and the last ones are displayed.
DEFAULT_COLUMNS: Final = ("crawl", "url", "fetch_time", "warc_filename", "warc_record_offset", "warc_record_length",
                "content_digest", "content_languages", "target", "subset", "fetch_status",
                "content_mime_type")  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Capture:
    """A capture of a URL, as an index lists it. ``captured`` is aware UTC, ``None`` if the index does not know it. The
    record is ``length`` bytes from ``offset`` of ``filename``. ``row`` has all columns that were read."""

    url: str
    crawl: str
    captured: datetime | None
    status: int | None
    mime: str | None
    filename: str
    offset: int
    length: int
    row: dict[str, Any]

    def __repr__(self) -> str:
        captured = "time not known" if self.captured is None else f"{self.captured:%Y-%m-%d %H:%M:%S} UTC"
        status = "status not known" if self.status is None else f"status {self.status}"
        mime = self.mime or "type not known"
        text = f"{self.url}, {self.crawl}, {captured}, {status}, {mime}, {self.length:,} bytes"
        return escape_controls(text, one_line=True)


class Captures(Rows):
    """Captures of targets in crawls. Iterating gives :class:`Capture`. No index is asked before they are read, nor to
    display them. Of several crawls the newest is asked first, and one crawl at a time is held in memory.

    Reading raises ``UserInputError`` for text that is no target, crawl or condition, ``EnvironmentFault`` if no index
    can be asked, and at the end ``Incomplete`` if some crawls could not be asked.
    """

    def __init__(
        self,
        open_request: Callable[[], AbstractContextManager[LookupRequest]],
        columns: Sequence[str],
        limit: int | None,
        description: str = "captures",
    ) -> None:
        self._open_request = open_request
        self._columns = tuple(columns)
        self._limit = limit
        self._description = description
        #: The first rows of the last reading, and the number of rows if it was read to the end.
        self._last: tuple[list[pa.RecordBatch], int | None] | None = None

    def __iter__(self) -> Iterator[Capture]:
        for row in super().__iter__():
            yield Capture(
                row["url"],
                row["crawl"],
                row["fetch_time"],
                row["fetch_status"],
                row["content_mime_type"],
                row["warc_filename"],
                row["warc_record_offset"],
                row["warc_record_length"],
                row,
            )

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def _read(self) -> Iterator[Any]:
        import pyarrow as pa

        from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES

        yield pa.schema([NAMED_CAPTURES.field(name) for name in self._columns])
        first: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._batches_of_crawls():
            if rows < SHOWN_ROWS:
                first.append(first_rows(batch, SHOWN_ROWS - rows))
                self._last = first, None
            rows += batch.num_rows
            yield batch
        self._last = first, rows

    def _batches_of_crawls(self) -> Iterator[pa.RecordBatch]:
        remaining, failed = self._limit, list[str]()
        read = columns_to_read(self._columns)
        with self._open_request() as question:
            for _, tables in look_up_each_crawl(question.crawls, partial(_look_up, question, read), failed):
                for table in tables:
                    part = table.select(self._columns).slice(0, remaining)
                    yield from part.to_batches()
                    remaining = None if remaining is None else remaining - part.num_rows
                    if remaining == 0:
                        report_costs(question.costs)
                        return
            report_costs(question.costs)
            refuse_failed(question, failed)

    def _preview(self) -> tuple[str, MemoryRows | None]:
        if self._last is None:
            return f"{self._description}; not read yet: head() or a loop searches the index", None
        import pyarrow as pa

        from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES

        first, count = self._last
        schema = pa.schema([NAMED_CAPTURES.field(name) for name in self._columns])
        rows = MemoryRows(pa.Table.from_batches(first, schema))
        if count is None:
            return f"{self._description}; only the first captures were read", rows
        return f"{self._description}; {format_count(count, 'capture')} when they were last read", rows


def _look_up(question: LookupRequest, read: Sequence[str] | None, crawl: str) -> list[pa.Table]:
    return look_up_captures(question, crawl, read)


class Page:
    """One capture of a page. Its record is verified as a fetch does it.

    ``text``, ``markdown`` and ``json`` parse the record in a process of its own with limits on time and memory. They
    raise ``DataFault`` if no parser succeeds.
    """

    def __init__(self, nearest: Nearest, distance: timedelta | None) -> None:
        from cc_pipeline.extraction.nearest_capture import read_capture_time

        self._nearest = nearest
        #: The captured address, and the crawl.
        self.url: str = nearest.record.url or nearest.row["url"]
        self.crawl: str = nearest.row["crawl"]
        #: The time of the capture, aware UTC, and its distance from the requested time, if there was one.
        self.captured: datetime | None = nearest.record.fetch_time or read_capture_time(nearest.row)
        self.distance = distance
        #: Status and headers of the response, in their order.
        self.status: int | None = nearest.record.http_status
        self.headers: tuple[tuple[str, str], ...] = tuple(nearest.record.http_headers)
        #: ``ok``, ``mismatch`` or ``unchecked``: the comparison of the payload with the digest of the index.
        self.digest_check: str = nearest.digest_check
        #: Whether the record was stored in the home, and its address at the source.
        self.stored: bool = nearest.stored
        self.source: str = nearest.address
        #: The reason why the archive has only the beginning, if so.
        self.truncated: str | None = nearest.record.truncated

    @property
    def content(self) -> bytes:
        """The bytes of the body, without content codings."""
        return self._render("body")

    @property
    def html(self) -> str:
        """The body as text, decoded from its charset."""
        return self._render("html").decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """The main text; the whole text if no main text is found, empty if there is none."""
        return self._render("text").decode("utf-8")

    @property
    def markdown(self) -> str:
        """The main text as Markdown."""
        return self._render("markdown").decode("utf-8")

    def warc(self) -> bytes:
        """Returns the WARC record as one gzip member; records of the ARC years are converted."""
        return self._render("warc")

    def json(self) -> dict[str, Any]:
        """Returns texts, headers, links and the location of the record."""
        import json

        document: dict[str, Any] = json.loads(self._render("json"))
        return document

    def _render(self, form: Form) -> bytes:
        from cc_pipeline.export.capture_forms import render_capture

        return render_capture(self._nearest, form)[0]

    def __repr__(self) -> str:
        captured = "time not known" if self.captured is None else f"{self.captured:%Y-%m-%d %H:%M:%S} UTC"
        status = "status not known" if self.status is None else f"status {self.status}"
        text = f"{self.url}, {self.crawl}, {captured}, {status}, digest {self.digest_check}"
        return escape_controls(text, one_line=True)
