"""Joins the pages of a data set with the usage preferences of their sites and of the pages themselves. It finds the
pages that a preference removes and those for which nothing is known.

A verdict does not decide what may be done with a page. Common Crawl's own robot was allowed to fetch every captured
page, so rules tell what other robots may fetch, and signals tell about uses (``policies/policy_queries.py``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import duckdb

from cc_pipeline.advice import advise, option
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.policies import policy_queries
from cc_pipeline.extensions.policies.usage_signals import USES
from cc_pipeline.lake.quoting import quote_literal

JudgmentTime = Literal["fetch", "latest"]
#: Preferences that pages and their headers state: the signal, its values for no, its values for yes, and the meaning.
#: Other directives have no effect on noai.
_PAGE_SIGNALS: Final = {
    "tdm": ("tdm-reservation", ("1",), ("0",), "does not reserve text and data mining (TDMRep)"),
    "noai": ("robots", ("noai", "noml"), ("",), "has no noai or noml"),
}
#: Names of uses.
_USE_NAMES: Final = {**{use: use for use in USES}, "ai-train": "train"}
_AGENT = re.compile(r"\*|[a-z0-9_.-]+")
_PLACE: Final = (*CAPTURE, "url")
#: The table of answers that :func:`join_preferences` creates.
TABLE: Final = "sieve.main.consent"


@dataclass(frozen=True, slots=True)
class PreferenceCounts:
    """Counts of pages: by ``basis`` of their robots.txt, and for each preference the pages with a no (``disallow``), a
    yes (``allow``) and no answer (``unknown``).
    """

    basis: dict[str, int] = field(default_factory=dict)
    said: dict[str, dict[str, int]] = field(default_factory=dict)


def parse_preferences(text: str) -> tuple[str, ...]:
    """Parses comma-separated preferences: ``tdm``, ``noai``, a use (``search``, ``ai-input``, ``ai-train``), or the
    token of a robot, ``*`` for robots without a group of their own. Raises ``UserInputError``.
    """
    preferences = tuple(dict.fromkeys(filter(None, (word.strip().lower() for word in text.split(",")))))
    for word in preferences:
        if not _AGENT.fullmatch(word):
            raise UserInputError(
                f"{word!r} is not a preference; name tdm, noai, ai-train, ai-input, search, or robots such as gptbot"
            )
    return tuple(dict.fromkeys("ai-train" if word == "train" else word for word in preferences))


def describe_preference(preference: str) -> str:
    """Describes the condition on a page that a preference keeps."""
    if preference in _PAGE_SIGNALS:
        return _PAGE_SIGNALS[preference][3]
    if preference in _USE_NAMES:
        return f"no signal disallows this use ({preference})"
    return f"robots.txt does not disallow {'other robots' if preference == '*' else preference}"


def preference_condition(preference: str, *, known_only: bool) -> str:
    """The SQL condition on a page of :func:`join_preferences` that a preference keeps. With ``known_only``, pages
    without an answer are removed too."""
    is_not_disallowed = f"NOT list_contains(disallowed, {quote_literal(preference)})"
    return (
        f"{is_not_disallowed} AND NOT list_contains(unknown, {quote_literal(preference)})"
        if known_only
        else is_not_disallowed
    )


def join_preferences(
    connection: duckdb.DuckDBPyConnection, pages: str, preferences: Sequence[str], as_of: JudgmentTime
) -> tuple[str, PreferenceCounts]:
    """Joins ``pages`` (a query with the columns of ``page_text``) with the columns ``disallowed`` and ``unknown``,
    which are lists of preferences. Returns the query and the counts. The table ``TABLE`` holds the columns.
    """
    execute = connection.execute
    place = ", ".join(_PLACE)
    execute(
        f"CREATE TABLE sieve.main.asked AS SELECT row_number() OVER () AS page, * FROM "
        f"(SELECT DISTINCT ON ({place}) {place}, fetch_time FROM ({pages}))"
    )
    agents = [
        "*",
        *(preference for preference in preferences if preference not in _PAGE_SIGNALS and preference not in _USE_NAMES),
    ]
    pages_query = (
        f"SELECT page, {policy_queries.origin_columns('url')}, crawl, {policy_queries.SEGMENT} AS "
        "segment, fetch_time AS fetched "
        "FROM sieve.main.asked"
    )
    robots_struct = "robots" if as_of == "fetch" else "newest"
    robots_query = (
        f"SELECT page AS ask, {robots_struct}.robots AS robots, {robots_struct}.state AS state, "
        f"{policy_queries.path_expression('url')} AS path, agent "
        f"FROM held JOIN sieve.main.asked USING (page), (SELECT unnest({agents}) AS agent)"
    )
    same_capture = " AND ".join(f"a.{name} = s.{name}" for name in _PLACE)
    captures = "sieve.main.asked a"
    if as_of == "latest":
        # The newest capture of a page has its current preferences.
        newest = f"arg_max(struct_pack({', '.join(CAPTURE)}), fetch_time)"
        captures = (
            f"(SELECT page, url, unnest(one) FROM (SELECT page, url FROM sieve.main.asked) "
            f"JOIN (SELECT url, {newest} AS one FROM main.page_metadata GROUP BY url) USING (url)) a"
        )
    page_signal_rows = "".join(
        f" UNION ALL SELECT page, {quote_literal(word)}, "
        f"CASE WHEN bool_or(value IN {no_values}) THEN 'disallow' ELSE 'allow' END "
        f"FROM told WHERE signal = {quote_literal(signal)} AND (value IN {no_values} OR value IN {yes_values}) GROUP "
        "BY ALL"
        for word, (signal, *value_groups, _) in _PAGE_SIGNALS.items()
        for no_values, yes_values in [["(" + ", ".join(map(quote_literal, values)) + ")" for values in value_groups]]
        if word in preferences
    )
    pairs = {
        preference: f"* {_USE_NAMES[preference]}" if preference in _USE_NAMES else f"{preference} access"
        for preference in preferences
    }
    preference_cases = " ".join(
        f"WHEN {quote_literal(pair)} THEN {quote_literal(preference)}" for preference, pair in pairs.items()
    )
    execute(f"""
        CREATE TABLE {TABLE} AS WITH {policy_queries.robots_ctes(pages_query, _main_table)},
        {policy_queries.verdict_ctes(robots_query, _main_table)},
        told AS (
            SELECT page, s.agent, signal, value, uses, permission
            FROM {captures} JOIN main.page_policies s ON {same_capture}),
        by_page AS (
            SELECT page, about, CASE WHEN bool_or(permission = 'disallow') THEN 'disallow' ELSE 'allow' END
                AS permission
            FROM (SELECT page, unnest(uses) AS about, permission FROM told WHERE permission IS NOT NULL AND agent = '*')
            GROUP BY ALL),
        answers AS (
            SELECT ask AS page, CASE agent || ' ' || about {preference_cases} END AS wish,
                {policy_queries.combined_verdict("verdict", "permission")} AS verdict
            FROM verdicts LEFT JOIN (SELECT page AS ask, about, permission FROM by_page) USING (ask, about)
            {page_signal_rows}),
        listed AS (
            SELECT page, list(wish) FILTER (verdict = 'disallow') AS no, list(wish) FILTER (verdict = 'allow') AS yes
            FROM answers WHERE wish IS NOT NULL GROUP BY page)
        SELECT a.* EXCLUDE (page, fetch_time), basis, coalesce(no, []) AS disallowed,
            list_filter({[*preferences]}, lambda wish: NOT list_contains(coalesce(no, []), wish)
                AND NOT list_contains(coalesce(yes, []), wish)) AS unknown
        FROM sieve.main.asked a JOIN held USING (page) LEFT JOIN listed USING (page)""")
    counts_seen = PreferenceCounts(
        dict(execute(f"SELECT basis, count(*) FROM {TABLE} GROUP BY ALL ORDER BY ALL").fetchall()),
    )
    for preference in preferences:
        columns = ("disallowed", "unknown")
        counts = ", ".join(
            f"count(*) FILTER (list_contains({column}, {quote_literal(preference)}))" for column in columns
        )
        [(disallowed, unknown_pages, total)] = execute(f"SELECT {counts}, count(*) FROM {TABLE}").fetchall()
        counts_seen.said[preference] = {
            "disallow": disallowed,
            "allow": total - disallowed - unknown_pages,
            "unknown": unknown_pages,
        }
    same_place = " AND ".join(f"p.{name} IS NOT DISTINCT FROM c.{name}" for name in _PLACE)
    return f"SELECT p.*, c.disallowed, c.unknown FROM ({pages}) p JOIN {TABLE} c ON {same_place}", counts_seen


def count_unknown(connection: duckdb.DuckDBPyConnection, kept_pages: str, preferences: Sequence[str]) -> dict[str, int]:
    """Counts, by preference, the pages of ``kept_pages`` (a query with their locations) for which nothing is known."""
    same_place = " AND ".join(f"c.{name} IS NOT DISTINCT FROM k.{name}" for name in _PLACE)
    counts = ", ".join(
        f"count(*) FILTER (list_contains(unknown, {quote_literal(preference)}))" for preference in preferences
    )
    [row] = connection.execute(f"SELECT {counts} FROM {TABLE} c SEMI JOIN ({kept_pages}) k ON {same_place}").fetchall()
    return dict(zip(preferences, row, strict=True))


def describe_preferences(seen: PreferenceCounts, unanswered: dict[str, int], as_of: JudgmentTime) -> list[str]:
    """The counts of preferences as Markdown."""
    basis_text = "at the fetch of each page" if as_of == "fetch" else "in the newest captures of this home"
    lines = [
        "",
        "## Usage preferences",
        "",
        f"Preferences {basis_text}. Pages before all filters:",
        "",
    ]
    lines += ["| preference | disallowed | allowed | unknown | unknown among kept pages |", "|---|---|---|---|---|"]
    for preference, counts_by_answer in seen.said.items():
        counts = [
            f"{count:,}"
            for count in (
                counts_by_answer["disallow"],
                counts_by_answer["allow"],
                counts_by_answer["unknown"],
                unanswered[preference],
            )
        ]
        lines.append(f"| {preference} | {' | '.join(counts)} |")
    basis = ", ".join(f"{name} {count:,}" for name, count in seen.basis.items())
    lines += ["", f"Origin of a page's robots.txt: {basis} (its segment of the crawl, an earlier or later capture,"]
    lines += ["none).", "", *_READING_NOTES]
    return lines


_READING_NOTES: Final = (
    "Unknown is neither allow nor disallow: no robots.txt was captured, the request failed, or it has no rule for it.",
    "Common Crawl's own robot, CCBot, was allowed to fetch every captured page. A filter by another robot leaves out",
    "pages that this robot may not fetch; a filter by use leaves out pages whose signal disallows it. Linked terms",
    "(RSL, a policy for text and data mining) were not read, nor were tdmrep.json, ai.txt and trust.txt.",
)


def unread_robots_note(connection: duckdb.DuckDBPyConnection, preferences: Sequence[str]) -> str | None:
    """Returns a note if a preference depends on robots.txt and the published file has no capture of any, so that the
    answer is unknown for all pages.
    """
    has_robots = connection.execute("SELECT 1 FROM lake.site_policies LIMIT 1").fetchall()
    if has_robots or all(preference in _PAGE_SIGNALS for preference in preferences):
        return None
    return (
        "no robots.txt was read in this home, so its rules are unknown for all pages. Pages with unknown rules are "
        f"kept and counted in the datasheet, unless {option(known_only=True)}. To read "
        f"robots.txt: {advise('policies', _shortest_target(connection))}"
    )


def _shortest_target(connection: duckdb.DuckDBPyConnection) -> str:
    """The shortest target of the home, quoted for a shell."""
    query = "SELECT definition FROM main.targets ORDER BY length(definition), definition LIMIT 1"
    target_row = connection.execute(query).fetchone()
    return "TARGET" if target_row is None else shlex.quote(str(target_row[0]))


def _main_table(name: str) -> str:
    return f"main.{name}"
