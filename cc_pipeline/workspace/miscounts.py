"""Slices that have other rows than they were committed with.

Each home remembers up to which commit of each table its last publication looked, and what was wrong then, so that only
slices that changed since are looked at. A home that publishes nothing remembers each look.
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
#: Slices that a sentence names.
_NAMED: Final = 5
#: What to do about slices with other rows than were committed.
MAKE_AGAIN: Final = "Have them made again: cc-pipeline doctor --repair."


@dataclass(frozen=True, slots=True)
class _Look:
    """Up to which commit of a table a home has looked, the slices that were wrong then, and whether files were."""

    version: int
    commit_id: str
    wrong: tuple[SliceKey, ...] = ()
    has_broken_files: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether anything of the table was left out."""
        return bool(self.wrong) or self.has_broken_files


def find_changed_miscounts(
    settings: Settings, lake: Lake, pinned: Sequence[PinnedTable] = (), *, every: bool = False
) -> dict[str, Miscounted]:
    """The slices with other rows than were committed, by table: of those that changed since the remembered look,
    and those that were wrong then. All slices are looked at where the log does not say what changed, and with
    ``every``.

    ``pinned`` are the tables at the versions that a publication shows, which is remembered (default: all tables as they
    are now). Raises ``EnvironmentFault`` where a table cannot be read.
    """
    before = {} if every else _read(settings)
    found: dict[str, Miscounted] = {}
    looks = dict(_read(settings))
    for table in pinned or [lake.pin(spec.name) for spec in lake.specs.values() if not spec.left_by]:
        name = table.spec.name
        if table.version < 0:
            continue
        look = before.get(name)
        # no commit says that a file went, and its rows may be of slices that were never counted
        torn = torn_paths(lake, name) if pinned or (look is not None and look.has_broken_files) else []
        own = find_miscounted(lake, name, None if torn else _to_look_at(lake, table, look), table.version)
        found[name] = replace(own, broken=tuple(sorted({*own.broken, *torn})))
        looks[name] = _Look(table.version, table.commit_id, tuple(sorted(found[name].slices)), bool(found[name].broken))
    if pinned or settings.publish == "none":
        _write(settings, looks)
    return {name: one for name, one in found.items() if one.slices or one.broken}


def find_new_miscounts(settings: Settings, lake: Lake) -> dict[str, Miscounted]:
    """As :func:`find_changed_miscounts`, for the opening of a home: where nothing was committed since the last look,
    and nothing was wrong then, it opens no table. On S3, and before the first look, new commits are left to the
    publication.

    Raises ``EnvironmentFault`` where a table cannot be read.
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
    """Whether a table in a folder has another newest entry in its log than at the last look."""
    version = looks[table].version if table in looks else -1
    log = Path(lake.address(table)) / "_delta_log"
    return (log / f"{version + 1:020}.json").exists() or (version >= 0 and not (log / f"{version:020}.json").exists())


def _to_look_at(lake: Lake, table: PinnedTable, look: _Look | None) -> set[SliceKey] | None:
    """The slices of a table that changed since the last look, with those that were wrong; ``None``: all."""
    name = table.spec.name
    if look is None or look.version > table.version or look.has_broken_files:
        return None
    if look.version == table.version:
        return {*look.wrong} if look.commit_id == table.commit_id else None
    if look.commit_id != lake.commit_id(name, look.version):
        return None  # a restored log uses version numbers again
    changed = changed_slices(lake, name, look.version, table.version)
    return None if changed is None else {*look.wrong, *changed}


def without_miscounted(lake: Lake, pinned: Sequence[PinnedTable], found: Mapping[str, Miscounted]) -> list[PinnedTable]:
    """The tables without the slices that have other rows than were committed, and without files that are not whole.

    A slice of a crawl and a target is left out of every table: what is left of it would contradict itself.
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
    """Has the slices of a crawl that have other rows than were committed made again by the next run, and gives them.

    Until then they stay out of what is published. Rows of tables without crawls are written again by whoever registers
    them. Raises ``EnvironmentFault``.
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
    """What is wrong with each table, for people."""
    for table, own in found.items():
        named = [
            f"{' '.join(key) or 'the table'} ({there:,} rows, {_committed(said)})"
            for key, (said, there) in sorted(own.slices.items(), key=lambda item: item[0])[:_NAMED]
        ]
        more = f" and {len(own.slices) - _NAMED:,} more" if len(own.slices) > _NAMED else ""
        files = f"; files that are not whole: {', '.join(own.broken[:_NAMED])}" if own.broken else ""
        yield f"{table}: {len(own.slices):,} slices are not as they were committed: {', '.join(named)}{more}{files}"


def _committed(said: int | None) -> str:
    return "to be made again" if said is None else f"committed with {said:,}"


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
