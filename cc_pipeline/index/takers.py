"""Which of the targets of a look-up take a row that was found, at a cost in proportion to the rows and to the members.

Members of sets are asked for like targets of their own, so a set costs what its members would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.commoncrawl.members import MemberIndex
from cc_pipeline.commoncrawl.target import Target


def surt_ranges(target: Target) -> Sequence[KeyRange]:
    """Where a target's keys are in an index sorted by SURT keys."""
    return target.ranges


class Takers:
    """The targets of one look-up. ``ranges`` are all keys to read; ``ranges_of`` says where a single target's are."""

    def __init__(
        self, targets: Sequence[Target], ranges_of: Callable[[Target], Sequence[KeyRange]] = surt_ranges
    ) -> None:
        self._slugs = [target.slug for target in targets]
        members = [(one, number) for number, target in enumerate(targets) for one in target.members or (target,)]
        self._owners = [number for _, number in members]
        self._ranges = [ranges_of(one) for one, _ in members]
        self._index = MemberIndex([one for one, _ in members])
        self.ranges = RangeSet(keys for ranges in self._ranges for keys in ranges)
        self._found: list[list[pa.Table]] = [[] for _ in targets]

    def of(self, key: bytes, url: str, host: str | None) -> list[int]:
        """Numbers of the targets that a row with this key and URL is for, each once."""
        found: list[int] = []
        for member in self._index.of(url, host):
            owner = self._owners[member]
            if owner not in found and any(key in keys for keys in self._ranges[member]):
                found.append(owner)
        return found

    def give(self, rows: pa.Table, takers: Sequence[Sequence[int]]) -> None:
        """Keeps ``rows`` (``CAPTURE_SCHEMA``) for the targets that take them; ``takers`` has the numbers for each."""
        pairs = [(taker, row) for row, several in enumerate(takers) for taker in several]
        if not pairs:
            return
        if len(pairs) == rows.num_rows and pairs[0][0] == pairs[-1][0] and len({taker for taker, _ in pairs}) == 1:
            # all is one target's: no copy is made
            self._found[pairs[0][0]].append(rows)
            return
        order = np.asarray(pairs, dtype=np.int64)
        order = order[np.argsort(order[:, 0], kind="stable")]
        taken = rows.take(pa.array(order[:, 1]))
        first = np.flatnonzero(np.concatenate(([True], order[1:, 0] != order[:-1, 0])))
        for start, end in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
            self._found[int(order[start, 0])].append(taken.slice(start, end - start))

    def captures(self) -> dict[str, pa.Table]:
        """What each target was given, by slug."""
        return {
            slug: pa.concat_tables(tables) if tables else CAPTURE_SCHEMA.empty_table()
            for slug, tables in zip(self._slugs, self._found, strict=True)
        }
