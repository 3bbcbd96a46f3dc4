"""The trace of a command counts functions that are there, and its picture shows calls in their order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cc_pipeline
from benchmarks.main_trace import STORY
from benchmarks.run_picture import drawn


@pytest.mark.parametrize("place", sorted({place for places in STORY.values() for place in places}))
def test_what_the_trace_looks_for_is_there(place: tuple[str, str]) -> None:
    file, _, function = place[0], *place[1].rpartition(".")[1:]
    found = ast.walk(ast.parse((Path(cc_pipeline.__file__).parent / file).read_text("utf-8")))
    assert function in {one.name for one in found if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_calls_that_follow_each_other_are_one_arrow() -> None:
    ask, commit = ("index", "transport", "request"), ("extraction", "lake", "commit <captures>")
    picture = drawn([ask, ask, commit, ask])
    assert picture.count("marker-end") == 3
    assert picture.index("request × 2") < picture.index("commit &lt;captures&gt;") < picture.rindex(">request<")
    assert "publish" not in picture
