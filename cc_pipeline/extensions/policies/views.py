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
    "agent": "Token of the robot in lower case, * for robots without a group; null: the line is before any group",
    "signal": "robots.txt (the capture's own row), user-agent (a group has this robot), allow, disallow, "
    "content-signal, content-usage, license, crawl-delay, cut",
    "path": "Pattern of a rule in normal form; null: all paths",
    "value": "Value as written; in the row robots.txt: read, unavailable (4xx), unreachable (5xx), "
    "unresolved (redirects to a page that is not archived), no robots.txt (a page), cut, "
    "unreadable",
    "uses": "Uses that the line concerns: access, search, ai-input, train",
    "permission": "allow or disallow; null: neither",
    "line": "Number of the line",
}
_PAGE_POLICIES_NOTES: Final = {
    "agent": "Robot that the signal is for; * for all",
    "signal": "robots (meta or X-Robots-Tag), tdm-reservation, tdm-policy, content-signal, content-usage, rsl, "
    "creative-commons, license (another one)",
    "value": "Value as written; for a licence its address",
    "source": "meta, header or link; null: either",
    "uses": "Uses that the signal concerns: search, ai-input, train; null: none of them",
    "permission": "allow or disallow; null: neither",
}

VIEWS: Final = (
    ViewSpec(
        "site_policies",
        _SITE_POLICIES,
        "Content of robots.txt captures: a row for each line and robot that it is for, and one for each capture.",
        notes=notes_of(SITE_POLICIES_COLUMNS) | _SITE_POLICIES_NOTES,
    ),
    ViewSpec(
        "page_policies",
        policy_queries.page_policies_query(),
        "Usage preferences of pages for robots, from the pages and their headers.",
        notes=notes_of(KEY_COLUMNS) | _PAGE_POLICIES_NOTES,
    ),
)
MACROS: Final = (
    MacroSpec(
        "policy_of",
        ("page", "moment"),
        policy_queries.policy_query("page", "moment", sql.qualify),
        "policy_of(page, moment): access and uses of a URL by its robots.txt and page, at the "
        "fetch and by the newest known captures: allow, disallow or unknown.",
    ),
    MacroSpec(
        "consent_timeline",
        BY_SITE,
        policy_queries.consent_timeline(select_site_rows),
        "consent_timeline(site := NULL): periods in which an origin's robots.txt was the same, with its content.",
    ),
)
