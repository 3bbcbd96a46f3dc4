"""Common Crawl's own data, which nothing here makes: the assets at the beginning of every lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import dagster as dg

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lineage import RECORD_BYTES

_SITE: Final = "https://commoncrawl.org"
_INDEX: Final = (
    ("crawl", "string"), ("subset", "string"), *((column.name, str(column.type)) for column in INDEX_COLUMNS),
    ("warc_record_id", "binary"),
)  # fmt: skip
#: Of each asset: its description, the page about it, its era, its kinds, what it depends on, and its columns.
_ASSETS: Final[dict[str, tuple[str, str, str, set[str], Sequence[str], Sequence[tuple[str, str]]]]] = {
    "collinfo": (
        "The list of crawls (collinfo.json); the crawls of the ARC years are not in it.",
        "https://index.commoncrawl.org/collinfo.json", "columnar", {"json"}, (), (),
    ),
    "archives": (
        "WARC files; ARC files before 2013. Each record is its own gzip member, requested by offset and length.",
        f"{_SITE}/the-data/get-started", "all", {"warc"}, (), ((RECORD_BYTES, "bytes"),),
    ),
    "path_lists": (
        "*.paths.gz of each crawl: the only list of the published files.",
        "https://data.commoncrawl.org/crawl-data/index.html", "columnar", {"file"}, (), (),
    ),
    "columnar_index": (
        "The columnar URL index: some 900 Parquet files per crawl, one row per capture.",
        f"{_SITE}/columnar-index", "columnar", {"parquet"}, ("path_lists", "archives"), _INDEX,
    ),
    "cluster_index": (
        "The sharded CDX index (ZipNum): cluster.idx and cdx-*.gz, one line per capture.",
        f"{_SITE}/cdxj-index", "all", {"file"}, ("archives",), (),
    ),
    "url_index_2012": (
        "The prefixed B-tree of URLs of 2012, which points into the ARC files.",
        f"{_SITE}/common-crawl-url-index/", "arc", {"file"}, ("archives",), (),
    ),
    "whole_files": (
        "Files that are read whole: SequenceFiles of 2012.",
        f"{_SITE}/the-data/get-started", "all", {"hadoop", "warc"}, ("archives",), (),
    ),
}  # fmt: skip


def define(namespace: HomeNamespace) -> list[dg.AssetSpec]:
    """Returns the external assets."""
    return [
        dg.AssetSpec(
            namespace.key("commoncrawl", name),
            description=description,
            group_name=namespace.group_of("commoncrawl"),
            kinds=kinds,
            deps=[namespace.key("commoncrawl", dep) for dep in deps],
            tags={"source": "commoncrawl", "era": era},
            metadata={"about": dg.MetadataValue.url(page)}
            | (
                {"dagster/column_schema": dg.TableSchema([dg.TableColumn(*column) for column in columns])}
                if columns
                else {}
            ),
        )
        for name, (description, page, era, kinds, deps, columns) in _ASSETS.items()
    ]
