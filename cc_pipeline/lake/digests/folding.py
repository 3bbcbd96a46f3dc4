"""Digests of slices leave a table's log for sorted files (``standings.py``).

In this order, so that a kill between any two of these leaves all answers as they are: the files, their list, a commit
that names the list, and a checkpoint of that commit without the digests. Until that is there, the log and the files
say the same, and what is written and never named are strays. Of two homes that fold at once, the log refuses one.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import FileSelector

from cc_pipeline.atomic import write_whole
from cc_pipeline.lake.digests.digest import digest_from_int, digest_to_int, input_digest, numbers_of_texts
from cc_pipeline.lake.digests.log import TransactionLog
from cc_pipeline.lake.digests.standings import ANCHOR, FOLDER, Folded, FoldedFile, but_for
from cc_pipeline.lake.lake import Lake, lake_fault

#: Digests in a checkpoint above which they are folded: as many as a process reads in passing.
MANY: Final = 20_000
#: Names of a file, on average: a name whose hash divides by that begins one.
_NAMES: Final = 1 << 14
#: Files that are made in one pass over a checkpoint: bounds memory.
_FILES_AT_ONCE: Final = 24
_BATCH_ROWS: Final = 1 << 14
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def fold(lake: Lake, table: str, many: int | None = None, most: float = math.inf) -> int:
    """Folds the digests of a table whose newest checkpoint has more than ``many`` (default: ``MANY``), and not more
    than ``most``; gives how many left the log.

    Anybody may read and commit meanwhile. 0 where another process was first; what it left is for the next time.
    Raises ``EnvironmentFault``.
    """
    folding = _Folding(lake, table)
    try:
        if not (MANY if many is None else many) < folding.log.checkpointed() <= most:
            return 0
        return folding.fold()
    except CommitFailedError:
        return 0
    except (OSError, DeltaError, pa.ArrowException, ValueError, KeyError) as error:
        raise lake_fault(f"could not fold the digests of {lake.address(table)}", error) from error


class _Folding:
    def __init__(self, lake: Lake, table: str) -> None:
        self._lake, self._table = lake, table
        self._files = lake.file_system()
        folder = lake.address(table).removeprefix("s3://")
        self._log_folder = f"{folder}/_delta_log"
        self.log = TransactionLog(self._files, folder)
        self._folded = Folded(self._files, folder)

    def fold(self) -> int:
        self._lake.look_again(self._table)
        newest = self._lake.handle(self._lake.specs[self._table])
        handle = None if newest is None else self._lake.open(self._lake.specs[self._table], newest.version())
        if handle is None:
            return 0
        version = handle.version()
        if self.log.checkpoint() != version:
            handle.create_checkpoint()
        anchor = handle.transaction_version(ANCHOR)
        files = self._merged(version, self._folded.files(anchor))
        named = {"files": [(file.first, file.name) for file in files]}
        digest = input_digest(named)
        self._put(f"{self._folded.folder}/{digest}.json", json.dumps(named).encode())
        self._anchor(handle, digest_to_int(digest))
        self._lake.look_again(self._table)
        # where others have committed in between, the digests stay in the log as well, until the next time
        return self._drop(version, digest_to_int(digest))

    def _anchor(self, handle: DeltaTable, number: int) -> None:
        commit = CommitProperties(app_transactions=[Transaction(ANCHOR, number)])
        self._lake.commit_durably(
            self._table,
            handle.version(),
            lambda _: handle.create_write_transaction(
                [],
                "append",
                handle.schema(),
                handle.metadata().partition_columns,
                commit_properties=commit,
                # its checkpoint is written here
                post_commithook_properties=_NO_HOOKS,
            ),
        )

    def _merged(self, version: int, files: Sequence[FoldedFile]) -> list[FoldedFile]:
        """The files that hold what ``files`` and the checkpoint of ``version`` do; those among them that are new are
        written."""
        starts = {file.first for file in files[1:]}
        if not files:
            for names, _ in self._checkpoint(version):
                starts.update(names.filter(pa.array(_begins(names))).to_pylist())
        inner = sorted(starts)[_FILES_AT_ONCE - 1 :: _FILES_AT_ONCE]
        found: list[FoldedFile] = []
        for low, high in zip(["", *inner], [*inner, None], strict=True):
            mine = [_between(names, numbers, low, high) for names, numbers in self._checkpoint(version)]
            new = pa.table(
                [
                    pa.chunked_array([names for names, _ in mine], pa.string()),
                    pa.chunked_array([numbers for _, numbers in mine], pa.int64()),
                ],
                ["name", "number"],
            ).sort_by("name")
            # the first file is also of names before its own
            firsts = ["", *(file.first for file in files[1:])]
            old = [
                file
                for file, first in zip(files, firsts, strict=False)
                if low <= first and (high is None or first < high)
            ]
            found += self._window(old, new.combine_chunks())
        return found

    def _window(self, old: Sequence[FoldedFile], new: pa.Table) -> Iterator[FoldedFile]:
        if not old:
            yield from self._write(new)
            return
        names = new.column("name")
        ends = [*(file.first for file in old[1:]), None]
        start = 0
        for file, end in zip(old, ends, strict=True):
            stop = new.num_rows if end is None else pc.sum(pc.less(names, end)).as_py() or 0
            own = new.slice(start, stop - start)
            start = stop
            if not own.num_rows:
                yield file
                continue
            [kept] = but_for([self._folded.read(file)], own.column("name"))
            both = pa.concat_tables([own, pa.table(kept, ["name", "number"])])
            yield from self._write(both.sort_by("name").combine_chunks())

    def _write(self, rows: pa.Table) -> Iterator[FoldedFile]:
        """Writes sorted rows, which begin where a file does."""
        if not rows.num_rows:
            return
        names = pa.concat_arrays(rows.column("name").chunks)
        starts = [0, *(int(one) for one in np.flatnonzero(_begins(names)) if one), rows.num_rows]
        for start, stop in pairwise(starts):
            own = rows.slice(start, stop - start)
            texts = own.column("name").to_pylist()
            content = blake2b("\n".join(texts).encode(), digest_size=12)
            content.update(own.column("number").to_numpy().tobytes())
            sink = io.BytesIO()
            pq.write_table(own, sink, compression="zstd", use_dictionary=False, column_encoding=_ENCODED)
            # nobody else's: a stray of that content may be deleted at this moment
            name = f"{content.hexdigest()}-{uuid4().hex[:8]}.parquet"
            self._put(f"{self._folded.folder}/{name}", sink.getvalue())
            yield FoldedFile(texts[0], name)

    def _checkpoint(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        return but_for(self.log.of_checkpoint(version), pa.array([ANCHOR]))

    def _drop(self, version: int, anchor: int) -> int:
        """Writes a checkpoint of the commit behind ``version``, if it is the one that names the list: that of
        ``version`` without its digests."""
        if self.log.of_commit(version + 1) != {ANCHOR: anchor}:
            return 0
        dropped = rows = 0
        sink = io.BytesIO()
        with self._files.open_input_file(f"{self._log_folder}/{version:020}.checkpoint.parquet") as file:
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=4 << 20)
            schema = reader.schema_arrow
            kind = schema.field("txn").type
            with pq.ParquetWriter(sink, schema, compression="snappy") as writer:
                said = {"appId": ANCHOR, "version": anchor}
                mine = [{"txn": {name: said.get(name) for name in (one.name for one in kind)}}]
                writer.write_table(pa.Table.from_pylist(mine, schema=schema))
                for batch in reader.iter_batches(_BATCH_ROWS, use_threads=False):
                    kept = batch.filter(pc.is_null(pc.struct_field(batch.column("txn"), "appId")))
                    dropped += batch.num_rows - kept.num_rows
                    rows += kept.num_rows
                    if kept.num_rows:
                        writer.write_table(pa.Table.from_batches([kept]))
        self._put(f"{self._log_folder}/{version + 1:020}.checkpoint.parquet", sink.getvalue())
        if self.log.checkpoint() <= version:
            self._put(
                f"{self._log_folder}/_last_checkpoint", json.dumps({"version": version + 1, "size": rows + 1}).encode()
            )
        return dropped

    def _put(self, path: str, data: bytes) -> None:
        if "://" not in self._lake.root:
            write_whole(Path(path), data, durable=True)
            return
        with self._files.open_output_stream(path) as sink:
            sink.write(data)


_ENCODED: Final = {"name": "DELTA_BYTE_ARRAY", "number": "PLAIN"}


def _begins(names: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(numbers_of_texts(names) % np.uint64(_NAMES) == 0)


def _between(names: pa.Array, numbers: pa.Array, low: str, high: str | None) -> tuple[pa.Array, pa.Array]:
    chosen = pc.greater_equal(names, low)
    if high is not None:
        chosen = pc.and_(chosen, pc.less(names, high))
    return names.filter(chosen), numbers.filter(chosen)


def sweep_folded(lake: Lake, table: str, hours: float) -> int:
    """Deletes folded files that no list names any more, and lists in whose place another one has been for ``hours``;
    gives how many. Raises ``EnvironmentFault``."""
    folder = f"{lake.address(table).removeprefix('s3://')}/{FOLDER}"
    files = lake.file_system()
    try:
        found = files.get_file_info(FileSelector(folder, allow_not_found=True))
        lists = sorted((one for one in found if one.base_name.endswith(".json")), key=lambda one: one.mtime)
        handle = lake.handle(lake.specs[table])
        if handle is None or not lists:
            return 0
        anchor = handle.transaction_version(ANCHOR)
        before = datetime.now(UTC) - timedelta(hours=hours)
        kept = {"" if anchor is None else f"{digest_from_int(anchor)}.json"}
        kept |= {one.base_name for one, after in pairwise(lists) if after.mtime >= before}
        kept.add(lists[-1].base_name)
        reader = Folded(files, folder.removesuffix(f"/{FOLDER}"))
        for one in list(kept):
            if one:
                kept |= {file.name for file in reader.files(digest_to_int(one.removesuffix(".json")))}
        gone = [one for one in found if one.base_name not in kept and one.mtime < before]
        for one in gone:
            with suppress(FileNotFoundError):
                files.delete_file(one.path)
        return len(gone)
    except (OSError, DeltaError, pa.ArrowException, ValueError) as error:
        raise lake_fault(f"could not delete folded digests of {lake.address(table)}", error) from error
