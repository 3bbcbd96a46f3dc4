"""What goes from a page before a tree is made of it: so little that no page costs much, and no text or link with it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cc_pipeline.documents.html import bounds, tree, tree_builder
from cc_pipeline.documents.html.bounds import bounded, scanned, scanned_plainly
from cc_pipeline.documents.html.marks import WalkedPage
from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.html.walk import walk_compiled, walk_plainly
from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests import fuzzing
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_fuzz_bounds import generate_markup, measure

LIMITS = Limits()
OPTIONS = ParseOptions(limits=Limits(elements=60_000), markdown=True)


def numbered(form: str, many: int) -> str:
    return "".join(form % number for number in range(many))


def cut(markup: str, **limits: int) -> tuple[str, set[str]]:
    flags: set[str] = set()
    found = bounded(markup.encode(), Limits(**limits), flags)
    return found.markup.decode(), flags


@pytest.mark.parametrize(
    ("markup", "limits", "left", "flags"),
    [
        ("<a b c=1 d='>' e>x</a>", {"attributes": 2}, "<a b c=1 >x</a>", {"attributes_cut"}),
        ("<body a=1 b=2><body c=3>x", {"attributes": 2}, "<body a=1 b=2><body >x", {"attributes_cut"}),
        ("<div>1<div>2</div>3<p>4</p></div>5", {"depth": 1}, "<div>1 2 3<p>4</p></div>5", {"nesting_cut"}),
        ("w<b>o<i>r</i>d</b>", {"depth": 1}, "w<b>ord</b>", {"nesting_cut"}),
        ("<p>1<p>2<p>3", {"elements": 2}, "<p>1<p>2", {"elements_cut"}),
        ("<select><option>1<option>2</select>", {"options": 1}, "<select><option>1 2</select>", {"elements_cut"}),
        ("<div><div></div></div>" * 9, {"depth": 2}, "<div><div></div></div>" * 9, set()),
        ("<!-- <div><div> --><div>1</div>", {"depth": 1}, "<!-- <div><div> --><div>1</div>", set()),
        ("<script>'<div><div>'</script>x", {"depth": 1}, "<script>'<div><div>'</script>x", set()),
        ("<svg><g/><g/><g/></svg>", {"depth": 2}, "<svg><g/><g/><g/></svg>", set()),
        ("<li><a href=1>1<li><a href=2>2", {"depth": 1}, "<li><a href=1>1<li><a href=2>2", set()),
        ("</x>" * 9 + "<div>1", {"depth": 1}, "</x>" * 9 + "<div>1", set()),
        ("<rt>" * 257 + "1", {}, "<rt>" * 256 + " 1", {"nesting_cut"}),
        ("<ruby>x<rt>1</ruby>" * 300 + "<rt>2</rt>" * 300, {}, "<ruby>x<rt>1</ruby>" * 300 + "<rt>2</rt>" * 300, set()),
    ],
)
def test_what_is_taken_out(markup: str, limits: dict[str, int], left: str, flags: set[str]) -> None:
    assert cut(markup, **limits) == (left, flags)


def test_a_page_within_its_bounds_is_the_same_object() -> None:
    markup = b"<div class=x>" * 500 + b"text" + b"</div>" * 500
    assert bounded(markup, LIMITS, set()).markup is markup


#: Pages of a few hundred kilobytes that took a tree builder or an extractor minutes, or gigabytes.
HOSTILE: dict[str, Callable[[], str]] = {
    "attributes of one tag": lambda: "<a " + numbered("a%d=1 ", 40_000) + " href=x>link</a>",
    "attributes of the body": lambda: numbered("<body a%d=1>", 20_000),
    "attributes of the root": lambda: numbered("<html a%d=1>", 20_000),
    "depth": lambda: "<div>" * 40_000,
    "many at great depth": lambda: "<div>" * 9_999 + "<p>x</p>" * 30_000,
    "formatting begun again in each block": lambda: numbered("<b id=%d>", 5_000) + "<p>x" * 50_000,
    "formatting left open": lambda: numbered("<p><font color=%d>x", 20_000),
    "formatting ended at depth": lambda: "<b>" + "<div>" * 5_000 + "</b><b>" * 30_000,
    "readings without a ruby": lambda: "]]><rt>" * 60_000,
    "options": lambda: "<select>" + "<option>x" * 60_000,
    "tags": lambda: "<hr>" * 70_000,
    "meta tags": lambda: numbered("<meta name=a%d content=b>", 30_000),
    "links around links": lambda: numbered("<object><a href=%d>", 3_000) + "x " * 100_000,
    "a base as long as a page": lambda: f"<base href=http://a/{'b/' * 100_000}>" + "<a href=x>y</a>" * 20_000,
    "names of attributes": lambda: numbered("<a n%d=1></a><p>", 80_000),
    "names of tags": lambda: numbered("<x%d/><br>", 80_000),
    "half a tag": lambda: "<a " + "b" * 300_000,
    "meta tags that nothing ends": lambda: "<p>x</p>" * 600 + '<meta charset="' * 60_000,
    "tables": lambda: "<table><tr><td>a<td colspan=999 rowspan=999>b</table>" * 10_000,
    "blocks of all kinds": lambda: (
        "<ul><li>a<ul><li>b</ul></ul><pre>\n\n</pre><dl><dt>a<dd>b</dl><blockquote>a" * 5_000
    ),
    "a title that nothing ends": lambda: "<title>" + "a - b " * 50_000 + "|",
}


#: The flags of those that lose something.
CUTS = {
    "attributes of one tag": "attributes_cut",
    "depth": "nesting_cut",
    "formatting left open": "nesting_cut",
    "many at great depth": "main_content_left_out",
    "options": "elements_cut",
    "tags": "elements_cut",
    "meta tags": "meta_cut",
    "links around links": "text_cut",
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_hostile_pages_become_rows_that_say_what_was_cut(shape: str) -> None:
    """Without the bounds each of these takes minutes or gigabytes, or was a row without title, text and links."""
    hostile = page("<title>T</title><a href=first>first</a> some text" + HOSTILE[shape]())
    with fuzzing.bounded():
        parsed = parse_page(hostile, OPTIONS)
    assert parsed.metadata["disposition"] == "SUCCESS"
    assert parsed.metadata["content"]["title"] == "T"
    assert parsed.links[0].url == "https://www.example.com/dir/first"
    assert parsed.text is not None
    assert parsed.text["text"].startswith("T first some text")
    assert shape not in CUTS or CUTS[shape] in parsed.metadata["flags"]


#: Ends that close nothing, and elements that leave the stack of open elements and stay ancestors.
UNCLOSED = ("<span><p></span></p>", "<div><object></div></object>", "<svg><a>", "<optgroup>")
MISNESTED = ("<form><div></form>", "<select><desc><select><nobr><a><b>", "<a><math><mi><a>")


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize("unit", [*UNCLOSED, *MISNESTED])
def test_no_tree_is_deeper_than_twice_the_bound(unit: str, is_readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_readable:
        monkeypatch.setattr(tree_builder, "_lexbor", None)
    markup = "<title>T</title><p>first" + unit * 3_000 + "<p>last"
    document = parse_html(markup, "http://a/", LIMITS)
    assert document.flags == {"nesting_cut"}
    assert document.tree is not None
    assert 500 < measure(document.tree).depth <= 2 * LIMITS.depth
    assert document.title == "T"
    assert document.body_text.split() == ["first", "last"]


def test_a_tree_too_deep_is_cut_where_it_becomes_so() -> None:
    """Links before that place stay links, and what follows keeps its text."""
    unit = "<form><div><a href=l>x</a></form>"
    document = parse_html(unit * 510 + "tail", "http://a/", LIMITS)
    assert not document.flags
    assert len(document.links) == 510
    document = parse_html(unit * 600 + "tail", "http://a/", LIMITS)
    assert document.flags == {"nesting_cut"}
    assert len(document.links) == 510
    assert document.body_text.split() == ["x"] * 600 + ["tail"]


@pytest.mark.parametrize("walk", [walk_compiled, walk_plainly])
def test_a_tree_too_deep_keeps_its_scripts(walk: Callable[..., WalkedPage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "walk", walk)
    described = '<script type="application/ld+json">{"a": 1}</script><p>text'
    document = parse_html(described + "<form><div></form>" * 1_100, "http://a/", LIMITS)
    assert document.flags == {"nesting_cut"}
    assert document.json_ld == ['{"a": 1}']


@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_scan_does_what_python_does(seed: int) -> None:
    assert bounds.COMPILED, "every machine that runs the tests has a compiler"
    chance = random.Random(seed)
    for _ in range(400):
        markup = generate_markup(chance).encode()
        limits = (chance.randint(0, 4), chance.randint(1, 5), chance.choice((5, 10, 30, 1_000)), chance.randint(0, 3))
        assert scanned(markup, *limits) == scanned_plainly(markup, *limits), (markup, limits)


@pytest.mark.parametrize("form", ["<p a%d=1></p>", "<x%d>", "</y%d>", "<P B%d c=2 B%d c>"])
def test_names_cost_the_more_the_more_there_are(form: str) -> None:
    many = [form.replace("%d", f"{number // 2}") for number in range(8_000)]
    markup = "".join(many).encode()
    for elements in (16_000, 20_000, 24_000, 40_000):
        found = scanned(markup, 256, 512, elements, 4_000)
        assert found == scanned_plainly(markup, 256, 512, elements, 4_000)
    for names, flags in ((10_000, set()), (40_000, {"elements_cut"})):
        assert cut("".join(form.replace("%d", f"{number}") for number in range(names)), depth=50_000)[1] == flags
