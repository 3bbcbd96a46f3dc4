"""Dagster's records of what the lake has: the lake decides, and whatever Dagster lacks is reported from it.

A command may be killed between a commit and its record, a database may be restored, an old run is deleted with its
events: in each case the records come back from the table ``slices``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import dagster as dg
import pyarrow as pa

from cc_pipeline.defs.home_namespace import TABLES, HomeNamespace
from cc_pipeline.defs.metadata import row_counts
from cc_pipeline.defs.partitions import group_by_crawl, partition_key, split_key
from cc_pipeline.defs.recording import Described, materialization
from cc_pipeline.extraction.slice_selection import sum_metrics
from cc_pipeline.lake.slice import READ_FILES, VERSION, Metrics
from cc_pipeline.lake.slices import SLICES_SCHEMA, SliceRow, current_rows, parse_rows
from cc_pipeline.workspace.workspace import Workspace

#: The asset that is recorded last: where it is recorded, all assets of the partition are.
LAST: Final = "page_metadata"
#: The table of each asset of files read whole.
SOURCE_TABLES: Final[Mapping[str, str]] = {
    "source_metadata": "page_metadata",
    "source_text": "page_text",
    "source_links": "page_links",
    "source_feed_items": "feed_items",
    "source_faults": "source_faults",
}
#: The most keys whose slices are selected one by one.
_MAX_NAMED_TARGETS: Final = 2_000
#: Rows that are objects at a time.
_BATCH_ROWS: Final = 10_000


def report_records(instance: dg.DagsterInstance, events: Iterator[dg.AssetMaterialization]) -> int:
    """Records materializations outside of any run; returns their number."""
    count = 0
    for event in events:
        instance.report_runless_asset_event(event)
        count += 1
    return count


def report_unrecorded(
    instance: dg.DagsterInstance, workspace: Workspace, namespace: HomeNamespace, keys: Collection[str]
) -> int:
    """Records those partitions of crawl × target among ``keys`` that are current in the lake, and that Dagster shows as
    missing or failed. Returns the number of records."""
    statuses = instance.get_status_by_partition(namespace.key(LAST), sorted(keys), namespace.pairs) or {}
    missing = [key for key in keys if statuses.get(key) is not dg.AssetPartitionStatus.MATERIALIZED]
    if not missing:
        return 0
    described = read_partitions(workspace, missing)
    # the last asset decides whether a partition is recorded
    ordered = sorted(TABLES, key=lambda asset: asset == LAST)
    events = (
        materialization(namespace.key(asset), key, *pair) for asset in ordered for key, pair in described[asset].items()
    )
    return report_records(instance, events)


def restore_records(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    namespace: HomeNamespace,
    deleted: Collection[tuple[dg.AssetKey, str]] = (),
) -> int:
    """Records everything that the lake has, whose partition exists, and that Dagster has no record of; or only an
    earlier one, if the latest was ``deleted``. Returns the number of records."""
    is_partition = _known_keys(instance, namespace)
    count = 0
    for asset, described in read_partitions(workspace).items():
        asset_key = namespace.key(asset)
        recorded = instance.get_materialized_partitions(asset_key)
        missing = [
            key
            for key, (_, version) in described.items()
            if is_partition(key)
            and (
                key not in recorded
                or ((asset_key, key) in deleted and not _has_version(instance, asset_key, key, version))
            )
        ]
        events = (materialization(asset_key, key, *described[key]) for key in missing)
        count += report_records(instance, events)
    assets = {"crawls": workspace.lake.version("crawls") >= 0, "warehouse": workspace.settings.published_path.exists()}
    for asset, exists in assets.items():
        if exists and instance.get_latest_materialization_event(namespace.key(asset)) is None:
            count += report_records(instance, iter([dg.AssetMaterialization(namespace.key(asset))]))
    return count


def _has_version(instance: dg.DagsterInstance, asset: dg.AssetKey, key: str, version: str | None) -> bool:
    """Whether the newest record of a partition has the version, if it is known."""
    newest = instance.fetch_materializations(dg.AssetRecordsFilter(asset, asset_partitions=[key]), limit=1).records
    event = newest[0].asset_materialization if newest else None
    return version is None or (event is not None and (event.tags or {}).get("dagster/data_version") == version)


def _known_keys(instance: dg.DagsterInstance, namespace: HomeNamespace) -> Callable[[str], bool]:
    crawls, targets = {*namespace.crawl_keys(instance)}, {*namespace.target_keys(instance)}
    files = {*instance.get_dynamic_partitions(namespace.qualify("source_file"))}

    def is_partition(key: str) -> bool:
        crawl, target = split_key(key)
        return crawl in crawls and target in targets if target else key in crawls or key in files

    return is_partition


def read_partitions(workspace: Workspace, keys: Collection[str] | None = None) -> dict[str, dict[str, Described]]:
    """Returns the rows and versions of the partitions that the lake has, by asset and key: of everything, or of
    ``keys`` of crawl × target."""
    metrics: dict[tuple[str, str], list[Metrics]] = defaultdict(list)
    for where in _select(keys):
        for row in _stream_rows(workspace, where):
            for asset, table in _assets_of(row):
                key = _key_of(row)
                if keys is None or key in keys:
                    metrics[asset, key].append(
                        {name: row.metrics[name] for name in (f"rows:{table}", VERSION + table)}
                        | {"rows": row.tables[table].rows}
                    )
    described: dict[str, dict[str, Described]] = defaultdict(dict)
    for (asset, key), parts in metrics.items():
        total = sum_metrics(parts)
        version = next((str(value) for name, value in total.items() if name.startswith(VERSION)), None)
        described[asset][key] = row_counts(int(total["rows"])), version
    if keys is None:
        # the footers are files of the home, which the row groups were made from
        described["index_footers"] = {crawl: ({}, None) for crawl in described["row_groups"]}
    return described


def _stream_rows(workspace: Workspace, where: Mapping[str, str | list[str]] | None) -> Iterator[SliceRow]:
    rows = current_rows(workspace.lake, where, [name for name in SLICES_SCHEMA.names if name != "details"])
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        yield from parse_rows(pa.Table.from_batches([batch]))


def _assets_of(row: SliceRow) -> list[tuple[str, str]]:
    """Returns the assets that a stage has made for a slice, each with its table."""
    if row.stage == READ_FILES.label:
        return [(asset, table) for asset, table in SOURCE_TABLES.items() if table in row.tables]
    return [(table, table) for table in row.tables if table not in ("named_captures", "source_faults")]


def _key_of(row: SliceRow) -> str:
    """Returns the partition that a slice belongs to."""
    partition = row.slice_.partition
    if row.stage == READ_FILES.label or not partition.target:
        return partition.target or partition.crawl
    return partition_key(partition.crawl, partition.target)


def _select(keys: Collection[str] | None) -> list[Mapping[str, str | list[str]] | None]:
    if keys is None:
        return [None]
    return [
        {"crawl": crawl} | ({"target": targets} if len(targets) <= _MAX_NAMED_TARGETS else {})
        for crawl, targets in group_by_crawl(keys).items()
    ]
