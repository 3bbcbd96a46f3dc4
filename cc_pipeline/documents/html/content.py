"""The main content of a page, without menus and footers: its text, on request as Markdown, and the extractor's name. A
small model removes the boilerplate that the extractor left."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from math import log1p
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.html.content_selection import Content, Opinion, content_of, match_text
from cc_pipeline.documents.html.markdown import Markdown
from cc_pipeline.documents.html.markdown import markdown as markdown_of
from cc_pipeline.documents.html.model import likelihoods
from cc_pipeline.documents.html.urls import Resolved, browser_resolver
from cc_pipeline.documents.html.walk import walk
from cc_pipeline.documents.page import Limits

#: One tag of resiliparse's minimal markup: quotes occur only in attributes there, text has them escaped.
_TAG = re.compile(r'<(?:[^<>"]++|"[^"]*+")*+>')
_KIND = re.compile(r"\s*<(p|h[1-6]|li|pre)\b")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f\"\u201d\u2019\u00bb')]:;\u0964")
_SIGNS = ("|", "\u00a9", "\u2022", "\u00bb")
#: Characters outside links from which a block counts as prose; the second if no block has as many.
_PROSE = 60
_PROSE_LESS = 25
#: A page of more blocks is no article, and all of it is kept.
_MAX_BLOCKS = 5_000
#: Blocks of a greater likelihood are kept.
_THRESHOLD = 0.35
#: If a smaller share of the text would be kept, the model does not fit the page, and all of it is kept.
_MIN_KEPT_SHARE = 0.5
#: So many headlines that are links, each followed by a kept text, make a list of articles: all of it is kept.
_TEASERS = 3
#: Every feature of a block and its weight, fitted on the gold articles (docs/documents.md).
WEIGHTS: dict[str, float] = {
    "bias": 0.20,
    "paragraph": 1.13,
    "headline": -2.10,
    "heading": -0.56,
    "list_item": 2.33,
    "length": 0.13,
    "link_share": -1.01,
    "ends_a_sentence": 1.78,
    "before_prose": -1.71,
    "before_headline": -3.31,
    "repeated": -1.16,
    "bare_among_paragraphs": -3.38,
    "item_among_paragraphs": -2.53,
    "after_prose": 1.58,
    "length_before": -0.56,
    "link_share_before": -0.81,
    "length_after": 1.72,
    "link_share_after": -1.54,
    "paragraph_before_prose": 1.97,
    "short_sentence": -1.65,
    "several_links": -1.58,
    "signs": -1.16,
    "near_the_end": -1.34,
}

_WEIGHTS = np.array(list(WEIGHTS.values()))

Extractor = Literal["fast", "auto", "quality"]

#: ``auto`` uses only the fast extractor for pages of more characters: trafilatura needs a second for each ten megabytes
#: of plain markup, and far longer for unusual markup.
_AUTO_CHARS = 2_000_000
_LIMITS = Limits()
_NO_BASE = browser_resolver("")
_T = TypeVar("_T")


class Block(NamedTuple):
    """A line of the main content: ``kind`` is its tag (empty outside of paragraphs, headings and lists), ``linked`` the
    characters of ``text`` in links, ``links`` the number of links."""

    kind: str
    text: str
    linked: int
    links: int


def minimal_markup(markup: str) -> str:
    """Returns the main content by resiliparse, with paragraphs, headings, lists and links as tags."""
    return extract_plain_text(
        markup, "minimal_html", main_content=True, alt_texts=False, links=True, comments=False, post_meta=False
    )


def blocks_of(minimal: str) -> list[Block]:
    """Returns the lines with text in the markup of ``minimal_markup``."""
    blocks: list[Block] = []
    append, as_block = blocks.append, tuple.__new__  # a third of the time of Block(...)
    inside = ""
    for line in minimal.split("\n"):
        if not line or line.isspace():
            continue
        start = _KIND.match(line)
        kind = start.group(1) if start else inside
        text, linked, links = line, 0, 0
        if "<" in line:
            if kind in ("p", "li", "pre"):
                inside = "" if f"</{kind}>" in line else kind
            elif "</p>" in line or "</li>" in line:
                inside = ""
            if "<a " in line:
                anchors = line.split("<a ")[1:]
                links = len(anchors)
                for anchor in anchors:
                    linked += len(_plain(_TAG.sub("", "<a " + anchor.partition("</a>")[0])))
            text = _TAG.sub("", line)
        text = _plain(text)
        text = text.rstrip() if kind == "pre" else text.strip()
        if text and not text.isspace():
            append(as_block(Block, (kind, text, min(linked, len(text)), links)))
    return blocks


def _plain(text: str) -> str:
    """Undoes resiliparse's escapes in text."""
    if "&" not in text:
        return text
    text = text.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u00a0")
    return text.replace("&amp;", "&")


def weighed(blocks: list[Block]) -> NDArray[np.float64]:
    """Returns the features: one row a block, one column a key of ``WEIGHTS``."""
    unlinked = [len(block.text) - block.linked for block in blocks]
    total = sum(unlinked) or 1
    share = [block.linked / len(block.text) for block in blocks]
    prose = _prose(blocks, unlinked, share, _PROSE) or _prose(blocks, unlinked, share, _PROSE_LESS)
    first = min(prose, default=0)
    headline = next((index for index, block in enumerate(blocks) if block.kind == "h1"), -1)
    if headline >= 0 and sum(unlinked[headline:]) <= total / 2:
        headline = -1
    read = sum(unlinked[index] for index in prose) or 1
    paragraphs = sum(unlinked[index] for index in prose if blocks[index].kind == "p") / read
    times = Counter(block.text for block in blocks)
    length = [0.0, *(min(log1p(chars), 7) / 7 for chars in unlinked), 0.0]
    padded_share = [1.0, *share, 1.0]
    rows = []
    chars_before = 0
    for index, (kind, text, _, links) in enumerate(blocks):
        ends = text[-1] in _ENDS
        rows.append(
            (
                1,
                kind == "p",
                kind == "h1",
                kind != "h1" and kind in _HEADINGS,
                kind == "li",
                length[index + 1],
                share[index],
                ends,
                index < first,
                index < headline,
                times[text] > 1,
                paragraphs if not kind else 0,
                paragraphs if kind == "li" else 0,
                index - 1 in prose,
                length[index],
                padded_share[index],
                length[index + 2],
                padded_share[index + 2],
                index < first and kind == "p",
                ends and index not in prose,
                links > 1,
                "|" in text or (not text.isascii() and any(map(text.__contains__, _SIGNS))),
                chars_before > 0.9 * total,
            )
        )
        chars_before += unlinked[index]
    return np.array(rows, np.float64).reshape(len(blocks), len(WEIGHTS))


def _prose(blocks: list[Block], unlinked: list[int], share: list[float], min_chars: int) -> set[int]:
    return {
        index
        for index, block in enumerate(blocks)
        if unlinked[index] >= min_chars and share[index] < 0.5 and block.kind not in _HEADINGS
    }


def article_of(minimal: str, weights: NDArray[np.float64] | None = None) -> str:
    """Returns the text of the article in the markup of ``minimal_markup``, one block a line; all of its text if it does
    not look like an article. ``weights`` replace ``WEIGHTS``, to fit new ones."""
    blocks = blocks_of(minimal)
    everything = "\n".join(block.text for block in blocks)
    if not everything or len(blocks) > _MAX_BLOCKS:
        return everything
    # not by @: a product of matrices wakes threads that spin after it
    likely = 1 / (1 + np.exp(-(weighed(blocks) * (_WEIGHTS if weights is None else weights)).sum(1)))
    sizes = np.array([len(block.text) for block in blocks])
    is_kept = likely > _THRESHOLD
    teasers = sum(
        is_kept[index + 1] and blocks[index].kind in _HEADINGS and blocks[index].linked >= len(blocks[index].text)
        for index in range(len(blocks) - 1)
    )
    if teasers >= _TEASERS or sizes[is_kept].sum() < _MIN_KEPT_SHARE * sizes.sum():
        return everything
    return "\n".join(block.text for block, keep in zip(blocks, is_kept, strict=True) if keep)


class MainContent(NamedTuple):
    """The main content. ``text`` has one paragraph a line; ``markdown`` is set only on request. Both are ``None`` if
    nothing was found. ``extractor`` is library and version. ``is_complete`` is false if a library failed on the page,
    so that its part is missing; ``cut`` is true if the text was longer than the limit."""

    text: str | None
    markdown: str | None
    extractor: str
    is_complete: bool = True
    cut: bool = False


def extracted(
    markup: str,
    extractor: Extractor,
    *,
    resolve: Callable[[str], Resolved] = _NO_BASE,
    markdown: bool = False,
    tree: LexborHTMLParser | None = None,
    limits: Limits = _LIMITS,
) -> MainContent:
    """Returns the main content of a page. ``resolve`` makes the Markdown's links absolute; ``tree`` is the page's tree,
    if the caller has it, complete but for scripts and styles.

    ``fast`` uses the trees of ``model.py``, and for uncertain pages resiliparse too; ``auto`` then uses trafilatura as
    well. ``quality`` is only trafilatura, ten times slower. All of them leave out readers' comments, by-lines and
    alternative texts of images.

    Never raises: if a library fails on a page, ``is_complete`` is false.
    """
    if extractor == "quality":
        extraction = _try_extract(partial(_quality, markup, tree, resolve, markdown, limits))
        return extraction or MainContent(None, None, _extractor_name("trafilatura"), is_complete=False)
    tree = tree or LexborHTMLParser(markup)
    extraction = _try_extract(partial(_extract_by_model, tree, markup, extractor, resolve, markdown, limits))
    return extraction or MainContent(None, None, _extractor_name("cc-pipeline"), is_complete=False)


def _try_extract(find: Callable[[], _T | None]) -> _T | None:
    """Returns the result of a library; ``None`` if it fails: the page's other columns do not depend on it."""
    try:
        return find()
    except Exception:
        return None


def _extract_by_model(
    tree: LexborHTMLParser,
    markup: str,
    extractor: Extractor,
    resolve: Callable[[str], Resolved],
    markdown: bool,
    limits: Limits,
) -> MainContent:
    if tree.body is None:
        return MainContent(None, None, _extractor_name("cc-pipeline"))
    title = tree.css_first("title")
    seen = walk(tree.body, chars=limits.text_chars, elements=limits.elements)
    content = content_of(seen, likelihoods(seen, title.text() if title else ""), opinions(markup, extractor))
    extraction = MainContent(content.text.strip() or None, None, _extractor_name("cc-pipeline"), cut=seen.cut)
    return _with_markdown(extraction, tree, content, resolve, limits) if markdown else extraction


def opinions(markup: str, extractor: Extractor) -> list[Opinion]:
    """Returns the other extractors for an uncertain page. Their weights were chosen by cross-validation."""
    uses_trafilatura = extractor == "auto" and len(markup) <= _AUTO_CHARS
    weighted_opinions: list[Opinion] = [
        (0.5 if uses_trafilatura else 1.0, lambda: _try_extract(lambda: article_of(minimal_markup(markup))))
    ]
    if uses_trafilatura:
        weighted_opinions.append((1.0, lambda: _try_extract(lambda: main_content(markup, "quality"))))
    return weighted_opinions


def main_content(markup: str, extractor: Extractor) -> str | None:
    """Returns only the text."""
    return extracted(markup, extractor).text


def _quality(
    markup: str, tree: LexborHTMLParser | None, resolve: Callable[[str], Resolved], markdown: bool, limits: Limits
) -> MainContent:
    from trafilatura import extract  # noqa: PLC0415 - a second to import, needed by this extractor only

    full_text = extract(markup, fast=True, include_comments=False, include_tables=True, deduplicate=False) or ""
    text = full_text.strip()
    cut = len(text) > limits.text_chars
    extraction = MainContent(text[: limits.text_chars] or None, None, _extractor_name("trafilatura"), cut=cut)
    if not markdown or not text:
        return extraction
    tree = tree or LexborHTMLParser(markup)
    if tree.body is None:
        return extraction
    # trafilatura's own Markdown changes the lines of code and loses formulas
    seen = walk(tree.body, chars=limits.text_chars, elements=limits.elements)
    return _with_markdown(extraction, tree, match_text(seen, text), resolve, limits)


def _with_markdown(
    extraction: MainContent,
    tree: LexborHTMLParser,
    content: Content,
    resolve: Callable[[str], Resolved],
    limits: Limits,
) -> MainContent:
    written = _try_extract(partial(_write_markdown, tree, content, resolve, limits.text_chars))
    if written is None:
        return extraction._replace(is_complete=False)
    return extraction._replace(markdown=written.text or None, cut=extraction.cut or written.cut)


def _write_markdown(
    tree: LexborHTMLParser, content: Content, resolve: Callable[[str], Resolved], max_chars: int
) -> Markdown:
    holders = content.walk.address[content.walk.blocks.element[content.is_kept]]
    return markdown_of(tree, lambda href: resolve(href)[0], max_chars, frozenset(holders.tolist()))


@lru_cache(maxsize=2)
def _extractor_name(library: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"{library} {version(library)}"
