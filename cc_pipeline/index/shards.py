"""The files of an index that is built here, one for each archive file: their names and keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cc_pipeline.commoncrawl.paths import WarcFile
from cc_pipeline.errors import DataFault

#: Increased when the same archive file would give other rows: then all files are read again, after a confirmation.
VERSION: Final = "2"
#: The subset of every file: a crawl without a published index has no others.
SUBSET: Final = "warc"
_ARC_INDEX: Final = ".arc.parquet"
_WARC_INDEX: Final = ".warc.parquet"


@dataclass(frozen=True, slots=True)
class Shard:
    """The index of one archive file. Its records are fetched from ``filename``, ``key`` is the index's key in the lake
    store, ``part`` its number; ``segment`` is null in collections of the user's files."""

    filename: str
    key: str
    part: int
    segment: str | None


def folder_of(crawl: str) -> str:
    """Returns the key prefix of a crawl's index files, with the slash at its end."""
    return f"built-index/v{VERSION}/crawl={crawl}/subset={SUBSET}/"


def shard_of(crawl: str, filename: str, tag: str = "") -> Shard:
    """Returns the index file of an archive file of ``crawl``. ``tag`` distinguishes contents of the same name."""
    digest = hashlib.sha256(f"{filename}\n{tag}".encode("utf-8", "surrogateescape")).hexdigest()
    try:
        warc_file = WarcFile.from_path(filename)
        number, segment = warc_file.number, warc_file.segment
    except DataFault:
        number, segment = None, None
    part = int(digest[:7], 16) if number is None else number
    ending = _ARC_INDEX if is_arc(filename) else _WARC_INDEX
    return Shard(filename, f"{folder_of(crawl)}part-{part:05d}-{digest[:16]}{ending}", part, segment)


def is_arc(filename: str) -> bool:
    """Whether an archive file is an ARC file, by its name."""
    return filename.rpartition("/")[2].lower().removesuffix(".gz").endswith(".arc")


def holds_arc(path: str) -> bool:
    """Whether an index file points into an ARC file, by its name."""
    return path.endswith(_ARC_INDEX)
