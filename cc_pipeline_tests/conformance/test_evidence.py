"""The order of evidence that docs/documents.md tells of, row by row: of a page with all that a table names from a row
on, that row decides. Types, charsets and bases have vectors (``types.py``, ``charsets.py``, ``addresses.py``)."""

from __future__ import annotations

import pytest

from cc_pipeline_tests.conformance.responses import READERS, Response, answer, observe

_JSON_LD = "<script type='application/ld+json'>{{'@type':'Article',{}}}</script>"


def _json_ld(members: str) -> str:
    return _JSON_LD.format(members).replace("{'", '{"').replace("':'", '":"').replace("','", '","').replace("'}", '"}')


#: What a row of a table puts into a page, and what the page says where nothing stands above it.
_TITLES = [
    (_json_ld("'headline':'a','name':'b'"), "a"),
    (_json_ld("'name':'b'"), "b"),
    ("<meta name='DC.title' content='c'>", "c"),
    ("<meta property='og:title' content='d'>", "d"),
    ("<meta name='twitter:title' content='e'>", "e"),
    ("<title>The bridge at noon | Site</title>", "The bridge at noon"),
]
_DATES = [
    (_json_ld("'datePublished':'2024-01-01'"), "2024-01-01"),
    ("<meta property='article:published_time' content='2024-01-02'>", "2024-01-02"),
    ("<meta name='dc.date' content='2024-01-03'>", "2024-01-03"),
    (
        "<div itemscope itemtype='https://schema.org/Article'>"
        "<meta itemprop='datePublished' content='2024-01-04'></div>",
        "2024-01-04",
    ),
    ("<time class='published' datetime='2024-01-06'>x</time>", "2024-01-06"),
    ("<h1>The bridge</h1><time datetime='2024-01-07'>x</time>", "2024-01-07"),
]
_CANONICAL = [("<link rel='canonical' href='/a'>", "https://www.example.com/a"), ("", "https://www.example.com/b")]


def _page(*parts: str) -> dict[str, object]:
    block = answer("".join(parts), "text/html; charset=utf-8", 'Link: </b>; rel="canonical"')
    return observe(READERS["a stored member"](Response(block)))


@pytest.mark.parametrize(("name", "rows"), [("title", _TITLES), ("published", _DATES), ("canonical", _CANONICAL)])
def test_the_first_that_is_there_decides(name: str, rows: list[tuple[str, str]]) -> None:
    for at, (_, right) in enumerate(rows):
        # the first behind all others, so that it is not by their order in the page; a page has one article
        behind = [part for part, _ in reversed(rows[at + 1 :]) if "ld+json" not in part]
        found = _page(*behind, rows[at][0])[name]
        assert str(found).removesuffix(" 00:00:00+00:00") == right, rows[at]
