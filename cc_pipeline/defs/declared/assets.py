"""The declared assets: their descriptions, inputs and partitions. The functions that make them are in
``defs/assets/``."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import dagster as dg
from pydantic import Field

from cc_pipeline.columns import Column
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS
from cc_pipeline.defs.declarations import Asset, ExternalAsset, RecordedAsset, Step
from cc_pipeline.defs.lineage import (
    ARCHIVES,
    CLUSTER_INDEX,
    COLLINFO,
    COLUMNAR_INDEX,
    COLUMNS,
    PATH_LISTS,
    RECORD_BYTES,
    URL_INDEX_2012,
    WHOLE_FILES,
)
from cc_pipeline.defs.partitions import BACKFILL
from cc_pipeline.documents.schemas import PAGE_COLUMNS, PARSER_VERSION
from cc_pipeline.index.catalog.schemas import SHOWN_ROW_GROUPS_COLUMNS
from cc_pipeline.records.schema import RECORD_COLUMNS
from cc_pipeline.workspace.schemas import (
    CAPTURES_COLUMNS,
    CRAWLS_COLUMNS,
    INDEX_MANIFEST_COLUMNS,
    SOURCE_FAULTS_COLUMNS,
)

#: The code version of ``warehouse``, which Dagster stores with each materialization.
WAREHOUSE_VERSION: Final = "1"
#: The tables over crawl × target, which one step makes.
EXTRACTED: Final[Mapping[str, Sequence[Column]]] = {
    "captures": CAPTURES_COLUMNS,
    "records": RECORD_COLUMNS,
    **PAGE_COLUMNS,
}
#: One run takes several files: each file fails by itself.
_TEN_PER_RUN: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=10)
#: Each crawl has its own run: its steps follow each other, and later ones are skipped if the crawl failed.
_ONE_PER_RUN: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=1)
_SITE: Final = "https://commoncrawl.org"
_BODIES: Final = "cc_pipeline.defs.assets"


class BuildConfig(dg.Config):
    """Agreement to the cost, and how many files are indexed."""

    yes: bool = Field(default=False, description="Agree to the cost. A run without it shows the cost.")
    max_files: int = Field(default=0, description="Archive files to index now; 0: all that are missing.")


class FootersConfig(dg.Config):
    """Options of a harvest."""

    refresh: bool = Field(default=False, description="Check each stored file for a replacement; one request per file.")


class ExtractConfig(dg.Config):
    """What a person accepts."""

    accept_removals: bool = Field(
        default=False,
        description="Remove captures that the index no longer lists, with their records and pages.",
    )


def _make_step(place: str, asset: Asset, **step_options: Any) -> Step:
    """Returns a step that makes one asset."""
    return Step(function=f"{_BODIES}.{place}", assets=[asset], **step_options)


def catalog() -> list[Step]:
    """Returns the steps from the list of crawls to the row-group catalog."""
    fresh, days = dg.FreshnessPolicy.time_window, timedelta
    by_crawl: dict[str, Any] = {"partitions": "crawl", "backfill": _ONE_PER_RUN}

    def asset(name: str, kinds: Sequence[str], description: str, **asset_fields: Any) -> Asset:
        return Asset(name=name, group="catalog", kinds=kinds, description=description, **asset_fields)

    return [
        _make_step(
            "catalog.crawls",
            asset(
                "crawls",
                ["json", "deltalake"],
                "One row per crawl in collinfo.json, including the three of the ARC years.",
                external=[COLLINFO],
                columns=CRAWLS_COLUMNS,
                is_published=True,
            ),
            options={
                # the list is read once a day
                "automation_condition": dg.AutomationCondition.on_cron("0 3 * * *"),
                # a crawl comes every month or two, and the sensor new_crawls asks every few hours
                "freshness_policy": fresh(fail_window=days(days=60), warn_window=days(days=14)),
            },
        ),
        _make_step(
            "catalog.index_manifest",
            asset(
                "index_manifest",
                ["deltalake"],
                "One row per index file in the crawl's path list; none for crawls of the ARC years.",
                deps=["crawls"],
                external=[PATH_LISTS],
                columns=INDEX_MANIFEST_COLUMNS,
            ),
            **by_crawl,
        ),
        _make_step(
            "catalog.index_footers",
            asset(
                "index_footers",
                ["parquet"],
                "The raw footer of every index file of the selected subsets (CC_PIPELINE_SUBSETS): "
                "fetched once, with one request each, and stored in the home.",
                deps=["index_manifest", "built_index"],
                external=[COLUMNAR_INDEX],
            ),
            config=FootersConfig,
            **by_crawl,
        ),
        _make_step(
            "catalog.row_groups",
            asset(
                "row_groups",
                ["deltalake", "duckdb"],
                "One row per row group: its location, size and key range. Replaces the crawl in the "
                "catalog.\n\n"
                "Fails if index files could not be read (CC_PIPELINE_MAX_INDEX_GAPS), after all other "
                "files are in the catalog.",
                deps=["index_footers"],
                columns=SHOWN_ROW_GROUPS_COLUMNS,
                is_published=True,
            ),
            pool="catalog",
            options={"freshness_policy": fresh(fail_window=days(days=120), warn_window=days(days=60))},
            **by_crawl,
        ),
    ]


def on_request() -> list[RecordedAsset]:
    """Returns the assets that read gigabytes of a crawl. Only the job that is named for each of them makes it."""

    def recorded(job: str, name: str, kinds: Sequence[str], description: str, **asset_fields: Any) -> RecordedAsset:
        asset = Asset(name=name, group="catalog", kinds=kinds, description=description, **asset_fields)
        return RecordedAsset(asset=asset, job=job, partitions="crawl")

    return [
        recorded(
            "build_index",
            "built_index",
            ["parquet"],
            "The columnar index of a month of CC-NEWS, or of WARC files that a person named: one "
            "Parquet file per archive file.\n\n"
            "Reads every archive file once (some 350 GB a month). So a run shows the cost, and "
            "builds only with agreement in its configuration. A stopped build continues where it "
            "stopped.",
            external=[PATH_LISTS, ARCHIVES],
        ),
        recorded(
            "repair_statistics",
            "repaired_statistics",
            ["deltalake", "duckdb"],
            "Key bounds of row groups that were published without them (13 crawls of 2017 and 2018, "
            "some later ones).\n\n"
            "Reads the key column of each such row group once: about 23 MB each in the real index. "
            "Without the bounds, every lookup reads these row groups.",
            deps=["row_groups"],
            external=[COLUMNAR_INDEX],
            table="row_groups",
            columns=SHOWN_ROW_GROUPS_COLUMNS,
        ),
    ]


def extraction() -> list[Step]:
    """Returns the step of a target's captures in a crawl, their records, and their pages."""

    def asset(
        name: str, group: str, dep: str, version: str, description: str, *kinds: str, **asset_fields: Any
    ) -> Asset:
        return Asset(
            name=name,
            group=group,
            kinds=["deltalake", *kinds],
            description=description,
            deps=[dep],
            code_version=version,
            columns=EXTRACTED[name],
            lineage=COLUMNS[name],
            is_published=True,
            **asset_fields,
        )

    pages = {
        "page_metadata": "One row per record: the 2012 metadata schema, typed.",
        "page_text": "One row per page with text: full text, main content, language.",
        "page_links": "One row per link, with every attribute and its resolved address.",
        "feed_items": "One row per item of an RSS, Atom or JSON Feed.",
    }
    of_index = "One row per capture of the target in the crawl, with every column of the index."
    of_bytes = "One row per planned capture with exactly one outcome; fetched bytes are stored as WARC or ARC."
    indexes = [COLUMNAR_INDEX, CLUSTER_INDEX, URL_INDEX_2012]
    return [
        Step(
            function=f"{_BODIES}.extraction.extract",
            assets=[
                asset("captures", "extraction", "row_groups", "1", of_index, external=indexes),
                asset("records", "extraction", "captures", "1", of_bytes, "warc", external=[ARCHIVES]),
                *(asset(name, "content", "records", PARSER_VERSION, text) for name, text in pages.items()),
            ],
            config=ExtractConfig,
            description="Looks targets up in the cheapest index of their crawl, fetches and verifies their "
            "records, and parses each once.\n\n"
            "Each partition is recorded when it is done; a failed one does not stop the others. One "
            "pass writes all four page tables, and records those that are selected.",
            partitions="pairs",
            backfill=BACKFILL,
            options={"can_subset": True},
        )
    ]


def sources() -> list[Step]:
    """Returns the step of pages from files that are read whole: SequenceFiles of 2012."""
    files = {
        "source_metadata": ("page_metadata", "Rows of page_metadata from SequenceFiles of 2012."),
        "source_text": ("page_text", "Rows of page_text from SequenceFiles of 2012."),
        "source_links": ("page_links", "Rows of page_links from SequenceFiles of 2012."),
        "source_feed_items": ("feed_items", "Rows of feed_items from SequenceFiles of 2012."),
        "source_faults": (
            "source_faults",
            "One row per byte range of a file that could not be read, with its location and the reason.",
        ),
    }
    columns = {**PAGE_COLUMNS, "source_faults": SOURCE_FAULTS_COLUMNS}
    return [
        Step(
            function=f"{_BODIES}.sources.read_files",
            assets=[
                Asset(
                    name=name,
                    group="sources",
                    kinds=["deltalake"],
                    description=text,
                    external=[WHOLE_FILES],
                    code_version=PARSER_VERSION,
                    table=table,
                    columns=columns[table],
                    is_published=True,
                )
                for name, (table, text) in files.items()
            ],
            description="Reads each file once, from its beginning to its end, into the tables of parsed pages.",
            partitions="source_file",
            # a file takes minutes; more files in one run save only the seconds that a run costs
            backfill=_TEN_PER_RUN,
        )
    ]


def analytics(published: Iterable[str]) -> list[Step]:
    """Returns the step of the published DuckDB file, which is made of the ``published`` assets."""

    def asset(name: str, kind: str, description: str, **asset_fields: Any) -> Asset:
        return Asset(name=name, group="analytics", kinds=[kind], description=description, **asset_fields)

    return [
        _make_step(
            "warehouse.warehouse",
            asset(
                "warehouse",
                "duckdb",
                "``cc.duckdb``: one view per table, over the files of a fixed version. Each capture is "
                "there once.\n\n"
                "The file can be opened read-only at any time, also during a publication.",
                deps=[*published],
                code_version=WAREHOUSE_VERSION,
            ),
            pool="warehouse",
            options={
                # weekly_maintenance publishes each week, automation after every change
                "freshness_policy": dg.FreshnessPolicy.time_window(
                    fail_window=timedelta(days=30), warn_window=timedelta(days=8)
                )
            },
        ),
    ]


def common_crawl() -> list[ExternalAsset]:
    """Returns Common Crawl's own data, which nothing here makes: the assets at the beginning of every lineage."""

    def spec(
        key: dg.AssetKey, description: str, page_url: str, era: Any, *kinds: str, **asset_fields: Any
    ) -> ExternalAsset:
        return ExternalAsset(key=key, description=description, page_url=page_url, era=era, kinds=kinds, **asset_fields)

    index = [("crawl", "string"), ("subset", "string"), *((column.name, str(column.type)) for column in INDEX_COLUMNS)]
    return [
        spec(
            COLLINFO,
            "The list of crawls (collinfo.json); the crawls of the ARC years are not in it.",
            "https://index.commoncrawl.org/collinfo.json",
            "columnar",
            "json",
        ),
        spec(
            ARCHIVES,
            "WARC files; ARC files before 2013. Each record is its own gzip member, requested by offset and length.",
            f"{_SITE}/the-data/get-started",
            "all",
            "warc",
            columns=[(RECORD_BYTES, "bytes")],
        ),
        spec(
            PATH_LISTS,
            "*.paths.gz of each crawl: the only list of the published files.",
            "https://data.commoncrawl.org/crawl-data/index.html",
            "columnar",
            "file",
        ),
        spec(
            COLUMNAR_INDEX,
            "The columnar URL index: some 900 Parquet files per crawl, one row per capture.",
            f"{_SITE}/columnar-index",
            "columnar",
            "parquet",
            deps=[PATH_LISTS, ARCHIVES],
            columns=[*index, ("warc_record_id", "binary")],
        ),
        spec(
            CLUSTER_INDEX,
            "The sharded CDX index (ZipNum): cluster.idx and cdx-*.gz, one line per capture.",
            f"{_SITE}/cdxj-index",
            "all",
            "file",
            deps=[ARCHIVES],
        ),
        spec(
            URL_INDEX_2012,
            "The prefixed B-tree of URLs of 2012, which points into the ARC files.",
            f"{_SITE}/common-crawl-url-index/",
            "arc",
            "file",
            deps=[ARCHIVES],
        ),
        spec(
            WHOLE_FILES,
            "Files that are read whole: SequenceFiles of 2012.",
            f"{_SITE}/the-data/get-started",
            "all",
            "hadoop",
            "warc",
            deps=[ARCHIVES],
        ),
    ]
