"""Parses one capture into its rows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from cc_pipeline.documents.about.page import header_columns, read_page_metadata, text_columns
from cc_pipeline.documents.body import is_mislabelled_binary, is_unread_text, uncoded
from cc_pipeline.documents.charset import Decoded, decode, narrowed, without_mark
from cc_pipeline.documents.document2012.json import exchange_row, is_robots_txt, page_keys
from cc_pipeline.documents.document2012.simhash import text_simhash
from cc_pipeline.documents.feeds.rows import feed_rows, parse_feed
from cc_pipeline.documents.headers import Kind, choose_kind, content_type, header, is_xml, root_element
from cc_pipeline.documents.html.content import extract
from cc_pipeline.documents.html.description import meta_description, open_graph
from cc_pipeline.documents.html.text import detect_languages, full_text
from cc_pipeline.documents.html.tree import as_html, parse_html
from cc_pipeline.documents.html.urls import resolve_header
from cc_pipeline.documents.page import Link, PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.signals.quality import fingerprint, quality
from cc_pipeline.documents.text_documents import TextDocument, is_pdf, read_other, read_pdf
from cc_pipeline.errors import DataFault, DataKind

_DEFAULT = ParseOptions()
#: Columns of page_text that ``text_chars`` bounds.
_TEXTS = ("text", "title", "description", "main_content", "main_content_markdown")


def parse_page(page: PageInput, options: ParseOptions = _DEFAULT) -> ParsedPage:
    """Returns the rows of a capture with a readable response, whatever its status.

    Content, text and links come from 2xx responses with a body of a textual type; robots.txt has none.
    Raises only ``DataFault``, if a parser breaks on the page, and ``MemoryError``.
    """
    try:
        return _parse(page, options)
    except (DataFault, MemoryError):
        raise
    except Exception as error:
        source = page.warc_filename or page.url
        raise DataFault(
            DataKind.PARSER_BROKE, source, page.warc_record_offset, f"{type(error).__name__} while parsing: {error}"
        ) from error


def _parse(page: PageInput, options: ParseOptions) -> ParsedPage:
    row = exchange_row(page)
    parsed = ParsedPage(page_keys(page), row)
    if row["disposition"] == "SUCCESS" and page.payload:
        parsed = _parse_content(page, row, options)
    if row.get("parsed_as") != "html":  # a page's own columns have these too
        row.update(header_columns(page))
    return parsed


def _parse_content(page: PageInput, row: dict[str, Any], options: ParseOptions) -> ParsedPage:
    flags: set[str] = set()
    row["md5"] = hashlib.md5(page.payload, usedforsecurity=False).hexdigest()
    bound = options.limits.payload_bytes
    in_arc = page.archive_format == "arc"  # Common Crawl's ARC files keep the headers of codings that it removed
    payload = uncoded(page.payload, page.content_headers, bound, flags, archived_decoded=in_arc)
    if len(payload) > bound:
        flags.add("payload_cut")
        payload = payload[:bound]
    if payload is not page.payload:
        page = replace(page, payload=payload)
    mime, label = content_type(page.content_headers)
    plain = narrowed(payload, label)
    kind, row["type_from"], is_mislabelled = choose_kind(mime, page.mime_detected, plain)
    if is_mislabelled:
        flags.add("type_mismatch")
    if kind != "other" and is_mislabelled_binary(payload, plain, page.mime_detected):
        kind = "other"
        flags.add("binary_content")
    text: dict[str, Any] | None = None
    links: tuple[Link, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    if kind != "other":
        decoded = decode(payload, label, markup=kind != "text")
        if not decoded.clean:
            flags.add("charset_mismatch")
        row["charset_detected"], row["charset_detector"] = decoded.charset, decoded.detector
        if options.text_simhash:
            row["text_simhash"] = text_simhash(decoded.text)
        if not is_robots_txt(page):
            text, links, items = _parse_kind(kind, page, decoded, row, options, flags)
    elif is_pdf(payload):
        pdf = read_pdf(payload, options.limits, cut=page.truncated is not None or "payload_cut" in flags)
        text = _document_row(page, pdf, options, flags)
    if text is None and "binary_content" not in flags and is_unread_text(mime, kind, payload, plain):
        flags.add("text_unread")
    if text is not None:
        _bound(text, options.limits.text_chars, flags)
    row["flags"] = sorted(flags) or None
    return ParsedPage(page_keys(page), row, text, links, items)


def _bound(row: dict[str, Any], max_chars: int, flags: set[str]) -> None:
    for name in _TEXTS:
        if len(value := row.get(name) or "") > max_chars:
            row[name] = value[:max_chars]
            flags.add("text_cut")


def _parse_kind(
    kind: Kind, page: PageInput, decoded: Decoded, row: dict[str, Any], options: ParseOptions, flags: set[str]
) -> tuple[dict[str, Any] | None, tuple[Link, ...], tuple[dict[str, Any], ...]]:
    if kind == "html":
        return *_html(page, decoded, row, options, flags), ()
    if kind in ("feed", "xml"):
        base = resolve_header(page.url, header(page.http_headers, "content-location") or "") or page.url
        feed = parse_feed(decoded.text, options.limits, base)
        if feed is not None:
            rows = feed_rows(feed, base, options.limits)
            flags |= feed.flags
            row["parsed_as"], row["content"], row["feed"] = "feed", rows.content, rows.feed
            text = _text_row(page, rows.text["text"], options) | rows.text | {"text_type": "feed"}
            return text, rows.links, rows.items
        if kind == "feed":
            flags.add("feed_unreadable")
            if root_element(narrowed(page.payload)) == "html":
                return *_html(page, decoded, row, options, flags), ()
    document = read_other(kind, decoded.text, page, options)
    return (_document_row(page, document, options, flags), document.links, ()) if document else (None, (), ())


def _document_row(
    page: PageInput, document: TextDocument, options: ParseOptions, flags: set[str]
) -> dict[str, Any] | None:
    """Returns the text row of a document that is neither HTML nor a feed; ``None`` if it has no text."""
    flags |= document.flags
    if not document.text and document.title is None and document.author is None:
        return None
    row = _text_row(page, document.text, options)
    row |= {"text_type": document.kind, "title": document.title, "author": document.author}
    if options.main_content and document.main_content:
        row |= {"main_content": document.main_content, "main_content_extractor": document.extractor}
        row |= main_text_signals(document.main_content)
    return row


def _html(
    page: PageInput, decoded: Decoded, row: dict[str, Any], options: ParseOptions, flags: set[str]
) -> tuple[dict[str, Any], tuple[Link, ...]]:
    limits = options.limits
    utf8 = without_mark(page.payload, "UTF-8") if decoded.clean and decoded.charset == "UTF-8" else None
    markup = decoded.text
    if is_xml(row["mime_type"]) and (html_text := as_html(markup)) is not None:
        markup, utf8 = html_text, None
    wants_main = options.main_content
    document = parse_html(markup, page.url, limits, utf8=utf8, charset=decoded.charset, with_tables=wants_main)
    about = read_page_metadata(page, limits, document)
    main = None
    if wants_main and document.work <= limits.extractor_work:
        within_limits = markup if document.cut is None else document.cut.decode("utf-8", "replace")
        main = extract(document, within_limits, with_markdown=options.markdown, limits=limits)
    row["parsed_as"] = "html"
    row["content"] = {"type": "html-doc", "title": document.title, "meta_tags": document.meta_tags or None}
    row.update(about.columns)
    body = full_text(document.title, meta_description(document.meta_tags), document.body_text)
    text = _text_row(page, body, options) | about.facts._asdict() | text_columns(about.columns)
    if main is not None:
        if main.cut:
            document.flags.add("text_cut")
        text["main_content"], text["main_content_extractor"] = main.text, main.extractor
        text["main_content_markdown"] = main.markdown
        text |= main_text_signals(main.text)
    if wants_main and (main is None or not main.is_complete):
        document.flags.add("main_content_left_out")
    text["text_type"] = "html"
    text["html_lang"] = document.html_attributes.get("lang") or document.html_attributes.get("xml:lang")
    text["open_graph"] = open_graph(document.meta_tags) or None
    text["json_ld"], text["json_ld_types"] = (
        about.json_ld.documents or None,
        about.json_ld.all_types() or None,
    )
    flags |= document.flags
    return text, tuple(document.links)


def main_text_signals(main_text: str | None) -> dict[str, Any]:
    """Returns fingerprints and quality metrics of a page's main text."""
    metrics = quality(main_text)
    return fingerprint(main_text)._asdict() | {"quality": metrics and metrics._asdict()}


def _text_row(page: PageInput, text: str, options: ParseOptions) -> dict[str, Any]:
    row: dict[str, Any] = {"text": text}
    if options.language:
        languages = detect_languages(text, content_language=header(page.http_headers, "content-language"))
        row["content_languages"], row["language_reliable"] = languages.codes, languages.reliable
    return row
