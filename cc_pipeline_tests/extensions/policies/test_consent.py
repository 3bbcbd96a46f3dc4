"""What held for pages and what holds now, in the published file, in an export and in data sets, beside the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.export import table_files
from cc_pipeline.extensions.policies.dataset import FilterResult, Recipe, filter_pages
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_SCHEMA
from cc_pipeline.extensions.policies.usage_preferences import parse_preferences, unread_robots_note
from cc_pipeline.extensions.policies.views import _SITE_POLICIES, MACROS
from cc_pipeline.lake.published_file import open_home_publication
from cc_pipeline.publish.macros import MACROS as CORE_MACROS
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extensions.policies.conftest import SPEC, UNREAD
from cc_pipeline_tests.extensions.policies.oracle import Asked, robots_of, stretches
from cc_pipeline_tests.world import publish, workspace_of

ORIGIN = "scheme || '://' || host || CASE WHEN port IN (80, 443) THEN '' ELSE ':' || port END"
WISHES = ("tdm", "noai", "ai-train", "ai-input", "search", "gptbot", "*")


@pytest.fixture(scope="session")
def asked() -> Asked:
    return Asked(SPEC, UNREAD)


@pytest.fixture(scope="session")
def published(asking: Workspace) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_home_publication(asking.settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="session")
def exported(asking: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("exported") / "handed.duckdb"
    with open_home_publication(asking.settings) as connection:
        selections = table_files.select_tables(connection, [], [], [])
        table_files.write_duckdb(connection, selections, path, [], [CORE_MACROS, MACROS])
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def pages_of(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
    return connection.execute("SELECT url, fetch_time FROM main.page_text ORDER BY ALL").fetchall()


def test_each_robots_txt_is_there_with_its_state(published: duckdb.DuckDBPyConnection) -> None:
    rows = published.execute(
        f"SELECT {ORIGIN}, fetch_time, value FROM site_policies WHERE signal = 'robots.txt'"
    ).fetchall()
    here = {origin: every for origin, every in robots_of(SPEC).items() if UNREAD not in origin}
    assert Counter(rows) == Counter((origin, one.fetched, one.state) for origin, all_ in here.items() for one in all_)
    states = {state for *_, state in rows}
    assert states == {"read", "unavailable", "unreachable", "unresolved", "no robots.txt"}
    moved = published.execute("SELECT count(*) FROM site_policies WHERE read_from <> url").fetchone()
    assert moved is not None and moved[0] > 0


def test_the_timeline_has_each_stretch(
    published: duckdb.DuckDBPyConnection, exported: duckdb.DuckDBPyConnection
) -> None:
    rows = published.execute(
        f"SELECT {ORIGIN}, state, first_seen, last_seen, captures FROM consent_timeline()"
    ).fetchall()
    wanted = [one for one in stretches(SPEC) if UNREAD not in one[0]]
    assert Counter(rows) == Counter(wanted)
    # it changes between crawls, and within one
    within = [(first, last) for _, _, first, last, _ in wanted if first.year == last.year == 2024]
    assert len(within) > len({origin for origin, *_ in wanted if UNREAD not in origin})
    query = "FROM consent_timeline() ORDER BY ALL"
    assert published.execute(query).fetchall() == exported.execute(query).fetchall()
    one_site = published.execute("SELECT DISTINCT host FROM consent_timeline(site := 'EXAMPLE.org')").fetchall()
    assert {host for (host,) in one_site} == {"example.org", "feeds.example.org", "docs.example.org"}
    shut = published.execute(
        "SELECT DISTINCT agents_shut_out FROM consent_timeline() WHERE list_contains(agents, 'claudebot')"
    ).fetchall()
    assert shut == [(["claudebot", "gptbot"],)]


def test_what_held_for_a_page_and_what_holds(
    published: duckdb.DuckDBPyConnection, exported: duckdb.DuckDBPyConnection, asked: Asked
) -> None:
    by_join: dict[tuple[str, str | None], list[tuple[str, Any, int | None]]] = {}
    for url, at in pages_of(published):
        _, basis, gap, agreement = asked.held(url, at)
        by_join.setdefault((basis, agreement), []).append((url, at, gap))
    assert {basis for basis, _ in by_join} == {"segment", "earlier", "later", "none"}
    assert {agreement for _, agreement in by_join} == {"bracketed", "changed", None}
    query = "SELECT agent, about, at_fetch, latest, basis, gap_seconds, agreement FROM policy_of(?, ?)"
    for (url, at, gap), join in [(one, join) for join, some in by_join.items() for one in some[:3]]:
        rows = published.execute(query, [url, at]).fetchall()
        assert {row[4:] for row in rows} == {(join[0], gap, join[1])}, url
        if (url, at, gap) == by_join[join][0]:
            assert rows == exported.execute(query, [url, at]).fetchall()
        found = {(row[0], row[1]): row[2:4] for row in rows}
        for wish, key in (
            ("*", ("*", "access")), ("search", ("*", "search")), ("ai-input", ("*", "ai-input")),
            ("ai-train", ("*", "train")), ("gptbot", ("gptbot", "access")),
        ):  # fmt: skip
            if key in found:
                assert found[key] == tuple(asked.said(url, at, wish, as_of) for as_of in ("fetch", "latest")), (
                    url,
                    wish,
                )


def test_a_redirect_that_one_target_has_the_end_of_is_followed() -> None:
    row = {field.name: 1 if pa.types.is_integer(field.type) else "x" for field in SITE_POLICIES_SCHEMA}
    row |= {"fetch_time": None, "lines": None, "robots": "a capture"}
    line = {
        "number": 1,
        "agents": ["*"],
        "signal": "disallow",
        "path": "/",
        "value": "/",
        "uses": [],
        "permission": "no",
    }
    alone = row | {"target": "host_a.com~robotstxt", "state": "unresolved", "content_digest": None}
    whole = row | {"target": "z.com~robotstxt", "state": "read", "content_digest": "d", "lines": [line]}
    rows = pa.Table.from_pylist([alone, whole], SITE_POLICIES_SCHEMA)
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA lake; CREATE TABLE lake.site_policies AS FROM rows")
        found = connection.execute(f"SELECT signal, value FROM ({_SITE_POLICIES}) ORDER BY line NULLS FIRST").fetchall()
    assert found == [("robots.txt", "read"), ("disallow", "/")]
    assert rows.num_rows == 2


def test_nothing_is_known_of_an_origin_without_captures(published: duckdb.DuckDBPyConnection) -> None:
    rows = published.execute(
        "SELECT DISTINCT agent, at_fetch, latest, basis FROM policy_of('https://nowhere.example/x', '2024-01-01')"
    ).fetchall()
    assert rows == [("*", "unknown", "unknown", "none")]


def sieved_of(workspace: Workspace, scratch: Path, **recipe: Any) -> tuple[FilterResult, set[tuple[str, Any]]]:
    plain = Recipe(min_words=0, rules=(), exact=False, near=None, **recipe)
    with open_home_publication(workspace.settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = filter_pages(connection, "SELECT * FROM main.page_text", plain, scratch)
        left = set(connection.execute(f"SELECT url, fetch_time FROM ({found.sql})").fetchall())
        # connections to one file are of one database in a process
        connection.execute("DETACH sieve")
        return found, left


@pytest.mark.matrix
@pytest.mark.parametrize("as_of", ["fetch", "latest"])
def test_a_data_set_leaves_out_what_a_wish_names(asking: Workspace, asked: Asked, tmp_path: Path, as_of: Any) -> None:
    (tmp_path / "all").mkdir()
    _, every = sieved_of(asking, tmp_path / "all")
    for number, wanted in enumerate([*((wish,) for wish in WISHES), WISHES]):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        found, left = sieved_of(asking, scratch, respect=wanted, as_of=as_of)
        said = {(url, at, wish): asked.said(url, at, wish, as_of) for url, at in every for wish in wanted}
        assert left == {(u, at) for u, at in every if all(said[u, at, wish] != "disallow" for wish in wanted)}
        assert len(left) < len(every)
        assert found.unknown_preferences == {
            wish: sum(said[u, at, wish] == "unknown" for u, at in left) for wish in wanted
        }
        assert found.preference_counts is not None and sum(found.preference_counts.basis.values()) == found.pages
    (tmp_path / "known").mkdir()
    _, known = sieved_of(asking, tmp_path / "known", respect=("gptbot",), as_of=as_of, known_only=True)
    assert known == {(u, at) for u, at in every if asked.said(u, at, "gptbot", as_of) == "allow"}
    assert known and not any(UNREAD in url for url, _ in known)


def test_words_that_are_no_wish() -> None:
    assert parse_preferences(" GPTBot, train,tdm,,gptbot") == ("gptbot", "ai-train", "tdm")
    with pytest.raises(UserInputError, match="not a preference"):
        parse_preferences("gpt bot")


def test_what_nobody_read_is_unknown_and_said_to_be(policies_bucket: Path, tmp_path: Path) -> None:
    empty = workspace_of(policies_bucket, tmp_path / "home")
    empty.register_targets([parse_target("set:duo = example.com, example.org"), parse_target("host:www.example.com")])
    publish(empty)
    (tmp_path / "scratch").mkdir()
    assert sieved_of(empty, tmp_path / "scratch", respect=("gptbot",))[0].pages == 0
    with open_home_publication(empty.settings) as connection:
        note = unread_robots_note(connection, ("tdm", "gptbot"))
        assert note is not None and note.endswith("cc-pipeline policies host:www.example.com")
        assert unread_robots_note(connection, ("noai",)) is None, "pages say it"
