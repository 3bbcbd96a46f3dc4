"""Homes made by two engines, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.engine import LOCAL, Engine
from cc_pipeline.extraction.run import TABLES, Made, extract
from cc_pipeline.lake.slice import FETCH, PARSE, slices_of
from cc_pipeline.records.storage import COMMITTED
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, harvest, workspace_of

Bucket = tuple[Path, MiniCrawlTruth]
#: The tables that an engine makes.
MADE = ("records", "page_metadata", "page_text", "page_links", "feed_items")
#: What a row of ``fetches`` says of a moment, and what is one of many examples.
_OF_A_MOMENT = {"asked_at", "example", "stored_files"}


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


def made(workspace: Workspace, slugs: Iterable[str], engine: Engine, tables: Sequence[str] = TABLES) -> dict[str, Made]:
    return {one.slug: one for one in extract(workspace, [(NEW, slug) for slug in slugs], tables, engine)}


def rows_of(workspace: Workspace, table: str) -> list[str]:
    """Rows as texts, in an order that does not depend on who made them, without what says where and when."""
    spec = workspace.lake.specs[table]
    columns = [name for name in spec.schema.names if name not in spec.apart]
    return sorted(map(repr, workspace.lake.read(table, columns=columns).to_pylist()))


def same(one: Workspace, other: Workspace, slugs: Iterable[str]) -> None:
    """Asserts that two homes have the same tables, of which they say the same."""
    for table in MADE:
        assert rows_of(one, table) == rows_of(other, table), table
    slices = slices_of(NEW, slugs)
    for stage in (FETCH, PARSE):
        assert stage.made_from(one.lake, slices) == stage.made_from(other.lake, slices)
        assert stage.versions(one.lake, slices) == stage.versions(other.lake, slices)
    stand = [
        sorted(
            repr({name: value for name, value in row.items() if name not in _OF_A_MOMENT})
            for row in workspace.lake.read("fetches").to_pylist()
        )
        for workspace in (one, other)
    ]
    assert stand[0] == stand[1]


def left_over(workspace: Workspace) -> list[str]:
    """Keys below the stored records that no running fetch needs: journals, plans, leases, notes to stop.

    Journals of committed records are kept for a week and do not count.
    """
    keys = [one.key for one in workspace.place.listing("records/") if f"/{COMMITTED}/" not in one.key]
    return [key for key in keys if key.endswith(".jsonl") or "/plans/" in key or "/leases/" in key]


def not_named(workspace: Workspace) -> set[str]:
    """The stored files that no row names."""
    named = set(workspace.lake.read("records", columns=["stored_file"]).column(0).to_pylist())
    return {one.key for one in workspace.place.listing("records/") if one.key.endswith(".gz")} - named
