"""Buckets with facts of hosts, which all tests of this room read and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.cli.conftest import cli, rich, world
from cc_pipeline_tests.defs.conftest import clean_environment, instance, tries_do_not_wait
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, KeyedTruth, write_keyed
from cc_pipeline_tests.world import workspace_of

#: Of the odd one the partition has another schema.
CRAWL, ODD = "CC-MAIN-2025-18", "CC-MAIN-2024-51"

__all__ = ["clean_environment", "cli", "instance", "rich", "tries_do_not_wait", "world"]


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    """Of few domains, in one crawl."""
    root = tmp_path_factory.mktemp("keyed") / "bucket"
    return root, write_keyed(root, KeyedSpec((CRAWL,), domains=40))


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyedTruth]:
    """Of more domains, in both crawls."""
    root = tmp_path_factory.mktemp("both") / "bucket"
    return root, write_keyed(root, KeyedSpec((CRAWL, ODD), odd=ODD))


@pytest.fixture(scope="module")
def home(both: tuple[Path, KeyedTruth], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A home over both crawls that keeps what its module has asked."""
    return workspace_of(both[0], tmp_path_factory.mktemp("home"))
