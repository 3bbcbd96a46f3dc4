"""One HTTP exchange as it went over the wire, before an archive format bends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was asked and answered, and what the crawler found out about it.

    ``headers`` are the server's own without ``Content-Length``, ``Content-Encoding`` and ``Transfer-Encoding``:
    those follow from ``body`` (decoded), ``encoding`` (``gzip``, ``br`` or ``None``), ``chunked`` and ``wire_length``
    (bytes as sent). ``mime``, ``mime_detected``, ``charset`` and ``languages`` are written as in Common Crawl's
    index; ``truncated`` is the reason or ``None``; ``redirect`` the absolute target of a redirect. ``record_type`` is
    ``response`` or ``revisit``. ``title`` is what an HTML page that is whole is called.
    """

    url: str
    kind: str
    fetched: datetime
    status: int
    status_line: str
    headers: Headers
    body: bytes
    encoding: str | None
    chunked: bool
    wire_length: int
    server_ip: str
    mime: str | None
    mime_detected: str
    charset: str | None
    languages: str | None
    truncated: str | None
    redirect: str | None
    record_type: str
    fetch_milliseconds: int
    title: str | None

    @property
    def subset(self) -> str:
        """The subset of the index and the folder of the segment it belongs to."""
        if self.kind == "robots":
            return "robotstxt"
        return "warc" if self.status == 200 else "crawldiagnostics"
