"""The tables of a page: what is in them, and that the compiled walk makes the same as Python's."""

from __future__ import annotations

import random

import pytest
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.html import walk as walks
from cc_pipeline.documents.html.tables import Walk
from cc_pipeline.documents.html.tags import HINT, INSIDE_BIT, NUMBER, TAGS
from cc_pipeline.documents.html.walk import walk
from cc_pipeline.documents.html.walk_py import walked_plainly
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.gold import gold_articles

WHOLE = {"chars": 1 << 22, "elements": 500_000}


def tables(markup: str) -> Walk:
    return walk(LexborHTMLParser(markup).body, **WHOLE)


def texts(markup: str) -> list[str]:
    found = tables(markup)
    return [found.text_of(block) for block in range(len(found.blocks.start))]


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
        ("<body style='display:none'><article hidden>shown", ["shown"]),
        ("<x-y><template shadowrootmode=open><p>in</p></template>after</x-y>", ["in", "after"]),
        ("<math><semantics><mi>x</mi><annotation>tex</annotation></semantics></math>", ["x"]),
        ("<select><option>a</select><svg><text>b</text></svg><textarea>c</textarea> ", []),
    ],
)
def test_blocks(markup: str, expected: list[str]) -> None:
    assert texts(markup) == expected


def test_columns() -> None:
    tree = LexborHTMLParser(
        "<body class=has-sidebar><nav id=topMenu><a href=/x>Go, on.</a></nav>"
        "<ul class='postContent x'><li><p>Yes | <b>No</b> 12</p><img></li></ul>"
    )
    found = walk(tree.body, **WHOLE)
    elements, blocks = found.elements, found.blocks
    assert [TAGS[tag] for tag in elements.tag] == ["body", "nav", "a", "ul", "li", "p", "b", "img"]
    assert elements.parent.tolist() == [-1, 0, 1, 0, 3, 4, 5, 4]
    assert elements.finish.tolist() == [8, 3, 3, 8, 8, 7, 7, 8]
    assert list(zip(elements.first, elements.last, strict=True))[:7] == [
        (0, 2), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (1, 2)
    ]  # fmt: skip
    assert elements.hints[0] == HINT["sidebar"]
    assert elements.above[2] == HINT["nav"]
    assert elements.above[7] == HINT["content"]
    assert elements.inside[2] == INSIDE_BIT["nav"] | INSIDE_BIT["link"]
    assert elements.inside[6] == INSIDE_BIT["list"] | INSIDE_BIT["item"]
    assert found.text == "Go, on.\nYes | No 12"
    assert blocks.element.tolist() == [1, 5]
    assert blocks.kind.tolist() == [0, NUMBER["p"]]
    assert blocks.linked.tolist() == [7, 0]
    assert blocks.strong.tolist() == [0, 3]  # with the space before it
    for name, expected in (
        ("words", [2, 4]),
        ("commas", [1, 0]),
        ("ends", [1, 0]),
        ("signs", [0, 1]),
        ("digits", [0, 2]),
    ):
        assert getattr(blocks, name).tolist() == expected, name
    nodes = {node.mem_id: node.tag for node in tree.css("body, body *")}
    assert [nodes[address] for address in found.address.tolist()] == [TAGS[tag] for tag in elements.tag]


def test_same_path() -> None:
    found = tables("<ul><li class=a><b>x</b><li class=a><b>y</b><li class=b><b>z</b></ul><x-y>1</x-y><x-z>2</x-z>")
    path = {TAGS[tag] + str(row): int(found.path[row]) for row, tag in enumerate(found.elements.tag)}
    assert path["li2"] == path["li4"] != path["li6"]
    assert path["b3"] == path["b5"] != path["b7"]
    assert path["?8"] != path["?9"]


# fmt: off
# ruff: noqa: E501
TOKENS = (
    "<p>", "</p>", "<div class='postContent x'>", "</div>", "<a href=x>", "</a>", "<b>", "</b>", "<br>", "<br>", "<br/>",
    "<pre>", "</pre>", "<ul id=nav-Menu>", "<li>", "</ul>", "<table><tr><td>", "<td>", "</table>", "<img>", "<hr>", " ",
    "  \n", "\n", "text", "Two, words.", "7 | \u201cx\u201d", "\u6f22\u5b57\u3002", "\xa0", "\u3000", "R\xc9SUM\xc9", "\x1c", "\U0001f600",
    "<template shadowrootmode=open>", "<template>", "</template>", "<ruby>", "<rt>", "</ruby>", "<svg>", "</svg>",
    "<math>", "<annotation-xml>", "</math>", "<script type=math/tex>x</script>", "<style>s</style>", "<i hidden>", "</i>",
    "<span style='a:b; display: none'>", "</span>", "<dialog>", "<dialog open>", "</dialog>", "<x-y class=AD>", "</x-y>",
    "<h2 role=navigation>", "</h2>", "<i class='x\x1cmw-editsection'>", "<i class='x\x0bmw-editsection\ty'>", "<blockquote>", "</blockquote>", "<!-- c -->", "<noscript>", "</noscript>",
    "<select>", "<option>", "</select>", "<frameset>", "<body class=sidebar hidden>", "&#0;", "&#xd800;", "<title>t</title>",
    "<iframe>x</iframe>", "<figure itemprop=articleBody>", "</figure>", "<li class='" + "\xe9" * 300 + "comment'>",
)
# fmt: on


@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_walk_does_what_python_does(seed: int) -> None:
    assert walks.COMPILED, "every machine that runs the tests has a compiler, and the selectolax that is wanted"
    chance = random.Random(seed)
    for _ in range(600):
        markup = "".join(chance.choices(TOKENS, k=chance.randint(1, 60)))
        root = LexborHTMLParser(markup).body
        if root is None:
            continue
        bounds = {"chars": chance.choice((0, 1, 5, 20, 1_000)), "elements": chance.choice((1, 3, 10, 1_000))}
        assert walks._compiled(root, **bounds) == walked_plainly(root, **bounds), (markup, bounds)


@needs_corpus
def test_the_same_of_real_pages() -> None:
    for _, page, _ in gold_articles()[:8]:
        root = LexborHTMLParser(page).body
        assert walks._compiled(root, **WHOLE) == walked_plainly(root, **WHOLE)


@pytest.mark.parametrize("markup", ["<div>", "<p>word ", "x<br><br>"])
def test_bounds_hold(markup: str) -> None:
    root = LexborHTMLParser(markup * 5_000 + "x").body
    found = walk(root, chars=1_000, elements=4_000)
    assert len(found.text) <= 1_000
    assert len(found.elements.tag) <= 4_000
    assert found.cut
