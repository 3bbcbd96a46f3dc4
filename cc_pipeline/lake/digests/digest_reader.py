"""Reads the digests of a table at one of its versions: those of some names, or all in one pass.

Every process opens the log, and a digest a slice makes it long. So maintenance folds the digests (``folding.py``): the
folder ``_folded`` in the table's folder has all digests of the log at that time. The log counts first, so nothing
depends on when a digest leaves it.

A list names the files and the first name of each; the transaction ``ANCHOR`` has the number of the list. A file begins
at a name whose hash says so, and is named by its content: tables with the same digests have equal files, and a fold
rewrites only the files that get new digests.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSystem

from cc_pipeline.lake.digests.digest import digest_from_int, hash_texts, mix_bits
from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS, TransactionLog, UnknownDigests

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake

#: Names, each once in a table, with their numbers.
DigestBatch = tuple[pa.Array, pa.Array]

#: Buckets over which names are divided by their hashes: few enough to be kept, and so many that a bucket with a
#: difference has hardly more than a few names.
_BUCKETS: Final = 1 << 16
#: The errors of the Delta library, Arrow and the file system.
UNREADABLE: Final = (OSError, DeltaError, pa.ArrowException, ValueError)


class DigestReader:
    """Reads the digests of the tables of ``lake``. Files read for one question are kept for the next."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._logs: dict[str, TransactionLog] = {}
        self._folds: dict[str, FoldedDigests] = {}

    def log(self, table: str) -> TransactionLog:
        """The transactions in the log of ``table``."""
        if table not in self._logs:
            folder = self._lake.address(table).removeprefix("s3://")
            self._logs[table] = TransactionLog(self._lake.file_system(), folder)
        return self._logs[table]

    def _folded(self, table: str) -> FoldedDigests:
        if table not in self._folds:
            folder = self._lake.address(table).removeprefix("s3://")
            self._folds[table] = FoldedDigests(self._lake.file_system(), folder)
        return self._folds[table]

    def read_numbers(self, table: str, names: Collection[str], version: int | None) -> dict[str, int]:
        """The numbers of those of ``names`` that have one, as of ``version`` (default: now).

        Raises one of ``UNREADABLE``.
        """
        table_version = self._lake.version(table) if version is None else version
        if table_version < 0:
            return {}
        numbers = self._read_from_log(table, [*names, ANCHOR], table_version)
        anchor = numbers.pop(ANCHOR, None)
        if anchor is not None:
            numbers |= self._folded(table).find(anchor, [name for name in names if name not in numbers])
        return numbers

    def _read_from_log(self, table: str, names: Collection[str], version: int) -> dict[str, int]:
        """The numbers in the log of those of ``names`` that have one. The library is asked if the reader of the log
        does not tell."""
        numbers = self.log(table).find(version, names)
        if numbers is not UNKNOWN_DIGESTS:
            return numbers
        handle = self._lake.open(self._lake.specs[table], version)
        all_numbers = {} if handle is None else {name: handle.transaction_version(name) for name in names}
        return {name: number for name, number in all_numbers.items() if number is not None}

    def read_all(
        self, table: str, version: int | None = None, prefix: str = "", excluded: Collection[str] = ()
    ) -> Iterator[DigestBatch] | UnknownDigests:
        """All names in a table that begin with ``prefix``, with their numbers, in no order, batch by batch; without
        folded files whose ``content`` is in ``excluded``. ``UNKNOWN_DIGESTS`` if the log does not tell.

        Raises one of ``UNREADABLE``, as its iterator does.
        """
        table_version = self._lake.version(table) if version is None else version
        if table_version < 0:
            return iter(())
        in_log = self.log(table).read_all(table_version)
        return (
            UNKNOWN_DIGESTS
            if in_log is UNKNOWN_DIGESTS
            else self._read_batches(table, table_version, prefix, excluded, in_log)
        )

    def _read_batches(
        self, table: str, version: int, prefix: str, excluded: Collection[str], in_log: Iterator[DigestBatch]
    ) -> Iterator[DigestBatch]:
        anchor = self._read_anchor(table, version)
        newer: list[pa.Array] = []
        for names, numbers in exclude_names(in_log, pa.array([ANCHOR])):
            matching = filter_by_prefix(names, numbers, prefix)
            if anchor is not None:
                newer.append(matching[0])
            yield matching
        folded = exclude_names(
            self._folded(table).read_all(anchor, prefix, excluded), pa.chunked_array(newer, pa.string())
        )
        yield from (filter_by_prefix(*batch, prefix) for batch in folded)

    def _read_anchor(self, table: str, version: int) -> int | None:
        return self._read_from_log(table, [ANCHOR], version).get(ANCHOR) if version >= 0 else None

    def find_differing(
        self, tables: Sequence[str], versions: Mapping[str, int], prefix: str
    ) -> list[str] | UnknownDigests:
        """The names that begin with ``prefix`` and do not have the same number in all of ``tables``, at ``versions``
        (default: now); ``UNKNOWN_DIGESTS`` if a log does not tell.

        Folded files that all tables have are not read. Memory is bounded: only differing names and a few others are
        held. Raises one of ``UNREADABLE``.
        """
        table_versions = {table: versions.get(table, self._lake.version(table)) for table in tables}
        shared_contents = set.intersection(
            *(
                {
                    file.content
                    for file in self._folded(table).list_files(self._read_anchor(table, table_versions[table]))
                }
                for table in tables
            )
        )
        sums = []
        for table in tables:
            batches = self.read_all(table, table_versions[table], prefix, shared_contents)
            if batches is UNKNOWN_DIGESTS:
                return UNKNOWN_DIGESTS
            sums.append(_sum_by_bucket(batches))
        unequal = np.zeros(_BUCKETS, np.bool_)
        for first_sums, next_sums in pairwise(sums):
            unequal |= first_sums != next_sums
        if not unequal.any():
            return []
        possible_names: set[str] = set()
        for table in tables:
            batches = self.read_all(table, table_versions[table], prefix, shared_contents)
            if batches is UNKNOWN_DIGESTS:
                return UNKNOWN_DIGESTS
            for names, _ in batches:
                possible_names.update(names.filter(pa.array(unequal[_hash_buckets(hash_texts(names))])).to_pylist())
        # a name may be in the log of one table, and folded in another
        numbers_by_table = [self.read_numbers(table, possible_names, table_versions[table]) for table in tables]
        return sorted(
            name for name in possible_names if len({table_numbers.get(name) for table_numbers in numbers_by_table}) > 1
        )


def filter_by_prefix(names: pa.Array, numbers: pa.Array, prefix: str) -> DigestBatch:
    """The names that begin with a text, with their numbers."""
    if not prefix:
        return names, numbers
    is_matching = pc.starts_with(names, prefix)
    return names.filter(is_matching), numbers.filter(is_matching)


def _hash_buckets(hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return (hashed >> np.uint64(48)).astype(np.int64)


def _sum_by_bucket(batches: Iterator[DigestBatch]) -> npt.NDArray[np.uint64]:
    """The sums of hashed names and numbers by bucket of the name, whatever their order."""
    sums = np.zeros(_BUCKETS, np.uint64)
    for names, numbers in batches:
        if len(names):
            hashed = hash_texts(names)
            name_sums = mix_bits(hashed ^ mix_bits(numbers.to_numpy(zero_copy_only=False).view(np.uint64)))
            np.add.at(sums, _hash_buckets(hashed), name_sums)
    return sums


#: The transaction that names the list.
ANCHOR: Final = "folded"
#: Below a table's folder. Vacuum takes names that begin like this for no data of the table.
FOLDER: Final = "_folded"
#: Lists that are remembered.
_REMEMBERED_LISTS: Final = 4


@dataclass(frozen=True, slots=True)
class FoldedFile:
    """A file of the list: its ``name`` and the first digest name in it."""

    first: str
    name: str

    @property
    def content(self) -> str:
        """The part of the name that is equal for files with equal content, in any table."""
        return self.name.partition("-")[0]


class FoldedDigests:
    """The folded digests of one table, in its ``folder`` on ``list_files``.

    Every method raises ``OSError``, ``pa.ArrowException`` or ``ValueError`` for files that cannot be read.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self.folder = f"{folder}/{FOLDER}"
        self._files_by_anchor: dict[int, list[FoldedFile]] = {}
        self._numbers_by_anchor: dict[int, dict[str, int | None]] = {}

    def list_files(self, anchor: int | None) -> list[FoldedFile]:
        """The files of a list, in their order; empty without a list."""
        if anchor is None:
            return []
        if anchor not in self._files_by_anchor:
            with self._files.open_input_file(f"{self.folder}/{digest_from_int(anchor)}.json") as file:
                self._files_by_anchor[anchor] = [FoldedFile(*pair) for pair in json.loads(file.read())["files"]]
            for old_anchor in list(self._files_by_anchor)[:-_REMEMBERED_LISTS]:
                del self._files_by_anchor[old_anchor]
                self._numbers_by_anchor.pop(old_anchor, None)
        return self._files_by_anchor[anchor]

    def find(self, anchor: int, names: Collection[str]) -> dict[str, int]:
        """The numbers of those of ``names`` that have one."""
        files = self.list_files(anchor)
        numbers_by_name = self._numbers_by_anchor.setdefault(anchor, {})
        firsts = [file.first for file in files]
        by_file: dict[int, list[str]] = {}
        for name in names:
            if name not in numbers_by_name:
                by_file.setdefault(bisect_right(firsts, name) - 1, []).append(name)
        for position, requested_names in by_file.items():
            numbers_by_name |= dict.fromkeys(requested_names)
            if position >= 0:
                stored_names, numbers = self.read_file(files[position])
                is_requested = pc.is_in(stored_names, value_set=pa.array(requested_names, pa.string()))
                numbers_by_name |= zip(
                    stored_names.filter(is_requested).to_pylist(), numbers.filter(is_requested).to_pylist(), strict=True
                )
        return {name: number for name in names if (number := numbers_by_name[name]) is not None}

    def read_all(
        self, anchor: int | None, prefix: str = "", excluded: Collection[str] = ()
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Names with their numbers, file by file, in order: of the files that may have names that begin with
        ``prefix``, without files whose ``content`` is in ``excluded``."""
        files = self.list_files(anchor)
        for file, next_file in zip(files, [*files[1:], None], strict=False):
            ends_before = next_file is not None and next_file.first <= prefix
            if file.content not in excluded and not ends_before and file.first[: len(prefix)] <= prefix:
                yield self.read_file(file)

    def read_file(self, file: FoldedFile) -> tuple[pa.Array, pa.Array]:
        """The names in a file, sorted, and their numbers."""
        with self._files.open_input_file(f"{self.folder}/{file.name}") as source:
            rows = pq.read_table(source, use_threads=False).combine_chunks()
        return _join_chunks(rows.column("name")), _join_chunks(rows.column("number"))


def _join_chunks(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def exclude_names(
    batches: Iterable[tuple[pa.Array, pa.Array]], names: pa.Array | pa.ChunkedArray
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Names with their numbers, without ``names``."""
    for batch_names, numbers in batches:
        is_other_name = pc.invert(pc.is_in(batch_names, value_set=names))
        yield batch_names.filter(is_other_name), numbers.filter(is_other_name)
