"""The report of a target: its figures, strangers' texts in it, its size, and that it needs nothing beside it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extensions.reports import page as writing
from cc_pipeline.extensions.reports.findings import MAX_ROWS, Findings, find_target
from cc_pipeline.extensions.reports.page import render_page, write_report
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.publish.sql import with_moves
from cc_pipeline.settings import Settings
from cc_pipeline_tests.defs.graph import materialize
from cc_pipeline_tests.publish import oracle
from cc_pipeline_tests.publish.conftest import OTHER, SITE, THIRD
from cc_pipeline_tests.world import NEW, OLD

pytestmark = pytest.mark.xdist_group("questions")
#: What a page is made of.
TAGS = """html head meta title style body main header section div p h1 h2 h3 span b i a bdi br small code footer details
    summary table thead tbody tr th td svg g rect line text"""
#: What a title may hold, each with what a page may not become by it.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script src=//evil.example></script>",
    "{} {0} {found} %s",
    "\u202eexe.gpj \ud800\x00\x1b[31m",
    "a" * 100_000,
    "javascript:alert(1)",
    "&lt;b&gt;",
)


_TEXTS = st.lists(st.sampled_from(["a", "b c", "d", "é"])).map("\n\n".join)


@pytest.fixture(scope="module")
def found(asked_home: Settings) -> Findings:
    return write_report(asked_home, SITE)


def texts(page: str, selector: str) -> list[str]:
    return [" ".join(node.text().split()) for node in LexborHTMLParser(page).css(selector)]


def test_its_figures_are_those_of_the_tables(
    asked_home: Settings, found: Findings, in_views: duckdb.DuckDBPyConnection
) -> None:
    page = (asked_home.home / "reports" / f"{SITE}.html").read_text("utf-8")
    captures = [row for row in oracle.rows(in_views, "captures") if row["domain"] == SITE]
    figures = oracle.timeline(captures)
    tiles = dict(zip(texts(page, ".tile span"), texts(page, ".tile b"), strict=True))
    assert tiles["pages"] == str(len({row["url_surtkey"] for row in captures if oracle.counts(row)}))
    assert tiles["captures of them"] == str(sum(one[0] for one in figures.values()))
    assert tiles["of planned records are fetched"] == "100%"
    known = {oracle.key(row): row for row in oracle.rows(in_views, "page_text")}
    changes = list(oracle.changes(captures, known, OLD, NEW).values())
    newest = {row["change"]: row["pages"] for row in found.changes if (row["before"], row["after"]) == (OLD, NEW)}
    assert newest == {kind: changes.count(kind) for kind in set(changes)}
    assert sum(row["captures"] for row in found.statuses) <= sum(not oracle.counts(row) for row in captures)
    [told] = [text for text in texts(page, ".lede") if "can be compared" in text]
    for crawl in (OLD, NEW):
        day = min(row["fetch_time"] for row in captures if row["crawl"] == crawl)
        assert f"{crawl} ({day:%B %Y})" in told, "the date of its captures, not of the crawl's week"
    [counts] = found.changed_domains
    assert counts["changed"] == changes.count("changed")
    assert counts["gone"] + counts["moved"] == changes.count("gone")
    assert {row["feed"] for row in found.advertised} <= {
        feed
        for row in oracle.rows(in_views, "page_metadata")
        for feed in [one["url"] for one in row["feed_links"] or []]
    }
    assert texts(page, "h2") == [
        "Completeness",
        "Captures over time",
        "What changed",
        "The front page, version by version",
        "Languages",
        "Link neighbours",
        "Feeds",
        "Pages seen most",
        "Answers that are no pages",
    ]


def test_a_set_is_its_members_and_nothing_else(
    asked_home: Settings, in_views: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    found = write_report(asked_home, "set-both", tmp_path / "both.html")
    captures = [row for row in oracle.rows(in_views, "captures") if row["domain"] in (OTHER, THIRD)]
    counted = {row["crawl"]: (row["captures"], row["pages"], row["new_pages"]) for row in found.crawls}
    assert counted == {crawl: figures[:3] for crawl, figures in oracle.timeline(captures).items()}
    assert {row["member"] for row in found.members} == {OTHER, THIRD}
    assert {row["domain"] for row in found.links["in"]} & {OTHER, THIRD} == set()
    page = (tmp_path / "both.html").read_text("utf-8")
    assert "Members of the set" in texts(page, "h2")
    assert texts(page, "h1") == ["both"]
    assert [one.partition(":")[0] for one in texts(page, "summary")[2:4]] == ["By member", "In words"]
    assert {row["domain"] for row in found.changed_domains} == {OTHER, THIRD}
    between = in_views.execute(f"SELECT url, before_text, after_text FROM changes_between('{OLD}', '{NEW}')").fetchall()
    assert {row["url"] for row in found.changed_pages} <= {url for url, *_ in between}
    differing = [line for line in texts(page, ".was, .is") if line[0] in "+-"]
    both = " ".join(" ".join(f"{before} {after}".split()) for _, before, after in between)
    assert differing and all(line[2:100] in both for line in differing)


@given(_TEXTS, _TEXTS)
@settings(max_examples=100)
def test_what_differs_makes_one_text_the_other(before: str, after: str) -> None:
    lines = list(writing.paragraphs_between(before, after))
    gone, come = (Counter(line[2:] for line in lines if line[0] == sign) for sign in "-+")
    old, new = (Counter(text.split("\n\n") if text else []) for text in (before, after))
    assert (old - gone) + come == new
    assert bool(lines) == (before != after)


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


def test_what_became_of_pages_is_told_of_all_domains(
    asked_home: Settings, found: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    [counts] = found.changed_domains
    assert found.became == {kind: counts[kind] for kind in found.became} != {}
    many = MAX_ROWS + 3
    none = ", ".join(f"NULL AS {name}" for name in ("likeness", "before_title", "after_title", "before_digest"))
    query = f"""SELECT 'new' AS change, 'd' || i AS domain, i::VARCHAR AS url, url AS url_surtkey, {none},
        NULL::TIMESTAMPTZ AS before_time, NULL::TIMESTAMPTZ AS after_time, url AS after_digest, NULL AS before_text,
        url AS after_text FROM range({many}) r(i)"""
    monkeypatch.setattr("cc_pipeline.publish.sql.changes_between", lambda *_: query)
    with open_bounded(asked_home) as connection:
        told = find_target(connection, SITE)
    assert told.became["new"] == told.totals["changed_pages"] == told.totals["changed_domains"] == many
    assert sum(told.became.values()) == many
    assert len(told.changed_domains) == MAX_ROWS
    [said] = [text for text in texts(render_page(told), ".lede") if "can be compared" in text]
    assert f" {many} came" in said


def test_long_changes_are_folded_to_their_first_paragraphs(found: Findings) -> None:
    row = {**found.changed_pages[0], "change": "changed", "before_text": ""}
    row["after_text"] = "\n\n".join(f"paragraph {number}" for number in range(40))
    tree = LexborHTMLParser(render_page(replace(found, changed_pages=[row])))
    folded = [node.text() for node in tree.css("td details .is, td details .was")]
    shown = [node.text() for node in tree.css(".is, .was")]
    assert len(shown) - len(folded) == 3
    assert (len(shown), folded[-1].strip()) == (31, "… and more")


def test_nothing_that_strangers_wrote_becomes_markup(found: Findings) -> None:
    for text in HOSTILE:
        page = render_page(spoilt(found, text))
        page.encode("utf-8")
        tree = LexborHTMLParser(page)
        allowed = set(TAGS.split())
        nodes = [node for node in tree.root.traverse() if node.tag and node.tag[0] not in "-!"]
        assert {node.tag for node in nodes} <= allowed
        attributes = [(node.tag, name, value or "") for node in nodes for name, value in node.attributes.items()]
        assert [
            one for one in attributes if one[1].startswith("on") or one[1] in ("src", "srcset", "data", "action")
        ] == []
        links = [value for tag, name, value in attributes if name == "href"]
        assert all(value.startswith(("http://", "https://")) for value in links)
        assert "\x00" not in page
        assert "\x1b" not in page
        assert len(page) < 200_000, "a text is cut"
    assert "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>" in render_page(spoilt(found, HOSTILE[0]))


def spoilt(found: Findings, text: str) -> Findings:
    """The same findings with a stranger's text wherever a page could put one."""

    def row(given: dict[str, Any]) -> dict[str, Any]:
        kept = ("crawl", "before", "after", "change", "outcome", "domain", "type")
        return {name: text if isinstance(value, str) and name not in kept else value for name, value in given.items()}

    changed: dict[str, Any] = {"definition": text, "front": f"https://{text}"}
    for each in fields(found):
        value = getattr(found, each.name)
        if isinstance(value, list):
            changed[each.name] = [row(one) for one in value]
    more = {"outcome": "lost", "reason": "not_found", "captures": 1, "url": text, "detail": text}
    changed["reasons"] = [more]
    changed["links"] = {name: [{**one, "domain": text} for one in rows] for name, rows in found.links.items()}
    changed["members"] = [{"member": text, "captures": 1, "crawls": 1}]
    return replace(found, **changed)


def test_it_shows_what_robots_were_asked(found: Findings) -> None:
    heading = "What robots were asked"
    assert heading not in render_page(found), "nobody read a robots.txt there"
    moment = datetime(2024, 5, 18, tzinfo=UTC)
    row = {"scheme": "https", "host": SITE, "port": 443, "first_seen": moment, "last_seen": moment, "captures": 3}
    said = {"state": "read", "access": "allow", "search": "unknown", "ai_input": "disallow", "train": "disallow"}
    page = render_page(replace(found, consent=[{**row, **said, "agents_shut_out": ["GPTBot"]}]))
    assert heading in page and "GPTBot" in page and f"<bdi>https://{SITE}</bdi></td>" in page


def test_it_needs_nothing_beside_it(asked_home: Settings, found: Findings) -> None:
    page = (asked_home.home / "reports" / f"{SITE}.html").read_text("utf-8")
    [policy] = LexborHTMLParser(page).css("meta[http-equiv]")
    assert (policy.attributes["content"] or "").startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert re.findall(r"<(?:script|link|img|iframe|object|embed|base)\b", page) == []
    assert re.findall(r"url\(|@import|@font-face", page) == []
    for media in ("prefers-color-scheme:dark", "@media print"):
        assert media in page


def test_what_cannot_be_written_is_said(asked_home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserInputError, match=r"cc\.duckdb has no rows of 'nobody\.example': .* To run it"):
        write_report(asked_home, "nobody.example")
    with pytest.raises(EnvironmentFault, match="does not exist yet"):
        write_report(replace(asked_home, home=tmp_path / "empty"), SITE)


def test_the_asset_writes_a_page_for_each_target(asked_home: Settings) -> None:
    page = asked_home.home / "reports" / "set-both.html"
    page.unlink(missing_ok=True)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("target", ["set-both"])
        done = materialize(instance, asked_home, "set-both", assets=["report"])
    assert done.success
    assert page.is_file()
