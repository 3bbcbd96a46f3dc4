"""The jobs a person or a schedule launches: assets that run together, and upkeep."""

import dagster as dg

from cc_pipeline.defs.partitions import EVERYTHING, LOOK_TAG
from cc_pipeline.hostfacts.known import sweep_datasets
from cc_pipeline.upkeep.upkeep import keep_up
from cc_pipeline.workspace.workspace import Workspace

harvest_crawl = dg.define_asset_job(
    "harvest_crawl",
    selection=dg.AssetSelection.assets("index_manifest", "index_footers", "row_groups"),
    description="Reads a crawl's path list, fetches its footers, and puts its row groups into the catalog.",
)

extract_domain = dg.define_asset_job(
    "extract_domain",
    selection=dg.AssetSelection.assets("captures", "records", "page_metadata", "page_text", "page_links", "feed_items"),
    description="Finds, fetches and parses a domain's captures in a crawl.",
)

repair_statistics = dg.define_asset_job(
    "repair_statistics",
    selection=dg.AssetSelection.assets("repaired_statistics"),
    description="Computes key bounds of a crawl's row groups that have none; reads their whole key column.",
)

build_index = dg.define_asset_job(
    "build_index",
    selection=dg.AssetSelection.assets("built_index"),
    description="Builds the index of a month of CC-NEWS, or of named WARC files; says its price and wants a yes to it.",
)

build_url_index = dg.define_asset_job(
    "build_url_index",
    selection=dg.AssetSelection.assets("url_index"),
    description="Builds a prefixed B-tree of a crawl's URLs; reads four columns of its whole index, or its ARC files.",
)

fetch_domain = dg.define_asset_job(
    "fetch_domain",
    selection=dg.AssetSelection.assets("captures", "records"),
    description="Finds and fetches a domain's captures in a crawl, without parsing them.",
)

parse_domain = dg.define_asset_job(
    "parse_domain",
    selection=dg.AssetSelection.assets("page_metadata", "page_text", "page_links", "feed_items"),
    description="Parses a domain's stored records of a crawl.",
)

fill_facts = dg.define_asset_job(
    "fill_facts",
    selection=dg.AssetSelection.assets("host_facts"),
    description="Writes down what datasets keyed by host say of a target's hosts in a crawl; fetches nothing else.",
)

read_policies = dg.define_asset_job(
    "read_policies",
    selection=dg.AssetSelection.assets("site_policies"),
    description="Reads a target's stored robots.txt captures of a crawl into a table; fetches nothing.",
)

list_crawls = dg.define_asset_job(
    "list_crawls", selection=dg.AssetSelection.assets("crawls"), description="Reads the list of crawls again."
)

publish = dg.define_asset_job(
    "publish", selection=dg.AssetSelection.assets("warehouse"), description="Publishes a new snapshot of cc.duckdb."
)

read_source_files = dg.define_asset_job(
    "read_source_files",
    selection=dg.AssetSelection.groups("sources"),
    description="Reads whole files (2012 SequenceFiles, WAT, WET) into the tables of parsed pages.",
)

check_everything = dg.define_asset_job(
    "check_everything",
    selection=dg.AssetSelection.all_asset_checks(),
    tags={LOOK_TAG: EVERYTHING},
    description="Runs every check over the whole lake. Alone, a check looks at what changed since it last did.",
)

weekly_checks = dg.ScheduleDefinition(
    name="weekly_checks",
    job=check_everything,
    cron_schedule="0 5 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Checks the whole lake every Sunday, after upkeep.",
)

export_domain = dg.define_asset_job(
    "export_domain",
    selection=dg.AssetSelection.groups("exports"),
    description="Writes a domain's parsed pages of a crawl as Hadoop SequenceFiles: text and metadata.",
)


@dg.op(pool="warehouse")
def tidy_tables(context: dg.OpExecutionContext, workspace: dg.ResourceParam[Workspace]) -> None:
    """Merges small files, publishes the merged tables, and deletes files that were superseded a week ago or before."""
    left = sweep_datasets(workspace.settings)
    report = keep_up(workspace)
    context.add_output_metadata(
        {
            "files merged": sum(report.merged.values()),
            "files deleted": sum(report.deleted.values()),
            "left by killed processes, deleted": report.debris + left,
        }
    )


@dg.job(description="Merges small files of the tables, publishes, and deletes files superseded for a week.")
def upkeep() -> None:
    """One op: the order of its steps matters."""
    tidy_tables()


weekly_upkeep = dg.ScheduleDefinition(
    name="weekly_upkeep",
    job=upkeep,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Runs upkeep every Sunday.",
)
