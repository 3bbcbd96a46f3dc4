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
    Column("robots", pa.string(), "Id of a robots.txt capture; rows with the same id are its lines", nullable=False),
    Column(
        "scheme",
        pa.string(),
        "Scheme of the requested origin; rules are valid for this scheme, host and port only",
        nullable=False,
    ),
    Column("host", pa.string(), "Host of the origin, in lower case", nullable=False),
    Column("port", pa.int32(), "Port of the origin; 443 or 80 if the address has none", nullable=False),
    Column("segment", pa.string(), "Segment of the crawl; its pages were fetched after the robots.txt", nullable=False),
    Column("fetch_time", TIMESTAMP, "Time of the request to the origin"),
    Column("fetch_status", pa.int16(), "HTTP status of the origin, before redirects"),
    Column("state", pa.string(), "Result of the request, in the terms of value", nullable=False),
    Column("content_digest", pa.string(), "SHA-1 of the body that was read, in base32; null if none was"),
    Column("url", pa.string(), "Address of the robots.txt"),
    DOMAIN,
    Column("read_from", pa.string(), "Address that was read; it differs from url after redirects"),
    Column("warc_filename", pa.string(), "Archive file of the capture that was read", nullable=False),
    Column("warc_record_offset", pa.int64(), "Byte at which its record begins", nullable=False),
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
        "Lines of the body, in the row of its first capture in the slice",
    ),
)
SITE_POLICIES_SCHEMA: Final = schema_of(SITE_POLICIES_COLUMNS)
