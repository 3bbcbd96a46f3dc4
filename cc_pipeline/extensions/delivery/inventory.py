"""Finds the captures of a delivery that its place already has, and the good files that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.extensions.delivery.manifest import (
    MAX_MANIFEST_BYTES,
    FileEntry,
    Manifest,
    PartEntry,
    from_json,
    list_name,
    manifest_name,
    parse_delivery,
    parse_manifest_name,
    parse_part_name,
    prove_part,
    proven_entry,
    read_table,
    verify_file,
)
from cc_pipeline.grouping import group_within
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport

T = TypeVar("T")
R = TypeVar("R")
Rows = npt.NDArray[np.int64]

#: Captures of lists that are compared with the requested ones at a time.
_BLOCK_CAPTURES = 500_000
_KEY = ("warc_filename", "warc_record_offset")
_MAX_PRINTED_NAMES = 5
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(slots=True)
class Inventory:
    """The files and captures in the place before a copy. ``is_present`` tells for each requested capture whether a good
    file has it.

    ``manifest`` is the previous manifest of this delivery. ``kept_parts`` parts stay. ``borrowed_parts`` are parts of
    other deliveries with requested captures. ``leftovers`` are files of an interrupted copy: they have the delivery's
    name and no manifest lists them. ``foreign_files`` are all files that other manifests list. ``replaces_parts`` is
    true if good parts of the manifest are superseded. ``dropped_parts`` are parts of the delivery that do not stay,
    each with the rows of its requested captures and the number of all its captures. ``left_out`` has the reason why a
    requested capture (by row) is not delivered."""

    stored_objects: Mapping[str, ListedObject]
    manifest: Manifest | None
    is_present: npt.NDArray[np.bool_]
    foreign_files: set[str]
    kept_parts: list[PartEntry] = field(default_factory=list)
    borrowed_parts: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    replaces_parts: bool = False
    dropped_parts: dict[str, tuple[Rows, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_manifest(place: Transport, key: str) -> Manifest:
    """Reads a manifest. Raises ``DataFault`` for a file that is no manifest, or that is the manifest of another
    delivery than its name says.
    """
    manifest = from_json(place.read_all(key, limit=MAX_MANIFEST_BYTES).data, key)
    if manifest.delivery != parse_manifest_name(key.rpartition("/")[2]):
        raise DataFault(DataKind.MALFORMED, key, None, f"the manifest of another delivery ({manifest.delivery[:40]!r})")
    return manifest


def build_inventory(
    place: Transport, folder: str, delivery: str, captures: pa.Table, convert: bool, parallel: int = 4
) -> Inventory:
    """Compares the files in ``folder`` with their manifests and with the requested ``captures`` (ledger rows).

    A file of a local folder is read completely. A file of a bucket is read only if its ETag differs from the
    manifest's. Raises ``EnvironmentFault`` if the place does not answer, or if another delivery's manifest there is
    damaged.
    """
    stored_objects = {
        stored_object.key.removeprefix(f"{folder}/"): stored_object for stored_object in place.listing(f"{folder}/")
    }
    own_manifest, other_manifests, notes = _read_manifests(place, folder, delivery, stored_objects)
    inventory = Inventory(
        stored_objects,
        own_manifest,
        np.zeros(captures.num_rows, bool),
        {entry.name for other_manifest in other_manifests for entry in other_manifest.files},
    )
    inventory.notes += notes
    _InventoryBuilder(place, folder, inventory, _RequestedCaptures(captures, convert), parallel).fill(
        delivery, other_manifests
    )
    return inventory


def _read_manifests(
    place: Transport, folder: str, delivery: str, stored_objects: Mapping[str, ListedObject]
) -> tuple[Manifest | None, list[Manifest], list[str]]:
    own_manifest: Manifest | None = None
    other_manifests: list[Manifest] = []
    notes: list[str] = []
    for name in stored_objects:
        if parse_manifest_name(name) is None:
            continue
        try:
            manifest = read_manifest(place, f"{folder}/{name}")
        except DataFault as fault:
            if fault.kind is DataKind.UNSUPPORTED:
                raise EnvironmentFault(
                    f"the folder has a manifest that this version cannot read: {fault}",
                    "Install the version of cc_pipeline that wrote it, or copy to another folder.",
                ) from fault
            if name != manifest_name(delivery):
                raise EnvironmentFault(
                    f"the manifest of another delivery in this folder is damaged, so this copy cannot tell which files "
                    f"belong to that delivery: {fault}",
                    "Copy that delivery again, which writes its manifest anew, or copy to another folder.",
                ) from fault
            notes.append(f"the manifest was damaged and is rewritten ({fault.reason})")
            continue
        if manifest.delivery == delivery:
            own_manifest = manifest
        else:
            other_manifests.append(manifest)
    return own_manifest, other_manifests, notes


class _RequestedCaptures:
    """The requested captures by key, and whether each is requested as WARC or ARC."""

    def __init__(self, rows: pa.Table, convert: bool) -> None:
        self._keys = rows.select([*_KEY]).append_column("row", pa.array(np.arange(rows.num_rows)))
        is_arc = pc.equal(rows["archive_format"], "arc").to_numpy()
        self.wants_arc: npt.NDArray[np.bool_] = np.zeros(rows.num_rows, bool) if convert else is_arc.astype(bool)
        self.is_fetched: npt.NDArray[np.bool_] = pc.equal(rows["outcome"], "fetched").to_numpy().astype(bool)

    def match_lists(self, tables: Iterable[tuple[int, pa.Table | None]]) -> dict[int, tuple[Rows, int]]:
        """For each numbered list, returns the rows of the requested captures in it and the number of all its captures.
        Lists that could not be read (``None``) are skipped.
        """
        matched: dict[int, tuple[Rows, int]] = {}
        read_tables = ((number, table) for number, table in tables if table is not None)
        for block in group_within(read_tables, (_BLOCK_CAPTURES,), lambda numbered: (numbered[1].num_rows,)):
            numbered = [
                table.append_column("part", pa.array(np.full(table.num_rows, number))) for number, table in block
            ]
            joined = pa.concat_tables(numbered).join(self._keys, [*_KEY], join_type="inner")
            parts, rows = joined["part"].to_numpy(), joined["row"].to_numpy()
            order = np.argsort(parts, kind="stable")
            parts, rows = parts[order], rows[order]
            for number, table in block:
                first, last = np.searchsorted(parts, [number, number + 1])
                matched[number] = (rows[first:last], table.num_rows)
        return matched


@dataclass(slots=True)
class _InventoryBuilder:
    place: Transport
    folder: str
    inventory: Inventory
    requested: _RequestedCaptures
    parallel: int

    def fill(self, delivery: str, other_manifests: Sequence[Manifest]) -> None:
        own_parts = list(self.inventory.manifest.parts) if self.inventory.manifest is not None else []
        names = {part.file.name for part in own_parts}
        other_parts = {
            part.file.name: part
            for other_manifest in other_manifests
            for part in other_manifest.parts
            if part.file.name not in names
        }
        self._borrow_parts(list(other_parts.values()))
        self._keep_parts(own_parts)
        self._adopt_parts(delivery, names | other_parts.keys())

    def _borrow_parts(self, parts: Sequence[PartEntry]) -> None:
        matched = self._match_entries([part.list for part in parts])
        shared_numbers = [number for number, (rows, _) in matched.items() if len(rows)]
        other_form = 0
        for number, verified in zip(
            shared_numbers, self._verify_entries([parts[n].file for n in shared_numbers]), strict=True
        ):
            rows, _ = matched[number]
            if verified is None:
                continue
            other_form += int((self.requested.wants_arc[rows] != (parts[number].kind == "arc")).sum())
            self.inventory.is_present[rows] = True
            self.inventory.borrowed_parts.append(parts[number].file.name)
        if other_form:
            self.inventory.notes.append(
                f"{format_count(other_form, 'capture', 'are')} in files of another delivery, in another form "
                "(--convert). A place has each capture once, so copy that delivery in the requested form, or copy to "
                "another place"
            )

    def _keep_parts(self, parts: Sequence[PartEntry]) -> None:
        files = self._verify_entries([part.file for part in parts])
        list_entries = self._verify_entries([part.list for part in parts])
        matched = self._match_entries([part.list for part in parts])
        changed_files: list[str] = []
        for number, (part, file, list_entry) in enumerate(zip(parts, files, list_entries, strict=True)):
            rows, total = matched.get(number, (_NO_ROWS, 0))
            if file is None or list_entry is None or number not in matched:
                changed_files.append(part.file.name)
            elif self._is_superseded(part.kind, rows, total):
                self.inventory.replaces_parts = True
            else:
                self._add_part(replace(part, file=file, list=list_entry), rows)
                continue
            if number in matched:
                self.inventory.dropped_parts[part.file.name] = rows, total
        self._note_changed_files(changed_files)

    def _adopt_parts(self, delivery: str, manifest_parts: set[str]) -> None:
        """Adopts complete parts of an interrupted copy, which no manifest lists."""
        adoptable_parts: list[tuple[str, str, ListedObject, ListedObject]] = []
        manifest_files = self.inventory.foreign_files
        if self.inventory.manifest is not None:
            manifest_files = manifest_files | {entry.name for entry in self.inventory.manifest.files}
        for name, stored_object in self.inventory.stored_objects.items():
            part_name = parse_part_name(name)
            list_object = self.inventory.stored_objects.get(list_name(name))
            if (
                part_name is not None
                and part_name[0] == delivery
                and name not in manifest_parts
                and list_object is not None
            ):
                adoptable_parts.append((name, part_name[1], stored_object, list_object))
            if name not in manifest_files and parse_delivery(name) == delivery:
                self.inventory.leftovers.append(name)
        tables = self._map_parallel(
            lambda adoptable: self._read_list(list_name(adoptable[0]), adoptable[3].size, None), adoptable_parts
        )
        matched = self.requested.match_lists(
            (n, None if list_table is None else list_table[0]) for n, list_table in enumerate(tables)
        )
        for number, (rows, total) in matched.items():
            name, kind, stored_object, _ = adoptable_parts[number]
            list_table = tables[number]
            is_usable = not self._is_superseded(kind, rows, total)
            entry = self._prove_entry(name, kind, stored_object, list_table[1]) if list_table and is_usable else None
            if entry is not None:
                self._add_part(entry, rows)
            else:
                self.inventory.dropped_parts[name] = rows, total

    def _prove_entry(self, name: str, kind: str, part_object: ListedObject, list_entry: FileEntry) -> PartEntry | None:
        is_local = isinstance(self.place.store, LocalStore)
        try:
            proof = prove_part(self.place, self.folder, name, kind, part_object.size, list_entry.size)
        except DataFault:
            return None
        if not is_local:
            list_entry = replace(list_entry, etag=self.inventory.stored_objects[list_entry.name].etag)
        return (
            None
            if proof.reasons
            else proven_entry(name, kind, part_object.size, proof, list_entry, None if is_local else part_object.etag)
        )

    def _is_superseded(self, kind: str, rows: Rows, total: int) -> bool:
        """Whether other parts may replace a sound part: its form is not the requested one, and all of its captures are
        available elsewhere.
        """
        if self._has_requested_form(kind, rows):
            return False  # other captures in it are no longer planned, which is no reason to delete them
        return total == len(rows) and bool((self.requested.is_fetched[rows] | self.inventory.is_present[rows]).all())

    def _has_requested_form(self, kind: str, rows: Rows) -> bool:
        is_first_copy = len(np.unique(rows)) == len(rows) and not self.inventory.is_present[rows].any()
        return bool(is_first_copy and (self.requested.wants_arc[rows] == (kind == "arc")).all())

    def _add_part(self, part: PartEntry, rows: Rows) -> None:
        self.inventory.is_present[rows] = True
        self.inventory.kept_parts.append(part)

    def _verify_entries(self, entries: Sequence[FileEntry]) -> list[FileEntry | None]:
        stored_objects = self.inventory.stored_objects
        return self._map_parallel(
            lambda entry: verify_file(self.place, self.folder, entry, stored_objects.get(entry.name)), entries
        )

    def _match_entries(self, list_entries: Sequence[FileEntry]) -> dict[int, tuple[Rows, int]]:
        def read_numbered(numbered_entry: tuple[int, FileEntry]) -> tuple[int, pa.Table | None]:
            list_table = self._read_list(numbered_entry[1].name, numbered_entry[1].size, numbered_entry[1].sha256)
            return numbered_entry[0], None if list_table is None else list_table[0]

        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            return self.requested.match_lists(pool.map(read_numbered, enumerate(list_entries)))

    def _read_list(self, name: str, size: int, sha256: str | None) -> tuple[pa.Table, FileEntry] | None:
        """Reads the captures of a list. Returns ``None`` if the list is missing or its SHA-256 differs."""
        try:
            table, stored_sha256 = read_table(self.place, f"{self.folder}/{name}", size, _KEY)
        except DataFault:
            return None
        is_unchanged = sha256 in (None, stored_sha256) and table.schema.names == [*_KEY]
        return (table, FileEntry(name, size, stored_sha256)) if is_unchanged else None

    def _map_parallel(self, function: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            return list(pool.map(function, arguments))

    def _note_changed_files(self, names: Sequence[str]) -> None:
        if names:
            shown_names = list_first(sorted(names), _MAX_PRINTED_NAMES)
            self.inventory.notes.append(f"missing, or different from the manifest: {shown_names}")
