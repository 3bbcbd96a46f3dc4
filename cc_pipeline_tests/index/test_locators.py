"""Kinds of index that extensions bring: when they are asked, and what a name that is taken costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.index import locators
from cc_pipeline.index.locators import IndexKind, index_kinds
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.index.test_locators_choice import Priced

CRAWL = "CC-MAIN-2024-22"
CHEAP = Priced("toy", 1, 1 << 10)


def toy(name: str = "toy") -> IndexKind:
    return IndexKind(name=name, summary="", find=lambda sought: None)


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes extensions ``first``, ``second`` … bring a kind each; gives the list of those that are refused."""

    def make(*brought: IndexKind) -> list[str]:
        refused: list[str] = []
        names = ("first", "second")
        monkeypatch.setattr(
            locators, "collect", lambda joint: dict(zip(names, ([one] for one in brought), strict=False))
        )
        monkeypatch.setattr(locators, "refuse", lambda name, problem: refused.append(f"{name}: {problem}"))
        return refused

    return make


def test_an_extension_with_a_name_that_is_taken_is_refused(bring: Callable[..., list[str]]) -> None:
    refused = bring(toy("zipnum"), toy("other"))
    assert (list(index_kinds()), len(refused)) == (["parquet", "zipnum", "btree", "other"], 1)
    assert "first: locators: the name zipnum is already used" in refused
    refused = bring(toy("auto"), toy("other"))
    assert "auto" not in index_kinds()
    assert refused == ["first: locators: the name auto is already used"]


def test_an_extension_that_brings_no_kind_is_refused(bring: Callable[..., list[str]]) -> None:
    refused = bring("zipnum", toy("other"))  # type: ignore[arg-type]
    assert list(index_kinds()) == ["parquet", "zipnum", "btree", "other"]
    assert refused == ["first: locators: 'zipnum' is not an IndexKind"]


def test_settings_that_name_no_kind_are_refused_with_those_that_there_are(
    bring: Callable[..., list[str]], tmp_path: Path
) -> None:
    settings = load_settings({}, home=str(tmp_path), index="toy")
    with pytest.raises(UserInputError, match=r"choose one of auto, parquet, zipnum, btree$"), open_workspace(settings):
        pass
    bring(toy())
    with open_workspace(settings) as workspace:
        assert workspace.settings.index == "toy"
