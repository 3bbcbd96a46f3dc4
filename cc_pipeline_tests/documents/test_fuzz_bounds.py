"""Markup of a grammar of what changes a parser's state: no tree is deeper than it may be, and none has more elements
and attributes than were counted. For ``CC_PIPELINE_FUZZ_SECONDS``, or some hundreds of pages."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html import bounds, tree_builder
from cc_pipeline.documents.html.bounds import scanned
from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.html.tree_builder import build_tree
from cc_pipeline.documents.page import Limits
from cc_pipeline_tests.fuzzing import fuzz

#: Elements of every kind that the tokenizer or the tree builder treats in a way of its own.
NAMES = (
    "a b i font nobr div p li dd dt h1 h2 span x-y form button table caption colgroup col tbody tr td th select option "
    "optgroup textarea input title script style xmp iframe noembed noframes noscript plaintext template frameset frame "
    "html head body object applet marquee svg math foreignObject desc mi mo mn ms mtext annotation-xml mglyph "
    "g path image img br hr ruby rb rt rp rtc pre listing ul ol center details summary meta link base area keygen nav"
).split()
OTHERS = (
    *("<!--", "-->", "--!>", "<!-->", "<!--->", "<!--!>", "<![CDATA[", "]]>", "<!", "<?x", "?>", "</>", "</ x>"),
    *("<!DOCTYPE html>", "<script><!--<script></script>", "<script><!--<script>--></script>", "<input type=hidden>"),
    *("<font color=a>", "<font size=1 face=b>", "<annotation-xml encoding=text/html>", "<div title='", '<a title="'),
    *("'", '"', ">", "<", "/>", "x", " ", "&amp;", "\n", "\x00", "<svg><p><![CDATA[>", "<math><b><![CDATA[>"),
    *("<svg><font color=a><![CDATA[>", "<select><title>", "</select>", "<svg><p><textarea><![CDATA[</textarea>"),
    *('<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 3.2 Final//EN">', "<body a=1 b=2>", "<rt>" * 150, "<svg a b=c/ d/ />"),
    *("<svg><title><![CDATA[>", "<template><col><title></template>", "<b id=1>", "<b id=2>"),
)
#: Elements that the builder opens again in each block, with all of their attributes.
REOPENED = frozenset("a b i font nobr".split())


def _token(chance: random.Random, *, reopened: bool) -> str:
    if chance.random() < 0.3:
        other = chance.choice(OTHERS)
        return other if reopened or not other.startswith(("<a ", "<b ", "<font", "<math><b>", "<svg><font")) else "x"
    name = chance.choice(NAMES)
    if name in REOPENED and not reopened:
        name = "x-z"
    if chance.random() < 0.35:
        return f"</{name}>"
    more = "".join(f" a{number}=1" for number in range(chance.choice((0, 0, 0, 1, 6))))
    return f"<{name}{more}{chance.choice(('', '', '', '/', ' /'))}>"


def generate_markup(chance: random.Random, *, reopened: bool = True) -> str:
    """A prefix that changes the state, then a few tokens many times."""

    def tokens(fewest: int, most: int) -> str:
        return "".join(_token(chance, reopened=reopened) for _ in range(chance.randint(fewest, most)))

    prefix = tokens(0, 6)
    repeated = chance.choice((tokens(1, 5), "<div>", "<x>", "<hr>", "<p b=1 c=2 d=3 e=4 f=5 g=6>"))
    return prefix + repeated * chance.choice((1, 5, 60, 200)) + tokens(0, 4)


class Measured(NamedTuple):
    """The depth of a tree without and with what its templates hold, all attributes, and the most of one element."""

    depth: int
    depth_with_templates: int
    attributes: int
    widest: int


def measure(tree: LexborHTMLParser) -> Measured:
    depth = depth_with_templates = attributes = widest = 0
    waiting: list[tuple[LexborNode, int, bool]] = [(tree.root, 1, False)] if tree.root else []
    while waiting:
        node, level, in_template = waiting.pop()
        if node.is_element_node:
            depth, own = max(depth, 0 if in_template else level), len(node.attributes)
            depth_with_templates = max(depth_with_templates, level)
            attributes, widest = attributes + own, max(widest, own)
        if node.tag == "template":
            # the content itself is no element
            waiting += [(each, level, True) for each in node.template_fragments()]
        child = node.child
        while child is not None:
            waiting.append((child, level + 1, in_template))
            child = child.next
    return Measured(depth, depth_with_templates, attributes, widest)


SEEDS = st.integers(0, 1 << 32)


@fuzz(200, seed=SEEDS, is_fed_in_pieces=st.booleans())
def test_no_tree_is_deeper_or_wider_than_was_allowed(seed: int, is_fed_in_pieces: bool) -> None:
    limits = Limits(depth=12, attributes=4, elements=5_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_FEW_TAGS", 0 if is_fed_in_pieces else 4_096)
        document = parse_html(generate_markup(random.Random(seed)), "http://a/", limits)
    assert document.tree is not None
    seen = measure(document.tree)
    assert seen.depth <= 2 * limits.depth
    # readings outside a ruby nest, and have a bound of their own (``<template>`` and 150 ``<rt>`` did this)
    assert seen.depth_with_templates <= 6 * limits.depth + 4 + bounds._MAX_READINGS
    assert seen.widest <= limits.attributes


@fuzz(200, seed=SEEDS)
def test_no_tag_of_a_tree_was_left_out_of_the_count(seed: int) -> None:
    """A bound on elements just below what a tree has is reached by the scan too."""
    markup = generate_markup(random.Random(seed), reopened=False).encode()
    tree = measure(LexborHTMLParser(markup, scripting=True))
    cuts, *_ = scanned(markup, 256, 10_000, max(0, tree.attributes - 1), 4_000)
    assert not tree.attributes or cuts


@fuzz(200, seed=SEEDS)
def test_a_page_fed_in_pieces_has_the_tree_of_the_whole(seed: int) -> None:
    assert tree_builder.READABLE, "selectolax shows Lexbor's functions on every machine that runs the tests"
    markup = generate_markup(random.Random(seed)).encode()
    flags: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_builder, "_MIN_PIECE", 5)
        built = build_tree(markup, Limits(depth=30), flags)
    assert flags or built.tree.html == LexborHTMLParser(markup, scripting=True).html
