"""Pages out of WAT and WET files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cc_pipeline.archive.http import first_values
from cc_pipeline.archive.wat import NO_HTML, WatHtml, WatLink, WatRecord, iter_wat
from cc_pipeline.archive.wet import iter_wet
from cc_pipeline.documents.headers import header, original_length, was_gzip
from cc_pipeline.documents.html.tree import META_KEYS
from cc_pipeline.documents.html.urls import domain_of, resolver
from cc_pipeline.documents.legacy2012.mapping import exchange_row, page_keys
from cc_pipeline.documents.page import Limits, Link, PageInput, ParsedPage
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.stages.source_files import SourceFile
from cc_pipeline.wholefiles.pages import SourcePage, page_input, text_row

_WAT_PARSER = "commoncrawl-wat"
_DERIVED = re.compile(
    r"((?:crawl-data|projects/[^/]+)/[^/]+/segments/[^/]+)/(?:wat|wet)/([^/]+)\.warc\.(?:wat|wet)\.gz\Z"
)
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_NOT_ATTRIBUTES = frozenset({"path", "url", "text"})
_LIMITS = Limits()


def warc_key(location: str) -> str | None:
    """The key of the WARC file that a WAT or WET file is about, if its own path follows the bucket's layout."""
    found = _DERIVED.search(location)
    return f"{found.group(1)}/warc/{found.group(2)}.warc.gz" if found else None


def wat_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """One page per response described; records about requests and crawler metadata are skipped."""
    described = warc_key(file.location)
    for record in iter_wat(path, file.location):
        if isinstance(record, DataFault):
            yield record
        elif record.record_type == "response":
            yield _page(file, record, described) if record.url else _nameless(file, record)


def _nameless(file: SourceFile, record: WatRecord) -> DataFault:
    return DataFault(DataKind.MALFORMED, file.location, record.offset, "a response without an address")


def _page(file: SourceFile, record: WatRecord, described: str | None) -> ParsedPage:
    own = first_values(record.record_headers)
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
        server_ip=own.get("warc-ip-address"),
        truncated=own.get("warc-truncated"),
        mime_detected=own.get("warc-identified-payload-type"),
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
    """Sizes from the WAT record. For other pages they are taken from the payload."""
    declared = original_length(page.http_headers)
    gzipped = was_gzip(page.http_headers)
    travelled = declared if gzipped and declared is not None and page.truncated is None else entity_length
    sizes = {"content_len": declared if declared is not None else entity_length, "download_size": travelled}
    return sizes | {"gunzip_content_len": entity_length} if gzipped else sizes


def _is_html(page: PageInput) -> bool:
    declared = (header(page.http_headers, "content-type") or "").partition(";")[0].strip().lower()
    return (page.mime_detected or declared) in _HTML_TYPES


def _meta_tags(html: WatHtml) -> list[dict[str, Any]]:
    tags = []
    for pairs in html.metas:
        attributes = dict(pairs)
        name = next((attributes[key] for key in META_KEYS if key in attributes), None)
        tags.append({"name": name, "content": attributes.get("content"), "attributes": attributes})
    return tags


def _links(url: str, html: WatHtml, flags: set[str]) -> Iterator[Link]:
    resolve = resolver(url)
    if html.base:
        base, base_host = resolve(html.base)
        if base and base_host:
            resolve = resolver(base)
        else:
            flags.add("base_unusable")
    found = [link for group in (html.head_links, html.scripts, html.links) for link in group]
    kept = [link for link in found if link.url and link.url[0] != "#"]
    if len(kept) > _LIMITS.links:
        flags.add("links_cut")
    for link in kept[: _LIMITS.links]:
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


_WET_PARSER = "commoncrawl-wet"


def wet_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """One page with text and nothing else per ``conversion`` record.

    A WET file does not say where in its WARC file a record lies: ``warc_record_offset`` stays empty, and
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
