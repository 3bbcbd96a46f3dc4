"""What a generated web asked of robots, worked out page by page from what its servers answered, without a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import robotstxt

from cc_pipeline.testing.mini_crawl.archives import Servers
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.testing.mini_crawl.visits import SitePolicy, Visit, plan_visits, site_policy

#: What each of the generator's files says of uses to robots without a group of their own: words in it, and verdicts by
#: use; a verdict may depend on the path.
_USES: dict[str, dict[str, Any]] = {
    "search=yes,ai-train=no": {"search": "allow", "train": "disallow"},
    "train-ai=n, search=y": {
        "search": "allow",
        "train": lambda path: "allow" if path.startswith("/articles/") else "disallow",
    },
    "ai-train=yes": {"ai-input": "disallow", "train": "allow"},
}
_MATCHER = robotstxt.RobotsMatcher()


@dataclass(frozen=True, slots=True)
class Robots:
    """One fetch of a robots.txt, with what it led to."""

    crawl: str
    segment: int
    fetched: datetime
    state: str
    text: str


def robots_of(spec: MiniCrawlSpec) -> dict[str, list[Robots]]:
    """By origin, in the order of time."""
    found: dict[str, list[Robots]] = {}
    for crawl in spec.crawls:
        visits = {(v.url, v.segment): v for v in plan_visits(spec, crawl) if v.kind == "robots"}
        for visit in visits.values():
            state, text = _followed(spec, crawl, visit, visits)
            origin = visit.url.removesuffix("/robots.txt")
            found.setdefault(origin, []).append(Robots(crawl.id, visit.segment, visit.fetched, state, text))
    return {origin: sorted(all_, key=lambda one: one.fetched) for origin, all_ in found.items()}


def _followed(
    spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit, visits: dict[tuple[str, int], Visit]
) -> tuple[str, str]:
    for _ in range(6):
        answer: SitePolicy = site_policy(spec, crawl, visit)
        if answer.status != 301:
            break
        there = visits.get((answer.location or "", visit.segment))
        if there is None:
            return "unresolved", ""
        visit = there
    else:
        return "unresolved", ""
    if answer.status != 200:
        return ("unavailable" if answer.status < 500 else "unreachable"), ""
    return ("no robots.txt" if answer.text.startswith("<") else "read"), answer.text


def stretches(spec: MiniCrawlSpec) -> list[tuple[str, str, datetime, datetime, int]]:
    """Origin, state, first and last seen, captures: of each stretch that says the same."""
    return [
        (origin, key[0], some[0].fetched, some[-1].fetched, len(some))
        for origin, every in robots_of(spec).items()
        for key, some in ((key, list(group)) for key, group in groupby(every, key=lambda one: (one.state, one.text)))
    ]


class Asked:
    """The web of a specification, asked about single captures of pages; of one domain no robots.txt is known."""

    def __init__(self, spec: MiniCrawlSpec, unread: str) -> None:
        self._robots = {origin: found for origin, found in robots_of(spec).items() if unread not in origin}
        self._pages: dict[tuple[str, datetime], tuple[int, str, dict[str, str], bytes]] = {}
        for crawl in spec.crawls:
            servers = Servers(spec, crawl)
            for visit in plan_visits(spec, crawl):
                if visit.kind != "robots":
                    answer = servers.answer(visit)
                    headers = {name.lower(): value for name, value in answer.headers}
                    self._pages[visit.url, visit.fetched] = (visit.segment, crawl.id, headers, answer.body)

    def held(self, url: str, fetched: datetime) -> tuple[Robots | None, str, int | None, str | None]:
        """The robots.txt at the fetch, its basis, how many seconds before, and whether those around it say the same."""
        segment, crawl, _, _ = self._pages[url, fetched]
        every = self._robots.get(_origin(url), [])
        before = [one for one in every if one.fetched <= fetched]
        after = [one for one in every if one.fetched > fetched]
        own = [one for one in every if (one.crawl, one.segment) == (crawl, segment)]
        earlier = [one for one in own if one.fetched <= fetched]
        chosen = (earlier[-1:] or own[:1] or before[-1:] or after[:1] or [None])[0]
        if chosen is None:
            return None, "none", None, None
        basis = "segment" if own else "earlier" if before else "later"
        agreement = None
        if before and after:
            same = {(one.state, one.text) for one in (chosen, before[-1], after[0])}
            agreement = "bracketed" if len(same) == 1 else "changed"
        return chosen, basis, int((fetched - chosen.fetched).total_seconds()), agreement

    def latest(self, url: str) -> Robots | None:
        """The newest robots.txt, or of those that tell anything the newest."""
        every = self._robots.get(_origin(url), [])
        told = [one for one in every if one.state not in ("unreachable", "unresolved")]
        return (told or every or [None])[-1]

    def said(self, url: str, fetched: datetime, wish: str, as_of: str) -> str:
        """``allow``, ``disallow`` or ``unknown``."""
        robots = self.held(url, fetched)[0] if as_of == "fetch" else self.latest(url)
        if as_of == "latest":
            fetched = max(at for address, at in self._pages if address == url)
        _, _, headers, body = self._pages[url, fetched]
        path = url[url.index("/", 8) :]
        if wish in ("gptbot", "*"):
            if robots is None or robots.state != "read":
                return "unknown"
            agent = "anybot" if wish == "*" else wish
            return "allow" if _MATCHER.is_allowed(robots.text, agent, url) else "disallow"
        own = set(_of_page(headers, body))
        if wish in ("tdm", "noai"):
            verdicts = {verdict for name, verdict in own if name == wish}
        else:
            use = wish.removeprefix("ai-t") if wish != "ai-train" else "train"
            verdicts = {verdict for name, verdict in own if name == use}
            if robots is not None and robots.state == "read":
                for words, uses in _USES.items():
                    if words in robots.text and use in uses:
                        told = uses[use]
                        verdicts.add(told(path) if callable(told) else told)
        return "disallow" if "disallow" in verdicts else "allow" if verdicts else "unknown"


def _of_page(headers: dict[str, str], body: bytes) -> Iterator[tuple[str, str]]:
    directives = headers.get("x-robots-tag", "").replace(",", " ").split()
    meta = re.search(rb'<meta name="robots" content="([^"]*)"', body)
    directives += meta[1].decode().replace(",", " ").split() if meta else []
    if "noai" in directives:
        yield from (("noai", "disallow"), ("train", "disallow"), ("ai-input", "disallow"))
    if "noindex" in directives:
        yield "search", "disallow"
    if "tdm-reservation" in headers:
        verdict = "disallow" if headers["tdm-reservation"] == "1" else "allow"
        yield from (("tdm", verdict), ("train", verdict))
    if headers.get("content-usage") == "train-ai=n":
        yield "train", "disallow"
    if headers.get("content-signal") == "ai-input=yes, ai-train=no":
        yield from (("ai-input", "allow"), ("train", "disallow"))


def _origin(url: str) -> str:
    return url[: url.index("/", 8)]
