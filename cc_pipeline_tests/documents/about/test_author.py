"""Who wrote a page: names, out of what pages have for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cc_pipeline.documents.about.author import byline_names
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page


def who(head: str = "", body: str = "") -> tuple[str | None, str | None]:
    found = parse_page(page(f"<html><head><title>t</title>{head}</head><body><h1>A heading</h1>{body}")).metadata
    return found["author"], found["author_from"]


def ld(author: Any, **more: Any) -> str:
    return f'<script type="application/ld+json">{json.dumps({"@type": "Article", "author": author, **more})}</script>'


SITE = '<meta property="og:site_name" content="The Site">'


@pytest.mark.parametrize(
    ("names", "source", "head", "body"),
    [
        ("Jane Doe", "json-ld", ld("Jane Doe"), ""),
        ("Jane Doe, John Roe", "json-ld", ld([{"@type": "Person", "name": "Jane Doe"}, "John Roe", "Jane Doe"]), ""),
        ("Kevin O'Connor", "json-ld", ld("By Kevin O&#039;Connor"), ""),
        ("Jane Doe", "json-ld", ld({"name": "<a href='/jane'>Jane Doe</a>"}), ""),
        ("Jane Doe", "meta", ld({}) + '<meta name="author" content="By Jane Doe">', ""),
        ("Jane Doe", "meta", ld("https://example.com/jane") + '<meta name="parsely-author" content="Jane Doe">', ""),
        (
            "Jane Doe, John Roe",
            "meta",
            '<meta name=citation_author content="Jane Doe"><meta name=citation_author content="John Roe">',
            "",
        ),
        (
            "Jane Doe",
            "meta",
            '<meta property="article:author" content="https://fb.com/jane"><meta name="byl" content="Jane Doe">',
            "",
        ),
        ("Jane Doe", "open-graph", '<meta property="article:author" content="Jane Doe">', ""),
        (
            "Jane Doe",
            "microdata",
            "",
            '<div itemscope itemtype="http://a.b/Article"><p itemprop=author itemscope><b itemprop=name>Jane Doe</b>',
        ),
        ("Jane Doe", "microdata", "", "<span itemprop=author>Jane Doe</span>"),
        ("Jane Doe", "rel-author", "", '<p>By <a rel="author" href="/jane">Jane Doe</a> on Monday</p>'),
        (
            "Jane Doe, John Roe",
            "rel-author",
            "",
            "<a rel=author href=j>Jane Doe</a> and <a rel=author href=r>John Roe</a>",
        ),
        ("Jane Doe", "byline", "", '<p class="article-byline">By Jane Doe<br>March 5, 2024</p>'),
        ("Jane Doe", "byline", SITE + '<meta name="author" content="The Site">', '<p class="byline">By Jane Doe</p>'),
        ("The Site", "meta", SITE + '<meta name="author" content="The Site">', "<p>Nobody</p>"),
        ("Jane Doe", "byline", "", '<div class="widget author"><p class="name author">by Jane Doe</p></div>'),
        (None, None, "", '<div class="widget"><p class="author">by Jane Doe</p></div>'),
        (None, None, "", "<p>By Nobody Marked</p>"),
        (None, None, "", '<div id="comments"><p class="comment-author">Some Reader</p></div>'),
        (None, None, "", '<ul class="related"><li><span class="author">Other Writer</span></ul>'),
        (None, None, '<meta name="author" content="https://example.com/"><meta name="author" content=" - ">', ""),
    ],
)
def test_author(names: str | None, source: str | None, head: str, body: str) -> None:
    assert who(head, body) == (names, source)


def test_references_within_json_ld_are_followed() -> None:
    graph = [
        {"@type": "Article", "author": {"@id": "#jane"}},
        {"@type": "Person", "@id": "#jane", "name": "Jane Doe"},
    ]
    assert who(f'<script type="application/ld+json">{json.dumps({"@graph": graph})}</script>') == (
        "Jane Doe",
        "json-ld",
    )
    circle = {"@graph": [{"@type": "Article", "@id": "#a", "author": {"@id": "#a"}}]}
    assert who(f'<script type="application/ld+json">{json.dumps(circle)}</script>') == (None, None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("By Jane Doe", "Jane Doe"),
        ("by Jane Doe and John Roe", "Jane Doe, John Roe"),
        ("By JANE DOE, Staff Writer", "JANE DOE"),
        ("Jane Doe | March 5, 2024", "Jane Doe"),
        ("Jane Doe March 5, 2024", "Jane Doe"),
        ("Jane Doe Monday, March 5", "Jane Doe"),
        ("Posted by jane on 5 March", "jane"),
        ("Von Carolina von Canal", "Carolina von Canal"),
        ("Автор: Лида Буслаева", "Лида Буслаева"),
        ("Author: Ludwig van der Rohe @ludwig", "Ludwig van der Rohe"),
        ("jane@example.com", None),
        ("Share this article with all of your many friends today", None),
        ("Here is a look Author", None),
        ("Admin", None),
        ("Username", None),
        ("12 comments", None),
        ("By", None),
        ("", None),
    ],
)
def test_names_in_bylines(text: str, names: str | None) -> None:
    assert byline_names(text) == names
