"""A person names places in many ways: a folder, a web address, a bucket with settings of its own. What they mean, and
which of them is Common Crawl's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import host_of, scheme_of, shown, split_access
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings.environment import PREFIX, yes_from

DEFAULT_REGION: Final = "us-east-1"
_NAMES: Final = ("endpoint", "region", "profile", "anonymous")

DEFAULT_SOURCE: Final = "https://data.commoncrawl.org"
DEFAULT_COLLINFO: Final = "https://index.commoncrawl.org/collinfo.json"
#: The file in the root of a generated bucket that says that it was generated: whoever gets rows from it is told so.
MINI_CRAWL_MARK: Final = "MINI-CRAWL.txt"
WEB: Final = ("http", "https")
#: What stands between several places. No web or S3 address has a space in it, and a folder's name may: so a folder is
#: told from the rest of the one before it by how it begins.
BETWEEN_PLACES: Final = ", "
_BETWEEN: Final = re.compile(
    r"(?:,\s++|(?<!\s)[^\S\n]*+\n\s*+)(?=[A-Za-z][A-Za-z0-9+.-]*://|[/~.])|(?<!\s)\s++(?=[A-Za-z][A-Za-z0-9+.-]*://)"
)
_PUBLIC_HOST: Final = "data.commoncrawl.org"
_PUBLIC_BUCKET: Final = "commoncrawl"
_MIRROR_HOST: Final = "huggingface.co"
_MIRROR_FOLDER: Final = "/buckets/commoncrawl/commoncrawl/"
_MAIN_CRAWL: Final = re.compile(r"CC-MAIN-(\d{4})-\d{2}")
_FIRST_MIRRORED: Final = 2026
#: Where the keys of Common Crawl's bucket are found at its mirror (huggingface_hub 2.4.0: no revision in the path).
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
    """By bucket what texts such as ``s3://mine endpoint=https://s3.example region=eu-west-1`` say of it.

    Raises ``UserInputError`` for what cannot be used, without repeating what may be a secret.
    """
    found: dict[str, BucketSettings] = {}
    for text in texts:
        place, *words = text.split()
        bucket = host_of(place)
        if scheme_of(place) != "s3" or place.rstrip("/").lower() != f"s3://{bucket}" or not bucket:
            raise UserInputError(
                f"{PREFIX}S3_PLACES: {shown(place)!r} is no bucket; write s3://bucket endpoint=… region=…"
            )
        given = dict(_pair(bucket, word) for word in words)
        endpoint = given.get("endpoint")
        if endpoint is not None:
            problem = endpoint_problem(endpoint)
            if problem is not None:
                raise UserInputError(f"{PREFIX}S3_PLACES {problem}")
        found[bucket] = BucketSettings(
            endpoint,
            given.get("region", DEFAULT_REGION),
            yes_from(f"S3_PLACES (s3://{bucket} anonymous)", given.get("anonymous", "no")),
            given.get("profile"),
        )
    return found


def endpoint_problem(endpoint: str) -> str | None:
    """What is wrong with an endpoint that has credentials in it, which are not repeated; ``None`` for any other."""
    if not split_access(endpoint)[1]:
        return None
    return (
        f"is {shown(endpoint)} with credentials in it; give it without, and log in with the AWS tools or "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def buckets_problem(texts: Iterable[str]) -> None:
    """Nothing for texts that :func:`read_buckets` can read. Raises as that."""
    read_buckets(texts)


def _pair(bucket: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if name not in _NAMES or not equals or not value:
        raise UserInputError(
            f"{PREFIX}S3_PLACES says something of s3://{bucket} that is none of {', '.join(_NAMES)}; write name=value "
            "with a space between two"
        )
    return name, value


def split_places(text: str) -> tuple[str, ...]:
    """The places that a text names, in their order: a comma and a space, or a new line, stand between them."""
    return tuple(part.strip().rstrip(",") for part in _BETWEEN.split(text.strip()) if part.strip(" ,\n"))


def normalise_root(text: str) -> str:
    """An absolute folder, or an ``http(s)://``/``s3://`` address without credentials and without its last slash.

    Raises ``UserInputError`` for anything else.
    """
    scheme = text.partition(":")[0].lower() if ":" in text else ""
    if scheme in (*WEB, "s3"):
        place = split_access(text)[0]
        if not host_of(place):
            raise UserInputError(f"{shown(text)!r} names no host or bucket")
        return place.rstrip("/")
    if scheme == "file":
        return str(Path(urlsplit(text).path).resolve())
    if "://" in text:
        raise UserInputError(f"{shown(text)!r}: use a folder, http://, https:// or s3://")
    return str(Path(text).expanduser().resolve())


def is_public(source: str, s3_endpoint: str | None) -> bool:
    """Whether ``source`` is Common Crawl's own bucket: its host, or its bucket at AWS.

    A bucket of that name behind another endpoint is somebody else's.
    """
    if scheme_of(source) == "s3":
        return host_of(source) == _PUBLIC_BUCKET and (s3_endpoint is None or _is_aws(s3_endpoint))
    return host_of(source) == _PUBLIC_HOST


def is_mirror(source: str) -> bool:
    """Whether ``source`` is the copy of Common Crawl's bucket that Common Crawl keeps at Hugging Face."""
    path = urlsplit(source).path if scheme_of(source) in WEB else ""
    return host_of(source) == _MIRROR_HOST and f"{path}/".startswith(_MIRROR_FOLDER)


def may_be_mirrored(crawl: str) -> bool:
    """Whether records of a crawl may be at Common Crawl's official mirror, which has main crawls from 2026 on, some of
    them in part (Daft, PR 7103; cc-downloader, issue 34)."""
    match = _MAIN_CRAWL.fullmatch(crawl)
    return match is not None and int(match[1]) >= _FIRST_MIRRORED


def _is_aws(endpoint: str) -> bool:
    # other names below amazonaws.com are machines and gateways that anybody may own
    labels = host_of(endpoint).split(".")
    return labels[0] == "s3" and labels[-2:] == ["amazonaws", "com"]
