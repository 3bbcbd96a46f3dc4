"""The views ``site_policies`` and ``page_policies``, and the macros that evaluate them for a page or a site."""

from __future__ import annotations

from typing import Final

from cc_pipeline.capture_columns import KEY_COLUMNS
from cc_pipeline.columns import notes_of
from cc_pipeline.extensions.policies import policy_queries
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_COLUMNS
from cc_pipeline.lake.snapshot import MacroSpec, ViewSpec
from cc_pipeline.publish import sql
from cc_pipeline.publish.macros import BY_SITE, select_site_rows

#: The lake has the lines of a file once a slice; the view repeats them for each capture. Each capture has a row
#: ``robots.txt``, also without any lines. If two targets have a capture, one of them may lack the redirect's target.
_SITE_POLICIES = """
    WITH held AS (
        SELECT DISTINCT ON (robots) * EXCLUDE (lines) FROM lake.site_policies
        ORDER BY robots, state IN ('unresolved', 'unreadable'), target),
    said AS (
        SELECT crawl, target, content_digest, unnest(lines, recursive := true) FROM lake.site_policies
        WHERE len(lines) > 0)
    SELECT * EXCLUDE (target, state), NULL::VARCHAR AS agent, 'robots.txt' AS signal, NULL::VARCHAR AS path,
        state AS value, NULL::VARCHAR[] AS uses, NULL::VARCHAR AS permission, NULL::INTEGER AS line FROM held
    UNION ALL
    SELECT held.* EXCLUDE (target, state), unnest(CASE WHEN len(agents) > 0 THEN agents ELSE [NULL] END), signal, path,
        value, uses, permission, number
    FROM held JOIN said USING (crawl, target, content_digest)"""
#: Descriptions of the columns that only views have.
_SITE_POLICIES_NOTES: Final = {
    "agent": "Token of the robot in lower case, * for those without a group; null: it stands before any group",
    "signal": "robots.txt (the capture's own row), user-agent (a group has this robot), allow, disallow, "
    "content-signal, content-usage, license, crawl-delay, cut",
    "path": "Pattern of a rule in normal form; null: all paths",
    "value": "As written; of the row robots.txt: read, unavailable (4xx), unreachable (5xx), unresolved (redirects "
    "to what is not archived), no robots.txt (a page), cut, unreadable",
    "uses": "What it speaks of: access, search, ai-input, train",
    "permission": "allow or disallow; null: neither",
    "line": "Number of the line",
}
_PAGE_POLICIES_NOTES: Final = {
    "agent": "The robot it is said to; * for all",
    "signal": "robots (meta or X-Robots-Tag), tdm-reservation, tdm-policy, content-signal, content-usage, rsl, "
    "creative-commons, license (another one)",
    "value": "As said; of licences the address",
    "source": "meta, header or link; null: either",
    "uses": "What it speaks of: search, ai-input, train; null: of none of them",
    "permission": "allow or disallow; null: neither",
}

VIEWS: Final = (
    ViewSpec(
        "site_policies",
        _SITE_POLICIES,
        "What robots.txt captures say: a row for each line and robot it is for, and one for each capture.",
        notes=notes_of(SITE_POLICIES_COLUMNS) | _SITE_POLICIES_NOTES,
    ),
    ViewSpec(
        "page_policies",
        policy_queries.page_policies_query(),
        "What pages and their headers say to robots of how they may be used.",
        notes=notes_of(KEY_COLUMNS) | _PAGE_POLICIES_NOTES,
    ),
)
MACROS: Final = (
    MacroSpec(
        "policy_of",
        ("page", "moment"),
        policy_queries.policy_query("page", "moment", sql.qualify),
        "policy_of(page, moment): what robots.txt and the page said of access and uses when a URL was fetched, and "
        "what they say by the newest captures known: allow, disallow or unknown.",
    ),
    MacroSpec(
        "consent_timeline",
        BY_SITE,
        policy_queries.consent_timeline(select_site_rows),
        "consent_timeline(site := NULL): stretches of time in which an origin's robots.txt said the same, and what.",
    ),
)
