"""A generated month of CC-NEWS: WARC files in the order of fetches, a path list, and nothing that finds a page in them.

As news-crawl writes them: StormCrawler's ``warcinfo``, then a request and a response for each fetch; bodies decoded,
headers about encodings masked and ``Content-Length`` that of the stored body; no metadata records and no
``WARC-Identified-Payload-Type``; IPv4 and IPv6; later files as WARC/1.1.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from cc_pipeline.commoncrawl.crawls import unlisted_crawl
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import UserInputError
from cc_pipeline.testing.mini_crawl import spec as seeded
from cc_pipeline.testing.mini_crawl.bodies import LANGUAGES, feed, html_page
from cc_pipeline.testing.mini_crawl.spec import MemberFile, gzip_member
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth

#: Publishers by domain: the language they write in, and their hosts.
PUBLISHERS: Final = {
    "harbour-herald-example.com": ("eng", ("www.harbour-herald-example.com", "sport.harbour-herald-example.com")),
    "hafenbote-example.de": ("deu", ("www.hafenbote-example.de",)),
    "gazette-example.fr": ("fra", ("www.gazette-example.fr", "gazette-example.fr")),
    "minato-example.co.jp": ("jpn", ("news.minato-example.co.jp",)),
    "vestnik-example.ru": ("rus", ("vestnik-example.ru",)),
}
#: The number in the name of a month's first file; files are numbered on and on.
_FIRST_SERIAL: Final = 8_100
#: Of what fetches are, by their number: the rest are articles. Each kind is in every file of ten fetches.
_KINDS: Final = {3: "redirect", 5: "rss", 7: "truncated", 8: "notfound"}
_CUT: Final = 2_000
_REASONS: Final = {200: "OK", 301: "Moved Permanently", 404: "Not Found"}


@dataclass(frozen=True, slots=True)
class NewsSpec:
    """``files`` WARC files of ``fetches`` fetches each; each third file is short. In file number ``damaged`` (from 0,
    ``None``: in no file) the member of one response is broken. More ``files`` leave those before as they are: a month
    that grows."""

    month: str = "CC-NEWS-2026-05"
    files: int = 3
    fetches: int = 20
    damaged: int | None = 1
    seed: int = 20160826

    def __post_init__(self) -> None:
        crawl = unlisted_crawl(self.month)
        if crawl is None or crawl.started is None or min(self.files, self.fetches) < 1:
            raise UserInputError("a generated month of news is CC-NEWS-YYYY-MM, with files and fetches in them")


@dataclass(frozen=True, slots=True)
class NewsTruth:
    """What a month holds: every response that can be read, and (file, offset, URL) of those that were broken."""

    truth: MiniCrawlTruth
    files: tuple[str, ...]
    damaged: tuple[tuple[str, int, str], ...]

    def of(self, domain: str) -> tuple[Capture, ...]:
        """The captures of a publisher that can be read."""
        return self.truth.captures_of(self.truth.crawls[0], domain=domain)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One fetch. ``body`` is as it is stored, ``wire`` its bytes as they were sent."""

    url: str
    kind: str
    moment: datetime
    status: int
    mime: str | None
    body: bytes
    wire: int
    encoding: str | None
    redirect: str | None
    title: str | None
    address: str


def write_news(root: Path, spec: NewsSpec) -> NewsTruth:
    """Writes a month of news below ``root``, a bucket of any kind; files that are there already stay.

    The same ``spec`` gives the same bytes.
    """
    captures: list[Capture] = []
    damaged: list[tuple[str, int, str]] = []
    keys = [_file_key(spec, number) for number in range(spec.files)]
    for number, key in enumerate(keys):
        for capture in _write_file(root, spec, number, key):
            if capture.title == _BROKEN:
                damaged.append((key, capture.warc_record_offset, capture.url))
            else:
                captures.append(capture)
    listed = root / path_list_key(spec.month, "warc")
    listed.write_bytes(gzip_member("".join(key + "\n" for key in keys).encode()))
    captures.sort(key=lambda c: (c.url_surtkey.encode(), c.fetch_time, c.warc_filename, c.warc_record_offset))
    return NewsTruth(MiniCrawlTruth(spec.seed, (spec.month,), tuple(captures)), tuple(keys), tuple(damaged))


#: The title of a response whose bytes are broken.
_BROKEN: Final = "\0broken"


def _started(spec: NewsSpec, number: int) -> datetime:
    crawl = unlisted_crawl(spec.month)
    assert crawl is not None and crawl.started is not None
    return crawl.started + timedelta(hours=2 * number, minutes=34, seconds=12)


def _file_key(spec: NewsSpec, number: int) -> str:
    started = _started(spec, number)
    name = f"CC-NEWS-{started:%Y%m%d%H%M%S}-{_FIRST_SERIAL + number:05d}.warc.gz"
    return f"crawl-data/CC-NEWS/{started:%Y/%m}/{name}"


def _write_file(root: Path, spec: NewsSpec, number: int, key: str) -> Iterator[Capture]:
    path = root / key
    if path.exists():
        path.unlink()
    started = _started(spec, number)
    info_id = seeded.identifier(spec.seed, "warcinfo", key)
    version = "1.1" if number % 2 else "1.0"
    short = number % 3 == 2
    fetches = [_fetch(spec, number, place) for place in range(spec.fetches // 4 + 1 if short else spec.fetches)]
    broken = min(4, len(fetches) - 1) if number == spec.damaged else -1
    places = []
    with MemberFile(path) as out:
        out.append(_warcinfo(key, started, info_id, version))
        for place, fetch in enumerate(fetches):
            ids = [seeded.identifier(spec.seed, key, place, kind) for kind in ("request", "response")]
            out.append(_request(fetch, ids, info_id, version))
            places.append(out.append(_response(fetch, ids, info_id, version)))
    if broken >= 0:
        _break(path, *places[broken])
    for place, fetch in enumerate(fetches):
        record_id = seeded.identifier(spec.seed, key, place, "response")
        title = _BROKEN if place == broken else fetch.title
        yield _capture(spec, fetch, key, places[place], record_id, title)


def _break(path: Path, offset: int, length: int) -> None:
    """Overwrites the middle of a member: its bytes inflate to nothing that its checksum knows."""
    data = bytearray(path.read_bytes())
    middle = offset + length // 2
    data[middle : middle + 8] = bytes(255 - byte for byte in data[middle : middle + 8])
    path.write_bytes(data)


def _fetch(spec: NewsSpec, number: int, place: int) -> _Fetch:
    # every eleventh fetch is that of the file before once more: the same article, fetched again
    again = number > 0 and place % 11 == 10
    label = (number - 1, 0) if again else (number, place)
    rng = seeded.generator(spec.seed, "news", spec.month, *label)
    domains = [*PUBLISHERS]
    domain = domains[(label[1] + label[1] // len(domains)) % len(domains)]
    language, hosts = PUBLISHERS[domain]
    host = hosts[rng.randrange(len(hosts))]
    moment = _started(spec, number) + timedelta(seconds=17 * place, milliseconds=(137 * place) % 1000)
    slug = f"{moment:%Y/%m}/{label[0]}-{label[1]}"
    kind = _KINDS.get(label[1] % 10, "html")
    url = f"https://{host}/{slug}"
    wire = seeded.generator(spec.seed, "wire", spec.month, number, place)
    encoding = wire.choice(("gzip", "br", None))
    address = f"192.0.2.{wire.randrange(1, 250)}" if wire.random() < 0.6 else f"2001:db8::{wire.randrange(1, 65000):x}"
    status, mime, redirect, title = 200, "text/html", None, None
    words = LANGUAGES[language]
    page = html_page(rng, url, words, lambda other: f"https://{host}/{other}", paragraphs=rng.randrange(2, 7))
    body = page.body
    if kind == "redirect":
        status, redirect = 301, f"https://{host}/{slug}/moved"
        body = f'<html><body><a href="{redirect}">moved</a></body></html>'.encode()
    elif kind == "notfound":
        status = 404
    elif kind == "rss":
        url, mime = f"https://{host}/feed/{label[0]}-{label[1]}.xml", "application/rss+xml"
        body = feed(rng, "rss", url, words, moment, lambda other: f"https://{host}/{other}")
    elif kind == "truncated":
        body = (body + body)[:_CUT]
    else:
        title = page.title
    return _Fetch(url, kind, moment, status, mime, body, len(body) // 3 + 40, encoding, redirect, title, address)


def _warcinfo(key: str, started: datetime, info_id: uuid.UUID, version: str) -> bytes:
    fields = (
        b"software: StormCrawler 2.10 http://stormcrawler.net/\r\n"
        b"description: News crawl for Common Crawl\r\n"
        b"operator: Mini Crawl (crawl@example.com)\r\n"
        b"http-header-user-agent: CCBot/2.0 (https://commoncrawl.org/faq/)\r\n"
        b"format: WARC File Format 1.1\r\n"
        b"conformsTo: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/\r\n"
    )
    headers = [
        ("WARC-Type", "warcinfo"),
        ("WARC-Date", _date(started, version)),
        ("WARC-Filename", key.rpartition("/")[2]),
        ("WARC-Record-ID", f"<urn:uuid:{info_id}>"),
        ("Content-Type", "application/warc-fields"),
        ("Content-Length", str(len(fields))),
    ]
    return _record(headers, fields, version)


def _request(fetch: _Fetch, ids: Sequence[uuid.UUID], info_id: uuid.UUID, version: str) -> bytes:
    host, slash, path = fetch.url.partition("://")[2].partition("/")
    block = (
        f"GET {slash}{path} HTTP/1.1\r\nUser-Agent: CCBot/2.0 (https://commoncrawl.org/faq/)\r\n"
        f"Accept-Language: en-us,en-gb,en;q=0.7,*;q=0.3\r\nAccept: text/html,*/*;q=0.8\r\nHost: {host}\r\n"
        "Connection: Keep-Alive\r\nAccept-Encoding: br,gzip\r\n\r\n"
    ).encode()
    headers = [
        ("WARC-Type", "request"),
        ("WARC-Target-URI", fetch.url),
        *_common(fetch, ids[0], info_id, version),
        ("WARC-Concurrent-To", f"<urn:uuid:{ids[1]}>"),
        ("Content-Type", "application/http; msgtype=request"),
        ("WARC-Block-Digest", "sha1:" + seeded.sha1_base32(block)),
        ("Content-Length", str(len(block))),
    ]
    return _record(headers, block, version)


def _response(fetch: _Fetch, ids: Sequence[uuid.UUID], info_id: uuid.UUID, version: str) -> bytes:
    lines = [f"HTTP/1.1 {fetch.status} {_REASONS[fetch.status]}", f"Date: {format_datetime(fetch.moment, usegmt=True)}"]
    lines.append(f"Content-Type: {fetch.mime}; charset=utf-8" if fetch.kind == "rss" else f"Content-Type: {fetch.mime}")
    if fetch.redirect is not None:
        lines.append(f"Location: {fetch.redirect}")
    # what would mislead a reader of the stored body is masked
    lines += [f"X-Crawler-Content-Length: {fetch.wire}", f"Content-Length: {len(fetch.body)}"]
    if fetch.encoding is not None:
        lines.append(f"X-Crawler-Content-Encoding: {fetch.encoding}")
    block = "\r\n".join(lines).encode() + b"\r\n\r\n" + fetch.body
    headers = [
        ("WARC-Type", "response"),
        ("WARC-Target-URI", fetch.url),
        *_common(fetch, ids[1], info_id, version),
        ("Content-Type", "application/http; msgtype=response"),
        ("WARC-Payload-Digest", "sha1:" + seeded.sha1_base32(fetch.body)),
        ("WARC-Block-Digest", "sha1:" + seeded.sha1_base32(block)),
        ("Content-Length", str(len(block))),
    ]
    if fetch.kind == "truncated":
        headers.append(("WARC-Truncated", "length"))
    return _record(headers, block, version)


def _common(fetch: _Fetch, record_id: uuid.UUID, info_id: uuid.UUID, version: str) -> list[tuple[str, str]]:
    return [
        ("WARC-Date", _date(fetch.moment, version)),
        ("WARC-Record-ID", f"<urn:uuid:{record_id}>"),
        ("WARC-Warcinfo-ID", f"<urn:uuid:{info_id}>"),
        ("WARC-IP-Address", fetch.address),
    ]


def _date(moment: datetime, version: str) -> str:
    # WARC 1.0 has whole seconds
    return f"{moment:%Y-%m-%dT%H:%M:%S}{f'.{moment.microsecond // 1000:03d}' if version == '1.1' else ''}Z"


def _record(headers: Sequence[tuple[str, str]], block: bytes, version: str) -> bytes:
    head = f"WARC/{version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode() + b"\r\n" + block + b"\r\n\r\n"


def _capture(
    spec: NewsSpec, fetch: _Fetch, key: str, place: tuple[int, int], record_id: uuid.UUID, title: str | None
) -> Capture:
    whole_seconds = int(key.rpartition("-")[2].partition(".")[0]) % 2 == _FIRST_SERIAL % 2
    host = fetch.url.split("/", 3)[2]
    return Capture(
        crawl=spec.month,
        subset="warc",
        archive_format="warc",
        kind=fetch.kind,
        domain=registered_domain(host) or host,
        url=fetch.url,
        url_surtkey=surt_key(fetch.url),
        fetch_time=fetch.moment.replace(microsecond=0 if whole_seconds else fetch.moment.microsecond),
        fetch_status=fetch.status,
        fetch_redirect=fetch.redirect,
        content_digest=seeded.sha1_base32(fetch.body),
        content_mime_type=fetch.mime,
        content_mime_detected=None,
        content_charset=None,
        content_languages=None,
        content_truncated="length" if fetch.kind == "truncated" else None,
        warc_filename=key,
        warc_record_offset=place[0],
        warc_record_length=place[1],
        warc_segment=key.rpartition("CC-NEWS-")[2].partition(".")[0],
        warc_record_id=str(record_id),
        payload_digest=seeded.sha1_base32(fetch.body),
        payload_length=len(fetch.body),
        title=title,
        btree_key=None,
    )
