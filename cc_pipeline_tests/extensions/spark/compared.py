"""Homes in which captures are located, for an engine to go on with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.extraction.run import TABLES, PartitionResult, extract
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, harvest, workspace_of

Bucket = tuple[Path, MiniCrawlTruth]


def slugs_of(targets: Iterable[str]) -> list[str]:
    return sorted(parse_target(target).slug for target in targets)


def located(source: Path | str, home: Path, targets: Iterable[str], **more: object) -> Workspace:
    """A home in which the captures of ``targets`` are located."""
    workspace = workspace_of(source, home, **more)
    harvest(workspace)
    workspace.register_targets([parse_target(target) for target in targets])
    found = made(workspace, slugs_of(targets), LOCAL, ["captures"])
    assert all(one.error is None for one in found.values())
    return workspace


def made(
    workspace: Workspace, slugs: Iterable[str], engine: Engine, tables: Sequence[str] = TABLES
) -> dict[str, PartitionResult]:
    return {one.slug: one for one in extract(workspace, [(NEW, slug) for slug in slugs], tables, engine)}
