"""What is known of hosts before anything of them is fetched: the table of facts, and data that a person added."""

from collections.abc import Mapping

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.lineage import upstream
from cc_pipeline.defs.metadata import OWNERS, plain, preview, table_metadata
from cc_pipeline.defs.partition_runs import BACKFILL, Yielded, each_alone, own_figures
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.recording import Described, PartitionRun, wanted_keys
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.hostfacts.choosing import USUAL, hosts_only, known_for, with_hosts
from cc_pipeline.hostfacts.dataset_files import dataset_transport, read_ahead
from cc_pipeline.hostfacts.fill import VERSION, fill_facts
from cc_pipeline.hostfacts.known import Known, known_datasets
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.lake.streaming import first_rows
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.tables import HOST_FACTS_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Columns of a partition's preview.
_SHOWN = ["host", "fetch_200", "robots_200", "hcrank10", "prank10", "webgraph_indegree"]


def asset_of(name: str) -> str:
    """The asset of a dataset that was added."""
    return f"annotation_{name.replace('-', '_')}"


def _added() -> dict[str, Known]:
    """The datasets of the home that this process is for. A file that is wrong must not take all assets along: the check
    of its asset, and ``cc-pipeline datasets list``, say what is wrong."""
    try:
        return {name: one for name, one in known_datasets(load_settings()).items() if one.file is not None}
    except CcPipelineError:
        return {}


ADDED = _added()


class AnnotationConfig(dg.Config):
    """Of which crawls the files are looked at, where each crawl has its own."""

    crawls: list[str] = Field(default=[], description="Crawl ids; none: the newest that is harvested here.")


class FactsConfig(dg.Config):
    """Which datasets are asked; by default the host index, degrees, and those of the home about hosts or domains."""

    datasets: list[str] = Field(default=[], description="Names of datasets; none: the usual ones.")


@dg.asset(
    group_name="facts",
    owners=OWNERS,
    kinds={"deltalake", "parquet"},
    code_version=VERSION,
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
    deps=[*upstream("host_facts"), *(asset_of(name) for name in ADDED)],
    metadata=table_metadata("host_facts", HOST_FACTS_SCHEMA),
    output_required=False,
)
def host_facts(
    context: dg.AssetExecutionContext, config: FactsConfig, workspace: dg.ResourceParam[Workspace]
) -> Yielded:
    """One row per host of the target, with what datasets keyed by host say of it in the crawl. Filled on request."""

    def fill(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        known = known_for(workspace, crawl)
        names = with_hosts(known, config.datasets or [*USUAL, *_of_hosts(known)])
        datasets = [one.dataset for one in hosts_only(known, names)]
        report = fill_facts(workspace, crawl, [slug], datasets)
        metadata = own_figures(report, slug, "host_facts", workspace.lake.row_count("host_facts"))
        if report.per_target[slug]["rows:host_facts"]:
            where = {"crawl": crawl, "target": workspace.rows_of([slug])[slug]}
            metadata["preview"] = preview(first_rows(workspace.lake, "host_facts", where, _SHOWN, 5), _SHOWN)
        metadata["datasets"] = dg.MetadataValue.text(", ".join(dataset.name for dataset in datasets))
        return {"host_facts": (metadata, None)}

    yield from each_alone(context, PartitionRun(context, workspace, wanted_keys(context), ["host_facts"]), fill)


def _of_hosts(known: Mapping[str, Known]) -> list[str]:
    """The datasets that were added and say something of hosts or of their domains."""
    own = {name: one.dataset for name, one in known.items() if one.file is not None}
    return [name for name, one in own.items() if not one.by_url and one.action != "filter"]


def _annotation(one: Known) -> dg.AssetsDefinition:
    name = one.name

    @dg.asset(
        name=asset_of(name),
        group_name="facts",
        owners=OWNERS,
        kinds={"parquet"},
        code_version=one.dataset.version[:16],
        description=plain(one.dataset.title) or f"The dataset {name}, which was added to this home.",
    )
    def annotation(config: AnnotationConfig, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult[None]:
        dataset = known_datasets(workspace.settings)[name].dataset
        with dataset_transport(workspace, dataset) as reader:
            found = read_ahead(workspace, dataset, reader, config.crawls)
        crawls = sorted({crawl for shards in found.values() for crawl in shards.crawls} or found)
        versions = {crawl: shards.version for crawl, shards in found.items()}
        return dg.MaterializeResult(
            metadata={
                "files": dg.MetadataValue.int(sum(len(shards.paths) for shards in found.values())),
                "crawls": dg.MetadataValue.text(", ".join(crawls)),
                "looked at": dg.MetadataValue.text(", ".join(found)),
                "described in": dg.MetadataValue.path(str(one.file)),
            },
            data_version=dg.DataVersion(f"{dataset.version}:{input_digest(versions)}"),
        )

    return annotation


annotations = [_annotation(one) for one in ADDED.values()]
