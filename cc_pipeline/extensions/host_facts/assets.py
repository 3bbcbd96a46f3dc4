"""Makes the assets of this extension: the table of facts, and data that a person added."""

from collections.abc import Mapping

import dagster as dg

from cc_pipeline.defs.declared.collected import asset_name
from cc_pipeline.defs.partition_runs import Yielded, each_alone, own_figures
from cc_pipeline.defs.partitions import listed_keys
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.recording import Described, PartitionRun
from cc_pipeline.extensions.host_facts.choosing import USUAL, hosts_only, known_for, with_hosts
from cc_pipeline.extensions.host_facts.dataset_files import dataset_transport, read_ahead
from cc_pipeline.extensions.host_facts.definitions import AnnotationConfig, FillFactsConfig
from cc_pipeline.extensions.host_facts.fill import fill_facts
from cc_pipeline.extensions.host_facts.known import Known, known_datasets
from cc_pipeline.extensions.host_facts.places import asset_of
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.workspace.workspace import Workspace


def fill_facts_listed(
    context: dg.OpExecutionContext, workspace: Workspace, at: Placement, config: FillFactsConfig
) -> Yielded:
    """Records ``host_facts`` of the partitions that the configuration names: one row per host of the target, with what
    datasets keyed by host say of it in the crawl."""
    run = PartitionRun(context, workspace, at, listed_keys(config.partitions), ["host_facts"], listed=True)

    def fill(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        known = known_for(workspace, crawl)
        names = with_hosts(known, config.datasets or [*USUAL, *_of_hosts(known)])
        datasets = [one.dataset for one in hosts_only(known, names)]
        report = fill_facts(workspace, crawl, [slug], datasets)
        metadata = own_figures(report, slug, "host_facts", workspace.lake.row_count("host_facts"))
        metadata["datasets"] = dg.MetadataValue.text(", ".join(dataset.name for dataset in datasets))
        return {"host_facts": (metadata, None)}

    yield from each_alone(context, run, fill)


def _of_hosts(known: Mapping[str, Known]) -> list[str]:
    """The datasets that were added and say something of hosts or of their domains."""
    own = {name: one.dataset for name, one in known.items() if one.file is not None}
    return [name for name, one in own.items() if not one.by_url and one.action != "filter"]


def annotation(
    context: dg.AssetExecutionContext, workspace: Workspace, at: Placement, config: AnnotationConfig
) -> dg.MaterializeResult[None]:
    """Looks at the files of a dataset that was added."""
    asset = asset_name(at, context.asset_key)
    one = next(one for name, one in known_datasets(workspace.settings).items() if asset_of(name) == asset)
    with dataset_transport(workspace, one.dataset) as reader:
        found = read_ahead(workspace, one.dataset, reader, config.crawls)
    crawls = sorted({crawl for shards in found.values() for crawl in shards.crawls} or found)
    versions = {crawl: shards.version for crawl, shards in found.items()}
    return dg.MaterializeResult(
        metadata={
            "files": dg.MetadataValue.int(sum(len(shards.paths) for shards in found.values())),
            "crawls": dg.MetadataValue.text(", ".join(crawls)),
            "looked at": dg.MetadataValue.text(", ".join(found)),
            "described in": dg.MetadataValue.path(str(one.file)),
        },
        data_version=dg.DataVersion(f"{one.dataset.version}:{input_digest(versions)}"),
    )
