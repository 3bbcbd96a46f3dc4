"""Each way an answer can be wrong gets its own name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.stores.answer import Answer, Span
from cc_pipeline.transport.faults import (
    ENVIRONMENT_KINDS,
    FaultKind,
    Finding,
    Verified,
    handling_of,
    is_changed_etag,
    judge_head,
    judge_part_of_whole,
    judge_range,
    judge_status,
    judge_whole,
    range_fault,
    retry_after,
)
from cc_pipeline_tests.faultbodies import error_xml

SPAN = Span(100, 50)
GOOD = {"content-range": "bytes 100-149/1000", "etag": '"a-15"'}
BODY = bytes(50)
THROTTLE_CODES = ("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded")


def kind(status: int, headers: dict[str, str], body: bytes, span: Span = SPAN, etag: str | None = None) -> FaultKind:
    found = judge_range(span, Answer(status, headers, body), etag)
    assert isinstance(found, Finding), found
    return found.kind


def test_a_range_may_end_with_its_object_where_that_is_enough() -> None:
    end = Answer(206, {"content-range": "bytes 100-119/120"}, bytes(20))
    assert judge_range(SPAN, end, may_be_short=True) == Verified(100, 120, None)
    assert kind(206, {"content-range": "bytes 100-119/120"}, bytes(20)) is FaultKind.RANGE_NOT_SATISFIABLE


def test_the_range_asked_for_is_verified() -> None:
    assert judge_range(SPAN, Answer(206, GOOD, BODY), '"a-15"') == Verified(100, 1000, '"a-15"')
    # the headers of a real answer of Common Crawl's host, which has no Accept-Ranges
    headers = {
        "content-range": "bytes 34323482-34324700/952861306",
        "etag": '"29d92fa93d494ff220dff1273f63ce32-15"',
        "x-cache": "RefreshHit from cloudfront",
    }
    found = judge_range(Span(34323482, 1219), Answer(206, headers, bytes(1219)))
    assert found == Verified(34323482, 952861306, '"29d92fa93d494ff220dff1273f63ce32-15"')


@pytest.mark.parametrize(
    ("length", "content_range", "body", "offset"),
    [(50, "bytes 950-999/1000", 50, 950), (5000, "bytes 0-999/1000", 1000, 0), (1000, "bytes 0-999/1000", 1000, 0)],
)
def test_a_suffix_takes_its_place_and_size_from_content_range(
    length: int, content_range: str, body: int, offset: int
) -> None:
    found = judge_range(Span(None, length), Answer(206, {"content-range": content_range}, bytes(body)))
    assert found == Verified(offset, 1000, None)


def test_a_place_need_not_say_how_long_the_object_is() -> None:
    told = {"content-range": "bytes 100-149/*"}
    assert judge_range(SPAN, Answer(206, told, BODY)) == Verified(100, None, None)
    assert judge_range(SPAN, Answer(206, told, BODY), length=1000) == Verified(100, 1000, None), "who asked knows it"
    # a suffix ends where the object does
    end, all_of_it = {"content-range": "bytes 950-999/*"}, {"content-range": "bytes 0-49/*"}
    assert judge_range(Span(None, 50), Answer(206, end, BODY)) == Verified(950, 1000, None)
    assert judge_range(Span(None, 900), Answer(206, all_of_it, BODY), length=50) == Verified(0, 50, None)
    for span, head, length, expected in (
        (Span(None, 60), end, None, FaultKind.WRONG_RANGE),
        # perhaps the first bytes of more
        (Span(None, 50), all_of_it, None, FaultKind.WRONG_RANGE),
        (Span(None, 900), all_of_it, None, FaultKind.WRONG_RANGE),
        (Span(None, 40), all_of_it, None, FaultKind.WRONG_RANGE),
        # who takes a suffix for the first bytes says the same
        (Span(None, 50), all_of_it, None, FaultKind.WRONG_RANGE),
        (Span(None, 50), all_of_it, 1000, FaultKind.WRONG_RANGE),
        (Span(None, 50), end, 1001, FaultKind.CHANGED_OBJECT),
    ):
        found = judge_range(span, Answer(206, head, BODY), length=length)
        assert isinstance(found, Finding)
        assert found.kind is expected


def test_weak_and_strong_etags_are_equal_and_none_shows_nothing() -> None:
    assert judge_range(SPAN, Answer(206, GOOD, BODY), 'W/"a-15"') == Verified(100, 1000, '"a-15"')
    assert kind(206, GOOD, BODY, etag='"b-15"') is FaultKind.CHANGED_OBJECT
    assert is_changed_etag('"b"', '"a"') and is_changed_etag('"b"', None)
    assert not is_changed_etag(None, '"a"') and not is_changed_etag('W/"a"', '"a"')


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected"),
    [
        (200, {}, BODY, FaultKind.WHOLE_OBJECT),
        (200, {}, error_xml("SlowDown"), FaultKind.ERROR_DOCUMENT),
        (403, {}, error_xml("AccessDenied"), FaultKind.FORBIDDEN),
        (401, {}, b"", FaultKind.UNAUTHORIZED),
        (403, {}, error_xml("SignatureDoesNotMatch"), FaultKind.UNAUTHORIZED),
        (400, {}, error_xml("ExpiredToken"), FaultKind.UNAUTHORIZED),
        *((400, {}, error_xml(code), FaultKind.THROTTLED) for code in THROTTLE_CODES),
        (200, {}, b"x" + error_xml("SlowDown"), FaultKind.WHOLE_OBJECT),
        (300, {}, b"", FaultKind.REDIRECTED),
        (200, {}, b"<html>sign in", FaultKind.LOGIN_PAGE),
        (403, {}, error_xml("SlowDown"), FaultKind.THROTTLED),
        (404, {}, error_xml("NoSuchKey"), FaultKind.NOT_FOUND),
        (410, {}, b"", FaultKind.NOT_FOUND),
        (416, {"content-range": "bytes */10"}, b"", FaultKind.RANGE_NOT_SATISFIABLE),
        (429, {}, b"", FaultKind.THROTTLED),
        (503, {}, error_xml("SlowDown"), FaultKind.THROTTLED),
        (500, {}, b"", FaultKind.SERVER_ERROR),
        (502, {}, b"<html>", FaultKind.SERVER_ERROR),
        (408, {}, b"", FaultKind.SERVER_ERROR),
        (400, {}, b"", FaultKind.CLIENT_ERROR),
        (301, {"location": "https://elsewhere"}, b"", FaultKind.REDIRECTED),
        (206, {}, BODY, FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 101-150/1000"}, BODY, FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 100-148/*"}, BODY, FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 101-150/*"}, BODY, FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 100-149/*"}, bytes(49), FaultKind.SHORT_BODY),
        (206, {"content-range": "bytes 149-100/1000"}, BODY, FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 100-99/1000"}, b"", FaultKind.WRONG_RANGE),
        (206, {"content-range": "bytes 100-149/120"}, BODY, FaultKind.WRONG_RANGE),
        (206, GOOD, bytes(49), FaultKind.SHORT_BODY),
        (206, GOOD, bytes(51), FaultKind.LONG_BODY),
        (206, GOOD, b"", FaultKind.EMPTY_BODY),
    ],
)
def test_each_wrong_answer_has_its_name(status: int, headers: dict[str, str], body: bytes, expected: FaultKind) -> None:
    assert kind(status, headers, body) is expected


def test_what_is_kept_of_an_answer_has_a_bound() -> None:
    span = Span(0, 5)
    head = {"content-range": "bytes 0-4/100", "etag": "e" * 60_000}
    assert judge_range(span, Answer(206, head, b"hello")) == Verified(0, 100, None)
    assert judge_range(span, Answer(206, head, b"hello"), etag='"mine"') == Verified(0, 100, None)
    found = judge_range(span, Answer(416, {"content-range": "bytes */" + "9" * 60_000}, b""))
    assert isinstance(found, Finding)
    assert len(found.detail) < 300
    # no table holds such a number
    for total, kind in ((2**63 - 1, None), (2**63, FaultKind.WRONG_RANGE), (10**19 - 1, FaultKind.WRONG_RANGE)):
        found = judge_range(
            Span(None, 5), Answer(206, {"content-range": f"bytes {total - 5}-{total - 1}/{total}"}, b"hello")
        )
        assert (found.kind if isinstance(found, Finding) else None) is kind


def test_whole_objects() -> None:
    assert judge_whole(100, Answer(200, {"content-length": "5", "etag": '"e"'}, b"12345")) == Verified(0, 5, '"e"')
    assert judge_whole(100, Answer(200, {}, b"12345")) == Verified(0, 5, None)
    assert judge_whole(100, Answer(200, {}, bytes(100))) == Verified(0, 100, None)
    for status, headers, body, expected in (
        (200, {}, bytes(101), FaultKind.LONG_BODY),
        (200, {"content-length": "9"}, b"12345", FaultKind.SHORT_BODY),
        (200, {}, error_xml("InternalError"), FaultKind.ERROR_DOCUMENT),
        (404, {}, b"", FaultKind.NOT_FOUND),
    ):
        found = judge_whole(100, Answer(status, headers, body))
        assert isinstance(found, Finding)
        assert found.kind is expected


def test_a_range_is_taken_out_of_the_object_that_was_asked_for() -> None:
    headers = {"content-length": "1000", "etag": '"e"'}

    def judge(status: int = 200, headers: dict[str, str] = headers, body: bytes = BODY, **known: Any) -> object:
        expected = {"etag": None, "total": None} | known
        found = judge_part_of_whole(Answer(status, headers, body), 100, 50, **expected)
        return found.kind if isinstance(found, Finding) else found

    assert judge() == judge(etag='W/"e"', total=1000) == Verified(100, 1000, '"e"')
    assert judge(headers={}) == Verified(100, None, None)
    assert judge(headers={}, total=150) == Verified(100, 150, None)
    assert judge(headers={}, total=149) is FaultKind.RANGE_NOT_SATISFIABLE
    assert judge(headers={"content-length": "149"}) is FaultKind.RANGE_NOT_SATISFIABLE
    assert judge(total=999) is judge(etag='"f"') is FaultKind.CHANGED_OBJECT
    assert judge(status=404) is FaultKind.NOT_FOUND
    assert judge(body=bytes(49)) is FaultKind.SHORT_BODY
    assert judge(body=error_xml("SlowDown")) is FaultKind.ERROR_DOCUMENT


def test_a_redirect_is_told_without_what_lets_somebody_in() -> None:
    told = judge_status(302, {"location": "https://me:pw@cdn.example/x?Signature=s3cret"}, b"").detail
    assert "cdn.example/x" in told and "pw" not in told and "s3cret" not in told
    assert "'http://cdn.example/x'" in judge_status(302, {"location": "//me:pw@cdn.example/x?s3cret"}, b"").detail


def test_a_head_says_that_there_is_an_object() -> None:
    assert judge_head(Answer(200, {"etag": '"e"'}, b"")) == Verified(0, 0, '"e"')
    missing = judge_head(Answer(404, {}, b""))
    assert isinstance(missing, Finding) and missing.kind is FaultKind.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "headers", "body", "is_refusal"),
    [
        (429, {}, b"", True),
        (403, {}, b"", True),
        (502, {}, b"", True),
        (504, {}, b"", True),
        (500, {}, b"", False),
        (500, {"retry-after": "2"}, b"", True),
        (404, {}, b"", False),
        (401, {}, b"", False),
        (200, {}, error_xml("SlowDown"), True),
        (200, {}, error_xml("ServiceUnavailable"), True),
        (200, {}, error_xml("InternalError"), True),
        (200, {}, error_xml("NoSuchKey"), False),
        (200, {}, b"<!DOCTYPE html>sign in", False),
    ],
)
def test_refusals_may_be_those_of_the_host(status: int, headers: dict[str, str], body: bytes, is_refusal: bool) -> None:
    found = judge_range(SPAN, Answer(status, headers, body))
    assert isinstance(found, Finding)
    assert (found.is_refusal, found.final, found.retry_after) == (is_refusal, False, 2.0 if headers else None)


NOON = "Wed, 21 Oct 2026 12:00:00 GMT"
#: A header ``Retry-After``, the date of the answer, and the seconds.
WAITS = [
    ("5", NOON, 5.0),
    ("0", NOON, 0.0),
    ("99999999", NOON, 3600.0),
    ("9" * 10, NOON, None),
    ("soon", NOON, None),
    ("-1", NOON, None),
    ("٣", NOON, 3.0),
    ("Wed, 21 Oct 2026 12:00:30 GMT", NOON, 30.0),
    ("Wednesday, 21-Oct-26 12:00:30 GMT", NOON, 30.0),
    ("Wed Oct 21 12:00:30 2026", NOON, 30.0),
    ("Wed, 21 Oct 2026 14:00:30 +0200", NOON, 30.0),
    ("Wed, 21 Oct 2026 11:00:00 GMT", NOON, 0.0),
    ("Wed, 99 Oct 2026 12:00:00 GMT", NOON, None),
    ("Wed, 21 Oct 99999999 12:00:00 GMT", NOON, None),
    ("Wed, 21 Oct 2026 12:00:30 GMT" + " " * 100 + "x", NOON, None),
    # by our clock
    ("Wed, 21 Oct 2015 12:00:00 GMT", "yesterday", 0.0),
    ("Fri, 21 Oct 2999 12:00:00 GMT", "", 3600.0),
]


@pytest.mark.parametrize(("stated", "date", "seconds"), WAITS)
def test_retry_after_is_a_number_or_a_date(stated: str, date: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": stated, "date": date}) == seconds


def test_a_quota_that_is_used_up_is_waited_for() -> None:
    assert retry_after({"ratelimit": '"resolvers";r=0;t=55'}) == 55
    assert retry_after({"ratelimit": '"api"; r=0; t=7'}) == 7
    assert retry_after({"ratelimit": '"api";r=12;t=55'}) is None
    assert retry_after({"ratelimit": '"api";r=0;t=55', "retry-after": "3"}) == 3


@given(
    st.text(max_size=80) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d [-+A-Z0-9]{1,6}")
)
def test_no_retry_after_escapes(stated: str) -> None:
    found = retry_after({"retry-after": stated, "date": stated})
    assert found is None or 0 <= found <= 3600


@pytest.mark.parametrize("which", list(FaultKind))
def test_every_fault_is_of_one_family(which: FaultKind) -> None:
    fault = range_fault(which, "k", 1, 2, "detail", 3, tag="t")
    assert isinstance(fault, EnvironmentFault) == (which in ENVIRONMENT_KINDS)
    assert isinstance(fault, DataFault) != isinstance(fault, EnvironmentFault)
    assert (fault.kind, fault.key, fault.offset, fault.length, fault.attempts, fault.tag) == (which, "k", 1, 2, 3, "t")
    assert which.value in str(fault)


@given(
    st.integers(0, 1 << 40),
    st.integers(1, 200),
    st.sampled_from([200, 206, 206, 206, 404, 500]),
    st.one_of(st.none(), st.text(max_size=40), st.from_regex(r"bytes \d{1,4}-\d{1,4}/\d{1,4}", fullmatch=True)),
    st.binary(max_size=220),
)
def test_only_exact_answers_are_verified(
    offset: int, length: int, status: int, content_range: str | None, body: bytes
) -> None:
    headers = {} if content_range is None else {"content-range": content_range}
    found = judge_range(Span(offset, length), Answer(status, headers, body))
    if isinstance(found, Verified):
        assert status == 206
        assert len(body) == length
        assert content_range is not None
        assert content_range.strip().lower() == f"bytes {offset}-{offset + length - 1}/{found.total}"


def test_a_clock_that_is_off_is_said_with_both_times_and_nobody_waits() -> None:
    body = (
        b'<?xml version="1.0"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request '
        b"time and the current time is too large.</Message><RequestTime>20260101T000000Z</RequestTime>"
        b"<ServerTime>2026-11-26T12:00:00Z</ServerTime></Error>"
    )
    found = judge_status(403, {}, body)
    assert found.kind is FaultKind.UNAUTHORIZED
    assert not handling_of(found.kind).retry_now
    assert re.search(r"clock says 20\d\d-\d\d-\d\dT.*Z, the source's 2026-11-26T12:00:00Z", found.detail)
    told = judge_status(403, {"date": "Thu, 26 Nov 2026 12:00:00 GMT"}, body.replace(b"ServerTime", b"X"))
    assert "the source's Thu, 26 Nov 2026 12:00:00 GMT" in told.detail
