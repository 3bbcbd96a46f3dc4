"""Generates archives with known bytes: a crawl's servers, the WARC or ARC files of their answers, and the location of
every capture."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from cc_pipeline.commoncrawl.crawls import SUBSETS, has_feature, key_rule
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.key_ranges import btree_key
from cc_pipeline.commoncrawl.paths import ArcFile, arc_key, segment_of
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.testing.mini_crawl import bodies
from cc_pipeline.testing.mini_crawl.bodies import (
    INDEX_CHARSETS,
    LANGUAGES,
    MIME_TYPES,
    HtmlPage,
    Language,
    feed,
    html_page,
)
from cc_pipeline.testing.mini_crawl.records import (
    Exchange,
    Headers,
    arc_record,
    file_description,
    metadata_record,
    request_record,
    response_record,
    warcinfo,
)
from cc_pipeline.testing.mini_crawl.spec import (
    CrawlSpec,
    MemberFile,
    MiniCrawlSpec,
    drawn_number,
    generator,
    identifier,
    ordered_identifier,
    sha1_base32,
)
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.testing.mini_crawl.visits import (
    SEGMENT_SPAN,
    Visit,
    page_counts,
    page_headers,
    page_url,
    plan_visits,
    segment_start,
    serving_address,
    site,
    site_policy,
)

_REASONS = {
    200: "OK",
    301: "Moved Permanently",
    302: "Found",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    403: "Forbidden",
    404: "Not Found",
    410: "Gone",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """The part of an exchange that depends on the kind of page. ``content_type`` ``None`` means no such header."""

    status: int
    content_type: str | None
    detected: str
    body: bytes
    charset: str | None = None
    languages: str | None = None
    truncated: str | None = None
    redirect: str | None = None
    title: str | None = None
    extra: Headers = ()


class Servers:
    """Answers the visits of one crawl. Bodies depend on seed and URL; two in five are the same in every crawl."""

    def __init__(self, spec: MiniCrawlSpec, crawl: CrawlSpec) -> None:
        self.spec = spec
        self.crawl = crawl
        self._counts = page_counts(spec.pages, spec.sites)

    def answer(self, visit: Visit) -> Exchange:
        """Returns the exchange of this visit."""
        steady = drawn_number(self.spec.seed, "steady", visit.url) % 100 < 40
        version = "steady" if steady else self.crawl.id
        rng = generator(self.spec.seed, "body", visit.url, version)
        wire = generator(self.spec.seed, "wire", visit.url, self.crawl.id, visit.repeat)
        return self._exchange(visit, self._answer(rng, wire, visit), wire)

    def link(self, visit: Visit, number: int) -> str:
        """Returns the URL of another page: mostly of the same site, sometimes of another one."""
        if number % 9 == 0:
            rank = number % self.spec.sites
            return page_url(self.spec.seed, site(rank), number % self._counts[rank])
        rank = number % 7
        rank = rank if rank < self.spec.sites else 0
        place = visit.place if number % 2 else site(rank)
        url = page_url(self.spec.seed, place, number % 5)
        origin = visit.url[: visit.url.index("/", 8)]
        return url.removeprefix(origin) if url.startswith(origin + "/") and number % 3 else url

    def _answer(self, rng: Random, wire: Random, visit: Visit) -> _Answer:
        language = LANGUAGES[visit.place.language]
        match visit.kind:
            case "robots" if self.crawl.policies:
                return _policy(self.spec, self.crawl, visit)
            case "robots":
                return _robots(wire, visit.url)
            case "redirect":
                return self._redirect(rng, visit)
            case "notmodified":
                return _Answer(304, None, "application/x-empty", b"")
            case "notfound":
                page = html_page(rng, visit.url, language, lambda number: self.link(visit, number), paragraphs=0)
                return _html_answer(page, status=rng.choice((404, 404, 404, 410, 403)))
            case "servererror":
                body = b"<html><body><h1>Internal error</h1></body></html>"
                return _Answer(rng.choice((500, 503)), "text/html", "text/html", body, charset="UTF-8")
            case "rss" | "rdf" | "atom":
                body = feed(rng, visit.kind, visit.url, language, self.crawl.start, lambda n: self._absolute(visit, n))
                mime = MIME_TYPES[visit.kind]
                return _Answer(
                    200, rng.choice((mime, f"{mime}; charset=utf-8", "text/xml")), mime, body, charset="UTF-8"
                )
            case "duplicate":
                shared = generator(self.spec.seed, "shared", visit.place.domain)
                url = visit.place.origins[0] + "/unavailable"
                page = html_page(shared, url, language, lambda number: visit.place.origins[0] + "/", paragraphs=2)
                return _html_answer(page)
            case "truncated":
                return self._truncated(rng, visit, language)
            case "html":
                scale = self.spec.text_scale
                page = html_page(rng, visit.url, language, lambda number: self.link(visit, number), scale=scale)
                answer = _html_answer(page)
                return replace(answer, extra=page_headers(wire)) if self.crawl.policies else answer
            case _:
                content_type, detected, body = bodies.other_body(rng, visit.kind, language)
                return _Answer(200, content_type, detected, body)

    def _absolute(self, visit: Visit, number: int) -> str:
        return page_url(self.spec.seed, visit.place, number % self._counts[0])

    def _redirect(self, rng: Random, visit: Visit) -> _Answer:
        status = rng.choice((301, 301, 302, 302, 307, 308))
        target = page_url(self.spec.seed, visit.place, rng.randrange(3))
        origin = visit.url[: visit.url.index("/", 8)]
        relative = target.startswith(origin + "/") and rng.random() < 0.5
        location = target.removeprefix(origin) if relative else target
        body = f'<html><head><title>Moved</title></head><body><a href="{location}">here</a></body></html>'.encode()
        return _Answer(
            status, "text/html; charset=utf-8", "text/html", body, redirect=target, extra=(("Location", location),)
        )

    def _truncated(self, rng: Random, visit: Visit, language: Language) -> _Answer:
        limit = self.spec.truncate_bytes
        page = html_page(rng, visit.url, language, lambda number: self.link(visit, number), paragraphs=12)
        reason = rng.choice(("length", "length", "disconnect", "time"))
        long = page.body + page.body[-800:] * (limit // 800 + 1)
        cut = limit if reason == "length" else len(page.body) // 2 + rng.randrange(len(page.body) // 3)
        answer = _html_answer(replace(page, body=long[:cut], title=""))
        return replace(answer, truncated=reason, title=None)

    def _exchange(self, visit: Visit, answer: _Answer, wire: Random) -> Exchange:
        encoding = wire.choice(("gzip", "gzip", "br", None)) if answer.body and self.crawl.format == "warc" else None
        if self.crawl.format == "arc" and answer.body:
            encoding = wire.choice(("gzip", None))
        packed = len(answer.body) if encoding is None else 40 + len(answer.body) * 3 // 10
        reason = _REASONS[answer.status]
        status_line = f"HTTP/1.{int(wire.random() < 0.95)} {answer.status} {reason}"
        return Exchange(
            url=visit.url,
            kind=visit.kind,
            fetched=visit.fetched,
            status=answer.status,
            status_line=status_line,
            headers=_headers(wire, visit, answer, encoding),
            body=answer.body,
            encoding=encoding,
            chunked=wire.random() < 0.4 and bool(answer.body),
            wire_length=packed * 3 if answer.truncated == "length" else packed,
            server_ip=serving_address(self.spec.seed, visit.url, visit.place.domain, self.crawl),
            mime=answer.content_type.partition(";")[0] if answer.content_type else None,
            mime_detected=answer.detected,
            charset=answer.charset,
            languages=answer.languages,
            truncated=answer.truncated,
            redirect=answer.redirect,
            record_type="revisit" if answer.status == 304 else "response",
            fetch_milliseconds=wire.randrange(20, 2500),
            title=answer.title,
        )


def _robots(rng: Random, url: str) -> _Answer:
    drawn = rng.randrange(20)
    if drawn < 3:
        return _Answer(404, "text/html", "text/html", b"<html><body>no robots here</body></html>")
    if drawn == 3:
        target = url.replace("http://", "https://", 1) if url.startswith("http://") else url + "/"
        return _Answer(301, "text/html", "text/html", b"", redirect=target, extra=(("Location", target),))
    origin = url.removesuffix("/robots.txt")
    text = f"User-agent: *\nDisallow: /private/{drawn}/\nCrawl-delay: {drawn % 5}\n\nSitemap: {origin}/sitemap.xml\n"
    return _Answer(200, "text/plain", "text/plain", text.encode())


def _policy(spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit) -> _Answer:
    policy = site_policy(spec, crawl, visit)
    mime = "text/html" if policy.text.startswith("<") else "text/plain"
    extra = () if policy.location is None else (("Location", policy.location),)
    return _Answer(policy.status, mime, mime, policy.text.encode(), redirect=policy.location, extra=extra)


def _html_answer(page: HtmlPage, status: int = 200) -> _Answer:
    charset = INDEX_CHARSETS[page.charset]
    by_header = page.declared_in in {"header", "both"}
    return _Answer(
        status,
        f"text/html; charset={charset}" if by_header else "text/html",
        "application/xhtml+xml" if b"/>" in page.body else "text/html",
        page.body,
        charset="UTF-8" if page.charset == "ascii" else charset,
        languages=page.language.code,
        title=page.title,
    )


def _headers(rng: Random, visit: Visit, answer: _Answer, encoding: str | None) -> Headers:
    http_date = format_datetime(visit.fetched, usegmt=True)
    headers = [("Date", http_date), ("Server", rng.choice(("nginx", "Apache/2.4.41 (Ubuntu)", "minicrawl")))]
    if answer.content_type is not None:
        headers.append((rng.choice(("Content-Type", "content-type")), answer.content_type))
    headers += answer.extra
    if rng.random() < 0.5:
        changed = visit.fetched - timedelta(days=rng.randrange(1, 400))
        headers.append(("Last-Modified", format_datetime(changed, usegmt=True)))
    if rng.random() < 0.4:
        headers.append(("ETag", f'"{rng.getrandbits(48):012x}"'))
    if rng.random() < 0.3:
        headers += [("Set-Cookie", f"sid={rng.getrandbits(40):x}; path=/; HttpOnly"), ("Set-Cookie", "lang=x; Path=/")]
    if encoding is not None:
        headers.append(("Vary", "Accept-Encoding"))
    headers.append(("Connection", rng.choice(("close", "keep-alive"))))
    return tuple(headers)


def segment_id(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int) -> str:
    """Returns the folder of a segment: milliseconds, in WARC crawls with a dot and a number; in supplemental ones a
    time."""
    if crawl.is_supplemental:
        return f"{segment_start(crawl, segment):%Y%m%d%H%M%S}"
    milliseconds = int(segment_start(crawl, segment).timestamp()) * 1000
    drawn = drawn_number(spec.seed, "segment", crawl.id, segment)
    if crawl.format == "arc":
        return str(milliseconds + drawn % 1000)
    return f"{(milliseconds + drawn % 1000) // 1000}{drawn % 1000:03d}.{(drawn >> 16) % 90 + 10}"


def warc_file_key(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int, subset: str, file: int) -> str:
    """Returns the key of a WARC file."""
    begin = segment_start(crawl, segment)
    prefix = crawl.id if crawl.is_supplemental else "CC-MAIN"
    name = f"{prefix}-{begin:%Y%m%d%H%M%S}-{begin + SEGMENT_SPAN:%Y%m%d%H%M%S}-{file:05d}.warc.gz"
    return f"{crawl.folder}/segments/{segment_id(spec, crawl, segment)}/{subset}/{name}"


def arc_file_key(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int, file: int) -> str:
    """Returns the key of an ARC file; its name has its time of creation in milliseconds, months after the fetches."""
    created_ms = int(segment_start(crawl, segment).timestamp() * 1000) + 18_000_000_000 + file * 61_007
    return arc_key(ArcFile(crawl.id, int(segment_id(spec, crawl, segment)), created_ms, file))


def write_archives(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, step: Callable[[int], None]) -> list[Capture]:
    """Writes all archive files of one crawl under ``root``; ``step`` is called with each number of captures written."""
    write = _write_arc_file if crawl.format == "arc" else _write_warc_files
    servers = Servers(spec, crawl)
    captures: list[Capture] = []
    visits = {
        key: list(group) for key, group in groupby(plan_visits(spec, crawl), lambda visit: (visit.segment, visit.file))
    }
    for segment in range(crawl.segments):
        for file in range(crawl.files_per_segment):
            for capture in write(root, spec, crawl, servers, segment, file, visits.get((segment, file), [])):
                captures.append(capture)
                step(1)
    return captures


def _write_warc_files(
    root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, servers: Servers, segment: int, file: int, visits: list[Visit]
) -> Iterator[Capture]:
    keys = {subset: warc_file_key(spec, crawl, segment, subset, file) for subset in SUBSETS}
    with (
        MemberFile(root / keys["warc"]) as pages,
        MemberFile(root / keys["crawldiagnostics"]) as diagnostics,
        MemberFile(root / keys["robotstxt"]) as robots,
    ):
        outputs = dict(zip(SUBSETS, (pages, diagnostics, robots), strict=True))
        info_ids: dict[str, uuid.UUID] = {}
        for subset, key in keys.items():
            info_ids[subset] = identifier(spec.seed, "warcinfo", key)
            name = key.rpartition("/")[2]
            outputs[subset].append(warcinfo(crawl, name, segment_start(crawl, segment), info_ids[subset]))
        for visit in visits:
            exchange = servers.answer(visit)
            out, info_id = outputs[exchange.subset], info_ids[exchange.subset]
            ids = _record_ids(spec, crawl, visit)
            out.append(request_record(exchange, info_id, ids["request"]))
            place = out.append(response_record(crawl, exchange, info_id, ids["request"], ids["response"]))
            out.append(metadata_record(crawl, exchange, info_id, ids["response"], ids["metadata"]))
            record_id = str(ids["response"]) if crawl.record_ids else None
            yield _warc_capture(crawl, exchange, keys[exchange.subset], place, record_id)


def _record_ids(spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit) -> dict[str, uuid.UUID]:
    moment = int(visit.fetched.timestamp() * 1000)
    make = partial(ordered_identifier, moment) if crawl.record_ids else identifier
    kinds = ("request", "response", "metadata")
    return {kind: make(spec.seed, "record", crawl.id, visit.url, visit.repeat, kind) for kind in kinds}


#: Dates in the ARC files of crawl-002 are Pacific time, seven hours behind UTC in September (two records of
#: commoncrawl/arc2warc-conversion); a response's own ``Date`` is not.
_WITH_PACIFIC_DATES, _PACIFIC_OFFSET = "CC-MAIN-2009-2010", timedelta(hours=7)


def _write_arc_file(
    root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, servers: Servers, segment: int, file: int, visits: list[Visit]
) -> Iterator[Capture]:
    key = arc_file_key(spec, crawl, segment, file)
    with MemberFile(root / key) as out:
        out.append(file_description(key.rpartition("/")[2], segment_start(crawl, segment)))
        for visit in visits:
            exchange = servers.answer(visit)
            if crawl.id == _WITH_PACIFIC_DATES:
                exchange = replace(exchange, fetched=exchange.fetched - _PACIFIC_OFFSET)
            place = out.append(arc_record(exchange))
            yield _arc_capture(crawl, exchange, key, place)


def _warc_capture(
    crawl: CrawlSpec, exchange: Exchange, key: str, place: tuple[int, int], record_id: str | None
) -> Capture:
    revisit = exchange.record_type == "revisit"
    languages_known = bool(has_feature(crawl.id, "content_languages"))
    redirects_known = bool(has_feature(crawl.id, "fetch_redirect"))
    return _capture(
        crawl,
        exchange,
        key,
        place,
        subset=exchange.subset,
        archive_format="warc",
        fetch_redirect=exchange.redirect if redirects_known else None,
        content_digest=None if revisit and languages_known else sha1_base32(exchange.body),
        content_mime_type="warc/revisit" if revisit else exchange.mime or "unk",
        content_mime_detected=exchange.mime_detected,
        content_charset=exchange.charset if languages_known else None,
        content_languages=exchange.languages if languages_known else None,
        content_truncated=exchange.truncated if redirects_known else None,
        warc_segment=key.partition("/segments/")[2].split("/")[0],
        warc_record_id=record_id,
        btree_key=None,
    )


def _arc_capture(crawl: CrawlSpec, exchange: Exchange, key: str, place: tuple[int, int]) -> Capture:
    return _capture(
        crawl,
        exchange,
        key,
        place,
        subset="warc",
        archive_format="arc",
        fetch_redirect=None,
        content_digest=None,
        content_mime_type=exchange.mime,
        content_mime_detected=None,
        content_charset=exchange.charset,
        content_languages=None,
        content_truncated="length" if exchange.truncated else None,
        warc_segment=segment_of(key) or "",
        warc_record_id=None,
        btree_key=btree_key(exchange.url).decode("ascii"),
    )


def _capture(crawl: CrawlSpec, exchange: Exchange, key: str, place: tuple[int, int], **format_columns: Any) -> Capture:
    """Returns a capture of either format; ``format_columns`` are the columns in which the formats differ."""
    host = exchange.url.split("/", 3)[2].partition(":")[0]
    return Capture(
        crawl=crawl.id,
        kind=exchange.kind,
        domain=registered_domain(host) or host,
        url=exchange.url,
        url_surtkey=surt_key(exchange.url, key_rule(crawl.id)),
        fetch_time=exchange.fetched,
        fetch_status=exchange.status,
        warc_filename=key,
        warc_record_offset=place[0],
        warc_record_length=place[1],
        payload_digest=sha1_base32(exchange.body),
        payload_length=len(exchange.body),
        title=exchange.title,
        **format_columns,
    )
