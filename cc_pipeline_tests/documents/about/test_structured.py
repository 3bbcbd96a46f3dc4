"""Headings and microdata: against the answers that extruct gave, and within bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.documents.about.statements import Facts
from cc_pipeline.documents.html.urls import browser_resolver
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.pages import page, read

EXTRUCT = CORPUS / "html_text_metadata" / "extruct"
BASE = "http://www.example.com/index.html"
MICRODATA = "http://www.example.com/microdata/"
#: Its microdata reader answers differently on purpose: an attribute without value as an object, and properties that
#: ``itemref`` brings in front of those in the item.
ODD = {"SearchAction.001.html", "product-ref.html", "microdata.5.3.html"}


def row(markup: str, **options: Any) -> dict[str, Any]:
    return dict(parse_page(page(markup), ParseOptions(**options)).metadata)


def items(markup: str, base: str = BASE) -> list[dict[str, Any]]:
    document = read(markup, base)
    assert document.page is not None
    return [json.loads(each.value) for each in Facts(document.page, document.resolve, Limits()).structured()]


def test_microdata_is_the_standards_json() -> None:
    markup = """<div itemscope itemtype="https://schema.org/Movie https://schema.org/Product" itemid="/m"
    itemref="more"><h1 itemprop="name">Ava<i>tar</i></h1><a itemprop="url trailer" href="t.html">x</a>
    <img itemprop=image src="/i.png">
    <div itemprop="director" itemscope><span itemprop="name"> James  Cameron </span></div>
    <time itemprop="released" datetime="2009-12-18">then</time><data itemprop=sku value=7>seven</data>
    <meta itemprop="rating" content="5"></div><p id="more"><b itemprop="genre">SF</b></p><b itemprop="loose">no</b>"""
    found = row(markup)["structured"]
    assert [(each["syntax"], each["types"]) for each in found] == [
        ("microdata", ["https://schema.org/Movie", "https://schema.org/Product"])
    ]
    assert json.loads(found[0]["value"]) == {
        "type": ["https://schema.org/Movie", "https://schema.org/Product"],
        "id": "https://www.example.com/m",
        "properties": {
            "name": ["Avatar"],
            "url": ["https://www.example.com/dir/t.html"],
            "trailer": ["https://www.example.com/dir/t.html"],
            "image": ["https://www.example.com/i.png"],
            "director": [{"properties": {"name": ["James Cameron"]}}],
            "released": ["2009-12-18"],
            "sku": ["7"],
            "rating": ["5"],
            "genre": ["SF"],
        },
    }


def test_items_that_refer_to_each_other_end() -> None:
    markup = "<div itemscope id=a itemref='a b' itemprop=x></div><div itemscope id=b itemref='a b' itemprop=y></div>"
    assert isinstance(row(f"<div itemscope>{markup}</div>{markup}")["structured"], list)


def test_opengraph_is_no_item_and_json_ld_stands_first() -> None:
    script = '<script type="application/ld+json">{"@type": "Person", "name": "J"}</script>'
    head = f'<html prefix="og: http://ogp.me/ns#"><head><meta property="og:title" content="x">{script}'
    found = row(f"{head}<body><p itemscope itemtype='http://a/b'><b itemprop=c>d")["structured"]
    assert [(each["syntax"], each["types"]) for each in found] == [
        ("json-ld", ["Person"]),
        ("microdata", ["http://a/b"]),
    ]


def test_headings_in_order_without_scripts() -> None:
    found = row("<h1>One<br>two</h1><p>x</p><h3> Three <script>no()</script></h3><h2></h2><h6>Six</h6>")["headings"]
    assert [(each["level"], each["text"]) for each in found] == [(1, "One two"), (3, "Three"), (6, "Six")]
    assert row("<p>none</p>")["headings"] is None


def nested(tag: str, count: int) -> str:
    return f"<{tag}><div>text " * count


@pytest.mark.parametrize(
    "markup",
    [
        nested("h1", 3_000),
        nested("b itemprop=a", 3_000),
        "<div itemscope itemprop=a>text " * 3_000,
        "<h2>x</h2>" * 600,
        "<b itemprop=a>x</b>" * 30_000,
        "<b itemscope><i itemprop=a>x</i></b>" * 600,
        "<p itemscope><b itemprop=a>" + "x" * 20_000 + "</b></p>",
        '<script type="application/ld+json">{"a": "' + "x" * 600_000 + '"}</script>',
    ],
    ids=range(8),
)
def test_what_is_beyond_a_bound_is_cut_and_flagged(markup: str) -> None:
    parsed = parse_page(page(f"<title>t</title>{markup}"), ParseOptions(main_content=False, text_simhash=False))
    assert "facts_cut" in parsed.metadata["flags"]
    assert parsed.metadata["content"]["title"] == "t"
    size = sum(len(each["value"]) for each in parsed.metadata["structured"] or ())
    assert size <= 512 * 1024
    assert len(parsed.metadata["headings"] or ()) <= 500
    assert to_record_batches([parsed])["page_metadata"].num_rows == 1


def tidy(value: Any) -> Any:
    if isinstance(value, list):
        return tidy(value[0]) if len(value) == 1 else [tidy(each) for each in value]
    if isinstance(value, dict):
        # it gives an item its text as well
        return {name: tidy(each) for name, each in value.items() if name != "value"}
    return " ".join(value.split())


@needs_corpus
def test_microdata_agrees_with_extruct() -> None:
    compared = 0
    for path in sorted(EXTRUCT.glob("*/*.html")):
        answers = path.with_suffix(".json")
        expected = json.loads(answers.read_text()) if answers.is_file() else None
        if not isinstance(expected, list) or not expected or not isinstance(expected[0].get("properties"), dict):
            continue
        if path.name in ODD or path.name.startswith("microformat"):
            continue
        found = items(path.read_text(), _base(path))
        assert tidy(found) == _absolute(tidy(expected), tidy(found)), path.name
        compared += 1
    assert compared >= 14


def _base(path: Path) -> str:
    named = {"microdata.7.1.html": "http://blog.example.com/progress-report", "microdata.object.html": MICRODATA}
    return named.get(path.name, BASE)


def _absolute(expected: Any, ours: Any) -> Any:
    """Some answers have addresses as written: they count as what they mean."""
    if isinstance(expected, str) and isinstance(ours, str) and browser_resolver(BASE)(expected)[0] == ours:
        return ours
    if isinstance(expected, list) and isinstance(ours, list) and len(expected) == len(ours):
        return [_absolute(*pair) for pair in zip(expected, ours, strict=True)]
    if isinstance(expected, dict) and isinstance(ours, dict):
        return {name: _absolute(each, ours.get(name)) for name, each in expected.items()}
    return expected
