"""Objects in an S3 bucket: the same HTTP client, signed with botocore's Signature Version 4."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlencode, urlsplit

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from defusedxml import ElementTree

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stores.answer import Answer, Listed, NoAnswer, Span
from cc_pipeline.stores.web import HttpClient

_OK = 200
_PARTIAL = 206
_GONE = 204
_MAX_LISTING_BYTES = 8 << 20
_DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach S3. ``endpoint`` is the address of another S3 server (then the bucket goes into the path).

    Without ``access_key`` the usual chain of botocore is asked (environment, profile files, instance role).
    ``anonymous`` sends unsigned requests.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    profile: str | None = None
    access_key: str | None = None
    secret_key: str | None = None


class S3Store:
    """``bucket`` and ``prefix`` (without slashes at its ends) name the place; keys are relative to the prefix."""

    def __init__(self, bucket: str, prefix: str, options: S3Options, client: HttpClient) -> None:
        self._options = options
        self._client = client
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

    def url(self, key: str) -> str:
        # the signature covers the path as sent, and S3 expects everything but these to be escaped
        return f"{self._bucket_url}/{quote(self._prefix + key, safe='/-_.~')}"

    def _find_credentials(self) -> Credentials:
        options = self._options
        if options.access_key and options.secret_key:
            return Credentials(options.access_key, options.secret_key)
        try:
            found = botocore.session.Session(profile=options.profile).get_credentials()
        except BotoCoreError as error:
            raise EnvironmentFault(f"S3 credentials cannot be read: {error}", "Check the AWS profile") from error
        if found is None:
            raise EnvironmentFault(
                f"{self._bucket_url} needs credentials and none were found",
                "Log in with the AWS tools, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use "
                "https://data.commoncrawl.org, which needs no account",
            )
        return found

    def _sign(self, method: str, url: str, headers: dict[str, str], data: bytes | IO[bytes] | None) -> dict[str, str]:
        request = AWSRequest(method=method, url=url, headers=headers, data=data)
        S3SigV4Auth(self._credentials, "s3", self._region).add_auth(request)
        return dict(request.headers.items())

    async def _ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        *,
        hoped_for: int,
        bound: int = 0,
        data: bytes | IO[bytes] | None = None,
        size: int = 0,
    ) -> Answer:
        sent = dict(headers)
        if not self._options.anonymous:
            if self._credentials is None:
                self._credentials = await asyncio.to_thread(self._find_credentials)
            try:
                sent = self._sign(method, url, sent, data)
            except BotoCoreError as error:
                raise NoAnswer("unreachable", f"S3 credentials could not be renewed: {error}") from error
        if method == "GET":
            return await self._client.get(url, sent, hoped_for=hoped_for, bound=bound)
        return await self._client.ask(method, url, sent, hoped_for=hoped_for, bound=bound, data=data, size=size)

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0) -> Answer:
        if span is None:
            return await self._ask("GET", self.url(key), {}, hoped_for=_OK, bound=limit)
        return await self._ask("GET", self.url(key), {"Range": span.header}, hoped_for=_PARTIAL, bound=span.length)

    async def head(self, key: str) -> Answer:
        return await self._ask("HEAD", self.url(key), {}, hoped_for=_OK)

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        headers = {"If-None-Match": "*"} if only_if_absent else {}
        if isinstance(data, bytes):
            return await self._ask("PUT", self.url(key), headers, hoped_for=_OK, data=data, size=len(data))
        size = data.stat().st_size
        if not size:
            return await self._ask("PUT", self.url(key), headers, hoped_for=_OK, data=b"")
        headers["Content-Length"] = str(size)
        with open(data, "rb") as body:
            return await self._ask("PUT", self.url(key), headers, hoped_for=_OK, data=body, size=size)

    async def delete(self, key: str) -> Answer:
        return await self._ask("DELETE", self.url(key), {}, hoped_for=_GONE)

    async def listing(self, prefix: str) -> AsyncIterator[Listed]:
        """Objects below ``prefix`` (ListObjectsV2, a page of up to 1,000 at a time)."""
        query = {"list-type": "2", "prefix": self._prefix + prefix}
        while True:
            asked = f"{self._bucket_url}/?{urlencode(sorted(query.items()), quote_via=quote)}"
            answer = await self._ask("GET", asked, {}, hoped_for=_OK, bound=_MAX_LISTING_BYTES)
            if answer.status != _OK:
                raise EnvironmentFault(
                    f"{self._bucket_url} cannot be listed (status {answer.status})", "Check the bucket and its rights"
                )
            token = None
            for element in ElementTree.fromstring(answer.body):
                name = element.tag.rpartition("}")[2]
                if name == "Contents":
                    fields = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
                    key = fields["Key"].removeprefix(self._prefix)
                    modified = _seconds(fields.get("LastModified", ""))
                    yield Listed(key, int(fields.get("Size", "0")), fields.get("ETag"), modified)
                elif name == "NextContinuationToken":
                    token = element.text
            if not token:
                return
            query["continuation-token"] = token

    async def close(self) -> None:
        await self._client.close()


def _seconds(stated: str) -> float:
    try:
        return datetime.fromisoformat(stated).timestamp()
    except ValueError:
        return 0.0
