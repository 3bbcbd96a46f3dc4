"""The columns that name a capture, and the columns that tables about captures repeat: one list each for all rooms."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

#: Times in every table. Milliseconds: what ARC headers, WARC headers and the index have at most.
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")

#: What names a capture: one place in one archive file of one crawl.
CAPTURE: Final[tuple[str, ...]] = ("crawl", "warc_filename", "warc_record_offset")

#: Where a capture's bytes lie in its crawl's archive files.
PLACE: Final[tuple[str, ...]] = ("warc_filename", "warc_record_offset", "warc_record_length")

#: A slice of a table about captures: what one target has in one crawl.
SLICE: Final[tuple[str, ...]] = ("crawl", "target")

#: How rows of such a table are ordered within a file: a slice together, then by place.
CAPTURE_ORDER: Final[tuple[str, ...]] = ("target", "warc_filename", "warc_record_offset")

#: Columns of a capture that the page tables repeat. Pages read from whole files may have no place in an archive.
KEY_FIELDS: Final[tuple[pa.Field, ...]] = (
    pa.field("crawl", pa.string(), nullable=False),
    pa.field("subset", pa.string(), nullable=False),
    pa.field("target", pa.string(), nullable=False),
    pa.field("url", pa.string()),
    pa.field("url_surtkey", pa.string()),
    pa.field("fetch_time", TIMESTAMP),
    pa.field("fetch_status", pa.int16()),
    pa.field("content_digest", pa.string()),
    pa.field("warc_filename", pa.string()),
    pa.field("warc_record_offset", pa.int64()),
    pa.field("warc_record_length", pa.int64()),
    pa.field("domain", pa.string()),
    pa.field("meant", pa.string()),
)
KEY_NAMES: Final[tuple[str, ...]] = tuple(field.name for field in KEY_FIELDS)
#: In the place of a status that the columnar index does not know. It reads as null.
NO_STATUS: Final = -1

#: Columns of a capture that ``records`` repeats: the same, the place never null, plus media type and archive format.
RECORD_KEY_FIELDS: Final[tuple[pa.Field, ...]] = (
    *KEY_FIELDS[:8],
    pa.field("content_mime_type", pa.string()),
    *(field.with_nullable(field.name not in PLACE) for field in KEY_FIELDS[8:]),
    pa.field("archive_format", pa.string(), nullable=False),
)
RECORD_KEY_NAMES: Final[tuple[str, ...]] = tuple(field.name for field in RECORD_KEY_FIELDS)
