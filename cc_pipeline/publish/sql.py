"""The SQL of frequent questions: pure text, over the rows that the caller chooses.

Each function takes a :data:`Scope`: the text behind FROM for a published table. So the macros of ``cc.duckdb`` ask for
a domain that is named when they are called, and the report of a target for that target's captures, with one SQL.

**Eras are compared by the captures that all of them have.** Crawls since 2013 have errors, redirects and robots.txt in
subsets of their own, which are located only on request; older crawls have all in one. So only *comparable* captures
count: status 200 to 299, and no robots.txt. Other captures are counted in a column of their own where that is useful.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR

#: Gives the text behind FROM for a published table, or for one that is named with its schema (``lake.captures``).
Scope: TypeAlias = Callable[[str], str]

_KEY: Final = ", ".join(CAPTURE)
#: The order of captures in time; the location makes it a total one.
_TIME_ORDER: Final = "(fetch_time, warc_filename, warc_record_offset)"
#: Values of ``content_minhash`` in a band: texts are compared that agree in one of 16.
_BAND: Final = 4
#: Texts of a band with which its other texts are compared, so that ten thousand like ones are not ten thousand squared.
_MAX_COMPARED_TEXTS: Final = 200
#: Labels of the longest registered domain (``k12.ma.us`` is a suffix).
_LABELS: Final = 6


def qualify(table: str) -> str:
    """A table with its schema."""
    return table if "." in table else f"main.{table}"


def comparable(status: str = "fetch_status", url: str = "url") -> str:
    """Whether a capture counts in every era. The pattern is applied only to URLs with these words."""
    robots = f"(contains({url}, '/robots.txt') AND regexp_matches({url}, '^[^/]*//[^/]*/robots\\.txt(\\?|$)'))"
    return f"({status} BETWEEN 200 AND 299 AND NOT {robots})"


def bare(url: str) -> str:
    """A URL without the parts in which addresses of the same page differ: scheme, ``www.``, fragment; its host in lower
    case."""
    without_scheme = (
        f"regexp_replace({url}, '^\\s*(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[wW][wW][wW]\\.)?([^#]*)(?s:.*)$', '\\1')"
    )
    path = f"regexp_extract({without_scheme}, '/.*$')"
    return f"(lower(regexp_extract({without_scheme}, '^[^/]*')) || CASE WHEN {path} = '' THEN '/' ELSE {path} END)"


def todays_key(key: str) -> str:
    """The current SURT key for the column ``key`` of either rule; a key of today is unchanged.

    In a key of today no percent sign is escaped before two hex digits: both would be one escape. Except for pages
    whose *path* has an escaped ``?`` and ``&``, the result is the key that ``commoncrawl.surt.surt_key`` gives.
    """
    plain = f"regexp_replace({key}, '%25([89a-f][0-9a-f])', '%\\1', 'g')"
    query = f"regexp_extract({plain}, '\\?(.*)$', 1)"
    parameter = "{'name': split_part(one, '=', 1), 'has_value': contains(one, '='), 'whole': one}"
    ordered = f"list_sort(list_transform(string_split({query}, '&'), lambda one: {parameter}))"
    joined = f"array_to_string(list_transform({ordered}, lambda one: one.whole), '&')"
    return (
        f"CASE WHEN NOT contains({key}, '%25') OR NOT regexp_matches({key}, '%25[89a-f][0-9a-f]') THEN {key} "
        f"WHEN NOT contains({query}, '&') THEN {plain} "
        f"ELSE regexp_extract({plain}, '^[^?]*\\?') || {joined} END"
    )


def _host(bare_url: str) -> str:
    return f"regexp_extract({bare_url}, '^[^/:]*')"


def likeness(first: str, second: str) -> str:
    """The share of five-word runs that two texts have in common, estimated from ``content_minhash``."""
    return f"(list_sum(list_transform(range(1, 65), lambda place: ({first}[place] = {second}[place])::INTEGER)) / 64.0)"


def _build_page_conditions(page: str) -> tuple[str, str]:
    """Conditions for captures of a URL as it was crawled, whatever its scheme, with and without ``www.``; and for all
    captures of its domain.

    Nothing here depends on rows, so DuckDB evaluates it first and skips row groups by it. The domain is one of the ends
    of the host, and selects best the row groups to read.
    """
    bare_url = bare(page)
    host = _host(bare_url)
    # in www.com the www is the name
    ends = [
        host,
        f"'www.' || {host}",
        *(f"regexp_extract({host}, '([^.]+\\.){{{count}}}[^.]+$')" for count in range(1, _LABELS)),
    ]
    urls = [f"'{start}' || {bare_url}" for start in ("http://", "https://", "http://www.", "https://www.")]
    return f"domain IN ({', '.join(ends)}) AND url IN ({', '.join(urls)})", f"domain IN ({', '.join(ends)})"


def captures_of(page: str, scope: Scope) -> str:
    """All captures of a page, also those that are not comparable: every capture whose key a form of ``page`` has."""
    page_condition, domain_condition = _build_page_conditions(page)
    return f"""
        WITH keys AS (SELECT DISTINCT url_surtkey FROM {scope("captures")} WHERE {page_condition})
        SELECT c.crawl, c.fetch_time, c.url, c.fetch_status, {comparable("c.fetch_status", "c.url")} AS comparable,
            coalesce(c.content_mime_detected, c.content_mime_type) AS mime_type, c.content_languages, c.content_digest,
            c.content_truncated, r.outcome, t.title, c.subset, c.url_surtkey, c.domain, c.warc_filename,
            c.warc_record_offset, c.warc_record_length
        FROM (FROM {scope("captures")} WHERE {domain_condition} AND url_surtkey IN (FROM keys)) c
        LEFT JOIN (FROM {scope("records")} WHERE {domain_condition}) r USING ({_KEY})
        LEFT JOIN (FROM {scope("page_text")} WHERE {domain_condition}) t USING ({_KEY})
        ORDER BY c.fetch_time, c.warc_filename, c.warc_record_offset"""


def timeline(scope: Scope) -> str:
    """A row for each crawl that has captures: the numbers of captures, of new pages, and of captures that do not count.

    Crawls follow each other by their ids. One record with a wrong clock would move its whole crawl.
    """
    return f"""
        WITH here AS (
            SELECT crawl, url_surtkey, fetch_time, fetch_status, content_digest, warc_record_length,
                coalesce({comparable()}, false) AS counts
            FROM {scope("captures")}),
        firsts AS (
            SELECT crawl, count(*) AS new_pages
            FROM (SELECT min(crawl) AS crawl FROM here WHERE counts GROUP BY url_surtkey)
            GROUP BY crawl)
        SELECT crawl, min(fetch_time) AS first_fetch, max(fetch_time) AS last_fetch,
            count(*) FILTER (counts) AS captures,
            count(DISTINCT url_surtkey) FILTER (counts) AS pages,
            coalesce(any_value(new_pages), 0) AS new_pages,
            count(DISTINCT content_digest) FILTER (counts) AS payloads,
            coalesce(sum(warc_record_length) FILTER (counts), 0)::BIGINT AS bytes,
            count(*) FILTER (NOT counts AND fetch_status IS NOT NULL) AS left_out,
            count(*) FILTER (fetch_status IS NULL) AS status_unknown
        FROM here LEFT JOIN firsts USING (crawl)
        GROUP BY crawl ORDER BY crawl"""


def page_versions(page: str, scope: Scope) -> str:
    """The distinct contents of a page, each with its first and last time. The content is the main text; the payload for
    captures without one."""
    page_condition, domain_condition = _build_page_conditions(page)
    return f"""
        WITH keys AS (SELECT DISTINCT url_surtkey FROM {scope("captures")} WHERE {page_condition}),
        here AS (
            SELECT c.crawl, c.fetch_time, c.url, c.content_digest, c.warc_filename, c.warc_record_offset, t.title,
                t.content_languages, length(t.main_content) AS characters, md5(t.main_content) AS own,
                coalesce(c.content_digest, md5(t.main_content)) AS payload
            FROM (FROM {scope("captures")} WHERE {domain_condition} AND url_surtkey IN (FROM keys) AND {comparable()}) c
            LEFT JOIN (FROM {scope("page_text")} WHERE {domain_condition}) t USING ({_KEY})),
        -- one payload is one content, also where several parsers made texts of it, and a capture that was not fetched
        -- has the text of one with the same payload; one text is one content, also of several payloads. Grouped, since
        -- DuckDB 1.5.3 fails at windows over windows here
        by_payload AS (SELECT payload, min(own) AS text FROM here GROUP BY payload),
        by_text AS (
            SELECT own, min(text) AS same FROM here JOIN by_payload USING (payload) WHERE own IS NOT NULL GROUP BY own),
        contents AS (SELECT payload, min(same) AS same FROM here JOIN by_text USING (own) GROUP BY payload),
        named AS (
            SELECT here.*, coalesce(same, content_digest) AS content FROM here LEFT JOIN contents USING (payload))
        SELECT row_number() OVER (ORDER BY min({_TIME_ORDER})) AS version,
            min(fetch_time) AS first_seen, max(fetch_time) AS last_seen, count(*) AS captures,
            list_sort(list_distinct(list(crawl))) AS crawls, count(DISTINCT content_digest) AS payloads,
            arg_max(title, fetch_time) AS title, arg_max(content_languages, fetch_time) AS content_languages,
            max(characters) AS characters, count(own) > 0 AS by_text, arg_max(url, {_TIME_ORDER}) AS url, content
        FROM named GROUP BY content ORDER BY version"""


def changes_between(before: str, after: str, scope: Scope) -> str:
    """A row for each page that one of two crawls has: ``new``, ``gone``, ``same`` or ``changed``.

    A page changed if its main text did, whatever happened to the template; a page without a main text is judged by its
    payload. If two parser versions made the texts, and both text and payload differ, it is ``not compared``. Of several
    captures in a crawl the last counts. Pages are left out if only a target that was not located in both crawls asked
    for them: they were never looked for in the other. The two texts cost nothing if they are not selected.
    """
    crawls = f"({before}, {after})"
    target = f"split_part(target, '{SEPARATOR}', 1)"
    return f"""
        WITH located AS (
            SELECT target FROM (
                SELECT crawl, target FROM main.lookups WHERE crawl IN {crawls} UNION
                SELECT crawl, {target} AS target FROM lake.captures WHERE crawl IN {crawls})
            GROUP BY target HAVING count(*) = CASE WHEN {before} = {after} THEN 1 ELSE 2 END),
        asked AS (
            SELECT DISTINCT {_KEY} FROM {scope("lake.captures")}
            WHERE crawl IN {crawls} AND {target} IN (FROM located)),
        pages AS (
            SELECT c.crawl, c.url_surtkey, any_value(c.domain) AS domain,
                arg_max(struct_pack(url, fetch_time, content_digest, warc_filename, warc_record_offset), {_TIME_ORDER})
                    FILTER ({comparable("c.fetch_status", "c.url")}) AS page,
                arg_max(fetch_status, {_TIME_ORDER}) AS last_status
            FROM (FROM {scope("captures")} WHERE crawl IN {crawls}) c SEMI JOIN asked USING ({_KEY})
            GROUP BY c.crawl, c.url_surtkey),
        texts AS (
            SELECT {_KEY}, title, main_content, md5(main_content) AS content, content_minhash, parser_version
            FROM {scope("page_text")} WHERE crawl IN {crawls}),
        described AS (
            SELECT pages.*, t.title, t.main_content, t.content, t.content_minhash, t.parser_version
            FROM pages LEFT JOIN texts t
            ON pages.crawl = t.crawl AND page.warc_filename = t.warc_filename
                AND page.warc_record_offset = t.warc_record_offset),
        paired AS (
            SELECT coalesce(b.url_surtkey, a.url_surtkey) AS url_surtkey, coalesce(b.domain, a.domain) AS domain,
                b.page AS b, a.page AS a, b.title AS before_title, a.title AS after_title,
                b.main_content AS before_text, a.main_content AS after_text, b.content AS b_text, a.content AS a_text,
                b.parser_version IS DISTINCT FROM a.parser_version AS by_two,
                b.last_status AS before_status, a.last_status AS after_status,
                {likeness("b.content_minhash", "a.content_minhash")} AS likeness
            FROM (FROM described WHERE crawl = {before}) b FULL JOIN (FROM described WHERE crawl = {after}) a
            ON b.url_surtkey = a.url_surtkey)
        SELECT CASE WHEN b IS NULL THEN 'new' WHEN a IS NULL THEN 'gone'
                WHEN b_text IS NOT NULL AND a_text IS NOT NULL 
                    THEN CASE WHEN b_text = a_text THEN 'same' WHEN NOT by_two THEN 'changed'
                        WHEN b.content_digest = a.content_digest THEN 'same' ELSE 'not compared' END
                WHEN b.content_digest IS NULL OR a.content_digest IS NULL THEN 'unknown'
                WHEN b.content_digest = a.content_digest THEN 'same' ELSE 'changed' END AS change,
            coalesce(a.url, b.url) AS url, likeness, before_title, after_title, b.fetch_time AS before_time,
            a.fetch_time AS after_time, before_status, after_status, b.content_digest AS before_digest,
            a.content_digest AS after_digest, domain, url_surtkey, before_text, after_text
        FROM paired WHERE a IS NOT NULL OR b IS NOT NULL"""


def with_moves(changes: str) -> str:
    """The rows of ``changes``, with texts only for changed pages. A page that is gone is ``moved`` if a new page has
    its payload or main text; the new page then has no row of its own."""
    arrived = "arg_min(struct_pack(url, after_time, after_title, url_surtkey), url) AS new FROM found"
    return f"""
        WITH found AS (
            SELECT change, domain, url, likeness, before_title, after_title, before_time, after_time, before_digest,
                after_digest, url_surtkey,
                CASE change WHEN 'changed' THEN before_text END AS before_text,
                CASE change WHEN 'changed' THEN after_text END AS after_text,
                CASE change WHEN 'gone' THEN md5(before_text) WHEN 'new' THEN md5(after_text) END AS content
            FROM ({changes})),
        by_digest AS (SELECT after_digest AS digest, {arrived} WHERE change = 'new' GROUP BY after_digest),
        by_text AS (SELECT content, {arrived} WHERE change = 'new' GROUP BY content),
        moved AS (
            SELECT found.url_surtkey AS gone, coalesce(d.new, t.new) AS new
            FROM found LEFT JOIN by_digest d ON before_digest = d.digest
            LEFT JOIN by_text t ON found.content = t.content
            WHERE change = 'gone' AND (d.new IS NOT NULL OR t.new IS NOT NULL))
        SELECT CASE WHEN m.new IS NULL THEN change ELSE 'moved' END AS change, domain, found.url, m.new.url AS new_url,
            likeness, before_title, coalesce(after_title, m.new.after_title) AS after_title, before_time,
            coalesce(found.after_time, m.new.after_time) AS after_time, before_text, after_text, found.url_surtkey
        FROM found LEFT JOIN moved m ON change = 'gone' AND found.url_surtkey = m.gone
        WHERE NOT (change = 'new' AND found.url_surtkey IN (SELECT moved.new.url_surtkey FROM moved))
        ORDER BY domain, change, found.url"""


def feed_timeline(scope: Scope) -> str:
    """A row for each capture of a feed: how many items it had, and how many that no earlier capture of it had."""
    join_condition = " AND ".join(f"f.{name} IS NOT DISTINCT FROM i.{name}" for name in (*CAPTURE, "url"))
    return f"""
        WITH feeds AS (
            SELECT {_KEY}, url, url_surtkey, fetch_time, domain, content.type AS feed_type, content.title AS title
            FROM {scope("page_metadata")} WHERE parsed_as = 'feed' AND coalesce({comparable()}, true)),
        items AS (
            SELECT f.*, i.item, i.published, i.item_index
            FROM feeds f LEFT JOIN (
                SELECT {_KEY}, url, coalesce(nullif(guid, ''), link, title) AS item, published, item_index
                FROM {scope("feed_items")}) i ON {join_condition}),
        firsts AS (
            SELECT url_surtkey, item, min({_TIME_ORDER}) AS first
            FROM items WHERE item IS NOT NULL GROUP BY url_surtkey, item)
        SELECT any_value(i.url) AS url, i.crawl, i.fetch_time, any_value(i.feed_type) AS feed_type,
            any_value(i.title) AS title, count(i.item_index) AS items,
            count(DISTINCT i.item) FILTER (firsts.first = (i.fetch_time, i.warc_filename, i.warc_record_offset))
                AS new_items,
            min(i.published) AS oldest_item, max(i.published) AS newest_item, any_value(i.domain) AS domain,
            i.url_surtkey, i.warc_filename, i.warc_record_offset
        FROM items i LEFT JOIN firsts USING (url_surtkey, item)
        GROUP BY i.url_surtkey, i.fetch_time, i.crawl, i.warc_filename, i.warc_record_offset
        ORDER BY i.url_surtkey, i.fetch_time, i.warc_filename, i.warc_record_offset"""


def feeds_advertised(scope: Scope) -> str:
    """A row for each feed that pages name, captured or not. ``captures`` counts the feed's own comparable captures,
    whatever scheme they have and with or without ``www.``, in all that was located, not only within the scope."""
    types = "'application/rss+xml', 'application/atom+xml', 'application/feed+json', 'application/rdf+xml'"
    return f"""
        WITH named AS (
            SELECT crawl, url_surtkey, fetch_time, one.url AS feed, one.type AS type, one.title AS title
            FROM (SELECT crawl, url_surtkey, fetch_time, unnest(feed_links) AS one FROM {scope("page_metadata")}
                WHERE len(feed_links) > 0 AND coalesce({comparable()}, true)) UNION ALL
            -- files read whole do not say which links are feeds; the links do
            SELECT crawl, url_surtkey, fetch_time, link_url, NULL, NULL FROM {scope("page_links")}
            WHERE source_kind <> 'records' AND type = 'link' AND contains(lower(rel), 'alternate')
                AND lower(map_extract(attributes, 'type')[1]) IN ({types})),
        feeds AS (
            SELECT feed, {bare("feed")} AS bare, max(type) AS type, arg_max(title, fetch_time) AS title,
                count(DISTINCT url_surtkey) AS pages, list_sort(list_distinct(list(crawl))) AS crawls,
                min(fetch_time) AS first_seen, max(fetch_time) AS last_seen
            FROM named WHERE feed IS NOT NULL GROUP BY feed),
        places AS (
            SELECT DISTINCT array_to_string(labels[first:], '.') AS domain
            FROM (SELECT labels, unnest(range(1, len(labels) + 1)) AS first
                FROM (SELECT string_split({_host("bare")}, '.') AS labels FROM feeds))),
        held AS (
            SELECT bare, count(*) AS captures, max(fetch_time) AS last_captured
            FROM (SELECT {bare("url")} AS bare, fetch_time FROM main.captures SEMI JOIN places USING (domain)
                WHERE {comparable()})
            SEMI JOIN feeds USING (bare) GROUP BY bare)
        SELECT feed, type, title, pages, crawls, first_seen, last_seen, coalesce(captures, 0) AS captures, last_captured
        FROM feeds LEFT JOIN held USING (bare) ORDER BY pages DESC, feed"""


def link_graph(leaving: Scope, arriving: Scope | None = None) -> str:
    """A row for each crawl and pair of registered domains with links from one to the other: links that a reader can
    click (``a`` and ``area``) of comparable pages, without feeds' items.

    ``leaving`` are the pages whose links count; ``arriving`` further ones, from other sites.
    """

    def rows(scope: Scope) -> str:
        return (
            f"SELECT crawl, domain, link_domain, url_surtkey, link_url, rel, fetch_time FROM {scope('page_links')} "
            f"WHERE type IN ('a', 'area') AND item_index IS NULL AND link_domain <> domain AND {comparable()}"
        )

    link_rows = rows(leaving) + (f" UNION ALL {rows(arriving)}" if arriving else "")
    return f"""
        SELECT crawl, domain, link_domain, count(DISTINCT url_surtkey) AS pages, count(*) AS links,
            count(DISTINCT link_url) AS link_urls,
            count(*) FILTER (list_contains(string_split(lower(rel), ' '), 'nofollow')) AS nofollow,
            min(fetch_time) AS first_fetch, max(fetch_time) AS last_fetch
        FROM ({link_rows}) GROUP BY crawl, domain, link_domain ORDER BY crawl, links DESC, domain, link_domain"""


def near_duplicates(crawl: str, min_likeness: str, min_words: str, scope: Scope) -> str:
    """Pages of a crawl with the same or nearly the same text, exact ones first.

    ``exact``: the same main text; each page beside the first of them. ``near``: texts of at least ``min_words`` words
    that share at least ``min_likeness`` of their five-word runs, by estimate. Only texts that agree in a band of four
    of 64 values are compared: a pair with 0.8 in common is missed once in 5,000 times, one with 0.5 once in three.
    """
    return f"""
        WITH pages AS (
            SELECT url_surtkey, arg_max(url, {_TIME_ORDER}) AS url, arg_max(content, {_TIME_ORDER}) AS content,
                arg_max(content_simhash, {_TIME_ORDER}) AS simhash, arg_max(content_minhash, {_TIME_ORDER}) AS minhash,
                arg_max(words, {_TIME_ORDER}) AS words
            FROM (SELECT *, md5(main_content) AS content, quality.words AS words FROM {scope("page_text")}
                WHERE crawl = {crawl} AND content_minhash IS NOT NULL AND {comparable()})
            GROUP BY url_surtkey),
        texts AS (
            SELECT content, min(url) AS url, any_value(simhash) AS simhash, any_value(minhash) AS minhash,
                any_value(words) AS words
            FROM pages GROUP BY content),
        bands AS (
            SELECT *, row_number() OVER (PARTITION BY place, band ORDER BY url) AS rank
            FROM (SELECT url, place, minhash[place:place + {_BAND - 1}] AS band
                FROM texts, range(1, 65, {_BAND}) AS places(place) WHERE words >= {min_words})),
        pairs AS (
            SELECT DISTINCT one.url AS one, other.url AS other FROM bands one JOIN bands other USING (place, band)
            WHERE one.rank < other.rank AND one.rank <= {_MAX_COMPARED_TEXTS}),
        compared AS (
            SELECT pairs.other AS url, pairs.one AS like_url, {likeness("a.minhash", "b.minhash")} AS likeness,
                bit_count(xor(a.simhash, b.simhash))::INTEGER AS simhash_bits, b.words, a.words AS like_words
            FROM pairs JOIN texts a ON a.url = pairs.one JOIN texts b ON b.url = pairs.other)
        SELECT 'exact' AS kind, pages.url, texts.url AS like_url, 1.0::DOUBLE AS likeness, 0 AS simhash_bits,
            pages.words, texts.words AS like_words
        FROM pages JOIN texts USING (content) WHERE pages.url <> texts.url UNION ALL
        SELECT 'near', url, like_url, likeness::DOUBLE, simhash_bits, words, like_words
        FROM compared WHERE likeness >= {min_likeness}
        ORDER BY kind, likeness DESC, like_url, url"""
