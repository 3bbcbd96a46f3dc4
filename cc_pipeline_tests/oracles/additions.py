"""What the tests of extensions add to the frozen homes, found as the extensions are: none is named here."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import cc_pipeline_tests.extensions
from cc_pipeline.extension import extensions
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth

#: Runs a command of ``cc-pipeline`` in the home that is made.
Run: TypeAlias = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Addition:
    """What an extension's tests add: ``ADDITION`` of the package ``oracles`` beside them.

    ``homes`` by name: each makes ``FOLDER/home`` and what it reads, and returns the digest of its source.
    ``fill`` runs commands in the home of the larger mini crawl once its targets were run.
    """

    homes: Mapping[str, Callable[[Path], str]] = field(default_factory=dict)
    fill: Callable[[Run, MiniCrawlTruth], None] = lambda run, truth: None


def find_additions() -> dict[str, Addition]:
    """By extension, what its tests add, of all whose tests are here."""
    package = cc_pipeline_tests.extensions
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    places = {name: f"{package.__name__}.{name}.oracles" for name in names}
    return {name: import_module(place).ADDITION for name, place in places.items() if find_spec(place) is not None}


def owners_of_tables() -> dict[str, str]:
    """The extension of each published table that an extension owns."""
    return {view.name: extension.name for extension in extensions() for view in extension.views()}
