"""Buckets: the public one, and a user's own with the lake. Our HTTP client reads ranges, with signatures by botocore;
s3fs writes, lists, deletes."""

from __future__ import annotations

import asyncio
import importlib
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import botocore.session
from aiohttp import ClientPayloadError
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
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

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import (
    Answer,
    ListedObject,
    NoAnswer,
    NoAnswerKind,
    S3Options,
    Span,
    Timeouts,
    needs_credentials,
)
from cc_pipeline.stores.web import HttpClient

T = TypeVar("T")

#: The part size of uploads; files of twice this size and more are uploaded in parts.
PART_BYTES: Final = 16 << 20
#: Parts of one file that are uploaded at the same time; so many are in memory.
_PARTS_AT_ONCE: Final = 4
#: The maximum number of parts of an object on S3. The parts of a larger file are larger.
_MAX_PARTS: Final = 10_000
_CONNECTIONS: Final = 64

_BROKEN: Final[tuple[tuple[tuple[type[Exception], ...], NoAnswerKind], ...]] = (
    ((TimeoutError, ConnectTimeoutError, ReadTimeoutError), "timeout"),
    ((EndpointConnectionError, ProxyConnectionError, SSLError, CredentialRetrievalError), "unreachable"),
    ((IncompleteReadError, ClientPayloadError), "short_body"),
    ((HTTPClientError, ResponseParserError), "connection_reset"),
)

_OK = 200
_PARTIAL = 206
_DEFAULT_REGION = "us-east-1"


class Bucket:
    """Writes and lists below ``root``, a bucket and perhaps a prefix, by s3fs. Keys are relative to it.

    It runs inside the event loop of the transport (``asynchronous=True``), not on the thread that s3fs would start. So
    a request is cancelled together with its caller, ends with the transport's loop, and passes the same rate limiter as
    all others. Every method raises ``NoAnswer`` without a complete answer, and ``EnvironmentFault`` if no request could
    be sent, for instance without credentials.
    """

    def __init__(
        self, root: str, options: S3Options, region: str, agent: str, timeouts: Timeouts, proxy: str | None
    ) -> None:
        self._root = root
        self._files = _filesystem(options, _client_settings(options, region, agent, timeouts, proxy), timeouts)
        self._session: Any = None

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool) -> Answer:
        """Writes an object completely or not at all. The status is 412 if ``only_if_absent`` is set and it exists."""
        path = f"{self._root}/{key}"
        upload_options: dict[str, Any] = {
            "mode": "create" if only_if_absent else "overwrite",
            "max_concurrency": _PARTS_AT_ONCE,
        }
        if isinstance(data, bytes):
            return (await self._ask(lambda s3: s3._pipe_file(path, data, chunksize=PART_BYTES, **upload_options)))[0]
        part = max(PART_BYTES, math.ceil(data.stat().st_size / _MAX_PARTS))
        return (await self._ask(lambda s3: s3._put_file(str(data), path, chunksize=part, **upload_options)))[0]

    async def delete(self, key: str) -> Answer:
        """Removes an object. A missing object is no error for S3."""
        return (await self._ask(lambda s3: s3._rm_file(f"{self._root}/{key}")))[0]

    async def listing(self, prefix: str) -> tuple[Answer, list[ListedObject]]:
        """Lists the objects whose keys start with ``prefix``; also returns the server's answer, maybe a refusal."""
        bucket, _, start = f"{self._root}/{prefix}".partition("/")
        answer, objects = await self._ask(lambda s3: s3._find(bucket, prefix=start, detail=True))
        cut = len(self._root) + 1
        return answer, [
            ListedObject(path[cut:], metadata["size"], metadata.get("ETag"), metadata["LastModified"].timestamp())
            for path, metadata in (objects or {}).items()
        ]

    async def close(self) -> None:
        """Closes the connections."""
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
            raise needs_credentials(f"s3://{self._root}") from error
        if isinstance(error, BotoCoreError):
            raise EnvironmentFault(
                f"no request can be sent to s3://{self._root}: {error}",
                "Check the bucket's name, the region and the AWS profile",
            ) from error


def _client_settings(
    options: S3Options, region: str, agent: str, timeouts: Timeouts, proxy: str | None
) -> dict[str, Any]:
    """Returns the settings of botocore: writes go to the same server as reads, without retries."""
    return {
        "region_name": region,
        "user_agent": agent,
        "connect_timeout": timeouts.connect,
        "read_timeout": timeouts.silence,
        "max_pool_connections": _CONNECTIONS,
        # the transport retries: it waits as long as the server demands, and updates the request budget
        "retries": {"total_max_attempts": 1},
        "s3": {"addressing_style": "path" if options.endpoint else "auto"},
        # reads ignore AWS_ENDPOINT_URL too, and their proxy is chosen by ``system_proxy``
        "ignore_configured_endpoint_urls": True,
        "proxies": {"http": proxy, "https": proxy} if proxy else {},
        # other servers than AWS do not support the checksums that botocore adds by default
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }


def _filesystem(options: S3Options, settings: dict[str, Any], timeouts: Timeouts) -> Any:
    from s3fs import S3FileSystem  # noqa: PLC0415 - not needed for reads

    class Bounded(S3FileSystem):
        """Gives each request a time limit: s3fs itself only limits silence, and not while it sends.

        The limit is per request and not per upload, so that s3fs can delete the parts of an upload that fails.
        """

        async def _call_s3(self, method: str, *args: Any, **kwargs: Any) -> Any:
            size = len(kwargs.get("Body") or b"")
            async with asyncio.timeout(timeouts.window + size / timeouts.slowest):
                return await super()._call_s3(method, *args, **kwargs)

    files = Bounded(
        anon=options.anonymous,
        endpoint_url=options.endpoint,
        config_kwargs=settings,
        asynchronous=True,
        use_listings_cache=False,
        skip_instance_cache=True,  # instances are shared otherwise, and this one belongs to one event loop
    )
    files.retries = 1  # in place of five tries in a row
    return files


def _refusal(error: Exception) -> Answer | None:
    """Returns the server's answer in an error of s3fs, its code as in an S3 error document; ``None`` without one."""
    client_error = error if isinstance(error, ClientError) else error.__cause__
    if not isinstance(client_error, ClientError):
        return None
    code = client_error.response.get("Error", {}).get("Code", "")  # the status again if the body could not be read
    metadata = client_error.response.get("ResponseMetadata", {})
    headers = {name.lower(): value for name, value in metadata.get("HTTPHeaders", {}).items()}
    document = "" if code.isdecimal() else f"<Error><Code>{code}</Code></Error>"
    return Answer(metadata.get("HTTPStatusCode", 500), headers, document.encode())


def find_credentials(place: str) -> Credentials:
    """Returns the credentials of botocore's usual chain. The fault names ``place``.

    Raises ``EnvironmentFault`` if there are none, and if they cannot be read.
    """
    try:
        credentials = botocore.session.Session().get_credentials()
        if credentials is not None:
            # a login that has ended is an error only when its keys are read
            credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError, RuntimeError) as error:  # the last for a login that was not renewed
        raise EnvironmentFault(
            f"the AWS credentials for {place} cannot be read: {error}",
            "Log in again (aws sso login), or check the AWS profile.",
        ) from error
    if credentials is None:
        raise needs_credentials(place)
    return credentials


class S3Store:
    """A store in ``bucket`` below ``prefix`` (without slashes at its ends); keys are relative to the prefix.

    Belongs to one event loop from the first request until ``close``.
    """

    def __init__(self, bucket: str, prefix: str, options: S3Options, client: HttpClient) -> None:
        self._options = options
        self._client = client
        self._root = f"{bucket}/{prefix}" if prefix else bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = options.region or _DEFAULT_REGION
        if options.endpoint:
            self._bucket_url = f"{options.endpoint.rstrip('/')}/{bucket}"
        elif "." in bucket:  # a dot in the bucket's name breaks the wildcard certificate
            self._bucket_url = f"https://s3.{self._region}.amazonaws.com/{bucket}"
        else:
            self._bucket_url = f"https://{bucket}.s3.{self._region}.amazonaws.com"
        self.host = urlsplit(self._bucket_url).netloc.lower()
        self._credentials: Credentials | None = None
        self._bucket: Bucket | None = None

    def url(self, key: str) -> str:
        # the signature covers the path as sent, and S3 expects everything but these to be escaped
        return f"{self._bucket_url}/{quote(self._prefix + key, safe='/-_.~')}"

    async def _signed(self, method: str, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        if self._options.anonymous:
            return dict(headers)
        if self._credentials is None:
            self._credentials = await asyncio.to_thread(find_credentials, self._bucket_url)
        request = AWSRequest(method=method, url=url, headers=dict(headers))
        try:
            S3SigV4Auth(self._credentials, "s3", self._region).add_auth(request)
        except BotoCoreError as error:
            raise NoAnswer("unreachable", f"S3 credentials could not be renewed: {error}") from error
        return dict(request.headers.items())

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0, skip: int = 0) -> Answer:
        url = self.url(key)
        headers = await self._signed("GET", url, {} if span is None else {"Range": span.header})
        if span is None:
            return await self._client.ask("GET", url, headers, hoped_for=_OK, bound=limit, skip=skip)
        return await self._client.ask("GET", url, headers, hoped_for=_PARTIAL, bound=span.length)

    async def head(self, key: str) -> Answer:
        url = self.url(key)
        return await self._client.ask("HEAD", url, await self._signed("HEAD", url, {}), hoped_for=_OK, bound=0)

    async def _opened(self) -> Bucket:
        """Opens the bucket for writing. A thread loads s3fs, so that the loop continues with other requests."""
        if self._bucket is None:
            await asyncio.to_thread(importlib.import_module, "s3fs")
        if self._bucket is None:
            client = self._client
            self._bucket = Bucket(
                self._root, self._options, self._region, client.user_agent, client.timeouts, client.proxy
            )
        return self._bucket

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        return await (await self._opened()).put(key, data, only_if_absent=only_if_absent)

    async def delete(self, key: str) -> Answer:
        return await (await self._opened()).delete(key)

    async def listing(self, prefix: str) -> tuple[Answer, list[ListedObject]]:
        return await (await self._opened()).listing(prefix)

    async def close(self) -> None:
        await self._client.close()
        if self._bucket is not None:
            bucket, self._bucket = self._bucket, None
            await bucket.close()
