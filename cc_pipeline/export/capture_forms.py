"""Renders one capture: its page, its texts, its record, or all its metadata as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from cc_pipeline.advice import option
from cc_pipeline.archive.writing import arc_as_warc_member
from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.documents.batch.pool import parse_batches, start_early
from cc_pipeline.documents.body import is_binary
from cc_pipeline.documents.charset import decode, narrowed
from cc_pipeline.documents.headers import content_type
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.export.record_body import content_headers, read_body
from cc_pipeline.extraction.nearest_capture import Nearest, read_capture_time
from cc_pipeline.records.pages import page_of

Form = Literal["html", "body", "text", "markdown", "warc", "record", "json"]
#: Forms that need the page to be parsed.
PARSED: Final = frozenset({"text", "markdown", "json"})
#: Maximum bytes of a decoded body.
_LIMIT: Final = 64 << 20
_OPTIONS: Final = ParseOptions(markdown=True)


def render_capture(nearest: Nearest, form: Form) -> tuple[bytes, str | None]:
    """Renders a capture in ``form``. Returns the bytes, and a note for people, if any.

    ``html``: the body as UTF-8 text, whatever its charset was; binary bodies unchanged. ``body``: the exact bytes of
    the body, without codings. ``text``, ``markdown``: the main text; without one, the full text, which may be empty.
    ``warc``: a gzip member with a WARC record: the exact bytes of the archive; ARC records are converted. ``record``:
    the exact bytes of the archive, ARC or WARC. ``json``: one object.

    A page is parsed in a process of its own, with limits of time and memory. Raises ``DataFault`` if no parser can
    process it, and for an ARC record without a date, which cannot be converted; ``EnvironmentFault`` if that process
    cannot start.
    """
    if form == "record":
        return nearest.member, None
    if form == "warc":
        if nearest.row["archive_format"] != "arc":
            return nearest.member, None
        return _as_warc(
            nearest
        ), f"converted from an ARC record; {option(format='record')} gives the archive's own bytes"
    if form == "body":
        return _body(nearest), None
    if form == "html":
        return _page(nearest)
    parsed = _parse_page(nearest)
    if form == "json":
        return (_json(nearest, parsed), None)
    text = parsed.text
    main = text.get("main_content_markdown") if form == "markdown" else text.get("main_content")
    full_text = text.get("text") or ""
    note = None
    if not main:
        note = "no main text was found in the page: this is its full text" if full_text else "the page has no text"
    return _encode_text(main or full_text), note


def start_parser(form: Form | None) -> None:
    """Starts the parser process while the page is fetched, if ``form`` (``None``: any) needs it."""
    if form is None or form in PARSED:
        with suppress(OSError):  # parsing reports the error
            start_early(_OPTIONS, page_of)


class _Parsed(NamedTuple):
    """The rows of one page: of its metadata, of its text (empty if it has none), of its links."""

    metadata: Mapping[str, Any]
    text: Mapping[str, Any]
    links: list[Mapping[str, Any]]


def _as_warc(nearest: Nearest) -> bytes:
    row = nearest.row
    return arc_as_warc_member(
        nearest.record, row["warc_filename"], row["warc_record_offset"], row["warc_record_length"], nearest.address
    )


def _body(nearest: Nearest) -> bytes:
    return read_body(nearest.record, _LIMIT)


def _page(nearest: Nearest) -> tuple[bytes, str | None]:
    body = _body(nearest)
    mime, label = content_type(content_headers(nearest.record))
    if is_binary(body, narrowed(body, label)):
        return body, f"the page is no text ({mime or 'no type'}), so its bytes are given unchanged"
    decoded = decode(body, label, markup=mime != "text/plain")
    note = (
        None
        if decoded.charset == "UTF-8"
        else f"converted from {decoded.charset} to UTF-8; {option(format='body')} has the original bytes"
    )
    return decoded.text.encode("utf-8", "replace"), note


def _parse_page(nearest: Nearest) -> _Parsed:
    row = {name: nearest.row.get(name) for name in (*KEY_NAMES, "archive_format")}
    row |= {"target": "", "outcome": "fetched", "reason": None, "detail": None}
    row |= {"stored_file": nearest.row["warc_filename"], "stored_offset": nearest.row["warc_record_offset"]}
    [tables] = parse_batches([[(row, nearest.member)]], _OPTIONS, 1, page_of)
    [metadata] = tables["page_metadata"].to_pylist()
    if metadata["failure_reason"] == "ParseFailed":
        reason = f"the page could not be parsed: {metadata['failure_detail']}"
        raise DataFault(DataKind.PARSER_BROKE, str(row["stored_file"]), row["stored_offset"], reason)
    return _Parsed(metadata, next(iter(tables["page_text"].to_pylist()), {}), tables["page_links"].to_pylist())


def _json(nearest: Nearest, parsed: _Parsed) -> bytes:
    row, record, text = nearest.row, nearest.record, parsed.text
    moment = record.fetch_time or read_capture_time(row)
    meta = parsed.metadata
    document: dict[str, Any] = {
        "url": record.url or row["url"],
        "crawl": row["crawl"],
        "fetch_time": _time(moment),
        "status": record.http_status,
        "mime": record.declared_mime or content_type(record.http_headers)[0],
        "charset": meta.get("charset_detected"),
        "headers": [list(pair) for pair in record.http_headers],
        "record": {
            "source": nearest.address,
            "filename": row["warc_filename"],
            "offset": row["warc_record_offset"],
            "length": row["warc_record_length"],
            "format": row["archive_format"],
            "payload_sha1": record.payload_digest,
            "digest_check": nearest.digest_check,
            "truncated": record.truncated,
        },
        "title": text.get("title"),
        "languages": text.get("content_languages"),
        "published": _plain(text.get("published")),
        "author": text.get("author"),
        "main_text": text.get("main_content"),
        "markdown": text.get("main_content_markdown"),
        "text": text.get("text"),
        "links": [
            {"url": link["link_url"], "text": link["text"], "rel": link["rel"]}
            for link in parsed.links
            if link["link_url"]
        ],
        "flags": meta.get("flags") or [],
    }
    return (json.dumps(document, ensure_ascii=False, default=str) + "\n").encode("utf-8", "surrogateescape")


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(value: object) -> object:
    return _time(value) if isinstance(value, datetime) else value


def _encode_text(text: str) -> bytes:
    return (text if not text or text.endswith("\n") else text + "\n").encode("utf-8", "replace")
