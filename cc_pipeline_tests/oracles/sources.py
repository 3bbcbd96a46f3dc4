"""The sources of the frozen homes: their digests, and what their bytes depend on."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pyarrow as pa

from cc_pipeline.settings.source_addresses import MINI_CRAWL_MARK


def digest_source(bucket: Path) -> str:
    """A digest of the names and bytes of all files of a source that rows are made from."""
    digest = hashlib.sha256()
    for path in sorted(one for one in bucket.rglob("*") if one.is_file() and one.name != MINI_CRAWL_MARK):
        digest.update(f"{path.relative_to(bucket)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def list_writers() -> dict[str, str]:
    """The libraries that the bytes of a generated source depend on, with their versions."""
    return {"pyarrow": pa.__version__, "zlib": zlib.ZLIB_RUNTIME_VERSION}
