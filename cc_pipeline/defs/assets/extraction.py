"""A target's captures in a crawl, their records, and what the records say."""

import dagster as dg

from cc_pipeline.defs.declared.assets import ExtractConfig
from cc_pipeline.defs.partition_runs import Yielded, extract_partitions
from cc_pipeline.defs.placement import Placement
from cc_pipeline.workspace.workspace import Workspace


def extract(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement, config: ExtractConfig) -> Yielded:
    """Looks targets up in the cheapest index their crawl has, fetches and verifies their records, and parses each once.

    Every partition is recorded when it is done, and fails by itself. The four page tables come from one pass: where
    some of them are selected, all are written, and these are recorded.
    """
    workspace.accepted_losses.update(config.accept_losses)
    yield from extract_partitions(context, workspace, at)
