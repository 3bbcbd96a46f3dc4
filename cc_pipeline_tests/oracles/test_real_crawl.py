"""The whole graph over a small bucket of real pages: exactly the expected captures, each once, all fetched."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest

from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.launch import Launcher
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

pytestmark = [pytest.mark.process, needs_corpus, pytest.mark.xdist_group("real_crawl")]

CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012")
ARC_CRAWL = "CC-MAIN-2012"


def expected() -> dict[str, Any]:
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as handle:
        return json.load(handle)


def expected_captures(truth: dict[str, Any]) -> Counter[tuple[str, str, str, int, int]]:
    found: Counter[tuple[str, str, str, int, int]] = Counter()
    for crawl in CRAWLS:
        for row in truth[crawl]:
            if crawl == ARC_CRAWL:
                _, (segment, date, partition, offset, size), url, _ = row
                found[crawl, url, f"parse-output/segment/{segment}/{date}_{partition}.arc.gz", offset, size] += 1
            else:
                key = (crawl, row["url"], row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
                found[key] += 1
    return found


def domains_of(truth: dict[str, Any]) -> list[str]:
    hosts = {row["url_host_name"] for crawl in CRAWLS[:2] for row in truth[crawl]}
    hosts |= {urlsplit(row[2]).hostname or "" for row in truth[ARC_CRAWL]}
    return sorted({registered_domain(host) or host for host in hosts if host})


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    home = tmp_path_factory.mktemp("home")
    settings = load_settings(
        {"CC_PIPELINE_SUBSETS": "warc,crawldiagnostics,robotstxt"},
        source=str(CORPUS / "realcrawl" / "bucket"),
        home=str(home),
    )
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.list_crawls()
        launcher.harvest(CRAWLS)
        list(launcher.extract(CRAWLS, [parse_target(domain) for domain in domains_of(expected())]))
        launcher.publish()
    with duckdb.connect(str(Path(home) / "cc.duckdb"), read_only=True) as connection:
        yield connection


KEY = "crawl, url, warc_filename, warc_record_offset, warc_record_length"


def test_exactly_the_expected_captures_each_once(published: duckdb.DuckDBPyConnection) -> None:
    found = Counter(published.execute(f"SELECT {KEY} FROM captures").fetchall())
    truth = expected_captures(expected())
    assert found - truth == Counter()
    assert truth - found == Counter()
    assert max(found.values()) == 1


def test_index_columns_are_as_published(published: duckdb.DuckDBPyConnection) -> None:
    truth = expected()
    for crawl in CRAWLS[:2]:
        columns = [name for name in truth[crawl][0] if name not in ("sha1_body", "fetch_time")]
        rows = published.execute(
            f"SELECT {', '.join(columns)}, strftime(fetch_time AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S') "
            "FROM captures WHERE crawl = ?",
            [crawl],
        ).fetchall()
        wanted = Counter(
            (*(row[name] for name in columns), row["fetch_time"].removesuffix("+00:00")) for row in truth[crawl]
        )
        assert Counter(rows) == wanted


def test_every_record_is_fetched_and_verified(published: duckdb.DuckDBPyConnection) -> None:
    outcomes = published.execute("SELECT outcome, reason, detail, count(*) FROM ledger GROUP BY ALL").fetchall()
    assert [row[:3] for row in outcomes] == [("fetched", None, None)]
    assert outcomes[0][3] == sum(len(expected()[crawl]) for crawl in CRAWLS)


def test_digests_of_the_index_are_met(published: duckdb.DuckDBPyConnection) -> None:
    checks = dict(
        published.execute(
            "SELECT digest_check, count(*) FROM records WHERE crawl <> 'CC-MAIN-2012' GROUP BY 1"
        ).fetchall()
    )
    assert set(checks) == {"match"}


def test_arc_captures_take_time_status_and_digest_from_the_record(published: duckdb.DuckDBPyConnection) -> None:
    truth = {
        (f"parse-output/segment/{pointer[0]}/{pointer[1]}_{pointer[2]}.arc.gz", pointer[3]): when
        for _, pointer, _, when in expected()[ARC_CRAWL]
    }
    rows = published.execute(
        "SELECT warc_filename, warc_record_offset, strftime(fetch_time AT TIME ZONE 'UTC', '%Y%m%d%H%M%S'), "
        "fetch_status, content_digest FROM captures WHERE crawl = 'CC-MAIN-2012'"
    ).fetchall()
    assert len(rows) == len(truth)
    for file, offset, when, _, digest in rows:
        assert when == truth[file, offset]
        assert digest is not None
        assert len(digest) == 32
    assert sum(row[3] is not None for row in rows) > len(rows) * 0.9


def test_one_metadata_row_each(published: duckdb.DuckDBPyConnection) -> None:
    assert published.execute(
        "SELECT count(*) FROM captures ANTI JOIN page_metadata USING (crawl, warc_filename, warc_record_offset)"
    ).fetchone() == (0,)
    assert published.execute(
        "SELECT (SELECT count(*) FROM page_metadata) - (SELECT count(*) FROM captures)"
    ).fetchone() == (0,)


def test_robots_txt_of_2012_has_no_content(published: duckdb.DuckDBPyConnection) -> None:
    rows = published.execute(
        "SELECT content IS NULL, count(*) FROM page_metadata "
        "WHERE crawl = 'CC-MAIN-2012' AND url LIKE '%/robots.txt' GROUP BY 1"
    ).fetchall()
    wanted = sum(urlsplit(row[2]).path == "/robots.txt" for row in expected()[ARC_CRAWL])
    assert wanted > 0
    assert rows == [(True, wanted)]
