"""Delta tables in which a commit overwrites exactly the slices it names and carries their input digests.

The digest of a slice is stored as a Delta application transaction, in the same atomic commit as the rows. So the answer
to "are these inputs already here?" never disagrees with the rows (docs/decisions/0001).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from cc_pipeline.atomic import make_durable_folder, sync_files
from cc_pipeline.capture_columns import SLICE
from cc_pipeline.errors import EnvironmentFault, PlaceFault, disk_is_full
from cc_pipeline.lake.columns import refuse_other_columns
from cc_pipeline.lake.digests.digest import digest_from_int, digest_to_int
from cc_pipeline.lake.digests.digest_reader import UNREADABLE, DigestReader
from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS, UnknownDigests
from cc_pipeline.lake.incomplete_tables import DAMAGE_ADVICE, find_damaged_log_files
from cc_pipeline.lake.layout import ROW_GROUP_ROWS, StoredFile, list_files, read_actions
from cc_pipeline.lake.predicates import scan

if TYPE_CHECKING:
    from cc_pipeline.lake.row_counts import SliceKey
    from cc_pipeline.lake.slice import Stage

#: How often a commit is tried when other processes commit to the same table first.
_COMMIT_TRIES = 20
#: Commits that a kept handle follows. It keeps each of them in memory, so every use costs more than the one before.
_MAX_HANDLE_COMMITS = 24
#: The log's old entries are looked for by maintenance (``vacuum.clean_log``): it means to list all commits of a month.
AFTER_COMMIT: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
#: For every writer, whatever it passes: no entry of a log, and so no version, is deleted at a checkpoint.
_KEEPS_LOG: Final = {"delta.enableExpiredLogCleanup": "false"}
#: Entries of other processes since this one's last commit that it makes durable too, at most.
_MAX_SYNCED_ENTRIES: Final = 100
#: The version of a pinned table that does not exist yet.
_NO_TABLE = -1
#: The advice for a commit that failed because of other commits.
COMMIT_ADVICE: Final = "Another process may have changed the table at the same time: run it again."
_ID_CHARACTERS: Final = 32

#: The purge that removes the rows of a slice: none, that of the target, or also that of one subset of the target.
RemovedWith: TypeAlias = Literal["nothing", "target", "subset"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The declaration of a table of the lake: all that maintenance, purges and publications need to know of it.

    ``slice_columns`` make a slice, ``sort_by`` is the order within a file. ``provenance_columns`` are columns that say
    when, where or by whom a row was made: rows that differ only in these have the same content. ``row_group_rows`` are
    the rows of a row group of its files.

    ``stage`` makes its slices again. A table that is none of the tables of its stage has one row per slice, written by
    :func:`~cc_pipeline.lake.slice.write_notes`. ``removed_with`` says when the rows of a target in a crawl go; it means
    nothing for tables without these two columns. A table that ``is_published`` nowhere is left out of copies."""

    name: str
    schema: pa.Schema
    slice_columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    provenance_columns: tuple[str, ...] = ()
    row_group_rows: int = ROW_GROUP_ROWS
    stage: Stage | None = None
    removed_with: RemovedWith = "subset"
    is_published: bool = True

    @property
    def has_targets(self) -> bool:
        """Whether the table has rows of targets in crawls, which a purge removes."""
        return self.slice_columns == SLICE and self.removed_with != "nothing"

    @property
    def has_row_a_slice(self) -> bool:
        """Whether the table has one row per slice, besides the tables of its stage."""
        return self.stage is not None and self.name not in self.stage.tables


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table at one version: explicit file addresses, never a glob.

    ``left_out`` are slices (values of the slice columns) whose rows do not count, although files have some.
    ``commit_id`` is as of :meth:`Lake.commit_id`. ``actions`` is the log's table of files (``None``: no table).
    """

    spec: TableSpec
    version: int
    files: tuple[str, ...]
    rows: int
    bytes: int = 0
    left_out: tuple[tuple[str, ...], ...] = ()
    commit_id: str = ""
    actions: pa.Table | None = field(default=None, repr=False, compare=False)

    def stored_files(self, crawls: Collection[str] | None = None) -> list[StoredFile]:
        """The files with their sizes and bounds; those of some ``crawls`` where they are named."""
        return [] if self.actions is None else list_files(self.spec, self.actions, crawls)


class DigestsNotInLog(EnvironmentFault):
    """A log does not tell which digests a table has. Its rows may tell."""


class Lake:
    """The tables under one root (a folder or ``s3://bucket/prefix``).

    ``storage_options`` go to the Delta library as they are (credentials, endpoint). Every method raises
    ``EnvironmentFault`` when the place cannot be read or written.
    """

    def __init__(
        self,
        root: str,
        specs: Iterable[TableSpec],
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root.rstrip("/")
        self.specs = {spec.name: spec for spec in specs}
        self._options = dict(storage_options) if storage_options else None
        self._handles: dict[str, tuple[int, DeltaTable]] = {}
        self._digest_reader = DigestReader(self)
        self._lock = threading.Lock()
        #: The newest version of each table that this object has seen on disk.
        self._durable: dict[str, int] = {}
        #: Blocks of :meth:`hold_versions` that are open, the tables looked at in them, and those that are looked at
        #: anyway.
        self._blocks = 0
        self._seen: dict[str, DeltaTable | None] = {}
        self._pins: dict[str, PinnedTable] = {}
        self._moving: set[str] = set()
        self._checks: list[Callable[[], object]] = []

    def address(self, table: str) -> str:
        """The address of the table."""
        return f"{self.root}/tables/{table}"

    @contextmanager
    def hold_versions(self) -> Iterator[None]:
        """Inside the block each table is looked at once, however often it is read, so that all questions are answered
        from one version of it and cost one look at its log.

        Commits of this object are seen at once. A commit looks first, so it meets the commits of others as usual. Other
        commits are seen then, or after the block. Blocks may be nested, and in several threads; then the last to end
        counts.
        """
        with self._lock:
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._seen.clear()
                    self._pins.clear()
                    self._moving.clear()

    def invalidate(self, table: str = "", *, until_block_ends: bool = False) -> None:
        """Makes the next opening look at the table (default: each table), also where it is :meth:`hold_versions`;
        ``until_block_ends``, until the block ends: for callers that commit by a handle of their own."""
        with self._lock:
            for name in [table] if table else [*self._seen]:
                self._seen.pop(name, None)
            if table and until_block_ends and self._blocks:
                self._moving.add(table)

    @contextmanager
    def checked(self, check: Callable[[], object]) -> Iterator[None]:
        """Inside the block each try of a commit calls ``check`` once the version that it replaces is pinned. An error
        of ``check`` ends the commit, and nothing was changed.

        So nothing slips in between: a commit of the same digest name after the version was pinned makes this commit
        fail, and the next try checks again.
        """
        self._checks.append(check)
        try:
            yield
        finally:
            self._checks.remove(check)

    def check(self) -> None:
        """Calls the functions given to :meth:`checked`; for callers that commit by a handle of their own, once it is
        opened."""
        for check in tuple(self._checks):
            check()

    def commit(
        self, table: str, data: pa.Table, slices: Sequence[Mapping[str, str]], digests: Mapping[str, str]
    ) -> int:
        """Replaces the rows of ``slices`` by ``data`` in one atomic commit. Returns the number of rows written.

        ``slices`` name values of the table's slice columns, e.g. ``{"crawl": …, "target": …}``; an empty sequence
        replaces the whole table. ``digests`` maps a digest name to its hexadecimal value.
        """
        spec = self.specs[table]
        data = data.select(spec.schema.names).cast(spec.schema)
        if spec.sort_by and data.num_rows:
            data = data.sort_by([(name, "ascending") for name in spec.sort_by])
        return self.commit_stream(table, data.to_batches, slices, digests)

    def commit_stream(
        self,
        table: str,
        open_batches: Callable[[], Iterable[pa.RecordBatch]],
        slices: Sequence[Mapping[str, str]],
        digests: Mapping[str, str],
    ) -> int:
        """As :meth:`commit`, from record batches in the table's schema and final order, with flat memory.

        ``open_batches`` is called once per try, since a commit that meets another one is tried again. Its errors are
        raised as they are.
        """
        from cc_pipeline.lake.adding import write_slices  # noqa: PLC0415  # it is built on a lake

        rows = 0

        def write(handle: DeltaTable) -> tuple[Sequence[StoredFile], Mapping[SliceKey, int]]:
            nonlocal rows
            files, counts = write_slices(self, self.specs[table], handle, open_batches())
            rows = sum(counts.values())
            return files, counts

        self.replace_slices(table, slices, digests, write)
        return rows

    def replace_slices(
        self,
        table: str,
        slices: Sequence[Mapping[str, str]],
        digests: Mapping[str, str],
        write: Callable[[DeltaTable], tuple[Sequence[StoredFile], Mapping[SliceKey, int]]],
    ) -> None:
        """Replaces the rows of ``slices`` by files, in one commit; every commit of rows goes this way. ``write`` is
        called once per try, with a handle at the version that is replaced, and gives the files and the rows of each
        slice in them."""
        from cc_pipeline.lake.adding import SliceReplacement, put_files  # noqa: PLC0415  # they are built on a lake

        spec = self.specs[table]
        self.prepare(table)
        replacing = SliceReplacement(self, spec, slices)
        for remaining_tries in reversed(range(_COMMIT_TRIES)):
            try:
                with self._take_handle(spec) as handle:
                    self.check()
                    # the table first: who commits after rows were looked at is met
                    put_files(self, spec, handle, replacing, *write(handle), digests)
                return
            except (OSError, DeltaError) as error:
                # another process replaced neighbouring slices of the same file meanwhile: read again and retry
                self._raise_unless_retried(table, error, remaining_tries)

    @contextmanager
    def _take_handle(self, spec: TableSpec) -> Iterator[DeltaTable]:
        """A handle at the newest version of an existing table. No other caller gets it in the block, so it stays at
        that version; opening another one would read the log again."""
        with self._lock:
            self._seen.pop(spec.name, None)
            handle = self._get_newest(spec)
            kept_handle = self._handles.pop(spec.name, None)
        if handle is None or kept_handle is None:
            raise EnvironmentFault(
                f"{self.address(spec.name)} does not exist any more", "Find out which program removed the table."
            )
        try:
            yield handle
        finally:
            with self._lock:
                self._handles.setdefault(spec.name, kept_handle)

    def commit_digests(self, table: str, digests: Mapping[str, str]) -> None:
        """Commits new ``digests`` of slices of an existing table; its rows stay as they are."""
        spec = self.specs[table]
        if self.version(table) < 0:
            return
        self.prepare(table)
        for remaining_tries in reversed(range(_COMMIT_TRIES)):
            try:
                with self._take_handle(spec) as handle:
                    self.check()
                    self.commit_actions(table, handle, [], digests)
                return
            except (OSError, DeltaError) as error:
                # another process has replaced files meanwhile, which the library treats as if they were read here
                self._raise_unless_retried(table, error, remaining_tries)

    def commit_actions(
        self,
        table: str,
        handle: DeltaTable,
        actions: Sequence[AddAction | RemoveAction],
        digests: Mapping[str, str],
        *,
        checkpoint: bool = False,
    ) -> None:
        """Commits ``actions`` and ``digests`` on top of the version of ``handle``, durably; ``checkpoint``: with one.

        Raises ``CommitFailedError`` if another process removed one of the same files meanwhile, or committed a digest
        of one of these names; ``OSError`` and ``DeltaError`` when the table cannot be written.
        """
        schema = self.specs[table].schema
        stored_columns = {field.name for field in handle.schema().fields}
        transactions = [Transaction(name, digest_to_int(value)) for name, value in digests.items()]

        def commit(hooks: PostCommitHookProperties) -> None:
            handle.create_write_transaction(
                list(actions),
                "append",
                pa.schema([field for field in schema if field.name in stored_columns]),
                partition_by=handle.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=transactions) if transactions else None,
                post_commithook_properties=hooks,
            )
            if checkpoint:
                handle.create_checkpoint()

        added = [action.path for action in actions if isinstance(action, AddAction)]
        self.commit_durably(table, handle.version(), commit, added)

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
        self.invalidate(table)

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

    def _raise_unless_retried(self, table: str, error: Exception, remaining_tries: int) -> None:
        """Raises the fault for a failed commit. Does nothing if another commit caused the failure and tries are
        ``remaining_tries``."""
        if not isinstance(error, CommitFailedError):
            raise lake_fault(f"could not write {self.address(table)}", error, PlaceFault) from error
        if remaining_tries == 0:
            raise EnvironmentFault(f"could not commit to {table}: {error}", COMMIT_ADVICE) from error

    def digest(self, table: str, name: str) -> str | None:
        """The digest last committed under ``name``, or ``None``."""
        return self.digests(table, [name])[name]

    def digests(self, table: str, names: Sequence[str], version: int | None = None) -> dict[str, str | None]:
        """As :meth:`digest`, for many names over one reading of the log; as of ``version`` where one is given. The log
        is not read for no names."""
        if not names:
            return {}
        try:
            numbers = self._digest_reader.read_numbers(table, names, version)
        except UNREADABLE as error:
            raise lake_fault(f"could not read the digests of {self.address(table)}", error) from error
        return {name: digest_from_int(numbers[name]) if name in numbers else None for name in names}

    def digest_names(
        self, table: str, prefix: str = "", excluded: str | None = None, required: str | None = None
    ) -> list[str]:
        """All digest names that begin with ``prefix``, without those whose digest is ``excluded``; or only those whose
        digest is ``required``. Raises ``DigestsNotInLog`` if the log does not tell."""
        return [
            name for names in self.read_name_batches(table, prefix, excluded, required) for name in names.to_pylist()
        ]

    def read_name_batches(
        self, table: str, prefix: str = "", excluded: str | None = None, required: str | None = None
    ) -> Iterator[pa.Array]:
        """As :meth:`digest_names`, batch by batch: they may be millions."""
        batches = self._digest_reader.read_all(table, None, prefix)
        if batches is UNKNOWN_DIGESTS:
            raise DigestsNotInLog(
                f"the log of {self.address(table)} does not tell which slices the table has",
                "Check the table: cc-pipeline doctor",
            )
        try:
            for names, numbers in batches:
                if required is not None:
                    yield names.filter(pc.equal(numbers, digest_to_int(required)))
                else:
                    yield names if excluded is None else names.filter(pc.not_equal(numbers, digest_to_int(excluded)))
        except UNREADABLE as error:
            raise lake_fault(f"could not read the log of {self.address(table)}", error) from error

    def find_differing(
        self, tables: Sequence[str], versions: Mapping[str, int], prefix: str
    ) -> list[str] | UnknownDigests:
        """The names that begin with ``prefix`` and under which ``tables`` have different digests, at the ``versions``
        of them (default: now); ``UNKNOWN_DIGESTS`` if a log does not tell. Memory is bounded, however many names there
        are."""
        try:
            return self._digest_reader.find_differing(tables, versions, prefix)
        except UNREADABLE as error:
            raise lake_fault(f"could not read the logs of {', '.join(tables)}", error) from error

    def version(self, table: str) -> int:
        """The current version of the table; -1 if it does not exist yet."""
        if (kept_pin := self._find_kept_pin(table)) is not None:
            return kept_pin.version
        handle = self.handle(self.specs[table])
        return _NO_TABLE if handle is None else handle.version()

    def commit_id(self, table: str, version: int | None = None) -> str:
        """Identifies the rows and digests of a table, now or at ``version``: a digest of the table's id and of the last
        entry of its log that changed any.

        A log that was restored uses version numbers again, for other commits; and deleting superseded files makes
        versions that change nothing. Empty if there is no table. Raises ``EnvironmentFault``, also for a version that
        the log does not have.
        """
        spec = self.specs[table]
        if version is None and (kept_pin := self._find_kept_pin(table)) is not None:
            return kept_pin.commit_id
        handle = None if version == _NO_TABLE else self.handle(spec)
        return "" if handle is None else self._commit_id(spec, handle, version)

    def _commit_id(self, spec: TableSpec, handle: DeltaTable, version: int | None = None) -> str:
        table_version = handle.version() if version is None else version
        try:
            entry = self._digest_reader.log(spec.name).find_last_change(table_version)
            if entry is None:
                # the entry was deleted after a checkpoint: the files of the version identify it
                old_handle = handle if table_version == handle.version() else self.open(spec, table_version)
                entry = b"" if old_handle is None else "\n".join(sorted(old_handle.file_uris())).encode()
            return sha256(str(handle.metadata().id).encode() + b"\n" + entry).hexdigest()[:_ID_CHARACTERS]
        except UNREADABLE as error:
            raise lake_fault(f"could not read the log of {self.address(spec.name)}", error) from error

    def row_count(self, table: str) -> int:
        """The number of rows of the table by its log; no file is read."""
        handle = self.handle(self.specs[table])
        return 0 if handle is None else handle.count()

    def changed_since(self, table: str, old_version: int, new_version: int) -> set[str] | UnknownDigests:
        """The names of digests that were committed after version ``old_version``, up to ``new_version``;
        ``UNKNOWN_DIGESTS`` if the log does not tell any more. No rows are read."""
        return self._digest_reader.log(table).names_since(old_version, new_version)

    def log_entry(self, table: str, version: int) -> bytes | None:
        """The entry of a version as it is stored in the table's log; ``None`` if it was deleted."""
        try:
            return self._digest_reader.log(table).read_entry(version)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise lake_fault(f"could not read the log of {self.address(table)}", error) from error

    def holds(self, table: str, digests: Mapping[str, str]) -> bool:
        """Whether the table has all of ``digests``. The next run after a kill between two tables then skips this
        one."""
        return self.digests(table, list(digests)) == dict(digests)

    def read(
        self, table: str, where: Mapping[str, str | Sequence[str]] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows whose columns equal ``where`` (a value, or any of a sequence), in the table's own schema."""
        spec = self.specs[table]
        names = list(columns) if columns is not None else spec.schema.names
        schema = pa.schema([spec.schema.field(name) for name in names])
        handle = self.handle(spec)
        if handle is None or any(not isinstance(value, str) and not len(value) for value in (where or {}).values()):
            return schema.empty_table()
        try:
            return pa.Table.from_batches(scan(handle, schema, where or {}), schema)
        except (OSError, DeltaError, pa.ArrowException) as error:
            raise lake_fault(f"could not read {self.address(table)}", error) from error

    def pin(self, table: str, version: int | None = None) -> PinnedTable:
        """The table as it is now, or at ``version``, as explicit files. Where it is :meth:`hold_versions` the current
        version is read once, until there may be a newer commit."""
        if version is None and (kept_pin := self._find_kept_pin(table)) is not None:
            return kept_pin
        spec = self.specs[table]
        handle = None if version == _NO_TABLE else self.handle(spec) if version is None else self.open(spec, version)
        pinned = PinnedTable(spec, _NO_TABLE, (), 0) if handle is None else self._pin_handle(spec, handle)
        if version is None:
            with self._lock:
                if self._blocks:
                    self._pins[table] = pinned
        return pinned

    def _pin_handle(self, spec: TableSpec, handle: DeltaTable) -> PinnedTable:
        actions = read_actions(handle)
        rows = sum(value or 0 for value in actions.column("num_records").to_pylist()) if actions.num_rows else 0
        return PinnedTable(
            spec,
            handle.version(),
            self._files(spec, handle, actions),
            rows,
            bytes=sum(actions.column("size_bytes").to_pylist()) if actions.num_rows else 0,
            commit_id=self._commit_id(spec, handle, handle.version()),
            actions=actions,
        )

    def _find_kept_pin(self, table: str) -> PinnedTable | None:
        """The table as it was pinned in this block of :meth:`hold_versions`, if that is still its newest version."""
        with self._lock:
            kept_pin = self._pins.get(table)
            if kept_pin is None:
                return None
            if table not in self._seen:
                return None if self.has_moved(table, kept_pin.version) else kept_pin
            handle = self._seen[table]
        return kept_pin if (_NO_TABLE if handle is None else handle.version()) == kept_pin.version else None

    def file_system(self) -> FileSystem:
        """The file system that the files of pinned tables are on; credentials of S3 come from the usual chain."""
        if "://" not in self.root:
            return LocalFileSystem()
        options = self._options or {}
        return S3FileSystem(region=options.get("AWS_REGION"), endpoint_override=options.get("AWS_ENDPOINT_URL"))

    def other_tables(self) -> list[str]:
        """The names of stored tables that none of ``specs`` declares."""
        folder = f"{self.root}/tables".removeprefix("s3://")
        try:
            file_infos = self.file_system().get_file_info(FileSelector(folder, allow_not_found=True))
        except OSError as error:
            raise lake_fault(f"could not list {folder}", error) from error
        names = {file_info.base_name for file_info in file_infos if file_info.type is FileType.Directory}
        return sorted(name for name in names - self.specs.keys() if not name.startswith((".", "_")))

    def has_files(self, table: str) -> bool:
        """Whether the folder of a table has any file, of whatever kind."""
        folder = self.address(table).removeprefix("s3://")
        try:
            file_infos = self.file_system().get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
        except OSError as error:
            raise lake_fault(f"could not list {folder}", error) from error
        return any(file_info.type is FileType.File for file_info in file_infos)

    def handle(self, spec: TableSpec) -> DeltaTable | None:
        """The current table; ``None`` if it does not exist. Its log is read if it may have new entries, and once in a
        block of :meth:`hold_versions`. Raises ``EnvironmentFault``."""
        table = spec.name
        with self._lock:
            if table not in self._seen:
                handle = self._get_newest(spec)
                if not self._blocks or table in self._moving:
                    return handle
                self._seen[table] = handle
            return self._seen[table]

    def _get_newest(self, spec: TableSpec) -> DeltaTable | None:
        """The kept handle, updated if there may be a newer commit, or a new one."""
        opened, kept = self._handles.get(spec.name, (0, None))
        if kept is not None:
            version = kept.version()
            if not self.has_moved(spec.name, version) and not self._has_empty_entry(spec.name, version):
                return kept
            if version - opened > _MAX_HANDLE_COMMITS:
                kept = None
        elif "://" not in self.root and not _exists(Path(f"{self.address(spec.name)}/_delta_log")):
            return None
        handle = self.open(spec, kept_handle=kept)
        if handle is not None and handle is not kept:
            self._handles[spec.name] = handle.version(), handle
        return handle

    def open(
        self, spec: TableSpec, version: int | None = None, *, kept_handle: DeltaTable | None = None
    ) -> DeltaTable | None:
        """Reads the log of a table, up to now or to ``version``; ``None`` if it does not exist. ``kept_handle`` reads
        only new entries. Raises ``EnvironmentFault``, also if its columns differ from those of ``spec``."""
        try:
            if kept_handle is None:
                handle = DeltaTable(self.address(spec.name), version, storage_options=self._options)
            else:
                handle = kept_handle
                handle.update_incremental()
        except (OSError, DeltaError) as error:
            if version is None and isinstance(error, TableNotFoundError):
                return None
            self._refuse_damaged_log(spec.name)
            raise lake_fault(f"could not open {self.address(spec.name)}", error) from error
        if version is None and self._has_empty_entry(spec.name, handle.version()):
            self._refuse_damaged_log(spec.name)
        refuse_other_columns(spec.name, handle.schema(), spec.schema)
        return handle

    def _has_empty_entry(self, table: str, version: int) -> bool:
        """Whether the entry of a version in a folder is empty: the library takes it for a commit without changes."""
        entry = Path(f"{self.address(table)}/_delta_log/{version:020}.json")
        return "://" not in self.root and _exists(entry) and not entry.stat().st_size

    def _refuse_damaged_log(self, table: str) -> None:
        """Raises ``DamagedTable`` if a file of a table's log is incomplete, so that nothing is built on it."""
        for damaged_file in find_damaged_log_files(self.file_system(), self.address(table), table):
            if not damaged_file.is_harmless:
                raise damaged_file.fault()

    def has_moved(self, table: str, version: int) -> bool:
        """Whether there may be commits to a table after a version of it. In a folder this is one look for the next
        entry; to list the log costs 300 times as much."""
        address = self.address(table)
        return "://" in address or _exists(Path(f"{address}/_delta_log/{version + 1:020}.json"))

    def _files(self, spec: TableSpec, handle: DeltaTable, actions: pa.Table) -> tuple[str, ...]:
        address = self.address(spec.name)
        if "://" in address or not actions.num_rows:
            return tuple(sorted(handle.file_uris()))
        # for folders the library escapes the names above the table (spaces, umlauts), which no file system undoes;
        # the log escapes once more what is in the table
        return tuple(sorted(f"{address}/{unquote(path)}" for path in actions.column("path").to_pylist()))

    def prepare(self, table: str) -> None:
        """Makes the table if it does not exist."""
        self.invalidate(table)
        if self.handle(self.specs[table]) is None:
            self._create(self.specs[table])

    def _create(self, spec: TableSpec) -> None:
        address = self.address(spec.name)
        # rows are found by crawl and target; statistics on long text columns would only swell the log
        skipping = ",".join(spec.slice_columns) or spec.schema.names[0]

        def create(hooks: PostCommitHookProperties) -> None:
            made = DeltaTable.create(
                address,
                schema=spec.schema,
                mode="ignore",
                partition_by=["crawl"] if "crawl" in spec.slice_columns else None,
                storage_options=self._options,
                configuration={"delta.dataSkippingStatsColumns": skipping, **_KEEPS_LOG},
                post_commithook_properties=hooks,
            )
            self._handles[spec.name] = made.version(), made

        try:
            if "://" not in address:
                make_durable_folder(Path(address) / "_delta_log")
            self.commit_durably(spec.name, _NO_TABLE, create)
        except (OSError, DeltaError) as error:
            # another process may be making the table at this moment: look again, also in a block of hold_versions
            self.invalidate(spec.name)
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
