"""Readers of one question for ``bench_index``: the captures of one domain, by six programs.

``python -m benchmarks.index_readers NAME URL HOME PATH...`` warms up on a small file, says so, waits for a line, and
prints rows and seconds of the query. A reader imports nothing but its own library: it may run in an interpreter that
has only that.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CRAWL = "CC-MAIN-2024-22"
OLD_CRAWL = "CC-MAIN-2018-05"
DOMAIN = "example.com"
LOW, HIGH = "com,example)", "com,example-"
PORTS_LOW, PORTS_HIGH = "com,example:", "com,example;"
COLUMNS = ("url_surtkey", "url", "fetch_time", "fetch_status")
COLUMNS += ("warc_filename", "warc_record_offset", "warc_record_length")
WHERE = (
    f"(url_surtkey >= '{LOW}' AND url_surtkey < '{HIGH}') "
    f"OR (url_surtkey >= '{PORTS_LOW}' AND url_surtkey < '{PORTS_HIGH}')"
)
BUCKET = "bucket"


def index_path(crawl: str, part: int) -> str:
    return f"cc-index/table/cc-main/warc/crawl={crawl}/subset=warc/part-{part:05d}-0a.c000.gz.parquet"


WARM = index_path("CC-MAIN-2024-18", 0)


def _ours(url: str, home: Path) -> Callable[[Sequence[str]], int]:
    from cc_pipeline.commoncrawl.target_text import parse_target
    from cc_pipeline.index.catalog.catalog import Catalog
    from cc_pipeline.index.footers.decode import place
    from cc_pipeline.index.parquet.finder import CatalogFinder
    from cc_pipeline.index.parquet.locator import ParquetLocator
    from cc_pipeline.transport.client import Transport

    folders = (home / "catalog").iterdir()
    catalog = Catalog({folder.name.removeprefix("crawl="): [*map(str, folder.iterdir())] for folder in folders})
    transport = Transport(f"{url}{BUCKET}")
    target = parse_target(DOMAIN)

    def look_up(wanted: Sequence[str]) -> int:
        crawl = place(wanted[0])[0] or ""
        locator = ParquetLocator(transport, CatalogFinder(catalog, transport), columns=COLUMNS)
        return locator.locate(crawl, ["warc"], [target]).captures[target.slug].num_rows

    return look_up


def _datafusion(url: str, home: Path) -> Callable[[Sequence[str]], int]:
    from datafusion import SessionConfig, SessionContext
    from datafusion.object_store import AmazonS3

    del home

    def look_up(wanted: Sequence[str]) -> int:
        config = SessionConfig()
        for name in ("enable_page_index", "pushdown_filters", "reorder_filters"):
            config = config.set(f"datafusion.execution.parquet.{name}", "true")
        context = SessionContext(config)
        store = AmazonS3(
            bucket_name=BUCKET,
            region="us-east-1",
            access_key_id="a",
            secret_access_key="b",
            endpoint=url.rstrip("/"),
            allow_http=True,
        )
        context.register_object_store("s3://", store, BUCKET)
        for number, path in enumerate(wanted):
            context.register_parquet(f"t{number}", f"s3://{BUCKET}/{path}")
        query = f"SELECT {', '.join(COLUMNS)} FROM {{}} WHERE {WHERE}"
        union = " UNION ALL ".join(query.format(f"t{number}") for number in range(len(wanted)))
        return int(context.sql(union).to_arrow_table().num_rows)

    return look_up


def _pyarrow(url: str, home: Path) -> Callable[[Sequence[str]], int]:
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from pyarrow import fs

    del home
    host = url.removeprefix("http://").rstrip("/")

    def look_up(wanted: Sequence[str]) -> int:
        system = fs.S3FileSystem(anonymous=True, endpoint_override=host, scheme="http", region="us-east-1")
        key = pc.field("url_surtkey")
        inside = ((key >= LOW) & (key < HIGH)) | ((key >= PORTS_LOW) & (key < PORTS_HIGH))
        data = ds.dataset([f"{BUCKET}/{path}" for path in wanted], filesystem=system, format="parquet")
        return int(data.to_table(columns=list(COLUMNS), filter=inside).num_rows)

    return look_up


def _duckdb(url: str, home: Path) -> Callable[[Sequence[str]], int]:
    import duckdb

    del home
    extensions = [found for folder in sys.path for found in Path(folder).glob("duckdb_extension_httpfs/**/*.extension")]
    extensions += [
        found for folder in sys.path for found in Path(folder).glob("duckdb_extension_httpfs/**/*.duckdb_extension")
    ]

    def look_up(wanted: Sequence[str]) -> int:
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        connection.execute(f"LOAD '{extensions[0]}'" if extensions else "LOAD httpfs")
        files = ", ".join(f"'{url}{BUCKET}/{path}'" for path in wanted)
        query = f"SELECT {', '.join(COLUMNS)} FROM read_parquet([{files}], hive_partitioning = false) WHERE {WHERE}"
        return len(connection.execute(query).fetchall())

    return look_up


def _polars(url: str, home: Path) -> Callable[[Sequence[str]], int]:
    import polars as pl

    del home
    options = {
        "aws_endpoint_url": url.rstrip("/"),
        "aws_allow_http": "true",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "us-east-1",
    }

    def look_up(wanted: Sequence[str]) -> int:
        key = pl.col("url_surtkey")
        inside = ((key >= LOW) & (key < HIGH)) | ((key >= PORTS_LOW) & (key < PORTS_HIGH))
        files = [f"s3://{BUCKET}/{path}" for path in wanted]
        frame = pl.scan_parquet(files, storage_options=options, hive_partitioning=False, glob=False)
        return frame.filter(inside).select(COLUMNS).collect().height

    return look_up


READERS = {"ours": _ours, "datafusion": _datafusion, "pyarrow": _pyarrow, "duckdb": _duckdb, "polars": _polars}


def main() -> None:
    """Runs one reader; see the top of this file."""
    name, url, home, *paths = sys.argv[1:]
    look_up = READERS[name](url, Path(home))
    look_up([WARM])
    print("warm", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    rows = look_up(paths)
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()
