"""The main content of a page, without menus and footers: its text, on request as Markdown, and the extractor's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple, TypeVar

from resiliparse.extract.html2text import extract_plain_text

from cc_pipeline.documents.html.content_selection import Content, content_of
from cc_pipeline.documents.html.markdown import Markdown, markdown
from cc_pipeline.documents.html.model import likelihoods
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tree import HtmlDocument, parse_html
from cc_pipeline.documents.page import Limits

_LIMITS = Limits()
_T = TypeVar("_T")


class MainContent(NamedTuple):
    """The main content. ``text`` has one paragraph a line; ``markdown`` is set only on request. Both are ``None`` if
    nothing was found. ``extractor`` is library and version. ``is_complete`` is false if a library failed on the page,
    so that its part is missing; ``cut`` is true if the text was longer than the limit."""

    text: str | None
    markdown: str | None
    extractor: str
    is_complete: bool = True
    cut: bool = False


def extract(
    document: HtmlDocument, markup: str, *, with_markdown: bool = False, limits: Limits = _LIMITS
) -> MainContent:
    """Returns the main content of a page that was read with its tables. ``markup`` is the page's, within the limits.

    The trees of ``model.py`` judge each block, and for uncertain pages resiliparse too. Readers' comments, by-lines and
    alternative texts of images are left out.

    Never raises: if a library fails on a page, ``is_complete`` is false.
    """
    tables = document.tables
    if tables is None:
        return MainContent(None, None, _extractor_name())
    content = _try_extract(partial(_select, tables, document.title or "", markup))
    if content is None:
        return MainContent(None, None, _extractor_name(), is_complete=False)
    text = content.text.strip()
    extraction = MainContent(text or None, None, _extractor_name(), cut=tables.cut)
    if not with_markdown or not text:
        return extraction
    written = _try_extract(partial(_write_markdown, document, content, limits.text_chars))
    if written is None:
        return extraction._replace(is_complete=False)
    return extraction._replace(markdown=written.text or None, cut=extraction.cut or written.cut)


def main_content(markup: str) -> str | None:
    """Returns only the text of the main content of a page."""
    return extract(parse_html(markup, "", _LIMITS, links=False, with_tables=True), markup).text


def _try_extract(find: Callable[[], _T | None]) -> _T | None:
    """Returns the result of a library; ``None`` if it fails: the page's other columns do not depend on it."""
    try:
        return find()
    except Exception:
        return None


def _select(tables: Tables, title: str, markup: str) -> Content:
    return content_of(tables, likelihoods(tables, title), opinion(markup))


def opinion(markup: str) -> Callable[[], str | None]:
    """Returns a function that gives resiliparse's main text of a page, for an uncertain page."""
    return partial(_try_extract, partial(_resiliparse_text, markup))


def _resiliparse_text(markup: str) -> str:
    return extract_plain_text(markup, main_content=True, alt_texts=False, links=True, comments=False, post_meta=False)


def _write_markdown(document: HtmlDocument, content: Content, max_chars: int) -> Markdown:
    tables = content.tables
    holders = frozenset(tables.address[tables.blocks.element[content.is_kept]].tolist())
    return markdown(document, tables, max_chars, holders)


@cache
def _extractor_name() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"cc-pipeline {version('cc-pipeline')}"
