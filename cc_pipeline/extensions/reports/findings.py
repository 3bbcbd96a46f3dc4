"""What the report of a target says: asked of a published file, each list bounded, so that a page stays a page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import duckdb

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.target_text import to_run
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.reading import quoted
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.publish import sql

#: Rows of a list that the page shows; how many there are is said.
MOST: Final = 12
#: Crawls that are compared with the one before them, newest first: each reads the texts of two crawls.
_COMPARED: Final = 6
#: Domains that a condition names one by one.
_NAMED: Final = 100
#: What can become of a page between two crawls.
CHANGES: Final = ("same", "changed", "moved", "new", "gone", "not compared", "unknown")
_KEY: Final = ", ".join(CAPTURE)
_KEYS: Final = "report_keys"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything a report shows. Lists of dictionaries are rows of queries, named by their columns."""

    slug: str
    kind: str
    definition: str
    published_at: datetime
    crawls: Rows
    lookups: Rows
    outcomes: Rows
    reasons: Rows
    statuses: Rows
    languages: Rows
    changes: Rows
    #: The two crawls that are compared in words, what became of all pages between them, of those of some
    #: domains, and some pages.
    between: tuple[str, str] | None
    became: Mapping[str, int]
    changed_domains: Rows
    changed_pages: Rows
    front: str | None
    versions: Rows
    pages: Rows
    links: Mapping[str, Rows]
    advertised: Rows
    feeds: Rows
    members: Rows
    consent: Rows
    #: How many rows lists had before they were cut, by the list's name.
    totals: Mapping[str, int] = field(default_factory=dict)


def find(
    connection: duckdb.DuckDBPyConnection, slug: str, named: str = "", between: tuple[str, str] | None = None
) -> Findings:
    """What a published file has of a target.

    ``slug`` is the key of a target that was located, or a domain that others brought; ``named`` is what a person called
    it; ``between`` are the crawls that are compared in words (default: the last two that have it). The connection gets
    a temporary table. Raises ``UserInputError`` where nobody looked for it, or not in one of these crawls.
    """
    ask = _Asking(connection, {})
    known, scope, domains = scope_of(connection, slug, named)
    lookups = ask.rows(
        f"SELECT crawl, complete, captures, looked_up_at FROM main.lookups WHERE target = {quoted(slug)} ORDER BY crawl"
    )
    crawls = ask.rows(sql.timeline(scope))
    front = _front(ask, scope)
    if between is not None:
        check_located(connection, slug, scope, between, named)
    pairs = list(pairwise(row["crawl"] for row in crawls if row["pages"]))[-_COMPARED:]
    between = between or (pairs[-1] if pairs else None)
    published = connection.execute("SELECT max(published_at) FROM main.publication").fetchone()
    assert published is not None
    return Findings(
        slug=slug,
        kind=known["kind"] if known else "domain",
        definition=known["definition"] if known else slug,
        published_at=published[0],
        crawls=crawls,
        lookups=lookups,
        outcomes=ask.rows(
            f"SELECT crawl, outcome, count(*) AS captures FROM {scope('records')} GROUP BY ALL ORDER BY ALL"
        ),
        reasons=ask.first(
            "reasons",
            "SELECT outcome, reason, count(*) AS captures, count(*) FILTER (settled IS NOT true) AS open, "
            f"arg_min(url, url) AS url, arg_min(detail, url) AS detail FROM {scope('records')} "
            "WHERE outcome <> 'fetched' GROUP BY ALL ORDER BY captures DESC, reason",
        ),
        statuses=ask.first(
            "statuses",
            f"SELECT fetch_status AS status, count(*) AS captures, count(DISTINCT crawl) AS crawls, min(url) AS url "
            f"FROM {scope('captures')} WHERE NOT {sql.comparable()} GROUP BY ALL ORDER BY captures DESC, status",
        ),
        languages=ask.rows(
            f"SELECT crawl, content_languages[1] AS language, count(*) AS pages FROM {scope('page_text')} "
            f"WHERE main_content IS NOT NULL AND {sql.comparable()} GROUP BY ALL ORDER BY crawl, pages DESC, language"
        ),
        changes=[row for pair in pairs for row in _changes(ask, scope, *pair)],
        between=between,
        **_between(ask, scope, between),
        front=front,
        versions=ask.last("versions", sql.page_versions(quoted(front), scope)) if front else [],
        pages=_pages(ask, scope),
        links=_links(ask, scope, domains),
        advertised=ask.first("advertised", sql.feeds_advertised(scope)),
        feeds=ask.first(
            "feeds",
            "SELECT arg_max(url, fetch_time) AS url, arg_max(title, fetch_time) AS title, count(*) AS captures, "
            "sum(new_items)::BIGINT AS items, min(oldest_item) AS oldest, max(newest_item) AS newest "
            f"FROM ({sql.feed_timeline(scope)}) GROUP BY url_surtkey ORDER BY items DESC, url",
        ),
        members=ask.first(
            "members",
            "SELECT member, sum(captures)::BIGINT AS captures, count(*) FILTER (captures > 0) AS crawls "
            f"FROM main.set_members WHERE target = {quoted(slug)} GROUP BY member ORDER BY captures DESC, member",
        ),
        consent=_consent(ask, domains),
        totals={
            **ask.totals,
            "members without captures": ask.number(
                f"SELECT count(*) FROM (SELECT member FROM main.set_members WHERE target = {quoted(slug)} "
                "GROUP BY member HAVING sum(captures) = 0)"
            ),
        },
    )


def _consent(ask: _Asking, domains: Sequence[str]) -> Rows:
    """The timeline of robots.txt of the target's domains, whichever target had it fetched; nothing from a file that
    has no such macro."""
    macro = "SELECT 1 FROM duckdb_functions() WHERE function_name = 'consent_timeline'"
    if not domains or not ask.rows(macro):
        return []
    if len(domains) == 1:
        timeline = f"FROM main.consent_timeline({quoted(domains[0])})"
    else:
        hosts = f"SELECT host FROM main.site_policies WHERE domain IN ({_listed(domains)})"
        timeline = f"FROM main.consent_timeline() WHERE host IN ({hosts})"
    return ask.first("consent", f"SELECT * {timeline} ORDER BY last_seen DESC, host, scheme")


def scope_of(
    connection: duckdb.DuckDBPyConnection, slug: str, named: str = ""
) -> tuple[dict[str, Any] | None, sql.Scope, Sequence[str]]:
    """The row of a target, if it was one, its rows of every table, and its domains where they can be named.

    The connection may get a temporary table. Raises ``UserInputError`` where nobody looked for it.
    """
    ask = _Asking(connection, {})
    known = ask.rows(f"SELECT kind, definition FROM main.targets WHERE slug = {quoted(slug)}")
    domain = ask.rows(f"SELECT 1 AS found FROM main.captures WHERE domain = {quoted(slug)} LIMIT 1")
    if not known and not domain:
        raise UserInputError(
            f"nothing was located for {named or slug!r}. Run it first, for instance with: "
            f"cc-pipeline run {to_run(slug, named)} --crawl newest"
        )
    # a domain that nobody asked for by itself has no captures of its own
    scope, domains = _of_target(connection, slug) if known else (_of_domain(slug), [slug])
    return (known[0] if known else None), scope, domains


def check_located(
    connection: duckdb.DuckDBPyConnection, slug: str, scope: sql.Scope, crawls: Sequence[str], named: str = ""
) -> None:
    """Raises ``UserInputError`` for a crawl in which a target was not looked for."""
    asked = (
        f"SELECT crawl FROM main.lookups WHERE target = {quoted(slug)} UNION "
        f"SELECT crawl FROM {scope('captures')} ORDER BY crawl"
    )
    there = [crawl for (crawl,) in connection.execute(asked).fetchall()]
    for crawl in crawls:
        if crawl not in there:
            raise UserInputError(
                f"{named or slug} was not located in {crawl!r}. It was in: {', '.join(there)}. Run it of another "
                f"crawl first: cc-pipeline run {to_run(slug, named)} --crawl {shlex.quote(crawl)}"
            )


@dataclass(frozen=True, slots=True)
class _Asking:
    connection: duckdb.DuckDBPyConnection
    totals: dict[str, int]

    def rows(self, query: str) -> Rows:
        found = self.connection.execute(query)
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def first(self, name: str, query: str, most: int = MOST) -> Rows:
        """The first rows, and how many there are."""
        found = self.rows(f"SELECT *, count(*) OVER () AS of_all FROM ({query}) LIMIT {most}")
        self.totals[name] = found[0].pop("of_all") if found else 0
        for row in found[1:]:
            del row["of_all"]
        return found

    def last(self, name: str, query: str) -> Rows:
        """The last versions, newest first, and how many there are."""
        return self.first(name, f"FROM ({query}) ORDER BY version DESC", MOST)

    def number(self, query: str) -> int:
        found = self.connection.execute(query).fetchone()
        return int(found[0]) if found else 0


def _of_domain(domain: str) -> sql.Scope:
    return lambda table: f"(FROM {sql.named(table)} WHERE domain = {quoted(domain)})"


def _of_target(connection: duckdb.DuckDBPyConnection, slug: str) -> tuple[sql.Scope, Sequence[str]]:
    """Rows of the captures that a target has, without pages that its condition rules out, and its domains where they
    can be named."""
    # files that were published before this column have none
    asked = "SELECT 1 FROM duckdb_columns() WHERE table_name = 'capture_targets' AND column_name = 'meant'"
    meant = "meant" if connection.execute(asked).fetchall() else "NULL"
    connection.execute(
        f"CREATE OR REPLACE TEMPORARY TABLE {_KEYS} AS "
        f"SELECT DISTINCT {_KEY}, {meant} AS is_meant FROM main.capture_targets WHERE target = {quoted(slug)}"
    )
    found = connection.execute(
        f"SELECT DISTINCT domain FROM main.captures SEMI JOIN temp.{_KEYS} USING ({_KEY}) LIMIT {_NAMED + 1}"
    ).fetchall()
    domains = [domain for (domain,) in found if domain is not None] if len(found) <= _NAMED else []
    # joined alone, every row group of the table would be looked at; captures that a person added may have no URL
    parts = [f"domain IN ({_listed(domains)})"] if domains else []
    parts += ["domain IS NULL"] if (None,) in found else []
    named = f" WHERE {' OR '.join(parts)}" if parts and len(found) <= _NAMED else ""

    def scope(table: str) -> str:
        own = f"(FROM temp.{_KEYS} WHERE is_meant IS DISTINCT FROM 'no')" if table in PAGE_TABLES else f"temp.{_KEYS}"
        return f"(FROM (FROM {sql.named(table)}{named}) SEMI JOIN {own} USING ({_KEY}))"

    return scope, domains


def _listed(values: Sequence[str]) -> str:
    return ", ".join(map(quoted, values))


def _front(ask: _Asking, of: sql.Scope) -> str | None:
    """The page that says most of a target: its start page, else the one that was captured most often."""
    found = ask.rows(
        f"SELECT arg_max(url, fetch_time) AS url FROM {of('captures')} WHERE {sql.comparable()} GROUP BY url_surtkey "
        "ORDER BY bool_or(coalesce(url_path, '') IN ('', '/') AND url_query IS NULL) DESC, count(*) DESC, "
        "length(url_surtkey), url_surtkey LIMIT 1"
    )
    return found[0]["url"] if found else None


def _changes(ask: _Asking, of: sql.Scope, before: str, after: str) -> Rows:
    """Counts of each kind of change between two crawls."""
    query = sql.changes_between(quoted(before), quoted(after), of)
    found = ask.rows(f"SELECT change, count(*) AS pages FROM ({query}) GROUP BY change")
    return [{"before": before, "after": after, **row} for row in found]


def _between(ask: _Asking, of: sql.Scope, pair: tuple[str, str] | None) -> dict[str, Any]:
    """What became of all pages between two crawls, of those of each domain, and the pages that changed most, then
    others. Texts are read of those that are shown."""
    if pair is None:
        return {"became": {}, "changed_domains": [], "changed_pages": []}
    told = sql.with_moves(sql.changes_between(quoted(pair[0]), quoted(pair[1]), of))
    kinds = ", ".join(f'count(*) FILTER (change = {quoted(kind)}) AS "{kind}"' for kind in CHANGES)
    became, *domains = ask.first(
        "changed_domains",
        f"SELECT domain, {kinds} FROM ({told}) GROUP BY GROUPING SETS ((), (domain)) "
        "ORDER BY grouping(domain) DESC, changed + new + gone + moved DESC, domain",
        MOST + 1,
    )
    del became["domain"]
    ask.totals["changed_domains"] -= 1
    ask.totals["changed_pages"] = sum(became[kind] for kind in CHANGES[1:])
    each = MOST if len(domains) <= 1 else MOST // 4
    shown = ", ".join(quoted(row["domain"] or "") for row in domains)
    by_worth = "list_position(['changed', 'moved', 'new', 'gone', 'not compared', 'unknown'], change), likeness, url"
    chosen = ask.rows(
        f"SELECT url_surtkey FROM ({told}) WHERE change <> 'same' AND coalesce(domain, '') IN ({shown or 'NULL'}) "
        f"QUALIFY row_number() OVER (PARTITION BY domain ORDER BY {by_worth}) <= {each}"
    )
    keys = ", ".join(quoted(row["url_surtkey"]) for row in chosen)
    pages = ask.rows(f"FROM ({told}) WHERE url_surtkey IN ({keys}) ORDER BY domain, {by_worth}") if chosen else []
    return {"became": became, "changed_domains": domains, "changed_pages": pages}


def _pages(ask: _Asking, of: sql.Scope) -> Rows:
    """The pages that were captured in most crawls."""
    return ask.first(
        "pages",
        f"WITH seen AS (SELECT url_surtkey, arg_max(url, fetch_time) AS url, count(DISTINCT crawl) AS crawls, "
        f"count(*) AS captures, count(DISTINCT content_digest) AS payloads, max(fetch_time) AS last_seen, "
        f"count(*) OVER () AS total FROM {of('captures')} WHERE {sql.comparable()} GROUP BY url_surtkey "
        f"ORDER BY crawls DESC, captures DESC, length(url_surtkey), url_surtkey LIMIT {MOST}) "
        "SELECT s.* EXCLUDE (url_surtkey, total), t.title FROM seen s LEFT JOIN "
        f"(SELECT url_surtkey, arg_max(title, fetch_time) AS title FROM {of('page_text')} "
        f"WHERE url_surtkey IN (SELECT url_surtkey FROM seen) GROUP BY url_surtkey) t USING (url_surtkey) "
        "ORDER BY crawls DESC, captures DESC, length(url_surtkey), url_surtkey",
    )


def _links(ask: _Asking, of: sql.Scope, domains: Sequence[str]) -> dict[str, Rows]:
    """Neighbours that the target links to (``out``), and that link to it (``in``), by pages that have such a link."""

    def neighbours(name: str, column: str, graph: str) -> Rows:
        return ask.first(
            name,
            f"SELECT {column} AS domain, max(pages) AS pages, sum(links)::BIGINT AS links, "
            f"count(DISTINCT crawl) AS crawls, max(last_fetch) AS last_fetch "
            f"FROM ({graph}) GROUP BY {column} ORDER BY pages DESC, links DESC, domain",
        )

    def arriving(table: str) -> str:
        here = _listed(domains)
        return f"(FROM {sql.named(table)} WHERE link_domain IN ({here}) AND domain NOT IN ({here}))"

    return {
        "out": neighbours("links out", "link_domain", sql.link_graph(of)),
        "in": neighbours("links in", "domain", sql.link_graph(arriving)) if domains else [],
    }
