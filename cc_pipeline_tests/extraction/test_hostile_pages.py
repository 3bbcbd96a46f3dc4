"""Pages made to hang a parser, through a run with its own lake and supervised workers: no page is above its budget, and
the pages beside them are as they are without them.

For a count of hostile pages and what they took:
``python -m cc_pipeline_tests.extraction.test_hostile_pages FOLDER PAGES``.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.run import TABLES, extract
from cc_pipeline.testing.mini_crawl import archives
from cc_pipeline.testing.mini_crawl.bodies import HtmlPage, html_page
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST, CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.world import NEW, harvested

#: Markup behind which a count of tags alone does not know what the parser reads.
_PREFIXES = (
    "<svg><p><![CDATA[>",
    "<math><b><![CDATA[>",
    "<svg><font color=a><![CDATA[>",
    "<svg><p><textarea><![CDATA[</textarea>",
    "<script><!--<script></script><textarea></script>",
)
#: What takes a tree builder minutes, or gigabytes, where nothing bounds it.
_BOMBS = (
    "<div>" * 100_000,
    "".join(f"<b id={number}>" for number in range(3_000)) + "<p>x" * 30_000,
    "<a " + "".join(f"a{number}=1 " for number in range(40_000)) + ">",
    "<form><div></form>" * 20_000,
    "<rt>" * 60_000,
)


@dataclass
class Pages:
    """Rows of ``page_metadata`` by URL, texts by URL, and seconds of the run."""

    rows: dict[str, dict[str, Any]]
    texts: dict[str, str]
    seconds: float


def _bomb(number: int) -> bytes:
    prefix, bomb = _PREFIXES[number % len(_PREFIXES)], _BOMBS[number // len(_PREFIXES) % len(_BOMBS)]
    return f"<!doctype html><title>T</title><p>first {prefix}{bomb}".encode()


@contextmanager
def _hostile(count: int) -> Iterator[set[str]]:
    """Every second page of HTML is a bomb, until there are ``count``; their URLs."""
    urls: dict[str, int] = {}

    def page(rng: Any, url: str, *given: Any, **named: Any) -> HtmlPage:
        made = html_page(rng, url, *given, **named)
        # the body at /unavailable is that of other URLs
        is_own = not url.endswith("/unavailable")
        if is_own and len(urls) < count and url not in urls and zlib.crc32(url.encode()) % 2:
            urls[url] = len(urls)
        if url not in urls:
            return made
        return replace(made, body=_bomb(urls[url]), title="T", charset="utf-8", declared_in="header")

    with patch.object(archives, "html_page", page):
        hostile: set[str] = set()
        yield hostile
        hostile.update(urls)


def _run(spec: MiniCrawlSpec, folder: Path) -> Pages:
    truth = ensure(folder / "bucket", spec)
    workspace = harvested(folder / "bucket", folder / "home")
    targets = [parse_target(domain) for domain in truth.domains(NEW)]
    workspace.register_targets(targets)
    begin = time.monotonic()
    for partition in extract(workspace, [(NEW, target.slug) for target in targets], TABLES):
        if partition.error is not None:
            raise partition.error
    seconds = time.monotonic() - begin
    rows = workspace.lake.read("page_metadata", {"crawl": NEW}).to_pylist()
    texts = workspace.lake.read("page_text", {"crawl": NEW}, ["url", "text"]).to_pylist()
    return Pages({row["url"]: row for row in rows}, {row["url"]: row["text"] for row in texts}, seconds)


def _compare(spec: MiniCrawlSpec, count: int, folder: Path) -> tuple[Pages, set[str], list[str]]:
    """A run with hostile pages, their URLs, and what is wrong."""
    plain = _run(spec, folder / "plain")
    with _hostile(count) as urls:
        attacked = _run(spec, folder / "hostile")
    wrong = [f"{url}: no row" for url in plain.rows.keys() - attacked.rows.keys()]
    for url, row in attacked.rows.items():
        told = [(pages.rows[url]["flags"], pages.texts.get(url)) for pages in (plain, attacked)]
        if url not in urls and told[0] != told[1]:
            wrong.append(f"{url}: {told[0]} before, {told[1]} with hostile pages")
        is_read = row["disposition"] == "SUCCESS" and (attacked.texts.get(url) or "").startswith("T first")
        if url in urls and row["http_result"] == 200 and not is_read:
            wrong.append(f"{url}: {row['disposition']} {row['flags']}")
    return attacked, urls & attacked.rows.keys(), wrong


@pytest.mark.bomb
@pytest.mark.process
def test_hostile_pages_cost_a_run_little_and_their_neighbours_nothing(tmp_path: Path) -> None:
    attacked, urls, wrong = _compare(replace(TEST, pages=160), 50, tmp_path)
    print(f"{attacked.seconds:.1f} s")
    assert not wrong
    assert len(urls) >= 40
    flags = {flag for url in urls for flag in attacked.rows[url]["flags"] or ()}
    assert {"nesting_cut", "attributes_cut"} <= flags
    # one of them took more than 100 s
    assert attacked.seconds < 300


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    crawl = CrawlSpec(NEW, segments=4, parts=4)
    spec = MiniCrawlSpec(pages=4 * count, sites=20, crawls=(crawl,))
    attacked, urls, wrong = _compare(spec, count, folder)
    rows = len(attacked.rows)
    print(
        f"{len(urls)} hostile pages among {rows} rows: {attacked.seconds:.0f} s, {len(wrong)} wrong",
        *wrong[:20],
        sep="\n",
    )


if __name__ == "__main__":
    main()
