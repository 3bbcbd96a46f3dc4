"""The limits of requests to each host, with their reasons. ``docs/faults.md`` has them as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.opening import is_loopback


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The limits of one host: ``rate`` in requests a second (``None``: no limit), ``concurrency`` requests in flight.

    ``cautious`` is the rate for a day after the host refused the address by 403 (``None``: it answers 403 about single
    objects). ``pauses``: whether refusals pause all requests; at a user's own bucket they are about the object.
    """

    rate: float | None
    concurrency: int
    cautious: float | None = None
    pauses: bool = True


#: Common Crawl's front. Its firewall counted requests of an address in 300 s: 900 of them in October 2023, 6,000 a
#: month later (cc-monitoring: aws/waf-webacl-*.json); users are refused at six to eight connections. ccrawl-cli runs
#: with 0.2 s a request, and 5/s are 1,500 in 300 s. Who was refused keeps to 800 for a day, less than any known limit.
FRONT: Final = SourceLimits(rate=5.0, concurrency=4, cautious=795 / 300)
#: Any other web host: nothing is known of it. At Hugging Face a public client runs at 20/s (Daft).
_OTHER_HOST: Final = SourceLimits(rate=10.0, concurrency=8)
#: The index server answers about 100,000 lookups an hour for everybody together.
_INDEX_SERVER: Final = SourceLimits(rate=1.0, concurrency=2)
#: S3 itself takes some 5,500 reads a second and prefix, but the bucket is everybody's, as above. Whoever takes more
#: than this share of it can be written to.
_BUCKET: Final = SourceLimits(rate=100.0, concurrency=128)
_OWN_MACHINE: Final = SourceLimits(rate=None, concurrency=128)
#: A bucket of one's own, where the lake lies, is nobody else's matter: what S3 takes well.
OWN_BUCKET_RATE: Final = 1_000.0

_FRONT_HOST: Final = "data.commoncrawl.org"
_BY_HOST: Final = {_FRONT_HOST: FRONT, "index.commoncrawl.org": _INDEX_SERVER}


def default_limits(source: str, s3_endpoint: str | None = None) -> SourceLimits:
    """Returns the limits of a source as ``open_store`` takes it."""
    scheme = scheme_of(source)
    if scheme in ("", "file"):
        return _OWN_MACHINE
    if scheme == "s3":
        if s3_endpoint is None or not is_loopback(host_of(s3_endpoint)):
            return _BUCKET
        return _OWN_MACHINE
    host = host_of(source)
    return _OWN_MACHINE if is_loopback(host) else _BY_HOST.get(host, _OTHER_HOST)


def chosen_limits(defaults: SourceLimits, rate: float | None, concurrency: int | None) -> SourceLimits:
    """Returns the defaults with the user's settings."""
    return replace(
        defaults,
        rate=defaults.rate if rate is None else rate,
        concurrency=defaults.concurrency if concurrency is None else concurrency,
    )


def refuse_nameless(
    source: str, s3_endpoint: str | None, rate: float | None, concurrency: int | None, contact: str
) -> None:
    """Raises ``UserInputError`` for more than the default limits of Common Crawl's own front or bucket without a
    contact address. Other buckets and private endpoints have no such limit."""
    is_bucket = scheme_of(source) == "s3" and s3_endpoint is None and host_of(source) == "commoncrawl"
    if contact or not (is_bucket or host_of(source) == _FRONT_HOST):
        return
    allowed = default_limits(source)
    for name, requested, limit, unit in (
        ("RATE", rate, allowed.rate, "requests a second"),
        # the bucket's concurrency is no courtesy limit, only what one machine can use
        ("CONCURRENCY", None if is_bucket else concurrency, allowed.concurrency, "requests at the same time"),
    ):
        if requested is not None and limit is not None and requested > limit:
            raise UserInputError(
                f"CC_PIPELINE_{name} is {requested:g}: more than {limit:g} {unit} to {source} are allowed only with a "
                "contact address. Set CC_PIPELINE_CONTACT, such as mailto:you@example.org, which is sent in the "
                f"User-Agent; or leave CC_PIPELINE_{name} unset"
            )


def shared_among(limits: SourceLimits, hosts: int) -> SourceLimits:
    """Returns the even share of one of ``hosts`` (at least 1) machines with the same source.

    The rates of all shares add up to ``limits``. So do concurrent requests, unless there are more machines: each may
    send one.
    """
    rate = None if limits.rate is None else limits.rate / hosts
    cautious = None if limits.cautious is None else limits.cautious / hosts
    return replace(limits, rate=rate, cautious=cautious, concurrency=max(1, limits.concurrency // hosts))
