"""The data of a target's report, queried from a published file. Each list is bounded, so that the page stays short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import duckdb

from cc_pipeline.advice import advise
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.target_text import to_run
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.publish import sql

#: Maximum rows of a list on the page. The page also has the number of all rows.
MAX_ROWS: Final = 12
#: Maximum crawls that are compared with their predecessor, newest first: each comparison reads the texts of two crawls.
_MAX_COMPARED: Final = 6
#: Maximum domains in an SQL condition.
_MAX_DOMAINS: Final = 100
#: Kinds of changes of a page between two crawls.
CHANGES: Final = ("same", "changed", "moved", "new", "gone", "not compared", "unknown")
_KEY: Final = ", ".join(CAPTURE)
_KEYS: Final = "report_keys"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """All data of a report. Lists of dictionaries are rows of queries, named by their columns."""

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
    #: The two crawls to compare, the counts of changes between them, the same for some domains, and some pages.
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
    #: The number of all rows of a list, by the list's name.
    totals: Mapping[str, int] = field(default_factory=dict)


def find_target(
    connection: duckdb.DuckDBPyConnection, slug: str, target_text: str = "", crawl_pair: tuple[str, str] | None = None
) -> Findings:
    """Queries a published file for the data of a target.

    ``slug`` is the key of a located target, or a domain in the captures of others; ``target_text`` is the user's text
    for it; ``crawl_pair`` are the crawls to compare (default: the last two that have it). The connection gets a
    temporary table. Raises ``UserInputError`` if the target was not located, or not in one of these crawls.
    """
    queries = _Queries(connection, {})
    target_row, scope, domains = target_scope(connection, slug, target_text)
    lookups = queries.rows(
        f"SELECT crawl, complete, captures, looked_up_at FROM main.lookups WHERE target = {quote_literal(slug)} "
        "ORDER BY crawl"
    )
    crawls = queries.rows(sql.timeline(scope))
    front = _front(queries, scope)
    if crawl_pair is not None:
        _check_located(connection, slug, scope, crawl_pair, target_text)
    pairs = list(pairwise(row["crawl"] for row in crawls if row["pages"]))[-_MAX_COMPARED:]
    crawl_pair = crawl_pair or (pairs[-1] if pairs else None)
    published = connection.execute("SELECT max(published_at) FROM main.publication").fetchone()
    assert published is not None
    return Findings(
        slug=slug,
        kind=target_row["kind"] if target_row else "domain",
        definition=target_row["definition"] if target_row else slug,
        published_at=published[0],
        crawls=crawls,
        lookups=lookups,
        outcomes=queries.rows(
            f"SELECT crawl, outcome, count(*) AS captures FROM {scope('records')} GROUP BY ALL ORDER BY ALL"
        ),
        reasons=queries.first_rows(
            "reasons",
            "SELECT outcome, reason, count(*) AS captures, "
            f"arg_min(url, url) AS url, arg_min(detail, url) AS detail FROM {scope('records')} "
            "WHERE outcome <> 'fetched' GROUP BY ALL ORDER BY captures DESC, reason",
        ),
        statuses=queries.first_rows(
            "statuses",
            f"SELECT fetch_status AS status, count(*) AS captures, count(DISTINCT crawl) AS crawls, min(url) AS url "
            f"FROM {scope('captures')} WHERE NOT {sql.comparable()} GROUP BY ALL ORDER BY captures DESC, status",
        ),
        languages=queries.rows(
            f"SELECT crawl, content_languages[1] AS language, count(*) AS pages FROM {scope('page_text')} "
            f"WHERE main_content IS NOT NULL AND {sql.comparable()} GROUP BY ALL ORDER BY crawl, pages DESC, language"
        ),
        changes=[row for pair in pairs for row in _changes(queries, scope, *pair)],
        between=crawl_pair,
        **_changes_between(queries, scope, crawl_pair),
        front=front,
        versions=queries.last_versions("versions", sql.page_versions(quote_literal(front), scope)) if front else [],
        pages=_pages(queries, scope),
        links=_links(queries, scope, domains),
        advertised=queries.first_rows("advertised", sql.feeds_advertised(scope)),
        feeds=queries.first_rows(
            "feeds",
            "SELECT arg_max(url, fetch_time) AS url, arg_max(title, fetch_time) AS title, count(*) AS captures, "
            "sum(new_items)::BIGINT AS items, min(oldest_item) AS oldest, max(newest_item) AS newest "
            f"FROM ({sql.feed_timeline(scope)}) GROUP BY url_surtkey ORDER BY items DESC, url",
        ),
        members=queries.first_rows(
            "members",
            "SELECT member, sum(captures)::BIGINT AS captures, count(*) FILTER (captures > 0) AS crawls "
            f"FROM main.set_members WHERE target = {quote_literal(slug)} GROUP BY member ORDER BY captures DESC, "
            "member",
        ),
        consent=_consent(queries, domains),
        totals={
            **queries.totals,
            "members without captures": queries.number(
                f"SELECT count(*) FROM (SELECT member FROM main.set_members WHERE target = {quote_literal(slug)} "
                "GROUP BY member HAVING sum(captures) = 0)"
            ),
        },
    )


def _consent(queries: _Queries, domains: Sequence[str]) -> Rows:
    """The timeline of robots.txt of the target's domains, from captures of any target; empty if the file has no such
    macro.
    """
    macro = "SELECT 1 FROM duckdb_functions() WHERE function_name = 'consent_timeline'"
    if not domains or not queries.rows(macro):
        return []
    if len(domains) == 1:
        timeline = f"FROM main.consent_timeline({quote_literal(domains[0])})"
    else:
        hosts = f"SELECT host FROM main.site_policies WHERE domain IN ({_quoted_list(domains)})"
        timeline = f"FROM main.consent_timeline() WHERE host IN ({hosts})"
    return queries.first_rows("consent", f"SELECT * {timeline} ORDER BY last_seen DESC, host, scheme")


def target_scope(
    connection: duckdb.DuckDBPyConnection, slug: str, target_text: str = ""
) -> tuple[dict[str, Any] | None, sql.Scope, Sequence[str]]:
    """Returns the row of a target (``None`` for a domain that is no target), its rows of every table, and its domains
    if they can be listed.

    The connection may get a temporary table. Raises ``UserInputError`` if the target was not located.
    """
    queries = _Queries(connection, {})
    target_rows = queries.rows(f"SELECT kind, definition FROM main.targets WHERE slug = {quote_literal(slug)}")
    domain = queries.rows(f"SELECT 1 AS found FROM main.captures WHERE domain = {quote_literal(slug)} LIMIT 1")
    if not target_rows and not domain:
        raise UserInputError(
            f"cc.duckdb has no rows of {target_text or slug!r}: it was never run, nothing was found, or it is not "
            f"published yet. To run it: {advise('run', to_run(slug, target_text), crawl='newest')}"
        )
    # A domain that is no target has only captures of other targets.
    scope, domains = _target_scope(connection, slug) if target_rows else (_domain_scope(slug), [slug])
    return (target_rows[0] if target_rows else None), scope, domains


def _check_located(
    connection: duckdb.DuckDBPyConnection, slug: str, scope: sql.Scope, crawls: Sequence[str], target_text: str = ""
) -> None:
    """Raises ``UserInputError`` for a crawl in which a target was not looked up."""
    query = (
        f"SELECT crawl FROM main.lookups WHERE target = {quote_literal(slug)} UNION "
        f"SELECT crawl FROM {scope('captures')} ORDER BY crawl"
    )
    located_crawls = [crawl for (crawl,) in connection.execute(query).fetchall()]
    for crawl in crawls:
        if crawl not in located_crawls:
            raise UserInputError(
                f"{target_text or slug} was not looked up in {crawl!r}. Crawls in which it was looked up: "
                f"{', '.join(located_crawls) or 'none'}. Run it for {crawl!r} first: "
                f"{advise('run', to_run(slug, target_text), crawl=crawl)}"
            )


@dataclass(frozen=True, slots=True)
class _Queries:
    connection: duckdb.DuckDBPyConnection
    totals: dict[str, int]

    def rows(self, query: str) -> Rows:
        cursor = self.connection.execute(query)
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def first_rows(self, name: str, query: str, max_rows: int = MAX_ROWS) -> Rows:
        """The first rows. Stores the number of all rows as the total of ``name``."""
        rows_found = self.rows(f"SELECT *, count(*) OVER () AS of_all FROM ({query}) LIMIT {max_rows}")
        self.totals[name] = rows_found[0].pop("of_all") if rows_found else 0
        for row in rows_found[1:]:
            del row["of_all"]
        return rows_found

    def last_versions(self, name: str, query: str) -> Rows:
        """The last versions, newest first. Stores the number of all versions as the total of ``name``."""
        return self.first_rows(name, f"FROM ({query}) ORDER BY version DESC", MAX_ROWS)

    def number(self, query: str) -> int:
        row = self.connection.execute(query).fetchone()
        return int(row[0]) if row else 0


def _domain_scope(domain: str) -> sql.Scope:
    return lambda table: f"(FROM {sql.qualify(table)} WHERE domain = {quote_literal(domain)})"


def _target_scope(connection: duckdb.DuckDBPyConnection, slug: str) -> tuple[sql.Scope, Sequence[str]]:
    """Returns the rows of the target's captures in each table, without pages that its condition excludes, and its
    domains if they can be listed.
    """
    connection.execute(
        f"CREATE OR REPLACE TEMPORARY TABLE {_KEYS} AS "
        f"SELECT DISTINCT {_KEY}, condition_match AS is_meant "
        f"FROM main.capture_targets WHERE target = {quote_literal(slug)}"
    )
    domain_rows = connection.execute(
        f"SELECT DISTINCT domain FROM main.captures SEMI JOIN temp.{_KEYS} USING ({_KEY}) LIMIT {_MAX_DOMAINS + 1}"
    ).fetchall()
    domains = [domain for (domain,) in domain_rows if domain is not None] if len(domain_rows) <= _MAX_DOMAINS else []
    # The condition on domains skips row groups. Captures that the user added may have no URL, and so no domain.
    parts = [f"domain IN ({_quoted_list(domains)})"] if domains else []
    parts += ["domain IS NULL"] if (None,) in domain_rows else []
    domain_filter = f" WHERE {' OR '.join(parts)}" if parts and len(domain_rows) <= _MAX_DOMAINS else ""

    def scope(table: str) -> str:
        target_keys = (
            f"(FROM temp.{_KEYS} WHERE is_meant IS DISTINCT FROM 'no')" if table in PAGE_TABLES else f"temp.{_KEYS}"
        )
        return f"(FROM (FROM {sql.qualify(table)}{domain_filter}) SEMI JOIN {target_keys} USING ({_KEY}))"

    return scope, domains


def _quoted_list(values: Sequence[str]) -> str:
    return ", ".join(map(quote_literal, values))


def _front(queries: _Queries, scope: sql.Scope) -> str | None:
    """The address of a target's start page, else of the page with the most captures."""
    start_pages = queries.rows(
        f"SELECT arg_max(url, fetch_time) AS url FROM {scope('captures')} WHERE {sql.comparable()} "
        "GROUP BY url_surtkey "
        "ORDER BY bool_or(coalesce(url_path, '') IN ('', '/') AND url_query IS NULL) DESC, count(*) DESC, "
        "length(url_surtkey), url_surtkey LIMIT 1"
    )
    return start_pages[0]["url"] if start_pages else None


def _changes(queries: _Queries, scope: sql.Scope, before: str, after: str) -> Rows:
    """Counts of each kind of change between two crawls."""
    query = sql.changes_between(quote_literal(before), quote_literal(after), scope)
    change_counts = queries.rows(f"SELECT change, count(*) AS pages FROM ({query}) GROUP BY change")
    return [{"before": before, "after": after, **row} for row in change_counts]


def _changes_between(queries: _Queries, scope: sql.Scope, pair: tuple[str, str] | None) -> dict[str, Any]:
    """Counts of changes of all pages between two crawls, the same for each domain, and the pages that changed most,
    then other changes. Only texts of listed pages are read.
    """
    if pair is None:
        return {"became": {}, "changed_domains": [], "changed_pages": []}
    changes_query = sql.with_moves(sql.changes_between(quote_literal(pair[0]), quote_literal(pair[1]), scope))
    kinds = ", ".join(f'count(*) FILTER (change = {quote_literal(kind)}) AS "{kind}"' for kind in CHANGES)
    became, *domains = queries.first_rows(
        "changed_domains",
        f"SELECT domain, {kinds} FROM ({changes_query}) GROUP BY GROUPING SETS ((), (domain)) "
        "ORDER BY grouping(domain) DESC, changed + new + gone + moved DESC, domain",
        MAX_ROWS + 1,
    )
    del became["domain"]
    queries.totals["changed_domains"] -= 1
    queries.totals["changed_pages"] = sum(became[kind] for kind in CHANGES[1:])
    pages_per_domain = MAX_ROWS if len(domains) <= 1 else MAX_ROWS // 4
    domain_list = ", ".join(quote_literal(row["domain"] or "") for row in domains)
    by_worth = "list_position(['changed', 'moved', 'new', 'gone', 'not compared', 'unknown'], change), likeness, url"
    page_keys = queries.rows(
        f"SELECT url_surtkey FROM ({changes_query}) "
        f"WHERE change <> 'same' AND coalesce(domain, '') IN ({domain_list or 'NULL'}) "
        f"QUALIFY row_number() OVER (PARTITION BY domain ORDER BY {by_worth}) <= {pages_per_domain}"
    )
    keys = ", ".join(quote_literal(row["url_surtkey"]) for row in page_keys)
    pages = (
        queries.rows(f"FROM ({changes_query}) WHERE url_surtkey IN ({keys}) ORDER BY domain, {by_worth}")
        if page_keys
        else []
    )
    return {"became": became, "changed_domains": domains, "changed_pages": pages}


def _pages(queries: _Queries, scope: sql.Scope) -> Rows:
    """The pages that were captured in most crawls."""
    return queries.first_rows(
        "pages",
        f"WITH seen AS (SELECT url_surtkey, arg_max(url, fetch_time) AS url, count(DISTINCT crawl) AS crawls, "
        f"count(*) AS captures, count(DISTINCT content_digest) AS payloads, max(fetch_time) AS last_seen, "
        f"count(*) OVER () AS total FROM {scope('captures')} WHERE {sql.comparable()} GROUP BY url_surtkey "
        f"ORDER BY crawls DESC, captures DESC, length(url_surtkey), url_surtkey LIMIT {MAX_ROWS}) "
        "SELECT s.* EXCLUDE (url_surtkey, total), t.title FROM seen s LEFT JOIN "
        f"(SELECT url_surtkey, arg_max(title, fetch_time) AS title FROM {scope('page_text')} "
        f"WHERE url_surtkey IN (SELECT url_surtkey FROM seen) GROUP BY url_surtkey) t USING (url_surtkey) "
        "ORDER BY crawls DESC, captures DESC, length(url_surtkey), url_surtkey",
    )


def _links(queries: _Queries, scope: sql.Scope, domains: Sequence[str]) -> dict[str, Rows]:
    """Domains that the target links to (``out``), and domains that link to it (``in``), by number of pages with such a
    link.
    """

    def neighbours(name: str, column: str, graph: str) -> Rows:
        return queries.first_rows(
            name,
            f"SELECT {column} AS domain, max(pages) AS pages, sum(links)::BIGINT AS links, "
            f"count(DISTINCT crawl) AS crawls, max(last_fetch) AS last_fetch "
            f"FROM ({graph}) GROUP BY {column} ORDER BY pages DESC, links DESC, domain",
        )

    def arriving(table: str) -> str:
        domain_list = _quoted_list(domains)
        return f"(FROM {sql.qualify(table)} WHERE link_domain IN ({domain_list}) AND domain NOT IN ({domain_list}))"

    return {
        "out": neighbours("links out", "link_domain", sql.link_graph(scope)),
        "in": neighbours("links in", "domain", sql.link_graph(arriving)) if domains else [],
    }
