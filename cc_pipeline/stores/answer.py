"""The common answer of folders, web servers and S3, so that bytes are verified in the same way: a status, headers and a
bounded body."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cc_pipeline.addresses import host_of, redact_addresses
from cc_pipeline.errors import CcPipelineError, EnvironmentFault

#: Bytes that are kept of the body of an error answer; enough for an S3 error document.
ERROR_BODY_BYTES = 4096

#: ``redirected``: the target of the redirect must not be requested.
NoAnswerKind = Literal[
    "proxy", "no_such_host", "unreachable", "timeout", "connection_reset", "short_body", "redirected"
]


@dataclass(frozen=True, slots=True)
class S3Options:
    """Options of S3. ``endpoint`` is the address of another S3 server (then the bucket is part of the path).

    Botocore's usual chain gives credentials (environment, profile files, instance role). ``anonymous`` sends unsigned
    requests.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False


def needs_credentials(place: str) -> EnvironmentFault:
    """Returns the fault to raise if a source needs signed requests and there are no credentials."""
    advice = "Log in with the AWS tools, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if host_of(place).partition(".")[0] == "commoncrawl":
        advice += ", or use https://data.commoncrawl.org, which needs no account"
    return EnvironmentFault(f"{place} needs credentials and none were found", advice)


@dataclass(frozen=True, slots=True)
class Span:
    """Requested bytes: ``length`` bytes from ``offset``, or the last ``length`` bytes if ``offset`` is ``None``."""

    offset: int | None
    length: int

    def __post_init__(self) -> None:
        if self.length <= 0 or (self.offset is not None and self.offset < 0):
            raise ValueError(f"not a byte range: offset {self.offset}, length {self.length}")

    @property
    def header(self) -> str:
        """The value of a ``Range`` header (RFC 9110, section 14.1.2; both ends inclusive)."""
        if self.offset is None:
            return f"bytes=-{self.length}"
        return f"bytes={self.offset}-{self.offset + self.length - 1}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as received. Names in ``headers`` are lower-case.

    ``body`` has at most one byte more than requested (so that an overlong body is noticed), and at most
    ``ERROR_BODY_BYTES`` if the status is not the expected one."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object of a listing of our own store: its key, size in bytes, ETag if the store has one, and the time of the
    last write (seconds since the epoch, 0 if unknown)."""

    key: str
    size: int
    etag: str | None
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``silence`` is the longest wait for the next byte. An answer ends if fewer than ``slowest`` bytes a
    second came in the last ``window`` seconds, so that a drip holds no connection for long."""

    connect: float = 10.0
    silence: float = 30.0
    window: float = 60.0
    slowest: float = 20_000.0


class NoAnswer(CcPipelineError):
    """The connection failed before an answer was complete."""

    def __init__(self, kind: NoAnswerKind, detail: str) -> None:
        self.kind: NoAnswerKind = kind
        # messages of libraries may contain the requested address
        self.detail = redact_addresses(detail)
        super().__init__(f"{kind}: {self.detail}")


class Store(Protocol):
    """A store of objects under keys. Keys are relative, ``/``-separated, without a leading slash.

    ``host`` is the host of the requests (there is a budget per host). ``url`` returns a key's full address, safe to
    show and store: it has no credentials.
    ``fetch`` raises only ``NoAnswer``; every answer, however bad, is returned. ``limit`` bounds the body if no span is
    given; the first ``skip`` bytes of a whole object are dropped, unless it ends there. ``put``, ``delete`` and
    ``listing`` are for our own stores and raise ``EnvironmentFault`` as well. ``listing`` also returns the answer that
    refused the listing, or an answer of status 200.
    """

    host: str

    def url(self, key: str) -> str: ...

    def fetch(self, key: str, span: Span | None = None, limit: int = 0, skip: int = 0) -> Awaitable[Answer]: ...

    async def head(self, key: str) -> Answer: ...

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer: ...

    async def delete(self, key: str) -> Answer: ...

    async def listing(self, prefix: str) -> tuple[Answer, list[ListedObject]]: ...

    async def close(self) -> None: ...
