"""Moves the digests of slices from a table's log to sorted files (``standings.py``).

The order of the steps makes a kill between any two of them harmless: the files, their list, a commit that names the
list, and a checkpoint of that commit without the digests. Until the checkpoint exists, the log and the files agree.
Files that are written and never named are orphans. If two homes fold at once, the log refuses one of them.
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
    """Folds the digests of a table if its newest checkpoint has more than ``many`` (default: ``MANY``), and not more
    than ``most``. Returns how many left the log.

    Other processes may read and commit meanwhile. Returns 0 if another process was first; the rest waits for the next
    call. Raises ``EnvironmentFault``.
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
        file_list = {"files": [(file.first, file.name) for file in files]}
        digest = input_digest(file_list)
        self._put(f"{self._folded.folder}/{digest}.json", json.dumps(file_list).encode())
        self._anchor(handle, digest_to_int(digest))
        self._lake.look_again(self._table)
        # if others committed in between, the digests stay in the log as well, until the next time
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
        """The files that hold the digests of ``files`` and of the checkpoint of ``version``. Writes the new ones among
        them."""
        starts = {file.first for file in files[1:]}
        if not files:
            for names, _ in self._checkpoint(version):
                starts.update(names.filter(pa.array(_begins(names))).to_pylist())
        inner = sorted(starts)[_FILES_AT_ONCE - 1 :: _FILES_AT_ONCE]
        new_files: list[FoldedFile] = []
        for low, high in zip(["", *inner], [*inner, None], strict=True):
            pieces = [_between(names, numbers, low, high) for names, numbers in self._checkpoint(version)]
            new_rows = pa.table(
                [
                    pa.chunked_array([names for names, _ in pieces], pa.string()),
                    pa.chunked_array([numbers for _, numbers in pieces], pa.int64()),
                ],
                ["name", "number"],
            ).sort_by("name")
            # the first file is also of names before its own
            firsts = ["", *(file.first for file in files[1:])]
            old_files = [
                file
                for file, first in zip(files, firsts, strict=False)
                if low <= first and (high is None or first < high)
            ]
            new_files += self._window(old_files, new_rows.combine_chunks())
        return new_files

    def _window(self, old_files: Sequence[FoldedFile], new_rows: pa.Table) -> Iterator[FoldedFile]:
        if not old_files:
            yield from self._write(new_rows)
            return
        names = new_rows.column("name")
        ends = [*(file.first for file in old_files[1:]), None]
        start = 0
        for file, end in zip(old_files, ends, strict=True):
            stop = new_rows.num_rows if end is None else pc.sum(pc.less(names, end)).as_py() or 0
            file_rows = new_rows.slice(start, stop - start)
            start = stop
            if not file_rows.num_rows:
                yield file
                continue
            [kept_digests] = but_for([self._folded.read(file)], file_rows.column("name"))
            joined = pa.concat_tables([file_rows, pa.table(kept_digests, ["name", "number"])])
            yield from self._write(joined.sort_by("name").combine_chunks())

    def _write(self, rows: pa.Table) -> Iterator[FoldedFile]:
        """Writes sorted rows, which begin at the first name of a file."""
        if not rows.num_rows:
            return
        names = pa.concat_arrays(rows.column("name").chunks)
        starts = [0, *(int(position) for position in np.flatnonzero(_begins(names)) if position), rows.num_rows]
        for start, stop in pairwise(starts):
            file_rows = rows.slice(start, stop - start)
            texts = file_rows.column("name").to_pylist()
            content = blake2b("\n".join(texts).encode(), digest_size=12)
            content.update(file_rows.column("number").to_numpy().tobytes())
            sink = io.BytesIO()
            pq.write_table(file_rows, sink, compression="zstd", use_dictionary=False, column_encoding=_ENCODED)
            # a unique name: an orphan of that content may be deleted at this moment
            name = f"{content.hexdigest()}-{uuid4().hex[:8]}.parquet"
            self._put(f"{self._folded.folder}/{name}", sink.getvalue())
            yield FoldedFile(texts[0], name)

    def _checkpoint(self, version: int) -> Iterator[tuple[pa.Array, pa.Array]]:
        return but_for(self.log.of_checkpoint(version), pa.array([ANCHOR]))

    def _drop(self, version: int, anchor: int) -> int:
        """Writes a checkpoint of the commit after ``version``, if it is the commit that names the list: the checkpoint
        of ``version`` without its digests."""
        if self.log.of_commit(version + 1) != {ANCHOR: anchor}:
            return 0
        dropped = rows = 0
        sink = io.BytesIO()
        with self._files.open_input_file(f"{self._log_folder}/{version:020}.checkpoint.parquet") as file:
            reader = pq.ParquetFile(file, pre_buffer=False, buffer_size=4 << 20)
            schema = reader.schema_arrow
            kind = schema.field("txn").type
            with pq.ParquetWriter(sink, schema, compression="snappy") as writer:
                anchor_values = {"appId": ANCHOR, "version": anchor}
                anchor_rows = [{"txn": {name: anchor_values.get(name) for name in (field.name for field in kind)}}]
                writer.write_table(pa.Table.from_pylist(anchor_rows, schema=schema))
                for batch in reader.iter_batches(_BATCH_ROWS, use_threads=False):
                    kept_rows = batch.filter(pc.is_null(pc.struct_field(batch.column("txn"), "appId")))
                    dropped += batch.num_rows - kept_rows.num_rows
                    rows += kept_rows.num_rows
                    if kept_rows.num_rows:
                        writer.write_table(pa.Table.from_batches([kept_rows]))
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
    in_range = pc.greater_equal(names, low)
    if high is not None:
        in_range = pc.and_(in_range, pc.less(names, high))
    return names.filter(in_range), numbers.filter(in_range)


def sweep_folded(lake: Lake, table: str, hours: float) -> int:
    """Deletes folded files that no list names any more, and lists that were replaced more than ``hours`` ago. Returns
    how many. Raises ``EnvironmentFault``."""
    folder = f"{lake.address(table).removeprefix('s3://')}/{FOLDER}"
    files = lake.file_system()
    try:
        stored_files = files.get_file_info(FileSelector(folder, allow_not_found=True))
        list_files = sorted(
            (stored_file for stored_file in stored_files if stored_file.base_name.endswith(".json")),
            key=lambda stored_file: stored_file.mtime,
        )
        handle = lake.handle(lake.specs[table])
        if handle is None or not list_files:
            return 0
        anchor = handle.transaction_version(ANCHOR)
        cutoff = datetime.now(UTC) - timedelta(hours=hours)
        kept_names = {"" if anchor is None else f"{digest_from_int(anchor)}.json"}
        kept_names |= {
            list_file.base_name for list_file, next_list in pairwise(list_files) if next_list.mtime >= cutoff
        }
        kept_names.add(list_files[-1].base_name)
        reader = Folded(files, folder.removesuffix(f"/{FOLDER}"))
        for name in list(kept_names):
            if name:
                kept_names |= {file.name for file in reader.files(digest_to_int(name.removesuffix(".json")))}
        unused_files = [
            stored_file
            for stored_file in stored_files
            if stored_file.base_name not in kept_names and stored_file.mtime < cutoff
        ]
        for unused_file in unused_files:
            with suppress(FileNotFoundError):
                files.delete_file(unused_file.path)
        return len(unused_files)
    except (OSError, DeltaError, pa.ArrowException, ValueError) as error:
        raise lake_fault(f"could not delete folded digests of {lake.address(table)}", error) from error
