"""Dates as pages and feeds write them: right or absent, never shifted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.dates import parse_date, read_date

NOON = "2024-05-18 12:00:00"


def _read(text: str) -> tuple[str | None, str | None]:
    found = read_date(text)
    assert found is not None
    if found.moment is None:
        return None, found.precision
    assert found.moment.tzinfo is UTC
    return found.moment.isoformat(" ").removesuffix("+00:00"), found.precision


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        # RFC 822 and its old zones
        ("Thu, 01 Jan 2004 19:48:21 GMT", "2004-01-01 19:48:21"),
        ("01 Jan 04 19:48 EST", "2004-01-02 00:48:00"),
        ("Thu,  1 Jan 2004 19:48:21 CEST", "2004-01-01 17:48:21"),
        ("Sat, 18 May 2024 04:00:00 PST", NOON),
        ("Sat, 18 May 2024 04:00 AM PST", NOON),
        ("Sat, 18 May 2024 05:00 PM +0500", NOON),
        ("Sat, 18 May 2024 12:00:00 -0000", NOON),
        ("Sat, 18 May 2024 17:30:00 +5:30", NOON),
        ("Saturday, 18-May-24 12:00:00 GMT", NOON),
        ("Sat May 18 14:00:00 CEST 2024", NOON),
        ("Sat May 18 2024 14:00:00 GMT+0200 (Central European Summer Time)", NOON),
        # a generic zone goes with the season
        ("Sat, 18 May 2024 08:00:00 ET", NOON),
        ("Thu, 18 Jan 2024 07:00:00 ET", "2024-01-18 12:00:00"),
        ("Sat, 18 May 2013 16:00:00 MSK", "2013-05-18 12:00:00"),
        # ISO 8601
        ("2003-12-31T10:14:55-08:00", "2003-12-31 18:14:55"),
        ("2003-12-31T10:14:55.5Z", "2003-12-31 10:14:55.500000"),
        ("2003-12-31T24:00:00Z", "2004-01-01 00:00:00"),
        ("20240518T120000Z", NOON),
        ("20240518T1730+0530", NOON),
        ("2024-05-18T12Z", NOON),
        ("2024-05-18 14:00:00,000000000+02", NOON),
        ("2024-05-18T14:00:00+02:00[Europe/Berlin]", NOON),
        ("2024-05-18 12:00:00 +0000 UTC", NOON),
        ("2024-05-18T04:00:00 PST", NOON),
        # Unix time
        ("1716033600", NOON),
        ("1716033600000", NOON),
    ],
)
def test_a_zone_that_is_said_is_honoured(written: str, moment: str) -> None:
    assert _read(written) == (moment, "moment")


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("May 18, 2024 05:05 PM", "2024-05-18 17:05:00"),
        ("05:05 PM, May 18, 2024", "2024-05-18 17:05:00"),
        ("Sat, 18 May 2024 5:05 p.m.", "2024-05-18 17:05:00"),
        ("18 May 2024 at 5 pm", "2024-05-18 17:00:00"),
        ("2024-05-18 05:05:00 PM", "2024-05-18 17:05:00"),
        ("18.05.2024 17:05", "2024-05-18 17:05:00"),
        ("05/18/2024 12:05 AM", "2024-05-18 00:05:00"),
        ("2024-05-18T17:05:00", "2024-05-18 17:05:00"),
        ("20240518170500", "2024-05-18 17:05:00"),
        # zones of several places, or of none
        ("Sat, 18 May 2024 17:05:00 IST", "2024-05-18 17:05:00"),
        ("Sat May 18 17:05:00 CST 2024", "2024-05-18 17:05:00"),
        ("Sat, 18 May 2024 17:05:00 +9999", "2024-05-18 17:05:00"),
        # twice on that day's clocks
        ("2024-11-03 01:30 ET", "2024-11-03 01:30:00"),
    ],
)
def test_a_time_without_a_zone_stays_as_it_is_on_the_clock_and_says_so(written: str, moment: str) -> None:
    assert _read(written) == (moment, "local")


@pytest.mark.parametrize(
    ("written", "moment", "precision"),
    [
        ("20031231", "2003-12-31", "day"),
        ("2024-138", "2024-05-17", "day"),
        ("2024W203", "2024-05-15", "day"),
        ("18 May 99", "1999-05-18", "day"),
        ("1st of May, 2024", "2024-05-01", "day"),
        ("Sept. 5, 2024", "2024-09-05", "day"),
        ("18/05/2024", "2024-05-18", "day"),
        ("05/05/2024", "2024-05-05", "day"),
        ("2024\u5e745\u670818\u65e5", "2024-05-18", "day"),
        # the word may be the afternoon of another language
        ("Sat, 18 May 2024 05:05 CH", "2024-05-18", "day"),
        ("2024-W20", "2024-05-13", "week"),
        ("May 2024", "2024-05-01", "month"),
        ("2024-05", "2024-05-01", "month"),
        ("2003", "2003-01-01", "year"),
    ],
)
def test_what_is_less_exact_says_so(written: str, moment: str, precision: str) -> None:
    assert _read(written) == (moment + " 00:00:00", precision)


@pytest.mark.parametrize(
    "written",
    [
        "yesterday",
        "0000-00-00T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "-0001-11-30T00:00:00+00:00",
        "Wed, 30 Nov -0001 00:00:00 +0000",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-10:00",
        "Thu, 99 Jan 2004 19:48:21 GMT",
        "30 Feb 2024",
        "2023-02-29",
        "2024-13-05",
        "2024-05-18T25:00:00Z",
        "2024-05-18T10:61:00Z",
        "Sat, 18 May 2024 13:05 AM",
        "05/06/2024",
        "05/06/24",
        "18 May 60",
        "2024051810",
        "202405",
        "18 mai 2024",
        "mar., 18 jun 2024",
        "18 de mayo de 2024",
        "2024-05-18 until 2024-05-20",
        "May 18",
        "10:00",
        "x" * 5000,
    ],
)
def test_what_is_no_date_or_might_be_several_is_absent_and_its_text_kept(written: str) -> None:
    found = read_date(written)
    assert found is not None
    assert (found.moment, found.precision) == (None, None)
    assert written.startswith(found.text)
    assert len(found.text) <= 100
    assert parse_date(written) is None


def test_no_text_is_no_date() -> None:
    assert read_date(None) is read_date(" \n") is parse_date("") is None


@given(st.text(alphabet="0123456789:-+/., TZapmPMGUCESayMSJunr\u5e74\u6708\u65e5", max_size=40) | st.text(max_size=40))
def test_any_text_gives_a_date_or_none(text: str) -> None:
    found = read_date(text)
    if found is not None and found.moment is not None:
        assert 999 <= found.moment.year <= 2200
        assert found.precision


@given(st.integers(631_152_000, 3_786_912_000), st.integers(-12 * 4, 14 * 4))
def test_every_moment_is_read_as_it_was_written(seconds: int, quarters: int) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    sign, minutes = "-" if quarters < 0 else "+", abs(quarters) * 15
    zone = f"{sign}{minutes // 60:02d}{minutes % 60:02d}"
    expected = datetime.strptime(f"{moment:%Y-%m-%dT%H:%M:%S}{zone}", "%Y-%m-%dT%H:%M:%S%z")
    for form in ("%Y-%m-%dT%H:%M:%S", "%a, %d %b %Y %H:%M:%S ", "%A, %B %d, %Y at %I:%M:%S %p ", "%d.%m.%Y %H:%M:%S "):
        assert parse_date(moment.strftime(form) + zone) == expected, form
