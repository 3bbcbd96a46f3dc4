"""Today's pages in the form of the 2012 metadata documents: verdicts, pointers and JSON as that crawl intended them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from cc_pipeline.documents.arc_time import correct_fetch_time
from cc_pipeline.documents.headers import (
    DEFAULT_MIME,
    content_type,
    header,
    headers_map,
    original_length,
    was_gzip,
)
from cc_pipeline.documents.html.urls import resolve_header
from cc_pipeline.documents.page import Link, PageInput, ParsedPage
from cc_pipeline.documents.schemas import PARSER, PARSER_VERSION

#: Our reasons, for failures that could not happen in 2012; the others are the 2012 crawler's own words.
Failure = Literal["Missing", "ParseFailed"]

_WARC_NAME = re.compile(r"(\d{14})-\d{14}-(\d{5})\.warc\.gz\Z|CC-MAIN-(\d{14})\d*-(\d{5})-[^/]*\.warc\.gz\Z")
#: Longer numbers are no numbers of Common Crawl's, and fit no column.
_ARC_NAME = re.compile(r"/(\d{10,18})/(\d{10,18})_(\d{1,18})\.arc\.gz\Z|/(\d{10,18})_(\d{1,18})\.arc\.gz\Z")
_SEGMENT = re.compile(r"/(\d{10,18})(?:\.\d+)?/")
_SEGMENT_ID = re.compile(r"\d{1,18}(?=\.|\Z)")

#: The key of a link's own ``type`` attribute beside the tag, which has the key ``type``.
TYPE_ATTRIBUTE = "type_attribute"

_ON_SUCCESS = tuple(
    """
mime_type download_size download_truncated content_is_gzip gunzip_content_len gunzip_failed md5 charset_detected
charset_detector text_simhash parsed_as
""".split()
)
_ARCHIVE_INFO = ("arcSourceSegmentId", "arcFileDate", "arcFileParition", "arcFileOffset", "compressedSize")


class Verdict(NamedTuple):
    """``failure_reason`` and ``failure_detail`` are ``None`` exactly on SUCCESS."""

    disposition: Literal["SUCCESS", "FAILURE"]
    failure_reason: str | None
    failure_detail: str | None


def judge(url: str, http_status: int | None, redirect_to: str | None, record_type: str = "response") -> Verdict:
    """Returns the verdict on a readable response by its status. A ``resource`` record has no status: its block is the
    page."""
    if record_type == "resource":
        return Verdict("SUCCESS", None, None)
    if record_type in ("conversion", "metadata"):
        return Verdict("FAILURE", "NoData", f"URL:{url} is a {record_type} record, which holds no response")
    if http_status is None:
        return Verdict("FAILURE", "NoData", f"URL:{url} returned no readable status line")
    if 200 <= http_status <= 299:
        return Verdict("SUCCESS", None, None)
    if redirect_to is not None:
        return Verdict("FAILURE", "RedirectFailed", f"Redirect Location:{redirect_to}")
    return Verdict("FAILURE", "InvalidResponseCode", f"URL:{url} returned invalid responseCode:{http_status}")


def is_robots_txt(page: PageInput) -> bool:
    """Whether a capture is a robots.txt: the 2012 documents had none, and its row has no content."""
    if page.subset == "robotstxt":
        return True
    path = page.url.partition("://")[2].partition("/")[2]
    return path.partition("?")[0] == "robots.txt"


def page_keys(page: PageInput) -> dict[str, Any]:
    """Returns the key and provenance columns of a capture's rows."""
    return {
        "crawl": page.crawl,
        "subset": page.subset,
        "target": page.target,
        "url": page.url,
        "url_surtkey": page.url_surtkey,
        "fetch_time": page.fetch_time,
        "fetch_status": page.fetch_status if page.fetch_status is not None else page.http_status,
        "content_digest": page.content_digest,
        "warc_filename": page.warc_filename,
        "warc_record_offset": page.warc_record_offset,
        "warc_record_length": page.warc_record_length,
        "condition_match": page.condition_match,
        "domain": page.domain,
        "parser": PARSER,
        "parser_version": PARSER_VERSION,
        "source_kind": page.source_kind,
        "source_file": page.source_file or page.warc_filename,
    }


def exchange_row(page: PageInput) -> dict[str, Any]:
    """Returns the metadata of every readable response: verdict, exchange, sizes, pointer. No content."""
    status = page.http_status
    location = header(page.http_headers, "location")
    redirected = status is not None and 300 <= status <= 399 and location
    redirect_to = resolve_header(page.url, location) if redirected and location else None
    verdict = judge(page.url, status, redirect_to, page.record_type)
    mime, _ = content_type(page.content_headers)
    size = len(page.payload)
    gzipped = was_gzip(page.http_headers)
    declared = original_length(page.http_headers)
    downloaded = declared if gzipped and declared is not None and page.truncated is None else size
    row: dict[str, Any] = {
        "attempt_time": page.fetch_time,
        "fetch_time_corrected": correct_fetch_time(page),
        **verdict._asdict(),
        "redirect_to": redirect_to,
        "server_ip": page.server_ip,
        "http_result": status,
        "http_headers": headers_map(page.http_headers, page.http_status_line),
        "http_header_list": [{"name": name, "value": value} for name, value in page.http_headers],
        "content_len": declared if declared is not None else size,
        "mime_type": mime or DEFAULT_MIME,
        "download_size": downloaded,
        "archiveInfo": archive_info(page),
    }
    if page.truncated is not None:
        row["download_truncated"] = True
        row["truncated_reason"] = page.truncated
    if gzipped:
        row["content_is_gzip"] = True
        row["gunzip_content_len"] = size
    if (origin := page.redirect_from) is not None:
        row["redirect_from"] = {
            "source_url": origin.source_url,
            "http_result": origin.http_result,
            "server_ip": origin.server_ip,
            "http_headers": headers_map(origin.http_headers, origin.http_status_line),
        }
    return row


def failed_page(page: PageInput, failure: Failure, detail: str | None) -> ParsedPage:
    """Returns the one metadata row of a capture that could not be fetched, verified or parsed.

    ``page`` may have keys and no payload. ``detail`` is the stage's reason, for instance ``digest_mismatch: ...``.
    """
    row: dict[str, Any] = {
        "attempt_time": page.fetch_time,
        "disposition": "FAILURE",
        "failure_reason": failure,
        "failure_detail": detail or failure.lower(),
        "archiveInfo": archive_info(page),
    }
    if page.http_status is not None:
        row = {**exchange_row(page), **row}
    return ParsedPage(page_keys(page), row)


def archive_info(page: PageInput) -> dict[str, int | None] | None:
    """Returns the archive pointer in the numbers of 2012: segment, the file's date in milliseconds and its number, all
    from the file's name; offset and length of the record."""
    name = page.warc_filename
    if name is None and page.warc_record_offset is None:
        return None
    segment, date, part = _name_numbers(name or "")
    if segment_id := _SEGMENT_ID.match(page.warc_segment or ""):
        segment = int(segment_id[0])
    return {
        "arcSourceSegmentId": segment,
        "arcFileDate": date,
        "arcFileParition": part,
        "arcFileOffset": page.warc_record_offset,
        "compressedSize": page.warc_record_length,
    }


def _name_numbers(name: str) -> tuple[int | None, int | None, int | None]:
    """Returns segment, date (milliseconds) and number from the key of an ARC or WARC file; ``None`` for each that it
    lacks."""
    segment_match = _SEGMENT.search(name)
    segment = int(segment_match.group(1)) if segment_match else None
    if arc := _ARC_NAME.search(name):
        date, part = (arc.group(2), arc.group(3)) if arc.group(2) else (arc.group(4), arc.group(5))
        return segment, int(date), int(part)
    if warc := _WARC_NAME.search(name):
        stamp, part = (warc.group(1), warc.group(2)) if warc.group(1) else (warc.group(3), warc.group(4))
        return segment, _milliseconds(stamp), int(part)
    return segment, None, None


def _milliseconds(stamp: str) -> int | None:
    try:
        return int(datetime.strptime(stamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None


def metadata_json(row: Mapping[str, Any], links: Sequence[Link] | None = None) -> str:
    """Returns the JSON text of a page_metadata row: a row of ``parse_page`` (then ``links`` are its links), or a row of
    the table (then its links are in ``row["content"]["links"]``)."""
    return json.dumps(metadata_object(row, links), ensure_ascii=False, separators=(",", ":"))


def metadata_object(row: Mapping[str, Any], links: Sequence[Link] | None = None) -> dict[str, Any]:
    """Returns the same as an object."""
    out: dict[str, Any] = {}
    _put(out, "attempt_time", _millis(row.get("attempt_time")))
    out["disposition"] = row["disposition"]
    if (origin := row.get("redirect_from")) is not None:
        out["redirect_from"] = _redirect(origin)
    if row["disposition"] != "SUCCESS":
        out["failure_reason"] = row.get("failure_reason")
        out["failure_detail"] = row.get("failure_detail")
    else:
        _put_success(out, row, links)
    if (info := row.get("archiveInfo")) is not None:
        out["archiveInfo"] = {name: info[name] for name in _ARCHIVE_INFO if info.get(name) is not None}
    return out


def _put_success(out: dict[str, Any], row: Mapping[str, Any], links: Sequence[Link] | None) -> None:
    _put(out, "server_ip", row.get("server_ip"))
    _put(out, "http_result", row.get("http_result"))
    out["http_headers"] = _pairs(row.get("http_headers"))
    _put(out, "content_len", row.get("content_len"))
    for name in _ON_SUCCESS:
        _put(out, name, row.get(name))
    content = row.get("content")
    if content is None:
        return
    if content["type"] == "html-doc":
        link_rows = content.get("links")
        if links is not None:
            link_rows = [link._asdict() for link in links if link.item_index is None and link.is_document_link]
        out["content"] = html_doc(content, link_rows)
    else:
        out["content"] = _feed(content)


def _put(out: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        out[name] = value


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _pairs(value: Any) -> dict[str, Any]:
    """Returns a map column as a dictionary; Arrow gives pairs."""
    return dict(value) if value is not None else {}


def _redirect(origin: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("source_url", "http_result", "server_ip"):
        _put(out, name, origin.get(name))
    out["http_headers"] = _pairs(origin.get("http_headers"))
    return out


def html_doc(content: Mapping[str, Any], links: Iterable[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Returns an ``html-doc`` object."""
    out: dict[str, Any] = {"type": "html-doc"}
    _put(out, "title", content.get("title") or None)
    if meta_tags := content.get("meta_tags"):
        out["meta_tags"] = [_pairs(tag["attributes"]) for tag in meta_tags]
    if written := [_link(link) for link in links or ()]:
        out["links"] = written
    return out


def _link(link: Mapping[str, Any]) -> dict[str, Any]:
    href = link.get("url") or link.get("href")
    attributes = _pairs(link.get("attributes"))
    type_attribute, tag = attributes.pop("type", None), link.get("type")
    if type_attribute is not None and tag is not None:
        attributes[TYPE_ATTRIBUTE] = type_attribute
    return {**attributes, "type": tag or type_attribute, "text": link.get("text") or "", "href": href}


def _feed(content: Mapping[str, Any]) -> dict[str, Any]:
    rss = content["type"] == "rss-feed"
    out: dict[str, Any] = {"type": content["type"]}
    _put(out, "title", content.get("title"))
    _put(out, "link", _feed_links(content.get("link"), rss=rss))
    _put(out, "description", content.get("description"))
    _put(out, "updated", _millis(content.get("updated")))
    _put(out, "categories", content.get("categories"))
    _put(out, "generator", content.get("generator"))
    if rss:
        _put(out, "ttl", content.get("ttl"))
    else:
        _put(out, "authors", _authors(content.get("authors")))
    out["items"] = [_item(item, rss=rss) for item in content.get("items") or ()]
    return out


def _item(item: Mapping[str, Any], *, rss: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    _put(out, "title", item.get("title"))
    _put(out, "description", item.get("description"))
    _put(out, "link", _feed_links(item.get("link"), rss=rss))
    if rss:
        _put(out, "author", item.get("author"))
        _put(out, "comments", item.get("comments"))
        _put(out, "guid", item.get("guid"))
    else:
        _put(out, "self", _feed_links(item.get("self"), rss=False))
        _put(out, "replies", _feed_links(item.get("replies"), rss=False))
        _put(out, "authors", _authors(item.get("authors")))
    _put(out, "categories", item.get("categories"))
    _put(out, "published", _millis(item.get("published")))
    _put(out, "updated", _millis(item.get("updated")))
    bodies = [html_doc(body, body.get("links")) for body in item.get("content") or ()]
    _put(out, "content", _unwrap_single(bodies))
    return out


def _feed_links(links: Sequence[Mapping[str, Any]] | None, *, rss: bool) -> Any:
    names = ("href",) if rss else ("type", "href", "rel", "title")
    written = [{name: link[name] for name in names if link.get(name)} for link in links or ()]
    return _unwrap_single(written[:1] if rss else written)


def _unwrap_single(values: list[dict[str, Any]]) -> Any:
    return (values[0] if len(values) == 1 else values) or None


def _authors(authors: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    people = [{key: author[key] for key in ("name", "url") if author.get(key)} for author in authors or ()]
    return [author for author in people if author.get("name")] or None
