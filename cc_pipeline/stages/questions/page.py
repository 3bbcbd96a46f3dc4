"""The report of a target as one HTML page that needs nothing beside it: no file, no script, no network.

Everything in it was written by strangers. ``Markup.format`` escapes whatever is put into it; what a title does to the
direction of text ends with the title; only ``http`` and ``https`` addresses are links; and a policy in the page lets
a browser run and load nothing, should all that fail.
"""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from cc_pipeline.progress import human_bytes
from cc_pipeline.stages.questions import blocks, sections
from cc_pipeline.stages.questions.findings import Findings
from cc_pipeline.stages.questions.style import COLOURS, CSS

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: Characters of a name in the bar of a browser.
_NAME: Final = 160


def page_of(found: Findings) -> str:
    """The whole page."""
    name = found.definition if found.kind != "set" else found.slug
    parts = [
        _head(found),
        _tiles(found),
        sections.over_time(found),
        sections.changes(found),
        sections.front(found),
        sections.languages(found),
        sections.links(found),
        sections.feeds(found),
        sections.pages(found),
        sections.members(found),
        sections.completeness(found),
        sections.left_out(found),
        _foot(found),
    ]
    page = Markup(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="{}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="generator" content="cc-pipeline"><title>{} in Common Crawl</title><style>{}{}</style></head>'
        "<body><main>{}</main></body></html>\n"
    ).format(_POLICY, name[:_NAME], Markup(CSS), Markup(COLOURS), Markup("\n").join(parts))
    return blocks.clean(page)


def _head(found: Findings) -> Markup:
    crawls = [row for row in found.crawls if row["captures"]]
    if not crawls:
        said = f"No comparable capture in {blocks.count(len(found.lookups), 'searched crawl')}."
    else:
        first, last = crawls[0], crawls[-1]
        span = blocks.crawl_month(first["crawl"], long=True)
        if len(crawls) > 1:
            span = f"{span} to {blocks.crawl_month(last['crawl'], long=True)}"
        said = (
            f"{blocks.count(sections.all_pages(found), 'page')} in {blocks.count(len(crawls), 'crawl')}, {span}. "
            f"The newest one, {last['crawl']}, has {last['pages']:,}, and {last['new_pages']:,} of them were in no "
            "crawl before."
        )
    what = {"domain": "A domain", "set": "A set"}.get(found.kind, f"A {found.kind}")
    name = found.slug.removeprefix("set-") if found.kind == "set" else found.definition
    full = Markup("<p><code>{}</code></p>").format(blocks.text_by(found.definition)) if found.kind == "set" else ""
    return Markup('<header><p class="over">{} in Common Crawl</p><h1>{}</h1><p>{}</p>{}</header>').format(
        what, blocks.text_by(name), said, full
    )


def _tiles(found: Findings) -> Markup:
    captures = sum(row["captures"] for row in found.crawls)
    planned, fetched = sections.planned(found)
    languages = {row["language"] for row in found.languages if row["language"]}
    tiles: list[tuple[str, str]] = [
        (f"{sections.all_pages(found):,}", "pages"),
        (f"{captures:,}", "captures of them"),
        (
            f"{sum(1 for row in found.crawls if row['captures']):,}",
            f"of {blocks.count(len(sections.searched(found)), 'crawl')} searched",
        ),
        (f"{len(languages):,}", "languages" if len(languages) != 1 else "language"),
        (human_bytes(sum(row["bytes"] for row in found.crawls)), "in the archive"),
        (blocks.percent(fetched, planned) if planned else "–", "of planned records are here"),
    ]
    drawn = [Markup('<div class="tile"><b>{}</b><span>{}</span></div>').format(*tile) for tile in tiles]
    return Markup('<div class="tiles">{}</div>').format(Markup("").join(drawn))


def _foot(found: Findings) -> Markup:
    asked = (
        f"cc-pipeline sql \"FROM timeline('{found.slug}')\""
        if found.kind == "domain"
        else 'cc-pipeline sql "SHOW TABLES"'
    )
    return Markup(
        "<footer><p>Made by cc-pipeline from the tables as published on {}. Times are UTC. Figures count "
        "captures with status 200 to 299 that are no robots.txt, which crawls of every era "
        "have.</p><p>To ask further: <code>{}</code></p></footer>"
    ).format(f"{found.published_at:%d %B %Y, %H:%M}", asked)
