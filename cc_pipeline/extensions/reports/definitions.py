"""The Dagster definitions of this extension: the asset ``report``."""

from typing import Final

from cc_pipeline.defs.declarations import Asset, HomeDefinitions, Step
from cc_pipeline.defs.partitions import BACKFILL

_REPORT: Final = Asset(
    name="report",
    group="analytics",
    kinds=["html"],
    description="A page about a target, from the last publication: one HTML file in ``reports/`` of the "
    "home.\n\n"
    "It covers all crawls, so its partitions are targets only.",
    deps=["warehouse"],
)
DEFINITIONS: Final = HomeDefinitions(
    steps=[
        Step(
            function="cc_pipeline.extensions.reports.assets.report",
            assets=[_REPORT],
            partitions="target",
            backfill=BACKFILL,
            options={"output_required": False},
        )
    ]
)
