"""docs/analytics.md: every macro is explained, and every query answers."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.publish.macros import MACROS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "analytics.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (\d+\. .+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.xdist_group("questions")


def test_there_are_twelve_and_every_macro_is_explained() -> None:
    assert [int(title.split(".", 1)[0]) for title, _ in SECTIONS] == list(range(1, 13))
    assert [macro.name for macro in MACROS if f"`{macro.name}(" not in PAGE] == []


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_the_query_answers(in_views: duckdb.DuckDBPyConnection, title: str, text: str) -> None:
    [query] = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert in_views.execute(query).fetchall(), title
