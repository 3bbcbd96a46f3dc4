"""Keeps the number of rows that each slice of a table was committed with, beside its digests.

The count of a slice is a Delta application transaction of the commit that wrote its rows. So the question "are as many
rows there as were committed" needs no scan, and two commits of one slice always meet in the log.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.digests.digest import digest_from_int, digest_to_int
from cc_pipeline.lake.lake import DigestsNotInLog, Lake, TableSpec, lake_fault
from cc_pipeline.lake.layout import StoredFile, clustered_by
from cc_pipeline.progress import list_first

#: The values of a table's slice columns, in their order.
SliceKey: TypeAlias = tuple[str, ...]

#: The prefix of the names of counts; the key of the slice follows.
COUNT_NAMES: Final = "rows:"
#: In place of the count of a slice that is to be made again: its rows are replaced then.
INVALID_COUNT: Final = digest_from_int((1 << 60) - 1)
#: Entries of a log that are read for what changed, at most.
_MOST_ENTRIES: Final = 5_000
#: Slices that a message names.
_MAX_NAMED_SLICES: Final = 3
#: Files that are read in parallel.
_PARALLEL_FILES: Final = 8
#: Rows of a narrow column in one batch.
_NARROW_ROWS: Final = 1 << 16


def slice_key(spec: TableSpec, where: Mapping[str, str]) -> SliceKey:
    """The key of the slice whose columns have these values."""
    return tuple(where[name] for name in spec.slice_columns)


def count_name(key: SliceKey) -> str:
    """The name under which the row count of a slice is committed."""
    return COUNT_NAMES + ":".join(key)


def parse_count_name(spec: TableSpec, name: str) -> SliceKey | None:
    """The slice whose row count is committed under ``name``; ``None`` if the name is not that of a count."""
    if not name.startswith(COUNT_NAMES):
        return None
    if not spec.slice_columns:
        return ()
    # only the last column may have a colon in its values
    return tuple(name.removeprefix(COUNT_NAMES).split(":", len(spec.slice_columns) - 1))


class RowsOutOfBalance(EnvironmentFault):
    """A commit to ``table`` would not leave the rows it should; nothing was committed.

    ``slices`` has, by key, the rows that a slice was committed with (``None``: not known) and those that are stored.
    """

    table: str
    slices: Mapping[SliceKey, tuple[int | None, int]]


def _build_balance_error(
    table: str, numbers: str, slices: Mapping[SliceKey, tuple[int | None, int]]
) -> RowsOutOfBalance:
    descriptions = [
        f"{' '.join(key) or 'the table'}: {rows:,} rows, committed with {'?' if count is None else f'{count:,}'}"
        for key, (count, rows) in sorted(slices.items(), key=lambda item: item[0])
    ]
    fault = RowsOutOfBalance(
        f"{table}: {numbers} ({list_first(descriptions, _MAX_NAMED_SLICES, '; ')})",
        "Nothing was committed. Make these slices again: cc-pipeline doctor --repair",
    )
    fault.table, fault.slices = table, dict(slices)
    return fault


def read_committed_counts(
    lake: Lake, table: str, keys: Collection[SliceKey], version: int | None = None
) -> dict[SliceKey, int | None]:
    """The number of rows that each slice was committed with, as of ``version`` (default: now); ``None`` if it is not
    known. No rows are read. Raises ``EnvironmentFault``."""
    names = {key: count_name(key) for key in keys}
    digests = lake.digests(table, [*names.values()], version)
    return {key: _parse_count(digests[name]) for key, name in names.items()}


def _parse_count(digest: str | None) -> int | None:
    return None if digest is None or digest == INVALID_COUNT else digest_to_int(digest)


def check_balance(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    removed: Sequence[StoredFile],
    added: Sequence[StoredFile],
    new: Mapping[SliceKey, int],
) -> None:
    """Raises ``RowsOutOfBalance`` if a commit that puts ``added`` in the place of ``removed``, with ``new`` rows of
    each replaced slice, would remove or leave other rows than those.

    Only slices without a committed count are read, and their stored rows count.
    """
    rows_before, rows_after, written = _sum_rows(removed), _sum_rows(added), sum(new.values())
    committed = read_committed_counts(lake, spec.name, new, handle.version())
    uncounted = {key for key, count in committed.items() if count is None}
    if uncounted and uncounted == committed.keys():
        return
    replaced = sum(count or 0 for count in committed.values())
    if uncounted and removed:
        counted_values = sorted(key[-1] for key in uncounted) if clustered_by(spec) is not None else None
        stored_counts = count_in_files(lake, spec, removed, counted_values)
        replaced += sum(stored_counts[key] for key in uncounted)
    if rows_before - replaced + written == rows_after:
        return
    stored_counts = count_in_files(lake, spec, removed)
    differing = {key: (count, stored_counts[key]) for key, count in committed.items() if count != stored_counts[key]}
    numbers = (
        f"the commit would leave {rows_after:,} rows instead of {rows_before - replaced + written:,}: {rows_before:,} "
        f"before, {replaced:,} replaced, {written:,} new"
    )
    raise _build_balance_error(spec.name, numbers, differing)


def _sum_rows(files: Iterable[StoredFile]) -> int:
    return sum(file.rows for file in files)


def count_in_files(
    lake: Lake, spec: TableSpec, files: Iterable[StoredFile], counted_values: Sequence[str] | None = None
) -> Counter[SliceKey]:
    """The rows of each slice in some files of a table; with ``counted_values``, sorted values of the last slice column,
    at least of those. The log has the count for files of one slice. For others the bounds of row groups are used, or
    one column is read.

    Raises ``EnvironmentFault``.
    """
    clustered = clustered_by(spec)
    counts: Counter[SliceKey] = Counter()
    for file in files:
        key_prefix = tuple(file.partition[name] or "" for name in spec.slice_columns if name in file.partition)
        if clustered is None:
            counts[key_prefix] += file.rows
        elif file.first is not None and file.first == file.last:
            counts[(*key_prefix, file.first)] += file.rows
        else:
            for value, rows in _count_column_values(lake, spec, file, clustered, counted_values):
                counts[(*key_prefix, value)] += rows
    return counts


def _count_column_values(
    lake: Lake, spec: TableSpec, file: StoredFile, column: str, counted_values: Sequence[str] | None
) -> Iterator[tuple[str, int]]:
    """Values of a column of a file, each with a number of rows; a value may be repeated."""
    address = f"{lake.address(spec.name)}/{file.path}".removeprefix("s3://")
    try:
        with lake.file_system().open_input_file(address) as source:
            reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[column])
            position = reader.schema_arrow.get_field_index(column)
            mixed = []
            for number in range(reader.num_row_groups):
                group = reader.metadata.row_group(number)
                bounds = group.column(position).statistics
                if bounds is None or not bounds.has_min_max:
                    mixed.append(number)
                elif bounds.min == bounds.max and not bounds.null_count:
                    yield bounds.min, group.num_rows
                elif counted_values is None or _has_value_between(counted_values, bounds.min, bounds.max):
                    mixed.append(number)
            for batch in reader.iter_batches(_NARROW_ROWS, mixed, [column], use_threads=False) if mixed else ():
                for pair in batch.column(0).cast(pa.string()).value_counts().to_pylist():
                    yield pair["values"], pair["counts"]
    except (OSError, pa.ArrowException) as error:
        raise lake_fault(f"could not read {address}", error) from error


def _has_value_between(sorted_values: Sequence[str], first: str, last: str) -> bool:
    """Whether any of the sorted values lies between two bounds."""
    position = bisect_left(sorted_values, first)
    return position < len(sorted_values) and sorted_values[position] <= last


@dataclass(frozen=True, slots=True)
class Miscounted:
    """Slices of a table that have other rows than they were committed with.

    ``slices`` has, by key, the rows that were committed (``None``: the slice is to be made again) and those that are
    stored. ``broken`` are the files (paths below the table's folder) that are missing or incomplete; none of their rows
    counts.
    """

    table: str
    slices: Mapping[SliceKey, tuple[int | None, int]] = field(default_factory=dict)
    broken: tuple[str, ...] = ()


def find_miscounted(
    lake: Lake, table: str, keys: Collection[SliceKey] | None = None, version: int | None = None
) -> Miscounted:
    """Finds the slices among ``keys`` (default: all) that have other rows at ``version`` (default: now) than they were
    committed with.

    It looks at the sizes of the files that may hold them and, if ``keys`` are given, at their footers. Rows are not
    read, except one column of files of several slices. A slice without a committed count is passed over. Raises
    ``EnvironmentFault`` if the log, or a complete file, cannot be read.
    """
    if keys is not None and not keys:
        return Miscounted(table)
    spec, pinned = lake.specs[table], lake.pin(table)
    if version is not None and version != pinned.version:
        pinned = lake.pin(table, version)
    files: dict[str, list[StoredFile]] = defaultdict(list)
    for file in pinned.stored_files(None if keys is None else _list_crawls(spec, keys)):
        files[file.partition.get("crawl") or ""].append(file)
    requested_keys = _group_by_crawl(spec, keys) if keys is not None else None
    all_keys = _group_by_crawl(spec, _list_counted_keys(lake, spec)) if requested_keys is None else {}
    slices: dict[SliceKey, tuple[int | None, int]] = {}
    broken: list[str] = []
    for crawl, crawl_keys in (requested_keys or all_keys).items():
        comparison = _compare_counts(
            lake, spec, files[crawl], crawl_keys, pinned.version, footers=requested_keys is not None
        )
        if comparison.broken and requested_keys is not None:
            # a broken file has rows of other slices too
            affected_keys = {*crawl_keys, *_list_counted_keys(lake, spec, crawl)}
            comparison = _compare_counts(lake, spec, files[crawl], affected_keys, pinned.version, footers=True)
        slices |= comparison.slices
        broken += comparison.broken
    return Miscounted(table, slices, tuple(broken))


def find_changed_keys(lake: Lake, table: str, old_version: int, new_version: int) -> set[SliceKey] | None:
    """The slices that commits after version ``old_version``, up to ``new_version``, changed or may have changed;
    ``None`` if the log does not tell. A commit that names no slice, a merge or a foreign one, may have changed all
    slices within the bounds of its files. No rows are read. Raises ``EnvironmentFault``."""
    spec = lake.specs[table]
    if new_version - old_version > _MOST_ENTRIES:
        return None
    changed_keys: set[SliceKey] = set()
    ranges: dict[str, list[tuple[str | None, str | None]]] = defaultdict(list)
    for version in range(old_version + 1, new_version + 1):
        entry = lake.log_entry(table, version)
        if entry is None:
            return None
        try:
            keys, files = _parse_entry(spec, entry)
        except (ValueError, KeyError, TypeError):
            return None
        changed_keys |= keys
        for crawl, first, last in files if not keys else ():
            ranges[crawl].append((first, last))
    for crawl, bounds in ranges.items():
        for key in _list_counted_keys(lake, spec, crawl):
            if any(first is None or last is None or first <= key[-1] <= last for first, last in bounds):
                changed_keys.add(key)
    return changed_keys


def _parse_entry(spec: TableSpec, entry: bytes) -> tuple[set[SliceKey], list[tuple[str, str | None, str | None]]]:
    """The slices that an entry of a log counts; and for each of its files the crawl, with the first and last slice. The
    slices of files that are only removed are not known."""
    keys: set[SliceKey] = set()
    added: list[tuple[str, str | None, str | None]] = []
    removed: set[str] = set()
    clustered = clustered_by(spec) or ""
    for line in entry.splitlines():
        action = json.loads(line)
        if "txn" in action and (key := parse_count_name(spec, action["txn"]["appId"])) is not None:
            keys.add(key)
        elif "add" in action:
            stats = json.loads(action["add"].get("stats") or "{}")
            bounds = (stats.get(bound_name, {}).get(clustered) for bound_name in ("minValues", "maxValues"))
            added.append((action["add"]["partitionValues"].get("crawl") or "", *bounds))
        elif "remove" in action:
            removed.add((action["remove"].get("partitionValues") or {}).get("crawl") or "")
    return keys, [*added, *((crawl, None, None) for crawl in removed - {added_file[0] for added_file in added})]


def _list_crawls(spec: TableSpec, keys: Collection[SliceKey]) -> frozenset[str] | None:
    return frozenset(key[0] for key in keys) if "crawl" in spec.slice_columns else None


def _group_by_crawl(spec: TableSpec, keys: Iterable[SliceKey]) -> dict[str, list[SliceKey]]:
    keys_by_crawl: dict[str, list[SliceKey]] = defaultdict(list)
    for key in keys:
        keys_by_crawl[key[0] if "crawl" in spec.slice_columns else ""].append(key)
    return keys_by_crawl


def _list_counted_keys(lake: Lake, spec: TableSpec, crawl: str = "") -> list[SliceKey]:
    """The slices of a crawl (default: all) that have a committed count. If the log does not tell, the slices with
    stored rows: whether they have a count is seen later."""
    has_target = len(spec.slice_columns) > 1
    try:
        names = lake.digest_names(spec.name, f"{COUNT_NAMES}{crawl}{':' if crawl and has_target else ''}")
    except DigestsNotInLog:
        files = lake.pin(spec.name).stored_files(_list_crawls(spec, [(crawl,)]) if crawl else None)
        return [*count_in_files(lake, spec, _split_intact(lake, spec, files, footers=True)[0])]
    return [key for key in (parse_count_name(spec, name) for name in names) if key is not None]


def _compare_counts(
    lake: Lake,
    spec: TableSpec,
    files: Sequence[StoredFile],
    keys: Collection[SliceKey],
    version: int,
    *,
    footers: bool,
) -> Miscounted:
    """Compares the stored rows of the slices of one crawl, or of a table without crawls, with their committed
    counts."""
    names = {key: count_name(key) for key in keys}
    digests = lake.digests(spec.name, [*names.values()], version)
    committed = {key: digests[name] for key, name in names.items() if digests[name] is not None}
    counted_values = sorted(key[-1] for key in committed) if clustered_by(spec) is not None else None
    possible_files = [
        file
        for file in files
        if counted_values is None
        or None in (file.first, file.last)
        or _has_value_between(counted_values, file.first or "", file.last or "")
    ]
    intact_files, broken = _split_intact(lake, spec, possible_files, footers=footers)
    stored_counts = count_in_files(lake, spec, intact_files, counted_values)
    counts = {key: (_parse_count(digest), stored_counts[key]) for key, digest in committed.items()}
    differing = {key: pair for key, pair in counts.items() if pair[0] != pair[1]}
    return Miscounted(spec.name, differing, tuple(broken))


def _split_intact(
    lake: Lake, spec: TableSpec, files: Sequence[StoredFile], *, footers: bool
) -> tuple[list[StoredFile], list[str]]:
    """The complete files, and the paths of the others."""
    system, address = lake.file_system(), lake.address(spec.name).removeprefix("s3://")

    def is_intact(file: StoredFile) -> bool:
        place = f"{address}/{file.path}"
        try:
            if not footers:
                return bool(system.get_file_info(place).size == file.size)
            with system.open_input_file(place) as source:
                return bool(source.size() == file.size and pq.read_metadata(source).num_rows == file.rows)
        except (FileNotFoundError, pa.ArrowInvalid):
            return False

    try:
        with ThreadPoolExecutor(_PARALLEL_FILES) as pool:
            intact_flags = [*pool.map(is_intact, files)] if len(files) > 1 else [is_intact(file) for file in files]
    except (OSError, pa.ArrowException) as error:
        raise lake_fault(f"could not look at files of {lake.address(spec.name)}", error) from error
    intact_files = [file for file, intact in zip(files, intact_flags, strict=True) if intact]
    return intact_files, [file.path for file, intact in zip(files, intact_flags, strict=True) if not intact]
