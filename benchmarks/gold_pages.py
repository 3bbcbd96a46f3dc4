"""Pages whose main content somebody marked, and the elements in it: gold articles, newspaper's, Readability's, and
pages that people wrote as Markdown."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline_tests.documents.gold import NEWSPAPER, PAGES, gold_articles

_WORD = re.compile(r"\w+", re.UNICODE)
#: Of newspaper's texts those of fewer characters are of pages that have no more than a title.
_LEAST_NEWS = 300
#: Links to edit a section are no content (docs/documents.md); Readability keeps them.
_EDIT = re.compile(r"\[\s*edit\s*\]")
_MARKDOWN_LINK = re.compile(r"\]\([^)]*\)")
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
    for path in sorted((PAGES / "newspaper" / "text").glob("*.txt")):
        text, source = path.read_text(encoding="utf-8"), NEWSPAPER / f"{path.stem}.html"
        if len(text) >= _LEAST_NEWS and source.exists():
            markup = source.read_text(encoding="utf-8", errors="replace")
            found.append(GoldPage("newspaper", path.stem.rstrip("0123456789"), markup, text, _sure(markup, text)))
    for path in sorted((PAGES / "markdown_gold").glob("*.json.gz")):
        page = json.loads(gzip.decompress(path.read_bytes()))
        markup, text = page["html"], _MARKDOWN_LINK.sub("]", page["markdown"])
        found.append(GoldPage("markdown", urlsplit(page["url"]).netloc, markup, text, _sure(markup, text)))
    folders = (PAGES / name for name in ("readability", "readability_more"))
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
