"""The kinds of failed ranges, a closed list, since each is handled differently; and the functions that tell the kind by
status, headers, lengths and ETags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from cc_pipeline.addresses import redact_address
from cc_pipeline.advice import Advice, option
from cc_pipeline.errors import CcPipelineError, DataFault, EnvironmentFault, Incomplete, Kind, SourceRefuses
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
    PROXY = "proxy"
    NO_SUCH_HOST = "no_such_host"
    LOGIN_PAGE = "login_page"
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
    REFUSED = "refused"


#: Kinds that are about the source at this moment. All other kinds are about the requested object.
ENVIRONMENT_KINDS: Final = frozenset(
    {
        FaultKind.FORBIDDEN,
        FaultKind.UNAUTHORIZED,
        FaultKind.THROTTLED,
        FaultKind.SERVER_ERROR,
        FaultKind.REDIRECTED,
        FaultKind.PROXY,
        FaultKind.NO_SUCH_HOST,
        FaultKind.LOGIN_PAGE,
        FaultKind.UNREACHABLE,
        FaultKind.TIMEOUT,
        FaultKind.CONNECTION_RESET,
        FaultKind.REFUSED,
    }
)

_ADVICE: Final[Mapping[FaultKind, str | Advice]] = {
    FaultKind.FORBIDDEN: "The source refuses requests: wait, lower the rate, and check access rights and credentials",
    FaultKind.UNAUTHORIZED: "The source rejects the credentials, or requires some: check the credentials and the clock",
    FaultKind.THROTTLED: "The source asks for fewer requests: run again later or with a lower rate",
    FaultKind.SERVER_ERROR: "The source has a problem of its own: run again later",
    FaultKind.REDIRECTED: "Set CC_PIPELINE_SOURCE to the address of the redirect, or add its host to "
    "CC_PIPELINE_REDIRECTS; a redirect into a private network is followed only from a source on this machine",
    FaultKind.PROXY: "Check HTTPS_PROXY and HTTP_PROXY: its address, and for status 407 a name and password "
    "in it (http://NAME:PASSWORD@HOST:PORT). To use no proxy for the source, add its host to NO_PROXY",
    FaultKind.NO_SUCH_HOST: "Check the spelling of CC_PIPELINE_SOURCE. If it is right, this machine is offline, or "
    "its name server (DNS) does not answer",
    FaultKind.LOGIN_PAGE: "Check CC_PIPELINE_SOURCE. If it is right, the network sends pages of its own: sign in to it "
    "in a browser (as in hotels and trains), or ask who runs its filter to let the source pass",
    FaultKind.UNREACHABLE: "Check the network and the source's address (CC_PIPELINE_SOURCE)",
    FaultKind.TIMEOUT: "Check the network, or run again later",
    FaultKind.CONNECTION_RESET: "Check the network, or run again later",
    FaultKind.WHOLE_OBJECT: "Use a server or proxy that supports HTTP Range requests, S3, or a copy in a folder",
    FaultKind.REFUSED: option(
        wait=True,
        sentence="Fetched data is kept: run it again after the given time, or with {}. If the source has never "
        "answered, check the credentials",
    ),
}


@dataclass(frozen=True, slots=True)
class Handling:
    """How a fault is handled. ``retry_now``: how often the request is sent again within the run, by the transport or,
    for bytes that are not the expected record, by the fetch. ``counts``: whether a failed ask counts towards lost.
    ``pauses_host``: whether all requests to the host pause."""

    retry_now: int = 0
    counts: bool = False
    pauses_host: bool = False


#: How the fault of each reason of ``records`` is handled. Reasons that are not here are bytes that are not the expected
#: record (``_BAD_BYTES``).
FAULTS: Final[Mapping[str, Handling]] = {
    FaultKind.NOT_FOUND: Handling(counts=True),
    FaultKind.RANGE_NOT_SATISFIABLE: Handling(counts=True),
    # S3 says so of missing keys too. As long as the host gives other objects it is about this one; the further requests
    # show whether it does (``host_state.py``)
    FaultKind.FORBIDDEN: Handling(2, counts=True),
    FaultKind.CLIENT_ERROR: Handling(),
    FaultKind.UNAUTHORIZED: Handling(),
    FaultKind.REDIRECTED: Handling(),
    FaultKind.CHANGED_OBJECT: Handling(),
    FaultKind.REFUSED: Handling(pauses_host=True),
    FaultKind.THROTTLED: Handling(5),
    FaultKind.SERVER_ERROR: Handling(5),
    FaultKind.PROXY: Handling(1),
    FaultKind.NO_SUCH_HOST: Handling(1),
    FaultKind.LOGIN_PAGE: Handling(1),
    FaultKind.UNREACHABLE: Handling(3),
    FaultKind.TIMEOUT: Handling(3),
    FaultKind.CONNECTION_RESET: Handling(3),
    FaultKind.SHORT_BODY: Handling(3),
    FaultKind.EMPTY_BODY: Handling(3),
    FaultKind.ERROR_DOCUMENT: Handling(3),
    FaultKind.LONG_BODY: Handling(1),
    FaultKind.WHOLE_OBJECT: Handling(1),
    FaultKind.WRONG_RANGE: Handling(1),
    # an index row that cannot be
    "bad_plan": Handling(counts=True),
}
_BAD_BYTES: Final = Handling(1, counts=True)


def handling_of(reason: str) -> Handling:
    """Returns how the fault of a ``reason`` of ``records`` is handled."""
    return FAULTS.get(reason, _BAD_BYTES)


def advice(kind: FaultKind, default: str) -> str | Advice:
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


class RangeThrottled(RangeEnvironmentFault, Incomplete):
    """An object that was refused through all tries, while its host answers, or while nothing else was asked for."""


class RangeNotNow(RangeEnvironmentFault, SourceRefuses):
    """The source refuses for longer than the request waits."""


_FAMILIES: Final = {FaultKind.REFUSED: RangeNotNow, FaultKind.THROTTLED: RangeThrottled}


def range_fault(
    kind: FaultKind, key: str, offset: int | None, length: int | None, detail: str, attempts: int, *, tag: object = None
) -> RangeFault:
    """Returns a fault of the class that fits its kind. ``tag`` goes back to the requester of the range."""
    fault: RangeFault
    if kind in ENVIRONMENT_KINDS:
        family = _FAMILIES.get(kind, RangeEnvironmentFault)
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
    ``final``: the same request would get the same answer. ``is_refusal``: perhaps the host refuses, and not the object
    (``host_state.py``)."""

    kind: FaultKind
    detail: str
    retry_after: float | None = None
    final: bool = False
    is_refusal: bool = False


def judge_range(
    span: Span,
    answer: Answer,
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
    headers, body = answer.headers, answer.body
    if answer.status == 200:
        return error_document(body) or Finding(
            FaultKind.WHOLE_OBJECT, f"the server sent the whole file instead of {span.header} (status 200)"
        )
    if answer.status != 206:
        return judge_status(answer.status, headers, body)
    content_range = headers.get("content-range", "")
    match = _CONTENT_RANGE.match(content_range)
    if match is None:
        return Finding(FaultKind.WRONG_RANGE, f"status 206 with Content-Range {content_range[:80]!r}")
    first, stop, is_total_known = int(match[1]), int(match[2]) + 1, match[3] != "*"
    # a suffix ends where the object ends
    total = int(match[3]) if is_total_known else stop if span.offset is None else length
    if not first < stop <= (stop if total is None else total) <= _LARGEST:
        return Finding(FaultKind.WRONG_RANGE, f"Content-Range {content_range[:80]!r} contradicts itself")
    if not is_total_known and span.offset is None and first == 0 and total != length:
        return Finding(
            FaultKind.WRONG_RANGE, f"Content-Range {content_range[:80]!r} may be of the first bytes", final=True
        )
    answer_etag = etag_in(headers)
    if changed := _judge_object(total, answer_etag, etag, length):
        return changed
    if unexpected := _judge_bounds(span, first, stop, total if is_total_known else None, may_be_short):
        return unexpected
    return judge_length(stop - first, body) or Verified(first, total, answer_etag)


def _judge_bounds(span: Span, first: int, stop: int, total: int | None, may_be_short: bool) -> Finding | None:
    """Compares the range of an answer, bytes ``first`` to ``stop`` of ``total`` (``None``: the source does not say),
    with the requested one."""
    if span.offset is None:
        expected_first, expected_stop = max(0, (total or stop) - span.length), total or stop
    else:
        expected_first, expected_stop = span.offset, span.offset + span.length
    if may_be_short and total is not None:
        expected_stop = min(expected_stop, total)
    if (first, stop) == (expected_first, expected_stop):
        return None
    if first == expected_first and stop == total and stop < expected_stop:
        return Finding(
            FaultKind.RANGE_NOT_SATISFIABLE, f"the object ends at byte {total}, before the range's end {expected_stop}"
        )
    detail = f"asked for bytes {expected_first}-{expected_stop - 1}, got bytes {first}-{stop - 1} of {total or '*'}"
    return Finding(FaultKind.WRONG_RANGE, detail)


def judge_whole(limit: int, answer: Answer) -> Verified | Finding:
    """Checks the answer to a request for a whole object of at most ``limit`` bytes."""
    headers, body = answer.headers, answer.body
    if answer.status != 200:
        return judge_status(answer.status, headers, body)
    if document := error_document(body):
        return document
    if len(body) > limit:
        return Finding(FaultKind.LONG_BODY, f"more than {limit} bytes")
    declared = headers.get("content-length", "")
    length_fault = judge_length(int(declared), body) if declared.isdecimal() else None
    return length_fault or Verified(0, len(body), etag_in(headers))


def judge_part_of_whole(
    answer: Answer, offset: int, length: int, etag: str | None, total: int | None
) -> Verified | Finding:
    """Checks that the body of an answer with the whole object is its ``length`` bytes from ``offset``; the bytes before
    them were skipped. The object must have this ETag and ``total`` bytes if these are given."""
    if answer.status != 200:
        return judge_status(answer.status, answer.headers, answer.body)
    if len(answer.body) != length and (document := error_document(answer.body)):
        return document
    declared = answer.headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() else total
    if changed := _judge_object(size, etag_in(answer.headers), etag, total):
        return changed
    if size is not None and size < offset + length:
        return Finding(FaultKind.RANGE_NOT_SATISFIABLE, f"the object ends at byte {size}, inside the range")
    return judge_length(length, answer.body) or Verified(offset, size, etag_in(answer.headers))


def _judge_object(size: int | None, answer_etag: str | None, etag: str | None, total: int | None) -> Finding | None:
    """Compares the size and the ETag of an answer with those of the expected object, as far as they are known."""
    if total is not None and size is not None and size != total:
        return Finding(FaultKind.CHANGED_OBJECT, f"the object has {size} bytes where {total} were expected")
    if etag is not None and answer_etag is not None and not matches_etag(answer_etag, etag):
        return Finding(FaultKind.CHANGED_OBJECT, f"ETag {answer_etag[:80]} where {etag[:80]} was expected")
    return None


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
        return Finding(FaultKind.THROTTLED, detail, wait, is_refusal=True)
    if status in (404, 410):
        return Finding(FaultKind.NOT_FOUND, detail)
    if status == 416:
        return Finding(
            FaultKind.RANGE_NOT_SATISFIABLE, f"{detail}, Content-Range {headers.get('content-range', '')[:80]!r}"
        )
    if status == 401 or (code is not None and code[1] in _CREDENTIAL_CODES):
        return Finding(FaultKind.UNAUTHORIZED, detail)
    if status == 403:
        return Finding(FaultKind.FORBIDDEN, detail, wait, is_refusal=True)
    if status >= 500 or status in (408, 425):
        return Finding(FaultKind.SERVER_ERROR, detail, wait, is_refusal=status in _FRONT_TROUBLE or bool(wait))
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
    """Returns the fault of an S3 error document that came with a status of success, as happens under load; or of a page
    of HTML, which a network sends in place of everything until somebody signs in."""
    if body[:256].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return Finding(FaultKind.LOGIN_PAGE, "a page of HTML came instead of bytes of the object")
    code = _ERROR_CODE.search(body[:1024])
    if code is None or not body[:256].lstrip().startswith(b"<"):
        return None
    is_refusal = code[1] in _THROTTLE_CODES or code[1] in _BUSY_CODES
    detail = f"an error document instead of bytes: {code[1].decode()}"
    return Finding(FaultKind.ERROR_DOCUMENT, detail, is_refusal=is_refusal)


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
