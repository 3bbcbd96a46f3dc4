"""The kinds of failed ranges, a closed list, since each is handled differently; and the functions that tell the kind by
status, headers, lengths and ETags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from cc_pipeline.addresses import redact_address
from cc_pipeline.errors import CcPipelineError, DataFault, EnvironmentFault, Kind, SourceRefuses
from cc_pipeline.stores.answer import ERROR_BODY_BYTES, Answer, Span

_CONTENT_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*\Z", re.IGNORECASE)
_ERROR_CODE = re.compile(rb"<Error[\s>].{0,512}?<Code>\s*([A-Za-z0-9._-]{1,64})\s*</Code>", re.DOTALL)
_THROTTLE_CODES: Final = frozenset({b"SlowDown", b"Throttling", b"ThrottlingException", b"RequestLimitExceeded"})
_BUSY_CODES: Final = frozenset({b"ServiceUnavailable", b"InternalError", b"OperationAborted", b"RequestTimeout"})
#: S3's codes for wrong credentials, for which waiting does not help.
_CREDENTIAL_CODES: Final = frozenset({b"InvalidAccessKeyId", b"SignatureDoesNotMatch", b"ExpiredToken"})
#: S3's code for a signature whose time is more than a quarter of an hour off.
_SKEWED_CODE: Final = b"RequestTimeTooSkewed"
_SERVER_TIME: Final = re.compile(rb"<ServerTime>\s*([0-9TZ:.+-]{10,40})\s*</ServerTime>")
#: The statuses of a front whose servers do not answer. 500 may be about the object, or a bug: the request is repeated,
#: and no number of such answers makes all requests wait.
_FRONT_TROUBLE: Final = frozenset({502, 504})
#: ``"api";r=0;t=55``: a quota is used up for so many seconds, in Hugging Face's notation.
_QUOTA_EXHAUSTED = re.compile(r";\s*r=0\s*;\s*t=(\d{1,6})\b")
#: Maximum bytes of an object that the tables can hold.
_LARGEST: Final = 2**63 - 1
#: Maximum characters of an ETag; one is stored for each file, and S3's have some forty.
_LONGEST_ETAG: Final = 256
#: Maximum seconds of a ``Retry-After``.
LONGEST_WAIT: Final = 3600.0


def matches_etag(etag: str, expected: str) -> bool:
    """Whether two ETags are equal, be they strong or weak: both change if the object is replaced."""
    return etag.removeprefix("W/") == expected.removeprefix("W/")


def is_changed_etag(current_etag: str | None, previous_etag: str | None) -> bool:
    """Whether an object's ETag shows that the object changed."""
    return current_etag is not None and (previous_etag is None or not matches_etag(current_etag, previous_etag))


class FaultKind(Kind):
    """The reason for a failed range. docs/faults.md says how each is handled."""

    NOT_FOUND = "not_found"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    FORBIDDEN = "forbidden"
    UNAUTHORIZED = "unauthorized"
    THROTTLED = "throttled"
    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    REDIRECTED = "redirected"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CONNECTION_RESET = "connection_reset"
    SHORT_BODY = "short_body"
    LONG_BODY = "long_body"
    EMPTY_BODY = "empty_body"
    WHOLE_OBJECT = "whole_object"
    ERROR_DOCUMENT = "error_document"
    WRONG_RANGE = "wrong_range"
    CHANGED_OBJECT = "changed_object"
    BREAKER_OPEN = "breaker_open"


class Refusal(Enum):
    """The possible meaning of a refusal; ``circuit_breaker.py`` decides by the pattern of such answers."""

    #: 503, 502, 504, and ``SlowDown`` or the like without a time: S3 sends it at any rate.
    CHANCE = "chance"
    #: 429, or a ``Retry-After``: all clients should send less.
    RATE = "rate"
    #: 403: of the address, or of the object.
    ADDRESS = "address"


#: Kinds that are about the source at this moment. All other kinds are about the requested object.
ENVIRONMENT_KINDS: Final = frozenset(
    {
        FaultKind.FORBIDDEN,
        FaultKind.UNAUTHORIZED,
        FaultKind.THROTTLED,
        FaultKind.SERVER_ERROR,
        FaultKind.REDIRECTED,
        FaultKind.UNREACHABLE,
        FaultKind.TIMEOUT,
        FaultKind.CONNECTION_RESET,
        FaultKind.BREAKER_OPEN,
    }
)

#: Kinds that another try cannot cure within this run.
PERMANENT_KINDS: Final = frozenset(
    {
        FaultKind.NOT_FOUND,
        FaultKind.RANGE_NOT_SATISFIABLE,
        FaultKind.CLIENT_ERROR,
        FaultKind.UNAUTHORIZED,
        FaultKind.REDIRECTED,
        FaultKind.CHANGED_OBJECT,
        FaultKind.BREAKER_OPEN,
    }
)

_ADVICE: Final = {
    FaultKind.FORBIDDEN: "The source refuses requests: wait, lower the rate, and check access rights and credentials",
    FaultKind.UNAUTHORIZED: "The source rejects the credentials, or requires some: check the credentials and the clock",
    FaultKind.THROTTLED: "The source asks for fewer requests: run again later or with a lower rate",
    FaultKind.SERVER_ERROR: "The source has a problem of its own: run again later",
    FaultKind.REDIRECTED: "Set CC_PIPELINE_SOURCE to the address of the redirect, or add its host to "
    "CC_PIPELINE_REDIRECTS; a redirect into a private network is followed only from a source on this machine",
    FaultKind.UNREACHABLE: "Check the network and the source's address",
    FaultKind.TIMEOUT: "Check the network, or run again later",
    FaultKind.CONNECTION_RESET: "Check the network, or run again later",
    FaultKind.WHOLE_OBJECT: "Use a server or proxy that supports HTTP Range requests, S3, or a copy in a folder",
    FaultKind.BREAKER_OPEN: "Fetched data is kept: run it again after the given time, or with --wait. If the source "
    "has never answered, check the credentials",
}


def advice(kind: FaultKind, default: str) -> str:
    """Returns the advice for a fault of this kind; ``default`` for a kind that is not the source's fault."""
    return _ADVICE.get(kind, default)


class RangeFault(CcPipelineError):
    """A range that could not be read: ``kind``, the object's ``key``, the range, and the number of attempts.

    ``offset`` is ``None`` for suffixes and whole objects, ``length`` ``None`` for whole objects. Every instance
    is also a ``DataFault`` or an ``EnvironmentFault``, by its kind.
    """

    kind: FaultKind
    key: str
    offset: int | None
    length: int | None
    detail: str
    attempts: int
    tag: object


class RangeDataFault(RangeFault, DataFault):  # type: ignore[misc]  # its kinds are narrower, and never set again
    """The source works, but its object is not the requested one."""


class RangeEnvironmentFault(RangeFault, EnvironmentFault):
    """The source did not answer properly, whatever was requested."""


class RangeNotNow(RangeEnvironmentFault, SourceRefuses):
    """The source refuses for longer than the request waits."""


def range_fault(
    kind: FaultKind, key: str, offset: int | None, length: int | None, detail: str, attempts: int, *, tag: object = None
) -> RangeFault:
    """Returns a fault of the class that fits its kind. ``tag`` goes back to the requester of the range."""
    fault: RangeFault
    if kind in ENVIRONMENT_KINDS:
        family = RangeNotNow if kind is FaultKind.BREAKER_OPEN else RangeEnvironmentFault
        fault = family(f"{key}: {kind.value} ({detail}) after {attempts} attempts", _ADVICE[kind])
    else:
        fault = RangeDataFault(kind, key, offset, f"{kind.value}: {detail}")
    fault.kind, fault.key, fault.offset, fault.length = kind, key, offset, length
    fault.detail, fault.attempts, fault.tag = detail, attempts, tag
    return fault


def whole_files(fault: RangeFault) -> EnvironmentFault:
    """Returns ``fault`` (``whole_object``) as the error of a source that cannot be used."""
    return EnvironmentFault(
        f"the source ignores range requests and sends whole files ({fault.key}: {fault.detail})",
        _ADVICE[FaultKind.WHOLE_OBJECT],
    )


@dataclass(frozen=True, slots=True)
class Verified:
    """A range that matches the request: its offset, the object's full size (``None`` if the source does not say), its
    ETag if it has one."""

    offset: int
    total: int | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """The fault of an answer. ``retry_after`` is the number of seconds for which the source asks to wait, if it does.
    ``final``: the same request would get the same answer. ``refusal`` is the possible meaning of a refusal."""

    kind: FaultKind
    detail: str
    retry_after: float | None = None
    final: bool = False
    refusal: Refusal | None = None


def judge_range(
    span: Span,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    etag: str | None = None,
    length: int | None = None,
    *,
    may_be_short: bool = False,
) -> Verified | Finding:
    """Checks that an answer is exactly the requested range, or returns its fault.

    ``etag`` and ``length`` are those of the expected object; an answer of another one is ``changed_object``. A source
    need not give the object's length (``/*``): an explicit range is verified without it. A suffix ends where the object
    ends, unless it starts at byte 0: then it may be the first bytes of a longer object. ``may_be_short``: the range may
    go beyond the object's end."""
    if status != 206:
        if status == 200:
            return error_document(body) or Finding(
                FaultKind.WHOLE_OBJECT, f"the server sent the whole file instead of {span.header} (status 200)"
            )
        return judge_status(status, headers, body)
    verdict = judge_headers(span, status, headers, etag, length, may_be_short=may_be_short)
    if isinstance(verdict, Finding):
        return verdict
    expected = span.length if span.offset is not None or verdict.total is None else verdict.total - verdict.offset
    if may_be_short and verdict.total is not None:
        expected = min(expected, verdict.total - verdict.offset)
    return judge_length(expected, body) or verdict


def judge_headers(
    span: Span,
    status: int,
    headers: Mapping[str, str],
    etag: str | None = None,
    length: int | None = None,
    *,
    may_be_short: bool = False,
) -> Verified | Finding:
    """Checks the headers of an answer whose body is still to come."""
    if status != 206:
        return judge_status(status, headers, b"")
    content_range = headers.get("content-range", "")
    match = _CONTENT_RANGE.match(content_range)
    if match is None:
        return Finding(FaultKind.WRONG_RANGE, f"status 206 with Content-Range {content_range[:80]!r}")
    first, last = int(match[1]), int(match[2])
    is_total_known = match[3] != "*" or span.offset is None
    total = last + 1 if match[3] == "*" else int(match[3])
    if not first <= last < total <= _LARGEST:
        return Finding(FaultKind.WRONG_RANGE, f"Content-Range {content_range[:80]!r} contradicts itself")
    if match[3] == "*" and span.offset is None and first == 0 and total != length:
        return Finding(
            FaultKind.WRONG_RANGE, f"Content-Range {content_range[:80]!r} may be of the first bytes", final=True
        )
    if length is not None and is_total_known and total != length:
        return Finding(FaultKind.CHANGED_OBJECT, f"the object has {total} bytes where {length} were expected")
    start = max(0, total - span.length) if span.offset is None else span.offset
    stop = total if span.offset is None else start + span.length
    if may_be_short and is_total_known:
        stop = min(stop, total)
    if first != start or last + 1 != stop:
        if is_total_known and first == start and last + 1 == total < stop:
            return Finding(
                FaultKind.RANGE_NOT_SATISFIABLE, f"the object ends at byte {total}, before the range's end {stop}"
            )
        return Finding(
            FaultKind.WRONG_RANGE, f"asked for bytes {start}-{stop - 1}, got Content-Range {content_range[:80]!r}"
        )
    answer_etag = etag_in(headers)
    if etag is not None and answer_etag is not None and not matches_etag(answer_etag, etag):
        return Finding(FaultKind.CHANGED_OBJECT, f"ETag {answer_etag[:80]} where {etag[:80]} was expected")
    return Verified(start, total if is_total_known else length, answer_etag)


def judge_whole(limit: int, status: int, headers: Mapping[str, str], body: bytes) -> Verified | Finding:
    """Checks the answer to a request for a whole object of at most ``limit`` bytes."""
    if status != 200:
        return judge_status(status, headers, body)
    if document := error_document(body):
        return document
    if len(body) > limit:
        return Finding(FaultKind.LONG_BODY, f"more than {limit} bytes")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) != len(body):
        return judge_length(int(declared), body) or Finding(FaultKind.SHORT_BODY, "incomplete")
    return Verified(0, len(body), etag_in(headers))


def judge_head(answer: Answer) -> Verified | Finding:
    """Checks that there is an object."""
    if answer.status == 200:
        return Verified(0, 0, etag_in(answer.headers))
    return judge_status(answer.status, answer.headers, answer.body)


def judge_length(expected: int, body: bytes | bytearray) -> Finding | None:
    """Checks that a body has the expected length."""
    size = len(body)
    if size == expected:
        return None
    if size > expected:
        return Finding(FaultKind.LONG_BODY, f"more than the {expected} bytes asked for")
    if not size:
        return Finding(FaultKind.EMPTY_BODY, f"no bytes instead of {expected}")
    return Finding(FaultKind.SHORT_BODY, f"the answer ended after {size} of {expected} bytes")


def judge_status(status: int, headers: Mapping[str, str], body: bytes) -> Finding:
    """Returns the fault of an unexpected status."""
    code = _ERROR_CODE.search(body[:1024])
    detail = f"status {status}" + (f", {code[1].decode()}" if code else "")
    wait = retry_after(headers)
    if code is not None and code[1] == _SKEWED_CODE:
        return Finding(FaultKind.UNAUTHORIZED, f"{detail}: {_both_times(headers, body)}")
    if status in (429, 503) or (code is not None and code[1] in _THROTTLE_CODES):
        refusal = Refusal.RATE if status == 429 or wait is not None else Refusal.CHANCE
        return Finding(FaultKind.THROTTLED, detail, wait, refusal=refusal)
    if status in (404, 410):
        return Finding(FaultKind.NOT_FOUND, detail)
    if status == 416:
        return Finding(
            FaultKind.RANGE_NOT_SATISFIABLE, f"{detail}, Content-Range {headers.get('content-range', '')[:80]!r}"
        )
    if status == 401 or (code is not None and code[1] in _CREDENTIAL_CODES):
        return Finding(FaultKind.UNAUTHORIZED, detail)
    if status == 403:
        return Finding(FaultKind.FORBIDDEN, detail, wait, refusal=Refusal.ADDRESS)
    if status >= 500 or status in (408, 425):
        chance = Refusal.CHANCE if status in _FRONT_TROUBLE else None
        return Finding(FaultKind.SERVER_ERROR, detail, wait, refusal=chance if wait is None else Refusal.RATE)
    if 300 <= status < 400:
        # a source may repeat the credentials of the request in it
        location = headers.get("location", "")
        where = redact_address(f"http:{location}" if location.startswith("//") else location).partition("?")[0]
        return Finding(FaultKind.REDIRECTED, f"{detail} to {where[:200]!r}")
    return Finding(FaultKind.CLIENT_ERROR, detail)


def _both_times(headers: Mapping[str, str], body: bytes) -> str:
    """Returns a sentence with the source's time and this machine's."""
    time_match = _SERVER_TIME.search(body[:ERROR_BODY_BYTES])
    source_time = time_match[1].decode("ascii") if time_match else headers.get("date", "not told")[:64]
    return (
        f"this machine's clock says {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}, the source's {source_time}; set the clock"
    )


def error_document(body: bytes) -> Finding | None:
    """Returns the fault of an S3 error document that came with a status of success, as happens under load."""
    code = _ERROR_CODE.search(body[:1024])
    if code is None or not body[:256].lstrip().startswith(b"<"):
        return None
    refusal = Refusal.CHANCE if code[1] in _THROTTLE_CODES or code[1] in _BUSY_CODES else None
    return Finding(FaultKind.ERROR_DOCUMENT, f"an error document instead of bytes: {code[1].decode()}", refusal=refusal)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of a ``Retry-After`` header, at most an hour: a number, or a date (RFC 9110, 10.2.3). Without
    one, the seconds of a ``RateLimit`` header whose quota is used up.

    A date is compared with the ``Date`` of the same answer, so that wrong clocks do not matter, else with our clock.
    ``None`` for any other header.
    """
    header = headers.get("retry-after", "").strip()
    if not header and (quota_match := _QUOTA_EXHAUSTED.search(headers.get("ratelimit", "")[:200])):
        header = quota_match[1]
    if header.isdecimal():
        return min(float(header), LONGEST_WAIT) if len(header) <= 9 else None
    until = _http_date(header)
    if until is None:
        return None
    now = _http_date(headers.get("date", "")) or datetime.now(UTC)
    return min(max(0.0, (until - now).total_seconds()), LONGEST_WAIT)


def _http_date(text: str) -> datetime | None:
    """Parses a date in any of the forms HTTP has had, at most 33 letters long; ``None`` for anything else."""
    if len(text) > 64:
        return None
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def etag_in(headers: Mapping[str, str]) -> str | None:
    """Returns the ETag of an answer; ``None`` if it is too long."""
    etag = headers.get("etag")
    return etag if etag is None or len(etag) <= _LONGEST_ETAG else None
