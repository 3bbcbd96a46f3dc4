"""Objects in an S3 bucket. Our HTTP client reads ranges, with signatures by botocore; s3fs writes, lists, deletes."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, Listed, NoAnswer, Span
from cc_pipeline.stores.s3_options import S3Options, needs_credentials
from cc_pipeline.stores.web import HttpClient

if TYPE_CHECKING:
    from cc_pipeline.stores.bucket import Bucket

__all__ = ["S3Options", "S3Store", "find_credentials"]

_OK = 200
_PARTIAL = 206
_DEFAULT_REGION = "us-east-1"


def find_credentials(options: S3Options, place: str) -> Credentials:
    """Those of ``options``, else what botocore's usual chain gives. ``place`` is named in the fault.

    Raises ``EnvironmentFault`` when there are none, and when they cannot be read.
    """
    if options.access_key and options.secret_key:
        return Credentials(options.access_key, options.secret_key)
    try:
        found = botocore.session.Session(profile=options.profile).get_credentials()
    except BotoCoreError as error:
        raise EnvironmentFault(f"S3 credentials cannot be read: {error}", "Check the AWS profile") from error
    if found is None:
        raise needs_credentials(place)
    return found


class S3Store:
    """``bucket`` and ``prefix`` (without slashes at its ends) name the place; keys are relative to the prefix.

    Belongs to one event loop from the first request until ``close``.
    """

    def __init__(self, bucket: str, prefix: str, options: S3Options, client: HttpClient) -> None:
        self._options = options
        self._client = client
        self._name = bucket
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
            self._credentials = await asyncio.to_thread(find_credentials, self._options, self._bucket_url)
        request = AWSRequest(method=method, url=url, headers=dict(headers))
        try:
            S3SigV4Auth(self._credentials, "s3", self._region).add_auth(request)
        except BotoCoreError as error:
            raise NoAnswer("unreachable", f"S3 credentials could not be renewed: {error}") from error
        return dict(request.headers.items())

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0) -> Answer:
        url = self.url(key)
        headers = await self._signed("GET", url, {} if span is None else {"Range": span.header})
        if span is None:
            return await self._client.ask("GET", url, headers, hoped_for=_OK, bound=limit)
        return await self._client.ask("GET", url, headers, hoped_for=_PARTIAL, bound=span.length)

    async def head(self, key: str) -> Answer:
        url = self.url(key)
        return await self._client.ask("HEAD", url, await self._signed("HEAD", url, {}), hoped_for=_OK, bound=0)

    async def _opened(self) -> Bucket:
        """The bucket for writing. A thread loads s3fs, so that the loop goes on with other requests meanwhile."""
        if self._bucket is None:
            module = await asyncio.to_thread(importlib.import_module, "cc_pipeline.stores.bucket")
        if self._bucket is None:
            client = self._client
            self._bucket = module.Bucket(
                self._name, self._options, self._region, client.user_agent, client.timeouts, client.proxy
            )
        return self._bucket

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        return await (await self._opened()).put(self._prefix + key, data, only_if_absent=only_if_absent)

    async def delete(self, key: str) -> Answer:
        return await (await self._opened()).delete(self._prefix + key)

    async def listing(self, prefix: str) -> tuple[Answer, list[Listed]]:
        answer, found = await (await self._opened()).listing(self._prefix + prefix)
        cut = len(self._prefix)
        return answer, [Listed(one.key[cut:], one.size, one.etag, one.modified) for one in found]

    async def close(self) -> None:
        await self._client.close()
        if self._bucket is not None:
            bucket, self._bucket = self._bucket, None
            await bucket.close()
