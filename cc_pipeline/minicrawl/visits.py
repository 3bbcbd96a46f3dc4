"""Which pages a crawl visits, when, and into which file each visit goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cc_pipeline.minicrawl import seeded
from cc_pipeline.minicrawl.sites import Site, page_counts, page_url, site
from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec

#: Page numbers 1, 2, ... of the largest site are of these kinds in this order, so that even a tiny bucket has them all.
CERTAIN_KINDS: tuple[str, ...] = (
    "redirect",
    "notfound",
    "rss",
    "duplicate",
    "duplicate",
    "atom",
    "truncated",
    "empty",
    "pdf",
    "rdf",
    "notmodified",
    "image",
    "servererror",
    "text",
    "untyped",
    "json",
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

#: How long one segment is fetched for.
SEGMENT_SPAN = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Visit:
    """One fetch to come. ``page`` is its number in the site, -1 for robots.txt; ``repeat`` counts earlier visits."""

    place: Site
    page: int
    url: str
    kind: str
    repeat: int
    fetched: datetime
    segment: int
    file: int


def page_kind(seed: int, place: Site, index: int, *, largest: bool) -> str:
    """What lies at a page number; the same in every crawl."""
    if index == 0:
        return "html"
    if largest and index <= len(CERTAIN_KINDS):
        return CERTAIN_KINDS[index - 1]
    return _KIND_OF_PERCENT[seeded.number(seed, "kind", place.domain, index) % 100]


def segment_start(crawl: CrawlSpec, segment: int) -> datetime:
    """When a segment's files begin: segments follow each other half a day apart."""
    return crawl.start + timedelta(hours=12 * segment)


def plan_visits(spec: MiniCrawlSpec, crawl: CrawlSpec) -> list[Visit]:
    """Every visit of a crawl, sorted by segment, file and time."""
    visits = list(_visits(spec, crawl))
    visits.sort(key=lambda visit: (visit.segment, visit.file, visit.fetched, visit.url, visit.repeat))
    return visits


def _visits(spec: MiniCrawlSpec, crawl: CrawlSpec) -> Iterator[Visit]:
    for rank, pages in enumerate(page_counts(spec.pages, spec.sites)):
        place = site(rank)
        origins: dict[str, None] = {}
        for index in range(pages):
            drawn = seeded.number(spec.seed, "visit", crawl.id, place.domain, index)
            certain = index == 0 or (rank == 0 and index <= len(CERTAIN_KINDS))
            if not certain and drawn % 10_000 >= crawl.coverage * 10_000:
                continue
            url = page_url(spec.seed, place, index)
            origins[url[: url.index("/", 8)]] = None
            kind = page_kind(spec.seed, place, index, largest=rank == 0)
            if crawl.format == "arc" and kind in {"redirect", "notmodified"}:
                kind = "html"  # an ARC record of 2012 is kept under its final URL, and nothing was asked conditionally
            twice = (drawn >> 16) % 60 == 0 or (rank == 0 and index in {0, 4})
            for repeat in range(2 if twice else 1):
                yield _placed(spec, crawl, place, index, url, kind, repeat)
        for origin in origins:
            yield _placed(spec, crawl, place, -1, origin + "/robots.txt", "robots", 0)


def _placed(spec: MiniCrawlSpec, crawl: CrawlSpec, place: Site, page: int, url: str, kind: str, repeat: int) -> Visit:
    drawn = seeded.number(spec.seed, "place", crawl.id, url, repeat)
    segment = drawn % crawl.segments
    file = (drawn >> 8) % crawl.files_per_segment
    seconds = 60 + (drawn >> 20) % (int(SEGMENT_SPAN.total_seconds()) - 120)
    fetched = segment_start(crawl, segment) + timedelta(seconds=seconds)
    return Visit(place, page, url, kind, repeat, fetched, segment, file)
