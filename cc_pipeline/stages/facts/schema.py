"""The table ``host_facts``: a row for each host of a target in a crawl, with what the ready-made datasets say of it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA

_ANSWERS: Final = ("3xx", "4xx", "5xx", "gone", "notModified", "other", "redirPerm", "redirTemp")
_DATABASE: Final = ("fetched", "gone", "notModified", "redirPerm", "redirTemp", "unfetched")

_HOST_INDEX: Final[dict[str, pa.DataType]] = {
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
_DEGREES: Final[dict[str, pa.DataType]] = {"webgraph_outdegree": pa.int64(), "webgraph_indegree": pa.int64()}
_GNEISSWEB: Final[dict[str, pa.DataType]] = {
    **{f"gneissweb_{topic}": pa.float64() for topic in ("technology", "science", "education", "medical")},
    "in_gneissweb": pa.bool_(),
}

#: What is said of a host, by the datasets that come with this program.
FACT_COLUMNS: Final[dict[str, pa.DataType]] = {**_HOST_INDEX, **_DEGREES, **_GNEISSWEB}

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
