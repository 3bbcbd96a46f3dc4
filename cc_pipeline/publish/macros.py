"""The questions of :mod:`cc_pipeline.publish.sql` as macros of ``cc.duckdb`` (docs/analytics.md)."""

from __future__ import annotations

from typing import Final

from cc_pipeline.lake.snapshot import MacroSpec
from cc_pipeline.publish import sql


def select_site_rows(table: str) -> str:
    """The rows of a published table about the registered domain ``site``, a parameter; all where it is null."""
    # DuckDB drops it if no site is named; if one is, it skips row groups by it
    return f"(FROM {sql.qualify(table)} WHERE site IS NULL OR domain = lower(site))"


def _select_arriving_links(table: str) -> str:
    return f"(FROM {sql.qualify(table)} WHERE link_domain = lower(site))"


def _refuse_unknown_site(query: str) -> str:
    """The rows of a query; an error of DuckDB if ``site`` has no captures: a misspelt site would look like one without
    rows. As a condition it is evaluated whatever the caller selects."""
    check = "CASE WHEN site IS NULL OR count(*) > 0 THEN true ELSE error('no captures of the site ' || site || ' are "
    check += "published here; SELECT DISTINCT domain FROM captures lists the sites') END"
    return f"FROM ({query}) WHERE (SELECT {check} FROM (FROM main.captures WHERE domain = lower(site) LIMIT 1))"


def _refuse_unknown_crawls(query: str) -> str:
    """The rows of a query; an error of DuckDB if ``before`` or ``after`` is a crawl without lookups and captures."""
    crawls = "SELECT crawl FROM main.lookups UNION SELECT crawl FROM main.captures WHERE crawl IN (before, after)"
    condition = "CASE WHEN count(*) FILTER (crawl = before) > 0 AND count(*) FILTER (crawl = after) > 0 THEN true ELSE "
    condition += "error(format('{} and {} have to be crawls that are published here: {}', before, after, "
    condition += "coalesce(string_agg(crawl, ', ' ORDER BY crawl), 'there are none'))) END"
    return f"FROM ({query}) WHERE (SELECT {condition} FROM ({crawls}))"


#: No parameter has the name of a column: DuckDB would put its value for the column too.
BY_SITE: Final = ("site := NULL",)

MACROS: Final[tuple[MacroSpec, ...]] = (
    MacroSpec(
        "comparable",
        ("status", "address"),
        sql.comparable("status", "address"),
        "Whether a capture counts in every era: status 200 to 299, and no robots.txt.",
        scalar=True,
    ),
    MacroSpec(
        "captures_of",
        ("page",),
        sql.captures_of("page", sql.qualify),
        "captures_of(page): all captures of a URL, whatever its scheme, with and without www., oldest first.",
    ),
    MacroSpec(
        "timeline",
        BY_SITE,
        _refuse_unknown_site(sql.timeline(select_site_rows)),
        "timeline(site := NULL): captures, pages and new pages by crawl, of a registered domain or of all.",
    ),
    MacroSpec(
        "page_versions",
        ("page",),
        sql.page_versions("page", sql.qualify),
        "page_versions(page): distinct contents of a URL by main text, each with first and last seen.",
    ),
    MacroSpec(
        "changes_between",
        ("before", "after", *BY_SITE),
        _refuse_unknown_crawls(_refuse_unknown_site(sql.changes_between("before", "after", select_site_rows))),
        "changes_between(before, after, site := NULL): pages new, gone, same or changed (by main text) of two crawls.",
    ),
    MacroSpec(
        "feed_timeline",
        BY_SITE,
        sql.feed_timeline(select_site_rows),
        "feed_timeline(site := NULL): captures of feeds, with their items and how many are new.",
    ),
    MacroSpec(
        "feeds_advertised",
        BY_SITE,
        sql.feeds_advertised(select_site_rows),
        "feeds_advertised(site := NULL): feeds that pages name, captured or not.",
    ),
    MacroSpec(
        "link_graph",
        BY_SITE,
        sql.link_graph(select_site_rows, _select_arriving_links),
        "link_graph(site := NULL): which domains link to which, by crawl; of a site those to it too.",
    ),
    MacroSpec(
        "near_duplicates",
        ("of_crawl", *BY_SITE, "min_similarity := 0.8", "min_words := 20"),
        sql.near_duplicates("of_crawl", "min_similarity", "min_words", select_site_rows),
        "near_duplicates(of_crawl, site := NULL, min_similarity := 0.8, min_words := 20): pages with the same main "
        "text, then such that share a part of their five-word runs.",
    ),
)
