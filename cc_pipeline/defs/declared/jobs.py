"""The jobs a person or a schedule launches: assets that run together, and what one op does."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.declared.assets import ExtractConfig, FactsConfig
from cc_pipeline.defs.declared.bodies import body, schema_of
from cc_pipeline.defs.partitions import EVERYTHING, LOOK_TAG, OPS
from cc_pipeline.defs.placement import Placement

#: By the name of a job over assets: these, and what it does. The job of all checks is apart.
_OF_ASSETS: dict[str, tuple[Sequence[str], str]] = {
    "harvest_crawl": (
        ("index_manifest", "index_footers", "row_groups"),
        "Reads a crawl's path list, fetches its footers, and puts its row groups into the catalog.",
    ),
    "extract_domain": (
        ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items"),
        "Finds, fetches and parses a domain's captures in a crawl.",
    ),
    "repair_statistics": (
        ("repaired_statistics",),
        "Computes key bounds of a crawl's row groups that have none; reads their whole key column.",
    ),
    "build_index": (
        ("built_index",),
        "Builds the index of a month of CC-NEWS, or of named WARC files; says its price and wants a yes to it.",
    ),
    "build_url_index": (
        ("url_index",),
        "Builds a prefixed B-tree of a crawl's URLs; reads four columns of its whole index, or its ARC files.",
    ),
    "fetch_domain": (
        ("captures", "records"),
        "Finds and fetches a domain's captures in a crawl, without parsing them.",
    ),
    "parse_domain": (
        ("page_metadata", "page_text", "page_links", "feed_items"),
        "Parses a domain's stored records of a crawl.",
    ),
    "fill_facts": (
        ("host_facts",),
        "Writes down what datasets keyed by host say of a target's hosts in a crawl; fetches nothing else.",
    ),
    "read_policies": (
        ("site_policies",),
        "Reads a target's stored robots.txt captures of a crawl into a table; fetches nothing.",
    ),
    "list_crawls": (("crawls",), "Reads the list of crawls again."),
    "publish": (("warehouse",), "Publishes a new snapshot of cc.duckdb."),
    "read_source_files": (
        ("source_metadata", "source_text", "source_links", "source_feed_items", "source_faults"),
        "Reads whole files (2012 SequenceFiles, WAT, WET) into the tables of parsed pages.",
    ),
    "export_domain": (
        ("text_sequencefile", "metadata_sequencefile"),
        "Writes a domain's parsed pages of a crawl as Hadoop SequenceFiles: text and metadata.",
    ),
}


class PartitionsConfig(dg.Config):
    """Any partitions, of several crawls."""

    partitions: dict[str, list[str]] = Field(
        description='Targets by crawl, as in {"CC-MAIN-2024-22": ["example.com", "example.org"]}.'
    )


class ExtractTargetsConfig(PartitionsConfig, ExtractConfig):
    """Which tables of which partitions."""

    tables: list[str] = Field(default=[], description="Names of tables, captures to feed_items; none: all of them.")


class FillFactsConfig(PartitionsConfig, FactsConfig):
    """Which datasets, for which partitions."""


class PurgeConfig(dg.Config):
    """What to purge."""

    target: str = Field(description="The target: its definition, its partition key, or the name of a set.")
    dry_run: bool = Field(
        default=True, description="Only say in the run's log what would go, and the plan's digest. False deletes it."
    )
    plan: str = Field(default="", description="With dry_run false: the digest that the dry run said.")
    now: bool = Field(default=False, description="Delete at once: who has cc.duckdb open has to open it anew.")


#: By the name of a job over listed partitions: where its op is, what it does, and its configuration.
_OF_LISTED: dict[str, tuple[str, str, type[dg.Config]]] = {
    "extract_targets": (
        "extraction",
        "Finds, fetches and parses any targets in any crawls, in one run. The schedule and the command line launch it.",
        ExtractTargetsConfig,
    ),
    "fill_facts_of_targets": (
        "facts",
        "Writes down what datasets keyed by host say of the hosts of any targets in any crawls.",
        FillFactsConfig,
    ),
    "read_policies_of_targets": (
        "facts",
        "Reads the stored robots.txt captures of any targets in any crawls into a table.",
        PartitionsConfig,
    ),
}


def jobs(at: Placement, checked: Sequence[dg.AssetCheckKey]) -> dict[str, Any]:
    """The jobs of a home by the name that they have without its prefix; ``checked`` are all its checks."""
    found: dict[str, Any] = {
        name: dg.define_asset_job(
            at.of(name), dg.AssetSelection.assets(*map(at.key, assets)), tags=at.tags, description=description
        )
        for name, (assets, description) in _OF_ASSETS.items()
    }
    found["check_everything"] = dg.define_asset_job(
        at.of("check_everything"),
        dg.AssetSelection.checks(*checked),
        tags={LOOK_TAG: EVERYTHING, **at.tags},
        description="Runs every check over the whole lake. Alone, a check looks at what changed since it last did.",
    )
    found["upkeep"] = _of_op(
        at,
        "upkeep",
        "automation.publication.tidy_tables",
        "Merges small files of the tables, publishes, and deletes files superseded for a week.",
        "warehouse",
    )
    found["purge_target_job"] = _of_op(
        at,
        "purge_target_job",
        "automation.purging.purge_one_target",
        "Deletes a target and what was extracted of it. First it only says what would go (dry_run), and its digest.",
        "warehouse",
        PurgeConfig,
    )
    for job, (module, description, config) in _OF_LISTED.items():
        found[job] = _of_listed(at, job, module, description, config)
    return found


def trim_history(at: Placement) -> dg.JobDefinition:
    """The job that deletes old runs of the whole instance."""
    return _of_op(
        at,
        "trim_history",
        "automation.history.forget_old_runs",
        "Deletes Dagster's runs older than CC_PIPELINE_HISTORY_DAYS; what they say of partitions stays.",
        "history",
    )


def _of_op(
    at: Placement, job: str, place: str, description: str, pool: str, config: type[dg.Config] | None = None
) -> dg.JobDefinition:
    """A job of one op: the order of its steps matters."""
    name = place.rpartition(".")[2]
    op = dg.op(
        name=at.of(name), pool=at.of(pool), required_resource_keys={at.resource}, config_schema=schema_of(config)
    )(body(at, place, config))

    @dg.job(name=at.of(job), tags=at.tags, description=description)
    def of_one_op() -> None:
        op()

    return of_one_op


def _of_listed(at: Placement, job: str, module: str, description: str, config: type[dg.Config]) -> dg.JobDefinition:
    """A job over any partitions. Its op has no output: it logs what it made."""
    name = OPS[job]
    op = dg.op(name=at.of(name), out={}, required_resource_keys={at.resource}, config_schema=schema_of(config))(
        body(at, f"assets.{module}.{name}", config)
    )

    @dg.job(name=at.of(job), tags=at.tags, description=description)
    def of_listed() -> None:
        op()

    return of_listed
