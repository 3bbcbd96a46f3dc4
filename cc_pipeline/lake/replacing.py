"""Replaces files of a table by others in one commit. The commit conflicts with every commit that removes one of the
same files, and with no other: no row is lost, and none is there twice.

Merging, moving and adding rows build on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.digests.digest import digest_from_int
from cc_pipeline.lake.lake import COMMIT_ADVICE, Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import FILE_BYTES, ROW_GROUP_ROWS, StoredFile, clustered_by, list_stored_files
from cc_pipeline.lake.row_counts import SliceKey, check_balance, count_name

#: Bytes of rows, not packed, in a row group at most: a row may be a whole page.
_ROW_GROUP_BYTES: Final = 8 << 20
#: Rows that are put into a row group at a time.
BATCH_ROWS: Final = 1_024
#: Batches that become one, and their bytes.
_JOINED_BATCHES: Final = 32
_JOINED_BYTES: Final = 1 << 20
#: Rows of a narrow column that are looked at together.
_NARROW_ROWS: Final = 1 << 16
#: Files whose rows are changed in one commit.
_FILES_PER_COMMIT: Final = 8
#: Files taken out by one commit above which the log gets a checkpoint at once.
_MANY_REMOVED: Final = 200
#: How the files of tables are packed.
_COMPRESSION: Final = {"compression": "ZSTD", "compression_level": 3}
#: The same for a few rows, until they are merged: the cost is then that of each column, to write and to read. Without a
#: dictionary it is half of that, and unpacking needs no state in advance; files are smaller.
_QUICK_COMPRESSION: Final = {"compression": "SNAPPY", "use_dictionary": False}
#: Bytes of rows up to which they are few.
_FEW_BYTES: Final = 2 << 20
#: Commits in a row that may meet another process's.
_TRIES: Final = 20


def open_fixed_version(lake: Lake, table: str) -> DeltaTable | None:
    """A handle that stays at the current version, whatever other threads do; ``None`` if there is no table."""
    spec = lake.specs[table]
    lake.invalidate(table, until_block_ends=True)
    handle = lake.handle(spec)
    return None if handle is None else lake.open(spec, handle.version())


def get_file_schema(spec: TableSpec, handle: DeltaTable, partition: Iterable[str]) -> pa.Schema:
    """The columns that the files of a table have: its own, without those in the names of folders."""
    stored_columns = {field.name for field in handle.schema().fields} - set(partition)
    return pa.schema([field for field in spec.schema if field.name in stored_columns])


def replace_files(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    removed: Sequence[StoredFile],
    added: Sequence[StoredFile],
    digests: Mapping[str, str] | None = None,
    counts: Mapping[SliceKey, int] | None = None,
    *,
    is_balanced: bool = True,
) -> None:
    """Commits ``added`` in the place of ``removed``, with ``digests`` by name and the row counts of the slices whose
    rows change.

    ``handle`` stays at the version that the files were read from. Raises ``CommitFailedError``, with nothing changed,
    if another process removed one of them meanwhile, or committed a digest of one of these names. Raises
    ``RowsOutOfBalance``, with nothing changed, if the table would not have its former rows, without those of the
    slices, and with ``counts``; not if ``is_balanced`` is false, for callers that remove a broken file.
    """
    new_counts = counts or {}
    if is_balanced:
        check_balance(lake, spec, handle, removed, added, new_counts)
    now = int(time.time() * 1_000)
    # marked as changes of data, which merges are not: otherwise two merges of the same files would both succeed
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(file.path, True, now, file.size, dict(file.partition)) for file in removed),
        *(
            AddAction(file.path, file.size, dict(file.partition), now, True, build_statistics(spec, file))
            for file in added
        ),
    ]
    count_digests = {count_name(key): digest_from_int(rows) for key, rows in new_counts.items()}
    lake.commit_actions(
        spec.name, handle, actions, {**(digests or {}), **count_digests}, checkpoint=len(removed) > _MANY_REMOVED
    )


def change_rows(
    lake: Lake,
    table: str,
    crawl: str,
    column: str,
    values: pa.Array,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> int:
    """Rewrites the files of ``crawl`` that have rows whose ``column`` is one of ``values``. Returns how many.

    ``change`` takes batches of such a file, rows with other values among them, and gives as many rows in the same
    columns; afterwards none has one of ``values``. Other processes may read, commit and merge meanwhile: files that
    they write are looked at again, until no row of the table's newest version has any of the values. The old files stay
    until they are vacuumed. Raises ``EnvironmentFault``.
    """
    spec = lake.specs[table]
    changed, tries = 0, _TRIES
    has_values: dict[str, bool] = {}
    try:
        while (handle := open_fixed_version(lake, table)) is not None:
            files = [file for file in list_stored_files(spec, handle) if file.partition.get("crawl") == crawl]
            due_files: list[StoredFile] = []
            for file in files:
                if file.path not in has_values:
                    has_values[file.path] = _has_values(lake, table, file, column, values)
                if has_values[file.path]:
                    due_files.append(file)
            if not due_files:
                return changed
            next_files = due_files[:_FILES_PER_COMMIT]
            schema = get_file_schema(spec, handle, next_files[0].partition)
            added = [new for file in next_files for new in _change_file(lake, spec, schema, file, change)]
            try:
                replace_files(lake, spec, handle, next_files, added)
                changed += len(next_files)
            except CommitFailedError as error:
                tries -= 1
                if not tries:
                    raise EnvironmentFault(f"could not commit to {table}: {error}", COMMIT_ADVICE) from error
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not change rows of {lake.address(table)}", error) from error
    return changed


def _has_values(lake: Lake, table: str, file: StoredFile, column: str, values: pa.Array) -> bool:
    with lake.file_system().open_input_file(f"{lake.address(table)}/{file.path}".removeprefix("s3://")) as source:
        reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[column])
        if column not in reader.schema_arrow.names:
            return False
        batches = reader.iter_batches(_NARROW_ROWS, columns=[column])
        return any(
            pc.any(pc.is_in(pc.unique(batch.column(0)).cast(values.type), value_set=values)).as_py()
            for batch in batches
        )


def _change_file(
    lake: Lake, spec: TableSpec, schema: pa.Schema, file: StoredFile, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> list[StoredFile]:
    address = f"{lake.address(spec.name)}/{file.path}".removeprefix("s3://")
    with lake.file_system().open_input_file(address) as source:
        batches = pq.ParquetFile(source, pre_buffer=False).iter_batches(BATCH_ROWS, use_threads=False)
        complete_batches = (
            complete_batch
            for batch in batches
            for complete_batch in with_columns(pa.Table.from_batches([batch]), schema).to_batches()
        )
        added = list(
            write_files(
                lake, spec, schema, file, build_row_groups(map(change, complete_batches), schema, spec.row_group_rows)
            )
        )
    if sum(new_file.rows for new_file in added) != file.rows:
        raise EnvironmentFault(
            f"changing rows of {lake.address(spec.name)} would change the number of rows",
            "Nothing was changed. The files differ from the table's log: check whether another program wrote there.",
        )
    return added


def build_row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, max_rows: int = ROW_GROUP_ROWS
) -> Iterator[pa.Table]:
    """Rows in their order, joined to tables of the size of a row group."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for joined in _join_batches(batches, schema):
        # a row may be a page of a megabyte
        length = max(1, min(BATCH_ROWS, _ROW_GROUP_BYTES * joined.num_rows // max(joined.nbytes, 1)))
        for start in range(0, joined.num_rows, length):
            table = joined.slice(start, length)
            waiting.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= max_rows or size >= _ROW_GROUP_BYTES:
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _join_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """``batches`` in ``schema``. Small ones are copied into one, since each column of each costs as much as some
    hundred rows."""
    waiting: list[pa.Table] = []
    size = 0
    for batch in batches:
        waiting.append(with_columns(pa.Table.from_batches([batch]), schema))
        size += batch.nbytes
        if len(waiting) == _JOINED_BATCHES or size > _JOINED_BYTES:
            yield pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def write_files(
    lake: Lake,
    spec: TableSpec,
    schema: pa.Schema,
    template: StoredFile,
    row_groups: Iterator[pa.Table],
    name: str | None = None,
    *,
    quick: bool = False,
) -> Iterator[StoredFile]:
    """Writes files beside ``template``, and yields each once it is complete. The log does not name them yet.

    ``name`` is in the files' names, and must be unique. ``quick``: a few rows are packed quickly, until they are
    merged.
    """
    folder, clustered, run = template.path.rpartition("/")[0], clustered_by(spec), name or uuid4()
    system = lake.file_system()
    table, next_table = next(row_groups, None), next(row_groups, None)
    is_small = quick and table is not None and next_table is None and table.nbytes <= _FEW_BYTES
    for number in count():
        if table is None:
            return
        path = f"{folder}/part-{number:05}-{run}-c000.zstd.parquet".lstrip("/")
        address = f"{lake.address(spec.name)}/{path}".removeprefix("s3://")
        bounds: list[str] = []
        rows = 0
        with (
            system.open_output_stream(address) as sink,
            pq.ParquetWriter(
                sink,
                schema,
                **(_QUICK_COMPRESSION if is_small else _COMPRESSION),
                # as the format of the tables has times; a stored Arrow schema would say milliseconds to other readers
                coerce_timestamps="us",
                store_schema=False,
            ) as writer,
        ):
            while table is not None and sink.tell() < FILE_BYTES:
                if clustered in schema.names:
                    min_max = pc.min_max(table.column(clustered)).as_py()
                    bounds = [min([*bounds[:1], min_max["min"]]), max([*bounds[1:], min_max["max"]])]
                writer.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
                table, next_table = next_table, next(row_groups, None)
        size = system.get_file_info(address).size
        yield StoredFile(path, template.partition, size, rows, *(bounds or (None, None)))


def build_statistics(spec: TableSpec, file: StoredFile) -> str:
    """The statistics of a file for the log: its rows and, as for other files, bounds of the columns that make
    slices."""
    clustered = clustered_by(spec)
    statistics = {"numRecords": file.rows}
    if clustered is None or file.first is None:
        return json.dumps(statistics)
    bounds = {"minValues": {clustered: file.first}, "maxValues": {clustered: file.last}, "nullCount": {clustered: 0}}
    return json.dumps(statistics | bounds)
