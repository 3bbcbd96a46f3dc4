"""Conditions on captures, and what an index cannot say about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.filters import Filters
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.errors import UserInputError


def captures(*rows: dict[str, Any], crawl: str = "CC-MAIN-2024-22") -> pa.Table:
    fixed = {"crawl": crawl, "subset": "warc", "archive_format": "warc", "located_by": "parquet"}
    return pa.Table.from_pylist([{**fixed, **row} for row in rows], schema=CAPTURE_SCHEMA)


def urls(table: pa.Table) -> list[str]:
    found: list[str] = table["url"].to_pylist()
    return found


def test_nothing_asked_keeps_everything() -> None:
    table = captures({"url": "a"})
    assert Filters.parse() == Filters()
    assert Filters().apply(table) == (table, ())


def test_time_periods_include_what_they_name() -> None:
    table = captures(
        {"url": "2017", "fetch_time": datetime(2017, 12, 31, 23, 59, 59, tzinfo=UTC)},
        {"url": "2018", "fetch_time": datetime(2018, 1, 1, tzinfo=UTC)},
        {"url": "last", "fetch_time": datetime(2018, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)},
        {"url": "2019", "fetch_time": datetime(2019, 1, 1, tzinfo=UTC)},
    )
    kept, unanswered = Filters.parse(from_time="2018", to_time="2018").apply(table)
    assert urls(kept) == ["2018", "last"] and unanswered == ()
    assert urls(Filters.parse(to_time="20171231").apply(table)[0]) == ["2017"]
    assert urls(Filters.parse(from_time="2018-12-31T23:59").apply(table)[0]) == ["last", "2019"]


def test_status_and_mime() -> None:
    table = captures(
        {"url": "ok", "fetch_status": 200, "content_mime_detected": "text/html", "content_mime_type": "image/png"},
        {"url": "moved", "fetch_status": 301, "content_mime_type": "TEXT/HTML; charset=utf-8"},
        {"url": "gone", "fetch_status": 404, "content_mime_detected": "image/gif"},
    )
    assert urls(Filters.parse(status="200,4xx").apply(table)[0]) == ["ok", "gone"]
    assert urls(Filters.parse(mime="text/html").apply(table)[0]) == ["ok", "moved"]
    assert urls(Filters.parse(mime="image/*").apply(table)[0]) == ["gone"]
    assert urls(Filters.parse(status="3xx", mime="text/*").apply(table)[0]) == ["moved"]


def test_what_the_index_does_not_say_is_kept_and_reported() -> None:
    table = captures(
        {"url": "a"}, {"url": "b", "fetch_status": -1}, {"url": "c", "fetch_status": 404}, crawl="CC-MAIN-2012"
    )
    kept, unanswered = Filters.parse(status="200", mime="text/html", language="eng", from_time="2012").apply(table)
    assert urls(kept) == ["a", "b"]
    assert unanswered == ("time", "status", "mime", "language")


def test_a_missing_language_means_none_only_where_languages_are_detected() -> None:
    rows = [{"url": "en", "content_languages": "deu,eng"}, {"url": "de", "content_languages": "deu"}, {"url": "pdf"}]
    wanted = Filters.parse(language="eng")
    kept, unanswered = wanted.apply(captures(*rows))
    assert urls(kept) == ["en"] and unanswered == ()
    kept, unanswered = wanted.apply(captures(*rows, crawl="CC-MAIN-2018-05"))
    assert urls(kept) == ["en", "pdf"] and unanswered == ("language",)
    assert urls(wanted.apply(captures(*rows, crawl="OTHER"))[0]) == ["en"]
    assert wanted.apply(captures()) == (captures(), ())
    silent = captures({"url": "a"}, {"url": "b"})  # as from a B-tree of a new crawl
    assert wanted.apply(silent) == (silent, ("language",))


def test_a_dropped_row_leaves_nothing_unanswered() -> None:
    table = captures({"url": "a", "fetch_status": 404}, {"url": "b", "fetch_status": 200, "content_mime_type": "a/b"})
    assert Filters.parse(status="200", mime="a/b").apply(table)[1] == ()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"from_time": "yesterday"}, "2018-05-01"),
        ({"to_time": "2018-13"}, "2018-05-01"),
        ({"from_time": "2019", "to_time": "2018"}, "so nothing can match"),
        ({"status": "OK"}, "3xx"),
        ({"status": "20"}, "3xx"),
        ({"mime": "html"}, "text/html"),
        ({"mime": "text/html(|x"}, "text/html"),
        ({"language": "en"}, "639-3"),
    ],
)
def test_refusals(asked: dict[str, str], said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        Filters.parse(**asked)
