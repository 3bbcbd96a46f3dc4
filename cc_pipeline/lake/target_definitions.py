"""Definitions of targets in the lake, since a run gets only partition keys: one row a target, of a large set one row a
part.

A definition that is made from nothing draws an epoch, and a purge changes it: rows of ``slices`` count while they have
the epoch of their target (``slices.py``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.key_ranges import KeyRange, merge_ranges
from cc_pipeline.commoncrawl.slice_slugs import (
    SEPARATOR,
    divided,
    part_count,
    part_from,
    part_slugs,
    whole_slug,
)
from cc_pipeline.commoncrawl.target import GIVEN_KIND, WHERE_SLUG, Target, version_of
from cc_pipeline.commoncrawl.target_text import SET_SLUG, parse_key, parse_target, text_of_key
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.keyed import Row, update_rows
from cc_pipeline.lake.lake import REMOVED, Lake
from cc_pipeline.lake.predicates import Prefix
from cc_pipeline.lake.slices import EPOCH, SLICES, read_target_rows

_TABLE: Final = "targets"
#: Definitions written in one commit, and so into one file: changing one member later rewrites no more than these.
_DEFINITIONS_PER_COMMIT: Final = 64
#: Members that the row of a divided set names.
_OUTLINED_MEMBERS: Final = 3


def register(lake: Lake, targets: Sequence[Target]) -> None:
    """Writes the definitions of ``targets``. Definitions that are stored already, unchanged, cost one look. A
    definition that was lost, with its row, gets the epoch of the slices that are stored.

    The parts of a set are written before the set itself: if a process is killed between them, the next one goes on.
    Raises ``UserInputError`` for a set whose name differs from a stored one only in capital letters.
    """
    targets_by_slug = {target.slug: target for target in targets}
    versions = plan_versions(lake, targets_by_slug.values())
    stored_rows = _read_rows(lake, [*targets_by_slug], ["slug", "parts"])
    lost_epochs = _find_stored_epochs(lake, targets_by_slug.keys() - read_target_rows(lake, [*targets_by_slug]).keys())
    for target in targets_by_slug.values():
        if (parts := _count_parts(target, stored_rows.get(target.slug))) > 1:
            _register_parts(lake, divided(target, parts))

    def build(stored: list[Row]) -> list[Row]:
        old_rows = {row["slug"]: row for row in stored}
        names = {row["slug"]: _parse_set_name(row["definition"]) for row in stored if row["slug"].startswith(SET_SLUG)}
        for target in targets:
            _refuse_other_spelling(target, names)
        rows = []
        for target in targets_by_slug.values():
            old_row = old_rows.get(target.slug)
            parts = _count_parts(target, old_row)
            # the version of a divided set depends on the members alone, whatever their order
            members = "\n".join(sorted(member.written for member in target.members))
            version = versions[target.slug] if parts == 1 else version_of(members)
            if old_row is None or old_row["version"] != version:
                rows.append(_build_row(target, old_row, parts, version) | lost_epochs.get(target.slug, {}))
        return rows

    if targets_by_slug:
        update_rows(lake, _TABLE, {"slug": [*targets_by_slug]}, build)


def _find_stored_epochs(lake: Lake, slugs: Collection[str]) -> dict[str, Row]:
    """The last epoch of the slices of each of ``slugs`` that has any, as a column of its row."""
    if not slugs:
        return {}
    # one look, however many targets are new
    where = {"target": Prefix(*slugs)} if len(slugs) == 1 else None
    rows = lake.read(SLICES.name, where, ["target", "epoch", "committed_at"])
    own_targets = [target for target in pc.unique(rows["target"]).to_pylist() if whole_slug(target) in slugs]
    rows = rows.filter(pc.is_in(rows["target"], pa.array(own_targets, pa.string())))
    return {
        whole_slug(row["target"]): {EPOCH.name: row["epoch"]}
        for row in rows.sort_by("committed_at").to_pylist()
        if row["epoch"]
    }


def _refuse_other_spelling(target: Target, names: dict[str, str]) -> None:
    """Raises ``UserInputError`` for a set whose name differs from a stored one only in capital letters."""
    if not _is_named_set(target):
        return
    name = target.name or target.value
    stored = names.setdefault(target.slug, name)
    if stored != name:
        raise UserInputError(
            f"set:{name} would be the same partition as set:{stored}, since partition keys have no capital letters: "
            f"write set:{stored}, or take another name"
        )


def read_targets(lake: Lake, slugs: Sequence[str]) -> dict[str, Target]:
    """The targets of partition keys and of parts of sets; a divided set has all its members.

    A key without a definition (a person made it in the UI) is defined as the target of its text. Raises
    ``UserInputError`` for text that is not a target, or whose target has another key, and for a target that was
    removed: a run that began before does not bring it back."""
    stored_rows = _read_rows(lake, slugs)
    _refuse_removed(lake, [slug for slug in slugs if slug not in stored_rows])
    targets = build_targets(slugs, stored_rows, partial(read_definitions, lake))
    register(lake, [target for slug, target in targets.items() if slug not in stored_rows])
    return targets


def build_targets(
    slugs: Sequence[str],
    stored_rows: Mapping[str, Mapping[str, Any]],
    read_parts: Callable[[Sequence[str]], Mapping[str, str]],
) -> dict[str, Target]:
    """The targets of ``slugs`` by rows of ``targets``; ``read_parts`` gives the definitions of parts. Raises as
    :func:`read_targets`."""
    targets: dict[str, Target] = {}
    for slug in slugs:
        row = stored_rows.get(slug)
        if row is not None and (row["parts"] or 1) > 1:
            targets[slug] = _build_divided_set(slug, row, read_parts(part_slugs(slug, row["parts"])))
        elif row is not None and SEPARATOR in slug:
            targets[slug] = part_from(slug, row["definition"])
        else:
            targets[slug] = _parse_slug(slug, None if row is None else row["definition"])
    return targets


def _refuse_removed(lake: Lake, slugs: Collection[str]) -> None:
    for slug, row in read_target_rows(lake, slugs).items():
        if row[REMOVED.name]:
            raise UserInputError(
                f"{slug} was removed or purged, so no run makes it. To make it again, name it to a command: "
                f"{advise('run', text_of_key(slug), crawl='newest')} (or its line of the watch list)"
            )


def find_part_slugs(lake: Lake, slugs: Sequence[str]) -> dict[str, list[str]]:
    """The slugs with a definition for each of ``slugs``: those of its parts for a divided set, else its own."""
    sets = [slug for slug in slugs if slug.startswith(SET_SLUG) and SEPARATOR not in slug]
    stored_rows = _read_rows(lake, sets, ["slug", "parts"])
    return {slug: part_slugs(slug, (stored_rows[slug]["parts"] or 1) if slug in stored_rows else 1) for slug in slugs}


def plan_parts(lake: Lake, targets: Sequence[Target]) -> dict[str, list[Target]]:
    """The parts with slices of their own of each target, as if it were registered now; nothing is written."""
    stored_rows = _read_rows(lake, [target.slug for target in targets if target.kind == "set"], ["slug", "parts"])
    return {target.slug: divided(target, _count_parts(target, stored_rows.get(target.slug))) for target in targets}


def read_versions(lake: Lake, slugs: Sequence[str]) -> dict[str, str]:
    """The version of each definition. Keys without a definition are defined as in :func:`read`. Raises as that does."""
    stored_versions = read_stored_versions(lake, slugs)
    return stored_versions | {
        slug: target.version
        for slug, target in read_targets(lake, [slug for slug in slugs if slug not in stored_versions]).items()
    }


def read_stored_versions(lake: Lake, slugs: Sequence[str]) -> dict[str, str]:
    """The versions of the stored definitions of ``slugs``; nothing is written."""
    return {slug: row["version"] for slug, row in _read_rows(lake, slugs, ["slug", "version"]).items()}


def read_definitions(lake: Lake, slugs: Sequence[str]) -> dict[str, str]:
    """The stored texts of the definitions of ``slugs``; read ``part_from`` them only when needed."""
    return {slug: row["definition"] for slug, row in _read_rows(lake, slugs, ["slug", "definition"]).items()}


def find_defining_slugs(lake: Lake, slugs: Collection[str]) -> list[str]:
    """The slugs of the rows that define targets: their own, and those of all their parts."""
    all_slugs = lake.read(_TABLE, columns=["slug"]).column("slug").to_pylist()
    return sorted(slug for slug in all_slugs if whole_slug(slug) in slugs)


def delete_definitions(lake: Lake, targets: Collection[str]) -> None:
    """Deletes the definitions of targets and of their parts, in one commit: rows of their slices count no more. Raises
    ``EnvironmentFault``."""
    slugs = find_defining_slugs(lake, targets)

    def build(stored: list[Row]) -> list[Row]:
        return [row | {REMOVED.name: True} for row in stored]

    if slugs:
        update_rows(lake, _TABLE, {"slug": slugs}, build)


def plan_versions(lake: Lake, targets: Iterable[Target]) -> dict[str, str]:
    """The version of each target by its slug, as if it were registered now; the version of named captures depends on
    the captures. Raises ``UserInputError`` for a name under which nobody added any."""
    targets = list(targets)
    added = {target.slug: target.slug.partition(WHERE_SLUG)[0] for target in targets if target.kind == GIVEN_KIND}
    stored_rows = _read_rows(lake, sorted({*added.values()}), ["slug", "version"]) if added else {}
    versions_by_slug = {}
    for target in targets:
        if target.kind != GIVEN_KIND:
            versions_by_slug[target.slug] = target.version
        elif added[target.slug] not in stored_rows:
            raise UserInputError(
                f"this home has no captures named {target.value!r}; add them: "
                f"{advise('files captures', 'FILE', name=target.value)}"
            )
        else:
            version = stored_rows[added[target.slug]]["version"]
            versions_by_slug[target.slug] = version_of(f"{target.where}\n{version}") if target.where else version
    return versions_by_slug


def define_named_captures(lake: Lake, target: Target, version: str = "") -> None:
    """Notes the current ``version`` of the captures named as ``target``; without one, that there are such captures.
    Targets with conditions on them change too."""

    def build(stored: list[Row]) -> list[Row]:
        old_row = stored[0] if stored else None
        if old_row is not None and old_row["version"] == (version or old_row["version"]):
            return []
        return [_build_row(target, old_row, 1, version)]

    update_rows(lake, _TABLE, {"slug": target.slug}, build)
    definition_rows = lake.read(_TABLE, {"kind": GIVEN_KIND}, ["slug", "definition"]).to_pylist()
    register(
        lake,
        [
            parse_target(row["definition"])
            for row in definition_rows
            if row["slug"].startswith(target.slug + WHERE_SLUG)
        ],
    )


def _register_parts(lake: Lake, parts: Sequence[Target]) -> None:
    for start in range(0, len(parts), _DEFINITIONS_PER_COMMIT):
        next_parts = parts[start : start + _DEFINITIONS_PER_COMMIT]

        def build(stored: list[Row], next_parts: Sequence[Target] = next_parts) -> list[Row]:
            old_rows = {row["slug"]: row for row in stored}
            return [
                _build_row(part, old_rows.get(part.slug), 1, part.version)
                for part in next_parts
                if old_rows.get(part.slug, {}).get("version") != part.version
            ]

        update_rows(lake, _TABLE, {"slug": [part.slug for part in next_parts]}, build)


def _build_row(target: Target, old_row: Mapping[str, Any] | None, parts: int, version: str) -> dict[str, Any]:
    # keys of a divided set are its parts'; rows of the former definition may still be in the tables
    own_ranges = target.ranges if parts == 1 else ()
    old_ranges = [] if old_row is None else [KeyRange(keys["start"], keys["end"]) for keys in old_row["ranges"]]
    return {
        "slug": target.slug,
        "kind": target.kind,
        "definition": target.written if parts == 1 else _outline(target),
        "version": version,
        "ranges": [{"start": keys.start, "end": keys.end} for keys in merge_ranges([*own_ranges, *old_ranges])],
        "parts": None if parts == 1 else parts,
        EPOCH.name: secrets.randbits(62) if old_row is None else old_row[EPOCH.name],
    }


def _read_rows(lake: Lake, slugs: Sequence[str], columns: Sequence[str] | None = None) -> dict[str, dict[str, Any]]:
    rows = lake.read(_TABLE, {"slug": list(slugs)}, columns).to_pylist() if slugs else []
    return {row["slug"]: row for row in rows}


def _is_named_set(target: Target) -> bool:
    return target.kind == "set" and target.slug.startswith(SET_SLUG) and SEPARATOR not in target.slug


def _parse_set_name(definition: str) -> str:
    """The name in the definition of a set, as it was written."""
    return definition.partition(" = ")[0].removeprefix("set:")


def _count_parts(target: Target, old_row: Mapping[str, Any] | None) -> int:
    if not _is_named_set(target):
        return 1
    return part_count(len(target.members), None if old_row is None else old_row["parts"] or 1)


def _outline(target: Target) -> str:
    """The text that a person sees of a divided set: its line if that names a file, else its first members."""
    if target.file:
        return target.definition
    first_members = ", ".join(member.written for member in target.members[:_OUTLINED_MEMBERS])
    where = f" where {target.where}" if target.where else ""
    return f"set:{target.name or target.value} = {first_members}, … ({len(target.members):,} members){where}"


def _build_divided_set(slug: str, row: Mapping[str, Any], parts: Mapping[str, str]) -> Target:
    members = tuple(member for part, text in sorted(parts.items()) for member in part_from(part, text).members)
    line, _, where = row["definition"].partition(" where ")
    name = slug.removeprefix(SET_SLUG).partition(WHERE_SLUG)[0]
    written = _parse_set_name(line)
    capitals = "" if written == name else written
    return Target("set", name, slug, members, file=line.partition(" = @")[2], where=where, name=capitals)


def _parse_slug(slug: str, definition: str | None) -> Target:
    if definition is None and SEPARATOR in slug:
        raise UserInputError(f"{slug!r} is a part of a set; name the set: {whole_slug(slug)!r}")
    target = parse_target(definition) if definition is not None else parse_key(slug)
    if target.slug != slug:
        advice = "add that key in the same dialog, and choose it"
        if parse_key(target.slug) != target:
            add = advise("targets add", target.definition, home="FOLDER")
            advice = f"run {add} with the folder of this home (or list the target in build_defs), then {advice}"
        raise UserInputError(
            f"cc-pipeline did not create the partition key {slug!r}. If you mean {target.definition}, its key is "
            f"{target.slug!r}: {advice}"
        )
    return target
