"""What the columns of ``host_facts`` hold, in a line each."""

from __future__ import annotations

from typing import Final

_ANSWERS: Final = {
    "3xx": "other redirects than 301, 302, 304, 307, 308",
    "4xx": "other errors of the 400s than 404, 410",
    "5xx": "errors of the 500s",
    "gone": "404 and 410",
    "notModified": "304",
    "other": "anything else",
    "redirPerm": "301 and 308",
    "redirTemp": "302 and 307",
}
_DATABASE: Final = {
    "fetched": "fetched",
    "gone": "gone",
    "notModified": "not modified",
    "redirPerm": "redirected for good",
    "redirTemp": "redirected for now",
    "unfetched": "not fetched yet",
}

FACT_NOTES: Final[dict[str, str]] = {
    "target": "Slug of the target that the host belongs to",
    "surt_host_name": "SURT key of the host, www dropped: the part of url_surtkey before )",
    "host": "The host without www, with its port where that is not the scheme's own",
    "domain": "Registered domain of the host; null for IP addresses and public suffixes",
    "url_host_registered_domain": "Registered domain, as the host index has it",
    "url_host_tld": "Last part of the host, as the host index has it",
    "hcrank": "Harmonic centrality in the web graph, a score: larger is nearer to all others; null where not ranked",
    "prank": "PageRank in the web graph, a score; null where not ranked",
    "hcrank10": "Harmonic centrality scaled to 0 to 10",
    "prank10": "PageRank scaled to 0 to 10",
    "warc_record_length_av": "Average compressed bytes of a fetched page's record",
    "warc_record_length_median": "Median of the same",
    "fetch_200": "Pages of the crawl fetched with status 200",
    "fetch_200_lote": "Those of them whose first language is not English",
    "fetch_200_lote_pct": "Their share of fetch_200, 0 to 100",
    **{f"fetch_{name}": f"Page fetches answered with {what}" for name, what in _ANSWERS.items()},
    "robots_200": "Fetches of robots.txt answered with status 200",
    **{f"robots_{name}": f"Fetches of robots.txt answered with {what}" for name, what in _ANSWERS.items()},
    **{f"nutch_{name}": f"URLs of the crawl database that are {what}" for name, what in _DATABASE.items()},
    "nutch_numRecords": "URLs of the host in the crawl database, which is over a year: not of this crawl alone",
    **{f"nutch_{name}_pct": f"Share of nutch_numRecords that is {what}, 0 to 100" for name, what in _DATABASE.items()},
    "webgraph_outdegree": "Hosts of the crawl's web graph that it links to",
    "webgraph_indegree": "Hosts of the crawl's web graph that link to it",
    **{
        f"gneissweb_{topic}": f"How much its pages are about {topic} by GneissWeb, 0 to 1"
        for topic in ("technology", "science", "education", "medical")
    },
    "in_gneissweb": "Whether GneissWeb has pages of it",
    "other_facts": "Columns of datasets that this version does not know, as text",
    "facts_from": "Datasets that were asked about the host",
}
