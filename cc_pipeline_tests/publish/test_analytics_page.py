"""docs/analytics.md: every query answers, and its twins in polars and pandas (twins.md) give the same rows."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.publish.macros import MACROS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "analytics.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (\d+\. .+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
#: The same questions in polars and pandas, under the same titles.
TWINS = dict(
    re.findall(
        r"^## (\d+\. .+?)\n(.*?)(?=^## |\Z)",
        Path(__file__).with_name("twins.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
pytestmark = pytest.mark.xdist_group("questions")


def blocks(text: str, language: str) -> list[str]:
    """Code in a section."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def plain(value: Any) -> Any:
    """A value as all three have it."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 3)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    return value


def rows(frame: Any) -> list[list[Any]]:
    """Of a polars or pandas frame."""
    found = frame.rows() if hasattr(frame, "rows") else frame.itertuples(index=False, name=None)
    return [[plain(value) for value in row] for row in found]


def test_there_are_twelve_and_every_macro_is_explained() -> None:
    assert [int(title.split(".", 1)[0]) for title, _ in SECTIONS] == list(range(1, 13))
    assert [macro.name for macro in MACROS if f"`{macro.name}(" not in PAGE] == []


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_the_query_and_its_twins_agree(in_views: duckdb.DuckDBPyConnection, title: str, text: str) -> None:
    [query], twins = blocks(text, "sql"), blocks(TWINS[title], "python")
    found = in_views.execute(query)
    names = [column[0] for column in found.description or []]
    wanted = [[plain(value) for value in row] for row in found.fetchall()]
    assert wanted
    assert [twin.splitlines()[0] for twin in twins] == ["# polars", "# pandas"]
    import polars  # noqa: PLC0415  # the first of them imports it for all

    for twin in twins:
        given: dict[str, Any] = {"con": in_views, "pl": polars}
        exec(twin, given)
        answer = given["answer"]
        assert list(answer.columns) == names, twin
        assert sorted(map(str, rows(answer))) == sorted(map(str, wanted)), twin
