"""The home of the real pages, against what a reader of its archives that is not ours found: the frozen rows say that
nothing changed, these that it is right."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest

from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.oracles.conftest import MakeHome
from cc_pipeline_tests.oracles.homes import CRAWLS, published_file
from cc_pipeline_tests.publish import oracle
from cc_pipeline_tests.publish.test_macros import near, texts
from cc_pipeline_tests.world import ARC, NEW

pytestmark = [pytest.mark.process, needs_corpus, pytest.mark.xdist_group("real_crawl")]

KEY = "crawl, url, warc_filename, warc_record_offset, warc_record_length"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as handle:
        return json.load(handle)


@pytest.fixture(scope="module")
def published(make_home: MakeHome) -> Iterator[duckdb.DuckDBPyConnection]:
    folder, _ = make_home("realcrawl")
    with duckdb.connect(str(published_file(folder)), read_only=True) as connection:
        yield connection


def arc_file(pointer: Sequence[int]) -> str:
    segment, date, partition, _ = pointer
    return f"parse-output/segment/{segment}/{date}_{partition}.arc.gz"


def expected_captures(truth: dict[str, Any]) -> Counter[tuple[str, str, str, int, int]]:
    found: Counter[tuple[str, str, str, int, int]] = Counter()
    for crawl in CRAWLS:
        for row in truth[crawl]:
            if crawl == ARC:
                _, (*pointer, size), url, _ = row
                found[crawl, url, arc_file(pointer), pointer[-1], size] += 1
            else:
                key = (crawl, row["url"], row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
                found[key] += 1
    return found


def test_exactly_the_expected_captures_each_once_and_fetched(
    published: duckdb.DuckDBPyConnection, expected: dict[str, Any]
) -> None:
    found = Counter(published.execute(f"SELECT {KEY} FROM captures").fetchall())
    truth = expected_captures(expected)
    assert found == truth
    assert max(found.values()) == 1
    outcomes = published.execute("SELECT outcome, reason, count(*) FROM ledger GROUP BY ALL").fetchall()
    assert outcomes == [("fetched", None, truth.total())]


def test_index_columns_are_as_published(published: duckdb.DuckDBPyConnection, expected: dict[str, Any]) -> None:
    for crawl in CRAWLS:
        if crawl == ARC:
            continue
        columns = [name for name in expected[crawl][0] if name not in ("sha1_body", "fetch_time")]
        rows = published.execute(
            f"SELECT {', '.join(columns)}, strftime(fetch_time AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S') "
            "FROM captures WHERE crawl = ?",
            [crawl],
        ).fetchall()
        wanted = Counter(
            (*(row[name] for name in columns), row["fetch_time"].removesuffix("+00:00")) for row in expected[crawl]
        )
        assert Counter(rows) == wanted


def test_arc_captures_take_time_status_and_digest_from_the_record(
    published: duckdb.DuckDBPyConnection, expected: dict[str, Any]
) -> None:
    truth = {(arc_file(pointer), pointer[3]): when for _, (*pointer, _), _, when in expected[ARC]}
    rows = published.execute(
        "SELECT warc_filename, warc_record_offset, strftime(fetch_time AT TIME ZONE 'UTC', '%Y%m%d%H%M%S'), "
        "fetch_status, length(content_digest) FROM captures WHERE crawl = ?",
        [ARC],
    ).fetchall()
    assert len(rows) == len(truth)
    for file, offset, when, _, digest in rows:
        assert (when, digest) == (truth[file, offset], 32)
    assert sum(row[3] is not None for row in rows) > len(rows) * 0.9


def test_macros_say_of_real_pages_what_their_twins_say(published: duckdb.DuckDBPyConnection) -> None:
    published.execute("SET TimeZone = 'UTC'")
    captures, known = oracle.rows(published, "captures"), texts(published)
    found = published.execute("SELECT crawl, captures, pages, new_pages, payloads, bytes, left_out FROM timeline()")
    assert {row[0]: row[1:] for row in found.fetchall()} == oracle.timeline(captures)
    found = published.execute(f"SELECT url_surtkey, change FROM changes_between('{ARC}', '{NEW}')")
    assert dict(found.fetchall()) == oracle.changes(captures, known, ARC, NEW)
    feeds = {row["feed"]: (row["pages"], row["crawls"], row["captures"])
             for row in oracle.rows(published, "feeds_advertised()")}  # fmt: skip
    assert feeds == oracle.feeds(oracle.rows(published, "page_metadata"), captures) != {}
    edges = {
        (row["crawl"], row["domain"], row["link_domain"]): (row["pages"], row["links"], row["nofollow"])
        for row in oracle.rows(published, "link_graph()")
    }
    assert edges == oracle.links(oracle.rows(published, "page_links"))
    near(published, NEW, 0.8)
