"""Parses places: a folder, a web address, or a bucket with settings of its own. Recognizes Common Crawl's own
places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import host_of, redact_address, scheme_of, split_access
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings.environment import PREFIX, yes_from

DEFAULT_REGION: Final = "us-east-1"
_NAMES: Final = ("endpoint", "region", "profile", "anonymous")

DEFAULT_SOURCE: Final = "https://data.commoncrawl.org"
DEFAULT_COLLINFO: Final = "https://index.commoncrawl.org/collinfo.json"
#: The file in the root of a generated bucket that marks it as generated: users of its rows are warned.
MINI_CRAWL_MARK: Final = "MINI-CRAWL.txt"
WEB: Final = ("http", "https")
#: The separator of places. A folder's name may contain it, addresses cannot. So a folder after another one is
#: recognized by its beginning.
BETWEEN_PLACES: Final = ", "
_PLACE_SEPARATOR: Final = re.compile(
    r"(?:,\s++|(?<!\s)[^\S\n]*+\n\s*+)(?=[A-Za-z][A-Za-z0-9+.-]*://|[/~.])|(?<!\s)\s++(?=[A-Za-z][A-Za-z0-9+.-]*://)"
)
_PUBLIC_HOST: Final = "data.commoncrawl.org"
_PUBLIC_BUCKET: Final = "commoncrawl"
_MIRROR_HOST: Final = "huggingface.co"
_MIRROR_FOLDER: Final = "/buckets/commoncrawl/commoncrawl/"
_MAIN_CRAWL: Final = re.compile(r"CC-MAIN-(\d{4})-\d{2}")
_FIRST_MIRRORED: Final = 2026
#: The root of Common Crawl's bucket at its mirror (huggingface_hub 2.4.0: no revision in the path).
OFFICIAL_MIRROR: Final = f"https://{_MIRROR_HOST}{_MIRROR_FOLDER}resolve"


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """``endpoint`` is the address of an S3 server that is not AWS, ``profile`` the AWS profile whose credentials sign
    requests (``None``: what the usual chain finds); ``anonymous`` requests are not signed."""

    endpoint: str | None = None
    region: str = DEFAULT_REGION
    anonymous: bool = False
    profile: str | None = None


def read_buckets(texts: Iterable[str]) -> Mapping[str, BucketSettings]:
    """Parses texts such as ``s3://mine endpoint=https://s3.example region=eu-west-1``. Returns the settings by bucket.

    Raises ``UserInputError`` for an invalid text, without repeating possible secrets.
    """
    buckets: dict[str, BucketSettings] = {}
    for text in texts:
        place, *words = text.split()
        bucket = host_of(place)
        if scheme_of(place) != "s3" or place.rstrip("/").lower() != f"s3://{bucket}" or not bucket:
            raise UserInputError(
                f"{PREFIX}S3_PLACES: {redact_address(place)!r} is no bucket; write s3://BUCKET endpoint=… region=…"
            )
        options = dict(_pair(bucket, word) for word in words)
        endpoint = options.get("endpoint")
        if endpoint is not None:
            problem = endpoint_problem(endpoint)
            if problem is not None:
                raise UserInputError(f"{PREFIX}S3_PLACES {problem}")
        buckets[bucket] = BucketSettings(
            endpoint,
            options.get("region", DEFAULT_REGION),
            yes_from(f"S3_PLACES (s3://{bucket} anonymous)", options.get("anonymous", "no")),
            options.get("profile"),
        )
    return buckets


def endpoint_problem(endpoint: str) -> str | None:
    """Returns an error for an endpoint with credentials, without repeating them; ``None`` for others."""
    if not split_access(endpoint)[1]:
        return None
    return (
        f"is {redact_address(endpoint)} with credentials in the address; remove these, and log in with the AWS tools "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def buckets_problem(texts: Iterable[str]) -> None:
    """Checks texts with :func:`read_buckets`; raises as that."""
    read_buckets(texts)


def _pair(bucket: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if name not in _NAMES or not equals or not value:
        raise UserInputError(
            f"{PREFIX}S3_PLACES for s3://{bucket} has a part that is none of {', '.join(_NAMES)}; write name=value "
            "with spaces between them"
        )
    return name, value


def split_places(text: str) -> tuple[str, ...]:
    """Splits a text into places, in order: their separator is a comma and a space, or a new line."""
    return tuple(part.strip().rstrip(",") for part in _PLACE_SEPARATOR.split(text.strip()) if part.strip(" ,\n"))


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


def is_mirror(source: str) -> bool:
    """Whether ``source`` is the copy of Common Crawl's bucket that Common Crawl keeps at Hugging Face."""
    path = urlsplit(source).path if scheme_of(source) in WEB else ""
    return host_of(source) == _MIRROR_HOST and f"{path}/".startswith(_MIRROR_FOLDER)


def may_be_mirrored(crawl: str) -> bool:
    """Whether Common Crawl's official mirror may have records of a crawl. It has main crawls from 2026 on, some of them
    partially (Daft, PR 7103; cc-downloader, issue 34)."""
    match = _MAIN_CRAWL.fullmatch(crawl)
    return match is not None and int(match[1]) >= _FIRST_MIRRORED


def _is_aws(endpoint: str) -> bool:
    # other names below amazonaws.com are machines and gateways of anybody
    labels = host_of(endpoint).split(".")
    return labels[0] == "s3" and labels[-2:] == ["amazonaws", "com"]
