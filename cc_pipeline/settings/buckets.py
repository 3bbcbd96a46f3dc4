"""How each bucket is reached, where several S3 places are not all at one endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cc_pipeline.addresses import host_of, scheme_of, shown, split_access
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings.environment import PREFIX, yes_from

DEFAULT_REGION: Final = "us-east-1"
_NAMES: Final = ("endpoint", "region", "profile", "anonymous")


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
            check_endpoint("S3_PLACES", endpoint)
        found[bucket] = BucketSettings(
            endpoint,
            given.get("region", DEFAULT_REGION),
            yes_from(f"S3_PLACES (s3://{bucket} anonymous)", given.get("anonymous", "no")),
            given.get("profile"),
        )
    return found


def check_endpoint(variable: str, endpoint: str) -> None:
    """Raises ``UserInputError`` for an endpoint with credentials in it, which it does not repeat."""
    if split_access(endpoint)[1]:
        raise UserInputError(
            f"{PREFIX}{variable} is {shown(endpoint)} with credentials in it; give it without, and log in with the AWS "
            "tools or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


def _pair(bucket: str, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if name not in _NAMES or not equals or not value:
        raise UserInputError(
            f"{PREFIX}S3_PLACES says something of s3://{bucket} that is none of {', '.join(_NAMES)}; write name=value "
            "with a space between two"
        )
    return name, value
