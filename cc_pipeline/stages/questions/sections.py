"""The sections of a report; each is empty where there is nothing to say."""

from __future__ import annotations

from collections import Counter
from typing import Final

from markupsafe import Markup

from cc_pipeline.progress import human_bytes
from cc_pipeline.stages.questions import blocks
from cc_pipeline.stages.questions.blocks import Cells
from cc_pipeline.stages.questions.drawing import Column, columns, legend, share
from cc_pipeline.stages.questions.findings import MOST, Findings, Rows

#: Languages with a colour of their own; the others are one.
_COLOURED: Final = 6
#: Crawls of a table that is shown at once.
_FEW: Final = 8


def over_time(found: Findings) -> Markup:
    """Captures and pages by crawl."""
    if not found.crawls:
        return Markup("")
    chart = columns(
        [
            Column(
                blocks.crawl_month(row["crawl"]),
                f"{row['crawl']}: {row['pages']:,} pages, {row['new_pages']:,} of them new",
                [("known", row["pages"] - row["new_pages"]), ("new", row["new_pages"])],
                f"{row['pages']:,}",
            )
            for row in found.crawls
        ],
        unit="Pages by crawl",
    )
    table = blocks.table(
        ["crawl", "first fetch", "#captures", "#pages", "#new", "#contents", "#left out", "#size"],
        [
            (
                row["crawl"],
                blocks.day(row["first_fetch"]),
                row["captures"],
                row["pages"],
                row["new_pages"],
                row["payloads"],
                row["left_out"] + row["status_unknown"],
                human_bytes(row["bytes"]),
            )
            for row in found.crawls
        ],
    )
    words = (
        "Pages that answered with success, by crawl. A page counts once a crawl, whatever its scheme, and with or "
        "without www."
    )
    return blocks.section(
        "Captures over time",
        words,
        chart,
        legend([("new", "never seen before"), ("known", "seen in an earlier crawl")]),
        table if len(found.crawls) <= _FEW else blocks.folded("Figures of each crawl", table),
    )


def changes(found: Findings) -> Markup:
    """What became of pages between crawls."""
    if not found.changes:
        return Markup("")
    pairs: dict[tuple[str, str], Counter[str]] = {}
    for row in found.changes:
        pairs.setdefault((row["before"], row["after"]), Counter())[row["change"]] = row["pages"]
    chart = columns(
        [
            Column(
                blocks.crawl_month(after),
                f"{before} to {after}: "
                + ", ".join(f"{counts[kind]:,} {kind}" for kind in ("same", "changed", "new", "gone")),
                [
                    ("same", counts["same"]),
                    ("changed", counts["changed"]),
                    ("new", counts["new"]),
                    ("gone", -counts["gone"]),
                ],
            )
            for (before, after), counts in pairs.items()
        ],
        unit="Pages by what became of them",
    )
    (before, after), newest = list(pairs.items())[-1]
    both = newest["same"] + newest["changed"]
    words = (
        f"Of {blocks.count(both, 'page')} that both {before} and {after} have, {newest['changed']:,} changed their "
        f"main text; a new template is no change. {newest['new']:,} came, {newest['gone']:,} went (a crawl is a "
        "sample: some were only not visited). Each column sets a crawl beside the one before it."
    )
    changed = blocks.titled(
        "Changed most",
        ["page", "title before", "title after", "#text in common"],
        [
            (
                blocks.address(row["url"]),
                blocks.text_by(row["before_title"]),
                blocks.text_by(row["after_title"]),
                "–" if row["likeness"] is None else f"{row['likeness']:.0%}",
            )
            for row in found.changed_pages
        ],
        found.totals.get("changed_pages", 0),
    )
    return blocks.section(
        "What changed",
        words,
        chart,
        legend([("same", "same text"), ("changed", "changed"), ("new", "new"), ("gone", "gone")]),
        changed,
    )


def front(found: Findings) -> Markup:
    """The versions of the page that says most."""
    if found.front is None or not found.versions:
        return Markup("")
    table = blocks.table(
        ["#version", "first seen", "last seen", "title", "#captures", "#characters"],
        [
            (
                row["version"],
                blocks.day(row["first_seen"]),
                blocks.day(row["last_seen"]),
                blocks.text_by(row["title"]),
                row["captures"],
                row["characters"],
            )
            for row in found.versions
        ],
    )
    total = found.totals.get("versions", 0)
    said = Markup("{} of {}, by main text, newest first.").format(
        blocks.count(total, "version"), blocks.address(found.front)
    )
    return blocks.section("The front page, version by version", said, table, blocks.more(total))


def languages(found: Findings) -> Markup:
    """Languages by crawl."""
    total: Counter[str | None] = Counter()
    for row in found.languages:
        total[row["language"]] += row["pages"]
    if not total:
        return Markup("")
    ranked = [language for language, _ in total.most_common() if language is not None]
    colour = {language: f"c{min(place, _COLOURED)}" for place, language in enumerate(ranked)}
    by_crawl: dict[str, Rows] = {}
    for row in found.languages:
        by_crawl.setdefault(row["crawl"], []).append(row)
    bars = []
    for row in found.crawls:
        mine = by_crawl.get(row["crawl"], [])
        pages = sum(one["pages"] for one in mine)
        if pages:
            mine = sorted(mine, key=lambda one: -total[one["language"]])
            pieces = [(colour.get(one["language"], "c6"), 100 * one["pages"] / pages) for one in mine]
            told = ", ".join(f"{blocks.language(one['language'])} {one['pages']:,}" for one in mine[:MOST])
            bars.append(Column(blocks.crawl_month(row["crawl"]), f"{row['crawl']}: {told}", pieces))
    named = [(f"c{place}", blocks.language(language)) for place, language in enumerate(ranked[:_COLOURED])]
    if len(ranked) > _COLOURED or None in total:
        named.append(("c6", "others and unknown"))
    everything = sum(total.values())
    leading = ", ".join(
        f"{blocks.language(language)} {blocks.percent(total[language], everything)}" for language in ranked[:3]
    )
    return blocks.section(
        "Languages",
        f"Of pages with a main text, by what CLD2 reads in them: {leading or 'none that it knows'}.",
        columns(bars, unit="Share of pages by language", percent=True) if len(ranked) > 1 else Markup(""),
        legend(named) if len(ranked) > 1 else Markup(""),
    )


def links(found: Findings) -> Markup:
    """Neighbours by links, both ways."""
    out, back = found.links["out"], found.links["in"]
    if not out and not back:
        return Markup("")

    def neighbours(title: str, rows: Rows, total: int) -> Markup:
        most = max([row["pages"] for row in rows] or [1])
        return blocks.titled(
            title,
            ["domain", "", "#pages", "#crawls", "last seen"],
            [
                (
                    blocks.text_by(row["domain"]),
                    Markup('<span class="bar"><i style="width:{:.1f}%"></i></span>').format(100 * row["pages"] / most),
                    row["pages"],
                    row["crawls"],
                    blocks.month(row["last_fetch"]),
                )
                for row in rows
            ],
            total,
        )

    left = neighbours("It links to", out, found.totals.get("links out", 0))
    right = neighbours("Linked to by", back, found.totals.get("links in", 0))
    return blocks.section(
        "Link neighbours",
        "Other domains, by pages with a link that a reader can click, in the crawl that has most of them. Who links "
        "here is known of sites in this lake alone.",
        Markup('<div class="two"><div>{}</div><div>{}</div></div>').format(left, right),
    )


def feeds(found: Findings) -> Markup:
    """Feeds captured, and feeds that pages name."""
    if not found.feeds and not found.advertised:
        return Markup("")
    held = blocks.titled(
        "Captured",
        ["feed", "title", "#captures", "#items", "oldest", "newest"],
        [
            (
                blocks.address(row["url"]),
                blocks.text_by(row["title"]),
                row["captures"],
                row["items"],
                blocks.day(row["oldest"]),
                blocks.day(row["newest"]),
            )
            for row in found.feeds
        ],
        found.totals.get("feeds", 0),
    )
    named = blocks.titled(
        "Named by its pages",
        ["feed", "title", "type", "#named by pages", "last named", "captured"],
        [
            (
                blocks.address(row["feed"]),
                blocks.text_by(row["title"]),
                row["type"] or "",
                row["pages"],
                blocks.day(row["last_seen"]),
                f"{row['captures']:,} times" if row["captures"] else Markup('<span class="soft">never</span>'),
            )
            for row in found.advertised
        ],
        found.totals.get("advertised", 0),
    )
    return blocks.section(
        "Feeds",
        "Items count once a feed, however many captures have them.",
        held,
        named,
    )


def pages(found: Findings) -> Markup:
    """Pages that most crawls have."""
    if not found.pages:
        return Markup("")
    table = blocks.table(
        ["page", "newest title", "#crawls", "#captures", "#contents", "last seen"],
        [
            (
                blocks.address(row["url"]),
                blocks.text_by(row["title"]),
                row["crawls"],
                row["captures"],
                row["payloads"],
                blocks.day(row["last_seen"]),
            )
            for row in found.pages
        ],
    )
    return blocks.section(
        "Pages seen most", "Pages that most crawls have, with the title of their newest capture.", table
    )


def members(found: Findings) -> Markup:
    """Of a set its members."""
    if not found.members:
        return Markup("")
    total, none = found.totals.get("members", 0), found.totals.get("members without captures", 0)
    most = max([row["captures"] for row in found.members] or [1]) or 1
    table = blocks.table(
        ["member", "", "#captures", "#crawls"],
        [
            (
                blocks.text_by(row["member"]),
                Markup('<span class="bar"><i style="width:{:.1f}%"></i></span>').format(100 * row["captures"] / most),
                row["captures"],
                row["crawls"],
            )
            for row in found.members
        ],
    )
    words = f"{blocks.count(total, 'member')}. " + (
        f"{none:,} of them {'has' if none == 1 else 'have'} no capture at all." if none else "Every one has captures."
    )
    return blocks.section("Members of the set", words, table, blocks.more(total))


def completeness(found: Findings) -> Markup:
    """What was located, what of it is here, and why the rest is not."""
    looked = {row["crawl"]: row for row in found.lookups}
    here = {row["crawl"]: row for row in found.crawls}
    outcomes: dict[str, Counter[str]] = {}
    for row in found.outcomes:
        outcomes.setdefault(row["crawl"], Counter())[row["outcome"]] = row["captures"]
    rows: list[Cells] = []
    for crawl in searched(found):
        counts, look = outcomes.get(crawl, Counter()), looked.get(crawl)
        line = here.get(crawl)
        located = sum(line[name] for name in ("captures", "left_out", "status_unknown")) if line else 0
        whole = Markup('<span class="soft">not noted</span>')
        if look is not None:
            whole = Markup(
                '<span class="ok">whole</span>' if look["complete"] else '<span class="no">with holes</span>'
            )
        rows.append(
            (
                crawl,
                whole,
                located,
                counts["fetched"],
                counts["quarantined"],
                counts["missing"],
                share(
                    [(name, counts[name], f"{counts[name]:,} {name}") for name in ("fetched", "quarantined", "missing")]
                ),
            )
        )
    wanted, fetched = planned(found)
    if not wanted:
        words = "No record was fetched yet."
    elif wanted == fetched:
        words = f"All {wanted:,} planned records are here, each checked against the archive's own figures."
    else:
        words = f"{fetched:,} of {wanted:,} planned records are here. Each of the others has a reason."
    table = blocks.table(["crawl", "index", "#located", "#fetched", "#quarantined", "#missing", ""], rows)
    reasons = blocks.titled(
        "Why records are not here",
        ["reason", "outcome", "#records", "#may still come", "for instance"],
        [
            (
                row["reason"],
                row["outcome"],
                row["captures"],
                row["open"],
                Markup("{}<br><small>{}</small>").format(blocks.address(row["url"]), blocks.text_by(row["detail"])),
            )
            for row in found.reasons
        ],
        found.totals.get("reasons", 0),
    )
    return blocks.section(
        "Completeness",
        words,
        table if len(rows) <= 2 * _FEW else blocks.folded("Each crawl", table),
        reasons,
    )


def left_out(found: Findings) -> Markup:
    """Errors, redirects and robots.txt by status."""
    if not found.statuses:
        return Markup("")
    table = blocks.table(
        ["#status", "#captures", "#crawls", "for instance"],
        [(str(row["status"]), row["captures"], row["crawls"], blocks.address(row["url"])) for row in found.statuses],
    )
    words = (
        "Errors, redirects and robots.txt, by HTTP status. Crawls before 2013 keep them beside the pages, later "
        "ones apart and only where they were asked for, so no figure above counts them."
    )
    return blocks.section("Answers that are no pages", words, table, blocks.more(found.totals.get("statuses", 0)))


def searched(found: Findings) -> list[str]:
    """Crawls that were looked in, oldest first."""
    return sorted({row["crawl"] for row in [*found.lookups, *found.crawls]})


def all_pages(found: Findings) -> int:
    """Pages of all crawls together, each once."""
    return sum(int(row["new_pages"]) for row in found.crawls)


def planned(found: Findings) -> tuple[int, int]:
    """Records planned, and of these fetched."""
    fetched = sum(int(row["captures"]) for row in found.outcomes if row["outcome"] == "fetched")
    return sum(int(row["captures"]) for row in found.outcomes), fetched
