"""Adds files that workers wrote to a table: one commit of a driver puts them in the place of the slices that they make.

A worker needs the place of the lake and no more: it reads no log, so any number of workers write at the same time.
Their files count only once :func:`commit_added` names them. Maintenance's vacuum deletes files that no commit named, a
week after they were written."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileType

from cc_pipeline.atomic import make_durable_folder, sync_files
from cc_pipeline.errors import EnvironmentFault, PlaceFault
from cc_pipeline.lake.digests.digest import combine_digests, compute_content_digests
from cc_pipeline.lake.lake import Lake, PinnedTable, TableSpec, lake_fault
from cc_pipeline.lake.layout import StoredFile, clustered_by, list_stored_files, split_into_runs
from cc_pipeline.lake.replacing import build_row_groups, get_file_schema, replace_files, write_files
from cc_pipeline.lake.row_counts import SliceKey, count_in_files, slice_key
from cc_pipeline.lake.streaming import stream_table

#: Bytes of rows, uncompressed, that are sorted together: a file or two. Bounds the memory of a worker.
_SORT_BYTES: Final = 64 << 20
#: Files that are read in parallel.
_PARALLEL_FILES: Final = 16
#: Rows of a narrow column in one batch.
_NARROW_ROWS: Final = 1 << 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
#: A row group that was written: its rows, and by target their content digest and number.
_WrittenGroup: TypeAlias = tuple[int, dict[str, str], Counter[str]]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a worker wrote for ``table``: its path below the table's folder, its crawl, bytes and rows, and the
    first and last slice in it. ``contents`` has the content digest of each target's rows (``lake/digests/digest.py``),
    ``counts`` their number; both are empty for tables whose slices are whole crawls. All values are plain: the object
    can be pickled, and is JSON by :meth:`plain`."""

    table: str
    path: str
    crawl: str
    size: int
    rows: int
    first: str | None = None
    last: str | None = None
    contents: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The fields as values that JSON has."""
        return asdict(self)


def write_rows(
    lake_root: str,
    options: Mapping[str, str] | None,
    spec: TableSpec,
    crawl: str,
    batches: Iterable[pa.RecordBatch],
    name: str,
) -> list[AddedFile]:
    """Writes rows of ``crawl``, in the table's schema, to files that :func:`commit_added` can add; reads no log.

    ``name`` goes into the files' names, for people. Rows are sorted as the spec says, some 64 MB at a time; rows with
    equal sort keys keep their order. Memory is bounded, as long as single batches are small.
    Raises ``ValueError`` for rows of other crawls and for names that no file should have, ``EnvironmentFault`` when the
    place cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name for files: {name!r}")
    lake = Lake(lake_root, [spec], options)
    schema = pa.schema([column for column in spec.schema if column.name != "crawl"])
    folder = f"crawl={quote(crawl, safe='')}"
    address = f"{lake.address(spec.name)}/{folder}".removeprefix("s3://")
    template = StoredFile(f"{folder}/", {"crawl": crawl}, 0, 0)
    added: list[AddedFile] = []
    try:
        if "://" not in lake.root:
            make_durable_folder(Path(address))
        for number, run in enumerate(_sort_runs(spec, crawl, batches)):
            contents: deque[_WrittenGroup] = deque()
            groups = _note_contents(spec, build_row_groups(run.to_batches(), spec.schema), contents)
            # unique beside the caller's name: a driver that starts again numbers its tasks from the beginning
            for file in write_files(lake, spec, schema, template, groups, f"{name}-{number:03}-{uuid4()}"):
                target_totals = _take_contents(contents, file.rows)
                bounds = (file.first, file.last)
                added.append(AddedFile(spec.name, file.path, crawl, file.size, file.rows, *bounds, *target_totals))
        if "://" not in lake.root:
            # the driver may be another machine, whose own sync would not reach what is still in memory here
            sync_files(Path(lake.address(spec.name)) / file.path for file in added)
    except (OSError, pa.ArrowException) as error:
        raise lake_fault(f"could not write {lake.address(spec.name)}", error, PlaceFault) from error
    return added


def _sort_runs(spec: TableSpec, crawl: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    sort_keys = [(name, "ascending") for name in dict.fromkeys([clustered_by(spec), *spec.sort_by]) if name is not None]

    def sort_waiting() -> pa.Table:
        rows = pa.concat_tables(waiting)
        waiting.clear()
        return rows.sort_by(sort_keys) if sort_keys else rows

    waiting: list[pa.Table] = []
    size = 0
    for rows in build_row_groups(batches, spec.schema):
        if not pc.all(pc.equal(rows.column("crawl"), crawl)).as_py():
            raise ValueError(f"rows for {spec.name} of another crawl than {crawl}")
        if waiting and size + rows.nbytes > _SORT_BYTES:
            yield sort_waiting()
            size = 0
        waiting.append(rows)
        size += rows.nbytes
    if waiting:
        yield sort_waiting()


def _note_contents(spec: TableSpec, groups: Iterable[pa.Table], contents: deque[_WrittenGroup]) -> Iterator[pa.Table]:
    """``groups`` as they are stored. The content digests of each group are appended to ``contents`` before it is
    yielded."""
    by_target = "target" in spec.slice_columns
    for group in groups:
        digests = (
            compute_content_digests(group.to_batches(), "target", (*spec.provenance_columns, "crawl"))
            if by_target
            else {}
        )
        contents.append((group.num_rows, digests, _count_values(group, "target") if by_target else Counter()))
        yield group.drop_columns("crawl")


def _count_values(rows: pa.Table | pa.RecordBatch, column: str) -> Counter[str]:
    """The number of rows with each value of a column."""
    counts = pc.value_counts(rows.column(column))
    return Counter(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))


def _take_contents(contents: deque[_WrittenGroup], rows: int) -> tuple[dict[str, str], dict[str, int]]:
    """Takes the first row groups with together ``rows`` rows out of ``contents``. Returns their content digests and row
    counts by target."""
    parts: list[dict[str, str]] = []
    counts: Counter[str] = Counter()
    while rows > 0:
        count, digests, group_counts = contents.popleft()
        rows -= count
        parts.append(digests)
        counts += group_counts
    return combine_contents(parts), dict(counts)


def combine_contents(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The content digest of each target's rows from those of several files."""
    by_target: dict[str, list[str]] = defaultdict(list)
    for part in parts:
        for target, number in part.items():
            by_target[target].append(number)
    return {target: combine_digests(numbers) for target, numbers in by_target.items()}


def commit_added(
    lake: Lake, table: str, added: Sequence[AddedFile], slices: Sequence[Mapping[str, str]], digests: Mapping[str, str]
) -> int:
    """Replaces the rows of ``slices`` by those of the files ``added``, in one commit with ``digests``, as
    :meth:`Lake.commit` does with rows. Returns the number of rows added.

    Files that also hold other slices are rewritten without these. Nothing happens if the commit was made before. Other
    processes may read, commit and merge meanwhile; the commit is tried again then. Raises ``ValueError`` for files of
    another table, or with rows of none of ``slices``, ``EnvironmentFault`` when a file is not there as it was written,
    and when the lake cannot be read or written; nothing was changed then.
    """
    spec = lake.specs[table]
    files = _check_files(spec, added, slices)
    counts: Counter[SliceKey] = Counter()
    for file in {added_file.path: added_file for added_file in added}.values():
        for target, count in (file.counts or {"": file.rows}).items():
            counts[(file.crawl, target) if file.counts else (file.crawl,)] += count
    rows = sum(file.rows for file in files)
    _require_files(lake, table, files)
    if files and lake.holds(table, digests):
        stored_paths = {file.path for file in lake.pin(table).stored_files({slice_["crawl"] for slice_ in slices})}
        if stored_paths.issuperset(file.path for file in files):
            return rows
    lake.replace_slices(table, slices, digests, lambda _: (files, counts))
    return rows


def put_files(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    replacing: SliceReplacement,
    files: Sequence[StoredFile],
    counts: Mapping[SliceKey, int],
    digests: Mapping[str, str],
) -> None:
    """Tries once to replace the slices that ``replacing`` names by ``files``, with ``counts`` rows of each slice, in
    one commit with ``digests``. Files that the log names already are not added again.

    Raises ``ValueError`` for rows of other slices; ``CommitFailedError``, with nothing changed, if another process
    changed files that were looked at; ``EnvironmentFault`` when the lake cannot be read, ``OSError`` or ``DeltaError``
    when it cannot be written.
    """
    try:
        current_files = list_stored_files(spec, handle, replacing.crawls)
        removed_files, rewritten_files = replacing.plan(handle, current_files, {file.path for file in files})
    except pa.ArrowException as error:
        raise lake_fault(f"could not read {lake.address(spec.name)}", error) from error
    current_paths = {file.path for file in current_files}
    new_files = [file for file in files if file.path not in current_paths]
    new_counts = replacing.count_rows(counts, removed_files)
    replace_files(lake, spec, handle, removed_files, [*new_files, *rewritten_files], digests, new_counts)


def write_slices(
    lake: Lake, spec: TableSpec, handle: DeltaTable, batches: Iterable[pa.RecordBatch]
) -> tuple[list[StoredFile], Counter[SliceKey]]:
    """Writes rows, which have the schema and order of the table at the version of ``handle``, to files that the log
    does not name yet. Returns these and the number of rows of each slice. Memory is bounded. Raises any error of
    ``batches``."""
    counts: Counter[SliceKey] = Counter()
    schema = get_file_schema(spec, handle, handle.metadata().partition_columns)
    return [*_write_batches(lake, spec, schema, batches, counts)], counts


def _write_batches(
    lake: Lake, spec: TableSpec, schema: pa.Schema, batches: Iterable[pa.RecordBatch], counts: Counter[SliceKey]
) -> Iterator[StoredFile]:
    """Files with the rows of ``batches``, which follow each other by crawl; ``counts`` gets those of each slice."""
    clustered = clustered_by(spec)

    def count_part(part: pa.RecordBatch, key_prefix: SliceKey) -> pa.RecordBatch:
        if clustered is None:
            counts[key_prefix] += part.num_rows
        else:
            for value, rows in _count_values(part, clustered).items():
                counts[(*key_prefix, value)] += rows
        return part

    if "crawl" not in spec.slice_columns:
        groups = build_row_groups((count_part(batch, ()) for batch in batches), schema)
        yield from write_files(lake, spec, schema, StoredFile("", {}, 0, 0), groups, quick=True)
        return
    parts = (part for batch in batches for part in _split_by_crawl(batch))
    for crawl, crawl_parts in groupby(parts, key=itemgetter(0)):
        folder = f"crawl={quote(crawl, safe='')}"
        if "://" not in lake.root:
            make_durable_folder(Path(lake.address(spec.name)) / folder)
        template = StoredFile(f"{folder}/", {"crawl": crawl}, 0, 0)
        groups = build_row_groups((count_part(part, (crawl,)) for _, part in crawl_parts), schema, spec.row_group_rows)
        yield from write_files(lake, spec, schema, template, groups, quick=True)


def _split_by_crawl(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    crawls = batch.column("crawl").unique().to_pylist()
    if len(crawls) == 1:
        return [(crawls[0], batch)]
    return [(crawl, batch.filter(pc.equal(batch.column("crawl"), crawl))) for crawl in crawls]


def _check_files(spec: TableSpec, added: Sequence[AddedFile], slices: Sequence[Mapping[str, str]]) -> list[StoredFile]:
    """The files as the log has them, each once."""
    if spec.slice_columns not in (("crawl",), ("crawl", "target")):
        raise ValueError(f"no files can be added to {spec.name}, whose slices are not of a crawl")
    by_target = "target" in spec.slice_columns
    replaced_slices = {(slice_["crawl"], slice_["target"] if by_target else None) for slice_ in slices}
    files = {file.path: file for file in added}
    for file in added:
        if file.table != spec.name or files[file.path] != file:
            raise ValueError(f"{file.path} was written for {file.table}, or twice: it cannot be added to {spec.name}")
        file_slices = {(file.crawl, target) for target in file.contents} if by_target else {(file.crawl, None)}
        if not file_slices <= replaced_slices:
            raise ValueError(
                f"{file.path} has rows of slices that are not replaced: {sorted(file_slices - replaced_slices)[:3]}"
            )
        if by_target and sum(file.counts.values()) != file.rows:
            raise ValueError(f"{file.path} has {file.rows:,} rows, and its slices {sum(file.counts.values()):,}")
    return [
        StoredFile(file.path, {"crawl": file.crawl}, file.size, file.rows, file.first, file.last)
        for file in files.values()
    ]


def _require_files(lake: Lake, table: str, files: Sequence[StoredFile]) -> None:
    """Raises ``EnvironmentFault`` if one of ``files`` is missing or incomplete: the log would name it all the same."""
    system = lake.file_system()

    def is_complete(file: StoredFile) -> bool:
        info = system.get_file_info(f"{lake.address(table)}/{file.path}".removeprefix("s3://"))
        return bool(info.type == FileType.File and info.size == file.size)

    try:
        with ThreadPoolExecutor(_PARALLEL_FILES) as pool:
            missing_files = [
                file.path for file, complete in zip(files, pool.map(is_complete, files), strict=True) if not complete
            ]
    except OSError as error:
        raise lake_fault(f"could not look at files of {lake.address(table)}", error) from error
    if missing_files:
        raise EnvironmentFault(
            f"{len(missing_files)} of {len(files)} files that were written for {table} are missing or incomplete: "
            f"{missing_files[0]}",
            "Nothing was changed. Maintenance deletes such files after a week; run it again.",
        )


class SliceReplacement:
    """The files that hold rows of some slices (no slices: the whole table), and the rewritten files with their other
    rows. Files are looked at and rewritten once, however often a commit is tried."""

    def __init__(self, lake: Lake, spec: TableSpec, slices: Sequence[Mapping[str, str]]) -> None:
        self._lake, self._spec = lake, spec
        self._clustered = clustered_by(spec)
        self._keys = {slice_key(spec, slice_) for slice_ in slices}
        self._replaces_all = not slices
        values_by_crawl: dict[str, set[str]] = defaultdict(set)
        for slice_ in slices:
            values_by_crawl[slice_.get("crawl", "")].add(slice_[self._clustered] if self._clustered else "")
        #: The crawls that may be touched; ``None``: any.
        self.crawls = None if self._replaces_all or "crawl" not in spec.slice_columns else frozenset(values_by_crawl)
        self._values_by_crawl = {crawl: sorted(values) for crawl, values in values_by_crawl.items()}
        self._holds_by_path: dict[str, tuple[bool, bool]] = {}
        self._rewritten_files: dict[tuple[str, ...], list[StoredFile]] = {}

    def plan(
        self, handle: DeltaTable, current_files: Sequence[StoredFile], added_paths: set[str]
    ) -> tuple[list[StoredFile], list[StoredFile]]:
        """The files of ``current_files`` that have to go, and the new files with the rows of them that stay.

        ``added_paths`` are paths of the files that are added.
        """
        if self._replaces_all:
            return [file for file in current_files if file.path not in added_paths], []
        possible_files = [file for file in current_files if file.path not in added_paths and self._may_hold_rows(file)]
        unread_files = [file for file in possible_files if file.path not in self._holds_by_path]
        with ThreadPoolExecutor(_PARALLEL_FILES) as pool:
            self._holds_by_path |= {
                file.path: holds
                for file, holds in zip(unread_files, pool.map(self._inspect_file, unread_files), strict=True)
            }
        replaced_files = [file for file in possible_files if self._holds_by_path[file.path] == (True, False)]
        mixed_files = [file for file in possible_files if self._holds_by_path[file.path] == (True, True)]
        rewritten_files: list[StoredFile] = []
        for crawl in self._values_by_crawl:
            # files of a run do not overlap, so neither do the rewritten ones
            for run in split_into_runs([file for file in mixed_files if _get_crawl(file) == crawl]):
                key = tuple(file.path for file in run)
                if key not in self._rewritten_files:
                    self._rewritten_files[key] = self._rewrite_files(handle, crawl, run)
                rewritten_files += self._rewritten_files[key]
        return [*replaced_files, *mixed_files], rewritten_files

    def count_rows(
        self, new_counts: Mapping[SliceKey, int], removed_files: Sequence[StoredFile]
    ) -> dict[SliceKey, int]:
        """The new number of rows of each replaced slice. ``new_counts`` has the slices with any; ``removed_files`` are
        the files of :meth:`plan`. Raises ``ValueError`` for rows of other slices."""
        if self._replaces_all:
            keys = count_in_files(self._lake, self._spec, removed_files) if self._spec.slice_columns else [()]
            return dict.fromkeys(keys, 0) | dict(new_counts)
        other_keys = new_counts.keys() - self._keys
        if other_keys:
            raise ValueError(f"rows for {self._spec.name} of slices that are not replaced: {sorted(other_keys)[:3]}")
        return dict.fromkeys(self._keys, 0) | dict(new_counts)

    def _may_hold_rows(self, file: StoredFile) -> bool:
        values = self._values_by_crawl.get(_get_crawl(file))
        if values is None:
            return False
        if self._clustered is None or file.first is None or file.last is None:
            return True
        position = bisect_left(values, file.first)
        return position < len(values) and values[position] <= file.last

    def _inspect_file(self, file: StoredFile) -> tuple[bool, bool]:
        """Whether the file has rows of the slices, and whether it has other rows."""
        if self._clustered is None or (file.first is not None and file.first == file.last):
            return True, False
        has_replaced_rows = has_other_rows = False
        address = f"{self._lake.address(self._spec.name)}/{file.path}".removeprefix("s3://")
        with self._lake.file_system().open_input_file(address) as source:
            reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[self._clustered])
            for batch in reader.iter_batches(_NARROW_ROWS, columns=[self._clustered], use_threads=False):
                is_replaced = self._match_values(_get_crawl(file), pc.unique(batch.column(0)).cast(pa.string()))
                has_replaced_rows = has_replaced_rows or bool(pc.any(is_replaced).as_py())
                has_other_rows = has_other_rows or not pc.all(is_replaced).as_py()
                if has_replaced_rows and has_other_rows:
                    break
        return has_replaced_rows, has_other_rows

    def _match_values(self, crawl: str, values: pa.Array) -> pa.Array:
        return pc.is_in(values, value_set=pa.array(self._values_by_crawl[crawl], pa.string()))

    def _rewrite_files(self, handle: DeltaTable, crawl: str, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Writes files with the rows of ``files`` that belong to no replaced slice."""
        lake, spec, clustered = self._lake, self._spec, self._clustered
        schema = get_file_schema(spec, handle, handle.metadata().partition_columns)
        addresses = tuple(f"{lake.address(spec.name)}/{file.path}" for file in files)
        pinned = PinnedTable(spec, handle.version(), addresses, sum(file.rows for file in files))
        rows_read = 0

        def read_kept_rows() -> Iterator[pa.RecordBatch]:
            nonlocal rows_read
            for batch in stream_table(lake, pinned):
                rows_read += batch.num_rows
                kept_rows = batch.filter(pc.invert(self._match_values(crawl, batch.column(clustered))))
                if kept_rows.num_rows:
                    yield kept_rows

        written = list(
            write_files(lake, spec, schema, files[0], build_row_groups(read_kept_rows(), schema, spec.row_group_rows))
        )
        if rows_read != pinned.rows:
            raise EnvironmentFault(
                f"the number of rows in the files of {lake.address(spec.name)} differs from the table's log",
                "Nothing was changed. Check whether another program wrote to the table.",
            )
        return written


def _get_crawl(file: StoredFile) -> str:
    return file.partition.get("crawl") or ""
