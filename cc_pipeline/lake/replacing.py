"""Files of a table written anew and put in the place of others, in one commit that conflicts with every commit that
takes out one of the same files, and with no other: no row gets lost, and none is there twice.

What merging, moving and adding rows have in common.
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
from cc_pipeline.lake.digests.digest import digest_from_int
from cc_pipeline.lake.evolution import with_columns
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import FILE_BYTES, ROW_GROUP_ROWS, StoredFile, clustered_by, stored_files
from cc_pipeline.lake.row_counts import SliceKey, check_balance, count_name

#: Bytes of rows, not packed, in a row group at most: a row may be a whole page.
_ROW_GROUP_BYTES: Final = 8 << 20
#: Rows that are put into a row group at a time.
BATCH_ROWS: Final = 1_024
#: Batches that become one, and their bytes.
_FEW_TOGETHER: Final = 32
_SMALL_TOGETHER: Final = 1 << 20
#: Rows of a narrow column that are looked at together.
_NARROW_ROWS: Final = 1 << 16
#: Files whose rows are changed in one commit.
_AT_ONCE: Final = 8
#: Files taken out by one commit above which the log gets a checkpoint at once.
_MANY_REMOVED: Final = 200
#: How the files of tables are packed.
_PACKED: Final = {"compression": "ZSTD", "compression_level": 3}
#: The same for a few rows, until they are merged: what costs then is what each column costs, to write and to read. It
#: is half of that without a dictionary, and where to unpack needs no state; files are smaller.
_PACKED_QUICKLY: Final = {"compression": "SNAPPY", "use_dictionary": False}
#: Bytes of rows up to which they are few.
_FEW_BYTES: Final = 2 << 20
#: Commits in a row that may meet another process's.
_TRIES: Final = 20


def opened_apart(lake: Lake, table: str) -> DeltaTable | None:
    """A handle that stays at the version of now, whatever other threads do; ``None`` where there is no table."""
    spec = lake.specs[table]
    lake.look_again(table, always=True)
    handle = lake.handle(spec)
    return None if handle is None else lake.open(spec, handle.version())


def schema_of_files(spec: TableSpec, handle: DeltaTable, partition: Iterable[str]) -> pa.Schema:
    """The columns that files of a table have: those it has itself, without those in the names of folders."""
    here = {field.name for field in handle.schema().fields} - set(partition)
    return pa.schema([field for field in spec.schema if field.name in here])


def replace_files(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    gone: Sequence[StoredFile],
    added: Sequence[StoredFile],
    digests: Mapping[str, str] | None = None,
    counts: Mapping[SliceKey, int] | None = None,
    *,
    is_balanced: bool = True,
) -> None:
    """Commits that ``added`` stand in the place of ``gone``, with ``digests`` by name and the row counts of the slices
    that have other rows afterwards.

    ``handle`` stays at the version that the files were read from. Raises ``CommitFailedError`` where another process
    took out one of them meanwhile, or committed a digest of one of these names; then nothing was changed. Raises
    ``RowsOutOfBalance``, and nothing was changed, where the table would not have the rows that it had, without those
    of the slices, and with ``counts``; not where ``is_balanced`` is false, for who takes out a file that is broken.
    """
    new = counts or {}
    if is_balanced:
        check_balance(lake, spec, handle, gone, added, new)
    now = int(time.time() * 1_000)
    # as changes of data, which merges are not: otherwise two merges of the same files both get through
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(file.path, True, now, file.size, dict(file.partition)) for file in gone),
        *(
            AddAction(file.path, file.size, dict(file.partition), now, True, statistics_of(spec, file))
            for file in added
        ),
    ]
    said = {count_name(key): digest_from_int(rows) for key, rows in new.items()}
    lake.commit_actions(spec.name, handle, actions, {**(digests or {}), **said}, checkpoint=len(gone) > _MANY_REMOVED)


def change_rows(
    lake: Lake,
    table: str,
    crawl: str,
    column: str,
    values: pa.Array,
    change: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> int:
    """Writes the files of ``crawl`` anew that have rows whose ``column`` is one of ``values``; gives how many.

    ``change`` takes batches of such a file, rows with other values among them, and gives as many rows in the same
    columns; afterwards none has one of ``values``. Anybody may read, commit and merge meanwhile: what others replace
    is looked at again, until no row of the table's newest version has any of them. The old files stay until they are
    vacuumed. Raises ``EnvironmentFault``.
    """
    spec = lake.specs[table]
    changed, tries = 0, _TRIES
    known: dict[str, bool] = {}
    try:
        while (handle := opened_apart(lake, table)) is not None:
            files = [file for file in stored_files(spec, handle) if file.partition.get("crawl") == crawl]
            due: list[StoredFile] = []
            for file in files:
                if file.path not in known:
                    known[file.path] = _has(lake, table, file, column, values)
                if known[file.path]:
                    due.append(file)
            if not due:
                return changed
            some = due[:_AT_ONCE]
            schema = schema_of_files(spec, handle, some[0].partition)
            added = [new for file in some for new in _changed(lake, spec, schema, file, change)]
            try:
                replace_files(lake, spec, handle, some, added)
                changed += len(some)
            except CommitFailedError as error:
                tries -= 1
                if not tries:
                    raise EnvironmentFault(f"could not commit to {table}: {error}", "Run it again.") from error
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not change rows of {lake.address(table)}", error) from error
    return changed


def _has(lake: Lake, table: str, file: StoredFile, column: str, values: pa.Array) -> bool:
    with lake.file_system().open_input_file(f"{lake.address(table)}/{file.path}".removeprefix("s3://")) as source:
        reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[column])
        if column not in reader.schema_arrow.names:
            return False
        batches = reader.iter_batches(_NARROW_ROWS, columns=[column])
        return any(
            pc.any(pc.is_in(pc.unique(batch.column(0)).cast(values.type), value_set=values)).as_py()
            for batch in batches
        )


def _changed(
    lake: Lake, spec: TableSpec, schema: pa.Schema, file: StoredFile, change: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> list[StoredFile]:
    address = f"{lake.address(spec.name)}/{file.path}".removeprefix("s3://")
    with lake.file_system().open_input_file(address) as source:
        batches = pq.ParquetFile(source, pre_buffer=False).iter_batches(BATCH_ROWS, use_threads=False)
        whole = (one for batch in batches for one in with_columns(pa.Table.from_batches([batch]), schema).to_batches())
        added = list(
            write_files(lake, spec, schema, file, whole_row_groups(map(change, whole), schema, spec.row_group_rows))
        )
    if sum(one.rows for one in added) != file.rows:
        raise EnvironmentFault(
            f"changing rows of {lake.address(spec.name)} would change how many there are",
            "Nothing was changed. The files disagree with the table's log: look whether somebody wrote there.",
        )
    return added


def whole_row_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, most_rows: int = ROW_GROUP_ROWS
) -> Iterator[pa.Table]:
    """Rows in their order, put together to as many as a row group has."""
    held: list[pa.Table] = []
    rows = size = 0
    for whole in _together(batches, schema):
        # a row may be a page of a megabyte
        length = max(1, min(BATCH_ROWS, _ROW_GROUP_BYTES * whole.num_rows // max(whole.nbytes, 1)))
        for start in range(0, whole.num_rows, length):
            table = whole.slice(start, length)
            held.append(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            if rows >= most_rows or size >= _ROW_GROUP_BYTES:
                yield pa.concat_tables(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _together(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """``batches`` in ``schema``; small ones are copied into one, as each column of each costs as much as some hundred
    rows."""
    few: list[pa.Table] = []
    size = 0
    for batch in batches:
        few.append(with_columns(pa.Table.from_batches([batch]), schema))
        size += batch.nbytes
        if len(few) == _FEW_TOGETHER or size > _SMALL_TOGETHER:
            yield pa.concat_tables(few).combine_chunks() if len(few) > 1 else few[0]
            few, size = [], 0
    if few:
        yield pa.concat_tables(few).combine_chunks()


def write_files(
    lake: Lake,
    spec: TableSpec,
    schema: pa.Schema,
    like: StoredFile,
    row_groups: Iterator[pa.Table],
    name: str | None = None,
    *,
    quick: bool = False,
) -> Iterator[StoredFile]:
    """Writes files beside ``like``; gives each once it is whole. The log does not name them yet.

    ``name`` is in the files' names, and nobody else's. ``quick``: a few rows are packed for a quick look, until they
    are merged.
    """
    folder, clustered, run = like.path.rpartition("/")[0], clustered_by(spec), name or uuid4()
    system = lake.file_system()
    table, following = next(row_groups, None), next(row_groups, None)
    are_few = quick and table is not None and following is None and table.nbytes <= _FEW_BYTES
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
                **(_PACKED_QUICKLY if are_few else _PACKED),
                # as the format of the tables has times
                coerce_timestamps="us",
            ) as writer,
        ):
            while table is not None and sink.tell() < FILE_BYTES:
                if clustered in schema.names:
                    found = pc.min_max(table.column(clustered)).as_py()
                    bounds = [min([*bounds[:1], found["min"]]), max([*bounds[1:], found["max"]])]
                writer.write_table(table, row_group_size=table.num_rows)
                rows += table.num_rows
                table, following = following, next(row_groups, None)
        size = system.get_file_info(address).size
        yield StoredFile(path, like.partition, size, rows, *(bounds or (None, None)))


def statistics_of(spec: TableSpec, file: StoredFile) -> str:
    """What the log says of a file: its rows and, as for other files, bounds of the columns that make slices."""
    clustered = clustered_by(spec)
    known = {"numRecords": file.rows}
    if clustered is None or file.first is None:
        return json.dumps(known)
    bounds = {"minValues": {clustered: file.first}, "maxValues": {clustered: file.last}, "nullCount": {clustered: 0}}
    return json.dumps(known | bounds)
