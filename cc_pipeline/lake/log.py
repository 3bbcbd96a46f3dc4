"""The digests that commits carry, read from a table's log.

The Delta library answers one name at a time, and replays the log for each: milliseconds a name, minutes for all slices
of a large home. This reads many at once, as the format says they are stored (the Delta protocol, "Transaction
Identifiers": https://github.com/delta-io/delta/blob/master/PROTOCOL.md): the ``txn`` column of the newest checkpoint,
batch by batch, then the ``txn`` actions of the commits behind it. What is asked for is kept, not what is read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

#: Commits behind the newest checkpoint that are read one by one: the library writes one each hundred commits.
_LONGEST_TAIL: Final = 400
#: Commits that are looked through for what changed, and how many are read at a time.
_MOST_LOOKED_THROUGH: Final = 5_000
_AHEAD: Final = 8
#: Versions of one table whose transactions are remembered.
_REMEMBERED: Final = 2
#: Transactions of a checkpoint up to which all are remembered; of a larger one, those that were asked for.
_FEW: Final = 20_000
#: Transactions behind a checkpoint from which on a newer one is looked for.
_LONG_TAIL: Final = 50_000
_BATCH_ROWS: Final = 1 << 16
_BUFFER: Final = 4 << 20
_NO_LOG: Final = (OSError, pa.ArrowException, ValueError, KeyError)

#: What a checkpoint or the commits behind it say under names: the last number, and ``None`` where it is there no more,
#: because a fold has moved it (``standings.py``).
_Said = dict[str, int | None]


@dataclass(slots=True)
class _State:
    """A table's transactions at a version: a checkpoint's (-1: none), of which ``kept`` are known, all of them where
    ``whole``; and what commits behind it say."""

    checkpoint: int
    version: int
    tail: _Said = field(default_factory=dict)
    kept: _Said = field(default_factory=dict)
    whole: bool = False


class TransactionLog:
    """The transactions of one table, by version; reads only what it has not read yet.

    ``folder`` is the table's folder on ``files``. Every answer is ``None`` where the log is not of the kind this reads
    (checkpoints in parts, commits cleaned away, a version before the newest checkpoint): the library can still be asked
    then.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._log = f"{folder}/_delta_log"
        self._known: dict[int, _State] = {}

    def find(self, version: int, names: Collection[str]) -> dict[str, int] | None:
        """The last number committed under each of ``names`` that the log has, as of ``version`` of the table."""
        try:
            state = self._at(version)
            if state is None:
                return None
            lacking = {name for name in names if name not in state.tail}
            if not state.whole and (unknown := lacking - state.kept.keys()):
                self._keep(state, unknown)
        except _NO_LOG:
            return None
        found = {name: state.kept.get(name) if name in lacking else state.tail[name] for name in names}
        return {name: number for name, number in found.items() if number is not None}

    def every(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]] | None:
        """All names that the log has, each once, with their numbers, batch by batch.

        The iterator raises ``OSError``, ``pa.ArrowException`` or ``ValueError`` for a checkpoint that cannot be read.
        """
        try:
            state = self._at(version)
        except _NO_LOG:
            return None
        return None if state is None else self._every(state)

    def names_since(self, before: int, now: int) -> set[str] | None:
        """The names under which anything was committed after version ``before``, up to ``now``.

        ``None`` too where these commits are too many to be read one by one.
        """
        if not 0 <= now - before <= _MOST_LOOKED_THROUGH:
            return None
        try:
            with ThreadPoolExecutor(_AHEAD) as pool:
                commits = pool.map(self._of_commit, range(before + 1, now + 1))
                # a fold moves digests; what they say stays
                return {name for own in commits for name, number in own.items() if number is not None}
        except _NO_LOG:
            return None

    def count(self, version: int) -> int | None:
        """How many names the checkpoint of ``version`` has that no commit behind it names."""
        try:
            state = self._at(version)
            return None if state is None else sum(len(names) for names, _ in self._checkpointed(state))
        except _NO_LOG:
            return None

    def settled(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]] | None:
        """As :meth:`every`, but for the names that commits behind the newest checkpoint name."""
        state = self._at(version)
        return None if state is None else self._checkpointed(state)

    def _at(self, version: int) -> _State | None:
        """The state at ``version``, going on from one that is known where that is shorter."""
        if version in self._known:
            return self._known[version]
        before = max((known for known in self._known if known <= version), default=None)
        state = None if before is None else self._known[before]
        if state is None or version - state.version > _LONGEST_TAIL or len(state.tail) > _LONG_TAIL:
            newest = self._checkpoint()
            if newest <= version and (state is None or newest > state.version):
                state = _State(newest, newest)
        if state is None:
            return None
        if version - state.version > _LONGEST_TAIL:
            return None
        tail = dict(state.tail)
        for number in range(state.version + 1, version + 1):
            tail |= self._of_commit(number)
        found = _State(state.checkpoint, version, tail, state.kept, state.whole)
        self._known[version] = found
        for old in sorted(self._known)[:-_REMEMBERED]:
            del self._known[old]
        return found

    def _keep(self, state: _State, names: Collection[str]) -> None:
        """Reads what the checkpoint says under ``names``; everything where that is little."""
        wanted = pa.array(names, pa.string())
        every: _Said | None = {}
        found: _Said = dict.fromkeys(names)
        for own, numbers in self._of_checkpoint(state.checkpoint):
            if every is not None:
                every |= zip(own.to_pylist(), numbers.to_pylist(), strict=True)
                if len(every) > _FEW:
                    every = None
            mine = pc.is_in(own, value_set=wanted)
            found |= zip(own.filter(mine).to_pylist(), numbers.filter(mine).to_pylist(), strict=True)
        state.whole = every is not None
        state.kept = state.kept | found if every is None else every

    def _every(self, state: _State) -> Iterator[tuple[pa.Array, pa.Array]]:
        yield from self._checkpointed(state)
        said = {name: number for name, number in state.tail.items() if number is not None}
        yield pa.array(said.keys(), pa.string()), pa.array(said.values(), pa.int64())

    def _checkpointed(self, state: _State) -> Iterator[tuple[pa.Array, pa.Array]]:
        behind = pa.array(state.tail.keys(), pa.string())
        for names, numbers in self._of_checkpoint(state.checkpoint):
            old = pc.invert(pc.is_in(names, value_set=behind))
            yield names.filter(old), numbers.filter(old)

    def _checkpoint(self) -> int:
        """The version of the newest checkpoint, -1 where there is none."""
        path = f"{self._log}/_last_checkpoint"
        try:
            with self._files.open_input_file(path) as file:
                named = json.loads(file.read())
        except FileNotFoundError:
            return -1
        if named.get("parts") is not None or named.get("v2Checkpoint") is not None:
            raise ValueError("a checkpoint in parts")
        return int(named["version"])

    def _of_checkpoint(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        if version < 0:
            return
        path = f"{self._log}/{version:020}.checkpoint.parquet"
        with self._files.open_input_file(path) as file:
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
            for batch in reader.iter_batches(_BATCH_ROWS, columns=["txn"], use_threads=False):
                rows = batch.column(0).drop_null()
                names, numbers = rows.field("appId"), rows.field("version")
                here = pc.is_valid(names)
                if rows.type.get_field_index("lastUpdated") >= 0:
                    # only a fold writes the time: of what it moves
                    here = pc.and_(here, pc.is_null(rows.field("lastUpdated")))
                yield names.filter(here), numbers.filter(here)

    def _of_commit(self, version: int) -> _Said:
        found: _Said = {}
        with self._files.open_input_file(f"{self._log}/{version:020}.json") as file:
            for line in file.read().splitlines():
                # most lines are about files, and some are long
                if line.startswith(b'{"txn"'):
                    action = json.loads(line)["txn"]
                    found[action["appId"]] = action["version"] if action.get("lastUpdated") is None else None
        return found
