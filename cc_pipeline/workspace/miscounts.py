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
from cc_pipeline.lake.lake import Lake, PinnedTable
from cc_pipeline.lake.row_counts import Miscounted, SliceKey, changed_slices, committed_counts, find_miscounted
from cc_pipeline.lake.slice import Slice, note_again
from cc_pipeline.lake.torn import torn_paths
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.tables import all_tables

_NOTE: Final = "row_counts.json"
#: Maximum number of slices named in a sentence.
_NAMED: Final = 5
#: Advice for slices with other rows than were committed.
MAKE_AGAIN: Final = "Rebuild them: cc-pipeline doctor --repair."


@dataclass(frozen=True, slots=True)
class _Look:
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
    settings: Settings, lake: Lake, pinned: Sequence[PinnedTable] = (), *, every: bool = False
) -> dict[str, Miscounted]:
    """Returns the slices with other rows than were committed, by table. It checks those that changed since the noted
    check, and those that were wrong then; all slices if the log does not tell what changed, or with ``every``.

    ``pinned`` are the tables at the versions of a publication, whose check is noted (default: all tables as they are
    now). Raises ``EnvironmentFault`` if a table cannot be read.
    """
    before = {} if every else _read(settings)
    found: dict[str, Miscounted] = {}
    looks = dict(_read(settings))
    for table in pinned or [lake.pin(spec.name) for spec in lake.specs.values() if not spec.left_by]:
        name = table.spec.name
        if table.version < 0:
            continue
        look = before.get(name)
        # no commit tells that a file is missing, and its rows may be of slices that were never counted
        torn = torn_paths(lake, name) if pinned or (look is not None and look.has_broken_files) else []
        own = find_miscounted(lake, name, None if torn else _to_look_at(lake, table, look), table.version)
        found[name] = replace(own, broken=tuple(sorted({*own.broken, *torn})))
        looks[name] = _Look(table.version, table.commit_id, tuple(sorted(found[name].slices)), bool(found[name].broken))
    if pinned or settings.publish == "none":
        _write(settings, looks)
    return {name: one for name, one in found.items() if one.slices or one.broken}


def find_new_miscounts(settings: Settings, lake: Lake) -> dict[str, Miscounted]:
    """Does the same as :func:`find_changed_miscounts` when a home is opened. It opens no table if nothing was committed
    since the last check and nothing was wrong then. On S3, and before the first check, new commits are left to the
    publication.

    Raises ``EnvironmentFault`` if a table cannot be read.
    """
    looks = _read(settings)
    if settings.publish == "none" and not looks:
        return find_changed_miscounts(settings, lake)
    are_wrong = any(look.leaves_out for look in looks.values())
    shown = [spec.name for spec in lake.specs.values() if not spec.left_by]
    may_be = looks and "://" not in lake.root and any(_has_moved(lake, name, looks) for name in shown)
    if not are_wrong and not may_be:
        return {}
    return find_changed_miscounts(settings, lake)


def leaves_slices_out(settings: Settings) -> bool:
    """Whether the last publication left out slices or files of any table."""
    return any(look.leaves_out for look in _read(settings).values())


def _has_moved(lake: Lake, table: str, looks: Mapping[str, _Look]) -> bool:
    """Whether the newest log entry of a table in a folder has changed since the last check."""
    version = looks[table].version if table in looks else -1
    log = Path(lake.address(table)) / "_delta_log"
    return (log / f"{version + 1:020}.json").exists() or (version >= 0 and not (log / f"{version:020}.json").exists())


def _to_look_at(lake: Lake, table: PinnedTable, look: _Look | None) -> set[SliceKey] | None:
    """Returns the slices of a table that changed since the last check or were wrong then; ``None``: all."""
    name = table.spec.name
    if look is None or look.version > table.version or look.has_broken_files:
        return None
    if look.version == table.version:
        return {*look.wrong} if look.commit_id == table.commit_id else None
    if look.commit_id != lake.commit_id(name, look.version):
        return None  # a restored log reuses version numbers
    changed = changed_slices(lake, name, look.version, table.version)
    return None if changed is None else {*look.wrong, *changed}


def without_miscounted(lake: Lake, pinned: Sequence[PinnedTable], found: Mapping[str, Miscounted]) -> list[PinnedTable]:
    """Returns the tables without miscounted slices and without incomplete files.

    A slice of a crawl and a target is left out of every table: its other rows would contradict each other.
    """
    of_targets = {key for one in found.values() for key in one.slices if len(key) == 2}
    kept = []
    for table in pinned:
        own = found.get(table.spec.name, Miscounted(table.spec.name))
        wide = len(table.spec.slice_columns) == 2 and table.version >= 0
        left_out = {key for key in own.slices if "crawl" in table.spec.slice_columns} | (of_targets if wide else set())
        if not left_out and not own.broken:
            kept.append(table)
            continue
        counts = committed_counts(lake, table.spec.name, left_out, table.version)
        rows = sum(own.slices[key][1] if key in own.slices else counts[key] or 0 for key in left_out)
        files = tuple(file for file in table.files if not file.endswith(own.broken)) if own.broken else table.files
        kept.append(replace(table, files=files, rows=table.rows - rows, left_out=tuple(sorted(left_out))))
    return kept


def make_again(lake: Lake, found: Mapping[str, Miscounted]) -> list[Slice]:
    """Marks miscounted slices of crawls to be rebuilt by the next run, and returns them.

    Until then they are not published. Rows of tables without crawls are rewritten when they are registered again.
    Raises ``EnvironmentFault``.
    """
    again: set[Slice] = set()
    for table, own in found.items():
        spec = lake.specs[table]
        slices = sorted(Slice(*key) for key in own.slices) if "crawl" in spec.slice_columns else []
        if spec.stage is not None and not spec.has_row_a_slice:
            spec.stage.make_again(lake, table, slices)
        elif slices:
            note_again(lake, table, slices)
        again.update(slices)
    return sorted(again)


def sentences(found: Mapping[str, Miscounted]) -> Iterator[str]:
    """Yields a sentence on the miscounts of each table."""
    for table, own in found.items():
        named = [
            f"{' '.join(key) or 'the table'} ({there:,} rows, {_committed(said)})"
            for key, (said, there) in sorted(own.slices.items(), key=lambda item: item[0])[:_NAMED]
        ]
        more = f" and {len(own.slices) - _NAMED:,} more" if len(own.slices) > _NAMED else ""
        files = f"; incomplete files: {', '.join(own.broken[:_NAMED])}" if own.broken else ""
        yield f"{table}: {len(own.slices):,} slices differ from their commits: {', '.join(named)}{more}{files}"


def _committed(said: int | None) -> str:
    return "to be rebuilt" if said is None else f"committed with {said:,}"


def _read(settings: Settings) -> dict[str, _Look]:
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        noted = json.loads((settings.cache_path / _NOTE).read_text("utf-8"))
        return {
            str(name): _Look(
                int(one["version"]), str(one["commit_id"]), tuple(tuple(key) for key in one["wrong"]), one["broken"]
            )
            for name, one in noted.items()
            if name in {spec.name for spec in all_tables()}
        }
    return {}


def _write(settings: Settings, looks: Mapping[str, _Look]) -> None:
    said = {
        name: {
            "version": one.version,
            "commit_id": one.commit_id,
            "wrong": [list(key) for key in one.wrong],
            "broken": one.has_broken_files,
        }
        for name, one in looks.items()
    }
    text = json.dumps(said)
    path = settings.cache_path / _NOTE
    with suppress(OSError):
        if not path.exists() or path.read_text("utf-8") != text:
            write_whole(path, text)
