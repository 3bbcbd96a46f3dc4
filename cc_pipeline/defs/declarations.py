"""What a home has in Dagster, as values: assets and the steps that make them, jobs, sensors and schedules.

The core and each extension hand in one :class:`HomeDefinitions`. ``declared/build.py`` makes Dagster's own objects of
them, for the placement of a home. No name here has the prefix of a home.

Functions are given by their place, ``package.module.name``. They are loaded when they are called: declaring what there
is must not load what it takes to make it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg

from cc_pipeline.columns import Column

#: The partition definitions of a home (``Placement``).
Partitions = Literal["crawl", "target", "pairs", "source_file"]
#: By column, the columns of assets that it is made of.
Columns = Mapping[str, Sequence[tuple[dg.AssetKey, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAsset:
    """Data of others, which nothing here makes. ``key`` begins with who publishes it; ``about`` is the address of a
    page about it. ``columns`` are names and types."""

    key: dg.AssetKey
    description: str
    about: str
    era: Literal["all", "arc", "columnar"]
    kinds: Sequence[str]
    deps: Sequence[dg.AssetKey] = ()
    columns: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """An asset that a step of a home makes.

    ``deps`` are names of assets of the home that it is made of, ``external`` keys of data of others. ``table`` is the
    table that it writes, with its ``columns``, and ``lineage`` says what these are made of. If it
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
    """What makes one asset, or several together, of which a run may select some.

    ``function`` takes the context, the open workspace, the placement and, if there is one, the run's ``config``. Over
    partitions it records each by itself (``recording.py``). ``description`` is of several assets together. ``pool``
    keeps two runs from the same thing. ``options`` are further arguments of ``dg.asset``, or ``dg.multi_asset``.
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
class AssetJob:
    """A job that makes ``assets``, which have the same partitions."""

    name: str
    description: str
    assets: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpJob:
    """A job of one op, which has the name of its ``function``. The function takes what that of a step does.

    If it ``is_listed``, its configuration (a ``PartitionsConfig``) names the partitions that it makes, of any crawls in
    any order. Such an op has no output: it logs what it made.
    """

    name: str
    description: str
    function: str
    config: type[dg.Config] | None = None
    pool: str | None = None
    is_listed: bool = False

    @property
    def op(self) -> str:
        """The name of the op."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """A sensor, named as its ``function``, which takes the context, the open workspace and the placement. ``job`` is
    the job that it launches, and ``seconds`` the least between two ticks. If it ``is_of_failed_runs``, it is called for
    each failed run, whose context it gets."""

    function: str
    description: str
    seconds: int
    job: str | None = None
    is_of_failed_runs: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of ``job``. Its ``function`` takes what that of a sensor does; without one, each tick launches the
    job."""

    name: str
    description: str
    cron: str
    job: str
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeDefinitions:
    """What the core or an extension adds to the definitions of a home. Checks are apart (``checks/check.py``), since
    the command line evaluates them too.

    ``families`` are how names of assets begin whose number depends on the home.
    """

    external: Sequence[ExternalAsset] = ()
    steps: Sequence[Step] = ()
    jobs: Sequence[AssetJob | OpJob] = ()
    sensors: Sequence[Sensor] = ()
    schedules: Sequence[Schedule] = ()
    families: Sequence[str] = ()

    @property
    def assets(self) -> list[Asset]:
        """The assets of all steps."""
        return [asset for step in self.steps for asset in step.assets]
