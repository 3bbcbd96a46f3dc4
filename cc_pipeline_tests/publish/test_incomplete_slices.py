"""A publication shows the rows that count by one version of ``slices`` and ``targets``: no slice with other rows than
were committed, none of a purged target, and no page of a blocked site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.outputs import publication_verdict, published_verdict
from cc_pipeline.checks.scope import Scope
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.blocklist import block, unblock
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.checks.changed_slices import double_rows, lose_rows
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, publish

LOSES, KEEPS = "example.com", "example-foo.com"
MINE = Slice(NEW, LOSES)
SHOWN = ("captures", "records", "page_metadata", "lookups", "fetches")


def made(bucket: Bucket, home: Path, kind: str = "views") -> Workspace:
    workspace = harvested(bucket[0], home, publish=kind)
    extract(workspace, LOSES)
    extract(workspace, KEEPS)
    publish(workspace)
    return workspace


def query(workspace: Workspace, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def shown(workspace: Workspace) -> dict[str, dict[str, int]]:
    """Rows of each published table by domain or target."""
    columns = {**dict.fromkeys(SHOWN, "domain"), "lookups": "target", "fetches": "target"}
    return {
        table: dict(query(workspace, f"SELECT {column}, count(*) FROM {table} GROUP BY ALL"))
        for table, column in columns.items()
    }


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("table", "harm", "kind"),
    [
        ("captures", lose_rows, "views"),
        ("records", double_rows, "views"),
        ("records", lose_rows, "copy"),
    ],
)
def test_a_slice_with_other_rows_than_committed_is_left_out_and_named_until_it_is_made_again(
    bucket: Bucket, tmp_path: Path, table: str, harm: Callable[[Lake, str, Slice], None], kind: str
) -> None:
    workspace = made(bucket, tmp_path / "home", kind)
    before = shown(workspace)
    assert all(set(rows) == {LOSES, KEEPS} for rows in before.values())
    harm(workspace.lake, table, MINE)
    assert LOSES in publication_verdict(workspace).message
    published = publish(workspace)
    kept = {name: {KEEPS: rows[KEEPS]} for name, rows in before.items()}
    assert shown(workspace) == kept
    assert published.rows["captures"] == before["captures"][KEEPS]
    for verdict in (publication_verdict(workspace), published_verdict(workspace, Scope())):
        assert (verdict.severity, verdict.wrong) == ("error", (f"{NEW}|{LOSES}",))
        assert f"{table} of {NEW} {LOSES} has " in verdict.message and "doctor --repair" in str(verdict.advice)
    assert [one.level for one in examine(workspace.settings) if one.topic == "cc.duckdb"] == ["bad"]
    for stage in (LOCATE, FETCH, PARSE):
        invalidate_slices(workspace.lake, stage, [MINE])
    extract(workspace, LOSES, KEEPS)
    publish(workspace)
    assert shown(workspace) == before
    assert publication_verdict(workspace).passed
    assert published_verdict(workspace, Scope()).passed


def test_rows_of_a_purged_target_are_shown_no_more_with_their_notes(bucket: Bucket, tmp_path: Path) -> None:
    workspace = made(bucket, tmp_path / "home")
    before = shown(workspace)
    delete_definitions(workspace.lake, [LOSES])
    assert find_publication_lag(workspace) is not None
    assert published_verdict(workspace, Scope()).passed, "the rows are those of the published versions"
    publish(workspace)
    assert shown(workspace) == {name: {KEEPS: rows[KEEPS]} for name, rows in before.items()}
    assert publication_verdict(workspace).passed
    # a new definition of the same target makes none of them count again
    workspace.register_targets([parse_target(LOSES)])
    publish(workspace)
    assert shown(workspace) == {name: {KEEPS: rows[KEEPS]} for name, rows in before.items()}


def test_pages_of_a_blocked_site_are_hidden_before_it_is_located_again(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    extract(workspace, "suffix:com", KEEPS)
    publish(workspace)
    before = shown(workspace)
    assert LOSES in before["captures"]
    block(workspace, [parse_target(LOSES)])
    publish(workspace)
    for table in SHOWN[:3]:
        assert shown(workspace)[table] == {name: rows for name, rows in before[table].items() if name != LOSES}
    unblock(workspace, [parse_target(LOSES)])
    block(workspace, [parse_target(KEEPS)])
    publish(workspace)
    assert shown(workspace)["captures"][KEEPS] == before["captures"][KEEPS], "a blocked target keeps its rows"
