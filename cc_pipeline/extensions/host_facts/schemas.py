"""The columns of facts of hosts, by the datasets that this program contains, and of the table ``host_facts``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from cc_pipeline.capture_columns import CRAWL
from cc_pipeline.columns import Column, schema_of

_STATUS_GROUPS: Final = {
    "3xx": "a redirect other than 301, 302, 304, 307, 308",
    "4xx": "a 4xx status other than 404, 410",
    "5xx": "a 5xx status",
    "gone": "404 or 410",
    "notModified": "304",
    "other": "any other status",
    "redirPerm": "301 or 308",
    "redirTemp": "302 or 307",
}
_CRAWL_DATABASE_STATES: Final = {
    "fetched": "fetched",
    "gone": "gone",
    "notModified": "not modified",
    "redirPerm": "redirected permanently",
    "redirTemp": "redirected temporarily",
    "unfetched": "not fetched yet",
}

HOST_INDEX_COLUMNS: Final = (
    Column("url_host_registered_domain", pa.string(), "Registered domain, as in the host index"),
    Column("url_host_tld", pa.string(), "Last part of the host, as in the host index"),
    Column(
        "hcrank",
        pa.float64(),
        "Harmonic centrality in the web graph, a score: larger is nearer to all others; null if not ranked",
    ),
    Column("prank", pa.float64(), "PageRank in the web graph, a score; null if not ranked"),
    Column("hcrank10", pa.float64(), "Harmonic centrality scaled to 0 to 10"),
    Column("prank10", pa.float64(), "PageRank scaled to 0 to 10"),
    Column("warc_record_length_av", pa.int64(), "Average compressed bytes of a fetched page's record"),
    Column("warc_record_length_median", pa.int64(), "Median compressed bytes of a fetched page's record"),
    Column("fetch_200", pa.int64(), "Pages of the crawl fetched with status 200"),
    Column("fetch_200_lote", pa.int64(), "Pages of fetch_200 whose first language is not English"),
    Column("fetch_200_lote_pct", pa.int64(), "Share of fetch_200 whose first language is not English, 0 to 100"),
    *(
        Column(f"fetch_{name}", pa.int64(), f"Page fetches answered with {description}")
        for name, description in _STATUS_GROUPS.items()
    ),
    Column("robots_200", pa.int64(), "Fetches of robots.txt answered with status 200"),
    *(
        Column(f"robots_{name}", pa.int64(), f"Fetches of robots.txt answered with {description}")
        for name, description in _STATUS_GROUPS.items()
    ),
    *(
        Column(f"nutch_{name}", pa.int64(), f"URLs of the crawl database that are {description}")
        for name, description in _CRAWL_DATABASE_STATES.items()
    ),
    Column(
        "nutch_numRecords",
        pa.int64(),
        "URLs of the host in the crawl database, which covers more than a year, not only this crawl",
    ),
    *(
        Column(f"nutch_{name}_pct", pa.int64(), f"Share of nutch_numRecords that is {description}, 0 to 100")
        for name, description in _CRAWL_DATABASE_STATES.items()
    ),
)
DEGREES_COLUMNS: Final = (
    Column("webgraph_outdegree", pa.int64(), "Hosts of the crawl's web graph that the host links to"),
    Column("webgraph_indegree", pa.int64(), "Hosts of the crawl's web graph that link to the host"),
)
GNEISSWEB_COLUMNS: Final = (
    *(
        Column(f"gneissweb_{topic}", pa.float64(), f"How much its pages are about {topic} by GneissWeb, 0 to 1")
        for topic in ("technology", "science", "education", "medical")
    ),
    Column("in_gneissweb", pa.bool_(), "Whether GneissWeb has pages of the host"),
)

#: Facts of a host from the datasets that this program contains.
FACT_COLUMNS: Final = (*HOST_INDEX_COLUMNS, *DEGREES_COLUMNS, *GNEISSWEB_COLUMNS)

#: ``facts_from`` are the datasets that were asked, ``other_facts`` are columns without a column of their own here.
HOST_FACTS_COLUMNS: Final = (
    CRAWL,
    Column("target", pa.string(), "Slug of the target that has the host", nullable=False),
    Column(
        "surt_host_name",
        pa.string(),
        "SURT key of the host, www dropped: the part of url_surtkey before )",
        nullable=False,
    ),
    Column(
        "host", pa.string(), "Host without www, with its port if that is not the default of the scheme", nullable=False
    ),
    Column("domain", pa.string(), "Registered domain of the host; null for IP addresses and public suffixes"),
    *FACT_COLUMNS,
    Column(
        "other_facts",
        pa.map_(pa.string(), pa.string()),
        "Columns of datasets that this table has no column for, as text",
    ),
    Column("facts_from", pa.list_(pa.string()), "Datasets that were searched for the host"),
)
HOST_FACTS_SCHEMA: Final = schema_of(HOST_FACTS_COLUMNS)
