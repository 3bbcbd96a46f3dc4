"""Addresses of all years as keys of the bucket of today."""

from __future__ import annotations

import re

from cc_pipeline.errors import DataFault

# Public data moved from the bucket aws-publicdatasets (under common-crawl/) to the bucket commoncrawl.
_PLACES = re.compile(
    r"(?:s3[an]?://(?:commoncrawl|aws-publicdatasets)/"
    r"|https?://(?:data\.commoncrawl\.org|commoncrawl\.s3[.a-z0-9-]*\.amazonaws\.com"
    r"|aws-publicdatasets\.s3[.a-z0-9-]*\.amazonaws\.com)/"
    r"|https?://s3[.a-z0-9-]*\.amazonaws\.com/(?:commoncrawl|aws-publicdatasets)/)"
)
_OLD_FOLDER = "common-crawl/"
_KEY = re.compile(r"[!-~]+")
_MAX_KEY = 1024


def current_key(address: str) -> str:
    """The key in today's bucket for an address of any year.

    ``s3://aws-publicdatasets/common-crawl/parse-output/…``, ``common-crawl/crawl-data/…``,
    ``https://data.commoncrawl.org/crawl-data/…`` and a plain key are all accepted. Raises ``DataFault`` for what is
    no key.
    """
    match = _PLACES.match(address)
    key = address[match.end() :] if match else address
    return clean_key(key.lstrip("/").removeprefix(_OLD_FOLDER))


def clean_key(key: str) -> str:
    """``key`` itself. Raises ``DataFault`` unless it is a relative path of printable ASCII without ``..``."""
    if len(key) > _MAX_KEY or not _KEY.fullmatch(key):
        raise DataFault(key[:100], None, "a key is 1 to 1024 printable ASCII characters")
    if "://" in key or "\\" in key or any(part in ("", ".", "..") for part in key.rstrip("/").split("/")):
        raise DataFault(key[:100], None, "a key is a relative path without '..' and without empty parts")
    return key
