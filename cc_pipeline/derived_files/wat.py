"""Reads WAT and WET files, Common Crawl's own extracts: a JSON document a record with its page's links, and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, ByteSource
from cc_pipeline.archive.http import first_values, warc_date
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import Headers
from cc_pipeline.archive.warc import iter_located
from cc_pipeline.derived_files.json_text import load_json
from cc_pipeline.errors import DataFault, DataKind

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None

_NOTHING: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class WetRecord:
    """The text of one page. ``offset`` and ``length`` (bytes) locate its record in the WET file.

    ``fetch_time`` is that of the page. ``languages`` are ISO 639-3 codes, best first, since 2020. ``flags``
    as of ``ArchivedRecord``.
    """

    offset: int
    length: int | None
    url: str
    fetch_time: datetime | None
    text: str
    languages: tuple[str, ...]
    digest: str
    flags: tuple[str, ...]


def iter_wet(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[WetRecord | DataFault]:
    """Yields the texts of a WET file in order, and a ``DataFault`` for each unreadable range of bytes.

    Skips the file's own ``warcinfo``. Bytes that are not UTF-8 become replacement characters.
    """
    for stored in iter_located(stream, source, limit):
        if isinstance(stored, DataFault):
            yield stored
        elif stored.record.record_type == "conversion":
            yield _wet(stored)
        elif stored.record.record_type != "warcinfo":
            yield DataFault(
                DataKind.MALFORMED, source, stored.offset, f"a {stored.record.record_type} record in a WET file"
            )


def _wet(stored: StoredRecord) -> WetRecord:
    record = stored.record
    values = first_values(record.record_headers)
    languages = values.get("warc-identified-content-language", "")
    return WetRecord(
        offset=stored.offset,
        length=stored.length,
        url=record.url,
        fetch_time=record.fetch_time,
        text=record.payload.decode("utf-8", "replace"),
        languages=tuple(code for code in (part.strip() for part in languages.split(",")) if code),
        digest=record.payload_digest,
        flags=record.flags,
    )


@dataclass(frozen=True, slots=True)
class WatLink:
    """A link: ``path`` is the element and attribute (``A@/href``), ``url`` the address as written in the page;
    ``attributes`` are all members, those two included, in order."""

    path: str
    url: str
    attributes: Headers


@dataclass(frozen=True, slots=True)
class WatHtml:
    """Title, base, ``meta`` elements (their attributes in order), links of the head, scripts, links of the body."""

    title: str | None
    base: str | None
    metas: tuple[Headers, ...]
    head_links: tuple[WatLink, ...]
    scripts: tuple[WatLink, ...]
    links: tuple[WatLink, ...]


NO_HTML: Final = WatHtml(None, None, (), (), (), ())


def wat_html(html: Mapping[str, Json]) -> WatHtml:
    """Reads an ``HTML-Metadata`` object; skips members of an unusual shape."""
    head = member(html, "Head")
    return WatHtml(
        title=text(head, "Title"),
        base=text(head, "Base"),
        metas=tuple(headers(meta) for meta in _objects(head, "Metas")),
        head_links=_links(head, "Link"),
        scripts=_links(head, "Scripts"),
        links=_links(html, "Links"),
    )


def _links(parent: Mapping[str, Json], name: str) -> tuple[WatLink, ...]:
    objects = _objects(parent, name)
    return tuple(
        WatLink(text(link, "path") or "", text(link, "url") or text(link, "href") or "", headers(link))
        for link in objects
    )


def member(parent: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Returns the object called ``name``; an empty one if there is none."""
    value = parent.get(name)
    return value if isinstance(value, dict) else _NOTHING


def text(parent: Mapping[str, Json], name: str) -> str | None:
    """Returns the text called ``name``; numbers as text, ``None`` for any other value."""
    value = parent.get(name)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else None


def number(parent: Mapping[str, Json], name: str) -> int | None:
    """Returns the whole number called ``name``, written as a number or as a string of at most 18 digits."""
    value = parent.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19:
        return int(value)
    return None


def headers(fields: Mapping[str, Json]) -> Headers:
    """Returns name and value of each member in order; a list means a repeated header."""
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str):
                pairs.append((name, part))
            elif isinstance(part, int | float):
                pairs.append((name, str(part)))
    return tuple(pairs)


def _objects(parent: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    value = parent.get(name)
    return [child for child in value if isinstance(child, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class WatRecord:
    """The description of one WARC record. ``offset`` and ``length`` (bytes) locate it in the WAT file.

    ``warc_filename``, ``warc_offset`` and ``warc_length`` (compressed bytes) locate the described record;
    ``record_type``, ``url``, ``fetch_time`` and ``record_headers`` are its own. ``payload_digest`` is sha1 in
    base32 without a prefix. HTTP members are empty for records that are no HTTP message.
    """

    offset: int
    length: int | None
    warc_filename: str | None
    warc_offset: int | None
    warc_length: int | None
    record_type: str
    url: str
    fetch_time: datetime | None
    record_headers: Headers
    content_type: str | None
    payload_digest: str | None
    http_status: int | None
    http_reason: str | None
    http_version: str | None
    http_headers: Headers
    entity_length: int | None
    html: WatHtml


def iter_wat(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[WatRecord | DataFault]:
    """Yields the records of a WAT file in order, and a ``DataFault`` for each unreadable range of bytes.

    Skips the file's own ``warcinfo``.
    """
    for stored in iter_located(stream, source, limit):
        if isinstance(stored, DataFault):
            yield stored
        elif stored.record.record_type == "metadata":
            yield _wat(stored, source)
        elif stored.record.record_type != "warcinfo":
            yield DataFault(
                DataKind.MALFORMED, source, stored.offset, f"a {stored.record.record_type} record in a WAT file"
            )


def _wat(stored: StoredRecord, source: str) -> WatRecord | DataFault:
    try:
        document = load_json(stored.record.payload)
    except (ValueError, RecursionError) as error:
        return DataFault(
            DataKind.MALFORMED, source, stored.offset, f"WAT record that is not read as JSON: {str(error)[:80]}"
        )
    if not isinstance(document, dict) or not isinstance(document.get("Envelope"), dict):
        return DataFault(DataKind.MALFORMED, source, stored.offset, "WAT record without an Envelope")
    return _from_json(document, stored)


def _from_json(document: Mapping[str, Json], stored: StoredRecord) -> WatRecord:
    envelope = member(document, "Envelope")
    container = member(document, "Container")
    packed = member(container, "Gzip-Metadata")
    record_fields = member(envelope, "WARC-Header-Metadata") or member(envelope, "ARC-Header-Metadata")
    payload = member(envelope, "Payload-Metadata")
    response = member(payload, "HTTP-Response-Metadata")
    request = member(payload, "HTTP-Request-Metadata")
    http = response or request
    line = member(response, "Response-Message")
    request_line = member(request, "Request-Message")
    record_type = text(record_fields, "WARC-Type")
    digest = text(record_fields, "WARC-Payload-Digest") or text(http, "Entity-Digest")
    status = number(line, "Status")
    return WatRecord(
        offset=stored.offset,
        length=stored.length,
        warc_filename=text(container, "Filename"),
        warc_offset=number(container, "Offset"),
        warc_length=number(packed, "Deflate-Length"),
        record_type=record_type or ("response" if response else "unknown"),
        url=text(record_fields, "WARC-Target-URI") or text(record_fields, "Target-URI") or stored.record.url,
        fetch_time=warc_date(text(record_fields, "WARC-Date") or "")[0],
        record_headers=headers(record_fields),
        content_type=text(payload, "Actual-Content-Type"),
        payload_digest=digest.removeprefix("sha1:") if digest else None,
        http_status=status if status is not None and 99 < status < 1000 else None,
        http_reason=text(line, "Reason"),
        http_version=text(line, "Version") or text(request_line, "Version"),
        http_headers=headers(member(http, "Headers")),
        entity_length=number(http, "Entity-Length"),
        html=wat_html(member(response, "HTML-Metadata")) if response else NO_HTML,
    )
