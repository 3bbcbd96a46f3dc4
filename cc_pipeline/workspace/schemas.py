"""The columns of tables, but for those of the catalog, of records and of pages. Nothing heavy is loaded here."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA

_ANSWERS: Final = ("3xx", "4xx", "5xx", "gone", "notModified", "other", "redirPerm", "redirTemp")
_DATABASE: Final = ("fetched", "gone", "notModified", "redirPerm", "redirTemp", "unfetched")

HOST_INDEX_COLUMNS: Final[dict[str, pa.DataType]] = {
    "url_host_registered_domain": pa.string(),
    "url_host_tld": pa.string(),
    **dict.fromkeys(("hcrank", "prank", "hcrank10", "prank10"), pa.float64()),
    **dict.fromkeys(("warc_record_length_av", "warc_record_length_median"), pa.int64()),
    **dict.fromkeys(("fetch_200", "fetch_200_lote", "fetch_200_lote_pct"), pa.int64()),
    **dict.fromkeys((f"fetch_{kind}" for kind in _ANSWERS), pa.int64()),
    **dict.fromkeys((f"robots_{kind}" for kind in ("200", *_ANSWERS)), pa.int64()),
    **dict.fromkeys((f"nutch_{kind}" for kind in (*_DATABASE, "numRecords")), pa.int64()),
    **dict.fromkeys((f"nutch_{kind}_pct" for kind in _DATABASE), pa.int64()),
}
DEGREES_COLUMNS: Final[dict[str, pa.DataType]] = {"webgraph_outdegree": pa.int64(), "webgraph_indegree": pa.int64()}
GNEISSWEB_COLUMNS: Final[dict[str, pa.DataType]] = {
    **{f"gneissweb_{topic}": pa.float64() for topic in ("technology", "science", "education", "medical")},
    "in_gneissweb": pa.bool_(),
}

#: What is said of a host, by the datasets that come with this program.
FACT_COLUMNS: Final[dict[str, pa.DataType]] = {**HOST_INDEX_COLUMNS, **DEGREES_COLUMNS, **GNEISSWEB_COLUMNS}

#: ``facts_from`` are the datasets that were asked, ``other_facts`` columns of datasets that this version does not know.
HOST_FACTS_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("surt_host_name", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("domain", pa.string()),
        *(pa.field(name, kind) for name, kind in FACT_COLUMNS.items()),
        pa.field("other_facts", CAPTURE_SCHEMA.field("extra_columns").type),
        pa.field("facts_from", pa.list_(pa.string())),
    ]
)

CRAWLS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("era", pa.string(), nullable=False),
        pa.field("started", TIMESTAMP),
        pa.field("ended", TIMESTAMP),
        pa.field("cdx_api", pa.string()),
    ]
)

INDEX_MANIFEST_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("subset", pa.string(), nullable=False),
        pa.field("part", pa.int32()),
        pa.field("path", pa.string(), nullable=False),
    ]
)

TARGETS_SCHEMA = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("definition", pa.string(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("ranges", pa.list_(pa.struct([pa.field("start", pa.binary()), pa.field("end", pa.binary())]))),
        pa.field("parts", pa.int32()),
    ]
)

CAPTURES_SCHEMA = pa.schema([pa.field("target", pa.string(), nullable=False), *CAPTURE_SCHEMA])

#: ``made_from`` is the digest of the captures that the look-up gave: a row counts while they still have it. What
#: fetching all of them costs is there too, and the versions of the target's definition and of the index asked.
#: ``index_size`` is how many files the index lists (of a ZipNum index: bytes of its ``cluster.idx``). ``unlisted``
#: captures are no longer in the index that named them, which is doubted; ``removal`` is a number for which they are.
#: ``repeated`` are index rows of captures that the index had named already.
LOOKUPS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("located_by", pa.string(), nullable=False),
        pa.field("subsets", pa.list_(pa.string()), nullable=False),
        pa.field("complete", pa.bool_(), nullable=False),
        pa.field("index_files", pa.int64()),
        pa.field("unread_files", pa.int64(), nullable=False),
        pa.field("unread", pa.list_(pa.string()), nullable=False),
        pa.field("captures", pa.int64(), nullable=False),
        pa.field("looked_up_at", TIMESTAMP, nullable=False),
        pa.field("made_from", pa.string(), nullable=False),
        pa.field("members", pa.list_(pa.struct([pa.field("member", pa.string()), pa.field("captures", pa.int64())]))),
        pa.field("definition", pa.string(), nullable=False),
        pa.field("index_version", pa.string(), nullable=False),
        pa.field("record_bytes", pa.int64(), nullable=False),
        pa.field("fetch_bytes", pa.int64(), nullable=False),
        pa.field("fetch_requests", pa.int64(), nullable=False),
        pa.field("index_size", pa.int64()),
        pa.field("unlisted", pa.int64(), nullable=False),
        pa.field("removal", pa.string(), nullable=False),
        pa.field("repeated", pa.int64(), nullable=False),
    ]
)

_STORED_FILES: Final = pa.list_(pa.struct([pa.field("file", pa.string()), pa.field("bytes", pa.int64())]))

FETCHES_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("planned", pa.int64(), nullable=False),
        pa.field("fetched", pa.int64(), nullable=False),
        pa.field("quarantined", pa.int64(), nullable=False),
        pa.field("missing", pa.int64(), nullable=False),
        pa.field("unsettled", pa.int64(), nullable=False),
        pa.field("given_up", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("example", pa.string()),
        pa.field("rounds", pa.int32(), nullable=False),
        pa.field("silent_runs", pa.int32(), nullable=False),
        pa.field("asked_at", TIMESTAMP, nullable=False),
        pa.field("made_from", pa.string(), nullable=False),
        pa.field("stored_bytes", pa.int64(), nullable=False),
        pa.field("stored_files", _STORED_FILES, nullable=False),
        pa.field("lost_reason", pa.string()),
        pa.field("lost_file", pa.string()),
        pa.field("lost_in_one", pa.int64(), nullable=False),
        pa.field("losses", pa.string(), nullable=False),
        pa.field("losses_accepted", pa.string()),
        pa.field("losses_doubted", pa.bool_(), nullable=False),
        pa.field("mismatched", pa.int64(), nullable=False),
        pa.field("mismatches", pa.string(), nullable=False),
        pa.field("mismatches_confirmed", pa.string()),
        pa.field("mismatches_doubted", pa.bool_(), nullable=False),
        pa.field("second_looks", pa.int32(), nullable=False),
    ]
)

#: ``location`` is an absolute path or a key of the source; ``slug`` the partition key, and the ``target`` of its rows.
#: ``content_tag`` is there for archive files only: their size and ETag when they were added.
SOURCE_FILES_SCHEMA = pa.schema(
    [
        pa.field("slug", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("content_tag", pa.string()),
    ]
)

#: ``byte_offset`` is where in the file reading failed; null when the whole file is meant.
SOURCE_FAULTS_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("source_kind", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("byte_offset", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)

#: A row for each robots.txt capture, which ``robots`` names. ``fetch_time`` and ``fetch_status`` are those of the
#: origin's own answer, the place and ``content_digest`` those of the capture that was read, behind its redirects.
#: ``lines`` stand at the first row of a slice with that digest.
SITE_POLICIES_SCHEMA = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("robots", pa.string(), nullable=False),
        pa.field("scheme", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("port", pa.int32(), nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("fetch_time", TIMESTAMP),
        pa.field("fetch_status", pa.int16()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("content_digest", pa.string()),
        pa.field("url", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("read_from", pa.string()),
        pa.field("warc_filename", pa.string(), nullable=False),
        pa.field("warc_record_offset", pa.int64(), nullable=False),
        pa.field("warc_record_length", pa.int64(), nullable=False),
        pa.field(
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
                        pa.field("says", pa.string()),
                    ]
                )
            ),
        ),
    ]
)
