"""The questions of docs/analytics.md answered the long way: loops over rows, no SQL but to read tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import numpy as np

Row = dict[str, Any]
Key = tuple[str, str, int]


def rows(connection: duckdb.DuckDBPyConnection, table: str, columns: str = "*") -> list[Row]:
    """A table as dictionaries."""
    found = connection.execute(f"SELECT {columns} FROM {table}")
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def key(row: Row) -> Key:
    """What names a capture."""
    return row["crawl"], row["warc_filename"], row["warc_record_offset"]


def when(row: Row) -> tuple[Any, str, int]:
    """The order of captures."""
    return row["fetch_time"], row["warc_filename"], row["warc_record_offset"]


def counts(row: Row) -> bool:
    """Whether every era keeps such a capture."""
    status = row["fetch_status"]
    path = row["url"].partition("://")[2].partition("/")[2].partition("?")[0]
    return status is not None and 200 <= status < 300 and path != "robots.txt"


def by(given: Iterable[Row], of: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows in groups."""
    found = defaultdict(list)
    for row in given:
        found[of(row)].append(row)
    return found


def timeline(captures: list[Row]) -> dict[str, tuple[int, ...]]:
    """Captures, pages, new pages, payloads, bytes, and what does not count, by crawl."""
    first: dict[str, str] = {}
    for row in filter(counts, captures):
        first[row["url_surtkey"]] = min(first.get(row["url_surtkey"], row["crawl"]), row["crawl"])
    new = Counter(first.values())
    found = {}
    for crawl, mine in by(captures, lambda row: row["crawl"]).items():
        good = [row for row in mine if counts(row)]
        found[crawl] = (
            len(good),
            len({row["url_surtkey"] for row in good}),
            new[crawl],
            len({row["content_digest"] for row in good} - {None}),
            sum(row["warc_record_length"] for row in good),
            len(mine) - len(good),
        )
    return found


def versions(captures: list[Row], texts: dict[Key, Row]) -> list[tuple[Any, ...]]:
    """First and last seen, captures, crawls and payloads of the contents of one page's captures."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in filter(counts, captures):
        text = texts.get(key(row), {}).get("main_content")
        groups[row["content_digest"] if text is None else f"text {text}"].append(row)
    found = [
        (
            min(row["fetch_time"] for row in group),
            max(row["fetch_time"] for row in group),
            len(group),
            sorted({row["crawl"] for row in group}),
            len({row["content_digest"] for row in group}),
        )
        for group in sorted(groups.values(), key=lambda group: min(map(when, group)))
    ]
    return [(number, *one) for number, one in enumerate(found, 1)]


def changes(captures: list[Row], texts: dict[Key, Row], before: str, after: str) -> dict[str, str]:
    """What became of each page between two crawls, by key."""
    last = {}
    for crawl in (before, after):
        mine = [row for row in captures if row["crawl"] == crawl and counts(row)]
        last[crawl] = {name: max(group, key=when) for name, group in by(mine, lambda r: r["url_surtkey"]).items()}
    found = {}
    for page in last[before].keys() | last[after].keys():
        old, new = last[before].get(page), last[after].get(page)
        if old is None or new is None:
            found[page] = "new" if old is None else "gone"
            continue
        contents = [texts.get(key(row), {}).get("main_content") for row in (old, new)]
        if None in contents:
            contents = [row["content_digest"] for row in (old, new)]
        found[page] = "unknown" if None in contents else "same" if contents[0] == contents[1] else "changed"
    return found


def feed_captures(pages: list[Row], items: list[Row]) -> dict[Key, tuple[int, int]]:
    """Items and new items of each capture of a feed."""
    of_capture = by(items, key)
    seen: dict[str, set[str]] = defaultdict(set)
    found = {}
    for page in sorted((page for page in pages if page["parsed_as"] == "feed" and counts(page)), key=when):
        mine = of_capture.get(key(page), [])
        names = {row["guid"] or row["link"] or row["title"] for row in mine} - {None}
        found[key(page)] = len(mine), len(names - seen[page["url_surtkey"]])
        seen[page["url_surtkey"]] |= names
    return found


def bare(url: str) -> str:
    """Without scheme, www. and fragment."""
    rest = re.sub(r"^[a-z][a-z0-9+.-]*://", "", url.split("#", maxsplit=1)[0], flags=re.IGNORECASE)
    host, slash, path = rest.partition("/")
    host = host.lower()
    return host.removeprefix("www.") + (slash or "/") + path


def feeds(pages: list[Row], captures: list[Row]) -> dict[str, tuple[int, list[str], int]]:
    """Pages that name a feed, the crawls in which they do, and its own captures."""
    naming: dict[str, set[str]] = defaultdict(set)
    crawls: dict[str, set[str]] = defaultdict(set)
    for page in pages:
        for feed in (page["feed_links"] or []) if counts(page) else []:
            naming[feed["url"]].add(page["url_surtkey"])
            crawls[feed["url"]].add(page["crawl"])
    held = Counter(bare(row["url"]) for row in captures if counts(row))
    return {feed: (len(naming[feed]), sorted(crawls[feed]), held[bare(feed)]) for feed in naming}


def links(given: list[Row]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """Pages, links and nofollow links by crawl, domain and domain linked to."""
    kept = [
        row
        for row in given
        if row["type"] in ("a", "area")
        and row["item_index"] is None
        and row["link_domain"] not in (None, row["domain"])
        and counts(row)
    ]
    return {
        edge: (
            len({row["url_surtkey"] for row in group}),
            len(group),
            sum("nofollow" in (row["rel"] or "").lower().split() for row in group),
        )
        for edge, group in by(kept, lambda row: (row["crawl"], row["domain"], row["link_domain"])).items()
    }


def duplicates(texts: list[Row], least: float, words: int) -> tuple[set[tuple[str, str]], dict[tuple[str, str], float]]:
    """Exact pairs (each beside the first), and near pairs of distinct texts with their likeness, all with all."""
    kept = [row for row in texts if row["content_minhash"] is not None and counts(row)]
    last = [max(group, key=when) for group in by(kept, lambda row: row["url_surtkey"]).values()]
    groups = [sorted(group, key=lambda row: row["url"]) for group in by(last, lambda row: row["main_content"]).values()]
    exact = {(row["url"], group[0]["url"]) for group in groups for row in group[1:]}
    first = sorted((group[0] for group in groups if group[0]["quality"]["words"] >= words), key=lambda row: row["url"])
    near = {}
    sketches = np.array([row["content_minhash"] for row in first])
    for number, one in enumerate(first):
        alike = (sketches[number + 1 :] == sketches[number]).mean(axis=1) if number + 1 < len(first) else []
        for other, equal in zip(first[number + 1 :], alike, strict=True):
            if equal >= least:
                near[other["url"], one["url"]] = float(equal)
    return exact, near
