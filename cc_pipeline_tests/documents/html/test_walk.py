"""The walk over a page: what a browser shows, in all views alike; and that the compiled walk does what Python's does."""

from __future__ import annotations

import random
import resource

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html import walk as walks
from cc_pipeline.documents.html.links import linking
from cc_pipeline.documents.html.marks import Linking, Mark, WalkLimits, WalkOptions
from cc_pipeline.documents.html.urls import browser_resolver
from cc_pipeline.documents.html.walk import walk_compiled, walk_plainly
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.gold import gold_articles
from cc_pipeline_tests.documents.pages import page, read

SHADOW = "<template shadowrootmode={}>in <a href=s>shadow</a></template>"


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("a<main hidden>b</main><article style='color: red; DISPLAY : none !important'>c</article>d", "ad"),
        ("a<p style='visibility:hidden'>b</p><p style='visibility: collapse'>c</p>d", "ad"),
        ("a<p hidden style='display:block'>b</p><p hidden=until-found>c</p><p hidden=hidden>d", "a b c"),
        ("<html hidden><body style='display:none'>a", "a"),
        (
            "a<dialog>b</dialog><div popover>b</div><dialog open>c</dialog><details><summary>d</summary>e</details>",
            "a c d e",
        ),
        ("a<p><b hidden>b</b>c<i style='display:none'>d</i>e", "a ce"),
        ("a<iframe>b</iframe><video>c</video><noframes>d</noframes><template>e</template>f", "a f"),
        (
            "<svg><title>a</title><desc>b</desc><text>c</text></svg><math><mi>d</mi><annotation>e</annotation></math>",
            "cd",
        ),
        (f"<x-y>{SHADOW.format('open')}light</x-y>", "in shadowlight"),
        (f"<article>{SHADOW.format('CLOSED')}{SHADOW.format('open')}</article>", "in shadow"),
        (f"<article>{SHADOW.format('none')}</article><ul>{SHADOW.format('open')}</ul>a", "a"),
    ],
)
def test_all_views_have_what_a_browser_shows(markup: str, shown: str) -> None:
    parsed = parse_page(page(markup), ParseOptions(markdown=True))
    assert parsed.text is not None
    assert parsed.text["text"] == shown
    letters = sorted(shown.replace(" ", ""))
    if "<svg>" not in markup:  # drawings are no content
        assert sorted("".join((parsed.text["main_content"] or "").split())) == letters
        assert [link.text for link in parsed.links] == ["shadow"] * ("shadow" in shown)
        assert set(letters) <= set(parsed.text["main_content_markdown"] or "")


def test_inline_tags_split_no_word() -> None:
    """bitextor/warc2text#7."""
    words = "<b>W</b>iki<i>pedia</i><br>The<h3>Road</h3>to H<sub>2</sub>O"
    parsed = parse_page(page(f"<h2><b>T</b>he</h2><a href=x>{words}</a>"), ParseOptions(markdown=True))
    assert parsed.text is not None
    assert [link.text for link in parsed.links] == ["Wikipedia The Road to H2O"]
    assert [heading["text"] for heading in parsed.metadata["headings"]] == ["The", "Road"]
    assert parsed.text["text"] == "The Wikipedia The Road to H2O"
    document = read(f"<address>By<a>Jane</a><a>Doe {words}</a></address>")
    assert document.page is not None
    mark = document.facts_by_tag["address"][0]
    assert document.page.spaced_text_of(mark, 11) == "By Jane Doe"


@pytest.mark.parametrize("opened", ["<p>", "<div>", "<table><tr><td>", "<a href=y>", "<!-- ", "<select>"])
def test_what_a_noscript_leaves_open_swallows_nothing(opened: str) -> None:
    inside = f"<noscript><img src=i><link rel=canonical href=no><meta name=m>{opened}</noscript>"
    parsed = parse_page(page(f"<head>{inside}<title>t</title></head><p>a{inside}b <a href=x>c</a>"))
    assert parsed.text is not None
    assert parsed.text["text"] == "t ab c"
    assert [link.href for link in parsed.links if link.href != "y"] == ["i", "no", "i", "no", "x"]
    assert len(parsed.metadata["content"]["meta_tags"]) == 2
    assert parsed.metadata["canonical_url"] is None


def test_links_of_drawings_and_pictures() -> None:
    found = parse_page(
        page(
            "<svg><a xlink:href=a>text</a><use href=b xlink:href=c /><image xlink:href=d /><a href=#x>no</a></svg>"
            "<link rel=preload imagesrcset='e 1x, f 2x'><video><track src=g></video><input type=Image src=h><input src=i>"
        )
    ).links
    assert [(link.type, link.attribute, link.href) for link in found] == [
        ("a", "xlink:href", "a"),
        ("use", "href", "b"),
        ("image", "xlink:href", "d"),
        ("link", "imagesrcset", "e"),
        ("link", "imagesrcset", "f"),
        ("track", "src", "g"),
        ("input", "src", "h"),
    ]
    assert found[0].text == "text"


@pytest.mark.parametrize(
    ("bases", "url"),
    [
        ("<base target=_top><base href=''><base href=/d/>", "https://example.com/s/x"),
        ("<svg><base href=/c/ /></svg><base href=/d/>", "https://example.com/d/x"),
        (
            "<svg><foreignObject><div><base href=/c/></div></foreignObject></svg><base href=/d/>",
            "https://example.com/c/x",
        ),
        ("<noscript><base href=/c/></noscript><base href=/d/><base href=/e/>", "https://example.com/d/x"),
    ],
)
def test_the_first_base_of_the_page_with_an_address_counts(bases: str, url: str) -> None:
    assert read(f"{bases}<a href=x>", "https://example.com/s/").links[0].url == url


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>One  <b>two</b>\n\xa0three</p>four", ["One two three", "four"]),
        ("<div>a<p>b</p>c</div>", ["a", "b", "c"]),
        ("one<br>two <br> <br> three<br>", ["one\ntwo", "three"]),
        ("<pre>\n\n  def f():\n\n    pass \n</pre>", ["  def f():\n\n    pass"]),
        ("<pre><div>one</div><div>  two</div></pre>", ["one\n  two"]),
        ("<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>字", ["漢字"]),
        ("<p>a<script>b</script><style>c</style><noscript>d</noscript><template>e</template>f", ["af"]),
        ("<p>a<i hidden>b</i><i style='Display : none'>c</i><i aria-hidden=true>d</i><dialog>e</dialog>f", ["a", "f"]),
        (
            "<h2>a<span class='x mw-editsection'>[<a>edit</a>]</span></h2><i class=editsection>b</i><i class=edit>c",
            ["a", "c"],
        ),
        ("<body style='display:none'><article>shown", ["shown"]),
        ("<x-y><template shadowrootmode=open><p>in</p></template>after</x-y>", ["in", "after"]),
        ("<math><semantics><mi>x</mi><annotation>tex</annotation></semantics></math>", ["x"]),
        ("<select><option>a</select><svg><text>b</text></svg><textarea>c</textarea> ", []),
    ],
)
def test_blocks(markup: str, expected: list[str]) -> None:
    tables = read(markup).tables
    found = [tables.text_of(block) for block in range(len(tables.blocks.start))] if tables else []
    assert found == expected


# fmt: off
# ruff: noqa: E501
TOKENS = (
    "<p>", "</p>", "<div class='postContent x'>", "</div>", "<a href=x>", "</a>", "<b>", "</b>", "<br>", "<br/>", "<pre>",
    "</pre>", "<ul id=nav-Menu>", "<li>", "</ul>", "<table><tr><td>", "<td>", "</table>", "<img>", "<hr>", " ", "  \n", "\n",
    "text", "Two, words.", "7 | \u201cx\u201d", "\u6f22\u5b57\u3002", "\xa0", "\u3000", "R\xc9SUM\xc9", "\x1c", "\U0001f600",
    "<template shadowrootmode=open>", "<template>", "</template>", "<ruby>", "<rt>", "</ruby>", "<svg>", "</svg>", "<math>",
    "<annotation-xml>", "</math>", "<script type=math/tex>x</script>", "<style>s</style>", "<i hidden>", "</i>",
    "<span style='a:b; display: none'>", "</span>", "<dialog>", "<dialog open>", "</dialog>", "<x-y class=AD>", "</x-y>",
    "<h2 role=navigation>", "</h2>", "<i class='x\x1cmw-editsection'>", "<i class='x\x0bmw-editsection\ty'>", "<blockquote>",
    "</blockquote>", "<!-- c -->", "<noscript>", "</noscript>", "<select>", "<option>", "</select>", "<frameset>",
    "<body class=sidebar hidden>", "&#0;", "&#xd800;", "<title>t</title>", "<iframe>x</iframe>", "<figure itemprop=articleBody>",
    "</figure>", "<li class='" + "\xe9" * 300 + "comment'>", "<a href='#in'>", "<a hidden href=' y' rel=AUTHOR>", "<area href=z>",
    "<img src=i srcset='j 1x, k 2x'>", "<img srcset=l>", "<form action=f>", "</form>", "<video src=v poster=p>", "</video>",
    "<object data=d>", "</object>", "<source src=s srcset=t>", "<meta name=n content=c>", "<meta property='og:x y' content=''>",
    "<title>T </title>", "<title></title>", "<base href=b>", "<html lang=en a=1 b=22222 c>",
    "<script src=s type='application/ld+json '>{}</script>", "<script type='application/LD+JSON'>\u6f22</script>", "<svg><style>",
    "<svg><script>", "<svg><title>", "</style>", "<iframe src=q>x</iframe>", "<p class='x byLine'>", "<p class=x>",
    "<b id=the-Author itemprop=name>", "<h1 typeof=T>", "</h1>", "<time datetime=1>", "<address rel='nofollow author'>",
    "<i rel=authors>", "<meta http-equiv=Refresh content=1>", "<div itemscope property=p about>", " two  words\n", "\u2028",
    "\u6f22\u5b57", "\xe9\xa0", "&nbsp;", "<select><option>", "<math><mi>", "<foreignObject>", "<p \xe9=1 \u6f22>", "\x00",
    "<link rel=author href=/a>", "<article><template shadowrootmode=open>", "<p><template shadowrootmode=CLOSED>",
    "<svg><a xlink:href=s href=t>", "<image href=i>", "<use href=#x xlink:href=u>", "<desc>", "<mtext>",
    "<input type=IMAGE src=k>", "<track src=v>", "<link rel=preload imagesrcset='m 1x, n' href=#>",
    "<i style='display:block' hidden>", "<i style='a:b;VISIBILITY: collapse'>", "<i style='display:none;display: inline'>",
    "<i hidden=until-found>", "<noscript><a href=q>x</a><meta name=a></noscript>", "<i aria-hidden=true>",
    "<main aria-hidden=true>", "<video><a href=k>", "<math><annotation-xml><template shadowrootmode=open>", "<i popover>",
    "<i class=eDitsection>", "<i style='dis\x1cplay:none'>", "<i id=q class=postAuthor>", "<i itemref=q itemscope itemprop=z>",
    "<progress>", "<textarea>", "<plaintext>", "<xmp>",
)
# fmt: on


def shortened(attributes: dict[str, str]) -> dict[str, str]:
    return {name: value[:3] for name, value in list(attributes.items())[:1]}


def parse(content: bytes) -> LexborNode | None:
    return LexborHTMLParser(content, scripting=True).root


@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_walk_does_what_python_does(seed: int) -> None:
    assert walks.COMPILED, "every machine that runs the tests has a compiler, and the selectolax that is wanted"
    chance = random.Random(seed)
    for _ in range(800):
        markup = "".join(chance.choices(TOKENS, k=chance.randint(1, 60)))
        root = LexborHTMLParser(markup, scripting=chance.random() < 0.8).root
        few = (
            chance.choice(bounds) for bounds in ((0, 1, 5, 20, 1_000), (1, 3, 10, 1_000), (1, 99), (1, 99), (1, 3, 99))
        )
        limits = WalkLimits(*few, *chance.choice(((99, 999), (1, 5))))
        options = WalkOptions(chance.random() < 0.8, chance.random() < 0.5, shortened, parse, link)
        if root is None:
            continue
        found = walk_compiled(root, limits, options)
        assert found == walk_plainly(root, limits, options), (markup, limits, options)


def link(_: list[Mark]) -> Linking:
    return linking(browser_resolver("https://x.example/y"), 7)


def test_a_word_of_thousands_of_characters_is_counted_alike() -> None:
    root = LexborHTMLParser("<p>" + "1,A|x." * 900 + " y\u2026z!").root
    assert root is not None
    arguments = WalkLimits(1 << 22, 99, 99, 99, 99, 99, 99), WalkOptions(True, False, shortened, parse, link)
    assert walk_compiled(root, *arguments) == walk_plainly(root, *arguments)


@needs_corpus
def test_the_same_of_real_pages() -> None:
    for _, markup, _ in gold_articles()[:8]:
        root = LexborHTMLParser(markup, scripting=True).root
        assert root is not None
        arguments = (
            WalkLimits(1 << 22, 500_000, 20_000, 99, 99, 99, 9_999),
            WalkOptions(True, True, shortened, parse, link),
        )
        assert walk_compiled(root, *arguments) == walk_plainly(root, *arguments)


@pytest.mark.parametrize("markup", ["<div>", "<p>word ", "x<br><br>"])
def test_bounds_hold(markup: str) -> None:
    root = LexborHTMLParser(markup * 5_000 + "x").root
    assert root is not None
    limits = WalkLimits(1_000, 4_000, 0, 0, 0, 0, 0)
    found = walk_compiled(root, limits, WalkOptions(True, False, dict, parse, link))
    assert found.tables is not None and found.tables[-1]
    assert len(found.tables[0]) <= 1_000 and len(found.tables[3]) <= 4_000 * 8


def test_memory_is_given_back() -> None:
    """A page read thousands of times takes no more memory than read a hundred times."""
    markup = (
        "<title>t</title><meta name=a content=b><h1 class=author itemprop=x>h</h1><noscript><img src=x></noscript>"
        + "<p><a href=x b=c>text</a> text" * 20
    )

    def measure(times: int) -> int:
        for _ in range(times):
            read(markup)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = measure(200)
    assert measure(3_000) - before < 4_096
