"""Links of a page: what a browser would fetch or go to, and which of them the 2012 document has."""

from __future__ import annotations

import pytest

from cc_pipeline.documents.document2012.json import metadata_object
from cc_pipeline.documents.html import links as page_links
from cc_pipeline.documents.page import Link
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests.documents.pages import page

MARKUP = """<a href="a.html">a</a><form action="/search" method=get><input name=q></form>
<img src="i.png" alt=x srcset="i-1.png 1x, data:image/png;base64,AA 2x,i-3.png,, /i-4.png 4x">
<video src="v.mp4" poster="v.png"><source src="v.webm" type="video/webm"></video><audio src="a.mp3"></audio>
<picture><source srcset="p.avif 800w" media="(min-width: 1px)"></picture>
<object data="o.swf"></object><embed src="e.swf"><form></form><form action="#x"></form>"""


def found(markup: str) -> list[tuple[str | None, str | None, str | None]]:
    return [(link.type, link.attribute, link.href) for link in parse_page(page(markup)).links]


def test_every_element_that_names_an_address() -> None:
    assert found(MARKUP) == [
        ("a", "href", "a.html"),
        ("form", "action", "/search"),
        ("img", "src", "i.png"),
        ("img", "srcset", "i-1.png"),
        ("img", "srcset", "data:image/png;base64,AA"),
        ("img", "srcset", "i-3.png"),
        ("img", "srcset", "/i-4.png"),
        ("video", "src", "v.mp4"),
        ("video", "poster", "v.png"),
        ("source", "src", "v.webm"),
        ("audio", "src", "a.mp3"),
        ("source", "srcset", "p.avif"),
        ("object", "data", "o.swf"),
        ("embed", "src", "e.swf"),
    ]


@pytest.mark.parametrize("srcset", ["", ",", " , ,", ",,,a,,", "a" + "," * 10_000, ", " * 5_000])
def test_odd_srcsets(srcset: str) -> None:
    hrefs = [href for _, name, href in found(f'<img srcset="{srcset}">') if name == "srcset"]
    assert hrefs == (["a"] if "a" in srcset else [])


def test_a_comma_ends_an_address_and_no_letter_does() -> None:
    assert page_links.split_srcset("a.x, b.x,,c", 9) == ["a.x", "b.x,,c"]


def test_a_srcset_has_no_more_pictures_than_its_bound() -> None:
    assert len(found(f"<img srcset='{'a, ' * 65}'>")) == 64


@pytest.mark.parametrize(
    ("base", "url", "flags"),
    [
        ("https://b.example/".ljust(2_047, "b") + "/", "b/x", None),
        ("https://b.example/".ljust(2_048, "b") + "/", "/dir/x", ["base_unusable"]),
        ("", "/dir/x", None),
        ("mailto:a@b.example", "/dir/x", ["base_unusable"]),
        ("http://[", "/dir/x", ["base_unusable"]),
    ],
)
def test_a_base_counts_up_to_its_bound_if_it_has_a_host(base: str, url: str, flags: list[str] | None) -> None:
    parsed = parse_page(page(f"<base href='{base}'><a href=x>x</a>"))
    assert (parsed.links[0].url or "").endswith(url)
    assert parsed.metadata["flags"] == flags


def test_the_first_base_with_an_address_counts() -> None:
    bases = "<base target=_top><base href='https://b.example/c/'><base href=https://d.example/>"
    assert parse_page(page(f"{bases}<a href=x>x</a>")).links[0].url == "https://b.example/c/x"


def test_a_page_has_as_many_links_as_the_limit_whatever_their_kind() -> None:
    parsed = parse_page(page("<img srcset='a, b, c, d'>" * 10_000))
    assert len(parsed.links) == 20_000


def test_tables_have_all_of_them_and_the_2012_document_its_own() -> None:
    parsed = parse_page(page(MARKUP))
    batches = to_record_batches([parsed])
    rows = batches["page_links"].to_pylist()
    assert [(row["type"], row["attribute"]) for row in rows[:4]] == [
        ("a", "href"),
        ("form", "action"),
        ("img", "src"),
        ("img", "srcset"),
    ]
    assert rows[1]["attributes"] == [("method", "get")]
    assert [row["link_index"] for row in rows] == list(range(14))
    nested = batches["page_metadata"].to_pylist()[0]["content"]["links"]
    document = metadata_object(parsed.metadata, parsed.links)["content"]["links"]
    assert [(link["type"], link["href"]) for link in nested] == [("a", "a.html"), ("img", "i.png")]
    assert [link["type"] for link in document] == ["a", "img"]


def test_hosts_have_the_index_s_form_beside_the_one_that_is_shown() -> None:
    parsed = parse_page(page("<a href='http://www.M\u00fcnchen.de/x'>m</a><a href='/y'>y</a>"))
    first, second = to_record_batches([parsed])["page_links"].to_pylist()
    assert (first["link_host"], first["link_domain"]) == ("www.xn--mnchen-3ya.de", "xn--mnchen-3ya.de")
    assert first["link_host_shown"] == "www.m\u00fcnchen.de"
    assert (first["href"], first["link_url"]) == ("http://www.M\u00fcnchen.de/x", "http://www.xn--mnchen-3ya.de/x")
    assert (second["link_host"], second["link_host_shown"]) == ("www.example.com", None)


def test_links_are_the_same_whatever_pages_were_read_before() -> None:
    hosts = ("http://a.example", "https://1.2.3.4.5", "http://0x7f.1", "http://b.example", "//a.example", "")
    markup = "".join(f"<a href='{host}/{path}'>x</a>" for path in ("x", "y?z", "./w") for host in hosts)

    def links() -> tuple[Link, ...]:
        return parse_page(page(markup)).links

    page_links._ROOTS.clear()
    alone = links()
    assert links() == alone
    page_links._ROOTS.update({str(number): ("", None, None, None) for number in range(page_links._MAX_ROOTS)})
    page_links._ROOTS.pop("http://a.example")
    assert links() == alone
    assert len(page_links._ROOTS) < 10, "those of before make room"


def test_links_made_elsewhere_belong_to_the_document() -> None:
    assert Link("table", "a", "http://a/", None, None, {}).is_document_link
