"""Which blocks of a page's main content are its article's, and which are furniture that an extractor left in.

The fast extractor keeps nearly all of an article and, around it, headlines, captions, cookie notices and lists of
other articles. Here every block gets a likelihood from a linear model over what it looks like and what stands beside
it: no words of any language, only lengths, links, tags, punctuation and place. The weights are fitted by
``benchmarks/article_weights.py``, which also cross-validates them.
"""

from __future__ import annotations

import re
from collections import Counter
from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from resiliparse.extract.html2text import extract_plain_text

#: One tag of resiliparse's minimal markup: quotes stand in attributes alone there, text has them escaped.
_TAG = re.compile(r'<[^>"]*(?:"[^"]*"[^>"]*)*>')
_KIND = re.compile(r"\s*<(p|h[1-6]|li|pre)\b")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f\"\u201d\u2019\u00bb')]:;\u0964")
_SIGNS = ("|", "\u00a9", "\u2022", "\u00bb")
#: Characters outside links from which a block counts as prose; the second where no block has as many.
_PROSE = 60
_PROSE_LESS = 25
#: A page of more blocks than this is no article, and is kept as it is.
_MAX_BLOCKS = 5_000
#: Blocks likelier than this are kept.
_THRESHOLD = 0.35
#: Where less of the text than this would be kept, the page is none that the model was made for, and all is kept.
_LEAST_KEPT = 0.5
#: So many headlines that are links, each with a text to be kept behind it, make a list of articles: all is kept.
_TEASERS = 3
#: An article is unusual where less than this share is kept, or more than that is doubtful.
_USUALLY_KEPT = 0.75
_USUAL_DOUBT = 0.35
#: A block is doubtful between these likelihoods.
_DOUBT = (0.15, 0.85)

#: Every feature of a block and its weight, fitted on the gold articles (see the module's text).
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


class Block(NamedTuple):
    """A line of the main content: ``kind`` is its tag (empty outside of paragraphs, headings and lists), ``linked``
    the characters of ``text`` that are link texts, ``links`` how many,
    ``line`` the line of the minimal markup."""

    kind: str
    text: str
    linked: int
    links: int
    line: int


class Article(NamedTuple):
    """``text`` is what was kept, one block a line. ``kept`` is the share of characters that the model would keep,
    ``doubt`` the share in blocks it is unsure of. ``dropped`` are lines of the minimal markup that were left out."""

    text: str
    kept: float
    doubt: float
    dropped: frozenset[int] = frozenset()

    @property
    def usual(self) -> bool:
        """Whether the page looks like the articles that the model was made of."""
        return self.kept >= _USUALLY_KEPT and self.doubt <= _USUAL_DOUBT


def minimal_markup(markup: str, *, main_content: bool = True) -> str:
    """The main content as resiliparse finds it (or all of the page's text), with paragraphs, headings, lists and links
    left as tags."""
    return extract_plain_text(
        markup, "minimal_html", main_content=main_content, alt_texts=False, links=True, comments=False, post_meta=False
    )


def blocks_of(minimal: str) -> list[Block]:
    """The lines with text of ``minimal_markup``'s answer."""
    found: list[Block] = []
    append, as_block = found.append, tuple.__new__  # a third of the time of Block(...)
    inside = ""
    for number, line in enumerate(minimal.split("\n")):
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
            append(as_block(Block, (kind, text, min(linked, len(text)), links, number)))
    return found


def _plain(text: str) -> str:
    """What resiliparse escapes in text, as it was."""
    if "&" not in text:
        return text
    text = text.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u00a0")
    return text.replace("&amp;", "&")


def features(blocks: list[Block]) -> NDArray[np.float64]:
    """One row a block, one column a key of ``WEIGHTS``."""
    own = [len(block.text) - block.linked for block in blocks]
    total = sum(own) or 1
    share = [block.linked / len(block.text) for block in blocks]
    prose = _prose(blocks, own, share, _PROSE) or _prose(blocks, own, share, _PROSE_LESS)
    first = min(prose, default=0)
    headline = next((at for at, block in enumerate(blocks) if block.kind == "h1"), -1)
    if headline >= 0 and sum(own[headline:]) <= total / 2:
        headline = -1
    read = sum(own[at] for at in prose) or 1
    paragraphs = sum(own[at] for at in prose if blocks[at].kind == "p") / read
    times = Counter(block.text for block in blocks)
    length = [0.0, *(min(log1p(each), 7) / 7 for each in own), 0.0]
    beside = [1.0, *share, 1.0]
    rows = []
    before = 0
    for at, (kind, text, _, links, _) in enumerate(blocks):
        ends = text[-1] in _ENDS
        rows.append(
            (
                1,
                kind == "p",
                kind == "h1",
                kind != "h1" and kind in _HEADINGS,
                kind == "li",
                length[at + 1],
                share[at],
                ends,
                at < first,
                at < headline,
                times[text] > 1,
                paragraphs if not kind else 0,
                paragraphs if kind == "li" else 0,
                at - 1 in prose,
                length[at],
                beside[at],
                length[at + 2],
                beside[at + 2],
                at < first and kind == "p",
                ends and at not in prose,
                links > 1,
                "|" in text or (not text.isascii() and any(map(text.__contains__, _SIGNS))),
                before > 0.9 * total,
            )
        )
        before += own[at]
    return np.array(rows, np.float64).reshape(len(blocks), len(WEIGHTS))


def _prose(blocks: list[Block], own: list[int], share: list[float], least: int) -> set[int]:
    return {
        at for at, block in enumerate(blocks) if own[at] >= least and share[at] < 0.5 and block.kind not in _HEADINGS
    }


def article_of(minimal: str, weights: NDArray[np.float64] | None = None) -> Article:
    """The article in ``minimal_markup``'s answer; all of it where it does not look like one. ``weights`` in place of
    ``WEIGHTS`` are for who fits new ones."""
    blocks = blocks_of(minimal)
    everything = "\n".join(block.text for block in blocks)
    if not everything or len(blocks) > _MAX_BLOCKS:
        return Article(everything, 0.0, 1.0)
    likely = 1 / (1 + np.exp(-features(blocks) @ (_WEIGHTS if weights is None else weights)))
    sizes = np.array([len(block.text) for block in blocks])
    kept = likely > _THRESHOLD
    share = float(sizes[kept].sum() / sizes.sum())
    doubt = float(sizes[(likely > _DOUBT[0]) & (likely < _DOUBT[1])].sum() / sizes.sum())
    teasers = sum(
        kept[at + 1] and blocks[at].kind in _HEADINGS and blocks[at].linked >= len(blocks[at].text)
        for at in range(len(blocks) - 1)
    )
    if teasers >= _TEASERS:
        return Article(everything, 1.0, 0.0)
    if share < _LEAST_KEPT:
        return Article(everything, share, doubt)
    text = "\n".join(block.text for block, keep in zip(blocks, kept, strict=True) if keep)
    dropped = frozenset(block.line for block, keep in zip(blocks, kept, strict=True) if not keep)
    return Article(text, share, doubt, dropped)


_WEIGHTS = np.array(list(WEIGHTS.values()))
