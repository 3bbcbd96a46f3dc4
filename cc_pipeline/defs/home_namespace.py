"""The namespace of one home in a code location: the names of its items there, and its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import dagster as dg

from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import PREFIX, Settings, load_settings
from cc_pipeline.workspace.workspace import Workspace

#: The resource key of the workspace in our own code location: people write it into the configuration of runs.
WORKSPACE: Final = "workspace"
#: Variables with the locations of one home.
_HOME_VARIABLES: Final = frozenset(PREFIX + name for name in ("HOME", "SOURCE", "LAKE", "COLLINFO"))
#: The jobs of a home, and the assets over crawl × target.
JOBS: Final = (
    "harvest_crawl",
    "extract_targets",
    "publish",
    "maintenance",
    "trim_history",
    "check_everything",
)
TABLES: Final = ("captures", "records", "page_metadata", "page_text", "page_links", "feed_items")
#: The name under which ``workspace.yaml`` loads the definitions; states of sensors and schedules are stored by it.
LOCATION: Final = "cc_pipeline"
_PART: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class HomeNamespace:
    """The namespace of a home in a code location: its names and settings there. Raises ``UserInputError`` for a prefix
    or group that Dagster does not accept.

    ``prefix`` goes before every name that has to be unique: keys of assets have it as parts, all other names as words.
    ``group`` replaces the groups. ``is_only_home``: the code location and its instance belong to this home only.
    ``targets`` are watched beside those of the home's watch list. ``places`` are its ``home`` and ``source`` if they
    were chosen; ``settings`` are the other chosen settings, as texts by variable.
    """

    prefix: tuple[str, ...] = ()
    group: str = ""
    is_only_home: bool = True
    targets: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for word in (*self.prefix, *((self.group,) if self.group else ())):
            if not _PART.fullmatch(word):
                raise UserInputError(
                    f"{word!r} cannot be a prefix or group in Dagster; write letters, digits and _, beginning with a "
                    "letter"
                )

    def qualify(self, name: str) -> str:
        """Returns the full name of a job, sensor, schedule, op, pool or partition definition called ``name``."""
        return "_".join((*self.prefix, name))

    def group_of(self, name: str) -> str:
        """Returns the group of assets whose default is ``name``."""
        return self.group or self.qualify(name)

    def key(self, *path: str) -> dg.AssetKey:
        """Returns the key of an asset."""
        return dg.AssetKey([*self.prefix, *path])

    def keys(self, paths: Iterable[Sequence[str]]) -> list[dg.AssetKey]:
        """Returns the keys of assets, by their paths."""
        return [self.key(*path) for path in paths]

    def owns(self, run: dg.DagsterRun) -> bool:
        """Whether a run belongs to this home: it is of one of its jobs or assets."""
        if self.is_only_home:
            return True
        keys = run.asset_selection or ()
        return run.job_name in {self.qualify(job) for job in JOBS} or any(
            tuple(key.path[: len(self.prefix)]) == self.prefix and key.path[-1] in TABLES for key in keys
        )

    @property
    def resource(self) -> str:
        """The key of the resource that is the open workspace."""
        if self.is_only_home:
            return WORKSPACE
        return self.qualify(WORKSPACE) if self.prefix else f"cc_pipeline_{WORKSPACE}"

    def load_settings(self, **overrides: Any) -> Settings:
        """Returns the settings of this home; ``overrides`` as for ``settings.load_settings``."""
        # a variable with a location of another home must not apply to a home that was named here
        env = {
            name: text for name, text in os.environ.items() if not (self.places.get("home") and name in _HOME_VARIABLES)
        }
        return load_settings({**env, **self.settings}, **{**self.places, **overrides})

    def workspace(self, context: Any) -> Workspace:
        """Returns the open workspace of a run or a tick."""
        workspace: Workspace = getattr(context.resources, self.resource).workspace
        return workspace

    @property
    def crawl(self) -> dg.DynamicPartitionsDefinition:
        """The partition definition of the crawls."""
        return dg.DynamicPartitionsDefinition(name=self.qualify("crawl"))

    @property
    def target(self) -> dg.DynamicPartitionsDefinition:
        """The partition definition of the targets. Keys are opaque slugs; the ``targets`` table has their
        definitions."""
        return dg.DynamicPartitionsDefinition(name=self.qualify("target"))

    @property
    def pairs(self) -> dg.MultiPartitionsDefinition:
        """Crawl × target. Keys read ``CRAWL|TARGET``: Dagster orders dimensions by name."""
        return dg.MultiPartitionsDefinition({"crawl": self.crawl, "target": self.target})

    @property
    def source_file(self) -> dg.DynamicPartitionsDefinition:
        """The partition definition of files that are read whole. The ``source_files`` table has the file of each key
        (``cc-pipeline files add`` adds both)."""
        return dg.DynamicPartitionsDefinition(name=self.qualify("source_file"))

    def crawl_keys(self, instance: dg.DagsterInstance) -> Sequence[str]:
        """Returns the crawls that are partitions, in Dagster's order."""
        return instance.get_dynamic_partitions(self.qualify("crawl"))

    def target_keys(self, instance: dg.DagsterInstance) -> Sequence[str]:
        """Returns the targets that are partitions, in Dagster's order."""
        return instance.get_dynamic_partitions(self.qualify("target"))


#: The home of our own code location, and of the command line.
OWN_HOME: Final = HomeNamespace()
