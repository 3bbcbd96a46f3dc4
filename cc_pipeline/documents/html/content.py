"""The main content of a page, without menus and footers: its text, on request as Markdown, and the extractor's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, NamedTuple, TypeVar

from resiliparse.extract.html2text import extract_plain_text

from cc_pipeline.documents.html.content_selection import Content, Opinion, content_of, match_text
from cc_pipeline.documents.html.markdown import Markdown, markdown
from cc_pipeline.documents.html.model import likelihoods
from cc_pipeline.documents.html.tree import HtmlDocument, parse_html
from cc_pipeline.documents.page import Limits

Extractor = Literal["fast", "auto", "quality"]

#: ``auto`` uses only the fast extractor for pages of more characters: trafilatura needs a second for each ten megabytes
#: of plain markup, and far longer for unusual markup.
_AUTO_CHARS = 2_000_000
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
    document: HtmlDocument, markup: str, extractor: Extractor, *, with_markdown: bool = False, limits: Limits = _LIMITS
) -> MainContent:
    """Returns the main content of a page that was read with its tables. ``markup`` is the page's, within the limits.

    ``fast`` uses the trees of ``model.py``, and for uncertain pages resiliparse too; ``auto`` then uses trafilatura as
    well. ``quality`` is only trafilatura, ten times slower. All of them leave out readers' comments, by-lines and
    alternative texts of images.

    Never raises: if a library fails on a page, ``is_complete`` is false.
    """
    name = _extractor_name("trafilatura" if extractor == "quality" else "cc-pipeline")
    if extractor == "quality":
        selection = _try_extract(partial(_select_by_trafilatura, document, markup, limits))
    else:
        selection = _try_extract(partial(_select_by_model, document, markup, extractor))
    if selection is None:
        return MainContent(None, None, name, is_complete=False)
    text, content, cut = selection
    extraction = MainContent(text or None, None, name, cut=cut)
    if not with_markdown or content is None or not text:
        return extraction
    written = _try_extract(partial(_write_markdown, document, content, limits.text_chars))
    if written is None:
        return extraction._replace(is_complete=False)
    return extraction._replace(markdown=written.text or None, cut=extraction.cut or written.cut)


def main_content(markup: str, extractor: Extractor) -> str | None:
    """Returns only the text of the main content of a page."""
    return extract(parse_html(markup, "", _LIMITS, links=False, with_tables=True), markup, extractor).text


def _try_extract(find: Callable[[], _T | None]) -> _T | None:
    """Returns the result of a library; ``None`` if it fails: the page's other columns do not depend on it."""
    try:
        return find()
    except Exception:
        return None


#: The text, its blocks, and whether it was cut.
_Selection = tuple[str, Content | None, bool]


def _select_by_model(document: HtmlDocument, markup: str, extractor: Extractor) -> _Selection:
    tables = document.tables
    if tables is None:
        return "", None, False
    content = content_of(tables, likelihoods(tables, document.title or ""), opinions(markup, extractor))
    return content.text.strip(), content, tables.cut


def opinions(markup: str, extractor: Extractor) -> list[Opinion]:
    """Returns the other extractors for an uncertain page."""
    uses_trafilatura = extractor == "auto" and len(markup) <= _AUTO_CHARS
    extractors = (_resiliparse_text, _trafilatura_text) if uses_trafilatura else (_resiliparse_text,)
    return [partial(_try_extract, partial(extract_text, markup)) for extract_text in extractors]


def _resiliparse_text(markup: str) -> str:
    return extract_plain_text(markup, main_content=True, alt_texts=False, links=True, comments=False, post_meta=False)


def _trafilatura_text(markup: str) -> str:
    from trafilatura import extract as by_trafilatura  # noqa: PLC0415 - a second to import, rarely needed

    text = by_trafilatura(markup, fast=True, include_comments=False, include_tables=True, deduplicate=False)
    return (text or "").strip()


def _select_by_trafilatura(document: HtmlDocument, markup: str, limits: Limits) -> _Selection:
    text = _trafilatura_text(markup)
    # trafilatura's own Markdown changes the lines of code and loses formulas
    content = match_text(document.tables, text) if document.tables is not None else None
    return text[: limits.text_chars], content, len(text) > limits.text_chars


def _write_markdown(document: HtmlDocument, content: Content, max_chars: int) -> Markdown:
    tables = content.tables
    holders = frozenset(tables.address[tables.blocks.element[content.is_kept]].tolist())
    return markdown(document, tables, max_chars, holders)


@lru_cache(maxsize=2)
def _extractor_name(library: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"{library} {version(library)}"
