"""A home of layout 3 whose migration is killed behind any commit, and run again, or twice: nothing is made again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.extraction import plan
from cc_pipeline.extraction.layout4 import to_layout_4
from cc_pipeline.extraction.run import look
from cc_pipeline.lake.lake import Lake
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.tables import MIGRATIONS
from cc_pipeline.workspace.workspace import open_lake, open_workspace
from cc_pipeline_tests.homes.unpack import unpack
from cc_pipeline_tests.world import Killed

NEW, OLD, ARC = "CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012"
#: What was asked for in the home, by the subsets it was asked for with, and what stays open.
ASKED = {
    ("warc",): {
        NEW: ["example.com", "host_www.example.com", "set-three", "set-many", "primer-example.ru"],
        OLD: ["example.com", "host_www.example.com", "set-three"],
        ARC: ["example.com", "host_www.example.com", "set-three"],
    },
    ("warc", "robotstxt"): {OLD: ["example.org"]},
    ("robotstxt",): {OLD: ["beispiel-example.de"]},
}


def after(commits: int, patch: pytest.MonkeyPatch) -> None:
    """The process ends behind so many commits."""
    left = [commits]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    for name in ("commit", "commit_digests"):
        patch.setattr(Lake, name, counted(getattr(Lake, name)))


def planned(settings: Settings) -> list[str]:
    """What a run would do of all that is there."""
    found: list[str] = []
    for subsets, by_crawl in ASKED.items():
        with open_workspace(load_settings({}, home=str(settings.home), subsets=subsets)) as workspace:
            for crawl, slugs in by_crawl.items():
                todos = look(workspace, crawl, slugs).plan.todos
                found += [f"{crawl} {todo.slice_.target} {todo.first}" for todo in todos]
    return found


@pytest.mark.process
def test_a_migration_may_be_killed_anywhere_and_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack(3, tmp_path)
    assert MIGRATIONS[2].layout == 4
    whole = tmp_path / "home"
    # all of it would be parsed again, for no other reason than a newer parser
    pages = open_lake(load_settings({}, home=str(whole))).read("page_metadata", columns=["parser_version"])
    monkeypatch.setattr(plan, "PARSER_VERSION", *set(pages["parser_version"].to_pylist()))
    for commits in range(0, 400, 2):
        home = tmp_path / f"killed-{commits}"
        shutil.copytree(whole, home, symlinks=True)
        settings = load_settings({}, home=str(home))
        ended = False
        with monkeypatch.context() as patch:
            after(commits, patch)
            try:
                to_layout_4(open_lake(settings))
                ended = True
            except Killed:
                pass
        # the next process, and another home on the lake after it
        for _ in range(2):
            to_layout_4(open_lake(settings))
        assert planned(settings) == [], f"killed behind {commits} commits"
        shutil.rmtree(home)
        if ended:
            return
    pytest.fail("it never ends")
