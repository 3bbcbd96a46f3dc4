"""Conditions on captures against DuckDB, and what an index does not tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.filters import OPEN, YES, in_words, parse_condition
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.target_text import parse_target, slug_meant
from cc_pipeline.errors import UserInputError


def captures(*rows: dict[str, Any], crawl: str = "CC-MAIN-2024-22", by: str = "parquet") -> pa.Table:
    fixed = {"crawl": crawl, "subset": "warc", "archive_format": "warc", "located_by": by}
    return pa.Table.from_pylist([{**fixed, **row} for row in rows], schema=CAPTURE_SCHEMA)


def meant(where: str, table: pa.Table) -> list[tuple[str, str]]:
    kept = parse_condition(where).keep(table)
    return list(zip(kept["url"].to_pylist(), kept["meant"].to_pylist(), strict=True))


def _rows() -> Iterator[dict[str, Any]]:
    urls = (
        "http://a.example.org/",
        "https://example.ch/blog/x_y?q=1",
        "http://1.2.3.4/Blog",
        "http://b.example.org/a'b",
    )
    types = (None, "text/html", "application/pdf", "Image/PNG; q=1")
    for number in range(240):
        url = urls[number % 4]
        named = {key: value for key, value in host_columns(url).items() if value is not None}
        yield {
            **named,
            "url": url,
            "domain": named.get("url_host_registered_domain"),
            "subset": ("warc", "warc", "robotstxt")[number % 3],
            "fetch_status": (200, 404, -1, None, 301)[number % 5],
            "fetch_time": datetime(2017 + number % 3, 1 + number % 12, 1, tzinfo=UTC) if number % 7 else None,
            "content_mime_detected": types[number % 4 - 1],
            "content_mime_type": types[number // 4 % 4],
            "content_languages": (None, "deu", "eng,deu", "fra")[number // 5 % 4],
            "warc_record_length": number * 100,
        }  # fmt: skip


TABLE = captures(*_rows())
#: The same columns in DuckDB's own words.
_ORACLE = """
CREATE TABLE captures AS SELECT
    lower(regexp_replace(coalesce(content_mime_detected, content_mime_type), '[ ;].*', '')) AS mime,
    lower(regexp_replace(content_mime_type, '[ ;].*', '')) AS mime_claimed,
    coalesce(string_split(content_languages, ','),
        CASE WHEN content_mime_detected IS DISTINCT FROM 'application/pdf' THEN [] END) AS lang,
    CASE WHEN fetch_status > 0 THEN fetch_status END AS status, fetch_time AT TIME ZONE 'UTC' AS time, url,
    url_host_name AS host, coalesce(domain, '') AS domain, coalesce(url_host_tld, '') AS tld, url_path AS path,
    coalesce(url_query, '') AS query, subset, warc_record_length AS length
FROM given
"""


@pytest.fixture(scope="module")
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        found.register("given", TABLE)
        found.execute(_ORACLE)
        yield found


_SIGNS = ("=", "!=", "<", "<=", ">", ">=")
_TYPES = ("text/html", "application/pdf", "IMAGE/png")
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
)
CONDITIONS = st.recursive(
    st.sampled_from(_TERMS),
    lambda inner: st.one_of(
        st.builds(lambda a, b: (f"({a[0]}) and {b[0]}", f"(({a[1]}) AND ({b[1]}))"), inner, inner),
        st.builds(lambda a, b: (f"(({a[0]}) or ({b[0]}))", f"(({a[1]}) OR ({b[1]}))"), inner, inner),
        st.builds(lambda a: (f"not ({a[0]})", f"(NOT ({a[1]}))"), inner),
    ),
    max_leaves=6,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(CONDITIONS)
def test_captures_are_those_of_sql(session: duckdb.DuckDBPyConnection, said: tuple[str, str]) -> None:
    ours, theirs = said
    truth = [row[0] for row in session.execute(f"SELECT ({theirs}) FROM captures").fetchall()]
    condition = parse_condition(ours)
    assert condition.truth(TABLE).to_pylist() == truth
    # the normal form says the same, and what is left of it is open
    assert parse_condition(condition.text) == condition
    assert parse_target(f"example.org where {ours}").where == condition.text
    kept = condition.keep(TABLE)
    assert pc.equal(kept["meant"], YES).to_pylist() == [so is True for so in truth if so is not False]
    for text in set(kept["meant"].to_pylist()) - {YES}:
        rows = kept.filter(pc.equal(kept["meant"], text))
        assert parse_condition(text.removeprefix(OPEN)).truth(rows).null_count == rows.num_rows


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
    assert parse_target(found.definition) == found and found.slug == slug_meant("set:x where 200=status")
    assert slug_meant("set:x = a.org where status=200") == found.slug != slug_meant("set:x")
    assert not any(member.where for member in found.members)


def test_subsets_that_a_condition_names() -> None:
    assert parse_condition("subset=robotstxt and status=200").subsets == ("robotstxt",)
    assert parse_condition("not subset=warc and path like /a").subsets == ("crawldiagnostics", "robotstxt")
    assert parse_condition("status=200").subsets == ()


def test_conditions_that_are_said_in_parts() -> None:
    said = in_words(from_time="2018", to_time="2018-05", status="200,3xx", mime="text/html, image/*", language="deu")
    assert said == "lang=deu and mime in (image/*, text/html) and status in (200, 3xx) and time<=2018-05 and time>=2018"
    assert in_words() == ""
    with pytest.raises(UserInputError, match="so nothing can match"):
        in_words(from_time="2019", to_time="2018")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mim=text/html", "at 'mim=text/html': did you mean mime"),
        ("status=200 and stat=1", "at 'stat=1': did you mean status"),
        ("time=yesterday", "at 'yesterday': .*2018-05-01"),
        ("time>2018-13", "at '2018-13': .*2018-05-01"),
        ("time = status", "time is compared with a value"),
        ("status='OK'", "at \"'OK'\": 'OK' is not an HTTP status"),
        ("status<3xx", "at '3xx': "),
        ("mime=html", "at 'html': .*text/html"),
        ("mime='text/html(|x'", "text/html"),
        ("lang=en", "at 'en': .*639-3"),
        ("lang>eng", "a page may have several languages"),
        ("lang like '%e%'", "is compared with ="),
        ("subset=wet", "there are warc, crawldiagnostics"),
        ("path=5", "put quotes around it"),
        ("mime", "is no condition"),
        ("", "is missing"),
        ("status=200; DROP TABLE captures", "at '; DROP TABLE captures': cannot be read"),
    ],
)
def test_refusals(text: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        parse_target(f"example.org where {text}")
