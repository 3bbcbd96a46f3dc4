"""Every macro against loops over rows; in views, in a copy, over three eras and over real pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.signals.quality import fingerprint
from cc_pipeline.publish.macros import MACROS
from cc_pipeline_tests.publish import oracle
from cc_pipeline_tests.publish.conftest import ONCE, OTHER, SITE, THIRD
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket

Connection = duckdb.DuckDBPyConnection
pytestmark = pytest.mark.xdist_group("questions")
#: A feed of the mini crawl's largest site, and a page that changes.
PAGES = ("https://www.example.com/", "http://example.com", "WWW.EXAMPLE.COM/#top")
#: The macros, with everything or one site; answers do not depend on how the file was published.
CALLS = (
    "captures_of('https://www.example.com/')",
    "timeline()",
    "page_versions('example.com')",
    f"changes_between('{OLD}', '{NEW}')",
    f"feed_timeline(site := '{SITE}')",
    "feeds_advertised()",
    "link_graph()",
    f"near_duplicates('{NEW}')",
)


@pytest.fixture(scope="module")
def located(bucket: Bucket) -> list[oracle.Row]:
    """What the home located, by the truth. A 2012 index knows neither time nor status; the records do."""
    wanted = {NEW: (SITE, OTHER, THIRD, ONCE), OLD: (SITE, OTHER, THIRD), ARC: (SITE, OTHER, THIRD)}
    subsets = {NEW: None, OLD: "warc", ARC: None}
    found = [
        asdict(capture)
        for crawl, domains in wanted.items()
        for domain in domains
        for capture in bucket[1].captures_of(crawl, subset=subsets[crawl], domain=domain)
    ]
    for row in found:
        row["content_digest"] = row["content_digest"] or (row["payload_digest"] if row["crawl"] == ARC else None)
        row["url_surtkey"] = row["url_surtkey"] or surt_key(row["url"])
    return found


def texts(connection: Connection) -> dict[oracle.Key, oracle.Row]:
    return {oracle.key(row): row for row in oracle.rows(connection, "page_text")}


def of_site(rows: list[oracle.Row], site: str | None) -> list[oracle.Row]:
    return [row for row in rows if site in (None, row["domain"])]


def argument(site: str | None) -> str:
    return "NULL" if site is None else f"'{site.upper()}'"


def test_a_home_of_three_eras_is_what_the_truth_says(in_views: Connection, located: list[oracle.Row]) -> None:
    columns = "crawl, warc_filename, warc_record_offset, url, url_surtkey, fetch_time, fetch_status, content_digest"
    here = {oracle.key(row): row for row in oracle.rows(in_views, "captures", columns)}
    assert here == {oracle.key(row): {name: row[name] for name in here[oracle.key(row)]} for row in located}
    assert {row["crawl"] for row in located if not oracle.counts(row)} == {NEW, ARC}


@pytest.mark.parametrize("site", [SITE, THIRD, None])
def test_timeline(in_views: Connection, located: list[oracle.Row], site: str | None) -> None:
    found = in_views.execute(
        f"SELECT crawl, captures, pages, new_pages, payloads, bytes, left_out, status_unknown "
        f"FROM timeline({argument(site)})"
    ).fetchall()
    assert [row[0] for row in found] == [ARC, OLD, NEW]
    assert {row[0]: row[1:-1] for row in found} == oracle.timeline(of_site(located, site))
    assert {row[-1] for row in found} == {0}


def test_captures_of_a_page_in_all_its_forms(in_views: Connection, located: list[oracle.Row]) -> None:
    wanted = sorted(filter(lambda row: row["url_surtkey"] == "com,example)/", located), key=oracle.when)
    assert len({row["crawl"] for row in wanted}) == 3
    for page in PAGES:
        found = oracle.rows(in_views, f"captures_of('{page}')")
        assert [oracle.key(row) for row in found] == [oracle.key(row) for row in wanted], page
        assert [row["comparable"] for row in found] == [oracle.counts(row) for row in wanted]
        assert {row["outcome"] for row in found} == {"fetched"}
    for page in sorted({row["url"] for row in located if "www." in row["url"]})[:10]:
        other = page.replace("https://", "http://") if "https" in page else page.replace("http://", "https://")
        keys = {row["url_surtkey"] for row in located if row["url"] == page}
        [(count,)] = in_views.execute("SELECT count(*) FROM captures_of(?)", [other.replace("www.", "")]).fetchall()
        assert count >= sum(row["url_surtkey"] in keys for row in located), page
    assert oracle.rows(in_views, "captures_of('nobody.example')") == []


def test_page_versions(in_views: Connection, located: list[oracle.Row]) -> None:
    known, several = texts(in_views), 0
    pages = oracle.by(located, lambda row: row["url_surtkey"])
    for _, mine in sorted(pages.items(), key=lambda page: -len(page[1]))[:20]:
        found = in_views.execute(
            "SELECT version, first_seen, last_seen, captures, crawls, payloads FROM page_versions(?)", [mine[0]["url"]]
        ).fetchall()
        assert found == oracle.versions(mine, known), mine[0]["url"]
        several += len(found) > 1
    assert several > 5


@pytest.mark.parametrize("site", [SITE, None])
def test_changes_between(in_views: Connection, located: list[oracle.Row], site: str | None) -> None:
    known = texts(in_views)
    # nobody looked for the pages of ONCE in the other crawls
    mine = [row for row in of_site(located, site) if row["domain"] != ONCE]
    seen = set()
    for before, after in ((OLD, NEW), (ARC, NEW), (NEW, OLD), (NEW, NEW)):
        found = oracle.rows(in_views, f"changes_between('{before}', '{after}', {argument(site)})")
        wanted = oracle.changes(mine if before != after else of_site(located, site), known, before, after)
        assert {row["url_surtkey"]: row["change"] for row in found} == wanted
        assert len(found) == len(wanted)
        seen |= set(wanted.values())
        alike = [row["likeness"] for row in found if row["change"] == "same" and row["likeness"] is not None]
        assert set(alike) == {1.0}
        # errors were located in the later crawl, so why a page is gone may be known
        last = {
            name: max(group, key=oracle.when)["fetch_status"]
            for name, group in oracle.by(
                [row for row in mine if row["crawl"] == after], lambda row: row["url_surtkey"]
            ).items()
        }
        if before != after:
            assert all(row["after_status"] == last.get(row["url_surtkey"]) for row in found)
    assert seen == {"new", "gone", "same", "changed"}


ARTICLE = "The harbour master counts every boat of the night, and writes each name into an old book of the town. "


@pytest.fixture
def by_hand(in_views: Connection) -> Iterator[Connection]:
    """The published tables without a row, and the macros over them."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; CREATE SCHEMA lake")
        for schema, table in (("main", "captures"), ("main", "page_text"), ("main", "lookups"), ("lake", "captures")):
            columns = in_views.execute(f"DESCRIBE {schema}.{table}").fetchall()
            described = ", ".join(f"{name} {kind}" for name, kind, *_ in columns)
            connection.execute(f"CREATE TABLE {schema}.{table} ({described})")
        for macro in MACROS:
            if macro.name in ("changes_between", "near_duplicates", "page_versions", "timeline"):
                connection.execute(f"CREATE MACRO {macro.name}({', '.join(macro.parameters)}) AS TABLE {macro.sql}")
        yield connection


def put(connection: Connection, crawl: str, name: str, text: str | None, target: str = SITE, **more: object) -> None:
    """A capture of a page, and its text."""
    [(place,)] = connection.execute("SELECT count(*) FROM captures").fetchall()
    own = {"crawl": crawl, "url": f"https://{SITE}/{name}", "url_surtkey": f"com,example)/{name}", "domain": SITE}
    own |= {"fetch_time": f"2024-05-01 00:00:{place:02}Z", "fetch_status": 200, "content_digest": f"payload {place}"}
    own |= {"warc_filename": "file", "warc_record_offset": place} | more
    mark = fingerprint(text)
    said = {"main_content": text, "content_simhash": mark.content_simhash, "content_minhash": mark.content_minhash}
    said["quality"] = {"words": len(text.split())} if text else None
    for table, row in (("captures", own), ("lake.captures", {**own, "target": target}), ("page_text", {**own, **said})):
        columns = {column for column, *_ in connection.execute(f"DESCRIBE {table}").fetchall()}
        kept = {column: value for column, value in row.items() if column in columns}
        marks = ", ".join(f"${column}" for column in kept)
        connection.execute(f"INSERT INTO {table} ({', '.join(kept)}) SELECT {marks}", kept)


def test_a_template_is_no_change(by_hand: Connection) -> None:
    other = ARTICLE.replace("counts", "forgets")
    put(by_hand, OLD, "template", ARTICLE)
    put(by_hand, NEW, "template", ARTICLE)
    put(by_hand, OLD, "text", ARTICLE * 9)
    put(by_hand, NEW, "text", ARTICLE * 8 + other)
    put(by_hand, OLD, "parsers", ARTICLE * 9, parser_version="3")
    put(by_hand, NEW, "parsers", ARTICLE * 8 + other, parser_version="4")
    put(by_hand, OLD, "payload", ARTICLE * 9, parser_version="3", content_digest="two")
    put(by_hand, NEW, "payload", ARTICLE * 8 + other, parser_version="4", content_digest="two")
    put(by_hand, OLD, "picture", None, content_digest="one")
    put(by_hand, NEW, "picture", None, content_digest="one")
    put(by_hand, OLD, "film", None)
    put(by_hand, NEW, "film", None)
    put(by_hand, NEW, "undigested", None, content_digest=None)
    put(by_hand, OLD, "undigested", None)
    put(by_hand, OLD, "twice", ARTICLE)
    put(by_hand, OLD, "twice", other)  # the last of a crawl counts
    put(by_hand, NEW, "twice", other)
    put(by_hand, OLD, "error", ARTICLE)
    put(by_hand, NEW, "error", None, fetch_status=404)
    put(by_hand, OLD, "robots.txt", None)
    put(by_hand, OLD, "elsewhere", ARTICLE, target="set-once")
    found = by_hand.execute(
        f"SELECT url_surtkey, change, likeness, after_status FROM changes_between('{OLD}', '{NEW}')"
    )
    answers = {key.partition("/")[2]: rest for key, *rest in found.fetchall()}
    assert {page: change for page, (change, *_) in answers.items()} == {
        "template": "same",
        "text": "changed",
        "parsers": "not compared",
        "payload": "same",
        "picture": "same",
        "film": "changed",
        "undigested": "unknown",
        "twice": "same",
        "error": "gone",
    }
    assert answers["template"][1] == 1
    assert 0 < answers["text"][1] < 1
    assert answers["error"][2] == 404


def test_ten_thousand_like_pages_are_not_ten_thousand_squared(by_hand: Connection) -> None:
    put(by_hand, NEW, "page", ARTICLE * 3)
    by_hand.execute(
        "INSERT INTO page_text SELECT page_text.* REPLACE (url || n AS url, url_surtkey || n AS url_surtkey, "
        "main_content || n AS main_content) FROM page_text, range(1500) numbers(n)"
    )
    found = by_hand.execute(f"SELECT count(*), count(DISTINCT url) FROM near_duplicates('{NEW}')").fetchall()
    [(pairs, named)] = found
    assert named == 1500, "each but the first is beside another"
    assert pairs < 1500 * 200


@pytest.mark.parametrize("site", [SITE, None])
def test_feed_timeline(in_views: Connection, site: str | None) -> None:
    pages, items = (of_site(oracle.rows(in_views, table), site) for table in ("page_metadata", "feed_items"))
    found = oracle.rows(in_views, f"feed_timeline({argument(site)})")
    wanted = oracle.feed_captures(pages, items)
    assert {oracle.key(row): (row["items"], row["new_items"]) for row in found} == wanted
    assert len(found) == len(wanted)
    assert {new for _, new in wanted.values()} > {0}


@pytest.mark.parametrize("site", [SITE, None])
def test_feeds_advertised(in_views: Connection, site: str | None) -> None:
    pages, captures = of_site(oracle.rows(in_views, "page_metadata"), site), oracle.rows(in_views, "captures")
    found = oracle.rows(in_views, f"feeds_advertised({argument(site)})")
    wanted = oracle.feeds(pages, captures)
    assert {row["feed"]: (row["pages"], row["crawls"], row["captures"]) for row in found} == wanted
    assert len(found) == len(wanted) > 0


@pytest.mark.parametrize("site", [SITE, THIRD, None])
def test_link_graph(in_views: Connection, site: str | None) -> None:
    found = oracle.rows(in_views, f"link_graph({argument(site)})")
    wanted = {
        edge: figures
        for edge, figures in oracle.links(oracle.rows(in_views, "page_links")).items()
        if site is None or site in edge
    }
    edges = {(row["crawl"], row["domain"], row["link_domain"]): row for row in found}
    assert {edge: (row["pages"], row["links"], row["nofollow"]) for edge, row in edges.items()} == wanted
    assert len(found) == len(wanted) > 0
    if site:
        assert {site} < {edge[1] for edge in edges}, "links from elsewhere are missing"


def near(connection: Connection, crawl: str, least: float, words: int = 20) -> int:
    found = oracle.rows(connection, f"near_duplicates('{crawl}', min_similarity := {least}, min_words := {words})")
    exact, alike = oracle.duplicates(
        [row for row in oracle.rows(connection, "page_text") if row["crawl"] == crawl], least, words
    )
    assert {(row["url"], row["like_url"]) for row in found if row["kind"] == "exact"} == exact
    assert {(row["url"], row["like_url"]): row["likeness"] for row in found if row["kind"] == "near"} == alike
    assert [row["kind"] for row in found] == sorted(row["kind"] for row in found)
    return len(exact) + len(alike)


@pytest.mark.parametrize("crawl", [NEW, OLD, ARC])
def test_near_duplicates(in_views: Connection, crawl: str) -> None:
    assert near(in_views, crawl, 0.8) <= near(in_views, crawl, 0.8, words=0)
    assert near(in_views, crawl, 1.0) > 0


def test_a_copy_answers_the_same_and_so_does_a_file_that_is_attached(in_views: Connection, asked_copy: Path) -> None:
    with duckdb.connect() as beside:
        beside.execute(f"SET TimeZone = 'UTC'; ATTACH '{asked_copy}' AS held (READ_ONLY); USE held")
        for call in CALLS:
            found = oracle.rows(beside, call)
            assert found, call
            assert sorted(map(str, found)) == sorted(map(str, oracle.rows(in_views, call))), call


def test_one_payload_is_one_version_whatever_parsed_it(by_hand: Connection) -> None:
    texts = {"3": "as parser 3 has it", "4": "as parser 4 has it"}
    for payload, parser in (("p", "3"), ("p", "4"), ("q", "4"), ("r", "3"), ("p", None)):
        put(
            by_hand,
            NEW,
            "",
            texts.get(parser or ""),
            parser_version=parser,
            content_digest=payload,
            url=f"https://{SITE}/",
        )
    put(by_hand, NEW, "", "another text", parser_version="4", content_digest="s", url=f"https://{SITE}/")
    put(by_hand, NEW, "", None, content_digest="t", url=f"https://{SITE}/")
    found = by_hand.execute(f"SELECT captures, payloads, by_text FROM page_versions('{SITE}')").fetchall()
    # what one payload shows to be one text is one text of all payloads
    assert found == [(5, 3, True), (1, 1, True), (1, 1, False)]
