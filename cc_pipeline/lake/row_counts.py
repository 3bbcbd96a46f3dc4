"""The number of rows that each slice of a table was committed with, kept beside its digests.

The count of a slice is a Delta application transaction of the commit that wrote its rows. So "as many rows are there
as were committed" can be asked without a scan, and two commits of one slice always meet in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.digests.digest import digest_from_int, digest_to_int
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import StoredFile, clustered_by

#: The values of a table's slice columns, in their order.
SliceKey: TypeAlias = tuple[str, ...]

#: What the names of counts begin with; the key of the slice follows.
COUNT_NAMES: Final = "rows:"
#: Stands for a count that is not known: the rows that are there are taken as they are, the next time.
NOT_COUNTED: Final = digest_from_int((1 << 60) - 1)
#: Slices that a message names.
_NAMED: Final = 3
#: Rows of a narrow column that are looked at together.
_NARROW_ROWS: Final = 1 << 16


def slice_key(spec: TableSpec, where: Mapping[str, str]) -> SliceKey:
    """The key of the slice whose columns have these values."""
    return tuple(where[name] for name in spec.slice_columns)


def count_name(key: SliceKey) -> str:
    """The name under which the row count of a slice is committed."""
    return COUNT_NAMES + ":".join(key)


def key_of(spec: TableSpec, name: str) -> SliceKey | None:
    """The slice whose row count is committed under ``name``; ``None`` where it is no name of a count."""
    if not name.startswith(COUNT_NAMES):
        return None
    if not spec.slice_columns:
        return ()
    # only the last column may have a colon in its values
    return tuple(name.removeprefix(COUNT_NAMES).split(":", len(spec.slice_columns) - 1))


class RowsOutOfBalance(EnvironmentFault):
    """A commit that would not leave the rows it should; nothing was committed.

    ``slices`` has, by key, the rows that a slice was committed with and those that are there.
    """

    def __init__(self, table: str, numbers: str, slices: Mapping[SliceKey, tuple[int | None, int]]) -> None:
        named = [
            f"{' '.join(key) or 'the table'}: {there:,} rows, committed with {'?' if said is None else f'{said:,}'}"
            for key, (said, there) in sorted(slices.items())
        ]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        super().__init__(
            f"{table}: {numbers} ({'; '.join(named[:_NAMED])}{more})",
            "Nothing was committed. Have these slices made again: cc-pipeline doctor --repair",
        )
        self.table, self.slices = table, dict(slices)


def committed_counts(
    lake: Lake, table: str, keys: Collection[SliceKey], version: int | None = None
) -> dict[SliceKey, int | None]:
    """The number of rows that each slice was committed with, as of ``version`` (default: now); ``None`` where it is not
    known. No rows are read. Raises ``EnvironmentFault``."""
    names = {key: count_name(key) for key in keys}
    found = lake.digests(table, [*names.values()], version)
    return {key: _count(found[name]) for key, name in names.items()}


def _count(digest: str | None) -> int | None:
    return None if digest is None or digest == NOT_COUNTED else digest_to_int(digest)


def check_balance(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    gone: Sequence[StoredFile],
    added: Sequence[StoredFile],
    new: Mapping[SliceKey, int],
) -> None:
    """Raises ``RowsOutOfBalance`` where a commit that puts ``added`` in the place of ``gone``, with ``new`` rows of
    each slice that it replaces, would take away or leave other rows than those.

    Only slices of which no count was committed are read, and they count as what is there.
    """
    before, after, written = _rows(gone), _rows(added), sum(new.values())
    said = committed_counts(lake, spec.name, new, handle.version())
    unknown = {key for key, count in said.items() if count is None}
    if unknown and unknown == said.keys():
        return
    replaced = sum(count or 0 for count in said.values())
    if unknown and gone:
        there = count_in_files(lake, spec, gone)
        replaced += sum(there[key] for key in unknown)
    if before - replaced + written == after:
        return
    there = count_in_files(lake, spec, gone)
    differing = {key: (count, there[key]) for key, count in said.items() if count != there[key]}
    numbers = f"{before:,} rows less {replaced:,} that are replaced and {written:,} new ones are not {after:,}"
    raise RowsOutOfBalance(spec.name, numbers, differing)


def _rows(files: Iterable[StoredFile]) -> int:
    return sum(file.rows for file in files)


def count_in_files(lake: Lake, spec: TableSpec, files: Iterable[StoredFile]) -> Counter[SliceKey]:
    """The rows of each slice in some files of a table. The log says it of files of one slice; of others their bounds
    do by row group, or one column is read. Raises ``EnvironmentFault``."""
    clustered = clustered_by(spec)
    found: Counter[SliceKey] = Counter()
    for file in files:
        above = tuple(file.partition[name] or "" for name in spec.slice_columns if name in file.partition)
        if clustered is None:
            found[above] += file.rows
        elif file.first is not None and file.first == file.last:
            found[(*above, file.first)] += file.rows
        else:
            for value, rows in _counted(lake, spec, file, clustered):
                found[(*above, value)] += rows
    return found


def _counted(lake: Lake, spec: TableSpec, file: StoredFile, column: str) -> Iterator[tuple[str, int]]:
    """Values of a column of a file, each with a number of rows; a value may come again."""
    address = f"{lake.address(spec.name)}/{file.path}".removeprefix("s3://")
    try:
        with lake.file_system().open_input_file(address) as source:
            reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[column])
            place = reader.schema_arrow.get_field_index(column)
            mixed = []
            for number in range(reader.num_row_groups):
                group = reader.metadata.row_group(number)
                bounds = group.column(place).statistics
                if bounds is not None and bounds.has_min_max and bounds.min == bounds.max and not bounds.null_count:
                    yield bounds.min, group.num_rows
                else:
                    mixed.append(number)
            for batch in reader.iter_batches(_NARROW_ROWS, mixed, [column], use_threads=False) if mixed else ():
                for pair in batch.column(0).cast(pa.string()).value_counts().to_pylist():
                    yield pair["values"], pair["counts"]
    except (OSError, pa.ArrowException) as error:
        raise lake_fault(f"could not read {address}", error) from error
