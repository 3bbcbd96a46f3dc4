"""The main content of a page: its text, on request as Markdown, and who found it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from cc_pipeline.documents.html.article import Article, article_of, blocks_of, minimal_markup
from cc_pipeline.documents.html.urls import resolver

Extractor = Literal["fast", "auto", "quality"]

#: Pages of more characters than this are left to the fast extractor by ``auto``: trafilatura needs a second for each
#: ten megabytes of plain markup, and far longer for odd ones.
_AUTO_CHARS = 2_000_000
#: A main content of fewer characters is believed by nobody.
_FEW_CHARS = 200
_HREF = re.compile(r'<a href="([^"]*)"')
#: The writer of Markdown takes a text with a few of them for no text at all.
_NO_CONTROLS = dict.fromkeys((*range(9), 11, *range(14, 32), 127))


class MainContent(NamedTuple):
    """``text`` has paragraphs on lines of their own; ``markdown`` is filled where it was asked for. Both are ``None``
    where nothing was found. ``extractor`` is library and version. ``whole`` is false where a library failed on the
    page, so that what it finds is missing here."""

    text: str | None
    markdown: str | None
    extractor: str
    whole: bool = True


def extracted(markup: str, extractor: Extractor, *, url: str = "", markdown: bool = False) -> MainContent:
    """The main content of a page. ``url`` is what relative links of the Markdown are relative to.

    ``fast`` is resiliparse's extractor with the furniture it leaves taken out (see article.py), ``quality`` is
    trafilatura's, ten times slower. ``auto`` is ``fast``, and ``quality`` where the fast one's result looks unlike an
    article's. Readers' comments, by-lines and alternative texts of pictures are furniture to all.

    Raises nothing: where a library fails on a page, the other's result stands, or none does.
    """
    if extractor == "quality":
        return _held(partial(_quality, markup, markdown)) or MainContent(None, None, _named("trafilatura"), whole=False)
    found = _held(partial(_fast, markup, extractor, url, markdown))
    return found or MainContent(None, None, _named("resiliparse"), whole=False)


def _held(find: Callable[[], MainContent | None]) -> MainContent | None:
    """What a library finds, ``None`` where it fails: a page has more than its main content."""
    try:
        return find()
    except Exception:
        return None


def _fast(markup: str, extractor: Extractor, url: str, markdown: bool) -> MainContent:
    minimal = minimal_markup(markup)
    article = article_of(minimal)
    if len(article.text) < _FEW_CHARS:
        # resiliparse takes a page's only list for a menu: better the whole page than a headline
        minimal = minimal_markup(markup, main_content=False)
        article = Article("\n".join(block.text for block in blocks_of(minimal)), 0.0, 1.0)
    if extractor == "auto" and not article.usual and len(markup) <= _AUTO_CHARS:
        found = _held(partial(_quality, markup, markdown))
        if found is not None and found.text:
            return found
    plain = MainContent(article.text.strip() or None, None, _named("resiliparse"))
    if not markdown:
        return plain
    return _held(lambda: plain._replace(markdown=_in_markdown(minimal, article, url))) or plain._replace(whole=False)


def main_content(markup: str, extractor: Extractor) -> str | None:
    """The text alone."""
    return extracted(markup, extractor).text


def _quality(markup: str, markdown: bool) -> MainContent:
    from trafilatura import extract  # noqa: PLC0415 - a second to import, needed by this extractor only

    find = partial(extract, markup, fast=True, include_comments=False, include_tables=True, deduplicate=False)
    in_markdown = find(output_format="markdown", include_links=True) if markdown else None
    return MainContent((find() or "").strip() or None, (in_markdown or "").strip() or None, _named("trafilatura"))


def _in_markdown(minimal: str, article: Article, url: str) -> str | None:
    from html_to_markdown import convert  # noqa: PLC0415 - on request only

    absolute = resolver(url)
    kept = "\n".join(line for number, line in enumerate(minimal.split("\n")) if number not in article.dropped)
    linked = _HREF.sub(lambda found: f'<a href="{absolute(found[1])[0] or found[1]}"', kept)
    found = convert(linked.translate(_NO_CONTROLS)).content
    return found.strip() or None if found else None


@lru_cache(maxsize=2)
def _named(library: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"{library} {version(library)}"
