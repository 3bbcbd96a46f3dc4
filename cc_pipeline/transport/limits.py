"""How fast a place may be asked, by default: gentle for what everybody shares, free for one's own machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from cc_pipeline.stores.opening import is_loopback


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Per host and machine: ``rate`` in requests per second (``None``: as fast as it goes), ``concurrency`` in
    requests under way. ``shared`` says whether other processes of this machine count too."""

    rate: float | None
    concurrency: int
    shared: bool = True


#: The public mirror. Common Crawl asks for a few thousand requests a second from everybody together.
_PUBLIC = SourceLimits(rate=10.0, concurrency=8)
#: The index server answers about 100,000 look-ups an hour for everybody together.
_INDEX_SERVER = SourceLimits(rate=1.0, concurrency=2)
#: S3 itself takes some 5,500 reads a second and prefix.
_BUCKET = SourceLimits(rate=1_000.0, concurrency=128)
_OWN_MACHINE = SourceLimits(rate=None, concurrency=128, shared=False)

_BY_HOST = {"data.commoncrawl.org": _PUBLIC, "index.commoncrawl.org": _INDEX_SERVER}


def default_limits(source: str, s3_endpoint: str | None = None) -> SourceLimits:
    """The limits of a source as ``open_store`` takes it."""
    scheme = source.partition("://")[0].lower() if "://" in source else "file"
    if scheme == "file":
        return _OWN_MACHINE
    if scheme == "s3":
        if s3_endpoint is None or not is_loopback(urlsplit(s3_endpoint).hostname or ""):
            return _BUCKET
        return _OWN_MACHINE
    host = urlsplit(source).hostname or ""
    return _OWN_MACHINE if is_loopback(host) else _BY_HOST.get(host, _PUBLIC)


def chosen_limits(defaults: SourceLimits, rate: float | None, concurrency: int | None) -> SourceLimits:
    """The defaults with what a person set; a rate set on purpose is shared by the machine's processes."""
    limits = defaults
    if rate is not None:
        limits = replace(limits, rate=rate, shared=True)
    if concurrency is not None:
        limits = replace(limits, concurrency=concurrency)
    return limits
