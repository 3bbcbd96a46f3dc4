"""Lists of crawls, good and bad; ids as people type them; what is known of single crawls."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cc_pipeline.commoncrawl.crawls import (
    Crawl,
    age,
    index_is_built,
    parse_collinfo,
    unlisted_crawl,
    validate_crawl_id,
)
from cc_pipeline.commoncrawl.paths import path_list_key, published_key
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline_tests.corpus import CORPUS, needs_corpus


def listing(*entries: object) -> bytes:
    return json.dumps(entries).encode()


@needs_corpus
def test_the_real_list_is_read_in_its_own_order() -> None:
    for line in (CORPUS / "cc_index/cdx_toolkit/test_cc/test_get_cc_endpoints.jsonl").read_text().splitlines():
        exchange = json.loads(line)
        if exchange["url"].endswith("/collinfo.json"):
            crawls = parse_collinfo(exchange["response_text"].encode())
            assert [crawl.id for crawl in crawls] == [entry["id"] for entry in json.loads(exchange["response_text"])]
            assert [crawl.id for crawl in crawls if crawl.era == "arc"] == [
                "CC-MAIN-2012",
                "CC-MAIN-2009-2010",
                "CC-MAIN-2008-2009",
            ]
            assert crawls[0].started == datetime(2025, 8, 2, 22, 9, 7, tzinfo=UTC)
            assert crawls[0].cdx_api == "https://index.commoncrawl.org/CC-MAIN-2025-33-index"
            break
    else:
        pytest.fail("the corpus has no recorded collinfo.json")


def test_unknown_fields_families_and_missing_times_are_no_matter() -> None:
    crawls = parse_collinfo(
        listing(
            {"id": "CC-SUPPLEMENTAL-2026-10", "size": 7},
            {"id": "CC-MAIN-2026-12", "from": "2026-03-20T00:00:00", "name": ""},
            {"id": "CC-MAIN-2026-08", "from": "2026-02-20T01:00:00+01:00", "to": "not a time"},
            {"id": "EOT"},
        )
    )
    assert [crawl.id for crawl in crawls] == ["CC-MAIN-2026-12", "CC-SUPPLEMENTAL-2026-10", "CC-MAIN-2026-08", "EOT"]
    assert crawls[2].started == datetime(2026, 2, 20, tzinfo=UTC) and crawls[2].ended is None
    assert crawls[0].name == "CC-MAIN-2026-12" and crawls[1].era == "columnar"


def test_good_entries_outlive_bad_ones() -> None:
    crawls = parse_collinfo(
        listing({"id": "CC-MAIN-2024-22"}, {"id": "../x"}, 7, {"name": "x"}, {"id": "CC-MAIN-2024-22"})
    )
    assert [crawl.id for crawl in crawls] == ["CC-MAIN-2024-22"]
    with pytest.raises(DataFault, match=r"the first of 3: has no usable id \('\.\./x'\)"):
        parse_collinfo(listing({"id": "../x"}, 7, {"name": "x"}))


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>SlowDown</html>", b"{}", b"[{}]", b"\xff\xfe\x00", b"[" * 100_000, b'{"id": 1}', b'[{"id": "a b"}]'],
)
def test_garbage_is_a_data_fault(data: bytes) -> None:
    with pytest.raises(DataFault) as fault:
        parse_collinfo(data, "the list")
    assert fault.value.source == "the list"


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "CC-MAIN-2024-22", "from": "9999-12-31T23:59:59-23:00"},
        {"id": "CC-MAIN-2024-22", "from": "0001-01-01T00:00:00"},
        {"id": "CC-MAIN-2024-22", "to": "2999-01-01T00:00:00"},
        {"id": "CC-MAIN-2024-22", "from": "2024-06-01T00:00:00", "to": "2024-05-01T00:00:00"},
        {"id": "CC-MAIN-9999-01"},
        {"id": "CC-MAIN-0000-01"},
        {"id": "CC-MAIN-2024-99"},
    ],
)
def test_years_in_which_no_crawl_can_be_are_faults_of_their_entry(entry: dict[str, str]) -> None:
    good = {"id": "CC-MAIN-2024-18", "from": "2024-04-12T00:00:00"}
    assert [crawl.id for crawl in parse_collinfo(json.dumps([entry, good]).encode())] == ["CC-MAIN-2024-18"]
    with pytest.raises(DataFault, match="has no usable entry; the first of 1: ") as fault:
        parse_collinfo(json.dumps([entry]).encode(), "c")
    assert (fault.value.kind, fault.value.source) == (DataKind.MALFORMED, "c")


@pytest.mark.parametrize(
    ("typed", "crawl"),
    [
        ("CC-MAIN-2024-22", "CC-MAIN-2024-22"),
        (" cc-main-2024-22 ", "CC-MAIN-2024-22"),
        ("2024-22", "CC-MAIN-2024-22"),
        ("2012", "CC-MAIN-2012"),
        ("2009-2010", "CC-MAIN-2009-2010"),
        ("CC-SUPPLEMENTAL-2026-10", "CC-SUPPLEMENTAL-2026-10"),
        ("EOT-2020", "EOT-2020"),
    ],
)
def test_ids(typed: str, crawl: str) -> None:
    assert validate_crawl_id(typed) == crawl


@pytest.mark.parametrize("typed", ["", "..", "a/b", "CC-MAIN-2024-22/..", "CC MAIN", "x" * 65, "CC-MAIN-2024-22|"])
def test_wrong_ids(typed: str) -> None:
    with pytest.raises(UserInputError, match="cc-pipeline crawls"):
        validate_crawl_id(typed)


def test_months_of_news_and_named_collections_are_crawls_that_no_list_has() -> None:
    month = unlisted_crawl("CC-NEWS-2026-12")
    assert month is not None and month.era == "built"
    assert month.started == datetime(2026, 12, 1, tzinfo=UTC)
    assert month.ended == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    named = unlisted_crawl("LOCAL-press")
    assert named is not None and named.era == "built" and named.started is None
    for other in ("CC-MAIN-2024-22", "CC-MAIN-2012", "CC-SUPPLEMENTAL-2026-10"):
        assert unlisted_crawl(other) is None and not index_is_built(other)
    # the last number of a month is no week
    assert age(Crawl("CC-NEWS-2026-05", "", None, None, None))[0] == datetime(2026, 5, 1, tzinfo=UTC)
    assert path_list_key("CC-NEWS-2026-05", "warc") == "crawl-data/CC-NEWS/2026/05/warc.paths.gz"
    assert published_key("CC-NEWS-2026-05") == path_list_key("CC-NEWS-2026-05", "warc")
    assert published_key("LOCAL-press") is None
    assert published_key("CC-MAIN-2024-22") == "crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz"


@pytest.mark.parametrize("typed", ["CC-NEWS-2026-13", "cc-news-2026-00", "CC-NEWS-2015-12", "CC-NEWS-2026", "CC-NEWS"])
def test_what_is_no_month_of_news(typed: str) -> None:
    with pytest.raises(UserInputError, match="CC-NEWS-2026-05"):
        validate_crawl_id(typed)
