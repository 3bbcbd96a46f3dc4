"""The definitions of a home in Dagster, as values: assets and the steps that make them, jobs, sensors and schedules.

The core and each extension return one :class:`HomeDefinitions`. ``declared/build.py`` makes Dagster's own objects of
them, for the namespace of a home. Names here have no prefix of a home.

Loading the declarations must not load the code that they run. So functions of steps and jobs are given by location,
``package.module.name``, and are loaded when they are called. A sensor or a schedule is a function with the decorator
:func:`sensor` or :func:`schedule`, which imports heavy modules when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import dagster as dg

from cc_pipeline.columns import Column

#: The partition definitions of a home (``HomeNamespace``).
Partitions = Literal["crawl", "target", "pairs", "source_file"]
#: The source columns of each column.
Columns = Mapping[str, Sequence[tuple[dg.AssetKey, str]]]
#: The function of a sensor or schedule: takes the context, the open workspace and the namespace of the home.
Tick: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAsset:
    """Data that a third party publishes. ``key`` begins with the publisher; ``page_url`` is the URL of a page about it.
    ``columns`` are names and types."""

    key: dg.AssetKey
    description: str
    page_url: str
    era: Literal["all", "arc", "columnar"]
    kinds: Sequence[str]
    deps: Sequence[dg.AssetKey] = ()
    columns: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """An asset that a step of a home makes.

    ``deps`` are names of assets of the home that it is made of, ``external`` are keys of external assets. ``table`` is
    the table that it writes, with its ``columns``; ``lineage`` has the columns that these are made of. If it
    ``is_published``, the published file shows its table.
    """

    name: str
    group: str
    kinds: Sequence[str]
    description: str
    deps: Sequence[str] = ()
    external: Sequence[dg.AssetKey] = ()
    code_version: str = "1"
    table: str = ""
    columns: Sequence[Column] = ()
    lineage: Columns = field(default_factory=dict)
    is_published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that makes one asset, or several together, of which a run may select some.

    ``function`` takes the context, the open workspace, the namespace of the home and, if there is one, the run's
    ``config``. Over partitions it records each partition by itself (``recording.py``). ``description`` is that of
    several assets together. ``pool`` keeps two runs from writing the same data. ``options`` are further arguments of
    ``dg.asset`` or ``dg.multi_asset``.
    """

    function: str
    assets: Sequence[Asset]
    partitions: Partitions | None = None
    backfill: dg.BackfillPolicy | None = None
    config: type[dg.Config] | None = None
    description: str | None = None
    pool: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAsset:
    """An asset that the op job ``job`` makes and records, one partition at a time.

    Dagster knows it as external: "Materialize all" and selections leave it out, since it costs too much to be made
    unasked.
    """

    asset: Asset
    job: str
    partitions: Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetJob:
    """A job that makes ``assets``, which have the same partitions."""

    name: str
    description: str
    assets: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpJob:
    """A job of one op, which has the name of its ``function``. The function takes the same arguments as that of a step.

    If it ``takes_partition_list``, its configuration (a ``PartitionsConfig``) lists the partitions to make, of any
    crawls in any order. With ``partitions`` a run is for one partition. Both have no output: the op logs what it
    made."""

    name: str
    description: str
    function: str
    config: type[dg.Config] | None = None
    pool: str | None = None
    takes_partition_list: bool = False
    partitions: Partitions | None = None

    @property
    def op(self) -> str:
        """The name of the op."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """A sensor. ``job`` is the job that it launches, ``seconds`` the minimum between two ticks. If it
    ``is_of_failed_runs``, it is called for each failed run, with the run's context."""

    name: str
    description: str
    function: Tick
    seconds: int
    job: str | None = None
    is_of_failed_runs: bool = False


def sensor(*, seconds: int, job: str | None = None, is_of_failed_runs: bool = False) -> Callable[[Tick], Sensor]:
    """Makes a :class:`Sensor` of a function: its name is the sensor's, its docstring has the description."""

    def declare(tick: Tick) -> Sensor:
        return Sensor(
            name=tick.__name__,
            description=_first_paragraph(tick),
            function=tick,
            seconds=seconds,
            job=job,
            is_of_failed_runs=is_of_failed_runs,
        )

    return declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of ``job``. Without a ``function`` each tick launches the job."""

    name: str
    description: str
    cron: str
    job: str
    function: Tick | None = None


def schedule(*, cron: str, job: str) -> Callable[[Tick], Schedule]:
    """Makes a :class:`Schedule` of a function, as :func:`sensor` does."""

    def declare(tick: Tick) -> Schedule:
        return Schedule(name=tick.__name__, description=_first_paragraph(tick), cron=cron, job=job, function=tick)

    return declare


def _first_paragraph(tick: Tick) -> str:
    return " ".join((tick.__doc__ or "").partition("\n\n")[0].split())


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeDefinitions:
    """The definitions that the core or an extension adds to a home. Checks are declared separately
    (``checks/check.py``), since the command line evaluates them too."""

    external: Sequence[ExternalAsset] = ()
    steps: Sequence[Step] = ()
    recorded: Sequence[RecordedAsset] = ()
    jobs: Sequence[AssetJob | OpJob] = ()
    sensors: Sequence[Sensor] = ()
    schedules: Sequence[Schedule] = ()

    @property
    def assets(self) -> list[Asset]:
        """The assets of all steps and op jobs."""
        of_jobs = [recorded.asset for recorded in self.recorded]
        return [*(asset for step in self.steps for asset in step.assets), *of_jobs]
