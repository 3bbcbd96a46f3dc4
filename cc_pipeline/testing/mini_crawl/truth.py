"""The content of a generated bucket: one row per capture, to compare a pipeline's results with."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from cc_pipeline.errors import DataFault, DataKind


@dataclass(frozen=True, slots=True)
class Capture:
    """One capture. Index fields have the names of the columnar index and the values of that crawl's index.

    ``content_digest`` is ``None`` if the index has none; ``payload_digest`` is always sha1 in base32 of the body as
    stored, ``payload_length`` its bytes. ``kind`` is the generated kind (``html``, ``rss``, ``redirect`` ...),
    ``title`` the title of complete HTML pages. For ARC records ``warc_filename``, offset and length (bytes, the gzip
    member) name the ARC file, and the index has only ``btree_key`` besides.
    """

    crawl: str
    subset: str
    archive_format: str
    kind: str
    domain: str
    url: str
    url_surtkey: str
    fetch_time: datetime
    fetch_status: int
    fetch_redirect: str | None
    content_digest: str | None
    content_mime_type: str | None
    content_mime_detected: str | None
    content_charset: str | None
    content_languages: str | None
    content_truncated: str | None
    warc_filename: str
    warc_record_offset: int
    warc_record_length: int
    warc_segment: str
    warc_record_id: str | None
    payload_digest: str
    payload_length: int
    title: str | None
    btree_key: str | None


@dataclass(frozen=True, slots=True)
class MiniCrawlTruth:
    """Every capture of a bucket in a stable order: by crawl as specified, then subset, key, time, file, offset."""

    seed: int
    crawls: tuple[str, ...]
    captures: tuple[Capture, ...]

    def captures_of(self, crawl: str, *, subset: str | None = None, domain: str | None = None) -> tuple[Capture, ...]:
        """Returns the captures of one crawl, optionally of one subset and registered domain."""
        return tuple(
            capture
            for capture in self.captures
            if capture.crawl == crawl and subset in {None, capture.subset} and domain in {None, capture.domain}
        )

    def domains(self, crawl: str | None = None) -> tuple[str, ...]:
        """Returns registered domains (or IP hosts) with captures, those with most captures first."""
        counts: dict[str, int] = {}
        for capture in self.captures:
            if crawl in {None, capture.crawl}:
                counts[capture.domain] = counts.get(capture.domain, 0) + 1
        return tuple(sorted(counts, key=lambda domain: (-counts[domain], domain)))

    def save(self, path: Path) -> None:
        """Writes gzipped JSON: the same truth gives the same bytes."""
        rows = [list(_plain(capture).values()) for capture in self.captures]
        document = {"seed": self.seed, "crawls": self.crawls, "columns": _COLUMNS, "captures": rows}
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        path.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))

    @classmethod
    def load(cls, path: Path) -> MiniCrawlTruth:
        """Reads a file of ``save``; raises ``DataFault`` for other files."""
        try:
            document = json.loads(gzip.decompress(path.read_bytes()))
            if tuple(document["columns"]) != _COLUMNS:
                raise DataFault(DataKind.UNSUPPORTED, str(path), None, "this truth was saved by another version")
            captures = tuple(_capture(row) for row in document["captures"])
            return cls(document["seed"], tuple(document["crawls"]), captures)
        except (ValueError, EOFError, KeyError, TypeError, gzip.BadGzipFile) as error:
            raise DataFault(DataKind.MALFORMED, str(path), None, f"not a saved truth ({error})") from error


_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Capture))
_TIME = _COLUMNS.index("fetch_time")


def _plain(capture: Capture) -> dict[str, object]:
    return {**asdict(capture), "fetch_time": capture.fetch_time.isoformat()}


def _capture(row: Iterable[object]) -> Capture:
    values: list[Any] = list(row)
    values[_TIME] = datetime.fromisoformat(str(values[_TIME]))
    return Capture(*values)
