"""How to reach S3, and the fault to raise when there are no credentials."""

from __future__ import annotations

from dataclasses import dataclass

from cc_pipeline.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach S3. ``endpoint`` is the address of another S3 server (then the bucket goes into the path).

    Without ``access_key`` botocore's usual chain gives credentials (environment, profile files, instance role).
    ``anonymous`` sends unsigned requests.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False
    profile: str | None = None
    access_key: str | None = None
    secret_key: str | None = None


def needs_credentials(place: str) -> EnvironmentFault:
    """The fault to raise when a place needs signed requests and there are no credentials to sign with."""
    return EnvironmentFault(
        f"{place} needs credentials and none were found",
        "Log in with the AWS tools, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use "
        "https://data.commoncrawl.org, which needs no account",
    )
