"""Turns SequenceFiles, WAT and WET files, which have pages without records, into the rows of parsed pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from cc_pipeline.archive.http import first_values, media_type
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.derived_files.document import read_metadata_json
from cc_pipeline.derived_files.sequencefile import SequencePair, iter_pairs
from cc_pipeline.derived_files.wat import NO_HTML, WatHtml, WatLink, WatRecord, iter_wat, iter_wet
from cc_pipeline.documents.document2012.json import exchange_row, page_keys
from cc_pipeline.documents.headers import header, original_length, was_gzip
from cc_pipeline.documents.html.text import detect_languages
from cc_pipeline.documents.html.tree import META_KEYS
from cc_pipeline.documents.html.urls import browser_resolver, domain_of
from cc_pipeline.documents.page import Limits, Link, PageInput, ParsedPage
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.workspace.source_files import ARCHIVE, SourceFile

#: A page, or the fault of an unreadable one. A page with empty ``metadata`` came from a file that has only texts.
SourcePage = ParsedPage | DataFault

_PARSER = "commoncrawl-2012"

_WAT_PARSER = "commoncrawl-wat"
_DERIVED = re.compile(
    r"((?:crawl-data|projects/[^/]+)/[^/]+/segments/[^/]+)/(?:wat|wet)/([^/]+)\.warc\.(?:wat|wet)\.gz\Z"
)
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_NOT_ATTRIBUTES = frozenset({"path", "url", "text"})
_LIMITS = Limits()

_WET_PARSER = "commoncrawl-wet"


def page_input(file: SourceFile, url: str, **fields: Any) -> PageInput:
    """Returns the keys of a page in ``file``; ``fields`` are further fields of ``PageInput``."""
    assert file.kind != ARCHIVE
    domain = host_columns(url)["url_host_registered_domain"]
    return PageInput(
        crawl=file.crawl,
        subset="warc",
        url=url,
        payload=b"",
        target=file.slug,
        url_surtkey=surt_key(url),
        domain=str(domain) if domain is not None else None,
        source_kind=file.kind,
        source_file=file.location,
        **fields,
    )


def text_row(text: str, languages: str | None = None) -> dict[str, Any]:
    """Returns a row of ``page_text`` with only the text; its languages are detected unless they are given."""
    if languages is not None:
        return {"text": text, "content_languages": languages}
    detected = detect_languages(text)
    return {"text": text, "content_languages": detected.codes, "language_reliable": detected.reliable}


def sequencefile_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """Yields one page per record: with metadata, links and feed items, or with text.

    The file's name shows which of the two it has (``metadata-…``, ``textData-…``), else its first value. Empty texts,
    which exported files have for records without one, are skipped.
    """
    pairs = iter_pairs(path, file.location)
    metadata = _has_metadata(file.location)
    if metadata is None:
        leading_pairs = list(_until_first_pair(pairs))
        first = leading_pairs[-1] if leading_pairs else None
        value = first.value if isinstance(first, SequencePair) else None
        metadata = isinstance(value, str) and value.startswith("{") and '"disposition"' in value
        pairs = chain(leading_pairs, pairs)
    for pair in pairs:
        if isinstance(pair, DataFault):
            yield pair
        elif not isinstance(pair.key, str) or not isinstance(pair.value, str):
            yield DataFault(
                DataKind.MALFORMED,
                file.location,
                pair.offset,
                "the record's key or value is not of the Hadoop class Text, so the record is skipped",
            )
        elif metadata:
            yield _metadata_page(file, pair.offset, pair.key, pair.value)
        elif pair.value:
            page = page_input(file, pair.key, archive_format="arc")
            yield ParsedPage(page_keys(page) | {"parser": _PARSER}, {}, text_row(pair.value))


def _has_metadata(location: str) -> bool | None:
    name = location.rpartition("/")[2].lower()
    if name.startswith("metadata"):
        return True
    return False if name.startswith("textdata") else None


def _until_first_pair(pairs: Iterator[SequencePair | DataFault]) -> Iterator[SequencePair | DataFault]:
    for pair in pairs:
        yield pair
        if isinstance(pair, SequencePair):
            return


def _metadata_page(file: SourceFile, offset: int, url: str, value: str) -> SourcePage:
    try:
        return read_metadata_json(value, page_input(file, url, archive_format="arc"))
    except DataFault as fault:
        return DataFault(fault.kind, file.location, offset, fault.reason)


def warc_key(location: str) -> str | None:
    """Returns the key of the WARC file that a WAT or WET file describes, if its own path has the bucket's layout."""
    match = _DERIVED.search(location)
    return f"{match.group(1)}/warc/{match.group(2)}.warc.gz" if match else None


def wat_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """Yields one page per described response; skips records about requests and crawler metadata."""
    described = warc_key(file.location)
    for record in iter_wat(path, file.location):
        if isinstance(record, DataFault):
            yield record
        elif record.record_type == "response":
            yield (
                _page(file, record, described)
                if record.url
                else DataFault(DataKind.MALFORMED, file.location, record.offset, "a response without an address")
            )


def _page(file: SourceFile, record: WatRecord, described: str | None) -> ParsedPage:
    record_fields = first_values(record.record_headers)
    name = record.warc_filename
    if described is not None and name is not None and described.endswith(f"/{name}"):
        name = described
    line = " ".join(part for part in (record.http_version, _text(record.http_status), record.http_reason) if part)
    page = page_input(
        file,
        record.url,
        fetch_time=record.fetch_time,
        fetch_status=record.http_status,
        content_digest=record.payload_digest,
        warc_filename=name,
        warc_record_offset=record.warc_offset,
        warc_record_length=record.warc_length,
        http_status=record.http_status,
        http_status_line=line or None,
        http_headers=record.http_headers,
        server_ip=record_fields.get("warc-ip-address"),
        truncated=record_fields.get("warc-truncated"),
        mime_detected=media_type(record_fields.get("warc-identified-payload-type")),
        record_headers=record.record_headers,
    )
    row = exchange_row(page) | _sizes(page, record.entity_length)
    flags: set[str] = set()
    links: tuple[Link, ...] = ()
    if row["disposition"] == "SUCCESS" and (record.html != NO_HTML or _is_html(page)):
        row["parsed_as"] = "html"
        row["content"] = {"type": "html-doc", "title": record.html.title, "meta_tags": _meta_tags(record.html) or None}
        links = tuple(_links(record.url, record.html, flags))
    row["flags"] = sorted(flags) or None
    return ParsedPage(page_keys(page) | {"parser": _WAT_PARSER}, row, None, links)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _sizes(page: PageInput, entity_length: int | None) -> dict[str, Any]:
    """Returns the sizes in the WAT record, which other pages take from the payload."""
    declared = original_length(page.http_headers)
    gzipped = was_gzip(page.http_headers)
    travelled = declared if gzipped and declared is not None and page.truncated is None else entity_length
    sizes = {"content_len": declared if declared is not None else entity_length, "download_size": travelled}
    return sizes | {"gunzip_content_len": entity_length} if gzipped else sizes


def _is_html(page: PageInput) -> bool:
    return (page.mime_detected or media_type(header(page.http_headers, "content-type"))) in _HTML_TYPES


def _meta_tags(html: WatHtml) -> list[dict[str, Any]]:
    tags = []
    for pairs in html.metas:
        attributes = dict(pairs)
        name = next((attributes[key] for key in META_KEYS if key in attributes), None)
        tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
    return tags


def _links(url: str, html: WatHtml, flags: set[str]) -> Iterator[Link]:
    resolve = browser_resolver(url)
    if html.base:
        base, base_host = resolve(html.base)
        if base and base_host:
            resolve = browser_resolver(base)
        else:
            flags.add("base_unusable")
    all_links = [link for group in (html.head_links, html.scripts, html.links) for link in group]
    usable_links = [link for link in all_links if link.url and link.url[0] != "#"]
    if len(usable_links) > _LIMITS.links:
        flags.add("links_cut")
    for link in usable_links[: _LIMITS.links]:
        absolute, host = resolve(link.url)
        yield _link(link, absolute, host)


def _link(link: WatLink, absolute: str | None, host: str | None) -> Link:
    members = dict(link.attributes)
    attributes = {name: value for name, value in members.items() if name not in _NOT_ATTRIBUTES}
    if "url" not in members:
        attributes.pop("href", None)
    # the path names element and attribute: A@/href, or STYLE/#text for an address inside a style sheet
    element = link.path.partition("@")[0].partition("/")[0].lower() or None
    domain = domain_of(host) if host else None
    return Link(element, link.url, absolute, members.get("text"), attributes.get("rel"), attributes, host, domain)


def wet_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """Yields one page per ``conversion`` record, with only its text.

    A WET file does not have the offsets of records in its WARC file: ``warc_record_offset`` stays empty, and
    ``warc_filename`` is known only from the WET file's own key.
    """
    described = warc_key(file.location)
    for record in iter_wet(path, file.location):
        if isinstance(record, DataFault):
            yield record
            continue
        if not record.url:
            yield DataFault(DataKind.MALFORMED, file.location, record.offset, "a text without an address")
            continue
        page = page_input(file, record.url, fetch_time=record.fetch_time, warc_filename=described)
        languages = ",".join(record.languages) or None
        keys = page_keys(page) | {"parser": _WET_PARSER}
        yield ParsedPage(keys, {}, text_row(record.text, languages))
