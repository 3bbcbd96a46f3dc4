"""Selects the blocks of a page that are its content: by their likelihoods, by another extractor if uncertain, and by
the structure of articles. Lists, tables, code, quotes and captions inside an article stay, unless they are links or
named as no content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cc_pipeline.documents.html.features import FURNITURE, covered, mark_tags, nearest
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tags import HINT, NUMBER

Likely = NDArray[np.float32]
#: Returns the text that another extractor finds.
Opinion = Callable[[], str | None]

#: Blocks of a greater likelihood are kept; the lower thresholds are used if that leaves too little.
_THRESHOLD, _LOWER_THRESHOLD, _LOWEST_THRESHOLD = 0.45, 0.15, 0.03
#: A main content of fewer characters is not credible.
_FEW_CHARS = 200
#: A page is uncertain if a greater share of its possible content is less than sure.
_UNCERTAIN_SHARE = 0.12
_MAYBE, _SURE = 0.2, 0.8
#: The weight of another extractor's opinion (ours is 1), chosen by cross-validation.
_WEIGHT = 2 / 3
#: Elements that stay inside an article unless they are mostly links, or almost certainly no content.
_UNITS = mark_tags("ul ol dl table pre blockquote figcaption menu")
#: Of the element that holds the text, lists and quotes after it stay too, and boxes of facts before it.
_NOTES, _FACTS = mark_tags("ol ul blockquote"), mark_tags("table dl")
_UNIT_LINKS, _UNIT_LIKELY = 0.5, 0.03
#: The share of links allowed in a box that is named for its facts.
_FACTS_LINKS = 0.8
#: An element that is named for sharing and is half quotation is a post that the article quotes.
_QUOTE, _SHARE, _QUOTED = NUMBER["blockquote"], HINT["share"], 0.5
#: Elements that are removed inside an article, if they are less than this share of it. A heading's id names its
#: subject, so headings stay.
_TAKEN_OUT = sum(HINT[name] for name in "newsletter cookie share edit".split())
_SMALL = 0.2
_HEADINGS = mark_tags("h1 h2 h3 h4 h5 h6")
#: A heading of a greater likelihood, by the model or with the other extractor, stays if its text does.
_SUBHEADINGS, _HEADING_LIKELY = mark_tags("h2 h3 h4 h5 h6"), 0.15
#: Characters outside links of a block that an article may begin or end with.
_TEXT = 25
_WORD = re.compile(r"\w+")
_RUN = 4


class Content(NamedTuple):
    """The selected content. ``is_kept`` is for each block of the tables whether it is kept."""

    tables: Tables
    is_kept: NDArray[np.bool_]

    @property
    def text(self) -> str:
        text, block = self.tables.text, self.tables.blocks
        starts, chars = block.start[self.is_kept].tolist(), block.chars[self.is_kept].tolist()
        return "\n".join([text[start : start + size] for start, size in zip(starts, chars, strict=True)])


def content_of(tables: Tables, likely: Likely, opinion: Opinion | None = None) -> Content:
    """Selects the content of a page. ``opinion`` is asked only if the page is uncertain."""
    if not len(likely):
        return Content(tables, np.zeros(0, np.bool_))
    model_likely = likely
    if opinion is not None and is_uncertain(tables, likely) and (text := opinion()):
        likely = np.average([likely, _shares(tables, text)], 0, [1.0, _WEIGHT]).astype(np.float32)
    is_kept = _with_units(tables, likely, likely > _THRESHOLD)
    for threshold in (_LOWER_THRESHOLD, _LOWEST_THRESHOLD, -1.0):
        if tables.blocks.chars[is_kept].sum() >= _FEW_CHARS:
            break
        is_kept = likely > threshold
    return Content(tables, _with_headings(tables, np.maximum(model_likely, likely), is_kept))


def is_uncertain(tables: Tables, likely: Likely) -> bool:
    """Whether much of the possible content is less than sure."""
    chars = tables.blocks.chars
    maybe = likely > _MAYBE
    return bool(chars[maybe & (likely < _SURE)].sum() > _UNCERTAIN_SHARE * max(chars[maybe].sum(), 1))


def _shares(tables: Tables, text: str) -> NDArray[np.float64]:
    """Returns for each block the share of its runs of four words that occur in a text; for a shorter block whether it
    occurs."""
    words = _WORD.findall(text)
    runs = set(_runs(words))
    block_words = [_WORD.findall(tables.text_of(block)) for block in range(len(tables.blocks.chars))]
    short = {tuple(tokens) for tokens in block_words if len(tokens) < _RUN}
    present_runs = {run for size in range(1, _RUN) for run in _runs(words, size) if run in short}
    present_runs.add(())
    shares = []
    for tokens in block_words:
        block_runs = [*_runs(tokens)]
        shares.append(
            sum(map(runs.__contains__, block_runs)) / len(block_runs)
            if block_runs
            else float(tuple(tokens) in present_runs)
        )
    return np.array(shares)


def _runs(words: list[str], size: int = _RUN) -> Iterator[tuple[str, ...]]:
    return zip(*(words[offset:] for offset in range(size)), strict=False)


def _with_units(tables: Tables, likely: Likely, is_kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Adds the units between the first and the last block that are surely content, and removes boilerplate."""
    block, element = tables.blocks, tables.elements
    sure = np.flatnonzero((likely > 0.5) & (block.chars - block.linked >= _TEXT))
    if len(sure) < 2:
        return is_kept
    begins, ends = int(sure[0]), int(sure[-1]) + 1
    is_holder = element.holder == np.arange(len(element.tag))
    common_holder = np.flatnonzero(is_holder & (element.first <= begins) & (element.last >= ends))[-1]
    size, links, weighed = (_sums(measure) for measure in (block.chars, block.linked, likely * block.chars))
    first, last = element.first, element.last
    chars = np.maximum(size[last] - size[first], 1)
    quotes, hints = (element.tag == _QUOTE) & is_holder, element.hints
    if quotes.any():
        quoted = _sums(covered(first[quotes], last[quotes], len(likely)) * block.chars)
        posts = (quoted[last] - quoted[first]) / chars >= _QUOTED
        hints = np.where(posts, hints & ~_SHARE, hints)
    inside_bad = nearest(tables, ((hints & FURNITURE) != 0) & is_holder) > common_holder
    is_inside = (element.first >= begins) & (element.last <= ends)
    notes = _NOTES[element.tag] & (element.first >= begins) & (element.last <= element.last[common_holder])
    facts = _FACTS[element.tag] & (element.first >= element.first[common_holder]) & (element.last <= begins)
    units = _UNITS[element.tag] & is_holder & ~inside_bad & (is_inside | notes | facts)
    is_infobox = (element.hints & HINT["infobox"]) != 0
    units &= (links[last] - links[first]) / chars <= np.where(is_infobox, _FACTS_LINKS, _UNIT_LINKS)
    mean = (weighed[last] - weighed[first]) / chars
    units &= mean > _UNIT_LIKELY
    is_kept = is_kept | covered(first[units], last[units], len(likely))
    removed = ((hints & _TAKEN_OUT) != 0) & ~_HEADINGS[element.tag]
    small = chars < _SMALL * block.chars[is_kept].sum()
    out = nearest(tables, removed & small) > common_holder
    return np.asarray(is_kept & ~out[block.element])


def _with_headings(tables: Tables, likely: Likely, is_kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Adds the headings before kept blocks, with other headings between; headings of the page's own rank only after
    other text."""
    block = tables.blocks
    is_heading = _HEADINGS[block.kind]
    # the block after each heading: the next one that is no heading
    texts = np.flatnonzero(~is_heading)
    places = np.flatnonzero(is_heading)
    following = np.searchsorted(texts, places)
    stays = np.append(is_kept[texts], False)[following] & (likely[places] > _HEADING_LIKELY)
    follows_text = places > np.argmax(is_kept)
    with_headings = is_kept.copy()
    with_headings[places[stays & (_SUBHEADINGS[block.kind[places]] | follows_text)]] = True
    return with_headings


def _sums(values: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
