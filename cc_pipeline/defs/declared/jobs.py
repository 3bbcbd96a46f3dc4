"""The jobs: assets that run together, and jobs of one op. Each description ends with who launches the job."""

from typing import Final

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.declarations import AssetJob, OpJob
from cc_pipeline.defs.declared.assets import BuildConfig, ExtractConfig

_ASSET_JOBS: Final = (
    AssetJob(
        name="harvest_crawl",
        description="Reads a crawl's path list, fetches its footers, and puts its row groups into the catalog. For "
        "people, commands and the sensors new_crawls and path_lists.",
        assets=("index_manifest", "index_footers", "row_groups"),
    ),
    AssetJob(
        name="extract_domain",
        description="Finds, fetches and parses a domain's captures in a crawl. For people: it selects the six tables "
        "of a run, which nothing else may be launched with.",
        assets=("captures", "records", "page_metadata", "page_text", "page_links", "feed_items"),
    ),
    AssetJob(
        name="list_crawls",
        description="Reads the list of crawls again. For commands, which leave a run here when it changed.",
        assets=("crawls",),
    ),
    AssetJob(
        name="publish",
        description="Publishes a new snapshot of cc.duckdb. For people, and the sensor publication.",
        assets=("warehouse",),
    ),
    AssetJob(
        name="read_source_files",
        description="Reads whole files (SequenceFiles of 2012) into the tables of parsed pages. For cc-pipeline "
        "files add.",
        assets=("source_metadata", "source_text", "source_links", "source_feed_items", "source_faults"),
    ),
)


class PartitionsConfig(dg.Config):
    """Partitions of any crawls."""

    partitions: dict[str, list[str]] = Field(
        description='Targets by crawl, as in {"CC-MAIN-2024-22": ["example.com", "example.org"]}.'
    )


class ExtractTargetsConfig(PartitionsConfig, ExtractConfig):
    """The tables and partitions to extract."""

    tables: list[str] = Field(default=[], description="Names of tables, captures to feed_items; empty: all.")


class PurgeConfig(dg.Config):
    """The target to purge, and how."""

    target: str = Field(description="The target: its definition, its partition key, or the name of a set.")
    dry_run: bool = Field(default=True, description="Only log the plan and its digest. False: delete.")
    plan: str = Field(default="", description="Digest that the dry run printed; required if dry_run is false.")
    now: bool = Field(default=False, description="Delete at once. Readers must open cc.duckdb again.")


_OP_JOBS: Final = (
    OpJob(
        name="repair_statistics",
        description="Computes key bounds of a crawl's row groups without any. Reads their whole key column. "
        "Records repaired_statistics. For people, and cc-pipeline index repair.",
        function="cc_pipeline.defs.assets.catalog.repair_key_bounds",
        pool="catalog",
        partitions="crawl",
    ),
    OpJob(
        name="build_index",
        description="Builds the index of a month of CC-NEWS, or of named WARC files. Shows the cost, and "
        "needs agreement. Records built_index. For people, runs and cc-pipeline index build.",
        function="cc_pipeline.defs.assets.catalog.index_archives",
        config=BuildConfig,
        partitions="crawl",
    ),
    OpJob(
        name="maintenance",
        description="Merges small files of the tables, publishes, and deletes files superseded for a week. For the "
        "schedule weekly_maintenance, and cc-pipeline automation maintenance.",
        function="cc_pipeline.defs.publication.tidy_tables",
        pool="warehouse",
    ),
    OpJob(
        name="purge_target",
        description="Purges a target: its definition, rows and bytes. The first run only shows the plan and "
        "its digest (dry_run). For people, as cc-pipeline targets remove --purge.",
        function="cc_pipeline.defs.purging.purge_one_target",
        config=PurgeConfig,
        pool="warehouse",
    ),
    OpJob(
        name="extract_targets",
        description="Finds, fetches and parses any targets in any crawls, in one run. For the schedule "
        "backfill_missing, and cc-pipeline run.",
        function="cc_pipeline.defs.assets.extraction.extract_listed",
        config=ExtractTargetsConfig,
        takes_partition_list=True,
    ),
)
#: The jobs of a home, except that of all checks.
JOBS: Final = (*_ASSET_JOBS, *_OP_JOBS)
#: Deletes old runs of the whole instance, so only the single home of an instance has this job.
TRIM_HISTORY: Final = OpJob(
    name="trim_history",
    description="Deletes Dagster's runs older than CC_PIPELINE_HISTORY_DAYS; the states of partitions are kept. For "
    "the schedule history.",
    function="cc_pipeline.defs.history.forget_old_runs",
    pool="history",
)
