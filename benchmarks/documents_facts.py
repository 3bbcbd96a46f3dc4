"""What pages say about themselves: how many dates and authors are found, how far others agree, what each part costs."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks.report import Report, sized
from cc_pipeline.documents.about.author import author
from cc_pipeline.documents.about.guesses import guessed_date
from cc_pipeline.documents.about.marks import Marks
from cc_pipeline.documents.about.metas import Metas
from cc_pipeline.documents.about.nodes import Nodes
from cc_pipeline.documents.about.page import About
from cc_pipeline.documents.about.published import modified, published
from cc_pipeline.documents.about.relations import relations
from cc_pipeline.documents.about.robots import robots
from cc_pipeline.documents.html.facts import json_ld
from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.page import Limits, PageInput, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.news import htmldate_day, news_pages, same_names, trafilatura_author

_METADATA = ParseOptions(main_content="none", language=False, text_simhash=False)


def html_page(url: str, markup: str) -> PageInput:
    """A page as a server of today sends it."""
    return PageInput(
        crawl="CC-MAIN-2024-22",
        subset="warc",
        url=url,
        payload=markup.encode(),
        http_status=200,
        http_status_line="HTTP/1.1 200 OK",
        http_headers=(("Content-Type", "text/html; charset=utf-8"),),
    )


def found_and_agreed(report: Report) -> None:
    """Dates and authors of news pages beside htmldate's and trafilatura's."""
    news = news_pages()[:: sized(40, 1)]
    rows = [parse_page(html_page(url, markup), _METADATA).metadata for url, markup in news]
    days = [htmldate_day(url, markup) for url, markup in news]
    both = [(row["published_day"], day) for row, day in zip(rows, days, strict=True) if row["published"] and day]
    same = sum(ours == theirs for ours, theirs in both)
    near = sum(abs(ours - theirs).days <= 1 for ours, theirs in both)
    found, theirs = sum(bool(row["published"]) for row in rows), sum(map(bool, days))
    note = f"htmldate; {len(news)} news pages; {_sources(rows, 'published_from')}"
    report.figure("published_found", found, theirs, 1, unit="dates", goal_on="ratio", note=note)
    note = f"within a day of htmldate's, {same} of {len(both)} on the same"
    report.figure("published_agreement", near / len(both), None, 0.98, note=note)
    names = [trafilatura_author(url, markup) for url, markup in news]
    named = [(row["author"], name) for row, name in zip(rows, names, strict=True) if row["author"] and name]
    found, theirs = sum(bool(row["author"]) for row in rows), sum(map(bool, names))
    note = f"trafilatura; {_sources(rows, 'author_from')}"
    report.figure("author_found", found, theirs, 1, unit="authors", goal_on="ratio", note=note)
    agreed = sum(same_names(*pair) for pair in named)
    note = f"{agreed} of {len(named)}; where they differ it mostly has the magazine's name"
    report.figure("author_agreement", agreed / len(named), None, 0.95, note=note)


def _sources(rows: Sequence[Any], column: str) -> str:
    counts = Counter(row[column] for row in rows if row[column])
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def price_of_facts(report: Report, pages: Sequence[PageInput], repeats: int) -> None:
    """What each part costs a page, in milliseconds of processor time; pages are the large ones of the corpus."""
    looks: list[tuple[PageInput, Any, Any, Any]] = []
    for page in pages:
        kept = partial(lambda page, *seen: looks.append((page, *seen)), page)
        parse_html(page.payload.decode(), page.url, Limits(), utf8=page.payload, look=kept)
    read = []
    for page, tree, document, resolve in looks:
        marks = Marks(Limits())
        marks.look(tree, resolve)
        values = json_ld(document.json_ld, Limits(), set()).values
        read.append((page, tree, document, resolve, Nodes(values), Metas(document.meta_tags), marks))

    def cost(name: str, work: Callable[..., object], things: Sequence[Any], note: str) -> None:
        spent = []
        for _ in range(repeats):
            gc.collect()
            started = time.process_time()
            for thing in things:
                work(*thing)
            spent.append((time.process_time() - started) * 1000 / len(pages))
        report.figure(f"price_{name}", median(spent), unit="ms/page", higher_is_better=False, note=note)

    cost(
        "all_facts",
        lambda page, *found: About(page, Limits()).look(*found),
        looks,
        "all below but htmldate, and JSON-LD",
    )
    cost(
        "marks", lambda _, tree, __, resolve: _marks(tree, resolve), looks, "headings, times, refresh, microdata, RDFa"
    )
    cost("dates", lambda p, _, __, ___, *found: (published(*found, p.url, None), modified(*found, None)), read, "")
    cost("author", lambda _, tree, __, ___, *found: author(*found, tree), read, "")
    cost(
        "robots_relations",
        lambda page, _, document, resolve: (
            robots(document.meta_tags, page.http_headers),
            relations(document.links, page.http_headers, resolve),
        ),
        looks,
        "robots, TDM, canonical, languages, feeds",
    )
    without = [(page,) for page, *_, nodes, metas, marks in read if not published(nodes, metas, marks, page.url, None)]
    cost(
        "htmldate",
        lambda page: guessed_date(page.payload.decode(), page.url, None, article=True),
        without,
        f"shared by all pages; asked for {len(without)} of {len(pages)}",
    )


def _marks(tree: Any, resolve: Any) -> None:
    marks = Marks(Limits())
    marks.look(tree, resolve)
    marks.structured()
