"""Parses sources: a folder, a web address, or a bucket. Recognizes Common Crawl's own bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import host_of, redact_address, scheme_of, split_access
from cc_pipeline.errors import UserInputError

DEFAULT_REGION: Final = "us-east-1"

DEFAULT_SOURCE: Final = "https://data.commoncrawl.org"
DEFAULT_COLLINFO: Final = "https://index.commoncrawl.org/collinfo.json"
#: The file in the root of a generated bucket that marks it as generated: users of its rows are warned.
MINI_CRAWL_MARK: Final = "MINI-CRAWL.txt"
WEB: Final = ("http", "https")
_PUBLIC_HOST: Final = "data.commoncrawl.org"
_PUBLIC_BUCKET: Final = "commoncrawl"


def endpoint_problem(endpoint: str) -> str | None:
    """Returns an error for an endpoint with credentials, without repeating them; ``None`` for others."""
    if not split_access(endpoint)[1]:
        return None
    return (
        f"is {redact_address(endpoint)} with credentials in the address; remove these, and log in with the AWS tools "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def normalise_root(text: str) -> str:
    """Returns an absolute folder, or an ``http(s)://``/``s3://`` address without credentials and final slash.

    Raises ``UserInputError`` for anything else.
    """
    scheme = text.partition(":")[0].lower() if ":" in text else ""
    if scheme in (*WEB, "s3"):
        place = split_access(text)[0]
        if not host_of(place):
            raise UserInputError(f"{redact_address(text)!r} names no host or bucket")
        return place.rstrip("/")
    if scheme == "file":
        return str(Path(urlsplit(text).path).resolve())
    if "://" in text:
        raise UserInputError(f"{redact_address(text)!r}: use a folder, http://, https:// or s3://")
    return str(Path(text).expanduser().resolve())


def is_public(source: str, s3_endpoint: str | None) -> bool:
    """Whether ``source`` is Common Crawl's own bucket: its host, or its bucket at AWS.

    A bucket of that name at another endpoint belongs to somebody else.
    """
    if scheme_of(source) == "s3":
        return host_of(source) == _PUBLIC_BUCKET and (s3_endpoint is None or _is_aws(s3_endpoint))
    return host_of(source) == _PUBLIC_HOST


def _is_aws(endpoint: str) -> bool:
    # other names below amazonaws.com are machines and gateways of anybody
    labels = host_of(endpoint).split(".")
    return labels[0] == "s3" and labels[-2:] == ["amazonaws", "com"]
