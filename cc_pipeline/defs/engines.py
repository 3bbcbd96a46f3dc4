"""Engines by name: an engine makes the records and pages of a run's partitions. Extensions add engines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from cc_pipeline.checks.finding import Finding
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.extension import extensions

if TYPE_CHECKING:
    from cc_pipeline.defs.partitions import StepContext
    from cc_pipeline.extraction.run import PartitionResult
    from cc_pipeline.settings import Settings
    from cc_pipeline.workspace.workspace import Workspace

#: The engine of the core: processes of this machine.
LOCAL: Final = "local"
#: A partition: crawl and slug of the target.
Partition: TypeAlias = tuple[str, str]


class RunEngine(Protocol):
    """Extracts the partitions of a Dagster run. ``CC_PIPELINE_ENGINE`` has the name of the engine of a home.

    If only fetching and parsing within the stages differ, ``extract`` hands an
    :class:`~cc_pipeline.extraction.engine.Engine` to :func:`~cc_pipeline.extraction.run.extract`.
    """

    def check_ready(self, settings: Settings) -> None:
        """Sends no request. Raises ``UserInputError`` or ``EnvironmentFault`` with everything that is missing."""
        ...

    def examine(self, settings: Settings) -> Iterator[Finding]:
        """Yields the findings of ``cc-pipeline doctor`` about this engine; raises nothing."""
        ...

    def describe(self, settings: Settings) -> str:
        """Returns the engine and its size for the metadata of a partition."""
        ...

    def extract(
        self,
        context: StepContext,
        workspace: Workspace,
        partitions: Sequence[Partition],
        tables: Collection[str],
    ) -> Iterator[PartitionResult]:
        """Makes ``tables`` of ``partitions`` as :func:`~cc_pipeline.extraction.run.extract` does, and yields each
        finished one. ``context`` is the step of the run."""
        ...


class _LocalRunEngine:
    def check_ready(self, settings: Settings) -> None:
        from cc_pipeline.lake.published_file import check_views  # noqa: PLC0415  # loads DuckDB

        check_views(settings)

    def examine(self, settings: Settings) -> Iterator[Finding]:
        yield Finding("ok", "engine", f"{LOCAL}: processes of this machine fetch and parse")

    def describe(self, settings: Settings) -> str:
        return LOCAL

    def extract(
        self, context: StepContext, workspace: Workspace, partitions: Sequence[Partition], tables: Collection[str]
    ) -> Iterator[PartitionResult]:
        from cc_pipeline.extraction.run import extract  # noqa: PLC0415  # a doctor needs none of it

        return extract(workspace, partitions, tables)


def find_engine(name: str) -> RunEngine:
    """Returns the engine called ``name``. Raises ``UserInputError`` with the available engines."""
    factories: dict[str, Callable[[], RunEngine]] = {LOCAL: _LocalRunEngine}
    for extension in extensions():
        factories |= extension.engines()
    if name not in factories:
        raise UserInputError(describe_unknown_name("engine", name, factories))
    return factories[name]()


def describe_engines() -> str:
    """Returns a list of the engines for the help, each of an extension with the extension's summary."""
    added = [f"{name} ({extension.summary})" for extension in extensions() for name in extension.engines()]
    return ", ".join([f"{LOCAL} (the processes of this machine)", *added])
