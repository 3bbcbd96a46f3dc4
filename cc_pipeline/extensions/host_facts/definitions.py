"""The Dagster definitions of this extension: the table of facts, its external data, and the datasets that the user
added.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import dagster as dg
from pydantic import Field

from cc_pipeline.columns import Column
from cc_pipeline.defs.declarations import Asset, Columns, ExternalAsset, HomeDefinitions, OpJob, RecordedAsset, Step
from cc_pipeline.defs.declared.jobs import PartitionsConfig
from cc_pipeline.extensions.host_facts.folders import ANNOTATION, asset_of
from cc_pipeline.extensions.host_facts.schemas import (
    DEGREES_COLUMNS,
    GNEISSWEB_COLUMNS,
    HOST_FACTS_COLUMNS,
    HOST_INDEX_COLUMNS,
)

if TYPE_CHECKING:
    from cc_pipeline.extensions.host_facts.registered_datasets import RegisteredDataset

HOST_INDEX: Final = dg.AssetKey(["commoncrawl", "host_index"])
DEGREES: Final = dg.AssetKey(["commoncrawl", "webgraph_degrees"])
GNEISSWEB: Final = dg.AssetKey(["commoncrawl", "gneissweb_hosts"])
#: The columns of external data by host, without its key.
KEYED: Final[Mapping[dg.AssetKey, Sequence[Column]]] = {
    HOST_INDEX: HOST_INDEX_COLUMNS,
    DEGREES: DEGREES_COLUMNS,
    GNEISSWEB: GNEISSWEB_COLUMNS,
}
_KEY: Final = "surt_host_name"
_BODIES: Final = "cc_pipeline.extensions.host_facts.assets"


class FactsConfig(dg.Config):
    """The datasets to ask; by default the host index, degrees, and the home's own datasets about hosts or domains."""

    datasets: list[str] = Field(default=[], description="Names of datasets; empty: the default ones.")


class FillFactsConfig(PartitionsConfig, FactsConfig):
    """The datasets to ask, and the partitions to fill."""


class AnnotationConfig(dg.Config):
    """The crawls whose files are read, for a dataset with files by crawl."""

    crawls: list[str] = Field(default=[], description="Crawl ids; empty: the newest harvested one.")


JOBS: Final = (
    OpJob(
        name="fill_facts_of_targets",
        description="Stores facts of hosts, of any targets in any crawls, from datasets keyed by host. "
        "Records host_facts. For people, and cc-pipeline facts.",
        function=f"{_BODIES}.fill_facts_listed",
        config=FillFactsConfig,
        takes_partition_list=True,
    ),
)


def make_definitions(added: Mapping[str, "RegisteredDataset"]) -> HomeDefinitions:
    """The definitions of a home with the datasets ``added`` by the user, by name."""
    table = Asset(
        name="host_facts",
        group="facts",
        kinds=["deltalake", "parquet"],
        description="One row per host of the target in the crawl, with facts from datasets keyed by host.\n\n"
        "It sends requests to another party's server for each host.",
        deps=[asset_of(name) for name in added],
        external=[*KEYED],
        columns=HOST_FACTS_COLUMNS,
        lineage=_lineage(),
        is_published=True,
    )
    filled = RecordedAsset(asset=table, job="fill_facts_of_targets", partitions="pairs")
    annotations = [_annotation(name, dataset) for name, dataset in added.items()]
    return HomeDefinitions(
        external=_common_crawl(), steps=annotations, recorded=[filled], jobs=JOBS, families=[ANNOTATION]
    )


def _annotation(name: str, dataset: "RegisteredDataset") -> Step:
    from cc_pipeline.defs.metadata import escape_markdown  # noqa: PLC0415  # heavy, and few homes have any

    text = escape_markdown(dataset.dataset.title) or f"The dataset {name}, which was added to this home."
    asset = Asset(
        name=asset_of(name),
        group="facts",
        kinds=["parquet"],
        description=text,
        code_version=dataset.dataset.version[:16],
    )
    return Step(function=f"{_BODIES}.annotation", assets=[asset], config=AnnotationConfig)


def _lineage() -> Columns:
    hosts = tuple((asset, _KEY) for asset in KEYED)
    lineage: dict[str, Sequence[tuple[dg.AssetKey, str]]] = {_KEY: hosts, "host": hosts, "domain": hosts}
    for asset, columns in KEYED.items():
        lineage |= {column.name: ((asset, column.name),) for column in columns}
    return lineage


def _common_crawl() -> list[ExternalAsset]:
    """Data by host that Common Crawl publishes."""

    def external(key: dg.AssetKey, description: str, documentation: str) -> ExternalAsset:
        columns = [(_KEY, "string"), *((column.name, str(column.type)) for column in KEYED[key])]
        return ExternalAsset(
            key=key, description=description, page_url=documentation, era="columnar", kinds=["parquet"], columns=columns
        )

    return [
        external(
            HOST_INDEX,
            "The host index: one row per host of the web graph, with its ranks and the results of its fetches.",
            "https://github.com/commoncrawl/cc-host-index",
        ),
        external(
            DEGREES,
            "How many hosts each host of the web graph links to, and how many link to it.",
            "https://commoncrawl.org/web-graphs",
        ),
        external(
            GNEISSWEB,
            "What GneissWeb's classifiers say of hosts.",
            "https://github.com/commoncrawl/cc-index-annotations",
        ),
    ]
