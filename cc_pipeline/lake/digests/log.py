"""The digests that commits carry, read from a table's log.

The Delta library answers one name at a time, and replays the log for each: milliseconds a name, minutes for all slices
of a large home. This reads many at once, as the format says they are stored (the Delta protocol, "Transaction
Identifiers": https://github.com/delta-io/delta/blob/master/PROTOCOL.md): the ``txn`` column of the newest checkpoint,
batch by batch, then the ``txn`` actions of the commits behind it. Only the names that were asked for are kept.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

#: Commits behind the newest checkpoint that are read one by one: the library writes one each hundred commits.
_LONGEST_TAIL: Final = 400
#: Commits that are searched for changes, and how many are read in parallel.
_MOST_LOOKED_THROUGH: Final = 5_000
_AHEAD: Final = 8
#: Versions of one table whose transactions are remembered.
_REMEMBERED: Final = 2
#: Size of a checkpoint up to which all its transactions are kept; of a larger one, those that were asked for.
_FEW: Final = 20_000
#: Transactions behind a checkpoint from which on a newer one is looked for.
_LONG_TAIL: Final = 50_000
_BATCH_ROWS: Final = 1 << 16
_BUFFER: Final = 4 << 20
#: The beginning of the line with the note on a commit: an entry that deletes superseded files has nothing else.
_NOTE: Final = b'{"commitInfo"'
_NO_LOG: Final = (OSError, pa.ArrowException, ValueError, KeyError)


class _Answer(Enum):
    UNKNOWN = "the log does not tell"


#: The answer if a log does not tell. It is not empty: the caller reads rows instead, or fails.
UNKNOWN: Final = _Answer.UNKNOWN
Unknown: TypeAlias = Literal[_Answer.UNKNOWN]

#: Numbers by name; ``None`` where it is known that there is none.
_Said = dict[str, int | None]


@dataclass(slots=True)
class _State:
    """The transactions of a table at a version: the version of a checkpoint (-1: none), its transactions that were read
    (``kept``; all of them if ``whole``), and those of the commits after it (``tail``)."""

    checkpoint: int
    version: int
    tail: dict[str, int] = field(default_factory=dict)
    kept: _Said = field(default_factory=dict)
    whole: bool = False


class TransactionLog:
    """The transactions of one table, by version. Reads only entries that it has not read yet.

    ``folder`` is the table's folder on ``files``. Every answer is ``UNKNOWN`` if the log is of a kind that this class
    does not read (checkpoints in parts, commits cleaned away, a version before the newest checkpoint): the library can
    still be asked then.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._log = f"{folder}/_delta_log"
        self._known: dict[int, _State] = {}

    def find(self, version: int, names: Collection[str]) -> dict[str, int] | Unknown:
        """The last number that the log has under each of ``names``, as of ``version`` of the table."""
        try:
            state = self._at(version)
            if state is None:
                return UNKNOWN
            checkpoint_names = {name for name in names if name not in state.tail}
            if not state.whole and (unread_names := checkpoint_names - state.kept.keys()):
                self._keep(state, unread_names)
        except _NO_LOG:
            return UNKNOWN
        numbers = {name: state.kept.get(name) if name in checkpoint_names else state.tail[name] for name in names}
        return {name: number for name, number in numbers.items() if number is not None}

    def every(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]] | Unknown:
        """All names in the log, each once, with their numbers, batch by batch.

        The iterator raises ``OSError``, ``pa.ArrowException`` or ``ValueError`` for a checkpoint that cannot be read.
        """
        try:
            state = self._at(version)
        except _NO_LOG:
            return UNKNOWN
        return UNKNOWN if state is None else self._every(state)

    def names_since(self, old_version: int, new_version: int) -> set[str] | Unknown:
        """The names with a commit after version ``old_version``, up to ``new_version``.

        Also ``UNKNOWN`` if these commits are too many to be read one by one.
        """
        if not 0 <= new_version - old_version <= _MOST_LOOKED_THROUGH:
            return UNKNOWN
        try:
            with ThreadPoolExecutor(_AHEAD) as pool:
                commits = pool.map(self.of_commit, range(old_version + 1, new_version + 1))
                return {name for commit_names in commits for name in commit_names}
        except _NO_LOG:
            return UNKNOWN

    def checkpointed(self) -> int:
        """The number of transactions in the newest checkpoint, by its footer; 0 for a kind of checkpoint that this
        class does not read. Raises ``OSError`` or ``pa.ArrowException`` if it cannot be read."""
        try:
            version = self.checkpoint()
        except ValueError:
            return 0
        if version < 0:
            return 0
        with self._files.open_input_file(f"{self._log}/{version:020}.checkpoint.parquet") as file:
            footer = pq.ParquetFile(file, pre_buffer=False).metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        columns = [group.column(position) for group in groups for position in range(group.num_columns)]
        name_columns = [column for column in columns if column.path_in_schema == "txn.appId"]
        return sum(
            column_chunk.num_values - (column_chunk.statistics.null_count if column_chunk.is_stats_set else 0)
            for column_chunk in name_columns
        )

    def _at(self, version: int) -> _State | None:
        """The state at ``version``, built on a known state where that is shorter."""
        if version in self._known:
            return self._known[version]
        nearest_version = max(
            (known_version for known_version in self._known if known_version <= version), default=None
        )
        state = None if nearest_version is None else self._known[nearest_version]
        if state is None or version - state.version > _LONGEST_TAIL or len(state.tail) > _LONG_TAIL:
            newest = self.checkpoint()
            if newest <= version and (state is None or newest > state.version):
                state = _State(newest, newest)
        if state is None:
            return None
        if version - state.version > _LONGEST_TAIL:
            return None
        tail = dict(state.tail)
        for number in range(state.version + 1, version + 1):
            tail |= self.of_commit(number)
        new_state = _State(state.checkpoint, version, tail, state.kept, state.whole)
        self._known[version] = new_state
        for old_version in sorted(self._known)[:-_REMEMBERED]:
            del self._known[old_version]
        return new_state

    def _keep(self, state: _State, names: Collection[str]) -> None:
        """Reads the numbers of ``names`` from the checkpoint; those of all names if they are few."""
        name_array = pa.array(names, pa.string())
        all_numbers: _Said | None = {}
        numbers_by_name: _Said = dict.fromkeys(names)
        for checkpoint_names, numbers in self.of_checkpoint(state.checkpoint):
            if all_numbers is not None:
                all_numbers |= zip(checkpoint_names.to_pylist(), numbers.to_pylist(), strict=True)
                if len(all_numbers) > _FEW:
                    all_numbers = None
            is_requested = pc.is_in(checkpoint_names, value_set=name_array)
            numbers_by_name |= zip(
                checkpoint_names.filter(is_requested).to_pylist(), numbers.filter(is_requested).to_pylist(), strict=True
            )
        state.whole = all_numbers is not None
        state.kept = state.kept | numbers_by_name if all_numbers is None else all_numbers

    def _every(self, state: _State) -> Iterator[tuple[pa.Array, pa.Array]]:
        tail_names = pa.array(state.tail.keys(), pa.string())
        for names, numbers in self.of_checkpoint(state.checkpoint):
            is_older = pc.invert(pc.is_in(names, value_set=tail_names))
            yield names.filter(is_older), numbers.filter(is_older)
        yield pa.array(state.tail.keys(), pa.string()), pa.array(state.tail.values(), pa.int64())

    def checkpoint(self) -> int:
        """The version of the newest checkpoint, -1 if there is none. Its hint is used if it can be read; else the log
        is listed, as the library does."""
        path = f"{self._log}/_last_checkpoint"
        try:
            with self._files.open_input_file(path) as file:
                hint = json.loads(file.read())
            in_parts = hint.get("parts") is not None or hint.get("v2Checkpoint") is not None
            version = int(hint["version"])
        except FileNotFoundError:
            return self._listed_checkpoint()
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._listed_checkpoint()
        if in_parts:
            raise ValueError("a checkpoint in parts")
        return version

    def _listed_checkpoint(self) -> int:
        log_files = self._files.get_file_info(FileSelector(self._log, allow_not_found=True))
        versions = [-1]
        for info in log_files:
            version, _, kind = info.base_name.partition(".")
            if version.isdigit() and kind.startswith("checkpoint."):
                if kind != "checkpoint.parquet":
                    raise ValueError("a checkpoint in parts")
                versions.append(int(version))
        return max(versions)

    def of_checkpoint(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The names in the checkpoint of ``version`` (-1: none), with their numbers, batch by batch."""
        if version < 0:
            return
        path = f"{self._log}/{version:020}.checkpoint.parquet"
        with self._files.open_input_file(path) as file:
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
            for batch in reader.iter_batches(_BATCH_ROWS, columns=["txn"], use_threads=False):
                rows = batch.column(0).drop_null()
                names, numbers = rows.field("appId"), rows.field("version")
                is_valid = pc.is_valid(names)
                yield names.filter(is_valid), numbers.filter(is_valid)

    def of_commit(self, version: int) -> dict[str, int]:
        """The transactions of one commit."""
        transactions: dict[str, int] = {}
        for line in self.entry(version).splitlines():
            # most lines are about files, and some are long
            if line.startswith(b'{"txn"'):
                action = json.loads(line)["txn"]
                transactions[action["appId"]] = action["version"]
        return transactions

    def last_change(self, version: int) -> bytes | None:
        """The entry, as it is stored, of the last commit up to ``version`` that has more than a ``commitInfo``;
        ``None`` if it was cleaned away. Raises ``OSError``."""
        try:
            for number in range(version, -1, -1):
                entry = self.entry(number)
                if any(line and not line.startswith(_NOTE) for line in entry.splitlines()):
                    return entry
        except FileNotFoundError:
            pass
        return None

    def entry(self, version: int) -> bytes:
        """The entry of a commit as it is stored. Raises ``OSError``."""
        with self._files.open_input_file(f"{self._log}/{version:020}.json") as file:
            return bytes(file.read())
