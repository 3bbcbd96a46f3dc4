"""The invented sites of a mini crawl, and the visits of a crawl: page, time and archive file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec, drawn_number


@dataclass(frozen=True, slots=True)
class Site:
    """One registered domain (or IP host). ``origins`` are ``scheme://host[:port]``, the main one first."""

    domain: str
    language: str
    origins: tuple[str, ...]


#: The named sites, in the order in which a small spec uses them; the first is the largest.
NAMED_SITES: tuple[Site, ...] = (
    Site(
        "example.com",
        "eng",
        (
            "https://www.example.com",
            "https://example.com",
            "http://www.example.com",
            "https://blog.example.com",
            "http://shop.example.com:8080",
            "https://deep.archive.blog.example.com",
        ),
    ),
    Site("example-foo.com", "eng", ("https://www.example-foo.com", "http://example-foo.com")),
    Site("example.org", "eng", ("https://example.org", "https://feeds.example.org", "https://docs.example.org")),
    Site("beispiel-example.de", "deu", ("https://www.beispiel-example.de", "http://beispiel-example.de")),
    Site("exemple-example.fr", "fra", ("https://www.exemple-example.fr",)),
    Site("primer-example.ru", "rus", ("http://www.primer-example.ru", "https://primer-example.ru")),
    Site("example.co.uk", "eng", ("https://www.example.co.uk", "https://news.example.co.uk")),
    Site("xn--mnchen-example-gsb.de", "deu", ("https://www.xn--mnchen-example-gsb.de",)),
    Site("kunst-example.museum", "fra", ("https://kunst-example.museum",)),
    Site("192.0.2.17", "eng", ("http://192.0.2.17", "http://192.0.2.17:8088")),
    Site("rei-example.co.jp", "jpn", ("http://www.rei-example.co.jp",)),
    Site("liti-example.cn", "zho", ("http://www.liti-example.cn", "https://m.liti-example.cn")),
    Site("ejemplo-example.es", "spa", ("https://www.ejemplo-example.es",)),
    Site("exemplo-example.com.br", "por", ("https://www.exemplo-example.com.br",)),
    Site("paradeigma-example.gr", "ell", ("http://paradeigma-example.gr",)),
    Site("examplex.com", "eng", ("https://examplex.com",)),
    Site("example-pages.github.io", "eng", ("https://example-pages.github.io",)),
    Site("example.gov.uk", "eng", ("https://www.example.gov.uk",)),
    Site("example.net", "spa", ("https://www2.example.net", "https://example.net")),
)

_FIRST = tuple("amber birch copper delta ember fjord garnet hazel indigo juniper kelp linden".split())
_SECOND = ("bakery", "cycles", "dental", "farm", "gallery", "hostel", "institute", "journal", "kiosk", "law", "music")
_ENDINGS = (
    (".com", "eng"),
    (".org", "eng"),
    (".de", "deu"),
    (".fr", "fra"),
    (".net", "spa"),
    (".co.uk", "eng"),
    (".com.br", "por"),
    (".ru", "rus"),
    (".info", "eng"),
    (".museum", "fra"),
    (".co.jp", "jpn"),
    (".gr", "ell"),
)


def site(number: int) -> Site:
    """Returns the site with this number: first the named ones, then an endless series of invented ones."""
    if number < len(NAMED_SITES):
        return NAMED_SITES[number]
    index = number - len(NAMED_SITES)
    ending, language = _ENDINGS[index % len(_ENDINGS)]
    name = f"{_FIRST[index % len(_FIRST)]}-{_SECOND[index % len(_SECOND)]}-{index}-example{ending}"
    scheme = "http" if index % 3 == 0 else "https"
    return Site(name, language, (f"{scheme}://www.{name}", f"{scheme}://{name}")[index % 2 :])


def page_counts(pages: int, sites: int) -> tuple[int, ...]:
    """Returns the number of pages of each site: ``pages`` in total, divided as 1/rank, at least one each."""
    shares = [1.0 / (rank + 1) for rank in range(sites)]
    scale = max(pages - sites, 0) / sum(shares)
    counts = [1 + int(share * scale) for share in shares]
    counts[0] += max(pages - sum(counts), 0)
    return tuple(counts)


def page_url(seed: int, place: Site, index: int) -> str:
    """Returns the URL of a site's page number ``index``; number 0 is the start page of the main origin."""
    if index == 0:
        return place.origins[0] + "/"
    drawn = drawn_number(seed, "url", place.domain, index)
    origin = place.origins[0] if drawn % 10 < 5 else place.origins[(drawn >> 8) % len(place.origins)]
    return origin + _path(index, (drawn >> 16) % 16, drawn >> 24)


def _path(index: int, style: int, drawn: int) -> str:
    year, month = 2009 + drawn % 15, 1 + (drawn >> 8) % 12
    number = drawn >> 16 & 0xFFF
    styles = (
        f"/news/{year}/{month:02d}/story-{index}.html",
        f"/news/{year}/{month:02d}/{(drawn >> 20) % 28 + 1:02d}/{_FIRST[number % 12]}-{_SECOND[number % 11]}-{index}/",
        f"/articles/{index}",
        f"/product.php?id={index}&cat={number % 40}",
        f"/search?q={_FIRST[number % 12]}+{_SECOND[number % 11]}&page={index}",
        f"/forum/viewtopic.php?t={index}&sid={drawn & 0xFFFFFFFF:08x}&a=1",
        f"/wiki/{_FIRST[number % 12].title()}_{_SECOND[number % 11].title()}_({index})",
        f"/People/{_SECOND[number % 11].upper()}/{index}.HTM",
        f"/caf%C3%A9/men%C3%BC-{index}",
        f"/shop/item;jsessionid={drawn & 0xFFFFFF:06X}?item={index}",
        f"/a/b/{index}/index.html",
        f"/tag/{_FIRST[number % 12]}/page/{index}/",
        f"//double//{index}.html",
        f"/list?{_SECOND[number % 11]}[]=1&{_SECOND[number % 11]}[]=2&n={index}",
        f"/~user{number % 7}/{index}/",
        f"/?p={index}",
    )
    return styles[style]


def serving_address(seed: int, url: str, domain: str, crawl: CrawlSpec) -> str:
    """Returns the address that served ``url`` of the site ``domain``: its own, if the site's name is an address."""
    is_ip_address = domain[0].isdigit() and "-" not in domain
    return (
        domain
        if is_ip_address
        else server_address(seed, url[: url.index("/", 8)], newer=crawl.since("CC-MAIN-2020-05"))
    )


def server_address(seed: int, origin: str, *, newer: bool) -> str:
    """Returns the documentation-network address that serves an origin; some have IPv6 ones in ``newer`` crawls."""
    drawn = drawn_number(seed, "ip", origin.lower())
    if newer and drawn % 8 == 0:
        return f"2001:db8:{drawn >> 8 & 0xFFFF:x}:{drawn >> 24 & 0xFFFF:x}::1"
    network = ("192.0.2", "198.51.100", "203.0.113")[drawn % 3]
    return f"{network}.{1 + (drawn >> 8) % 254}"


#: Page numbers 1, 2, ... of the largest site are of these kinds in this order, so that even a tiny bucket has them all.
CERTAIN_KINDS: tuple[str, ...] = tuple(
    """
redirect notfound rss duplicate duplicate atom truncated empty pdf rdf notmodified image servererror text untyped
json
""".split()
)

#: Kinds of all other pages, in percent.
_SHARES: tuple[tuple[str, int], ...] = (
    ("html", 70),
    ("redirect", 7),
    ("notfound", 6),
    ("duplicate", 3),
    ("servererror", 2),
    ("rss", 1),
    ("atom", 1),
    ("rdf", 1),
    ("pdf", 2),
    ("image", 1),
    ("text", 1),
    ("json", 1),
    ("truncated", 1),
    ("empty", 1),
    ("notmodified", 1),
    ("untyped", 1),
)
_KIND_OF_PERCENT: tuple[str, ...] = tuple(kind for kind, share in _SHARES for _ in range(share))

#: The duration of the fetches of one segment.
SEGMENT_SPAN = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Visit:
    """One planned fetch. ``page`` is its number in the site, -1 for robots.txt; ``repeat`` counts earlier visits."""

    place: Site
    page: int
    url: str
    kind: str
    repeat: int
    fetched: datetime
    segment: int
    file: int


def page_kind(seed: int, place: Site, index: int, *, largest: bool) -> str:
    """Returns the kind of a page number; the same in every crawl."""
    if index == 0:
        return "html"
    if largest and index <= len(CERTAIN_KINDS):
        return CERTAIN_KINDS[index - 1]
    return _KIND_OF_PERCENT[drawn_number(seed, "kind", place.domain, index) % 100]


def segment_start(crawl: CrawlSpec, segment: int) -> datetime:
    """Returns the start of a segment's files: segments start half a day after each other."""
    return crawl.start + timedelta(hours=12 * segment)


def plan_visits(spec: MiniCrawlSpec, crawl: CrawlSpec) -> list[Visit]:
    """Returns every visit of a crawl, sorted by segment, file and time."""
    visits = list(_visits(spec, crawl))
    visits.sort(key=lambda visit: (visit.segment, visit.file, visit.fetched, visit.url, visit.repeat))
    return visits


def _visits(spec: MiniCrawlSpec, crawl: CrawlSpec) -> Iterator[Visit]:
    for rank, pages in enumerate(page_counts(spec.pages, spec.sites)):
        place = site(rank)
        origins: dict[str, None] = {}
        for index in range(pages):
            drawn = drawn_number(spec.seed, "visit", crawl.id, place.domain, index)
            certain = index == 0 or (rank == 0 and index <= len(CERTAIN_KINDS))
            if not certain and drawn % 10_000 >= crawl.coverage * 10_000:
                continue
            url = page_url(spec.seed, place, index)
            origins[url[: url.index("/", 8)]] = None
            kind = page_kind(spec.seed, place, index, largest=rank == 0)
            if crawl.format == "arc" and kind in {"redirect", "notmodified"}:
                kind = "html"  # an ARC record of 2012 is stored under its final URL, and no request was conditional
            twice = (drawn >> 16) % 60 == 0 or (rank == 0 and index in {0, 4})
            for repeat in range(2 if twice else 1):
                yield _placed(spec, crawl, place, index, url, kind, repeat)
        for origin in origins:
            url = origin + "/robots.txt"
            if not crawl.policies:
                yield _placed(spec, crawl, place, -1, url, "robots", 0)
                continue
            for segment in range(crawl.segments):
                drawn = drawn_number(spec.seed, "asked", crawl.id, url, segment)
                # Common Crawl misses some, and requests them before the first page of a segment
                if drawn % 8:
                    request_time = segment_start(crawl, segment) + timedelta(seconds=drawn % 60)
                    yield Visit(
                        place, -1, url, "robots", segment, request_time, segment, (drawn >> 8) % crawl.files_per_segment
                    )


def _placed(spec: MiniCrawlSpec, crawl: CrawlSpec, place: Site, page: int, url: str, kind: str, repeat: int) -> Visit:
    drawn = drawn_number(spec.seed, "place", crawl.id, url, repeat)
    segment = drawn % crawl.segments
    file = (drawn >> 8) % crawl.files_per_segment
    seconds = 60 + (drawn >> 20) % (int(SEGMENT_SPAN.total_seconds()) - 120)
    fetched = segment_start(crawl, segment) + timedelta(seconds=seconds)
    return Visit(place, page, url, kind, repeat, fetched, segment, file)


#: The possible answers for robots.txt; a number is a status without rules.
_POLICIES: tuple[str | int, ...] = (
    "User-agent: *\nDisallow: /private/\n",
    "User-agent: *\nDisallow:\n\nUser-agent: GPTBot\nUser-agent: ClaudeBot\nDisallow: /\n",
    "User-agent: *\nContent-Signal: search=yes,ai-train=no\nAllow: /\n\nUser-agent: GPTBot\nDisallow: /news/\n",
    "User-Agent: *\nContent-Usage: train-ai=n, search=y\nContent-Usage: /articles/ train-ai=y\nAllow: /\n",
    "user-agent: *\ndisallow: /*?\nallow: /product.php\ndisallow: /*.HTM$\n\nUser-agent: CCBot\nAllow: /\n",
    "User-agent: *\nDisallow: /\n\nUser-agent: CCBot\nDisallow: /private/\n",
    "License: https://example.com/license.xml\nUser-agent: *\nCrawl-delay: 5\nContent-Signal: ai-input=no, "
    "ai-train=yes\nDisallow: /caf%C3%A9/\n",
    "<html><body>Welcome</body></html>",
    404,
    403,
    503,
    301,
)
_HEADERS = (
    ("X-Robots-Tag", "noai, noimageai"),
    ("X-Robots-Tag", "noindex"),
    ("tdm-reservation", "1"),
    ("tdm-reservation", "0"),
    ("Content-Usage", "train-ai=n"),
    ("Content-Signal", "ai-input=yes, ai-train=no"),
    ("Link", '<https://example.com/rsl.xml>; rel="license"; type="application/rsl+xml"'),
)


class SitePolicy(NamedTuple):
    """The answer of an origin to a request for its robots.txt."""

    status: int
    text: str
    location: str | None = None


def site_policy(spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit) -> SitePolicy:
    """Returns the answer to a visit. For every second origin it changes once within a crawl, at one of its segments."""
    origin = visit.url.removesuffix("/robots.txt")
    change = drawn_number(spec.seed, "change", origin, crawl.id)
    has_changed = change % 2 == 1 and visit.segment > (change >> 8) % max(1, crawl.segments - 1)
    policy = _POLICIES[drawn_number(spec.seed, "policy", origin, crawl.id, int(has_changed)) % len(_POLICIES)]
    if isinstance(policy, str):
        return SitePolicy(200, policy)
    if policy == 301:
        # the main origin's robots.txt, or a URL that is never archived
        main = visit.place.origins[0]
        return SitePolicy(301, "", f"{main}/robots.txt" if main != origin else f"{origin}/robots.txt?elsewhere")
    return SitePolicy(policy, "<html><body>no robots here</body></html>")


def page_headers(rng: Random) -> tuple[tuple[str, str], ...]:
    """Returns the headers of a page: two in three pages have none."""
    return (rng.choice(_HEADERS),) if rng.random() < 1 / 3 else ()
