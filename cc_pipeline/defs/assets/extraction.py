"""A target's captures in a crawl, their records, and the pages in the records."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import dagster as dg
from pydantic import Field

from cc_pipeline.advice import advise
from cc_pipeline.columns import Column
from cc_pipeline.defs.checks import checks_of, evaluate_partitions, make_specs
from cc_pipeline.defs.engines import LOCAL, find_engine
from cc_pipeline.defs.home_namespace import TABLES, HomeNamespace
from cc_pipeline.defs.lake_records import LAST
from cc_pipeline.defs.lineage import (
    ARCHIVES,
    CLUSTER_INDEX,
    COLUMNAR_INDEX,
    URL_INDEX_2012,
    table_metadata,
)
from cc_pipeline.defs.lineage import COLUMNS as LINEAGE
from cc_pipeline.defs.metadata import format_list, row_counts, to_metadata
from cc_pipeline.defs.partitions import (
    BACKFILL,
    StepContext,
    listed_keys,
    partition_key,
    split_key,
)
from cc_pipeline.defs.publication import publish_after_run
from cc_pipeline.defs.recording import Described, Events, PartitionLog, logged_progress
from cc_pipeline.defs.steps import StepEvents, run_step
from cc_pipeline.defs.watched import define_watched
from cc_pipeline.documents.schemas import PAGE_COLUMNS, PARSER_VERSION
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.extraction.run import PartitionResult
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.progress import format_count
from cc_pipeline.records.schema import RECORD_COLUMNS
from cc_pipeline.workspace.schemas import CAPTURES_COLUMNS
from cc_pipeline.workspace.workspace import Workspace

#: The tables over crawl × target.
COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "captures": CAPTURES_COLUMNS,
    "records": RECORD_COLUMNS,
    **PAGE_COLUMNS,
}
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "captures": "One row per capture of the target in the crawl, with every column of the index.",
    "records": "One row per planned capture with exactly one outcome; fetched bytes are stored as WARC or ARC.",
    "page_metadata": "One row per record: the 2012 metadata schema, typed.",
    "page_text": "One row per page with text: full text, main content, language.",
    "page_links": "One row per link, with every attribute and its resolved address.",
    "feed_items": "One row per item of an RSS, Atom or JSON Feed.",
}
#: The inputs of each table; pages are made of records.
_DEPS: Final[Mapping[str, Sequence[dg.AssetKey]]] = {
    "captures": [dg.AssetKey("row_groups"), COLUMNAR_INDEX, CLUSTER_INDEX, URL_INDEX_2012],
    "records": [dg.AssetKey("captures"), ARCHIVES],
}
#: Values that events leave out.
_ZERO: Final = (0, "0 %")


class ExtractTargetsConfig(dg.Config):
    """The tables and partitions to extract, of any crawls."""

    partitions: dict[str, list[str]] = Field(
        description='Targets by crawl, as in {"CC-MAIN-2024-22": ["example.com", "example.org"]}.'
    )
    tables: list[str] = Field(default=[], description="Names of tables, captures to feed_items; empty: all.")


def define(namespace: HomeNamespace) -> list[dg.AssetsDefinition]:
    """Returns the step that extracts partitions."""

    @dg.multi_asset(
        name=namespace.qualify("extract"),
        specs=[
            dg.AssetSpec(
                namespace.key(table),
                description=_DESCRIPTIONS[table],
                group_name=namespace.group_of("content" if table in PAGE_COLUMNS else "extraction"),
                kinds={"deltalake", *(["warc"] if table == "records" else [])},
                deps=namespace.keys(key.path for key in _DEPS.get(table, [dg.AssetKey("records")])),
                code_version=PARSER_VERSION if table in PAGE_COLUMNS else "1",
                metadata=table_metadata(namespace, table, COLUMNS[table], LINEAGE[table]),
                # partitions are recorded by themselves, without outputs
                skippable=True,
            )
            for table in TABLES
        ],
        check_specs=make_specs(namespace, TABLES),
        can_subset=True,
        partitions_def=namespace.pairs,
        backfill_policy=BACKFILL,
        required_resource_keys={namespace.resource},
    )
    def extract(context: dg.AssetExecutionContext) -> StepEvents:
        """Looks targets up in the cheapest index of their crawl, fetches and verifies their records, and parses each
        once.

        Each partition is recorded when it is done; a failed one does not stop the others. One pass writes all four page
        tables, and records those that are selected.
        """
        tables = [table for table in TABLES if namespace.key(table) in context.selected_asset_keys]
        yield from run_step(
            context, namespace, TABLES, lambda log, keys: extract_partitions(context, namespace, log, keys, tables)
        )

    return [extract]


def extract_partitions(
    context: StepContext, namespace: HomeNamespace, log: PartitionLog, keys: Sequence[str], tables: Sequence[str]
) -> Events:
    """Makes ``tables`` of every partition, yields the records of each when it is done, and publishes. Errors that
    affect all partitions are raised at once."""
    workspace = namespace.workspace(context)
    define_watched(workspace, namespace, keys)
    engine = find_engine(workspace.settings.engine)
    for result in engine.extract(context, workspace, [split_key(key) for key in keys], tables):
        yield from record_result(log, workspace, result)
    publish_after_run(context, workspace, namespace)


def record_result(
    log: PartitionLog, workspace: Workspace, result: PartitionResult
) -> Iterator[dg.AssetMaterialization]:
    """Yields the records of a partition, and notes its error if it has one."""
    key = partition_key(result.crawl, result.slug)
    # a process may be killed between two records: the asset that decides whether a partition is made comes last
    ordered = sorted(result.reports, key=lambda table: (table == LAST, TABLES.index(table)))
    described = {table: _describe(workspace, log, result, table) for table in ordered}
    yield from log.record_done(key, described)
    if result.error is not None:
        log.record_failure(key, result.error)


def _describe(workspace: Workspace, log: PartitionLog, result: PartitionResult, table: str) -> Described:
    """Returns the metadata of a partition of ``table``: counts and versions. It has no text of a page, since Dagster
    has no public way to delete an event."""
    report, settings = result.reports[table], workspace.settings
    metadata = partition_metadata(report, result.slug, table)
    if len(report.per_target) > 1 and result.slug == next(iter(report.per_target)):
        log.log.info(group_costs(report, table))
    if settings.engine != LOCAL and table != "captures":
        metadata["engine"] = dg.MetadataValue.text(find_engine(settings.engine).describe(settings))
    version = report.per_target[result.slug].get(f"version:{table}")
    return metadata, None if version is None else str(version)


def partition_metadata(report: StageReport, slug: str, table: str) -> dict[str, dg.MetadataValue]:
    """Returns the metrics of one partition of ``table``. An event is stored twice and permanently, so it has no zeros,
    and no costs of several partitions together: :func:`group_costs` has those."""
    target_metrics = report.per_target[slug]
    rows = int(target_metrics[f"rows:{table}"])
    values: dict[str, int | float | str] = {}
    if target_metrics.get(f"written:{table}", rows) != rows:
        values["rows written"] = target_metrics[f"written:{table}"]
    values |= {name: value for name, value in target_metrics.items() if ":" not in name and value not in _ZERO}
    notes: dict[str, dg.MetadataValue] = {}
    if len(report.per_target) == 1:
        if report.requests:
            values |= {"bytes read": report.bytes, "requests": report.requests}
        values["seconds"] = round(report.seconds, 3)
        if report.notes:
            notes["notes"] = format_list(report.notes)
    return {**row_counts(rows), **to_metadata(values), **notes}


def group_costs(report: StageReport, table: str) -> str:
    """Returns the costs of a stage for several partitions together, for the log of the run."""
    spent = f"{table} of {format_count(len(report.per_target), 'partition')}: {report.seconds:.1f} s"
    if report.requests:
        spent += f", {report.bytes:,} bytes read in {format_count(report.requests, 'request')}"
    return "\n".join([spent, *report.notes])


def listed_job(namespace: HomeNamespace) -> dg.JobDefinition:
    """Returns the job that extracts any partitions in one run: Dagster's own runs have one partition or a range."""

    @dg.op(name=namespace.qualify("extract_listed"), out={}, required_resource_keys={namespace.resource})
    def extract_listed(context: dg.OpExecutionContext, config: ExtractTargetsConfig) -> Events:
        workspace, log = namespace.workspace(context), PartitionLog(namespace, context.log)
        for table in config.tables:
            if table not in TABLES:
                raise UserInputError(describe_unknown_name("table", table, TABLES))
        tables = [table for table in TABLES if table in config.tables or not config.tables]
        registered_keys = leave_out_unknown(context.instance, namespace, log, listed_keys(config.partitions))
        with logged_progress(context.log):
            yield from extract_partitions(context, namespace, log, registered_keys, tables)
        yield from evaluate_partitions(namespace, workspace, context.log, checks_of(tables), log.made_keys, log.reasons)
        log.raise_failures()

    @dg.job(name=namespace.qualify("extract_targets"))
    def extract_targets() -> None:
        """Finds, fetches and parses any targets in any crawls, in one run. For people, and the sensor
        backfill_missing."""
        extract_listed()

    return extract_targets


def leave_out_unknown(
    instance: dg.DagsterInstance, namespace: HomeNamespace, log: PartitionLog, keys: Collection[str]
) -> list[str]:
    """Returns the keys that are partitions; the others fail by themselves. Raises ``UserInputError`` if there are
    none."""
    if not keys:
        raise UserInputError('the run names no partition\nName some: {"CC-MAIN-2024-22": ["example.com"]}')
    crawls, targets = {*namespace.crawl_keys(instance)}, {*namespace.target_keys(instance)}
    registered_keys = []
    for key in keys:
        crawl, target = split_key(key)
        if crawl in crawls and target in targets:
            registered_keys.append(key)
        elif crawl not in crawls:
            log.record_failure(key, UserInputError(f"{crawl!r} is no partition\nTo list crawls: {advise('crawls')}"))
        else:
            sensor = namespace.qualify("watch_list")
            advice = f"Add it in the dialog of an asset, or watch it: the sensor {sensor} adds watched targets"
            log.record_failure(key, UserInputError(f"{target!r} is no partition\n{advice}"))
    return registered_keys
