"""XHTML sent as XML: elements that end themselves swallow nothing."""

from __future__ import annotations

import pytest

from cc_pipeline.documents.html.tree import as_html
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

XHTML = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head>
<script type="text/javascript" src="a.js"/><title>A &amp; B &eacute;&nbsp;&lt;i&gt;</title><style/>
<script type="text/javascript"><![CDATA[ if (a < b) {} ]]></script>
</head><body><textarea/><a id="top"/><p>One<br/>two</p><iframe src="f"/><div/><p><![CDATA[<b> & more]]></p>
<a href="/x">link</a></body></html>"""


def test_what_ends_itself_swallows_nothing() -> None:
    parsed = parse_page(page(XHTML, mime="application/xhtml+xml"))
    assert parsed.metadata["content"]["title"] == "A & B \u00e9\u00a0<i>"
    assert [(link.type, link.href, link.text) for link in parsed.links] == [
        ("script", "a.js", ""),
        ("iframe", "f", ""),
        ("a", "/x", "link"),
    ]
    assert parsed.text is not None
    assert parsed.text["text"].endswith("One two <b> & more link")
    assert (parsed.text["html_lang"], parsed.metadata["flags"]) == ("en", None)


def test_sent_as_html_it_is_read_as_html() -> None:
    assert parse_page(page(XHTML, mime="text/html")).metadata["content"]["title"] is None


def test_what_is_no_xml_is_read_as_html() -> None:
    assert as_html("<html><body><p><b>One<a id='x'/></p></body></html>") is None
    row = parse_page(page("<title>T</title><p/>x<br>y", mime="application/xhtml+xml")).metadata
    assert row["content"]["title"] == "T"


@pytest.mark.parametrize("broken", [XHTML.replace("<p>One", "<p><b>One"), XHTML[: XHTML.index("</body>")]])
def test_what_ends_itself_swallows_nothing_of_a_broken_page(broken: str) -> None:
    parsed = parse_page(page(broken, mime="application/xhtml+xml"))
    assert parsed.metadata["content"]["title"] == "A & B \u00e9\u00a0<i>"
    assert [link.href for link in parsed.links] == ["a.js", "f", "/x"]
    assert parsed.text is not None
    assert "One two" in parsed.text["text"]


@pytest.mark.parametrize(
    "mime",
    ["application/xml", "text/xml; charset=utf-8", "application/vnd.wap.xhtml+xml", "image/svg+xml", "model/x3d+xml"],
)
def test_xhtml_is_read_as_xml_under_other_types_of_xml(mime: str) -> None:
    parsed = parse_page(page(XHTML, mime=mime))
    assert parsed.metadata["parsed_as"] == "html"
    assert [link.href for link in parsed.links] == ["a.js", "f", "/x"]


def test_entities_of_the_document_are_not_expanded() -> None:
    bomb = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;'>]><html><title/><p>&b;</p></html>"
    assert as_html(bomb) == bomb.replace("<title/>", "<title></title>")


def test_markup_that_both_read_alike_is_left_alone() -> None:
    assert as_html("<html><head><meta name='a'/><link rel='b'/></head><body><br/><p>x</p></body></html>") is None


def test_document_types_that_nothing_ends_are_read_once() -> None:
    """Each was read to the end of the page: minutes of the processor for 4 MB."""
    assert as_html("<br/><i/>" + "<!DOCTYPE" * 440_000) is None
