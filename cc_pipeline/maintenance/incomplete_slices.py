"""Undoes an incomplete commit of a table, and marks its slices to be rebuilt.

Only the last commit is undone: later commits depend on earlier ones. If an earlier file of rows is missing, the slices
that it may have held are marked. Every incomplete file is kept in the table's folder ``_torn``. Each step is one commit
of the table or one replaced file, so that a killed repair continues where it stopped.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deltalake.exceptions import DeltaError

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.slice_slugs import PLAIN
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.content_digests import NOTHING, digest_from_int, digest_to_int
from cc_pipeline.lake.digests.digest_reader import ANCHOR
from cc_pipeline.lake.incomplete_tables import (
    CHECKPOINT,
    ENTRY,
    HINT,
    DamagedFile,
    find_damaged_files,
    log_folder,
    parse_actions,
    read_file,
)
from cc_pipeline.lake.lake import Lake, lake_fault
from cc_pipeline.lake.layout import StoredFile, list_stored_files
from cc_pipeline.lake.replacing import open_fixed_version, replace_files
from cc_pipeline.lake.row_counts import INVALID_COUNT, count_in_files, parse_count_name
from cc_pipeline.lake.slice import EMPTIED_DIGEST, FETCH, LOCATE, PARSE, PARTIAL_DIGEST, READ_FILES, Slice, Stage
from cc_pipeline.workspace.tables import all_tables

#: Folder in that of a table for incomplete files, named with the time of their removal. Readers skip the prefix.
KEPT_FOLDER: Final = "_torn"
#: Maximum number of repair steps for one table; each repairs one file.
_MAX_STEPS: Final = 1_000
#: Maximum number of targets in a command.
_MAX_NAMED_TARGETS: Final = 20
#: Prefixes of digests that belong to no stage.
_NUMBERS: Final = ("content:", "rows:")
_PAGE_STAGES: Final = (PARSE, READ_FILES)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """An incomplete file that was removed, the path of its copy (``None`` if there was no file), and the digest names
    of the slices that must be rebuilt."""

    incomplete_file: DamagedFile
    kept_path: str | None
    names: tuple[str, ...] = ()

    @property
    def slices(self) -> list[Slice]:
        """The slices that must be rebuilt. Names in a table without crawls belong to no slices."""
        if self.incomplete_file.table not in {spec.name for spec in all_tables() if "crawl" in spec.slice_columns}:
            return []
        return sorted({slice_ for name in self.names if (slice_ := slice_of_digest(name)) is not None})


def slice_of_digest(name: str) -> Slice | None:
    """Returns the slice of a digest name of any stage; ``None`` if the name belongs to no slice."""
    label, _, slice_text = name.partition(":")
    if label == READ_FILES.name_prefix.rstrip(":"):
        return None
    crawl, _, target = slice_text.partition(":")
    return Slice(crawl, target) if crawl else None


def find_incomplete_files(lake: Lake) -> list[DamagedFile]:
    """Finds all incomplete files of tables. Raises ``EnvironmentFault``."""
    return [incomplete_file for table in lake.specs for incomplete_file in find_damaged_files(lake, table)]


def find_incomplete_slices(lake: Lake, tables: Collection[str] = ()) -> list[Slice]:
    """Returns the slices whose last commit to any of ``tables`` was undone, and that were not rebuilt since. The
    default is all tables."""
    slices: set[Slice] = set()
    for table in tables or lake.specs:
        if lake.specs[table].slice_columns[:1] == ("crawl",):
            names = lake.digest_names(table, required=PARTIAL_DIGEST)
            slices |= {slice_ for slice_ in map(slice_of_digest, names) if slice_ is not None}
    return sorted(slices)


def run_command(lake: Lake, slices: Sequence[Slice]) -> str:
    """Returns the command that rebuilds slices of one crawl."""
    crawl = shlex.quote(slices[0].crawl)
    definitions_or_slugs = sorted({slice_.partition.target for slice_ in slices if slice_.target})
    if not definitions_or_slugs:
        return f"cc-pipeline index harvest --crawl {crawl}"
    with suppress(CcPipelineError):
        texts = definitions.read_definitions(lake, definitions_or_slugs)
        definitions_or_slugs = [texts.get(slug, slug) for slug in definitions_or_slugs]
    domains = "".join(f" {shlex.quote(text)}" for text in definitions_or_slugs[:_MAX_NAMED_TARGETS])
    subsets = sorted({slice_.subset for slice_ in slices if slice_.target} - {PLAIN})
    subset_options = "".join(f" --subset {subset}" for subset in (PLAIN, *subsets)) if subsets else ""
    more_note = (
        f" (and {len(definitions_or_slugs) - _MAX_NAMED_TARGETS:,} more)"
        if len(definitions_or_slugs) > _MAX_NAMED_TARGETS
        else ""
    )
    return f"cc-pipeline run{domains} --crawl {crawl}{subset_options}{more_note}"


def repair_tables(lake: Lake) -> list[FileRepair]:
    """Repairs incomplete files that no later commit depends on, and returns the repairs; :func:`find_incomplete_files`
    finds the others.

    Raises ``EnvironmentFault`` if the lake cannot be read or written.
    """
    repairs: list[FileRepair] = []
    for table in lake.specs:
        for _ in range(_MAX_STEPS):
            incomplete_files = find_damaged_files(lake, table)
            # without the entries, the checkpoint is the only record of the table
            if not incomplete_files or any(incomplete_file.is_lost for incomplete_file in incomplete_files):
                break
            repairs.append(_repair_file(lake, incomplete_files[0]))
            lake.invalidate(table)
    return repairs


def restore_definitions(lake: Lake, targets: Iterable[Target] = ()) -> list[str]:
    """Restores the definitions of targets that have slices but no definition, from their keys or from ``targets``;
    returns the slugs of the others. Raises ``EnvironmentFault``."""
    defined_slugs = {*lake.read("targets", columns=["slug"]).column("slug").to_pylist()}
    undefined_slugs = {slice_.definition_slug for slice_ in LOCATE.list_slices(lake)} - defined_slugs
    targets_by_slug = {target.slug: target for target in targets}
    definitions.register(lake, [targets_by_slug[slug] for slug in sorted(undefined_slugs & targets_by_slug.keys())])
    lost_slugs = []
    for slug in sorted(undefined_slugs - targets_by_slug.keys()):
        try:
            definitions.read_targets(lake, [slug])
        except UserInputError:
            lost_slugs.append(slug)
    return lost_slugs


def _repair_file(lake: Lake, incomplete_file: DamagedFile) -> FileRepair:
    try:
        if incomplete_file.kind == HINT:
            return FileRepair(incomplete_file, _keep_copy(lake, incomplete_file.table, incomplete_file.path, move=True))
        if incomplete_file.kind == CHECKPOINT:
            _keep_copy(
                lake,
                incomplete_file.table,
                f"{log_folder(lake.address(incomplete_file.table))}/_last_checkpoint",
                move=True,
            )
            return FileRepair(incomplete_file, _keep_copy(lake, incomplete_file.table, incomplete_file.path, move=True))
        return (
            _repair_entry(lake, incomplete_file)
            if incomplete_file.kind == ENTRY
            else _repair_rows(lake, incomplete_file)
        )
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not repair {lake.address(incomplete_file.table)}", error) from error


def _keep_copy(lake: Lake, table: str, path: str, *, move: bool) -> str | None:
    """Moves or copies a file to the folder ``_torn``. Returns the new path; ``None`` if there is no file."""
    files = lake.file_system()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    folder = f"{lake.address(table).removeprefix('s3://')}/{KEPT_FOLDER}"
    kept_path = f"{folder}/{path.rpartition('/')[2]}.{stamp}"
    try:
        if "://" not in lake.root:
            files.create_dir(folder)
        files.copy_file(path, kept_path)
        if move:
            files.delete_file(path)
    except FileNotFoundError:
        return None
    return kept_path


def _repair_entry(lake: Lake, incomplete_file: DamagedFile) -> FileRepair:
    """Replaces an incomplete log entry by one without changes, which marks the slices that are known to be affected."""
    files = lake.file_system()
    kept_path = _keep_copy(lake, incomplete_file.table, incomplete_file.path, move=False)
    if not incomplete_file.version:
        _write(lake, incomplete_file.path, _first_entry(lake, incomplete_file.table))
        return FileRepair(incomplete_file, kept_path)
    data = b"" if kept_path is None else read_file(files, kept_path)
    names = _slice_digest_names(action for action in parse_actions(data) if action is not None)
    with suppress(CcPipelineError):
        # another table may be incomplete too
        names |= _names_in_siblings(lake, incomplete_file)
    now = int(time.time() * 1_000)
    info = {"timestamp": now, "operation": "TAKE BACK", "operationParameters": {"torn": incomplete_file.state}}
    marks = [
        {"txn": {"appId": name, "version": digest_to_int(PARTIAL_DIGEST), "lastUpdated": now}} for name in sorted(names)
    ]
    lines = [json.dumps(action) for action in ({"commitInfo": info}, *marks)]
    _write(lake, incomplete_file.path, ("\n".join(lines) + "\n").encode())
    return FileRepair(incomplete_file, kept_path, tuple(sorted(names)))


def _first_entry(lake: Lake, table: str) -> bytes:
    """Returns the first log entry of such a table."""
    with TemporaryDirectory() as folder:
        like = Lake(folder, [lake.specs[table]])
        like.prepare(table)
        return Path(f"{log_folder(like.address(table))}/{0:020}.json").read_bytes()


def _write(lake: Lake, path: str, data: bytes) -> None:
    if "://" not in lake.root:
        write_whole(Path(path), data, durable=True)
        return
    with lake.file_system().open_output_stream(path) as sink:
        sink.write(data)


def _slice_digest_names(actions: Iterable[Mapping[str, object]]) -> set[str]:
    """Returns the digest names of slices among log actions."""
    transactions = (action.get("txn") for action in actions)
    names = {str(txn.get("appId")) for txn in transactions if isinstance(txn, dict)}
    return {name for name in names if name != ANCHOR and not name.startswith(_NUMBERS)}


def _names_in_siblings(lake: Lake, incomplete_file: DamagedFile) -> set[str]:
    """Returns the digest names that other tables depend on and that this table lacks at the previous version."""
    table, version = incomplete_file.table, incomplete_file.version - 1
    if table == "captures":
        return _find_missing_digests(
            lake, LOCATE, version, {*FETCH.list_slices(lake), *PARSE.list_slices(lake)}, "lookups"
        )
    if table == "records":
        return _find_missing_digests(lake, FETCH, version, PARSE.list_slices(lake), "fetches")
    names: set[str] = set()
    for stage in _PAGE_STAGES:
        for sibling in stage.tables if table in stage.tables else ():
            if sibling != table:
                digest_names = lake.digest_names(sibling, stage.name_prefix)
                table_digests, sibling_digests = (
                    lake.digests(table, digest_names, version),
                    lake.digests(sibling, digest_names),
                )
                names |= {name for name in digest_names if table_digests[name] != sibling_digests[name]}
    return names


def _find_missing_digests(
    lake: Lake, stage: Stage, version: int, later_slices: Collection[Slice], notes: str
) -> set[str]:
    """Returns the digest names of slices that were noted or made by a later stage (``later_slices``), without this
    stage's digest."""
    names = {stage.digest_name(slice_) for slice_ in later_slices}
    noted_digests = {
        stage.digest_name(Slice(row["crawl"], row["target"])): row["input_digest"]
        for row in lake.read(notes, columns=["crawl", "target", "input_digest"]).to_pylist()
    }
    table_digests = lake.digests(stage.main_table, [*{*names, *noted_digests}], version)
    missing_names = {name for name in names if table_digests[name] in (None, EMPTIED_DIGEST)}
    return missing_names | {name for name, digest in noted_digests.items() if table_digests[name] != digest}


def _repair_rows(lake: Lake, incomplete_file: DamagedFile) -> FileRepair:
    """Undoes the last commit; if the file belongs to an earlier one, removes the file from the table."""
    assert incomplete_file.file is not None
    handle = open_fixed_version(lake, incomplete_file.table)
    assert handle is not None
    spec = lake.specs[incomplete_file.table]
    files = list_stored_files(spec, handle)
    if handle.version() != incomplete_file.version or incomplete_file.file.path not in {file.path for file in files}:
        raise EnvironmentFault(
            f"another process changed the table {incomplete_file.table} during the repair, so the table is not "
            "repaired",
            "Run the repair again.",
        )
    earlier_files = None if incomplete_file.later_commits else _list_earlier_files(lake, incomplete_file)
    if earlier_files is None:
        removed_files, restored_files = [incomplete_file.file], []
        names, numbers = _names_in_file(lake, incomplete_file.table, incomplete_file.file)
    else:
        paths, paths_now = {file.path for file in earlier_files}, {file.path for file in files}
        removed_files = [file for file in files if file.path not in paths]
        restored_files = [file for file in earlier_files if file.path not in paths_now]
        names, numbers = _names_of_last_commit(lake, incomplete_file, earlier_files)
    digests = {**dict.fromkeys(names, PARTIAL_DIGEST), **numbers}
    replace_files(lake, spec, handle, removed_files, restored_files, digests, is_balanced=False)
    kept_path = _keep_copy(lake, incomplete_file.table, incomplete_file.path, move=True)
    return FileRepair(incomplete_file, kept_path, tuple(sorted(names)))


def _list_earlier_files(lake: Lake, incomplete_file: DamagedFile) -> list[StoredFile] | None:
    """Returns the files of the previous version; ``None`` if one is missing."""
    handle = (
        lake.open(lake.specs[incomplete_file.table], incomplete_file.version - 1) if incomplete_file.version else None
    )
    if handle is None:
        return None
    earlier_files = list_stored_files(lake.specs[incomplete_file.table], handle)
    folder = lake.address(incomplete_file.table).removeprefix("s3://")
    sizes = lake.file_system().get_file_info([f"{folder}/{file.path}" for file in earlier_files])
    return (
        earlier_files if all(info.size == file.size for info, file in zip(sizes, earlier_files, strict=True)) else None
    )


def _names_of_last_commit(
    lake: Lake, incomplete_file: DamagedFile, files: Sequence[StoredFile]
) -> tuple[set[str], dict[str, str]]:
    """Returns the digest names of the last commit, and the values of its counts before it, when the table had
    ``files``. Counts that were never committed are computed."""
    entry = f"{log_folder(lake.address(incomplete_file.table))}/{incomplete_file.version:020}.json"
    actions = [action for action in parse_actions(read_file(lake.file_system(), entry)) if action is not None]
    txns = [action["txn"] for action in actions if isinstance(action.get("txn"), dict)]
    numbers = [str(txn["appId"]) for txn in txns if isinstance(txn, dict) and str(txn["appId"]).startswith(_NUMBERS)]
    earlier_digests = lake.digests(incomplete_file.table, numbers, incomplete_file.version - 1)
    spec = lake.specs[incomplete_file.table]
    uncounted = {
        name: key
        for name in numbers
        if earlier_digests[name] is None and (key := parse_count_name(spec, name)) is not None
    }
    if uncounted:
        crawls = {key[0] for key in uncounted.values()} if "crawl" in spec.slice_columns else {None}
        row_counts = count_in_files(lake, spec, (file for file in files if file.partition.get("crawl") in crawls))
        earlier_digests |= {name: digest_from_int(row_counts[key]) for name, key in uncounted.items()}
    return _slice_digest_names(actions), {name: earlier_digests[name] or NOTHING for name in numbers}


def _names_in_file(lake: Lake, table: str, file: StoredFile) -> tuple[set[str], dict[str, str]]:
    """Returns the digest names of slices that a file may contain, by its bounds, and their counts as not known."""
    names: set[str] = set()
    counts: dict[str, str] = {}
    crawl = file.partition.get("crawl")
    for name in lake.digest_names(table):
        key = parse_count_name(lake.specs[table], name)
        slice_ = slice_of_digest(name) if key is None else None
        target = key[-1] if key else name.partition(":")[2] if slice_ is None else slice_.target
        is_near = file.first is None or file.last is None or file.first <= target <= file.last
        slice_crawl = key[0] if key else None if slice_ is None else slice_.crawl
        is_other_crawl = crawl is not None and slice_crawl is not None and slice_crawl != crawl
        if not is_near or is_other_crawl or name == ANCHOR:
            continue
        if key is not None:
            counts[name] = INVALID_COUNT
        elif not name.startswith(_NUMBERS):
            names.add(name)
    return names, counts
