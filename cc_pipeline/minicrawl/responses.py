"""What the invented servers answer: from a visit to an HTTP exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime
from random import Random

from cc_pipeline.minicrawl import bodies, seeded
from cc_pipeline.minicrawl.bodies import MIME_TYPES, HtmlPage, feed, html_page
from cc_pipeline.minicrawl.languages import INDEX_CHARSETS, LANGUAGES, Language
from cc_pipeline.minicrawl.records import Exchange, Headers
from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.minicrawl.visits import Visit, page_counts, page_url, serving_address, site

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
        """The exchange of this visit."""
        steady = seeded.number(self.spec.seed, "steady", visit.url) % 100 < 40
        version = "steady" if steady else self.crawl.id
        rng = seeded.generator(self.spec.seed, "body", visit.url, version)
        wire = seeded.generator(self.spec.seed, "wire", visit.url, self.crawl.id, visit.repeat)
        return self._exchange(visit, self._answer(rng, wire, visit), wire)

    def link(self, visit: Visit, number: int) -> str:
        """Some other page: mostly of the same site, now and then of another."""
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
                shared = seeded.generator(self.spec.seed, "shared", visit.place.domain)
                url = visit.place.origins[0] + "/unavailable"
                page = html_page(shared, url, language, lambda number: visit.place.origins[0] + "/", paragraphs=2)
                return _html_answer(page)
            case "truncated":
                return self._truncated(rng, visit, language)
            case "html":
                scale = self.spec.text_scale
                page = html_page(rng, visit.url, language, lambda number: self.link(visit, number), scale=scale)
                return _html_answer(page)
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
        status_line = (
            f"HTTP/1.1 {answer.status} {reason}" if wire.random() < 0.95 else f"HTTP/1.0 {answer.status} {reason}"
        )
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


def _html_answer(page: HtmlPage, status: int = 200) -> _Answer:
    named = INDEX_CHARSETS[page.charset]
    by_header = page.declared_in in {"header", "both"}
    return _Answer(
        status,
        f"text/html; charset={named}" if by_header else "text/html",
        "application/xhtml+xml" if b"/>" in page.body else "text/html",
        page.body,
        charset="UTF-8" if page.charset == "ascii" else named,
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
