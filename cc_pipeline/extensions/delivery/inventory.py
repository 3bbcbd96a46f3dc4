"""What a place holds already of the captures that a delivery wants, and in which good files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.extensions.delivery.manifest import (
    LARGEST_MANIFEST,
    FileEntry,
    Manifest,
    PartEntry,
    as_entry,
    delivery_of,
    delivery_of_manifest,
    from_json,
    holds,
    list_name,
    manifest_name,
    part_named,
    prove_part,
    read_table,
)
from cc_pipeline.stores.answer import Listed
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport

T = TypeVar("T")
R = TypeVar("R")
Rows = npt.NDArray[np.int64]

#: Captures of lists that are compared with the wanted ones at a time.
_BLOCK = 500_000
_KEY = ("warc_filename", "warc_record_offset")
_MOST_NAMES = 5
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(slots=True)
class Inventory:
    """What there is before a copy. ``have`` says for each wanted capture whether a good file holds it.

    ``manifest`` is the delivery's own of before. ``kept`` parts stay, ``borrowed`` are parts of other deliveries that
    hold wanted captures. ``leftovers`` are files with the delivery's name that no manifest has: of a copy that was
    stopped. ``of_others`` are all files that other manifests name. ``replaced`` says that good parts of the manifest
    are superseded. ``unkept`` are parts of the delivery that do not stay: the wanted captures that their lists name (by
    row), and how many they name in all. ``left_out`` says why a wanted capture (by row) is not handed on.
    """

    there: Mapping[str, Listed]
    manifest: Manifest | None
    have: npt.NDArray[np.bool_]
    of_others: set[str]
    kept: list[PartEntry] = field(default_factory=list)
    borrowed: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    replaced: bool = False
    unkept: dict[str, tuple[Rows, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_manifest(place: Transport, key: str) -> Manifest:
    """Raises ``DataFault`` for a file that is none, or that is not the manifest its name says."""
    manifest = from_json(place.read_all(key, limit=LARGEST_MANIFEST).data, key)
    if manifest.delivery != delivery_of_manifest(key.rpartition("/")[2]):
        raise DataFault(DataKind.MALFORMED, key, None, f"the manifest of another delivery ({manifest.delivery[:40]!r})")
    return manifest


def take_stock(
    place: Transport, folder: str, delivery: str, wanted: pa.Table, convert: bool, parallel: int = 4
) -> Inventory:
    """Compares the files in ``folder`` with their manifests and with the ``wanted`` captures (ledger rows).

    A file in a folder is read whole. A file in a bucket is read where its ETag is not the one the manifest has.
    Raises ``EnvironmentFault`` when the place does not answer, or has a manifest of another delivery that is damaged.
    """
    there = {one.key.removeprefix(f"{folder}/"): one for one in place.listing(f"{folder}/")}
    mine, others, notes = _manifests(place, folder, delivery, there)
    stock = Inventory(there, mine, np.zeros(wanted.num_rows, bool), {f.name for m in others for f in m.files})
    stock.notes += notes
    _Taking(place, folder, stock, _Wanted(wanted, convert), parallel).take(delivery, others)
    return stock


def _manifests(
    place: Transport, folder: str, delivery: str, there: Mapping[str, Listed]
) -> tuple[Manifest | None, list[Manifest], list[str]]:
    mine: Manifest | None = None
    others: list[Manifest] = []
    notes: list[str] = []
    for name in there:
        if delivery_of_manifest(name) is None:
            continue
        try:
            manifest = read_manifest(place, f"{folder}/{name}")
        except DataFault as fault:
            if name != manifest_name(delivery) or fault.kind is DataKind.UNSUPPORTED:
                raise EnvironmentFault(
                    f"it cannot be known what the place holds: {fault}",
                    "Copy that delivery again, or delete its manifest",
                ) from fault
            notes.append(f"the manifest was damaged and is written again ({fault.reason})")
            continue
        if manifest.delivery == delivery:
            mine = manifest
        else:
            others.append(manifest)
    return mine, others, notes


class _Wanted:
    """The wanted captures by name, and in which form each is wanted."""

    def __init__(self, rows: pa.Table, convert: bool) -> None:
        self._keys = rows.select([*_KEY]).append_column("row", pa.array(np.arange(rows.num_rows)))
        arc = pc.equal(rows["archive_format"], "arc").to_numpy()
        self.arc: npt.NDArray[np.bool_] = np.zeros(rows.num_rows, bool) if convert else arc.astype(bool)
        self.at_hand: npt.NDArray[np.bool_] = pc.equal(rows["outcome"], "fetched").to_numpy().astype(bool)

    def found(self, lists: Iterable[tuple[int, pa.Table | None]]) -> dict[int, tuple[Rows, int]]:
        """Of each numbered list that could be read: the wanted rows it names, and how many captures it has."""
        matched: dict[int, tuple[Rows, int]] = {}
        for block in _blocks(lists):
            numbered = [
                table.append_column("part", pa.array(np.full(table.num_rows, number))) for number, table in block
            ]
            both = pa.concat_tables(numbered).join(self._keys, [*_KEY], join_type="inner")
            parts, rows = both["part"].to_numpy(), both["row"].to_numpy()
            order = np.argsort(parts, kind="stable")
            parts, rows = parts[order], rows[order]
            for number, table in block:
                first, last = np.searchsorted(parts, [number, number + 1])
                matched[number] = (rows[first:last], table.num_rows)
        return matched


def _blocks(lists: Iterable[tuple[int, pa.Table | None]]) -> Iterator[list[tuple[int, pa.Table]]]:
    block: list[tuple[int, pa.Table]] = []
    size = 0
    for number, table in lists:
        if table is None:
            continue
        block.append((number, table))
        size += table.num_rows
        if size >= _BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


@dataclass(slots=True)
class _Taking:
    place: Transport
    folder: str
    stock: Inventory
    wanted: _Wanted
    parallel: int

    def take(self, delivery: str, others: Sequence[Manifest]) -> None:
        own = list(self.stock.manifest.parts) if self.stock.manifest is not None else []
        names = {part.file.name for part in own}
        theirs = {part.file.name: part for other in others for part in other.parts if part.file.name not in names}
        self._borrow(list(theirs.values()))
        self._keep(own)
        self._adopt(delivery, names | theirs.keys())

    def _borrow(self, parts: Sequence[PartEntry]) -> None:
        matched = self._matched([part.list for part in parts])
        sharing = [number for number, (rows, _) in matched.items() if len(rows)]
        other_form = 0
        for number, good in zip(sharing, self._good([parts[n].file for n in sharing]), strict=True):
            rows, _ = matched[number]
            if good is None:
                continue
            other_form += int((self.wanted.arc[rows] != (parts[number].kind == "arc")).sum())
            self.stock.have[rows] = True
            self.stock.borrowed.append(parts[number].file.name)
        if other_form:
            self.stock.notes.append(
                f"{other_form:,} captures are there in files of another delivery, in another form (--convert); a place "
                "holds a capture once, so copy that delivery in the form you want, or to another place"
            )

    def _keep(self, parts: Sequence[PartEntry]) -> None:
        files = self._good([part.file for part in parts])
        lists = self._good([part.list for part in parts])
        matched = self._matched([part.list for part in parts])
        differing: list[str] = []
        for number, (part, file, listed) in enumerate(zip(parts, files, lists, strict=True)):
            rows, total = matched.get(number, (_NO_ROWS, 0))
            if file is None or listed is None or number not in matched:
                differing.append(part.file.name)
            elif self._superseded(part.kind, rows, total):
                self.stock.replaced = True
            else:
                self._have(replace(part, file=file, list=listed), rows)
                continue
            if number in matched:
                self.stock.unkept[part.file.name] = rows, total
        self._tell_differing(differing)

    def _adopt(self, delivery: str, named: set[str]) -> None:
        """Takes over whole parts that no manifest names: of a copy that was stopped."""
        found: list[tuple[str, str, Listed, Listed]] = []
        known = self.stock.of_others
        if self.stock.manifest is not None:
            known = known | {entry.name for entry in self.stock.manifest.files}
        for name, listed in self.stock.there.items():
            own = part_named(name)
            beside = self.stock.there.get(list_name(name))
            if own is not None and own[0] == delivery and name not in named and beside is not None:
                found.append((name, own[1], listed, beside))
            if name not in known and delivery_of(name) == delivery:
                self.stock.leftovers.append(name)
        tables = self._map(lambda one: self._list(list_name(one[0]), one[3].size, None), found)
        matched = self.wanted.found((n, None if read is None else read[0]) for n, read in enumerate(tables))
        for number, (rows, total) in matched.items():
            name, kind, listed, _ = found[number]
            read = tables[number]
            good = not self._superseded(kind, rows, total)
            entry = self._proved(name, kind, listed, read[1]) if read and good else None
            if entry is not None:
                self._have(entry, rows)
            else:
                self.stock.unkept[name] = rows, total

    def _proved(self, name: str, kind: str, listed: Listed, listing: FileEntry) -> PartEntry | None:
        local = isinstance(self.place.store, LocalStore)
        try:
            proof = prove_part(self.place, self.folder, name, kind, listed.size, listing.size)
        except DataFault:
            return None
        if not local:
            listing = replace(listing, etag=self.stock.there[listing.name].etag)
        return (
            None if proof.reasons else as_entry(name, kind, listed.size, proof, listing, None if local else listed.etag)
        )

    def _superseded(self, kind: str, rows: Rows, total: int) -> bool:
        """Whether a sound part makes way for others: it is not as wanted, and nothing of it is lost without it."""
        if self._in_place(kind, rows):
            return False  # what it holds besides is planned no more, which is no reason to delete it
        return total == len(rows) and bool((self.wanted.at_hand[rows] | self.stock.have[rows]).all())

    def _in_place(self, kind: str, rows: Rows) -> bool:
        once = len(np.unique(rows)) == len(rows) and not self.stock.have[rows].any()
        return bool(once and (self.wanted.arc[rows] == (kind == "arc")).all())

    def _have(self, part: PartEntry, rows: Rows) -> None:
        self.stock.have[rows] = True
        self.stock.kept.append(part)

    def _good(self, entries: Sequence[FileEntry]) -> list[FileEntry | None]:
        there = self.stock.there
        return self._map(lambda entry: holds(self.place, self.folder, entry, there.get(entry.name)), entries)

    def _matched(self, lists: Sequence[FileEntry]) -> dict[int, tuple[Rows, int]]:
        def table(one: tuple[int, FileEntry]) -> tuple[int, pa.Table | None]:
            read = self._list(one[1].name, one[1].size, one[1].sha256)
            return one[0], None if read is None else read[0]

        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            return self.wanted.found(pool.map(table, enumerate(lists)))

    def _list(self, name: str, size: int, sha256: str | None) -> tuple[pa.Table, FileEntry] | None:
        """Captures that a list names, ``None`` where it is not there or has other bytes than these."""
        try:
            table, found = read_table(self.place, f"{self.folder}/{name}", size, _KEY)
        except DataFault:
            return None
        same = sha256 in (None, found) and table.schema.names == [*_KEY]
        return (table, FileEntry(name, size, found)) if same else None

    def _map(self, work: Callable[[T], R], given: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            return list(pool.map(work, given))

    def _tell_differing(self, names: Sequence[str]) -> None:
        if names:
            some = ", ".join(sorted(names)[:_MOST_NAMES])
            more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
            self.stock.notes.append(f"gone, or not what the manifest says: {some}{more}")
