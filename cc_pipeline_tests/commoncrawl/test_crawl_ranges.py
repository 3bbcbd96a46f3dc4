"""What ``all``, years and ranges of crawls mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cc_pipeline.commoncrawl.crawls import (
    Crawl,
    estimate_capture_span,
    is_selection,
    measure_gap,
    parse_collinfo,
    select,
)
from cc_pipeline.errors import UserInputError

IDS = (
    "CC-MAIN-2024-22",
    "CC-MAIN-2024-10",
    "CC-MAIN-2019-04",
    "CC-MAIN-2018-51",
    "CC-MAIN-2018-05",
    "CC-MAIN-2013-20",
    "CC-MAIN-2012",
    "CC-MAIN-2009-2010",
    "CC-MAIN-2008-2009",
)
#: Listed as the index server lists them: the ARC crawls with the times of their captures.
TIMES = {
    "CC-MAIN-2012": ("2012-01-27T09:34:02", "2012-06-20T23:15:24"),
    "CC-MAIN-2009-2010": ("2009-09-18T00:00:00", "2010-10-01T00:00:00"),
    "CC-MAIN-2008-2009": ("2008-05-09T00:00:00", "2009-03-01T00:00:00"),
}


@pytest.fixture
def listed() -> tuple[Crawl, ...]:
    entries = [{"id": one, **dict(zip(("from", "to"), TIMES.get(one, ()), strict=False))} for one in IDS]
    return parse_collinfo(json.dumps(entries).encode())


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("all", IDS),
        ("2018", ("CC-MAIN-2018-51", "CC-MAIN-2018-05")),
        ("2018..2024", IDS[:5]),
        ("..2012", IDS[6:]),
        ("2009..2010", IDS[7:]),
        ("2010", ("CC-MAIN-2009-2010",)),
        ("2012..2013", ("CC-MAIN-2013-20", "CC-MAIN-2012")),
        ("CC-MAIN-2018-05..CC-MAIN-2019-04", IDS[2:5]),
        ("2018-51..2024-10", IDS[1:4]),
        (" 2018-51 .. 2024 ", IDS[:4]),
    ],
)
def test_a_selection_means_its_crawls_newest_first(
    listed: tuple[Crawl, ...], text: str, meant: tuple[str, ...]
) -> None:
    assert is_selection(text, listed)
    assert tuple(crawl.id for crawl in select(text, listed)) == meant


@pytest.mark.parametrize("text", ["2012", "2018-05", "CC-MAIN-2018-05", "newest"])
def test_what_names_one_crawl_is_none(listed: tuple[Crawl, ...], text: str) -> None:
    assert not is_selection(text, listed)


@pytest.mark.parametrize(("text", "crawl"), [("newest", IDS[0]), ("2012", "CC-MAIN-2012"), ("2018-51", IDS[3])])
def test_a_word_or_an_id_selects_one_crawl(listed: tuple[Crawl, ...], text: str, crawl: str) -> None:
    assert [crawl.id for crawl in select(text, listed)] == [crawl]
    with pytest.raises(UserInputError, match=r"this home has no crawl CC-MAIN-2019-05; it has .* and \d+ older"):
        select("CC-MAIN-2019-05", listed * 2, "this home")


@pytest.mark.parametrize("text", ["2024..2018", "2018-06..2024", "2015", "2030..", "a..b"])
def test_what_means_nothing_is_refused(listed: tuple[Crawl, ...], text: str) -> None:
    with pytest.raises(UserInputError):
        select(text, listed)


def test_how_far_a_time_is_from_a_crawl(listed: tuple[Crawl, ...]) -> None:
    may = (datetime(2012, 5, 1, tzinfo=UTC), datetime(2012, 6, 1, tzinfo=UTC))
    spans = {crawl.id: estimate_capture_span(crawl) for crawl in listed}
    assert measure_gap(may, spans["CC-MAIN-2012"]) == timedelta(0)
    nearest = sorted(spans, key=lambda one: measure_gap(may, spans[one]))
    assert nearest[:2] == ["CC-MAIN-2012", "CC-MAIN-2013-20"]
    assert estimate_capture_span(Crawl("CC-MAIN-2009-2010", "", None, None, None))[1].year == 2011
