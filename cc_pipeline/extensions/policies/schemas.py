"""The columns of ``site_policies``, in a module of their own: definitions and views import them without the parser."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CRAWL, DOMAIN, TARGET, TIMESTAMP
from cc_pipeline.columns import Column, schema_of

#: Increases when the same records would give other rows of ``site_policies``.
VERSION: Final = "1"

#: A row for each robots.txt capture, which ``robots`` identifies. ``fetch_time`` and ``fetch_status`` are those of the
#: origin's own answer. The location and ``content_digest`` are those of the capture that was read, after redirects.
#: ``lines`` are in the first row of a slice with that digest.
SITE_POLICIES_COLUMNS: Final = (
    CRAWL,
    TARGET,
    Column("robots", pa.string(), "Names one robots.txt capture: rows with the same one are its lines", nullable=False),
    Column(
        "scheme",
        pa.string(),
        "Of the origin that was asked; its rules hold for this scheme, host and port alone",
        nullable=False,
    ),
    Column("host", pa.string(), "Of the origin, in lower case", nullable=False),
    Column("port", pa.int32(), "Of the origin; 443 or 80 where the address has none", nullable=False),
    Column("segment", pa.string(), "Segment of the crawl, whose pages were fetched after it", nullable=False),
    Column("fetch_time", TIMESTAMP, "When the origin was asked"),
    Column("fetch_status", pa.int16(), "What the origin answered, before redirects"),
    Column("state", pa.string(), "What became of the request, in the words of value", nullable=False),
    Column("content_digest", pa.string(), "SHA-1 of the body that was read, in base32; null where none was"),
    Column("url", pa.string(), "Address of the robots.txt"),
    DOMAIN,
    Column("read_from", pa.string(), "Address that was read: another one behind redirects"),
    Column("warc_filename", pa.string(), "The archive file of the capture that was read", nullable=False),
    Column("warc_record_offset", pa.int64(), "Where in it", nullable=False),
    Column("warc_record_length", pa.int64(), "Bytes of its record", nullable=False),
    Column(
        "lines",
        pa.list_(
            pa.struct(
                [
                    pa.field("number", pa.int32()),
                    pa.field("agents", pa.list_(pa.string())),
                    pa.field("signal", pa.string()),
                    pa.field("path", pa.string()),
                    pa.field("value", pa.string()),
                    pa.field("uses", pa.list_(pa.string())),
                    pa.field("permission", pa.string()),
                ]
            )
        ),
        "Lines of the body, at its first capture in the slice",
    ),
)
SITE_POLICIES_SCHEMA: Final = schema_of(SITE_POLICIES_COLUMNS)
