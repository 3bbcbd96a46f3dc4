"""Finds miscounts: slices with other rows than were committed.

Each home notes up to which commit of each table its last publication checked, and what was wrong then, so that only
slices that changed since are checked. A home that publishes nothing notes each check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cc_pipeline.atomic import write_whole
from cc_pipeline.lake.incomplete_tables import find_damaged_paths
from cc_pipeline.lake.lake import Lake, PinnedTable
from cc_pipeline.lake.row_counts import Miscounted, SliceKey, find_changed_keys, find_miscounted, read_committed_counts
from cc_pipeline.lake.slice import Slice, invalidate_notes
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.tables import all_tables

_NOTE: Final = "row_counts.json"
#: Maximum number of slices named in a sentence.
_MAX_NAMED_SLICES: Final = 5
#: Advice for slices with other rows than were committed.
MAKE_AGAIN: Final = "Rebuild these slices: cc-pipeline doctor --repair."


@dataclass(frozen=True, slots=True)
class _TableCheck:
    """The last check of a table: the commit, the slices that were wrong, and whether files were broken."""

    version: int
    commit_id: str
    wrong: tuple[SliceKey, ...] = ()
    has_broken_files: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether slices or files of the table were left out."""
        return bool(self.wrong) or self.has_broken_files


def find_changed_miscounts(
    settings: Settings, lake: Lake, pinned: Sequence[PinnedTable] = (), *, check_all: bool = False
) -> dict[str, Miscounted]:
    """Returns the slices with other rows than were committed, by table. It checks those that changed since the noted
    check, and those that were wrong then; all slices if the log does not tell what changed, or with ``check_all``.

    ``pinned`` are the tables at the versions of a publication, whose check is noted (default: all tables as they are
    now). Raises ``EnvironmentFault`` if a table cannot be read.
    """
    earlier_checks = {} if check_all else _read(settings)
    miscounts: dict[str, Miscounted] = {}
    checks = dict(_read(settings))
    for table in pinned or [lake.pin(name) for name in lake.specs]:
        name = table.spec.name
        if table.version < 0:
            continue
        earlier_check = earlier_checks.get(name)
        # no commit tells that a file is missing, and its rows may be of slices that were never counted
        incomplete_files = (
            find_damaged_paths(lake, name)
            if pinned or (earlier_check is not None and earlier_check.has_broken_files)
            else []
        )
        table_miscounts = find_miscounted(
            lake, name, None if incomplete_files else _find_slices_to_check(lake, table, earlier_check), table.version
        )
        miscounts[name] = replace(table_miscounts, broken=tuple(sorted({*table_miscounts.broken, *incomplete_files})))
        checks[name] = _TableCheck(
            table.version, table.commit_id, tuple(sorted(miscounts[name].slices)), bool(miscounts[name].broken)
        )
    if pinned or settings.publish == "none":
        _write(settings, checks)
    return {name: miscounted for name, miscounted in miscounts.items() if miscounted.slices or miscounted.broken}


def find_new_miscounts(settings: Settings, lake: Lake) -> dict[str, Miscounted]:
    """Does the same as :func:`find_changed_miscounts` when a home is opened. It opens no table if nothing was committed
    since the last check and nothing was wrong then. On S3, and before the first check, new commits are left to the
    publication.

    Raises ``EnvironmentFault`` if a table cannot be read.
    """
    checks = _read(settings)
    if settings.publish == "none" and not checks:
        return find_changed_miscounts(settings, lake)
    are_wrong = any(check.leaves_out for check in checks.values())
    tables = [*lake.specs]
    may_have_changed = checks and "://" not in lake.root and any(_has_moved(lake, name, checks) for name in tables)
    if not are_wrong and not may_have_changed:
        return {}
    return find_changed_miscounts(settings, lake)


def leaves_slices_out(settings: Settings) -> bool:
    """Whether the last publication left out slices or files of any table."""
    return any(check.leaves_out for check in _read(settings).values())


def _has_moved(lake: Lake, table: str, checks: Mapping[str, _TableCheck]) -> bool:
    """Whether the newest log entry of a table in a folder has changed since the last check."""
    version = checks[table].version if table in checks else -1
    log = Path(lake.address(table)) / "_delta_log"
    return (log / f"{version + 1:020}.json").exists() or (version >= 0 and not (log / f"{version:020}.json").exists())


def _find_slices_to_check(lake: Lake, table: PinnedTable, last_check: _TableCheck | None) -> set[SliceKey] | None:
    """Returns the slices of a table that changed since the last check or were wrong then; ``None``: all."""
    name = table.spec.name
    if last_check is None or last_check.version > table.version or last_check.has_broken_files:
        return None
    if last_check.version == table.version:
        return {*last_check.wrong} if last_check.commit_id == table.commit_id else None
    if last_check.commit_id != lake.commit_id(name, last_check.version):
        return None  # a restored log reuses version numbers
    changed = find_changed_keys(lake, name, last_check.version, table.version)
    return None if changed is None else {*last_check.wrong, *changed}


def without_miscounted(
    lake: Lake, pinned: Sequence[PinnedTable], miscounts: Mapping[str, Miscounted]
) -> list[PinnedTable]:
    """Returns the tables without miscounted slices and without incomplete files.

    A slice of a crawl and a target is left out of every table: its other rows would contradict each other.
    """
    of_targets = {key for miscounted in miscounts.values() for key in miscounted.slices if len(key) == 2}
    correct_tables = []
    for table in pinned:
        table_miscounts = miscounts.get(table.spec.name, Miscounted(table.spec.name))
        wide = len(table.spec.slice_columns) == 2 and table.version >= 0
        left_out = {key for key in table_miscounts.slices if "crawl" in table.spec.slice_columns} | (
            of_targets if wide else set()
        )
        if not left_out and not table_miscounts.broken:
            correct_tables.append(table)
            continue
        counts = read_committed_counts(lake, table.spec.name, left_out, table.version)
        rows = sum(
            table_miscounts.slices[key][1] if key in table_miscounts.slices else counts[key] or 0 for key in left_out
        )
        files = (
            tuple(file for file in table.files if not file.endswith(table_miscounts.broken))
            if table_miscounts.broken
            else table.files
        )
        correct_tables.append(replace(table, files=files, rows=table.rows - rows, left_out=tuple(sorted(left_out))))
    return correct_tables


def make_again(lake: Lake, miscounts: Mapping[str, Miscounted]) -> list[Slice]:
    """Marks miscounted slices of crawls to be rebuilt by the next run, and returns them.

    Until then they are not published. Rows of tables without crawls are rewritten when they are registered again.
    Raises ``EnvironmentFault``.
    """
    slices_to_remake: set[Slice] = set()
    for table, table_miscounts in miscounts.items():
        spec = lake.specs[table]
        slices = sorted(Slice(*key) for key in table_miscounts.slices) if "crawl" in spec.slice_columns else []
        if spec.stage is not None and not spec.has_row_a_slice:
            spec.stage.invalidate_rows(lake, table, slices)
        elif slices:
            invalidate_notes(lake, table, slices)
        slices_to_remake.update(slices)
    return sorted(slices_to_remake)


def describe_miscounts(miscounts: Mapping[str, Miscounted]) -> Iterator[str]:
    """Yields a sentence on the miscounts of each table."""
    for table, table_miscounts in miscounts.items():
        slices = sorted(table_miscounts.slices.items(), key=lambda item: item[0])
        descriptions = [
            f"{' '.join(key) or 'the table'} ({format_count(row_count, 'row')}, {_committed(committed_count)})"
            for key, (committed_count, row_count) in slices
        ]
        files = (
            f"; incomplete files: {', '.join(table_miscounts.broken[:_MAX_NAMED_SLICES])}"
            if table_miscounts.broken
            else ""
        )
        details = f"{list_first(descriptions, _MAX_NAMED_SLICES)}{files}"
        yield (
            f"{table}: {format_count(len(slices), 'slice', 'have')} other rows than were committed (crawl and target): "
            f"{details}"
        )


def _committed(count: int | None) -> str:
    return "marked for rebuilding" if count is None else f"committed with {count:,}"


def _read(settings: Settings) -> dict[str, _TableCheck]:
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        document = json.loads((settings.cache_path / _NOTE).read_text("utf-8"))
        return {
            str(name): _TableCheck(
                int(check["version"]),
                str(check["commit_id"]),
                tuple(tuple(key) for key in check["wrong"]),
                check["broken"],
            )
            for name, check in document.items()
            if name in {spec.name for spec in all_tables()}
        }
    return {}


def _write(settings: Settings, checks: Mapping[str, _TableCheck]) -> None:
    document = {
        name: {
            "version": check.version,
            "commit_id": check.commit_id,
            "wrong": [list(key) for key in check.wrong],
            "broken": check.has_broken_files,
        }
        for name, check in checks.items()
    }
    text = json.dumps(document)
    path = settings.cache_path / _NOTE
    with suppress(OSError):
        if not path.exists() or path.read_text("utf-8") != text:
            write_whole(path, text)
