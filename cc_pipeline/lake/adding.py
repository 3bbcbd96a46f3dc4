"""Files of a table that workers write, and that one commit of a driver puts in the place of the slices they make.

A worker needs the place of the lake and no more: it reads no log, so any number of them write at the same time. What it
wrote does not count before :func:`commit_added` names it; files that no commit named go with upkeep's vacuum, a week
after they were written.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow.fs import FileType

from cc_pipeline.errors import EnvironmentFault, PlaceFault
from cc_pipeline.lake.digests.digest import content_versions, together
from cc_pipeline.lake.lake import Lake, PinnedTable, TableSpec, lake_fault
from cc_pipeline.lake.layout import StoredFile, clustered_by, runs_of, stored_files
from cc_pipeline.lake.replacing import opened_apart, replace_files, schema_of_files, whole_row_groups, write_files
from cc_pipeline.lake.streaming import stream_table

#: Bytes of rows, not packed, that are sorted together: a file or two. Bounds the memory of a worker.
_SORTED_TOGETHER: Final = 64 << 20
#: Commits in a row that may meet another process's.
_TRIES: Final = 20
#: Files that are looked at at the same time.
_AHEAD: Final = 16
#: Rows of a narrow column that are looked at together.
_NARROW_ROWS: Final = 1 << 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a worker wrote for ``table``: its path below the table's folder, its crawl, bytes and rows, the first
    and last slice in it, and what its rows of each target say as a number (``lake/digests/digest.py``; empty for tables
    whose slices are whole crawls). Plain values: it can be pickled, and is JSON by :meth:`plain`."""

    table: str
    path: str
    crawl: str
    size: int
    rows: int
    first: str | None = None
    last: str | None = None
    contents: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As values that JSON has."""
        return asdict(self)


def write_rows(
    lake_root: str,
    options: Mapping[str, str] | None,
    spec: TableSpec,
    crawl: str,
    batches: Iterable[pa.RecordBatch],
    name: str,
) -> list[Added]:
    """Writes rows of ``crawl``, in the table's schema, to files that :func:`commit_added` can add; no log is read.

    ``name`` goes into the files' names, for people. Rows are sorted as the spec says, some 64 MB at a time, and those
    of a slice stay in their order else. Memory is bounded, as long as single batches are small.
    Raises ``ValueError`` for rows of other crawls and for names that no file should have, ``EnvironmentFault`` when the
    place cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name for files: {name!r}")
    lake = Lake(lake_root, [spec], options)
    schema = pa.schema([one for one in spec.schema if one.name != "crawl"])
    folder = f"crawl={quote(crawl, safe='')}"
    address = f"{lake.address(spec.name)}/{folder}".removeprefix("s3://")
    like = StoredFile(f"{folder}/", {"crawl": crawl}, 0, 0)
    added: list[Added] = []
    try:
        if "://" not in lake.root:
            lake.file_system().create_dir(address, recursive=True)
        for number, run in enumerate(_sorted_runs(spec, crawl, batches)):
            contents: deque[tuple[int, dict[str, str]]] = deque()
            groups = _noting(spec, whole_row_groups(run.to_batches(), spec.schema), contents)
            # a name of our own beside the caller's: a driver that starts again counts its tasks from the beginning
            for file in write_files(lake, spec, schema, like, groups, f"{name}-{number:03}-{uuid4()}"):
                own = _of_rows(contents, file.rows)
                added.append(Added(spec.name, file.path, crawl, file.size, file.rows, file.first, file.last, own))
    except (OSError, pa.ArrowException) as error:
        raise lake_fault(f"could not write {lake.address(spec.name)}", error, PlaceFault) from error
    return added


def _sorted_runs(spec: TableSpec, crawl: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    order = [(name, "ascending") for name in dict.fromkeys([clustered_by(spec), *spec.sort_by]) if name is not None]

    def run() -> pa.Table:
        rows = pa.concat_tables(held)
        held.clear()
        return rows.sort_by(order) if order else rows

    held: list[pa.Table] = []
    size = 0
    for rows in whole_row_groups(batches, spec.schema):
        if not pc.all(pc.equal(rows.column("crawl"), crawl)).as_py():
            raise ValueError(f"rows for {spec.name} of another crawl than {crawl}")
        if held and size + rows.nbytes > _SORTED_TOGETHER:
            yield run()
            size = 0
        held.append(rows)
        size += rows.nbytes
    if held:
        yield run()


def _noting(
    spec: TableSpec, groups: Iterable[pa.Table], contents: deque[tuple[int, dict[str, str]]]
) -> Iterator[pa.Table]:
    """``groups`` as they are stored; what each says goes to ``contents`` before."""
    by_target = "target" in spec.slice_columns
    for group in groups:
        said = content_versions(group.to_batches(), "target", (*spec.apart, "crawl")) if by_target else {}
        contents.append((group.num_rows, said))
        yield group.drop_columns("crawl")


def _of_rows(contents: deque[tuple[int, dict[str, str]]], rows: int) -> dict[str, str]:
    """What the first row groups of ``contents`` say, as many as have ``rows``; they are taken out."""
    found: list[dict[str, str]] = []
    while rows > 0:
        count, said = contents.popleft()
        rows -= count
        found.append(said)
    return contents_of(found)


def contents_of(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The number of each target's rows from those of several files."""
    by_target: dict[str, list[str]] = defaultdict(list)
    for said in found:
        for target, number in said.items():
            by_target[target].append(number)
    return {target: together(numbers) for target, numbers in by_target.items()}


def commit_added(
    lake: Lake, table: str, added: Sequence[Added], slices: Sequence[Mapping[str, str]], digests: Mapping[str, str]
) -> int:
    """Replaces the rows of ``slices`` by those of the files ``added``, in one commit with ``digests``, as
    :meth:`Lake.commit` does with rows; gives the rows added.

    Files that hold other slices too are written anew without these. Nothing happens where the commit was made before.
    Anybody may read, commit and merge meanwhile; it is tried again then. Raises ``ValueError`` for files of another
    table, or with rows of none of ``slices``, ``EnvironmentFault`` when a file is not there as it was written, and when
    the lake cannot be read or written; nothing was changed then.
    """
    spec = lake.specs[table]
    files = _checked(spec, added, slices)
    rows = sum(file.rows for file in files)
    try:
        lake.prepare(table)
        _look_for(lake, table, files)
        replacing = Replacing(lake, spec, slices)
        for left in reversed(range(_TRIES)):
            handle = opened_apart(lake, table)
            assert handle is not None
            lake.check()
            here = stored_files(spec, handle)
            gone, rest = replacing.plan(handle, here, {file.path for file in files})
            new = [file for file in files if file.path not in {one.path for one in here}]
            if not gone and not new and lake.holds(table, digests):
                return rows
            try:
                replace_files(spec, handle, gone, [*new, *rest], digests)
                return rows
            except CommitFailedError as error:
                # files that this takes out were replaced meanwhile, or one of these slices was committed: look again
                if left == 0:
                    raise EnvironmentFault(f"could not commit to {table}: {error}", "Run it again.") from error
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise lake_fault(f"could not add files to {lake.address(table)}", error) from error
    raise AssertionError("no try was left")


def put_rows(
    lake: Lake,
    spec: TableSpec,
    handle: DeltaTable,
    replacing: Replacing,
    batches: Iterable[pa.RecordBatch],
    digests: Mapping[str, str],
) -> None:
    """One try to put rows, in the schema and order of a table at the version of ``handle``, in the place of the slices
    that ``replacing`` names, in one commit with ``digests``; memory is bounded, whatever is replaced.

    Raises ``CommitFailedError`` where another process changed what was looked at, and nothing was changed;
    ``EnvironmentFault`` when the lake cannot be read, ``OSError`` or ``DeltaError`` when it cannot be written, and what
    ``batches`` raises.
    """
    new = [*_written(lake, spec, schema_of_files(spec, handle, ["crawl"]), batches)]
    try:
        gone, rest = replacing.plan(handle, stored_files(spec, handle), {file.path for file in new})
    except pa.ArrowException as error:
        raise lake_fault(f"could not read {lake.address(spec.name)}", error) from error
    replace_files(spec, handle, gone, [*new, *rest], digests)


def _written(lake: Lake, spec: TableSpec, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[StoredFile]:
    """Files with the rows of ``batches``, which follow each other by crawl."""
    parts = (part for batch in batches for part in _by_crawl(batch))
    for crawl, own in groupby(parts, key=itemgetter(0)):
        folder = f"crawl={quote(crawl, safe='')}"
        if "://" not in lake.root:
            lake.file_system().create_dir(f"{lake.address(spec.name)}/{folder}", recursive=True)
        like = StoredFile(f"{folder}/", {"crawl": crawl}, 0, 0)
        yield from write_files(lake, spec, schema, like, whole_row_groups((part for _, part in own), schema))


def _by_crawl(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    crawls = batch.column("crawl").unique().to_pylist()
    if len(crawls) == 1:
        return [(crawls[0], batch)]
    return [(crawl, batch.filter(pc.equal(batch.column("crawl"), crawl))) for crawl in crawls]


def _checked(spec: TableSpec, added: Sequence[Added], slices: Sequence[Mapping[str, str]]) -> list[StoredFile]:
    """The files as the log has them, each once."""
    if spec.slice_columns not in (("crawl",), ("crawl", "target")):
        raise ValueError(f"no files can be added to {spec.name}, whose slices are not of a crawl")
    by_target = "target" in spec.slice_columns
    named = {(one["crawl"], one["target"] if by_target else None) for one in slices}
    files = {file.path: file for file in added}
    for file in added:
        if file.table != spec.name or files[file.path] != file:
            raise ValueError(f"{file.path} was written for {file.table}, or twice: it cannot be added to {spec.name}")
        has = {(file.crawl, target) for target in file.contents} if by_target else {(file.crawl, None)}
        if not has <= named:
            raise ValueError(f"{file.path} has rows of slices that are not replaced: {sorted(has - named)[:3]}")
    return [
        StoredFile(file.path, {"crawl": file.crawl}, file.size, file.rows, file.first, file.last)
        for file in files.values()
    ]


def _look_for(lake: Lake, table: str, files: Sequence[StoredFile]) -> None:
    """Raises ``EnvironmentFault`` where one of ``files`` is not there whole: the log would take it all the same."""
    system = lake.file_system()

    def is_whole(file: StoredFile) -> bool:
        found = system.get_file_info(f"{lake.address(table)}/{file.path}".removeprefix("s3://"))
        return bool(found.type == FileType.File and found.size == file.size)

    with ThreadPoolExecutor(_AHEAD) as pool:
        lacking = [file.path for file, whole in zip(files, pool.map(is_whole, files), strict=True) if not whole]
    if lacking:
        raise EnvironmentFault(
            f"{len(lacking)} of {len(files)} files that were written for {table} are not there, or not whole: "
            f"{lacking[0]}",
            "Nothing was changed. Upkeep deletes such files after a week; run it again.",
        )


class Replacing:
    """Which files hold rows of some slices, and what is left of them: looked at and written once, however often a
    commit is tried."""

    def __init__(self, lake: Lake, spec: TableSpec, slices: Sequence[Mapping[str, str]]) -> None:
        self._lake, self._spec = lake, spec
        self._clustered = clustered_by(spec)
        named: dict[str, set[str]] = defaultdict(set)
        for one in slices:
            named[one["crawl"]].add(one.get("target", ""))
        self._named = {crawl: sorted(own) for crawl, own in named.items()}
        self._held: dict[str, tuple[bool, bool]] = {}
        self._rest: dict[tuple[str, ...], list[StoredFile]] = {}

    def plan(
        self, handle: DeltaTable, here: Sequence[StoredFile], but: set[str]
    ) -> tuple[list[StoredFile], list[StoredFile]]:
        """The files of ``here`` that have to go, and those with the rows of them that stay.

        ``but`` are paths of the files that are added.
        """
        near = [file for file in here if file.path not in but and self._may_hold(file)]
        unknown = [file for file in near if file.path not in self._held]
        with ThreadPoolExecutor(_AHEAD) as pool:
            self._held |= {file.path: held for file, held in zip(unknown, pool.map(self._holds, unknown), strict=True)}
        whole = [file for file in near if self._held[file.path] == (True, False)]
        mixed = [file for file in near if self._held[file.path] == (True, True)]
        rest: list[StoredFile] = []
        for crawl in self._named:
            # files of a run follow each other, so what is left of them does
            for run in runs_of([file for file in mixed if file.partition["crawl"] == crawl]):
                key = tuple(file.path for file in run)
                if key not in self._rest:
                    self._rest[key] = self._left_of(handle, crawl, run)
                rest += self._rest[key]
        return [*whole, *mixed], rest

    def _may_hold(self, file: StoredFile) -> bool:
        named = self._named.get(file.partition["crawl"] or "")
        if named is None:
            return False
        if self._clustered is None or file.first is None or file.last is None:
            return True
        place = bisect_left(named, file.first)
        return place < len(named) and named[place] <= file.last

    def _holds(self, file: StoredFile) -> tuple[bool, bool]:
        """Whether the file has rows of the slices, and whether it has others."""
        if self._clustered is None or (file.first is not None and file.first == file.last):
            return True, False
        ours = others = False
        address = f"{self._lake.address(self._spec.name)}/{file.path}".removeprefix("s3://")
        with self._lake.file_system().open_input_file(address) as source:
            reader = pq.ParquetFile(source, pre_buffer=False, read_dictionary=[self._clustered])
            for batch in reader.iter_batches(_NARROW_ROWS, columns=[self._clustered], use_threads=False):
                is_ours = self._are_ours(file.partition["crawl"], pc.unique(batch.column(0)).cast(pa.string()))
                ours = ours or bool(pc.any(is_ours).as_py())
                others = others or not pc.all(is_ours).as_py()
                if ours and others:
                    break
        return ours, others

    def _are_ours(self, crawl: str | None, targets: pa.Array) -> pa.Array:
        return pc.is_in(targets, value_set=pa.array(self._named[crawl or ""], pa.string()))

    def _left_of(self, handle: DeltaTable, crawl: str, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Files, written here, with the rows of ``files`` that are of no slice that is replaced."""
        lake, spec = self._lake, self._spec
        schema = schema_of_files(spec, handle, ["crawl"])
        addresses = tuple(f"{lake.address(spec.name)}/{file.path}" for file in files)
        pinned = PinnedTable(spec, handle.version(), addresses, sum(file.rows for file in files))
        seen = 0

        def others() -> Iterator[pa.RecordBatch]:
            nonlocal seen
            for batch in stream_table(lake, pinned):
                seen += batch.num_rows
                left = batch.filter(pc.invert(self._are_ours(crawl, batch.column("target"))))
                if left.num_rows:
                    yield left

        written = list(write_files(lake, spec, schema, files[0], whole_row_groups(others(), schema)))
        if seen != pinned.rows:
            raise EnvironmentFault(
                f"files of {lake.address(spec.name)} have other rows than the table's log says",
                "Nothing was changed. Look whether somebody wrote there.",
            )
        return written
