"""What changed in words: kinds and texts are those of the tables, moves are found, strangers' texts steer nothing."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.reports.changes import MAX_PARAGRAPHS, _describe_page, describe_changes, paragraphs_between
from cc_pipeline.publish.sql import with_moves
from cc_pipeline.settings import Settings
from cc_pipeline_tests.publish.conftest import SITE
from cc_pipeline_tests.world import NEW, OLD

pytestmark = pytest.mark.xdist_group("questions")
_TEXTS = st.lists(st.sampled_from(["a", "b c", "d", "é"])).map("\n\n".join)


@given(_TEXTS, _TEXTS)
@settings(max_examples=100)
def test_what_differs_makes_one_text_the_other(before: str, after: str) -> None:
    lines = list(paragraphs_between(before, after))
    gone, come = (Counter(line[2:] for line in lines if line[0] == sign) for sign in "-+")
    old, new = (Counter(text.split("\n\n") if text else []) for text in (before, after))
    assert (old - gone) + come == new
    assert bool(lines) == (before != after)


@pytest.mark.parametrize("slug", [SITE, "set-both"])
def test_it_says_what_the_tables_say(asked_home: Settings, in_views: duckdb.DuckDBPyConnection, slug: str) -> None:
    lines = list(describe_changes(asked_home, slug, (OLD, NEW)))
    domains = [line[3:] for line in lines if line.startswith("== ")]
    listed = ", ".join(f"'{one}'" for one in domains)
    rows = in_views.execute(
        "SELECT change, url, after_digest, before_digest, before_text, after_text "
        f"FROM changes_between('{OLD}', '{NEW}') WHERE domain IN ({listed})"
    ).fetchall()
    assert domains == sorted({*domains})
    assert lines[-1].startswith("pages: ")
    told = {what: int(count) for count, what in (one.split(" ") for one in lines[-1][7:].split(", "))}
    kinds = Counter(row[0] for row in rows)
    moved = told.get("moved", 0)
    assert told["same"] == kinds["same"]
    assert told["changed"] == kinds["changed"] > 0
    assert told.get("gone", 0) + moved == kinds["gone"]
    texts = {row[1]: (row[4], row[5]) for row in rows if row[0] == "changed" and row[4] and row[5]}
    assert texts
    for url, (before, after) in texts.items():
        assert before != after
        entry = lines[lines.index(f"changed: {url}") :]
        shown = [line for line in entry[: entry.index("")] if line.startswith(("  - ", "  + "))]
        assert 0 < len(shown) <= MAX_PARAGRAPHS
        assert {line[4:][:500] in " ".join((before, after)[line[2] == "+"].split()) for line in shown} == {True}


def test_a_page_at_another_address_is_moved() -> None:
    columns = "change, domain, url, before_digest, after_digest, before_text, after_text, url_surtkey"
    rows = """('gone', 'a.example', '/1', 'X', NULL, 'one', NULL, '1'), ('new', 'a.example', '/2', NULL, 'X', NULL, 'other', '2'),
        ('gone', 'a.example', '/3', 'Y', NULL, 'three', NULL, '3'), ('new', 'a.example', '/4', NULL, 'Z', NULL, 'three', '4'),
        ('gone', 'a.example', '/5', 'W', NULL, NULL, NULL, '5'), ('new', 'a.example', '/6', NULL, NULL, NULL, NULL, '6'),
        ('changed', 'a.example', '/7', 'V', 'X', 'before', 'after', '7')"""  # fmt: skip  # noqa: E501
    others = "1.0 AS likeness, '' AS before_title, '' AS after_title, now() AS before_time, now() AS after_time"
    query = with_moves(f"SELECT *, {others} FROM (VALUES {rows}) AS given({columns})")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT change, url, new_url, before_text, after_text FROM ({query})").fetchall()
    assert sorted(found) == [
        ("changed", "/7", None, "before", "after"),
        ("gone", "/5", None, None, None),
        ("moved", "/1", "/2", None, None),
        ("moved", "/3", "/4", None, None),
        ("new", "/6", None, None, None),
    ]


def test_a_page_is_bounded_and_steers_no_terminal() -> None:
    row = {"change": "changed", "url": "http://a.example/\u202egpj", "before_time": None, "after_time": None}
    texts = {"before_text": "\n".join(f"{'x' * 9_999}{one}\x1b[31m" for one in range(90)), "after_text": "\x00y"}
    lines = list(_describe_page(row | texts | {"likeness": None, "before_title": "a\nb", "after_title": None}))
    assert lines[:3] == ["changed: http://a.example/gpj", "  captured at an unknown time", "  title: a b"]
    assert (len(lines), lines[-1]) == (MAX_PARAGRAPHS + 4, "  and 71 more paragraphs")
    assert all(line.isprintable() and len(line) < 700 for line in lines)
    why = list(
        _describe_page(row | {"change": "not compared", "likeness": 0.5, "before_title": None, "after_title": None})
    )
    assert "two versions of the parser" in why[-1]


def test_a_crawl_that_nobody_looked_in_is_an_error(asked_home: Settings) -> None:
    said = rf"not looked up in 'CC-MAIN-2011-01'\. .* looked up: .*{NEW}.*run {SITE} --crawl CC-MAIN-2011-01"
    with pytest.raises(UserInputError, match=said):
        list(describe_changes(asked_home, SITE, ("CC-MAIN-2011-01", NEW)))
