"""Makes the assets of this extension: the table of facts, and data that a person added."""

from collections.abc import Mapping

import dagster as dg

from cc_pipeline.defs.declared.collected_parts import asset_name
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partition_runs import Yielded, partition_metadata, run_each
from cc_pipeline.defs.partitions import listed_keys
from cc_pipeline.defs.recording import Described, PartitionRun
from cc_pipeline.extensions.host_facts.dataset_files import dataset_transport, harvest_shards
from cc_pipeline.extensions.host_facts.definitions import AnnotationConfig, FillFactsConfig
from cc_pipeline.extensions.host_facts.fill import fill_facts
from cc_pipeline.extensions.host_facts.folders import asset_of
from cc_pipeline.extensions.host_facts.host_selection import (
    DEFAULT_DATASETS,
    add_host_index,
    datasets_for_crawl,
    host_datasets,
)
from cc_pipeline.extensions.host_facts.registered_datasets import RegisteredDataset, known_datasets
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.workspace.workspace import Workspace


def fill_facts_listed(
    context: dg.OpExecutionContext, workspace: Workspace, placement: HomeNamespace, config: FillFactsConfig
) -> Yielded:
    """Records ``host_facts`` of the partitions that the configuration names: one row per host of the target, with the
    facts that datasets keyed by host have of it in the crawl."""
    run = PartitionRun(context, workspace, placement, listed_keys(config.partitions), ["host_facts"], from_config=True)

    def fill(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        datasets_by_name = datasets_for_crawl(workspace, crawl)
        names = add_host_index(
            datasets_by_name, config.datasets or [*DEFAULT_DATASETS, *_added_host_datasets(datasets_by_name)]
        )
        datasets = [registered.dataset for registered in host_datasets(datasets_by_name, names)]
        report = fill_facts(workspace, crawl, [slug], datasets)
        metadata = partition_metadata(report, slug, "host_facts", workspace.lake.row_count("host_facts"))
        metadata["datasets"] = dg.MetadataValue.text(", ".join(dataset.name for dataset in datasets))
        return {"host_facts": (metadata, None)}

    yield from run_each(context, run, fill)


def _added_host_datasets(datasets_by_name: Mapping[str, RegisteredDataset]) -> list[str]:
    """The added datasets that give facts of hosts or of their domains."""
    added = {name: dataset.dataset for name, dataset in datasets_by_name.items() if dataset.file is not None}
    return [name for name, dataset in added.items() if not dataset.by_url and dataset.action != "filter"]


def annotation(
    context: dg.AssetExecutionContext, workspace: Workspace, placement: HomeNamespace, config: AnnotationConfig
) -> dg.MaterializeResult[None]:
    """Reads the footers of an added dataset's files."""
    asset = asset_name(placement, context.asset_key)
    registered = next(
        candidate for name, candidate in known_datasets(workspace.settings).items() if asset_of(name) == asset
    )
    with dataset_transport(workspace, registered.dataset) as reader:
        shards_by_crawl = harvest_shards(workspace, registered.dataset, reader, config.crawls)
    crawls = sorted({crawl for shards in shards_by_crawl.values() for crawl in shards.crawls} or shards_by_crawl)
    versions = {crawl: shards.version for crawl, shards in shards_by_crawl.items()}
    return dg.MaterializeResult(
        metadata={
            "files": dg.MetadataValue.int(sum(len(shards.paths) for shards in shards_by_crawl.values())),
            "crawls": dg.MetadataValue.text(", ".join(crawls)),
            "crawls read": dg.MetadataValue.text(", ".join(shards_by_crawl)),
            "described in": dg.MetadataValue.path(str(registered.file)),
        },
        data_version=dg.DataVersion(f"{registered.dataset.version}:{compute_input_digest(versions)}"),
    )
