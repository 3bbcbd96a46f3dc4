"""Views and macros of extensions in the published file: there beside the core's, and no reason why it is not built."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.checks.outputs import publication_verdict
from cc_pipeline.extension import Extension
from cc_pipeline.lake.snapshot import MacroSpec, ViewSpec
from cc_pipeline.publish.publish import compute_build_digest, find_publication_lag, publish_warehouse
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.publish.lake_pages import commit_pages, make_workspace, page

HOSTS = ViewSpec("hosts", "SELECT url, domain FROM main.captures", "Hosts.", notes={"url": "Address"})
OF = MacroSpec("hosts_of", ("site",), "FROM main.hosts WHERE domain = site", "hosts_of(site): its hosts.")
GOOD = Extension(name="good", summary="Adds a view.", views=lambda: [HOSTS], macros=lambda: [OF])
TAKES = Extension(name="takes", summary="Takes a name.", views=lambda: [ViewSpec("captures", "SELECT 1 AS n", "")])
FAILS = Extension(name="fails", summary="Has a wrong view.", views=lambda: [ViewSpec("wrong", "FROM nowhere", "")])
RAISES = Extension(name="raises", summary="Cannot say.", views=lambda: [HOSTS, 1 / 0])  # type: ignore[list-item]
ODD = Extension(name="odd", summary="Hands in a name.", views=lambda: ["hosts"])  # type: ignore[list-item]


def with_extensions(monkeypatch: pytest.MonkeyPatch, *found: Extension) -> None:
    monkeypatch.setattr("cc_pipeline.publish.publish.extensions", lambda: found)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = make_workspace(tmp_path)
    commit_pages(workspace, [page(0)])
    return workspace


def test_a_broken_extension_costs_itself_alone_and_is_named(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_extensions(monkeypatch, TAKES, FAILS, RAISES, ODD, GOOD)
    published = publish_warehouse(workspace)
    assert sorted(published.left_out) == ["fails", "odd", "raises", "takes"]
    assert published.rows["hosts"] == published.rows["captures"]
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM hosts_of('nobody.example')").fetchall() == [(0,)]
        assert "crawl" in [row[0] for row in connection.execute("DESCRIBE captures").fetchall()]
        noted = "SELECT comment FROM duckdb_columns() WHERE table_name = 'hosts' AND comment IS NOT NULL"
        assert connection.execute(noted).fetchall() == [("Address",)]
    assert "captures has a name that is already used" in caplog.text
    verdict = publication_verdict(workspace)
    assert verdict.severity == "warn"
    for name in published.left_out:
        assert name in verdict.message
    assert find_publication_lag(workspace) is None, "nothing would be otherwise now"


def test_what_an_extension_adds_is_published_anew_when_it_comes_changes_or_goes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Extension(name="good", summary="", views=lambda: [HOSTS])
    made = []
    for found in ((), (GOOD,), (other,), ()):
        with_extensions(monkeypatch, *found)
        made.append(compute_build_digest(workspace))
    assert made[0] == made[3]
    assert len({*made}) == 3
    publish_warehouse(workspace)
    with_extensions(monkeypatch, GOOD)
    assert find_publication_lag(workspace) is not None
