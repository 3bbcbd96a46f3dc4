"""WARC and ARC records as Common Crawl wrote them, around one HTTP exchange."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cc_pipeline.commoncrawl.crawls import UNRELIABLE_DIGEST_CRAWLS
from cc_pipeline.testing.mini_crawl.bodies import LANGUAGES
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, sha1_base32

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An HTTP request with its answer, and the crawler's detections.

    ``headers`` are the server's own without ``Content-Length``, ``Content-Encoding`` and ``Transfer-Encoding``:
    they depend on ``body`` (decoded), ``encoding`` (``gzip``, ``br`` or ``None``), ``chunked`` and ``wire_length``
    (bytes as sent). ``mime``, ``mime_detected``, ``charset`` and ``languages`` are written as in Common Crawl's
    index; ``truncated`` is the reason or ``None``; ``redirect`` the absolute target of a redirect. ``record_type`` is
    ``response`` or ``revisit``. ``title`` is the title of a complete HTML page.
    """

    url: str
    kind: str
    fetched: datetime
    status: int
    status_line: str
    headers: Headers
    body: bytes
    encoding: str | None
    chunked: bool
    wire_length: int
    server_ip: str
    mime: str | None
    mime_detected: str
    charset: str | None
    languages: str | None
    truncated: str | None
    redirect: str | None
    record_type: str
    fetch_milliseconds: int
    title: str | None

    @property
    def subset(self) -> str:
        """The subset of the index, which is also the folder in the segment."""
        if self.kind == "robots":
            return "robotstxt"
        return "warc" if self.status == 200 else "crawldiagnostics"


def file_description(name: str, created: datetime) -> bytes:
    """Returns the first record of an ARC file."""
    body = "1 0 CommonCrawl\nURL IP-address Archive-date Content-type Archive-length\n"
    return f"filedesc://{name} 0.0.0.0 {created:%Y%m%d%H%M%S} text/plain {len(body)}\n{body}\n".encode()


def arc_record(exchange: Exchange) -> bytes:
    """Returns the record of one capture. The HTTP ``Content-Length`` is the sent one, not that of the stored body."""
    headers = list(exchange.headers)
    if exchange.chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    else:
        headers.append(("Content-Length", str(exchange.wire_length)))
    if exchange.encoding is not None:
        headers.append(("Content-Encoding", exchange.encoding))
    if exchange.charset is not None:
        headers.append(("x-commoncrawl-DetectedCharset", exchange.charset))
    if exchange.truncated is not None:
        headers.append(("x-commoncrawl-ContentTruncated", "TruncatedInDownload"))
    lines = [exchange.status_line, *(f"{name}:{value}" for name, value in headers)]
    content = "\r\n".join(lines).encode() + b"\r\n\r\n" + exchange.body + b"\n"
    mime = exchange.mime or "unknown"
    line = f"{exchange.url} {exchange.server_ip} {exchange.fetched:%Y%m%d%H%M%S} {mime} {len(content)}\n"
    return line.encode() + content


_REVISIT_PROFILE = "http://netpreserve.org/warc/1.0/revisit/server-not-modified"


def warcinfo(crawl: CrawlSpec, file_name: str, started: datetime, record_id: uuid.UUID) -> bytes:
    """Returns the first record of a WARC file."""
    fields = [
        ("isPartOf", crawl.id),
        ("publisher", "Common Crawl"),
        ("description", f"Wide crawl of the web for {crawl.start:%B %Y}"),
        ("operator", "Mini Crawl (crawl@example.com)"),
        ("hostname", "ip-192-0-2-1"),
        ("software", "minicrawl"),
        ("robots", "checked via crawler-commons"),
        ("format", "WARC File Format 1.1"),
        ("conformsTo", "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
    ]
    block = "".join(f"{name}: {value}\r\n" for name, value in fields).encode()
    headers = [
        ("WARC-Type", "warcinfo"),
        ("WARC-Date", _date(started)),
        ("WARC-Record-ID", f"<urn:uuid:{record_id}>"),
        ("Content-Length", str(len(block))),
        ("Content-Type", "application/warc-fields"),
        ("WARC-Filename", file_name),
        ("WARC-Block-Digest", "sha1:" + sha1_base32(block)),
    ]
    return _record(headers, block)


def request_record(exchange: Exchange, info_id: uuid.UUID, record_id: uuid.UUID) -> bytes:
    """Returns the record of the crawler's request."""
    host_and_path = exchange.url.partition("://")[2]
    host, slash, path = host_and_path.partition("/")
    block = (
        f"GET {slash}{path} HTTP/1.1\r\nUser-Agent: CCBot/2.0 (https://commoncrawl.org/faq/)\r\n"
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n"
        f"Accept-Encoding: br,gzip\r\nHost: {host}\r\nConnection: Keep-Alive\r\n\r\n"
    ).encode()
    headers = [
        *_common("request", exchange, record_id, info_id, len(block)),
        ("WARC-IP-Address", exchange.server_ip),
        ("WARC-Target-URI", exchange.url),
        *_digests(b"", block),
    ]
    return _record(headers, block)


def response_record(
    crawl: CrawlSpec, exchange: Exchange, info_id: uuid.UUID, request_id: uuid.UUID, record_id: uuid.UUID
) -> bytes:
    """Returns the record of the answer, with the body stored decoded.

    A revisit has only headers, and since CC-MAIN-2018-39 no payload digest. In CC-MAIN-2018-34 a surplus empty line
    precedes the body.
    """
    lines = [exchange.status_line, *(f"{name}: {value}" for name, value in _stored_headers(crawl, exchange))]
    block = "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + exchange.body
    revisit = exchange.record_type == "revisit"
    if crawl.id in UNRELIABLE_DIGEST_CRAWLS and not revisit:
        block = block.replace(b"\r\n\r\n", b"\r\n\r\n\r\n", 1)
    headers = [
        *_common(exchange.record_type, exchange, record_id, info_id, len(block)),
        ("WARC-Concurrent-To", f"<urn:uuid:{request_id}>"),
        ("WARC-IP-Address", exchange.server_ip),
        ("WARC-Target-URI", exchange.url),
    ]
    if crawl.protocols:
        secure = exchange.url.startswith("https:")
        headers.append(("WARC-Protocol", "h2" if secure else "http/1.1"))
        if secure:
            headers += [("WARC-Protocol", "tls/1.3"), ("WARC-Cipher-Suite", "TLS_AES_128_GCM_SHA256")]
    if revisit:
        headers.append(("WARC-Profile", _REVISIT_PROFILE))
    if not revisit or not crawl.since("CC-MAIN-2018-39"):
        headers += _digests(exchange.body, block)
    else:
        headers.append(("WARC-Block-Digest", "sha1:" + sha1_base32(block)))
    if exchange.truncated is not None and crawl.since("CC-MAIN-2019-47"):
        headers.append(("WARC-Truncated", exchange.truncated))
    headers.append(("WARC-Identified-Payload-Type", exchange.mime_detected))
    return _record(headers, block)


def metadata_record(
    crawl: CrawlSpec, exchange: Exchange, info_id: uuid.UUID, response_id: uuid.UUID, record_id: uuid.UUID
) -> bytes:
    """Returns the record of the crawler's detections; charset and languages since CC-MAIN-2018-34."""
    lines = [f"fetchTimeMs: {exchange.fetch_milliseconds}"]
    if crawl.since("CC-MAIN-2018-34"):
        if exchange.charset is not None:
            lines.append(f"charset-detected: {exchange.charset}")
        if exchange.languages is not None:
            lines.append(f"languages-cld2: {_cld2(exchange)}")
    block = ("\r\n".join(lines) + "\r\n\r\n").encode()
    headers = [
        *_common("metadata", exchange, record_id, info_id, len(block)),
        ("WARC-Concurrent-To", f"<urn:uuid:{response_id}>"),
        ("WARC-Target-URI", exchange.url),
        *_digests(block, block),
    ]
    return _record(headers, block)


def _stored_headers(crawl: CrawlSpec, exchange: Exchange) -> Headers:
    """Returns the server's headers as each era of Common Crawl stores them.

    Since CC-MAIN-2018-34 those about encodings get a prefix and Content-Length is that of the stored body; from 2016
    they were dropped; before, they were kept although the body was stored decoded.
    """
    wire: list[tuple[str, str]] = []
    if exchange.chunked:
        wire.append(("Transfer-Encoding", "chunked"))
    elif exchange.record_type != "revisit":
        wire.append(("Content-Length", str(exchange.wire_length)))
    if exchange.encoding is not None:
        wire.append(("Content-Encoding", exchange.encoding))
    if crawl.since("CC-MAIN-2018-34"):
        length = [("Content-Length", str(len(exchange.body)))]
        return (*exchange.headers, *((f"X-Crawler-{name}", value) for name, value in wire), *length)
    if crawl.since("CC-MAIN-2016-01"):
        return exchange.headers
    return (*exchange.headers, *wire)


def _cld2(exchange: Exchange) -> str:
    languages = [
        {
            "code": LANGUAGES[code].html[:2],
            "code-iso-639-3": code,
            "text-covered": 0.97,
            "score": 900.0,
            "name": LANGUAGES[code].cld2.upper(),
        }
        for code in (exchange.languages or "").split(",")
    ]
    detection = {"reliable": True, "text-bytes": len(exchange.body) // 2, "languages": languages}
    return json.dumps(detection, separators=(",", ":"))


def _common(
    kind: str, exchange: Exchange, record_id: uuid.UUID, info_id: uuid.UUID, length: int
) -> list[tuple[str, str]]:
    content_type = "application/warc-fields" if kind == "metadata" else "application/http; msgtype=response"
    return [
        ("WARC-Type", kind),
        ("WARC-Date", _date(exchange.fetched)),
        ("WARC-Record-ID", f"<urn:uuid:{record_id}>"),
        ("Content-Length", str(length)),
        ("Content-Type", "application/http; msgtype=request" if kind == "request" else content_type),
        ("WARC-Warcinfo-ID", f"<urn:uuid:{info_id}>"),
    ]


def _digests(payload: bytes, block: bytes) -> list[tuple[str, str]]:
    return [
        ("WARC-Payload-Digest", "sha1:" + sha1_base32(payload)),
        ("WARC-Block-Digest", "sha1:" + sha1_base32(block)),
    ]


def _date(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _record(headers: Sequence[tuple[str, str]], block: bytes) -> bytes:
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode() + b"\r\n" + block + b"\r\n\r\n"
