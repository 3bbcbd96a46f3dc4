"""What the files of an index that is built here are called, and what their names say.

A name follows from the archive file alone, so that the files that are there say what is done.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cc_pipeline.commoncrawl.paths import WarcFile
from cc_pipeline.errors import DataFault

#: Raised when the same archive file would give other rows: then all of them are read again, for a yes.
VERSION: Final = "1"
#: The subset of every file: a crawl without an index of its own keeps nothing apart.
SUBSET: Final = "warc"
_ARC_INDEX: Final = ".arc.parquet"
_WARC_INDEX: Final = ".warc.parquet"


@dataclass(frozen=True, slots=True)
class Shard:
    """The index of one archive file. ``filename`` is where its records are fetched from, ``key`` where the index lies
    in the lake's own place, ``part`` its number; ``segment`` is null in collections that a person named."""

    filename: str
    key: str
    part: int
    segment: str | None


def folder_of(crawl: str) -> str:
    """The key prefix of a crawl's index files, with the slash at its end."""
    return f"built-index/v{VERSION}/crawl={crawl}/subset={SUBSET}/"


def shard_of(crawl: str, filename: str, tag: str = "") -> Shard:
    """The index file that an archive file of ``crawl`` gets. ``tag`` tells contents of the same name apart."""
    digest = hashlib.sha256(f"{filename}\n{tag}".encode("utf-8", "surrogateescape")).hexdigest()
    try:
        about = WarcFile.from_path(filename)
        number, segment = about.number, about.segment
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
