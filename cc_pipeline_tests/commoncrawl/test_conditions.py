"""Conditions on captures against DuckDB, and what an index does not tell of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.conditions import MATCH_YES, OPEN, parse_condition
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.target_text import parse_slug, parse_target
from cc_pipeline.errors import UserInputError


def captures(*rows: dict[str, Any], crawl: str = "CC-MAIN-2024-22", by: str = "parquet") -> pa.Table:
    fixed = {"crawl": crawl, "subset": "warc", "archive_format": "warc", "located_by": by}
    return pa.Table.from_pylist([{**fixed, **row} for row in rows], schema=CAPTURE_SCHEMA)


def meant(where: str, table: pa.Table) -> list[tuple[str, str]]:
    kept = parse_condition(where).keep(table)
    return list(zip(kept["url"].to_pylist(), kept["condition_match"].to_pylist(), strict=True))


def _rows(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Rows of an index in which each column may be null."""
    draw = random.Random(seed)
    urls = (
        "http://a.example.org/",
        "https://example.ch/blog/x_y?q=1",
        "http://1.2.3.4/Blog",
        "http://b.example.org/a'b",
    )
    types = ("text/html", "application/pdf", "Image/PNG; q=1")
    for _ in range(count):
        url = draw.choice(urls)
        named = {key: value for key, value in host_columns(url).items() if value is not None}
        row = {
            **named,
            "domain": named.get("url_host_registered_domain"),
            "fetch_status": draw.choice((200, 404, -1, 301)),
            "fetch_time": datetime(draw.randint(2017, 2019), draw.randint(1, 12), 1, tzinfo=UTC),
            "content_mime_detected": draw.choice(types),
            "content_mime_type": draw.choice(types),
            "content_languages": draw.choice(("deu", "eng,deu", "fra")),
            "content_charset": draw.choice(("UTF-8", "windows-1252", "")),
            "content_digest": draw.choice(("AAAA", "BBBB")),
            "warc_record_length": draw.randrange(24_000),
        }
        known = {name: value for name, value in row.items() if draw.random() > 0.25}
        yield known | {"url": url, "subset": draw.choice(("warc", "warc", "robotstxt"))}


TABLE = captures(*_rows(3, 300))
#: The same columns in DuckDB's own words; ``known_…``: null is a value, of the index or once pages were parsed.
_ORACLE = """
CREATE TABLE {name} AS SELECT
    lower(regexp_replace(coalesce(content_mime_detected, content_mime_type), '[ ;].*', '')) AS mime,
    lower(regexp_replace(content_mime_type, '[ ;].*', '')) AS mime_claimed,
    string_split(content_languages, ',') AS lang, content_charset AS charset,
    CASE WHEN fetch_status > 0 THEN fetch_status END AS status, fetch_time AT TIME ZONE 'UTC' AS time, url,
    url_protocol AS protocol, url_host_name AS host, domain, url_host_tld AS tld, url_path AS path,
    url_query AS query, subset, warc_record_length AS length, content_digest AS digest,
    {parsed} OR content_mime_detected IS DISTINCT FROM 'application/pdf' AS known_lang,
    {known}
FROM given
"""
_OF_URL = ("charset", "protocol", "host", "domain", "tld", "path", "query")
_OTHERS = ("mime", "mime_claimed", "status", "time", "url", "subset", "length", "digest")


@pytest.fixture(scope="module")
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        oracle(found)
        yield found


def oracle(session: duckdb.DuckDBPyConnection) -> None:
    session.register("given", TABLE)
    for name, parsed in (("captures", "false"), ("pages", "true")):
        known = [f"true AS known_{column}" for column in _OF_URL] + [
            f"{parsed} AS known_{column}" for column in _OTHERS
        ]
        session.execute(_ORACLE.format(name=name, parsed=parsed, known=", ".join(known)))


_SIGNS = ("=", "!=", "<", "<=", ">", ">=")
_TYPES = ("text/html", "application/pdf", "IMAGE/png")
#: What a person writes, and the same in SQL; both begin with the column.
_TERMS = (
    *((f"{c}{s}{v}", f"{c} {s} lower('{v}')") for c in ("mime", "mime_claimed") for s in _SIGNS[:2] for v in _TYPES),
    *((f"status{sign}{code}", f"status {sign} {code}") for sign in _SIGNS for code in (200, 301, 404)),
    *((f"length {sign} {count}", f"length {sign} {count}") for sign in _SIGNS for count in (0, 3072, 20480)),
    *((f"lang = {code}", f"lang IS NOT NULL AND list_contains(lang, '{code}')") for code in ("deu", "eng", "zho")),
    *(
        (f"path {word} {pattern}", f"path {word} '{pattern}'")
        for word in ("like", "not like")
        for pattern in ("/blog/%", "%x_y", "/Blog", "%")
    ),
    *((f"subset{text}", f"subset {text}") for text in ("='warc'", " in ('warc', 'robotstxt')", "!='robotstxt'")),
    ("mime in (text/html, image/png)", "mime IN ('text/html', 'image/png')"),
    ("mime=image/*", "mime LIKE 'image/%'"),
    ("lang!=eng", "lang IS NOT NULL AND NOT list_contains(lang, 'eng')"),
    ("lang in (fra, deu)", "lang IS NOT NULL AND (list_contains(lang, 'fra') OR list_contains(lang, 'deu'))"),
    ("lang not in (fra, eng)", "lang IS NOT NULL AND NOT (list_contains(lang, 'fra') OR list_contains(lang, 'eng'))"),
    ("status=4xx", "status BETWEEN 400 AND 499"),
    ("status<4xx", "status < 400"),
    ("status not in (200, 3xx)", "status NOT BETWEEN 300 AND 399 AND status <> 200"),
    ("time=2018", "time >= TIMESTAMP '2018-01-01' AND time < TIMESTAMP '2019-01-01'"),
    ("time!=2019-01-01", "time::DATE <> DATE '2019-01-01'"),
    ("time in (2017, 2019)", "time < TIMESTAMP '2018-01-01' OR time >= TIMESTAMP '2019-01-01'"),
    ("time>=2018-05", "time >= TIMESTAMP '2018-05-01'"),
    ("time<=201805", "time < TIMESTAMP '2018-06-01'"),
    ("time > '2018'", "time >= TIMESTAMP '2019-01-01'"),
    ("time<2018-03-01T12", "time < TIMESTAMP '2018-03-01 12:00:00'"),
    ("tld=ch", "tld = 'ch'"),
    ("tld!=CH", "tld <> 'ch'"),
    ("domain=example.org", "domain = 'example.org'"),
    ("path='/a''b'", "path = '/a''b'"),
    ("query=''", "query = ''"),
    ("charset in ('', UTF-8)", "charset IN ('', 'UTF-8')"),
    ("digest != 'AAAA'", "digest <> 'AAAA'"),
)


def term(ours: str, theirs: str) -> tuple[str, str]:
    """A term, and in SQL whether it is so, where null is either none or not known."""
    column = re.split(r"\W", ours)[0]
    return ours, f"CASE WHEN {column} IS NOT NULL THEN {theirs} WHEN known_{column} THEN false END"


TERMS = (
    *(term(*one) for one in _TERMS),
    *(
        (f"{name} is{word} null", f"CASE WHEN {name} IS NOT NULL OR known_{name} THEN {name} IS{word} NULL END")
        for name in ("lang", *_OF_URL, *_OTHERS)
        for word in ("", " not")
    ),
)


def condition(draw: random.Random) -> tuple[str, str]:
    """A condition, as a person writes it and in SQL."""
    ours, theirs = zip(*draw.sample(TERMS, draw.randint(1, 4)), strict=True)
    return " and ".join(ours), " AND ".join(f"({one})" for one in theirs)


def agree(session: duckdb.DuckDBPyConnection, said: Sequence[tuple[str, str]]) -> None:
    """Each condition says in lookups and parsed pages what SQL says, and reads back as itself."""
    asked = ", ".join(f"({theirs})" for _, theirs in said)
    of_index = [*zip(*session.execute(f"SELECT {asked} FROM captures").fetchall(), strict=True)]
    of_pages = [*zip(*session.execute(f"SELECT {asked} FROM pages").fetchall(), strict=True)]
    for (ours, _), truth, parsed in zip(said, of_index, of_pages, strict=True):
        condition = parse_condition(ours)
        assert parse_condition(condition.text) == condition, ours
        assert tuple(condition.truth(TABLE).to_pylist()) == truth, ours
        assert tuple(condition.truth(TABLE, parsed=True).to_pylist()) == parsed, ours
        kept = condition.keep(TABLE)
        assert pc.equal(kept["condition_match"], MATCH_YES).to_pylist() == [
            so is True for so in truth if so is not False
        ], ours
        # what is left of a condition is open
        for text in set(kept["condition_match"].to_pylist()) - {MATCH_YES}:
            rows = kept.filter(pc.equal(kept["condition_match"], text))
            assert parse_condition(text.removeprefix(OPEN)).truth(rows).null_count == rows.num_rows, ours


def test_each_term_is_that_of_sql(session: duckdb.DuckDBPyConnection) -> None:
    agree(session, TERMS)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.randoms(use_true_random=False))
def test_captures_are_those_of_sql(session: duckdb.DuckDBPyConnection, draw: random.Random) -> None:
    said = [condition(draw) for _ in range(4)]
    agree(session, said)
    assert parse_target(f"example.org where {said[0][0]}").where == parse_condition(said[0][0]).text


def test_null_and_empty_are_two_things() -> None:
    rows = captures({"url": "a", "url_query": None}, {"url": "b", "url_query": ""}, {"url": "c", "url_query": "x=1"})
    for where, found in (
        ("query is null", "a"), ("query=''", "b"), ("query is not null", "bc"), ("query!=''", "c"),
        ("query not like x%", "b"),
    ):  # fmt: skip
        assert meant(where, rows) == [(url, "yes") for url in found], where
    # of a capture without a URL the index tells no part of it
    assert parse_condition("query is null").truth(captures({"url": None})).to_pylist() == [None]


def test_what_the_index_does_not_say_is_asked_of_the_page() -> None:
    rows = [
        {"url": "a"},
        {"url": "b", "fetch_status": -1, "content_mime_type": "text/html"},
        {"url": "c", "fetch_status": 404},
    ]
    assert meant("status=200 and mime=text/html and lang=eng", captures(*rows, crawl="CC-MAIN-2012", by="btree")) == [
        ("a", "unknown: lang=eng and mime=text/html and status=200"),
        ("b", "unknown: lang=eng and status=200"),
    ]  # fmt: skip
    # a person who names captures says nothing of statuses and languages
    for where in ("status is not null", "status is null", "lang is null", "charset is null"):
        assert meant(where, captures({"url": "a"}, by="given")) == [("a", f"unknown: {where}")]


def test_a_missing_language_means_none_only_where_languages_are_detected() -> None:
    rows = [{"url": "en", "content_languages": "deu,eng"}, {"url": "de", "content_languages": "deu"}, {"url": "none"}]
    assert meant("lang=eng", captures(*rows)) == [("en", "yes")]
    assert meant("lang!=eng", captures(*rows)) == [("de", "yes")]
    assert meant("lang is null", captures(*rows)) == [("none", "yes")]
    for other in ({"crawl": "CC-MAIN-2018-05"}, {"by": "btree"}, {"crawl": "CC-MAIN-2009-2010"}):
        assert meant("lang=eng", captures(*rows, **other)) == [("en", "yes"), ("none", "unknown: lang=eng")]
    assert meant("lang=eng", captures()) == []
    # nobody looked for the language of a PDF, which has a text all the same
    rows = [
        {"url": "pdf", "content_mime_detected": "application/pdf"},
        {"url": "png", "content_mime_detected": "image/png"},
    ]
    assert meant("lang=deu", captures(*rows)) == [("pdf", "unknown: lang=deu")]
    assert meant("lang is null", captures(*rows)) == [("pdf", "unknown: lang is null"), ("png", "yes")]
    assert meant("lang=deu and mime=application/pdf", captures(*rows)) == [("pdf", "unknown: lang=deu")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mime=text/html and status=200", "STATUS = 200 AND  status=200 and mime = 'TEXT/html'"),
        ("lang in (deu, eng)", "lang IN (eng , 'deu', eng)"),
        ("status not in (3xx)", "status != '3XX'"),
    ],
)
def test_a_target_is_its_condition_however_it_is_written(one: str, other: str) -> None:
    found = parse_target(f"example.org where {one}")
    assert found == parse_target(f"example.org WHERE {other}")
    assert parse_target(found.definition) == found and found.slug.startswith("example.org__where.")
    assert found.slug != parse_target(f"example.org where {one} and tld=org").slug
    assert found.version != parse_target("example.org").version


def test_a_set_has_one_condition_for_all_its_members() -> None:
    found = parse_target("set:x = example.org, url:http://a.org/b where status=200")
    assert found.definition == "set:x = example.org, url:http://a.org/b where status=200"
    assert parse_target(found.definition) == found and found.slug == parse_slug("set:x where STATUS = 200")
    assert parse_slug("set:x = a.org where status=200") == found.slug != parse_slug("set:x")
    assert not any(member.where for member in found.members)


def test_subsets_that_a_condition_names() -> None:
    assert parse_condition("subset=robotstxt and status=200").subsets == ("robotstxt",)
    assert parse_condition("subset!=warc and path like /a").subsets == ("crawldiagnostics", "robotstxt")
    assert parse_condition("subset!=warc and subset!=robotstxt").subsets == ("crawldiagnostics",)
    assert parse_condition("status=200").subsets == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mim=text/html", r"at 'mim=text/html': there is no column mim \(did you mean mime\?\)"),
        ("status=200 and stat=1", r"at 'stat=1': there is no column stat \(did you mean status\?\)"),
        ("time=yesterday", "at 'yesterday': .*2018-05-01"),
        ("time>2018-13", "at '2018-13': .*2018-05-01"),
        ("status='OK'", "at \"'OK'\": 'ok' is not an HTTP status"),
        ("length<1e3", "a number of bytes"),
        ("mime=html", "at 'html': .*text/html"),
        ("mime='text/html(|x'", "text/html"),
        ("lang in (deu, en)", "at 'en.*639-3"),
        ("lang>eng", "lang has no order"),
        ("lang like '%e%'", "cannot be compared with LIKE"),
        ("subset=wet", "there are warc, crawldiagnostics"),
        ("path=" + "x" * 4000, "at most 4,000"),
        *(
            (text, "terms joined by and.*SQL")
            for text in (
                "mime",
                "status=200 and",
                "status=200 or lang=deu",
                "not status=200",
                "length between 1 and 2",
                "lower(path)=a",
                "status=200; DROP TABLE captures",
                "path='a",
                "path in ('a', b",
                "path in (" + "'" * 3000,
            )
        ),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        parse_target(f"example.org where {text}")
