"""Which archive file a 32-byte pointer means: the 2012 layout, or a list of files beside the index."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from typing import Protocol

from cc_pipeline.commoncrawl.arc_paths import ArcFile, arc_key
from cc_pipeline.errors import DataFault
from cc_pipeline.index.btree_format import Pointer

#: Bytes a list of files may have when unpacked; 90,000 names of a crawl are about 13 MB.
_MOST_BYTES = 512 << 20


class ArchiveNames(Protocol):
    """``key_of`` gives the key of the archive file a pointer means; ``archive_format`` is ``arc`` or ``warc``."""

    archive_format: str

    def key_of(self, pointer: Pointer) -> str: ...


class ArcNames:
    """The layouts of the ARC years, for the crawl that a pointer is of (see ``commoncrawl.arc_paths``)."""

    archive_format = "arc"

    def __init__(self, crawl: str = "CC-MAIN-2012") -> None:
        self.crawl = crawl

    def key_of(self, pointer: Pointer) -> str:
        """Raises ``DataFault`` for a date that no ARC file of the crawl can have."""
        return arc_key(ArcFile(self.crawl, pointer.segment, pointer.date, pointer.partition))


class ListedNames:
    """A list of archive files in which a pointer's ``partition`` is the line number, counted from 0."""

    def __init__(self, files: Iterable[str], source: str, archive_format: str = "warc") -> None:
        self.files = tuple(files)
        self.source = source
        self.archive_format = archive_format

    def key_of(self, pointer: Pointer) -> str:
        """Raises ``DataFault`` for a number that is not in the list."""
        if pointer.partition >= len(self.files):
            raise DataFault(self.source, None, f"pointer to file {pointer.partition} of {len(self.files)}")
        return self.files[pointer.partition]


def pack_names(files: Iterable[str]) -> bytes:
    """A list of files as it is stored: UTF-8 lines, gzip, the same bytes for the same list."""
    return gzip.compress("".join(f"{name}\n" for name in files).encode(), mtime=0)


def unpack_names(data: bytes, source: str) -> tuple[str, ...]:
    """The files of a stored list. Raises ``DataFault`` for anything else."""
    try:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(data, _MOST_BYTES)
        if not inflater.eof:
            raise DataFault(source, None, "the list of files is cut or too long")
        lines = text.decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as error:
        raise DataFault(source, None, f"the list of files cannot be read ({error})") from error
    if lines.pop():
        raise DataFault(source, None, "the list of files ends inside a line")
    return tuple(lines)
