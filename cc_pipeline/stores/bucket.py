"""Writes to, lists and deletes from an S3 bucket of our own through s3fs, and gives the server's own answers.

This module is imported only when a bucket is first written or listed, because loading s3fs takes most of a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import ClientPayloadError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from s3fs import S3FileSystem

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, Listed, NoAnswer, NoAnswerKind, Timeouts
from cc_pipeline.stores.s3_options import S3Options, needs_credentials

T = TypeVar("T")

#: Files of twice this size and more are uploaded in parts of this size.
PART_BYTES: Final = 16 << 20
#: Parts of one file that are uploaded at the same time; as many are in memory.
_PARTS_AT_ONCE: Final = 4
#: Parts that S3 takes of one object. The parts of a larger file are larger.
_MOST_PARTS: Final = 10_000
_CONNECTIONS: Final = 64

_BROKEN: Final[tuple[tuple[tuple[type[Exception], ...], NoAnswerKind], ...]] = (
    ((TimeoutError, ConnectTimeoutError, ReadTimeoutError), "timeout"),
    ((EndpointConnectionError, ProxyConnectionError, SSLError, CredentialRetrievalError), "unreachable"),
    ((IncompleteReadError, ClientPayloadError), "short_body"),
    ((HTTPClientError, ResponseParserError), "connection_reset"),
)


class _BoundedS3(S3FileSystem):
    """Gives each request a time limit: s3fs itself only limits silence, and not while it sends.

    The limit is per request and not per upload, so that s3fs can delete the parts of an upload that fails.
    """

    timeouts = Timeouts()

    async def _call_s3(self, method: str, *given: Any, **named: Any) -> Any:
        size = len(named.get("Body") or b"")
        async with asyncio.timeout(self.timeouts.total + size / self.timeouts.slowest):
            return await super()._call_s3(method, *given, **named)


class Bucket:
    """One bucket. Keys are those of the bucket, without any prefix taken off.

    It runs inside the event loop of the transport (``asynchronous=True``), not on the thread that s3fs would start. So
    a request is cancelled together with its caller, ends with the transport's loop, and passes the same gate as all
    others. Every method raises ``NoAnswer`` when no complete answer came, and ``EnvironmentFault`` when no request
    could be sent, for instance without credentials.
    """

    def __init__(
        self, name: str, options: S3Options, region: str, agent: str, timeouts: Timeouts, proxy: str | None
    ) -> None:
        self._name = name
        self._files = _filesystem(options, _client_settings(options, region, agent, timeouts, proxy))
        self._files.timeouts = timeouts
        self._session: Any = None

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool) -> Answer:
        """Writes an object completely or not at all. The status is 412 when ``only_if_absent`` is set and it exists."""
        path = f"{self._name}/{key}"
        given: dict[str, Any] = {"mode": "create" if only_if_absent else "overwrite", "max_concurrency": _PARTS_AT_ONCE}
        if isinstance(data, bytes):
            return (await self._ask(lambda s3: s3._pipe_file(path, data, chunksize=PART_BYTES, **given)))[0]
        part = max(PART_BYTES, math.ceil(data.stat().st_size / _MOST_PARTS))
        return (await self._ask(lambda s3: s3._put_file(str(data), path, chunksize=part, **given)))[0]

    async def delete(self, key: str) -> Answer:
        """Removes an object. To S3 it is no error when there is none."""
        return (await self._ask(lambda s3: s3._rm_file(f"{self._name}/{key}")))[0]

    async def listing(self, prefix: str) -> tuple[Answer, list[Listed]]:
        """The objects whose keys start with ``prefix``, and the server's answer when it refuses to list them."""
        answer, found = await self._ask(lambda s3: s3._find(self._name, prefix=prefix, detail=True))
        return answer, [
            Listed(path[len(self._name) + 1 :], one["size"], one.get("ETag"), one["LastModified"].timestamp())
            for path, one in (found or {}).items()
        ]

    async def close(self) -> None:
        """Ends the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, work: Callable[[Any], Awaitable[T]]) -> tuple[Answer, T | None]:
        try:
            self._session = await self._files.set_session()
            return Answer(200, {}, b""), await work(self._files)
        except Exception as error:
            refused = _refusal(error)
            if refused is None:
                self._explain(error)
                raise
            return refused, None

    def _explain(self, error: Exception) -> None:
        """Raises this project's error for an error of S3. Returns for others, such as a file that cannot be read."""
        for kinds, name in _BROKEN:
            if isinstance(error, kinds):
                raise NoAnswer(name, str(error) or "the answer took too long") from error
        if isinstance(error, NoCredentialsError):
            raise needs_credentials(f"s3://{self._name}") from error
        if isinstance(error, BotoCoreError):
            raise EnvironmentFault(
                f"no request can be sent to s3://{self._name}: {error}",
                "Check the bucket's name, the region and the AWS profile",
            ) from error


def _client_settings(
    options: S3Options, region: str, agent: str, timeouts: Timeouts, proxy: str | None
) -> dict[str, Any]:
    """The settings of botocore with which writing goes to the server that reading goes to, without retries."""
    return {
        "region_name": region,
        "user_agent": agent,
        "connect_timeout": timeouts.connect,
        "read_timeout": timeouts.silence,
        "max_pool_connections": _CONNECTIONS,
        # the transport retries: it waits as long as the server says, and tells the request budget
        "retries": {"total_max_attempts": 1},
        "s3": {"addressing_style": "path" if options.endpoint else "auto"},
        # reading knows no AWS_ENDPOINT_URL, and its proxy is chosen elsewhere
        "ignore_configured_endpoint_urls": True,
        "proxies": {"http": proxy, "https": proxy} if proxy else {},
        # other servers than AWS do not know the checksums that botocore adds unasked
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }


def _filesystem(options: S3Options, settings: dict[str, Any]) -> Any:
    session = {} if options.profile is None else {"profile": options.profile}
    files = _BoundedS3(
        anon=options.anonymous,
        endpoint_url=options.endpoint,
        key=options.access_key,
        secret=options.secret_key,
        config_kwargs=settings,
        asynchronous=True,
        use_listings_cache=False,
        skip_instance_cache=True,  # instances are shared otherwise, and this one belongs to one event loop
        **session,
    )
    files.retries = 1  # in place of five tries in a row
    return files


def _refusal(error: Exception) -> Answer | None:
    """The server's answer behind an error of s3fs, with the code where an S3 error document has it."""
    told = error if isinstance(error, ClientError) else error.__cause__
    if not isinstance(told, ClientError):
        return None
    code = told.response.get("Error", {}).get("Code", "")  # the status again where the body could not be read
    about = told.response.get("ResponseMetadata", {})
    headers = {name.lower(): value for name, value in about.get("HTTPHeaders", {}).items()}
    document = "" if code.isdecimal() else f"<Error><Code>{code}</Code></Error>"
    return Answer(about.get("HTTPStatusCode", 500), headers, document.encode())
