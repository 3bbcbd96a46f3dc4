"""Common Crawl's own data, which nothing here makes: the assets at the beginning of every lineage."""

import dagster as dg

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS
from cc_pipeline.defs.lineage import (
    ARCHIVES,
    CLUSTER_INDEX,
    COLLINFO,
    COLUMNAR_INDEX,
    DEGREES,
    GNEISSWEB,
    HOST_INDEX,
    KEYED,
    PATH_LISTS,
    RECORD_BYTES,
    URL_INDEX_2012,
    WHOLE_FILES,
)
from cc_pipeline.defs.metadata import OWNERS
from cc_pipeline.hostfacts.datasets import ready_made

_SITE = "https://commoncrawl.org"
_DATA = "https://data.commoncrawl.org"


def _spec(
    key: dg.AssetKey,
    description: str,
    about: str,
    *,
    era: str,
    kinds: set[str],
    deps: tuple[dg.AssetKey, ...] = (),
    columns: tuple[tuple[str, str], ...] = (),
) -> dg.AssetSpec:
    metadata: dict[str, object] = {"about": dg.MetadataValue.url(about)}
    if columns:
        metadata["dagster/column_schema"] = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns])
    return dg.AssetSpec(
        key,
        description=description,
        group_name="commoncrawl",
        owners=OWNERS,
        kinds=kinds,
        deps=deps,
        tags={"source": "commoncrawl", "era": era},
        metadata=metadata,
    )


collinfo = _spec(
    COLLINFO,
    "The list of crawls (collinfo.json); the crawls of the ARC years are not in it.",
    "https://index.commoncrawl.org/collinfo.json",
    era="columnar",
    kinds={"json"},
)
archives = _spec(
    ARCHIVES,
    "WARC files, ARC files before 2013: each record is a gzip member of its own, asked for by offset and length.",
    f"{_SITE}/the-data/get-started",
    era="all",
    kinds={"warc"},
    columns=((RECORD_BYTES, "bytes"),),
)
path_lists = _spec(
    PATH_LISTS,
    "*.paths.gz of each crawl: the only directory of what was published.",
    f"{_DATA}/crawl-data/index.html",
    era="columnar",
    kinds={"file"},
)
columnar_index = _spec(
    COLUMNAR_INDEX,
    "The columnar URL index: some 900 Parquet files a crawl, a row a capture.",
    f"{_SITE}/columnar-index",
    era="columnar",
    kinds={"parquet"},
    deps=(PATH_LISTS, ARCHIVES),
    columns=(
        ("crawl", "string"),
        ("subset", "string"),
        *((field.name, str(field.type)) for field in INDEX_COLUMNS),
        ("warc_record_id", "binary"),
    ),
)
cluster_index = _spec(
    CLUSTER_INDEX,
    "The sharded CDX index: cdx-*.gz behind cluster.idx, a line a capture.",
    f"{_SITE}/cdxj-index",
    era="all",
    kinds={"file"},
    deps=(ARCHIVES,),
)
url_index_2012 = _spec(
    URL_INDEX_2012,
    "The prefixed B-tree of URLs of 2012, which points into the ARC files.",
    f"{_SITE}/common-crawl-url-index/",
    era="arc",
    kinds={"file"},
    deps=(ARCHIVES,),
)


def _keyed(key: dg.AssetKey, description: str, about: str) -> dg.AssetSpec:
    dataset = ready_made()[KEYED[key]]
    columns = ((dataset.key, "string"), *((name, str(kind)) for name, kind in (dataset.columns or {}).items()))
    return _spec(key, description, about, era="columnar", kinds={"parquet"}, columns=columns)


host_index = _keyed(
    HOST_INDEX,
    "The host index: a row a host of the web graph, with its ranks and how its fetches went.",
    "https://github.com/commoncrawl/cc-host-index",
)
webgraph_degrees = _keyed(
    DEGREES, "How many hosts each host of the web graph links to, and how many link to it.", f"{_SITE}/web-graphs"
)
gneissweb_hosts = _keyed(
    GNEISSWEB, "What GneissWeb's classifiers say of hosts.", "https://github.com/commoncrawl/cc-index-annotations"
)
whole_files = _spec(
    WHOLE_FILES,
    "Files that are read from begin to end: SequenceFiles of 2012, WAT and WET files.",
    f"{_SITE}/the-data/get-started",
    era="all",
    kinds={"hadoop", "warc"},
    deps=(ARCHIVES,),
)
