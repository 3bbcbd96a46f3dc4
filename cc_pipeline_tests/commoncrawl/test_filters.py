"""Conditions on captures against DuckDB, and what an index does not tell of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.filters import MATCH_YES, OPEN, build_condition, parse_condition
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


#: Columns of an index that a scan reads whole.
READ_WHOLE = ("content_mime_detected", "content_languages", "content_mime_type", "content_charset", "url_host_tld")
TABLE = captures(*_rows(3, 300))
#: The same columns in DuckDB's own words: as the index has them, and once pages were parsed.
_ORACLE = """
CREATE TABLE {name} AS SELECT
    lower(regexp_replace(coalesce(content_mime_detected, content_mime_type), '[ ;].*', '')) AS mime,
    lower(regexp_replace(content_mime_type, '[ ;].*', '')) AS mime_claimed,
    coalesce(string_split(content_languages, ','),
        CASE WHEN {parsed} OR content_mime_detected IS DISTINCT FROM 'application/pdf' THEN [] END) AS lang,
    coalesce(content_charset, '') AS charset,
    CASE WHEN fetch_status > 0 THEN fetch_status END AS status, fetch_time AT TIME ZONE 'UTC' AS time, url,
    coalesce(url_host_name, '') AS host, coalesce(domain, '') AS domain, coalesce(url_host_tld, '') AS tld,
    coalesce(url_path, '') AS path, coalesce(url_query, '') AS query, subset, warc_record_length AS length,
    content_digest AS digest
FROM given
"""


@pytest.fixture(scope="module")
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        oracle(found)
        yield found


def oracle(session: duckdb.DuckDBPyConnection) -> None:
    session.register("given", TABLE)
    session.execute(_ORACLE.format(name="captures", parsed="false"))
    session.execute(_ORACLE.format(name="pages", parsed="true"))


_SIGNS = ("=", "!=", "<", "<=", ">", ">=")
_TYPES = ("text/html", "application/pdf", "IMAGE/png")
_NAMES = (
    "mime",
    "mime_claimed",
    "lang",
    "charset",
    "status",
    "time",
    "host",
    "domain",
    "tld",
    "query",
    "length",
    "digest",
)
#: What a person writes, and the same in SQL.
_TERMS = (
    *((f"{c}{s}{v}", f"{c} {s} lower('{v}')") for c in ("mime", "mime_claimed") for s in _SIGNS[:2] for v in _TYPES),
    *((f"status{sign}{code}", f"status {sign} {code}") for sign in _SIGNS for code in (200, 301, 404)),
    *((f"length {sign} {kib} * 1024", f"length {sign} {kib} * 1024") for sign in _SIGNS for kib in (0, 3, 20)),
    *((f"lang = {code}", f"list_contains(lang, '{code}')") for code in ("deu", "eng", "zho")),
    *((f"path like {pattern}", f"path LIKE '{pattern}'") for pattern in ("/blog/%", "%x_y", "/Blog", "%")),
    *((f"subset{text}", f"subset {text}") for text in ("='warc'", " in ('warc', 'robotstxt')", "!='robotstxt'")),
    ("mime in (text/html, image/png)", "mime IN ('text/html', 'image/png')"),
    ("mime=image/*", "mime LIKE 'image/%'"),
    ("mime != mime_claimed", "mime <> mime_claimed"),
    ("lang!=eng", "NOT list_contains(lang, 'eng')"),
    ("lang not in (fra, eng)", "NOT (list_contains(lang, 'fra') OR list_contains(lang, 'eng'))"),
    ("status=4xx", "status BETWEEN 400 AND 499"),
    ("status not in (200, 3xx)", "NOT (status = 200 OR status BETWEEN 300 AND 399)"),
    ("404 > status", "status < 404"),
    ("time=2018", "year(time) = 2018"),
    ("time!=2019-01-01", "time::DATE <> DATE '2019-01-01'"),
    ("time>=2018-05", "time >= TIMESTAMP '2018-05-01'"),
    ("time<=201805", "time < TIMESTAMP '2018-06-01'"),
    ("time > '2018'", "time >= TIMESTAMP '2019-01-01'"),
    ("time<2018-03-01T12", "time < TIMESTAMP '2018-03-01 12:00:00'"),
    ("tld=ch", "tld = 'ch'"),
    ("tld!=CH", "tld <> 'ch'"),
    ("domain=example.org", "domain = 'example.org'"),
    ("path='/a''b'", "path = '/a''b'"),
    ("query=''", "query = ''"),
    *((f"{name} is{word} null", f"{name} IS{word} NULL") for name in _NAMES for word in ("", " not")),
    *((f"charset{sign}UTF-8", f"charset {sign} 'UTF-8'") for sign in _SIGNS),
    ("digest ilike 'a%'", "digest ILIKE 'a%'"),
    ("digest != 'AAAA'", "digest <> 'AAAA'"),
    ("true", "true"),
)


def number(draw: random.Random, depth: int) -> tuple[str, str]:
    """A number that is counted, as a person writes it and in SQL, where nothing divided by nothing is null too."""
    if depth == 0 or draw.random() < 0.4:
        plain = draw.choice(("status", "length", "0", "2", "301", "1.5"))
        return plain, f"{plain}::DOUBLE"
    one, other = number(draw, depth - 1), number(draw, depth - 1)
    sign = draw.choice("+-*/-")
    if draw.random() < 0.1:
        return f"-({one[0]})", f"(-({one[1]}))"
    return (
        f"({one[0]}) {sign} ({other[0]})",
        f"(({one[1]}) {sign} {f'nullif({other[1]}, 0)' if sign == '/' else other[1]})",
    )


def condition(draw: random.Random, depth: int) -> tuple[str, str]:
    """A condition, as a person writes it and in SQL."""
    kind = draw.randrange(10) if depth else 0
    if kind < 2:
        return draw.choice(_TERMS)
    if kind == 2:
        one, other, sign = number(draw, 2), number(draw, 2), draw.choice(_SIGNS)
        return f"({one[0]}) {sign} ({other[0]})", f"(({one[1]}) {sign} ({other[1]}))"
    a, b = condition(draw, depth - 1), condition(draw, depth - 1)
    if kind == 3:
        return f"not ({a[0]})", f"(NOT ({a[1]}))"
    if kind == 4:
        word = draw.choice(("is null", "is not null"))
        return f"({a[0]}) {word}", f"(({a[1]}) {word})"
    if kind == 5:
        sign, truth = draw.choice(_SIGNS), draw.choice(("true", "false", f"({b[0]})"))
        return f"({a[0]}) {sign} {truth}", f"(({a[1]}) {sign} {truth if truth in ('true', 'false') else f'({b[1]})'})"
    word = draw.choice(("and", "or"))
    return f"({a[0]}) {word} ({b[0]})", f"(({a[1]}) {word} ({b[1]}))"


def agree(session: duckdb.DuckDBPyConnection, said: Sequence[tuple[str, str]]) -> None:
    """Each condition says in lookups, scans and parsed pages what SQL says, and reads back as itself."""
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
        for column in READ_WHOLE:
            out = condition.rules_out(column, TABLE[column].combine_chunks(), "CC-MAIN-2024-22").to_pylist()
            assert not any(gone and so is not False for gone, so in zip(out, truth, strict=True)), (ours, column)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.randoms(use_true_random=False))
def test_captures_are_those_of_sql(session: duckdb.DuckDBPyConnection, draw: random.Random) -> None:
    said = [condition(draw, 4) for _ in range(4)]
    agree(session, said)
    assert parse_target(f"example.org where {said[0][0]}").where == parse_condition(said[0][0]).text


@pytest.mark.parametrize(
    "text",
    [
        "(not (status=10 and length>5)) is null",
        "(status=200)=false",
        "(lang=eng) is not null",
        "not (path like a and (status in (200, 301)) is null)",
        "-(-length) < 1e16",
        "((status=200) is null) = ((lang=eng) is null)",
    ],
)
def test_a_normal_form_reads_back(text: str) -> None:
    assert parse_condition(parse_condition(text).text) == parse_condition(text)


def test_what_could_not_be_read_back_is_refused() -> None:
    for text in (
        " and ".join(f"length between {n} and {n}{n}" for n in range(130)),
        f"length < {'-' * 40}5",
        "length<1e999",
    ):
        with pytest.raises(UserInputError):
            parse_condition(text)


def test_what_nobody_read_is_neither_null_nor_not() -> None:
    values = pa.array(["text/html", None, "image/png"])
    for where in (
        "mime=text/html and charset is not null",
        "mime=text/html and (status=200) is null",
        "mime is not null",
    ):
        # of the second row, the claimed type may be so
        assert parse_condition(where).rules_out("content_mime_detected", values, "CC-MAIN-2024-22").to_pylist()[:2] == [
            False,
            False,
        ]
    assert parse_condition("mime=text/html and charset is null").rules_out(
        "content_mime_detected", values, "CC-MAIN-2024-22"
    ).to_pylist() == [False, False, True]
    assert parse_condition("subset=robotstxt and status is not null").subsets == ("robotstxt",)
    # a tree has neither type nor status, and a person who names captures says nothing of languages
    for by in ("btree", "given"):
        assert meant("status is not null or lang=eng", captures({"url": "a"}, by=by)) == [
            ("a", "unknown: lang=eng or not status is null")
        ]


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


def test_a_missing_language_means_none_only_where_languages_are_detected() -> None:
    rows = [{"url": "en", "content_languages": "deu,eng"}, {"url": "de", "content_languages": "deu"}, {"url": "pdf"}]
    assert meant("lang=eng", captures(*rows)) == [("en", "yes")]
    assert meant("lang!=eng", captures(*rows)) == [("de", "yes"), ("pdf", "yes")]
    for other in ({"crawl": "CC-MAIN-2018-05"}, {"by": "btree"}, {"crawl": "CC-MAIN-2009-2010"}):
        assert meant("lang=eng", captures(*rows, **other)) == [("en", "yes"), ("pdf", "unknown: lang=eng")]
    assert meant("lang=eng", captures()) == []
    # nobody looked for the language of a PDF, which has a text all the same
    rows = [
        {"url": "pdf", "content_mime_detected": "application/pdf"},
        {"url": "png", "content_mime_detected": "image/png"},
    ]
    assert meant("lang=deu", captures(*rows)) == [("pdf", "unknown: lang=deu")]
    assert meant("lang=deu and mime=application/pdf", captures(*rows)) == [("pdf", "unknown: lang=deu")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mime=text/html and status=200", "STATUS = 200 AND  (200 = status and mime = 'TEXT/html')"),
        ("lang in (deu, eng)", "lang=eng or lang=deu"),
        ("time between 2018 and 2019", "time <= 2019 and time >= '2018'"),
    ],
)
def test_a_target_is_its_condition_however_it_is_written(one: str, other: str) -> None:
    found = parse_target(f"example.org where {one}")
    assert found == parse_target(f"example.org WHERE {other}")
    assert parse_target(found.definition) == found and found.slug.startswith("example.org_where.")
    assert found.slug != parse_target(f"example.org where {one} and tld=org").slug
    assert found.version != parse_target("example.org").version


def test_a_set_has_one_condition_for_all_its_members() -> None:
    found = parse_target("set:x = example.org, url:http://a.org/b where status=200")
    assert found.definition == "set:x = example.org, url:http://a.org/b where status=200"
    assert parse_target(found.definition) == found and found.slug == parse_slug("set:x where 200=status")
    assert parse_slug("set:x = a.org where status=200") == found.slug != parse_slug("set:x")
    assert not any(member.where for member in found.members)


def test_subsets_that_a_condition_names() -> None:
    assert parse_condition("subset=robotstxt and status=200").subsets == ("robotstxt",)
    assert parse_condition("not subset=warc and path like /a").subsets == ("crawldiagnostics", "robotstxt")
    assert parse_condition("status=200").subsets == ()


def test_conditions_that_are_said_in_parts() -> None:
    said = build_condition(
        from_time="2018", to_time="2018-05", status="200,3xx", mime="text/html, image/*", language="deu"
    )
    assert said == "lang=deu and mime in (image/*, text/html) and status in (200, 3xx) and time<=2018-05 and time>=2018"
    assert build_condition() == ""
    with pytest.raises(UserInputError, match="so nothing can match"):
        build_condition(from_time="2019", to_time="2018")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mim=text/html", r"at 'mim=text/html': there is no column mim \(did you mean mime\?\)"),
        ("status=200 and stat=1", r"at 'stat=1': there is no column stat \(did you mean status\?\)"),
        ("time=yesterday", "at 'yesterday': .*2018-05-01"),
        ("time>2018-13", "at '2018-13': .*2018-05-01"),
        ("time = status", "time can only be compared with a value"),
        ("status='OK'", "at \"'OK'\": 'OK' is not an HTTP status"),
        ("status<3xx", "at '3xx': "),
        ("mime=html", "at 'html': .*text/html"),
        ("mime='text/html(|x'", "text/html"),
        ("lang=en", "at 'en': .*639-3"),
        ("lang>eng", "a page may have several languages"),
        ("lang like '%e%'", "cannot be compared with LIKE"),
        ("subset=wet", "there are warc, crawldiagnostics"),
        ("path=5", "put quotes around the value"),
        ("mime", "is no condition"),
        ("", "is missing"),
        ("status=200; DROP TABLE captures", "at '; DROP TABLE captures': cannot be read"),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        parse_target(f"example.org where {text}")
