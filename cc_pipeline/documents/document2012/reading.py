"""Reads metadata documents of 2012 (JSON) into the same rows as today's pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cc_pipeline.documents.document2012.json import TYPE_ATTRIBUTE, page_keys
from cc_pipeline.documents.html.tree import META_KEYS
from cc_pipeline.documents.html.urls import domain_of, host_of
from cc_pipeline.documents.page import LINK_ATTRIBUTE, Link, PageInput, ParsedPage
from cc_pipeline.errors import DataFault, DataKind

#: Maximum characters of a document, each of which may cost 28 bytes of memory. A page of 5 MiB has half of it at most.
MAX_DOCUMENT: Final = 32 << 20

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT = tuple("disposition failure_reason failure_detail server_ip mime_type md5 charset_detected parsed_as".split())
_NUMBERS = ("http_result", "content_len", "download_size", "gunzip_content_len", "charset_detector", "text_simhash")
_TRUTHS = ("download_truncated", "content_is_gzip", "gunzip_failed")
_NESTED = ("attempt_time", "redirect_from", "http_headers", "content", "archiveInfo")
_DOCUMENT_KEYS = frozenset((*_TEXT, *_NUMBERS, *_TRUTHS, *_NESTED))
_LINK_RELATIONS = frozenset({"stylesheet", "alternate", "icon", "canonical", "next", "prev", "search", "shortcut"})
#: The parser of rows from files of 2012.
PARSER_OF_2012: Final = "commoncrawl-2012"


def read_metadata_json(text: str, page: PageInput) -> ParsedPage:
    """Reads rows from one value of a ``metadata-nnnnn`` file.

    ``page`` has the keys (crawl, URL, target, source file) and no payload; fetch time, status and archive pointer are
    filled from the document if ``page`` has none. The parser column is ``commoncrawl-2012``. Raises ``DataFault`` if
    the text is not such a document.
    """
    source = page.source_file or page.url
    try:
        if len(text) > MAX_DOCUMENT:
            raise ValueError(f"it is longer than the bound of {MAX_DOCUMENT >> 20} MiB")
        document = json.loads(text, strict=False)
        if not isinstance(document, dict) or "disposition" not in document:
            raise ValueError("no metadata document")
        return _read(document, page)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise DataFault(DataKind.MALFORMED, source, None, f"metadata of {page.url}: {error}") from error


def _read(document: dict[str, Any], page: PageInput) -> ParsedPage:
    row: dict[str, Any] = {name: _text(document.get(name)) for name in _TEXT if document.get(name) is not None}
    row |= {name: _number(document[name]) for name in _NUMBERS if document.get(name) is not None}
    row |= {name: bool(document[name]) for name in _TRUTHS if document.get(name) is not None}
    row["attempt_time"] = _moment(document.get("attempt_time"))
    if (origin := document.get("redirect_from")) is not None:
        row["redirect_from"] = {
            "source_url": _text(origin.get("source_url")),
            "http_result": _number(origin.get("http_result"), 32),
            "server_ip": _text(origin.get("server_ip")),
            "http_headers": _words(origin.get("http_headers") or {}),
        }
    if (headers := document.get("http_headers")) is not None:
        row["http_headers"] = _words(headers)
    if (info := document.get("archiveInfo")) is not None:
        row["archiveInfo"] = {name: _number(value) for name, value in info.items()}
    links: tuple[Link, ...] = ()
    items: tuple[dict[str, Any], ...] = ()
    if (content := document.get("content")) is not None:
        if content["type"] == "html-doc":
            row["content"] = _html_doc(content)
            links = tuple(_links(content.get("links"), None))
        elif content["type"] in ("rss-feed", "atom-feed"):
            row["content"], links, items = _feed(content)
        else:
            raise ValueError("content of an unknown type")
    if not _DOCUMENT_KEYS.issuperset(document):
        row["flags"] = ["unknown_keys"]
    keys = page_keys(_with_pointer(page, row)) | {"parser": PARSER_OF_2012}
    return ParsedPage(keys, row, None, links, items)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"text expected, not {type(value).__name__}")


def _number(value: Any, bits: int = 64) -> int | None:
    if value is None:
        return None
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{number} is no {bits}-bit number")
    return number


def _words(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(text) or "" for name, text in value.items()}


def _texts(value: Any) -> list[str | None] | None:
    return None if value is None else [_text(text) for text in _check_list(value)]


def _check_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"list expected, not {type(value).__name__}")
    return value


def _with_pointer(page: PageInput, row: Mapping[str, Any]) -> PageInput:
    info = row.get("archiveInfo") or {}
    name = page.warc_filename
    if name is None and len(info) >= 3:
        name = "parse-output/segment/{arcSourceSegmentId}/{arcFileDate}_{arcFileParition}.arc.gz".format(**info)
    return replace(
        page,
        fetch_time=page.fetch_time or row["attempt_time"],
        http_status=page.http_status if page.http_status is not None else row.get("http_result"),
        warc_filename=name,
        warc_record_offset=_coalesce(page.warc_record_offset, info.get("arcFileOffset")),
        warc_record_length=_coalesce(page.warc_record_length, info.get("compressedSize")),
    )


def _coalesce(first: int | None, second: int | None) -> int | None:
    return first if first is not None else second


def _moment(millis: Any) -> datetime | None:
    return None if millis is None else _EPOCH + timedelta(milliseconds=int(millis))


def _html_doc(content: Mapping[str, Any]) -> dict[str, Any]:
    tags = _check_list(content.get("meta_tags") or [])
    return {
        "type": "html-doc",
        "title": _text(content.get("title")),
        "meta_tags": [_meta_tag(_words(tag)) for tag in tags] or None,
    }


def _meta_tag(attributes: dict[str, str]) -> dict[str, Any]:
    name = next((attributes[key] for key in META_KEYS if key in attributes), None)
    return {"name": name, "content": attributes.get("content", attributes.get("value")), "attributes": attributes}


def _links(links: Any, item_index: int | None) -> list[Link]:
    return [_link(_words(link), item_index) for link in _check_list(links or [])]


def _link(attributes: dict[str, str], item_index: int | None) -> Link:
    kind, href, text = (attributes.pop(name, None) for name in ("type", "href", "text"))
    if TYPE_ATTRIBUTE in attributes and kind in LINK_ATTRIBUTE:
        attributes["type"] = attributes.pop(TYPE_ATTRIBUTE)  # written by us
    elif kind is not None and kind not in LINK_ATTRIBUTE:
        attributes["type"] = kind
        kind = _tag_of(kind, attributes)
    host = host_of(href) if href else None
    domain = domain_of(host) if host else None
    return Link(kind, href, href, text, attributes.get("rel"), attributes, host, domain, item_index)


def _tag_of(kind: str, attributes: Mapping[str, str]) -> str | None:
    """Returns the tag of a link whose type attribute overwrote it, if its other attributes show it."""
    if _LINK_RELATIONS.intersection(attributes.get("rel", "").lower().split()):
        return "link"
    if "javascript" in kind.lower() and "rel" not in attributes:
        return "script"
    return None


def _feed(content: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Link, ...], tuple[dict[str, Any], ...]]:
    row: dict[str, Any] = {name: _text(content.get(name)) for name in ("type", "title", "description", "generator")}
    row |= {"published": _moment(content.get("published")), "updated": _moment(content.get("updated"))}
    row |= {"categories": _texts(content.get("categories")), "ttl": _number(content.get("ttl"), 32)}
    row |= {"link": _feed_links(content.get("link")), "authors": _authors(content.get("authors"))}
    links: list[Link] = []
    items: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for index, item in enumerate(_check_list(content.get("items") or [])):
        nested: dict[str, Any] = {
            name: _text(item.get(name)) for name in ("title", "description", "author", "comments", "guid")
        }
        nested |= {"authors": _authors(item.get("authors")), "categories": _texts(item.get("categories"))}
        nested |= {name: _feed_links(item.get(name)) for name in ("link", "self", "replies")}
        nested |= {name: _moment(item.get(name)) for name in ("published", "updated")}
        bodies = []
        for body in _ensure_list(item.get("content")) or ():
            body_links = _links(body.get("links"), index)
            links += body_links
            bodies.append({**_html_doc(body), "links": [link._asdict() for link in body_links] or None})
        nested["content"] = bodies or None
        items.append(nested)
        rows.append(_item_row(nested, row, index))
    row["items"] = items
    return row, tuple(links), tuple(rows)


def _feed_links(value: Any) -> list[dict[str, str]] | None:
    links = _ensure_list(value)
    return None if links is None else [_words(link) for link in links]


def _authors(value: Any) -> list[dict[str, str]] | None:
    return None if value is None else [_words(author) for author in _check_list(value)]


def _item_row(item: dict[str, Any], feed: Mapping[str, Any], index: int) -> dict[str, Any]:
    links = [link for name in ("link", "self", "replies") for link in item[name] or ()]
    first = next((author["name"] for author in item["authors"] or () if author.get("name")), None)
    return {
        **{name: item[name] for name in ("title", "description", "authors", "categories", "comments", "guid")},
        **{name: item[name] for name in ("published", "updated")},
        "feed_type": feed["type"],
        "feed_title": feed["title"],
        "item_index": index,
        "link": item["link"][0].get("href") if item["link"] else None,
        "links": links or None,
        "author": item["author"] or first,
    }


def _ensure_list(value: Any) -> list[Any] | None:
    if value is None:
        return None
    return value if isinstance(value, list) else [value]
