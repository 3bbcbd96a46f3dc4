"""What is asked of every node: the compiled scan finds what selectolax's own nodes say."""

from __future__ import annotations

import random
import resource

import pytest
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.about import author, marks
from cc_pipeline.documents.html import scan
from cc_pipeline.documents.html.scan_py import Place, ScanLimits, body_text_plainly, collected_plainly, links_plainly
from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.page import Limits

# fmt: off
# ruff: noqa: E501
TOKENS = (
    "<a href=x>", "<a href='#in'>", "<a hidden href=' y' rel=AUTHOR>", "</a>", "<area href=z>", "<img src=i srcset='j 1x, k 2x'>",
    "<img srcset=l>", "<form action=f>", "</form>", "<video src=v poster=p>", "</video>", "<object data=d>", "</object>",
    "<source src=s srcset=t>", "<meta name=n content=c>", "<meta property='og:x y' content=''>", "<title>T </title>", "<title></title>",
    "<base href=b>", "<html lang=en a=1 b=22222 c>", "<script src=s type='application/ld+json '>{}</script>",
    "<script type='application/LD+JSON'>\u6f22</script>", "<style>s</style>", "<svg><style>", "<svg><script>", "<svg><title>",
    "</style>", "</svg>", "<noscript>", "</noscript>", "<iframe src=q>x</iframe>", "<template>", "</template>", "<p class='x byLine'>",
    "<p class=x>", "<b id=the-Author itemprop=name>", "</b>", "<h1 typeof=T>", "</h1>", "<time datetime=1>", "<address rel='nofollow author'>",
    "<i rel=authors>", "<meta http-equiv=Refresh content=1>", "<div itemscope property=p about>", "</div>", "text", " two  words\n", "\xa0",
    "\u3000", "\u2028", "\x1c", "\u6f22\u5b57", "\xe9\xa0", "&nbsp;", "<!-- c -->", "<table><tr><td>", "</table>", "<select><option>",
    "<frameset>", "<math><mi>", "</math>", "<foreignObject>", "<p \xe9=1 \u6f22>", "&#xd800;", "\x00", "<link rel=author href=/a>",
)
# fmt: on
MOST = (ScanLimits(100, 50, 50, 1_000, 10_000), ScanLimits(2, 1, 1, 10, 5), ScanLimits(0, 0, 0, 0, 0))


PLACE: Place = ("http://x/", "x", None, "shown")


def place(href: str) -> Place:
    return (href * 2, None, href, None)


@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_scan_does_what_python_does(seed: int) -> None:
    assert scan.COMPILED, "every machine that runs the tests has a compiler, and the selectolax that is wanted"
    chance = random.Random(seed)
    for _ in range(800):
        markup = "".join(chance.choices(TOKENS, k=chance.randint(1, 50)))
        most = chance.choice(MOST)
        ours, plain = LexborHTMLParser(markup), LexborHTMLParser(markup)
        collected = scan.collected(ours, most, shortened)
        assert collected == collected_plainly(plain, most, shortened), (markup, most)
        for rows in (most.links, 3, 0):
            asked = (lambda value, most: value.split(",")[:most], 7, rows, 4)
            made = scan.links_of(collected.links, {"x": PLACE}, place, None, {}, *asked)
            assert made == links_plainly(collected.links, {"x": PLACE}, place, *asked), (markup, rows)
        for selection in (author._AUTHOR_ELEMENTS, marks._MARKED_ELEMENTS):
            found, expected = scan.selected(ours, selection), plain.css(selection.css)
            assert [way_up(node) for node in found] == [way_up(node) for node in expected], (markup, selection.css)
            for is_spaced in (False, True):
                texts = [[scan.text_of(node, is_spaced=is_spaced) for node in nodes] for nodes in (found, expected)]
                assert texts[0] == texts[1], (markup, is_spaced)
        assert scan.body_text(ours) == body_text_plainly(plain), markup


def shortened(attributes: dict[str, str]) -> dict[str, str]:
    return {name: value[:3] for name, value in list(attributes.items())[:1]}


def way_up(node: scan.Node) -> list[tuple[str | None, dict[str, str | None]]]:
    """The element and those around it."""
    found = []
    current: scan.Node | None = node
    while current is not None and current.attributes is not None and current.tag not in ("-document", None):
        found.append((current.tag if current.tag != "foreignObject" else "foreignobject", current.attributes))
        current = current.parent
    return found


def test_a_node_keeps_its_tree() -> None:
    found = scan.selected(LexborHTMLParser("<p class=byline>by <b>A</b>"), author._AUTHOR_ELEMENTS)
    LexborHTMLParser("<i>other</i>" * 1_000)
    assert [(node.tag, scan.text_of(node)[0], node.parent.tag) for node in found] == [("p", "by A", "body")]


def test_memory_is_given_back() -> None:
    """A page read thousands of times takes no more memory than read a hundred times."""
    page = (
        "<title>t</title><meta name=a content=b><h1 class=author itemprop=x>h</h1>"
        + "<p><a href=x b=c>text</a> text" * 20
    )

    def read(times: int) -> int:
        for _ in range(times):
            parse_html(page, "https://example.com/", Limits(), read_tree=look)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def look(tree: LexborHTMLParser, *_: object) -> None:
        for node in scan.selected(tree, author._AUTHOR_ELEMENTS):
            assert node.parent.attributes is not None and scan.text_of(node)[0] == "h"

    before = read(200)
    assert read(3_000) - before < 4_096


def test_a_text_has_a_space_only_where_an_element_is_shown_apart() -> None:
    """bitextor/warc2text#7: blanks at inline tags split words."""
    markup = "<a href=x><b>W</b>iki<i>pedia</i><br>The<h3>Road</h3>to H<sub>2</sub>O</a>"
    nodes = [*scan.selected(LexborHTMLParser(markup), scan.Selection(("a",), ())), *LexborHTMLParser(markup).css("a")]
    assert [scan.text_of(node)[0] for node in nodes] == ["Wikipedia The Road to H2O"] * 2
    assert [scan.text_of(node, is_spaced=True)[0] for node in nodes] == ["W iki pedia The Road to H 2 O"] * 2


@pytest.mark.parametrize(
    ("bases", "url"),
    [
        ("<base target=_top><base href=''><base href=/d/>", "https://example.com/s/x"),
        ("<svg><base href=/c/></svg><base href=/d/>", "https://example.com/d/x"),
        ("<base href=/d/><base href=/e/>", "https://example.com/d/x"),
    ],
)
def test_the_first_base_of_the_page_with_an_address_counts(bases: str, url: str) -> None:
    assert parse_html(f"{bases}<a href=x>", "https://example.com/s/", Limits()).links[0].url == url
