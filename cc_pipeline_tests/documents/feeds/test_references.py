"""Ampersands of addresses that nobody escaped, in feeds and sitemaps."""

from __future__ import annotations

from html.entities import html5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.feeds.atom import absolutize
from cc_pipeline.documents.feeds.xml import parse_xml
from cc_pipeline.documents.page import Limits

NAMES = st.sampled_from(sorted({name.removesuffix(";") for name in html5}))


@given(st.lists(st.tuples(NAMES, st.from_regex(r"[A-Za-z0-9=][A-Za-z0-9]*", fullmatch=True)), min_size=1))
def test_parameters_are_no_references(parameters: list[tuple[str, str]]) -> None:
    address = "https://a.example/?x" + "".join(f"&{name}={value}" for name, value in parameters)
    root, well_formed, _ = parse_xml(f'<rss a="{address}">{address}</rss>', Limits())
    assert root is not None
    assert (root.text, root.get("a"), well_formed) == (address, address, False)


@given(st.sampled_from(sorted(name for name in html5 if name.endswith(";"))))
def test_names_with_a_semicolon_are_references(name: str) -> None:
    root, well_formed, _ = parse_xml(f"<rss>a&{name}=b</rss>", Limits())
    assert root is not None
    assert (root.text, well_formed) == (f"a{html5[name]}=b", True)


@pytest.mark.parametrize(
    ("written", "text", "well_formed"),
    [
        ("A &copy B", "A © B", False),
        ("A &order B", "A &order B", False),
        ("A & B", "A & B", False),
        ("&nosuch;", "&nosuch;", False),
        ("&#65 B", "A B", False),
        ("&#0;", "\ufffd", False),
        ("a&#xD800;b&#x110000;", "a\ufffdb\ufffd", False),
        ("&#65;&nbsp;&amp;", "A\xa0&", True),
        ("<![CDATA[?a=1&order=2]]>", "?a=1&order=2", True),
        ("A<!-- R & D -->", "A", True),
    ],
)
def test_repaired_references_are_told(written: str, text: str, well_formed: bool) -> None:
    root, clean, _ = parse_xml(f"<rss>{written}</rss>", Limits())
    assert root is not None
    assert (root.text, clean) == (text, well_formed)


def test_relative_addresses_of_bodies_stay_whole() -> None:
    markup = '<a href="/view?id=5&order=desc&copy=1&region=eu&amp;b=2">x</a>'
    assert absolutize(markup, "https://a.example/feed") == (
        '<a href="https://a.example/view?id=5&amp;order=desc&amp;copy=1&amp;region=eu&amp;b=2">x</a>'
    )
