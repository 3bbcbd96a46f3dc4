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

from cc_pipeline.lake.digests import numbers_of_texts, spread
from cc_pipeline.lake.log import TransactionLog

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

    def log(self, table: str) -> TransactionLog:
        """The transactions in the log of ``table``."""
        if table not in self._logs:
            folder = self._lake.address(table).removeprefix("s3://")
            self._logs[table] = TransactionLog(self._lake.file_system(), folder)
        return self._logs[table]

    def numbers(self, table: str, names: Collection[str], version: int | None) -> dict[str, int]:
        """The numbers of those of ``names`` that have one, as of ``version`` (default: now)."""
        handle = self._lake.open(self._lake.specs[table])
        if handle is None or (version is not None and version < 0):
            return {}
        wanted = handle.version() if version is None else version
        found = self.log(table).find(wanted, names)
        if found is None:
            then = handle if wanted == handle.version() else self._lake.open(self._lake.specs[table], wanted)
            asked = {} if then is None else {name: then.transaction_version(name) for name in names}
            found = {name: number for name, number in asked.items() if number is not None}
        return found

    def every(self, table: str, version: int | None = None, starting: str = "") -> Iterator[Standing] | None:
        """All names in a table that begin with ``starting``, with their numbers, in no order, batch by batch; ``None``
        where the log does not tell.

        The iterator raises one of ``UNREADABLE``.
        """
        handle = self._lake.open(self._lake.specs[table])
        if handle is None or (version is not None and version < 0):
            return iter(())
        found = self.log(table).every(handle.version() if version is None else version)
        return None if found is None else (starting_with(*one, starting) for one in found)

    def differing(self, tables: Sequence[str], versions: Mapping[str, int], starting: str) -> list[str] | None:
        """The names that begin with ``starting`` and do not have the same number in all of ``tables``, at ``versions``
        (default: now); ``None`` where a log does not tell.

        However many names there are, it holds those that differ and some others. Raises one of ``UNREADABLE``.
        """

        def of(table: str) -> Iterator[Standing] | None:
            return self.every(table, versions.get(table), starting)

        sums = []
        for table in tables:
            every = of(table)
            if every is None:
                return None
            sums.append(_sums(every))
        unequal = np.zeros(_SUMS, np.bool_)
        for one, other in pairwise(sums):
            unequal |= one != other
        if not unequal.any():
            return []
        found: list[dict[str, int]] = []
        for table in tables:
            mine: dict[str, int] = {}
            for names, numbers in of(table) or ():
                chosen = pa.array(unequal[_places(numbers_of_texts(names))])
                mine |= zip(names.filter(chosen).to_pylist(), numbers.filter(chosen).to_pylist(), strict=True)
            found.append(mine)
        return sorted(name for name in set().union(*found) if len({one.get(name) for one in found}) > 1)


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
