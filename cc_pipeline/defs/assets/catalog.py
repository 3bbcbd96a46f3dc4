"""From the list of crawls to the row-group catalog."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.checks import as_results, checks_of, evaluate_partitions, make_specs
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lineage import ARCHIVES, COLLINFO, COLUMNAR_INDEX, PATH_LISTS, table_metadata
from cc_pipeline.defs.metadata import row_counts, stage_metadata, to_metadata
from cc_pipeline.defs.partitions import read_run_keys
from cc_pipeline.defs.recording import logged_progress
from cc_pipeline.errors import UserInputError
from cc_pipeline.harvesting.build_index import build_index
from cc_pipeline.harvesting.catalog import read_catalog_table
from cc_pipeline.harvesting.crawl_index import (
    commit_manifest,
    commit_row_groups,
    coverage_metrics,
    harvest_footers,
    refused_gaps,
    repair_statistics,
)
from cc_pipeline.harvesting.crawls import commit_crawls
from cc_pipeline.index.catalog.schemas import ROW_GROUPS_COLUMNS
from cc_pipeline.index.gaps import index_incomplete
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.workspace.schemas import CRAWLS_COLUMNS, INDEX_MANIFEST_COLUMNS
from cc_pipeline.workspace.workspace import Workspace

#: The assets of a harvest, in their order.
HARVESTED: Final = ("index_manifest", "index_footers", "row_groups")
#: Each crawl has its own run: its steps follow each other, and later ones are skipped if the crawl failed.
_ONE_PER_RUN: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=1)
Metadata: TypeAlias = Mapping[str, dg.MetadataValue]
_Step: TypeAlias = Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]


class FootersConfig(dg.Config):
    """Options of a harvest."""

    refresh: bool = Field(default=False, description="Check each stored file for a replacement; one request per file.")


def list_crawls(workspace: Workspace) -> tuple[Metadata, str]:
    """Reads the list of crawls; returns metadata, and the version of the rows: an equal list is the same version."""
    report = commit_crawls(workspace)
    rows = {row["crawl"]: row for row in workspace.lake.read("crawls").to_pylist()}
    return {"dagster/row_count": dg.MetadataValue.int(report.rows)} | stage_metadata(report), compute_input_digest(rows)


def list_index_files(workspace: Workspace, crawl: str) -> Metadata:
    """Reads the path list of a crawl."""
    report = commit_manifest(workspace, crawl)
    return row_counts(report.rows) | stage_metadata(report)


def fetch_footers(workspace: Workspace, crawl: str, *, refresh: bool) -> Metadata:
    """Fetches the footers of the index files of a crawl."""
    report = harvest_footers(workspace, crawl, refresh=refresh)
    return row_counts(report.rows) | stage_metadata(report)


def build_catalog(workspace: Workspace, crawl: str) -> Metadata:
    """Puts the row groups of a crawl into the catalog."""
    return _describe_harvest(workspace, crawl, commit_row_groups(workspace, [crawl])[crawl])


def repair_crawl(workspace: Workspace, crawl: str) -> Metadata:
    """Reads the key column of each row group without key bounds, once."""
    return _describe_harvest(workspace, crawl, repair_statistics(workspace, crawl))


def index_crawl(workspace: Workspace, crawl: str, max_files: int | None) -> Metadata:
    """Makes an index file for each archive file. A stopped build goes on where it stopped."""
    report = build_index(workspace, crawl, max_files=max_files)
    return row_counts(report.rows) | stage_metadata(report) | to_metadata(report.per_target[crawl])


def _describe_harvest(workspace: Workspace, crawl: str, report: Any) -> Metadata:
    coverage = read_catalog_table(workspace.lake, "coverage", crawl)
    return row_counts(report.rows) | stage_metadata(report) | to_metadata(coverage_metrics(coverage))


def define(namespace: HomeNamespace) -> list[dg.AssetsDefinition]:
    """Returns the assets that runs make."""
    shared: dict[str, Any] = {
        "key_prefix": namespace.prefix or None,
        "group_name": namespace.group_of("catalog"),
        "required_resource_keys": {namespace.resource},
        "code_version": "1",
    }
    by_crawl: dict[str, Any] = {
        **shared,
        "partitions_def": namespace.crawl,
        "backfill_policy": _ONE_PER_RUN,
    }

    @dg.asset(
        **shared,
        kinds={"json", "deltalake"},
        deps=[namespace.key(*COLLINFO.path)],
        metadata=table_metadata(namespace, "crawls", CRAWLS_COLUMNS),
        check_specs=make_specs(namespace, ["crawls"]),
        # the list is read once a day
        automation_condition=dg.AutomationCondition.on_cron("0 3 * * *"),
        # a crawl comes every month or two, and the sensor new_crawls asks every few hours
        freshness_policy=_freshness(fail=60, warn=14),
    )
    def crawls(context: dg.AssetExecutionContext) -> _Step:
        """One row per crawl in collinfo.json, including the three of the ARC years."""
        workspace = namespace.workspace(context)
        metadata, version = list_crawls(workspace)
        yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(version))
        yield from as_results(evaluate_partitions(namespace, workspace, context.log, checks_of(["crawls"]), ()))

    def harvest(context: dg.AssetExecutionContext, asset: str, make: Callable[[Workspace, str], Metadata]) -> _Step:
        workspace = namespace.workspace(context)
        crawl, *other_crawls = read_run_keys(context)
        if other_crawls:
            raise UserInputError("a run harvests one crawl\nLaunch a backfill: it has a run for each crawl")
        with logged_progress(context.log):
            metadata = make(workspace, crawl)
        yield from as_results(evaluate_partitions(namespace, workspace, context.log, checks_of([asset]), [crawl]))
        if asset == "row_groups":
            refuse_gaps(workspace, [crawl])
        yield dg.MaterializeResult(metadata=metadata)

    @dg.asset(
        **by_crawl,
        kinds={"deltalake"},
        deps=[namespace.key("crawls"), namespace.key(*PATH_LISTS.path)],
        metadata=table_metadata(namespace, "index_manifest", INDEX_MANIFEST_COLUMNS),
        check_specs=make_specs(namespace, ["index_manifest"]),
    )
    def index_manifest(context: dg.AssetExecutionContext) -> _Step:
        """One row per index file in the crawl's path list; none for crawls of the ARC years."""
        yield from harvest(context, "index_manifest", list_index_files)

    @dg.asset(
        **by_crawl,
        kinds={"parquet"},
        deps=[namespace.key("index_manifest"), namespace.key("built_index"), namespace.key(*COLUMNAR_INDEX.path)],
        check_specs=make_specs(namespace, ["index_footers"]),
    )
    def index_footers(context: dg.AssetExecutionContext, config: FootersConfig) -> _Step:
        """The raw footer of every index file of the selected subsets (CC_PIPELINE_SUBSETS): fetched once, with one
        request each, and stored in the home."""
        yield from harvest(context, "index_footers", partial(fetch_footers, refresh=config.refresh))

    @dg.asset(
        **by_crawl,
        pool=namespace.qualify("catalog"),
        kinds={"deltalake", "duckdb"},
        deps=[namespace.key("index_footers")],
        metadata=table_metadata(namespace, "row_groups", ROW_GROUPS_COLUMNS),
        check_specs=make_specs(namespace, ["row_groups"]),
        freshness_policy=_freshness(fail=120, warn=60),
    )
    def row_groups(context: dg.AssetExecutionContext) -> _Step:
        """One row per row group: its location, size and key range. Replaces the crawl in the catalog.

        Fails if index files could not be read (CC_PIPELINE_MAX_INDEX_GAPS), after all other files are in the catalog.
        """
        yield from harvest(context, "row_groups", build_catalog)

    return [crawls, index_manifest, index_footers, row_groups]


def refuse_gaps(workspace: Workspace, crawls: Sequence[str]) -> None:
    """Raises ``IndexIncomplete`` if index files of a harvested crawl could not be read, unless the settings allow
    it."""
    refused = refused_gaps(workspace, crawls)
    if refused:
        raise index_incomplete(refused)


def define_on_request(namespace: HomeNamespace) -> list[dg.AssetSpec]:
    """Returns the assets that read gigabytes of a crawl, which only commands make. Dagster knows them as external:
    "Materialize all" and selections leave them out."""

    def spec(name: str, description: str, command: str, kinds: set[str], **fields: Any) -> dg.AssetSpec:
        return dg.AssetSpec(
            namespace.key(name),
            description=f"{description}\n\nNo selection includes it. To make it: cc-pipeline {command}.",
            kinds=kinds,
            group_name=namespace.group_of("catalog"),
            code_version="1",
            partitions_def=namespace.crawl,
            tags={"asked": "on-request"},
            **fields,
        )

    return [
        spec(
            "built_index",
            "The columnar index of a month of CC-NEWS, or of WARC files that a person named: one Parquet file per "
            "archive file.\n\nReads every archive file once (some 350 GB a month). A stopped build continues where it "
            "stopped.",
            "index build",
            {"parquet"},
            deps=[namespace.key(*PATH_LISTS.path), namespace.key(*ARCHIVES.path)],
        ),
        spec(
            "repaired_statistics",
            "Key bounds of row groups that were published without them (13 crawls of 2017 and 2018, some later "
            "ones).\n\nReads the key column of each such row group once: about 23 MB each in the real index. Without "
            "the bounds, every lookup reads these row groups.",
            "index repair",
            {"deltalake", "duckdb"},
            deps=[namespace.key("row_groups"), namespace.key(*COLUMNAR_INDEX.path)],
            metadata=table_metadata(namespace, "row_groups", ROW_GROUPS_COLUMNS),
        ),
    ]


def define_index_check(namespace: HomeNamespace) -> dg.AssetChecksDefinition:
    """Returns the checks of ``built_index``, which no step makes."""

    @dg.multi_asset_check(
        name=namespace.qualify("built_index_checks"),
        specs=make_specs(namespace, ["built_index"]),
        required_resource_keys={namespace.resource},
    )
    def built_index_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation]:
        workspace, checks = namespace.workspace(context), checks_of(["built_index"])
        yield from evaluate_partitions(namespace, workspace, context.log, checks, [context.partition_key])

    return built_index_checks


def harvest_job(namespace: HomeNamespace) -> Any:
    """Returns the job of a harvest."""
    return dg.define_asset_job(
        namespace.qualify("harvest_crawl"),
        dg.AssetSelection.assets(*map(namespace.key, HARVESTED)),
        description="Reads a crawl's path list, fetches its footers, and puts its row groups into the catalog. For "
        "people, and the sensors new_crawls and path_lists.",
    )


def _freshness(*, fail: int, warn: int) -> Any:
    """Returns the policy of an asset that turns amber and red after so many days."""
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(days=fail), warn_window=timedelta(days=warn))
