"""Delta tables to which rows are only added: opened, pinned at a version, appended to, and swapped.

A row of a table with slices has a ``generation``; it counts while a row of the table ``slices`` names that generation
(``slices.py``). Tables with a key have one row for each key: the newest (``keyed.py``). Only compaction and purges
remove files (docs/decisions/0018).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from cc_pipeline.atomic import make_durable_folder, sync_files
from cc_pipeline.capture_columns import SLICE
from cc_pipeline.errors import EnvironmentFault, PlaceFault, disk_is_full
from cc_pipeline.lake.columns import refuse_other_columns
from cc_pipeline.lake.damaged_files import DAMAGE_ADVICE
from cc_pipeline.lake.layout import ROW_GROUP_ROWS, StoredFile, list_files, read_actions

if TYPE_CHECKING:
    from cc_pipeline.lake.slice import Stage

#: Commits that a kept handle follows. It keeps each of them in memory, so every use costs more than the one before.
_MAX_HANDLE_COMMITS = 24
#: The log's old entries are looked for by maintenance (``vacuum.clean_log``): it means to list all commits of a month.
AFTER_COMMIT: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
#: The library's own retries would commit what was compared with an older version.
_COMPARED: Final = CommitProperties(max_commit_retries=0)
#: For every writer, whatever it passes: no entry of a log, and so no version, is deleted at a checkpoint.
_KEEPS_LOG: Final = {"delta.enableExpiredLogCleanup": "false"}
#: Entries of other processes since this one's last commit that it makes durable too, at most.
_MAX_SYNCED_ENTRIES: Final = 100
#: The version of a pinned table that does not exist yet.
NO_TABLE: Final = -1
#: The advice for a commit that failed because of other commits.
COMMIT_ADVICE: Final = "Another process may have changed the table at the same time: run it again."
_ID_CHARACTERS: Final = 32

GENERATION: Final = pa.field("generation", pa.int64(), nullable=False)
SEQ: Final = pa.field("seq", pa.int64(), nullable=False)
REMOVED: Final = pa.field("is_removed", pa.bool_(), nullable=False)


@dataclass(frozen=True)
class TableSpec:
    """The declaration of a table of the lake: all that maintenance, purges and publications need to know of it.

    ``slice_columns`` make a slice; ``key`` makes a row of a table without slices. ``sort_by`` is the order within a
    file. ``provenance_columns`` are columns that say when, where or by whom a row was made: rows that differ only in
    these have the same content. ``row_group_rows`` are the rows of a row group of its files. ``hidden`` are columns
    that no view shows.

    ``stage`` makes its slices again. With ``is_of_files``, what is called a target is a file, which no purge removes. A
    table that ``is_published`` nowhere is left out of copies."""

    name: str
    schema: pa.Schema
    slice_columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    provenance_columns: tuple[str, ...] = ()
    row_group_rows: int = ROW_GROUP_ROWS
    stage: Stage | None = None
    is_of_files: bool = False
    is_published: bool = True
    key: tuple[str, ...] = ()
    hidden: tuple[pa.Field, ...] = ()

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """All columns of the table, those included that no view shows."""
        # first: the library gives bounds of the first 32 columns alone
        hidden_columns = [
            column for column in ((SEQ, REMOVED) if self.key else (GENERATION,)) if column.name not in self.schema.names
        ]
        return pa.schema([*hidden_columns, *self.schema, *self.hidden])

    @property
    def has_slices(self) -> bool:
        """Whether the rows belong to slices, and have generations."""
        return bool(self.slice_columns)

    @property
    def has_targets(self) -> bool:
        """Whether the table has rows of targets in crawls, which a purge removes."""
        return self.slice_columns == SLICE and not self.is_of_files

    @property
    def partition_columns(self) -> list[str]:
        """The column in the names of folders, if any."""
        return ["crawl"] if "crawl" in (*self.slice_columns, *self.key[:1]) and self.name != "crawls" else []

    @property
    def bounded_columns(self) -> list[str]:
        """The columns whose bounds in each file the log has."""
        names = [*(self.slice_columns or self.key), *([GENERATION.name] if self.has_slices else [])]
        return [name for name in names if name not in self.partition_columns]


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table of ``lake`` at one version; ``actions`` is the log's table of its files (``None``: no table)."""

    lake: Lake = field(repr=False)
    spec: TableSpec
    version: int
    actions: pa.Table | None = field(default=None, repr=False, compare=False)

    @property
    def files(self) -> tuple[str, ...]:
        """The addresses of the files, never a glob."""
        # the log escapes once more what is escaped in the names of folders
        address = self.lake.address(self.spec.name)
        return tuple(sorted(f"{address}/{unquote(path)}" for path in self._list("path")))

    @property
    def crawls(self) -> list[str]:
        """The crawls of which there are files; an empty text for a table that is not divided by crawls."""
        return sorted({file.crawl for file in self.stored_files()})

    @property
    def rows(self) -> int:
        """The number of rows in the files, whether they count or not."""
        return sum(value or 0 for value in self._list("num_records"))

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(self._list("size_bytes"))

    @property
    def commit_id(self) -> str:
        """Identifies the files: a log that was restored uses version numbers again, for other commits. Empty if there
        is no table."""
        if self.version == NO_TABLE:
            return ""
        return sha256("\n".join(sorted(self._list("path"))).encode()).hexdigest()[:_ID_CHARACTERS]

    def stored_files(self, crawls: Collection[str] | None = None) -> list[StoredFile]:
        """The files with their sizes and bounds; those of some ``crawls`` where they are named."""
        return [] if self.actions is None else list_files(self.spec, self.actions, crawls)

    def _list(self, column: str) -> list[Any]:
        return self.actions.column(column).to_pylist() if self.actions is not None and self.actions.num_rows else []


class Lake:
    """The tables under one root (a folder or ``s3://bucket/prefix``).

    ``storage_options`` go to the Delta library as they are (credentials, endpoint). Every method raises
    ``EnvironmentFault`` when the place cannot be read or written.
    """

    def __init__(self, root: str, specs: Iterable[TableSpec], storage_options: Mapping[str, str] | None = None) -> None:
        self.root = root.rstrip("/")
        self.specs = {spec.name: spec for spec in specs}
        self._options = dict(storage_options) if storage_options else None
        self._handles: dict[str, tuple[int, DeltaTable]] = {}
        self._lock = threading.RLock()
        #: The newest version of each table that this object has seen on disk.
        self._durable: dict[str, int] = {}
        #: Answers of ``keyed.newest_rows``: by table, version, columns and condition.
        self.newest_rows: dict[tuple[str, int, tuple[str, ...], str], pa.Table] = {}

    def address(self, table: str) -> str:
        """The address of the table."""
        return f"{self.root}/tables/{table}"

    def append(self, table: str, files: Sequence[StoredFile]) -> None:
        """Adds ``files`` to a table, in one commit. Their rows count once a row of ``slices`` names them."""
        if not files:
            return
        with self._lock:
            handle = self.prepare(table)
            try:
                self.commit_files(table, handle, files)
            except (OSError, DeltaError) as error:
                raise lake_fault(f"could not write {self.address(table)}", error, PlaceFault) from error

    @contextmanager
    def fixed(self, table: str) -> Iterator[DeltaTable]:
        """A handle at the newest version of a table, which is made if it does not exist. Inside the block no other
        thread moves it, so a swap compares with that version."""
        with self._lock:
            yield self.prepare(table)

    def swap(
        self, table: str, handle: DeltaTable, added: Sequence[StoredFile], removed: Sequence[StoredFile] = (),
        *, is_data: bool = True,
    ) -> bool:  # fmt: skip
        """Commits exactly the version after that of ``handle``; ``False``, with nothing changed, if there is one.
        ``is_data``: whether the commit changes rows.

        A commit whose answer was lost is refused at the next try: callers look whether it is there.
        """
        try:
            self.commit_files(table, handle, added, removed, is_data=is_data, compared=True)
        except CommitFailedError:
            return False
        except (OSError, DeltaError) as error:
            raise lake_fault(f"could not write {self.address(table)}", error, PlaceFault) from error
        return True

    def commit_files(
        self,
        table: str,
        handle: DeltaTable,
        added: Sequence[StoredFile],
        removed: Sequence[StoredFile] = (),
        *,
        is_data: bool = True,
        compared: bool = False,
    ) -> None:
        """Commits files on top of ``handle``, durably. Raises ``CommitFailedError``, ``OSError`` and ``DeltaError``."""
        spec = self.specs[table]
        # readers may have a file open for a week from now on
        now = int(time.time() * 1_000)
        actions: list[AddAction | RemoveAction] = [
            *(RemoveAction(file.path, is_data, now, file.size, dict(file.partition)) for file in removed),
            *(
                AddAction(file.path, file.size, dict(file.partition), file.written_at, is_data, file.statistics)
                for file in added
            ),
        ]

        def commit(hooks: PostCommitHookProperties) -> None:
            handle.create_write_transaction(
                actions,
                "append",
                spec.stored_schema,
                partition_by=spec.partition_columns,
                commit_properties=_COMPARED if compared else None,
                post_commithook_properties=hooks,
            )

        self.commit_durably(table, handle.version(), commit, [file.path for file in added])

    def commit_durably(
        self,
        table: str,
        old_version: int,
        commit: Callable[[PostCommitHookProperties], object],
        files: Sequence[str] = (),
    ) -> None:
        """Commits to the log of a table; every commit goes this way. Calls ``commit``, which writes the entry after
        version ``old_version`` and gets the hooks that the library runs after it.

        In a folder, ``files`` (paths below the table's folder) are on disk before ``commit`` is called, and the entry
        when this returns: a power cut then takes back neither. A place on S3 is durable by itself. Raises the errors of
        ``commit``, and ``OSError``.
        """
        address = self.address(table)
        is_folder = "://" not in address
        if is_folder:
            sync_files(Path(address) / file for file in files)
        commit(AFTER_COMMIT)
        if is_folder:
            self._sync_log(table, old_version)

    def _sync_log(self, table: str, old_version: int) -> None:
        """Makes the entries and checkpoints of a log durable, from version ``old_version`` on: an entry that another
        process is still writing to disk must not be missing below a later one."""
        log = Path(self.address(table)) / "_delta_log"
        # a log that was restored meanwhile ends earlier than this object has seen
        first = max(
            min(self._durable.get(table, old_version - 1), old_version) + 1, old_version - _MAX_SYNCED_ENTRIES, 0
        )
        version = old_version + 1
        while (log / f"{version:020}.json").exists():
            version += 1
        expected_paths = [log / f"{number:020}.json" for number in range(first, version)]
        # a checkpoint may be one of the version before
        expected_paths += [
            log / f"{number:020}.checkpoint.parquet" for number in range(max(min(first, old_version), 0), version)
        ]
        existing_paths = [path for path in expected_paths if path.exists()]
        hint = log / "_last_checkpoint"
        # a repair takes a torn hint away, and the log is listed then
        if any(path.suffix == ".parquet" for path in existing_paths) and hint.exists():
            existing_paths.append(hint)
        sync_files(existing_paths)
        self._durable[table] = version - 1

    def version(self, table: str) -> int:
        """The current version of the table; -1 if it does not exist yet."""
        handle = self.handle(self.specs[table])
        return NO_TABLE if handle is None else handle.version()

    def pin(self, table: str, version: int | None = None) -> PinnedTable:
        """The table as it is now, or at ``version``, as explicit files."""
        spec = self.specs[table]
        with self._lock:
            handle = None if version == NO_TABLE else self.handle(spec) if version is None else self.open(spec, version)
            if handle is None:
                return PinnedTable(self, spec, NO_TABLE)
            return PinnedTable(self, spec, handle.version(), read_actions(handle))

    def read(
        self, table: str, where: Mapping[str, str | Sequence[str]] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows that count whose columns equal ``where``; see :func:`~cc_pipeline.lake.streaming.read_rows`."""
        from cc_pipeline.lake.streaming import read_rows  # noqa: PLC0415  # it is built on a lake

        return read_rows(self, table, where, columns)

    def file_system(self) -> FileSystem:
        """The file system that the files of pinned tables are on; credentials of S3 come from the usual chain."""
        if "://" not in self.root:
            return LocalFileSystem()
        options = self._options or {}
        return S3FileSystem(region=options.get("AWS_REGION"), endpoint_override=options.get("AWS_ENDPOINT_URL"))

    def other_tables(self) -> list[str]:
        """The names of stored tables that none of ``specs`` declares; folders without files are none."""
        files, folder = self.file_system(), f"{self.root}/tables".removeprefix("s3://")
        try:
            infos = files.get_file_info(FileSelector(folder, allow_not_found=True))
            names = {info.base_name for info in infos if info.type is FileType.Directory} - self.specs.keys()
            stored = {
                name
                for name in names
                for info in files.get_file_info(FileSelector(f"{folder}/{name}", recursive=True))
                if info.type is FileType.File
            }
        except OSError as error:
            raise lake_fault(f"could not list {folder}", error) from error
        return sorted(name for name in stored if not name.startswith((".", "_")))

    def handle(self, spec: TableSpec) -> DeltaTable | None:
        """The current table; ``None`` if it does not exist. Its log is read if it may have new entries. Raises
        ``EnvironmentFault``."""
        with self._lock:
            opened, kept_handle = self._handles.get(spec.name, (0, None))
            if kept_handle is not None:
                version = kept_handle.version()
                if not self.has_moved(spec.name, version):
                    return kept_handle
                if version - opened > _MAX_HANDLE_COMMITS:
                    kept_handle = None
            elif "://" not in self.root and not _exists(Path(f"{self.address(spec.name)}/_delta_log")):
                return None
            handle = self.open(spec, kept_handle=kept_handle)
            if handle is not None and handle is not kept_handle:
                self._handles[spec.name] = handle.version(), handle
            return handle

    def open(
        self, spec: TableSpec, version: int | None = None, *, kept_handle: DeltaTable | None = None
    ) -> DeltaTable | None:
        """Reads the log of a table, up to now or to ``version``; ``None`` if it does not exist. ``kept_handle`` reads
        only new entries. Raises ``EnvironmentFault``, also for a table with other columns than its spec."""
        try:
            if kept_handle is None:
                handle = DeltaTable(self.address(spec.name), version, storage_options=self._options)
            else:
                handle = kept_handle
                handle.update_incremental()
        except (OSError, DeltaError) as error:
            if version is None and isinstance(error, TableNotFoundError):
                return None
            raise lake_fault(f"could not open {self.address(spec.name)}", error) from error
        if spec.name in self.specs:
            refuse_other_columns(spec.name, handle.schema(), spec.stored_schema)
        return handle

    def forget(self, table: str) -> None:
        """Makes the next opening read the whole log of a table, as after a repair."""
        with self._lock:
            self._handles.pop(table, None)
            # a repair may have changed what a version has
            self.newest_rows.clear()

    def has_moved(self, table: str, version: int) -> bool:
        """Whether there may be commits to a table after a version of it. In a folder this is one look for the next
        entry; to list the log costs 300 times as much."""
        address = self.address(table)
        return "://" in address or _exists(Path(f"{address}/_delta_log/{version + 1:020}.json"))

    def prepare(self, table: str) -> DeltaTable:
        """A handle at the newest version of a table, which is made if it does not exist. Raises
        ``EnvironmentFault``."""
        spec = self.specs[table]
        handle = self.handle(spec)
        if handle is None:
            self._create(spec)
            handle = self.handle(spec)
            assert handle is not None, "it was made"
        return handle

    def _create(self, spec: TableSpec) -> None:
        address = self.address(spec.name)

        def create(hooks: PostCommitHookProperties) -> None:
            DeltaTable.create(
                address,
                schema=spec.stored_schema,
                mode="ignore",
                partition_by=spec.partition_columns or None,
                storage_options=self._options,
                # rows are found by these; statistics on long text columns would only swell the log
                configuration={"delta.dataSkippingStatsColumns": ",".join(spec.bounded_columns), **_KEEPS_LOG},
                post_commithook_properties=hooks,
            )

        try:
            if "://" not in address:
                make_durable_folder(Path(address) / "_delta_log")
            self.commit_durably(spec.name, NO_TABLE, create)
        except (OSError, DeltaError) as error:
            # another process may be making the table at this moment: look again
            if not isinstance(error, CommitFailedError) or self.handle(spec) is None:
                raise lake_fault(f"could not create {address}", error, PlaceFault) from error


def _exists(path: Path) -> bool:
    """Whether a file or folder of a lake exists. Raises ``EnvironmentFault`` if this user may not know."""
    try:
        return path.exists()
    except PermissionError as error:
        raise EnvironmentFault(
            f"the lake cannot be read: {path.parent} ({error.strerror})",
            "Give this user the right to read that folder and the folders above it, or run the command as their owner.",
        ) from error


def lake_fault(problem: str, error: Exception, family: type[EnvironmentFault] = EnvironmentFault) -> EnvironmentFault:
    """Turns an error of the Delta library or the file system into a fault of ``family`` whose message begins with
    ``problem``."""
    if disk_is_full(error):
        return PlaceFault(f"{problem}: the disk is full", "Free some space and run it again; committed data is intact.")
    return family(
        f"{problem}: {error}",
        f"{DAMAGE_ADVICE} If it finds none, check the lake's disk or bucket and permissions, then run it again.",
    )
