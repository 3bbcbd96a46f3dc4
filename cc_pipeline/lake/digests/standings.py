"""Which numbers stand under which names in a table, at one of its versions: of the names that are asked for, or of all
in one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from cc_pipeline.lake.digests.digest import numbers_of_texts, spread
from cc_pipeline.lake.digests.folded import ANCHOR, Folded, but_for
from cc_pipeline.lake.digests.log import TransactionLog

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake

#: Names, each once in a table, with their numbers.
Standing = tuple[pa.Array, pa.Array]

#: Sums that names are divided over by what their numbers are: few enough to be kept, so many that of those which
#: differ hardly any has more than a few names.
_SUMS: Final = 1 << 16
#: What the Delta library, Arrow and the file system raise.
UNREADABLE: Final = (OSError, DeltaError, pa.ArrowException, ValueError)


class Standings:
    """The numbers of the tables of ``lake``. What is read for one question is kept for the next."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._logs: dict[str, TransactionLog] = {}
        self._folds: dict[str, Folded] = {}

    def log(self, table: str) -> TransactionLog:
        """The transactions in the log of ``table``."""
        if table not in self._logs:
            folder = self._lake.address(table).removeprefix("s3://")
            self._logs[table] = TransactionLog(self._lake.file_system(), folder)
        return self._logs[table]

    def _folded(self, table: str) -> Folded:
        if table not in self._folds:
            folder = self._lake.address(table).removeprefix("s3://")
            self._folds[table] = Folded(self._lake.file_system(), folder)
        return self._folds[table]

    def numbers(self, table: str, names: Collection[str], version: int | None) -> dict[str, int]:
        """The numbers of those of ``names`` that have one, as of ``version`` (default: now).

        Raises one of ``UNREADABLE``.
        """
        handle = self._lake.open(self._lake.specs[table])
        if handle is None or (version is not None and version < 0):
            return {}
        wanted = handle.version() if version is None else version
        found = self.log(table).find(wanted, [*names, ANCHOR])
        if found is None:
            then = handle if wanted == handle.version() else self._lake.open(self._lake.specs[table], wanted)
            asked = {} if then is None else {name: then.transaction_version(name) for name in [*names, ANCHOR]}
            found = {name: number for name, number in asked.items() if number is not None}
        anchor = found.pop(ANCHOR, None)
        if anchor is not None:
            found |= self._folded(table).find(anchor, [name for name in names if name not in found])
        return found

    def every(
        self, table: str, version: int | None = None, starting: str = "", but: Collection[str] = ()
    ) -> Iterator[Standing] | None:
        """All names in a table that begin with ``starting``, with their numbers, in no order, batch by batch; without
        folded files whose ``content`` is in ``but``. ``None`` where the log does not tell.

        Raises one of ``UNREADABLE``, as its iterator does.
        """
        handle = self._lake.open(self._lake.specs[table])
        if handle is None or (version is not None and version < 0):
            return iter(())
        wanted = handle.version() if version is None else version
        in_log = self.log(table).every(wanted)
        return None if in_log is None else self._every(table, wanted, starting, but, in_log)

    def _every(
        self, table: str, version: int, starting: str, but: Collection[str], in_log: Iterator[Standing]
    ) -> Iterator[Standing]:
        anchor = self._anchor(table, version)
        newer: list[pa.Array] = []
        for names, numbers in but_for(in_log, pa.array([ANCHOR])):
            mine = starting_with(names, numbers, starting)
            if anchor is not None:
                newer.append(mine[0])
            yield mine
        folded = but_for(self._folded(table).every(anchor, starting, but), pa.chunked_array(newer, pa.string()))
        yield from (starting_with(*one, starting) for one in folded)

    def _anchor(self, table: str, version: int) -> int | None:
        return (self.log(table).find(version, [ANCHOR]) or {}).get(ANCHOR)

    def differing(self, tables: Sequence[str], versions: Mapping[str, int], starting: str) -> list[str] | None:
        """The names that begin with ``starting`` and do not have the same number in all of ``tables``, at ``versions``
        (default: now); ``None`` where a log does not tell.

        Folded files that all tables have are not read. However many names there are, it holds those that differ and
        some others. Raises one of ``UNREADABLE``.
        """
        at = {table: versions.get(table, self._lake.version(table)) for table in tables}
        in_all = set.intersection(
            *({file.content for file in self._folded(table).files(self._anchor(table, at[table]))} for table in tables)
        )
        sums = []
        for table in tables:
            every = self.every(table, at[table], starting, in_all)
            if every is None:
                return None
            sums.append(_sums(every))
        unequal = np.zeros(_SUMS, np.bool_)
        for one, other in pairwise(sums):
            unequal |= one != other
        if not unequal.any():
            return []
        maybe: set[str] = set()
        for table in tables:
            for names, _ in self.every(table, at[table], starting, in_all) or ():
                maybe.update(names.filter(pa.array(unequal[_places(numbers_of_texts(names))])).to_pylist())
        # a name may stand in the log of one table, and folded in another
        found = [self.numbers(table, maybe, at[table]) for table in tables]
        return sorted(name for name in maybe if len({one.get(name) for one in found}) > 1)


def starting_with(names: pa.Array, numbers: pa.Array, starting: str) -> Standing:
    """Those of the names, with their numbers, that begin with a text."""
    if not starting:
        return names, numbers
    mine = pc.starts_with(names, starting)
    return names.filter(mine), numbers.filter(mine)


def _places(hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return (hashed >> np.uint64(48)).astype(np.int64)


def _sums(standing: Iterator[Standing]) -> npt.NDArray[np.uint64]:
    """What names and their numbers are, added up by the names, whatever their order."""
    sums = np.zeros(_SUMS, np.uint64)
    for names, numbers in standing:
        if len(names):
            hashed = numbers_of_texts(names)
            own = spread(hashed ^ spread(numbers.to_numpy(zero_copy_only=False).view(np.uint64)))
            np.add.at(sums, _places(hashed), own)
    return sums
