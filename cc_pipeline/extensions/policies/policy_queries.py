"""SQL queries of the usage preferences of sites and pages: those at the time of a fetch, and those of the newest
capture.

``main.site_policies`` has the lines of robots.txt captures, ``main.page_policies`` the preferences in pages and
headers. A page's robots.txt is that of its scheme, host and port. Common Crawl fetches it before the pages of a
segment, so the robots.txt of the page's own segment is preferred, then the last earlier one, then the first later one:
``basis`` has which.

*Unknown* is a verdict: for an origin without a capture, for an answer that is no robots.txt, and for a file without a
statement about a use. If several statements are about one use, ``disallow`` wins. A rule (``access``) names the robots
that may fetch and is not about a use; rules and uses have separate verdicts.
"""

from __future__ import annotations

from typing import Final

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.extensions.policies.usage_signals import LABELS, USES, VERDICTS
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.publish.sql import Scope

_KEY: Final = ", ".join(CAPTURE)
_ORIGIN: Final = ("scheme", "host", "port")
#: The facts about one robots.txt capture; ``robots`` identifies it among the lines of all captures.
_ROBOTS: Final = (
    "struct_pack(robots, crawl, segment, fetch_time, fetch_status, state := value, content_digest, warc_filename, "
    "warc_record_offset)"
)
#: States of a robots.txt without information. The newest capture is one of another state, if there is any.
_UNINFORMATIVE_STATES: Final = ("unreachable", "unresolved", "unreadable")
#: Subjects of verdicts: ``access`` is decided by rules, the others are uses.
SUBJECTS: Final = ("access", *USES)


def origin_columns(url: str) -> str:
    """SQL columns with scheme, host and port of a URL. ``fill.origin_of`` does the same in Python."""
    authority = f"lower(regexp_extract({url}, '^[^/?#]*//(?:[^/?#@]*@)?([^/?#]*)', 1))"
    scheme = f"lower(regexp_extract({url}, '^([^/?#:]*):', 1))"
    port = f"TRY_CAST(regexp_extract({authority}, ':([0-9]+)$', 1) AS INTEGER)"
    return (
        f"{scheme} AS scheme, regexp_replace({authority}, ':[0-9]*$', '') AS host, "
        f"coalesce({port}, CASE {scheme} WHEN 'https' THEN 443 ELSE 80 END) AS port"
    )


#: An SQL expression of the segment in an archive file's name; empty if the name has none.
SEGMENT: Final = "regexp_extract(warc_filename, '/segments/([^/]+)/', 1)"


def path_expression(url: str) -> str:
    """An SQL expression of a URL's path and query in the normal form of patterns (``policies/robots.py``)."""
    has_escapable = "regexp_matches(rooted, '[^!-~]')"
    octets = (
        "array_to_string(list_transform(string_split(rooted, ''), lambda one: CASE WHEN one < '!' OR one > '~' THEN "
        "regexp_replace(hex(encode(one)), '(..)', '%\\1', 'g') ELSE one END), '')"
    )
    path, query = "regexp_extract(plain, '^[^?]*')", "regexp_extract(plain, '\\?.*$')"
    unescaped = f"{_unescaped(path, '2[5AF43]|3F')} || {_unescaped(query, '2[5A43]')}"
    plain = f"replace(replace(CASE WHEN {has_escapable} THEN {octets} ELSE rooted END, '*', '%2A'), '$', '%24')"
    normal = f"CASE WHEN contains(plain, '%') THEN {unescaped} ELSE plain END"
    url_path = f"regexp_extract({url}, '^[^/?#]*//[^/?#]*([^#]*)', 1)"
    rooted = "CASE WHEN starts_with(rest, '/') THEN rest ELSE '/' || rest END"
    return _let("rest", url_path, _let("rooted", rooted, _let("plain", plain, normal)))


def _let(name: str, value: str, expression: str) -> str:
    """An SQL expression that binds ``name`` to ``value`` in ``expression``, so that a long value is written once."""
    return f"list_transform([{value}], lambda {name}: {expression})[1]"


def _unescaped(text: str, kept_escapes: str) -> str:
    of_ascii = (
        f"NOT regexp_matches(octet, '^(?:{kept_escapes})') AND regexp_matches(octet, '^(?:2[1-9A-F]|[3-6].|7[0-9A-E])')"
    )
    unescaped_piece = f"CASE WHEN {of_ascii} THEN chr(('0x' || octet)::INTEGER) ELSE '%' || octet END || piece[3:]"
    escaped = _let("octet", "upper(piece[1:2])", unescaped_piece)
    piece = f"CASE WHEN regexp_matches(piece, '^[0-9A-Fa-f]{{2}}') THEN {escaped} ELSE '%' || piece END"
    pieces = f"list_transform(pieces[2:], lambda piece: {piece})"
    return _let("pieces", f"string_split({text}, '%')", f"pieces[1] || coalesce(array_to_string({pieces}, ''), '')")


def pattern_matches(pattern: str, path: str) -> str:
    """An SQL condition: the pattern matches the path from its first octet. Both are in normal form (RFC 9309, 2.2.2 and
    2.2.3).
    """
    plain = f"replace(replace(replace({pattern}, '\\', '\\\\'), '%', '\\%'), '_', '\\_')"
    like_pattern = f"replace(CASE WHEN ends_with({plain}, '$') THEN {plain}[:-2] ELSE {plain} || '*' END, '*', '%')"
    return f"({path} LIKE {like_pattern} ESCAPE '\\')"


def robots_ctes(pages: str, table: Scope) -> str:
    """Common table expressions that join each row of ``pages`` (``page``, ``scheme``, ``host``, ``port``, ``crawl``,
    ``segment``, ``fetched``) with two robots.txt captures: the one in force at the fetch (struct ``robots``)
    and the newest one (struct ``newest``). Both are null if there is none.

    ``basis`` is segment, earlier, later or none. ``gap_seconds`` is how much earlier than the page the robots.txt was
    fetched (below 0: later). ``agreement`` is bracketed if the last capture before and the first one after the page
    have the same content, changed if one differs, and null if there is none on one side.
    """
    same_origin = " AND ".join(f"p.{name} = r.{name}" for name in _ORIGIN)
    in_segment = f"{same_origin} AND p.crawl = r.crawl AND p.segment = r.segment"

    def as_of(rows: str, condition: str, order: str) -> str:
        return f"SELECT p.page, r.one FROM pages p ASOF JOIN {rows} r ON {condition} AND p.fetched {order} r.fetch_time"

    return f"""
        pages AS MATERIALIZED ({pages}),
        robots AS MATERIALIZED (
            SELECT crawl, scheme, host, port, segment, fetch_time, robots, {_ROBOTS} AS one
            FROM {table("site_policies")} WHERE signal = 'robots.txt'
                AND (scheme, host, port) IN (SELECT (scheme, host, port) FROM pages)),
        in_time AS (
            SELECT scheme, host, port, fetch_time, arg_min(one, robots) AS one FROM robots GROUP BY ALL),
        newest AS (
            SELECT scheme, host, port, arg_max(one, (one.state NOT IN {_UNINFORMATIVE_STATES}, fetch_time)) AS one
            FROM in_time GROUP BY ALL),
        same_before AS ({as_of("robots", in_segment, ">=")}),
        same_after AS ({as_of("robots", in_segment, "<")}),
        before AS ({as_of("in_time", same_origin, ">=")}),
        after AS ({as_of("in_time", same_origin, "<")}),
        beside AS (
            SELECT p.page, p.fetched, coalesce(sb.one, sa.one, b.one, a.one) AS robots, n.one AS newest,
                CASE WHEN sb.one IS NOT NULL OR sa.one IS NOT NULL THEN 'segment' WHEN b.one IS NOT NULL THEN 'earlier'
                    WHEN a.one IS NOT NULL THEN 'later' ELSE 'none' END AS basis, b.one AS b, a.one AS a
            FROM pages p LEFT JOIN same_before sb USING (page) LEFT JOIN same_after sa USING (page)
            LEFT JOIN before b USING (page) LEFT JOIN after a USING (page)
            LEFT JOIN newest n ON p.scheme = n.scheme AND p.host = n.host AND p.port = n.port),
        held AS (
            SELECT page, robots, newest, basis,
                date_diff('second', robots.fetch_time, fetched) AS gap_seconds,
                CASE WHEN a IS NULL OR b IS NULL THEN NULL
                    WHEN (a.state, a.content_digest) IS NOT DISTINCT FROM (robots.state, robots.content_digest)
                        AND (b.state, b.content_digest) IS NOT DISTINCT FROM (robots.state, robots.content_digest)
                    THEN 'bracketed' ELSE 'changed' END AS agreement
            FROM beside)"""


def verdict_ctes(question_query: str, table: Scope) -> str:
    """Common table expressions with the verdicts of robots.txt for each row of ``question_query`` (``ask``, ``robots``
    and its ``state``, ``path``, ``agent``), one row for each of ``SUBJECTS``: ``verdict`` is allow, disallow or
    unknown.

    The group of an agent replaces the group for all agents, including its signals. The longest matching rule counts,
    and ``allow`` counts among rules of equal length; among signals with a path ``disallow`` counts.
    """
    family = "CASE WHEN signal IN ('allow', 'disallow') THEN 'rule' ELSE signal END"
    tie = "(permission = CASE WHEN signal IN ('allow', 'disallow') THEN 'allow' ELSE 'disallow' END)::INTEGER"
    return f"""
        asked AS MATERIALIZED ({question_query}),
        lines AS MATERIALIZED (
            SELECT robots, agent, signal, path, uses, permission FROM {table("site_policies")}
                SEMI JOIN asked USING (robots)
            WHERE agent IS NOT NULL AND (signal = 'user-agent' OR permission IS NOT NULL)),
        groups AS (
            SELECT robots, list(agent) AS named FROM lines WHERE signal = 'user-agent' GROUP BY ALL),
        governed AS (
            SELECT e.*, CASE WHEN list_contains(r.named, e.agent) THEN e.agent ELSE '*' END AS governing
            FROM asked e LEFT JOIN groups r USING (robots)),
        fitting AS (
            SELECT e.ask, e.agent, unnest(r.uses) AS about, {family} AS family, permission,
                2 * strlen(coalesce(r.path, '')) + {tie} AS weight
            FROM governed e JOIN lines r ON r.robots = e.robots AND r.agent = e.governing AND r.permission IS NOT NULL
                AND (r.path IS NULL OR {pattern_matches("r.path", "e.path")})),
        chosen AS (
            SELECT ask, agent, about, arg_max(permission, weight) AS permission
                FROM fitting GROUP BY ask, agent, about, family),
        said AS (
            SELECT ask, agent, about, bool_or(permission = 'disallow') AS disallows FROM chosen GROUP BY ALL),
        verdicts AS (
            SELECT ask, agent, about, CASE WHEN about = 'access' AND path = '/robots.txt' THEN 'allow'
                WHEN disallows THEN 'disallow' WHEN about = 'access' AND state = 'read' THEN 'allow'
                WHEN NOT disallows AND about <> 'access' THEN 'allow' ELSE 'unknown' END AS verdict
            FROM (SELECT *, unnest({list(SUBJECTS)}) AS about FROM asked) LEFT JOIN said USING (ask, agent, about))"""


def page_policies_query() -> str:
    """An SQL query of the preferences in pages and headers: one row for each statement. ``agent`` is ``*`` for a
    statement to all.
    """
    key = f"{_KEY}, warc_record_length, subset, url, fetch_time, domain"
    robots = {"noai": ("ai-input", "train"), "noml": ("ai-input", "train"), "noindex": ("search",), "none": ("search",)}
    robots_cases = " ".join(f"WHEN {quote_literal(name)} THEN {list(uses)}" for name, uses in robots.items())
    labels = " ".join(
        f"WHEN {quote_literal(f'{signal}: {label}')} THEN {list(uses)}"
        for signal, uses_by_label in LABELS.items()
        for label, uses in uses_by_label.items()
    )
    words = " ".join(
        f"WHEN {quote_literal(f'{signal}: {word}')} THEN {quote_literal(verdict)}"
        for signal, verdict_by_word in VERDICTS.items()
        for word, verdict in verdict_by_word.items()
    )
    license_type = (
        "CASE WHEN contains(lower({type}), 'rsl+xml') THEN 'rsl' "
        "WHEN contains(lower({url}), 'creativecommons.org/') THEN 'creative-commons' ELSE 'license' END"
    )
    linked = license_type.format(type="coalesce(map_extract(attributes, 'type')[1], '')", url="link_url")
    in_header = license_type.format(type="value", url="value")
    return f"""
        WITH told AS (
            SELECT {key}, coalesce(rule.bot, '*') AS agent, unnest(rule.directives) AS value, rule.source AS source
            FROM (SELECT {key}, unnest(robots) AS rule FROM main.page_metadata WHERE len(robots) > 0)),
        headers AS (
            SELECT {key}, lower(one.name) AS name, one.value AS value
            FROM (SELECT {key}, unnest(list_filter(http_header_list, lambda header:
                    lower(header.name) IN ('content-signal', 'content-usage', 'link'))) AS one
                FROM main.page_metadata)),
        labels AS (
            SELECT {key}, name, trim(split_part(part, '=', 1)) AS label,
                trim(split_part(split_part(part, '=', 2), ';', 1)) AS word
            FROM (SELECT {key}, name, unnest(string_split(
                    CASE name WHEN 'content-signal' THEN lower(value) ELSE value END, ',')) AS part
                FROM headers WHERE name <> 'link') WHERE contains(part, '=')),
        signals AS (
            SELECT *, CASE name || ': ' || label {labels} END AS about, CASE name || ': ' || word {words} END AS said
            FROM labels)
        SELECT {key}, agent, 'robots' AS signal, value, source, CASE value {robots_cases} END AS uses,
            CASE WHEN value IN ({", ".join(map(quote_literal, robots))}) THEN 'disallow' END AS permission
                FROM told UNION ALL
        SELECT {key}, '*', 'tdm-reservation', tdm_reservation::INTEGER::VARCHAR, NULL, ['train'],
            CASE WHEN tdm_reservation THEN 'disallow' ELSE 'allow' END
            FROM main.page_metadata WHERE tdm_reservation IS NOT NULL UNION ALL
        SELECT {key}, '*', 'tdm-policy', tdm_policy, NULL, NULL, NULL
            FROM main.page_metadata WHERE tdm_policy IS NOT NULL UNION ALL
        SELECT {key}, '*', name, label || '=' || word, 'header', CASE WHEN said IS NOT NULL THEN about END,
            CASE WHEN about IS NOT NULL THEN said END FROM signals UNION ALL
        SELECT {key}, '*', {in_header}, regexp_extract(value, '<([^>]*)>', 1), 'header', NULL, NULL
            FROM (SELECT {key}, unnest(regexp_extract_all(value, '<[^>]*>[^<]*')) AS value FROM headers
                WHERE name = 'link') WHERE regexp_matches(lower(value), 'rel="?[^";]*\\blicense\\b') UNION ALL
        SELECT {key}, '*', {linked}, link_url, 'link', NULL, NULL FROM main.page_links
            WHERE item_index IS NULL AND type IN ('a', 'link', 'area') AND contains(lower(rel), 'license')
                AND list_contains(string_split(lower(rel), ' '), 'license') AND link_url IS NOT NULL"""


def combined_verdict(site: str, page: str) -> str:
    """An SQL expression that combines the verdicts of a site and a page: ``disallow`` wins. ``page`` may be null."""
    return (
        f"CASE WHEN {site} = 'disallow' OR {page} = 'disallow' THEN 'disallow' "
        f"WHEN {site} = 'allow' OR {page} = 'allow' THEN 'allow' ELSE 'unknown' END"
    )


def policy_query(page: str, moment: str, table: Scope) -> str:
    """Returns an SQL query: may a robot fetch a page, and for which uses?

    It answers twice: for the capture at ``moment`` (``at_fetch``) and for the newest captures (``latest``). robots.txt
    and the page's own tags and headers count; ``disallow`` wins. There is one row for each robot that one of the two
    robots.txt files names (``*``: all others) and each of ``SUBJECTS``. ``page`` and ``moment`` are SQL expressions.
    """
    captures_of_page = f"FROM {table('captures')} WHERE url = {page}"

    def page_verdicts(name: str, fetch_time: str) -> str:
        return f"""{name} AS (
            SELECT agent, about, CASE WHEN bool_or(permission = 'disallow') THEN 'disallow' ELSE 'allow' END
                AS permission
            FROM (SELECT agent, unnest(uses) AS about, permission FROM {table("page_policies")}
                WHERE url = {page} AND permission IS NOT NULL AND fetch_time = ({fetch_time})) GROUP BY agent, about)"""

    def join_verdicts(name: str) -> str:
        # joined by equality, since DuckDB 1.1 cannot plan such a question inside a row
        return (
            f"LEFT JOIN {name} {name}_all ON {name}_all.about = one.about AND {name}_all.agent = '*' "
            f"LEFT JOIN {name} {name}_own ON {name}_own.about = one.about AND {name}_own.agent = one.agent"
        )

    # A refusal wins, and a missing statement has no effect.
    verdict_then, verdict_now = (
        combined_verdict(verdict, f"greatest({name}_all.permission, {name}_own.permission)")
        for verdict, name in (("one.held", "page_then"), ("one.holds", "page_now"))
    )
    questions = f"""
        SELECT ask, one.robots AS robots, one.state AS state, {path_expression(page)} AS path, agent FROM agents, (
            SELECT 'then' AS ask, robots AS one FROM held UNION ALL SELECT 'now', newest FROM held)"""
    return f"""
        WITH {
        robots_ctes(
            f'''
            SELECT 1 AS page, {origin_columns(page)}, seen.crawl AS crawl, seen.segment AS segment,
                {moment}::TIMESTAMPTZ AS fetched
            FROM (SELECT (SELECT struct_pack(crawl, segment := {SEGMENT}) {captures_of_page}
                AND fetch_time = {moment}::TIMESTAMPTZ ORDER BY warc_filename, warc_record_offset LIMIT 1) AS seen)''',
            table,
        )
    },
        agents AS (
            SELECT '*' AS agent UNION SELECT r.agent FROM {table("site_policies")} r, held h
            WHERE r.signal = 'user-agent' AND r.robots IN (h.robots.robots, h.newest.robots)),
        {verdict_ctes(questions, table)},
        both_times AS (
            SELECT agent, about, max(verdict) FILTER (ask = 'then') AS held, max(verdict) FILTER (ask = 'now') AS holds
            FROM verdicts GROUP BY ALL),
        {page_verdicts("page_then", f"{moment}::TIMESTAMPTZ")},
        {page_verdicts("page_now", f"SELECT max(fetch_time) {captures_of_page}")}
        SELECT one.agent, one.about, {verdict_then} AS at_fetch, {
        verdict_now
    } AS latest, h.basis, h.gap_seconds, h.agreement,
            h.robots.fetch_time AS robots_time, h.robots.fetch_status AS robots_status, h.robots.state AS robots_state,
            h.robots.content_digest AS robots_digest, h.newest.fetch_time AS latest_time,
            h.newest.fetch_status AS latest_status, h.newest.state AS latest_state,
            h.newest.content_digest AS latest_digest, h.robots.crawl AS crawl, h.robots.warc_filename AS warc_filename,
            h.robots.warc_record_offset AS warc_record_offset
        FROM both_times one {join_verdicts("page_then")} {join_verdicts("page_now")} CROSS JOIN held h
        ORDER BY one.agent <> '*', one.agent, list_position({list(SUBJECTS)}, one.about)"""


def consent_timeline(table: Scope) -> str:
    """An SQL query of the history of an origin's robots.txt: a row for each sequence of captures with the same content,
    with its times and the verdicts for the front page, first for robots without a group of their own (``access``,
    ``search``, ``ai_input``, ``train``), then the named agents, and those of them that may fetch nothing.
    """
    questions = (
        "SELECT one.robots AS ask, one.robots AS robots, one.state AS state, '/' AS path, '*' AS agent FROM stretches"
    )
    verdicts = ", ".join(
        f"max(v.verdict) FILTER (v.about = {quote_literal(use)}) AS {use.replace('-', '_')}" for use in SUBJECTS
    )
    return f"""
        WITH seen AS (
            SELECT scheme, host, port, crawl, segment, fetch_time, {_ROBOTS} AS one
            FROM {table("site_policies")} WHERE signal = 'robots.txt'),
        compared AS (
            SELECT *, (one.state, one.content_digest) IS DISTINCT FROM lag((one.state, one.content_digest)) OVER (
                PARTITION BY scheme, host, port ORDER BY fetch_time, crawl, segment) AS begins FROM seen),
        numbered AS (
            SELECT *, count_if(begins) OVER (PARTITION BY scheme, host, port
                ORDER BY fetch_time, crawl, segment ROWS UNBOUNDED PRECEDING) AS stretch FROM compared),
        stretches AS (
            SELECT scheme, host, port, stretch, min(fetch_time) AS first_seen, max(fetch_time) AS last_seen,
                count(*) AS captures, list_sort(list_distinct(list(crawl))) AS crawls,
                arg_min(one, (fetch_time, crawl, segment)) AS one FROM numbered GROUP BY ALL),
        {verdict_ctes(questions, table)},
        whole AS (
            SELECT robots, list(agent ORDER BY agent) AS named, list(agent ORDER BY agent) FILTER (shut) AS shut
            FROM (SELECT robots, agent, bool_or(signal = 'disallow' AND path IN ('/', '/*', '*'))
                    AND NOT bool_or(signal = 'allow') AS shut FROM lines GROUP BY ALL) GROUP BY ALL)
        SELECT s.scheme, s.host, s.port, first_seen, last_seen, captures, crawls, one.state AS state,
            one.fetch_status AS fetch_status, one.content_digest AS content_digest,
            {verdicts},
            coalesce(any_value(w.named), []) AS agents, coalesce(any_value(w.shut), []) AS agents_shut_out
        FROM stretches s LEFT JOIN verdicts v ON v.ask = s.one.robots LEFT JOIN whole w ON w.robots = s.one.robots
        GROUP BY ALL ORDER BY s.scheme, s.host, s.port, first_seen"""
