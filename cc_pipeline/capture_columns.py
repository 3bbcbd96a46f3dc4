"""The columns that identify a capture, and the columns that tables about captures share: one list each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from cc_pipeline.columns import Column

#: Type of times in every table: milliseconds, the best precision of ARC headers, WARC headers and the index.
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")

#: The identity of a capture: one location in one archive file of one crawl.
CAPTURE: Final[tuple[str, ...]] = ("crawl", "warc_filename", "warc_record_offset")

#: The location of a capture in the archive files of its crawl.
PLACE: Final[tuple[str, ...]] = ("warc_filename", "warc_record_offset", "warc_record_length")

#: A slice of a table about captures: what one target has in one crawl.
SLICE: Final[tuple[str, ...]] = ("crawl", "target")

#: Order of rows of such a table within a file: by slice, then by location.
CAPTURE_ORDER: Final[tuple[str, ...]] = ("target", "warc_filename", "warc_record_offset")

# Columns that several tables have.
CRAWL: Final = Column("crawl", pa.string(), "Crawl id, e.g. CC-MAIN-2024-22", nullable=False)
SUBSET: Final = Column(
    "subset",
    pa.string(),
    "warc (successful fetches), crawldiagnostics (redirects, 404s …) or robotstxt",
    nullable=False,
)
TARGET: Final = Column(
    "target", pa.string(), "Slug of the target that requested the row; `targets` has its definition", nullable=False
)
URL: Final = Column("url", pa.string(), "URL as captured")
URL_SURTKEY: Final = Column(
    "url_surtkey",
    pa.string(),
    "Sort-friendly key of the URL: host reversed, www and port 80/443 dropped, query sorted. "
    "All crawls have keys by today's rule; older indexes have other keys for URLs that "
    "escape bytes other than UTF-8",
)
FETCH_TIME: Final = Column(
    "fetch_time",
    TIMESTAMP,
    "Time of the crawler's fetch, from the index; for ARC captures without one, from the record",
)
FETCH_STATUS: Final = Column("fetch_status", pa.int16(), "HTTP status from the index, else from the record")
CONTENT_DIGEST: Final = Column(
    "content_digest",
    pa.string(),
    "SHA-1 of the payload, base32, from the index; for ARC captures without one, computed",
)
CONTENT_MIME_TYPE: Final = Column(
    "content_mime_type",
    pa.string(),
    "Content-Type as declared, from the index; for ARC captures without one, from the record",
)
WARC_FILENAME: Final = Column("warc_filename", pa.string(), "Key of the WARC or ARC file in the source")
WARC_RECORD_OFFSET: Final = Column("warc_record_offset", pa.int64(), "Byte at which the record's gzip member begins")
WARC_RECORD_LENGTH: Final = Column("warc_record_length", pa.int64(), "Compressed bytes of the record")
DOMAIN: Final = Column(
    "domain", pa.string(), "Registered domain; the host for IP addresses and hosts without a public suffix"
)
MEANT: Final = Column(
    "condition_match",
    pa.string(),
    "Whether the row matches its target's condition: yes, no or unknown (in captures: with "
    "the part that the page decides); null without a condition",
)
ARCHIVE_FORMAT: Final = Column("archive_format", pa.string(), "warc or arc", nullable=False)

#: Columns of a capture that the page tables repeat. Pages of files that are read whole may have no location.
KEY_COLUMNS: Final = (
    CRAWL, SUBSET, TARGET, URL, URL_SURTKEY, FETCH_TIME, FETCH_STATUS, CONTENT_DIGEST,
    WARC_FILENAME, WARC_RECORD_OFFSET, WARC_RECORD_LENGTH, DOMAIN, MEANT,
)  # fmt: skip
KEY_NAMES: Final[tuple[str, ...]] = tuple(column.name for column in KEY_COLUMNS)
#: The value for a status that the columnar index does not know. It is read as null.
NO_STATUS: Final = -1

#: Columns of a capture that ``records`` repeats: the same with a location, plus media type and archive format.
RECORD_KEY_COLUMNS: Final = (
    *KEY_COLUMNS[:8],
    CONTENT_MIME_TYPE,
    *(replace(column, nullable=column.name not in PLACE) for column in KEY_COLUMNS[8:]),
    ARCHIVE_FORMAT,
)
RECORD_KEY_NAMES: Final[tuple[str, ...]] = tuple(column.name for column in RECORD_KEY_COLUMNS)
