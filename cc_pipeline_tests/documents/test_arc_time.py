"""Fetch times of crawl-002, whose archive files have Pacific time: two real records, and the rule for all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive import arc
from cc_pipeline.documents.arc_time import correct_fetch_time
from cc_pipeline.documents.page import PageInput
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.records.pages import page_of
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.pages import page

OF_002 = "crawl-002/2009/09/17/12/1253241189984_12.arc.gz"
OF_2012 = "parse-output/segment/1341690165636/1341785606830_6.arc.gz"
#: Moments between 2008 and 2010, to the second.
MOMENTS = st.integers(1_199_145_600, 1_293_753_600).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


def served_page(fetched: datetime | None, served: str | None, filename: str = OF_002) -> PageInput:
    headers = () if served is None else (("Server", "x"), ("Date", served))
    return page(fetch_time=fetched, warc_filename=filename, headers=headers)


@needs_corpus
@pytest.mark.parametrize(
    ("file", "at", "key", "fetched", "corrected"),
    [
        (
            "crawl-002_2009_09_17_12_1253241189984_12-4827319.arc.gz",
            158,
            OF_002,
            datetime(2009, 7, 4, 11, 38, 31, tzinfo=UTC),
            datetime(2009, 7, 4, 18, 38, 31, tzinfo=UTC),
        ),
        (
            "crawl-2012_1341690165636_1341785606830_6-0-4421.arc.gz",
            157,
            OF_2012,
            datetime(2012, 5, 24, 22, 16, 46, tzinfo=UTC),
            None,
        ),
    ],
    ids=["2009", "2012"],
)
def test_real_records(file: str, at: int, key: str, fetched: datetime, corrected: datetime | None) -> None:
    member = (CORPUS / "arc_legacy" / "commoncrawl" / file).read_bytes()[at:]
    record = arc.read_record(member, file, 0)
    assert record.fetch_time == fetched
    row = dict.fromkeys(("subset", "target", "content_digest", "domain", "condition_match", "url_surtkey"), "")
    row |= {"crawl": "x", "url": record.url, "fetch_time": record.fetch_time, "fetch_status": 200, "outcome": "fetched"}
    row |= {"warc_filename": key, "warc_record_offset": at, "warc_record_length": len(member), "archive_format": "arc"}
    made = page_of(({**row, "stored_file": file, "stored_offset": 0}, member))
    assert isinstance(made, PageInput)
    parsed = parse_page(made).metadata
    assert parsed["fetch_time_corrected"] == corrected
    assert parsed["attempt_time"] == fetched


@given(MOMENTS, st.integers(-1_700, 1_700))
def test_pacific_time_of_any_day_becomes_utc(moment: datetime, off: int) -> None:
    # the archive's clock: the same moment on the west coast, read as UTC; a server's clock is off by some minutes
    local = moment.astimezone(ZoneInfo("America/Los_Angeles")).replace(tzinfo=UTC)
    served = format_datetime(moment + timedelta(seconds=off), usegmt=True)
    assert correct_fetch_time(served_page(local, served)) == moment
    assert correct_fetch_time(served_page(local, served, OF_2012)) is None


@given(MOMENTS, st.integers(-200_000, 200_000))
def test_only_a_date_within_a_day_is_evidence(fetched: datetime, off: int) -> None:
    found = correct_fetch_time(served_page(fetched, format_datetime(fetched + timedelta(seconds=off), usegmt=True)))
    if abs(off) > 86_400:
        assert found is None
    else:
        assert found is not None
        assert (found - fetched) % timedelta(hours=1) == timedelta(0)
        assert abs(found - fetched - timedelta(seconds=off)) <= timedelta(minutes=30)


@pytest.mark.parametrize("served", [None, "", "yesterday", "0", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_without_a_date_nothing_is_said(served: str | None) -> None:
    assert correct_fetch_time(served_page(datetime(2009, 7, 4, tzinfo=UTC), served)) is None
    assert correct_fetch_time(served_page(None, "Sat, 04 Jul 2009 18:38:31 GMT")) is None


def test_a_time_beyond_the_last_year_is_not_known() -> None:
    """A page was lost with its text."""
    fetched = datetime(9999, 12, 31, 23, 20, tzinfo=UTC)
    assert correct_fetch_time(served_page(fetched, "Fri, 31 Dec 9999 23:59:59 GMT")) is None
