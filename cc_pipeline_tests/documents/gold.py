"""The gold articles of the corpus and the measure they came with: precision and recall of 4-word shingles; and which of
the elements that an article consists of are kept."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline_tests.corpus import CORPUS

_PAGES = CORPUS / "html_text_metadata"
ARTICLES = _PAGES / "scrapinghub_aeb"
NEWSPAPER = _PAGES / "newspaper" / "html"
_WORD = re.compile(r"\w+", re.UNICODE)
_SHINGLE = 4
#: Of newspaper's texts those of fewer characters are of pages that have no more than a title.
_LEAST_NEWS = 300
#: Links to edit a section are no content (docs/documents.md); Readability keeps them.
_EDIT = re.compile(r"\[\s*edit\s*\]")
_MARKDOWN_LINK = re.compile(r"\]\([^)]*\)")


@lru_cache(maxsize=1)
def gold_articles() -> list[tuple[str, str, str]]:
    """(URL, page, article text)."""
    truth = json.loads((ARTICLES / "ground-truth.json").read_text(encoding="utf-8"))
    found = []
    for path in sorted((ARTICLES / "html").glob("*.html.gz")):
        entry = truth.get(path.name.removesuffix(".html.gz"))
        if entry is not None:
            found.append(
                (entry.get("url", ""), gzip.decompress(path.read_bytes()).decode("utf-8"), entry["articleBody"])
            )
    return found


def f1(extract: Callable[[str], str | None]) -> tuple[float, float, float]:
    """F1, precision and recall over all articles: the mean of each page's precision and recall, as the benchmark
    the articles come from computes them."""
    return mean_f1([(extract(page) or "", truth) for _, page, truth in gold_articles()])


def mean_f1(pairs: Iterable[tuple[str, str]]) -> tuple[float, float, float]:
    """The same of pairs of an extracted and a gold text."""
    scores = [_precision_recall(found, truth) for found, truth in pairs]
    precisions = [precision for precision, _ in scores if precision is not None]
    recalls = [recall for _, recall in scores if recall is not None]
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return 2 * precision * recall / (precision + recall or 1), precision, recall


def _precision_recall(found: str, truth: str) -> tuple[float | None, float | None]:
    ours, theirs = _shingles(found), _shingles(truth)
    common = sum((ours & theirs).values())
    extra, missing = sum((ours - theirs).values()), sum((theirs - ours).values())
    if common + extra + missing == 0:
        return None, None
    precision = common / (common + extra) if common + extra else 0.0
    recall = common / (common + missing) if common + missing else 0.0
    return precision, recall


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    size = min(_SHINGLE, len(words)) or 1
    return Counter(tuple(words[at : at + size]) for at in range(len(words) - size + 1)) if words else Counter()


#: Elements that main content is to keep, by the names the benchmark gives them.
STRUCTURE = {
    "li": "lists", "td": "cells", "th": "cells", "pre": "pre", "h2": "headings", "h3": "headings", "h4": "headings",
    "blockquote": "quotes", "dt": "definitions", "dd": "definitions", "ruby": "ruby",
}  # fmt: skip
_SELECTOR = ",".join(tag for tag in STRUCTURE if tag != "ruby")
#: Words from which on an element of the page whose text is in the gold text counts as the article's.
_SURE = 4


@dataclass(frozen=True, slots=True)
class GoldPage:
    """A page whose main content somebody marked: its text, and the elements in it, each as (name in ``STRUCTURE``,
    words). Pages of a site share ``site``, so that none is judged by what was learned of a sister."""

    kind: str
    site: str
    markup: str
    text: str
    elements: tuple[tuple[str, str], ...]
    generated: bool = False

    def kept(self, found: str) -> list[tuple[str, bool]]:
        """For each element its name, and whether ``found`` has its text, whole and in one piece."""
        words = f" {spaced(found)} "
        return [(name, f" {text} " in words) for name, text in self.elements]


def spaced(text: str) -> str:
    """The words with a space between."""
    return " ".join(_WORD.findall(text))


@lru_cache(maxsize=1)
def gold_pages() -> list[GoldPage]:
    """The articles; the pages for which Readability's authors wrote down what it is to keep; the articles of
    newspaper's tests; and pages that people wrote as Markdown."""
    found = [
        GoldPage("article", urlsplit(url if "//" in url else f"//{url}").netloc, markup, text, _sure(markup, text))
        for url, markup, text in gold_articles()
    ]
    for path in sorted((_PAGES / "newspaper" / "text").glob("*.txt")):
        text, source = path.read_text(encoding="utf-8"), NEWSPAPER / f"{path.stem}.html"
        if len(text) >= _LEAST_NEWS and source.exists():
            markup = source.read_text(encoding="utf-8", errors="replace")
            found.append(GoldPage("newspaper", path.stem.rstrip("0123456789"), markup, text, _sure(markup, text)))
    for path in sorted((_PAGES / "markdown_gold").glob("*.json.gz")):
        page = json.loads(gzip.decompress(path.read_bytes()))
        markup, text = page["html"], _MARKDOWN_LINK.sub("]", page["markdown"])
        found.append(GoldPage("markdown", urlsplit(page["url"]).netloc, markup, text, _sure(markup, text)))
    folders = (_PAGES / name for name in ("readability", "readability_more"))
    for folder in sorted(each for group in folders for each in group.iterdir() if any(each.glob("expected.html*"))):
        source, expected = (_read(folder, f"{name}.html") for name in ("source", "expected"))
        tree = LexborHTMLParser(expected)
        text = _EDIT.sub(" ", (tree.body.text(separator="\n") if tree.body else "") or "")
        site = re.sub(r"(-\d+)?(\.\d+)?$", "", folder.name)
        found.append(GoldPage("readability", site, source, text, tuple(_elements(tree))))
    return found


def _read(folder: Path, name: str) -> str:
    plain = folder / name
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return data.decode("utf-8", "replace")


def _elements(tree: LexborHTMLParser) -> Iterator[tuple[str, str]]:
    """Those with text, but none that holds another of its kind: tables lay out whole pages."""
    for node in tree.css(_SELECTOR):
        name = STRUCTURE[node.tag or ""]
        within = [each for each in node.css(_SELECTOR) if each.mem_id != node.mem_id]
        if not any(STRUCTURE[each.tag or ""] == name for each in within):
            text = spaced(_EDIT.sub(" ", node.text(separator=" ")))
            if text:
                yield name, text


def _sure(markup: str, text: str) -> tuple[tuple[str, str], ...]:
    """The elements of a page whose words are the article's, and too many to be there by chance."""
    words = f" {spaced(text)} "
    elements = _elements(LexborHTMLParser(markup))
    return tuple(each for each in elements if each[1].count(" ") >= _SURE - 1 and f" {each[1]} " in words)
