"""Digests that have left a table's log: sorted files beside it, which one transaction of the log names.

A log is opened by every process, and a digest a slice makes it long. So upkeep folds them (``folding.py``): the table
``_folded`` in the table's folder has all that the log said then. What the log says counts first, so that nothing
depends on when a digest leaves it.

A list names the files and where each begins; the number of the list is what the transaction ``ANCHOR`` says. A file
begins at a name whose hash says so, and is called by what it holds: tables with the same digests have equal files,
and a fold writes only those anew into which something falls.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from cc_pipeline.lake.digests.digest import digest_from_int

#: The transaction that names the list.
ANCHOR: Final = "folded"
#: Below a table's folder. What begins so is none of the table's data for those who delete such.
FOLDER: Final = "_folded"
#: Lists that are remembered.
_REMEMBERED: Final = 4


@dataclass(frozen=True, slots=True)
class FoldedFile:
    """A file of the list: its ``name`` and the name of a digest that it begins at."""

    first: str
    name: str

    @property
    def content(self) -> str:
        """The same for files that hold the same, in whatever table."""
        return self.name.partition("-")[0]


class Folded:
    """The folded digests of one table, in its ``folder`` on ``files``.

    Every method raises ``OSError``, ``pa.ArrowException`` or ``ValueError`` for what cannot be read.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self.folder = f"{folder}/{FOLDER}"
        self._lists: dict[int, list[FoldedFile]] = {}
        self._known: dict[int, dict[str, int | None]] = {}

    def files(self, anchor: int | None) -> list[FoldedFile]:
        """The files of a list, in their order; of none, none."""
        if anchor is None:
            return []
        if anchor not in self._lists:
            with self._files.open_input_file(f"{self.folder}/{digest_from_int(anchor)}.json") as file:
                self._lists[anchor] = [FoldedFile(*one) for one in json.loads(file.read())["files"]]
            for old in list(self._lists)[:-_REMEMBERED]:
                del self._lists[old]
                self._known.pop(old, None)
        return self._lists[anchor]

    def find(self, anchor: int, names: Collection[str]) -> dict[str, int]:
        """The numbers of those of ``names`` that have one."""
        files = self.files(anchor)
        known = self._known.setdefault(anchor, {})
        firsts = [file.first for file in files]
        by_file: dict[int, list[str]] = {}
        for name in names:
            if name not in known:
                by_file.setdefault(bisect_right(firsts, name) - 1, []).append(name)
        for place, own in by_file.items():
            known |= dict.fromkeys(own)
            if place >= 0:
                here, numbers = self.read(files[place])
                mine = pc.is_in(here, value_set=pa.array(own, pa.string()))
                known |= zip(here.filter(mine).to_pylist(), numbers.filter(mine).to_pylist(), strict=True)
        return {name: number for name in names if (number := known[name]) is not None}

    def every(
        self, anchor: int | None, starting: str = "", but: Collection[str] = ()
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Names with their numbers, file by file, in order: of the files that may have names that begin with
        ``starting``, without those whose ``content`` is in ``but``."""
        files = self.files(anchor)
        for file, following in zip(files, [*files[1:], None], strict=False):
            behind = following is not None and following.first <= starting
            if file.content not in but and not behind and file.first[: len(starting)] <= starting:
                yield self.read(file)

    def read(self, file: FoldedFile) -> tuple[pa.Array, pa.Array]:
        """The names in a file, sorted, and their numbers."""
        with self._files.open_input_file(f"{self.folder}/{file.name}") as source:
            rows = pq.read_table(source, use_threads=False).combine_chunks()
        return _whole(rows.column("name")), _whole(rows.column("number"))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def but_for(
    standing: Iterable[tuple[pa.Array, pa.Array]], names: pa.Array | pa.ChunkedArray
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Names with their numbers, without ``names``."""
    for own, numbers in standing:
        others = pc.invert(pc.is_in(own, value_set=names))
        yield own.filter(others), numbers.filter(others)
