"""Questions about robots.txt bodies, asked of DuckDB as a published file asks them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import duckdb
import pyarrow as pa

from cc_pipeline.extensions.policies import policy_queries
from cc_pipeline.extensions.policies.robots import parse_robots
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_SCHEMA

_LINES = SITE_POLICIES_SCHEMA.field("lines").type


def verdicts(bodies: Iterable[bytes], asked: Iterable[tuple[int, str, str]]) -> list[dict[str, str]]:
    """What each of ``asked`` (number of a body, URL, agent) is told: a verdict for each of ``consent.ABOUT``."""
    lines = pa.array([[asdict(line) for line in parse_robots(body)] for body in bodies], _LINES)
    questions = [(number, str(body), url, agent.lower()) for number, (body, url, agent) in enumerate(asked)]
    with duckdb.connect() as connection:
        connection.register("files", pa.table({"robots": [str(n) for n in range(len(lines))], "lines": lines}))
        connection.execute(
            "CREATE TABLE site_policies AS SELECT robots, signal, path, value, uses, permission, "
            "unnest(CASE WHEN len(agents) > 0 THEN agents ELSE [NULL] END) AS agent "
            "FROM (SELECT robots, unnest(lines, recursive := true) FROM files)"
        )
        names = ["ask", "robots", "url", "agent"]
        connection.register(
            "questions", pa.table(dict(zip(names, map(list, zip(*questions, strict=True)), strict=True)))
        )
        sql = (
            f"SELECT ask, robots, 'read' AS state, {policy_queries.path_expression('url')} AS path, agent FROM "
            "questions"
        )
        rows = connection.execute(
            f"WITH {policy_queries.verdict_ctes(sql, lambda table: table)} SELECT ask, about, verdict FROM verdicts"
        ).fetchall()
    found: list[dict[str, str]] = [{} for _ in questions]
    for ask, about, verdict in rows:
        found[ask][about] = verdict
    return found


def access(body: bytes, *asked: tuple[str, str]) -> list[str]:
    """Whether agents may fetch URLs (agent, URL)."""
    return [one["access"] for one in verdicts([body], [(0, url, agent) for agent, url in asked])]
