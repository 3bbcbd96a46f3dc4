"""The digests that commits carry, read from a table's log in one pass.

The Delta library answers one name at a time, and replays the log for each: milliseconds a name, minutes for all slices
of a large home. This reads them all at once, as the format says they are stored (the Delta protocol, "Transaction
Identifiers": https://github.com/delta-io/delta/blob/master/PROTOCOL.md): the ``txn`` column of the newest checkpoint,
then the ``txn`` actions of the commits behind it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

#: Commits behind the newest checkpoint that are read one by one: the library writes one each hundred commits.
_LONGEST_TAIL: Final = 400
#: Commits that are looked through for what changed, and how many are read at a time.
_MOST_LOOKED_THROUGH: Final = 5_000
_AHEAD: Final = 8
#: Versions of one table whose transactions are remembered.
_REMEMBERED: Final = 2


class TransactionLog:
    """The transactions of one table, by version; reads only what it has not read yet.

    ``folder`` is the table's folder on ``files``.
    """

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._log = f"{folder}/_delta_log"
        self._known: dict[int, dict[str, int]] = {}

    def at(self, version: int) -> dict[str, int] | None:
        """The last number committed under each name, as of ``version`` of the table.

        ``None`` where the log is not of the kind this reads (checkpoints in parts, commits cleaned away, a version
        before the newest checkpoint): the library can still be asked then.
        """
        if version not in self._known:
            try:
                found = self._read(version)
            except (OSError, pa.ArrowException, ValueError, KeyError):
                return None
            if found is None:
                return None
            self._known[version] = found
            for old in sorted(self._known)[:-_REMEMBERED]:
                del self._known[old]
        return self._known.get(version)

    def names_since(self, before: int, now: int) -> set[str] | None:
        """The names under which anything was committed after version ``before``, up to ``now``.

        ``None`` where these commits are too many to be read one by one, or not there any more.
        """
        if not 0 <= now - before <= _MOST_LOOKED_THROUGH:
            return None
        try:
            with ThreadPoolExecutor(_AHEAD) as pool:
                return {name for own in pool.map(self._of_commit, range(before + 1, now + 1)) for name in own}
        except (OSError, pa.ArrowException, ValueError, KeyError):
            return None

    def _read(self, version: int) -> dict[str, int] | None:
        before = max((known for known in self._known if known <= version), default=-1)
        found = dict(self._known.get(before, {}))
        checkpoint = self._checkpoint()
        if before < checkpoint <= version:
            before, found = checkpoint, self._of_checkpoint(checkpoint)
        if checkpoint > version and before < 0:
            return None
        if version - before > _LONGEST_TAIL:
            return None
        for number in range(before + 1, version + 1):
            found |= self._of_commit(number)
        return found

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

    def _of_checkpoint(self, version: int) -> dict[str, int]:
        path = f"{self._log}/{version:020}.checkpoint.parquet"
        with self._files.open_input_file(path) as file:
            rows = pq.read_table(file, columns=["txn"]).column("txn").drop_null()
        return {row["appId"]: row["version"] for row in rows.to_pylist() if row["appId"] is not None}

    def _of_commit(self, version: int) -> dict[str, int]:
        found = {}
        with self._files.open_input_file(f"{self._log}/{version:020}.json") as file:
            for line in file.read().splitlines():
                # most lines are about files, and some are long
                if line.startswith(b'{"txn"'):
                    action = json.loads(line)["txn"]
                    found[action["appId"]] = action["version"]
        return found
