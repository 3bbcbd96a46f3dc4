"""What the invented sites ask of robots: robots.txt of all sorts, which change, and headers of pages."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec, drawn_number
from cc_pipeline.minicrawl.visits import Visit

#: Each is asked for where it is drawn; a number is a status without rules.
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
    """What an origin answers when it is asked for its robots.txt."""

    status: int
    text: str
    location: str | None = None


def site_policy(spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit) -> SitePolicy:
    """The answer to a visit. Of every second origin it changes once within a crawl, at one of its segments."""
    origin = visit.url.removesuffix("/robots.txt")
    change = drawn_number(spec.seed, "change", origin, crawl.id)
    later = change % 2 == 1 and visit.segment > (change >> 8) % max(1, crawl.segments - 1)
    chosen = _POLICIES[drawn_number(spec.seed, "policy", origin, crawl.id, int(later)) % len(_POLICIES)]
    if isinstance(chosen, str):
        return SitePolicy(200, chosen)
    if chosen == 301:
        # the main origin's, or one that is never archived
        main = visit.place.origins[0]
        return SitePolicy(301, "", f"{main}/robots.txt" if main != origin else f"{origin}/robots.txt?elsewhere")
    return SitePolicy(chosen, "<html><body>no robots here</body></html>")


def page_headers(rng: Random) -> tuple[tuple[str, str], ...]:
    """Headers of a page: of two in three pages none."""
    return (rng.choice(_HEADERS),) if rng.random() < 1 / 3 else ()
