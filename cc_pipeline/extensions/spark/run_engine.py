"""The engine that a home selects to have its partitions extracted on Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from cc_pipeline.checks.finding import Finding
from cc_pipeline.defs.engines import Partition
from cc_pipeline.extensions.spark.readiness import check_ready, engine_findings
from cc_pipeline.extensions.spark.settings import SparkSettings
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.defs.partitions import StepContext
    from cc_pipeline.extraction.run import PartitionResult
    from cc_pipeline.workspace.workspace import Workspace


class SparkRunEngine:
    """Submits one job for the partitions of a run. Implements :class:`cc_pipeline.defs.engines.RunEngine`."""

    def check_ready(self, settings: Settings) -> None:
        check_ready(settings)

    def examine(self, settings: Settings) -> Iterator[Finding]:
        return engine_findings(settings)

    def describe(self, settings: Settings) -> str:
        return f"spark (experimental), {settings.settings_of(SparkSettings).workers} workers"

    def extract(
        self,
        context: StepContext,
        workspace: Workspace,
        partitions: Sequence[Partition],
        tables: Collection[str],
    ) -> Iterator[PartitionResult]:
        from cc_pipeline.extensions.spark.submission import extract_on_spark  # noqa: PLC0415  # loads Dagster

        if not partitions:
            return iter(())
        return extract_on_spark(context, workspace, partitions, tables)
