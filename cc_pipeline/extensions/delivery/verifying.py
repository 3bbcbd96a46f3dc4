"""Checks what a place holds against the manifests in it. It needs neither the source nor the home that copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.extensions.delivery.deliver import counted
from cc_pipeline.extensions.delivery.inventory import read_manifest
from cc_pipeline.extensions.delivery.manifest import (
    FileEntry,
    Manifest,
    PartEntry,
    delivery_of,
    delivery_of_manifest,
    key_in,
    part_named,
    prove_part,
    read_table,
    sha256_of,
)
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.client import Transport

#: ``(files done, files in all, bytes read, bytes in all)``.
Progress = Callable[[int, int, int, int], None]
#: Names of captures in memory: 16 bytes each, so a place may hold very many.
_Names = npt.NDArray[np.bytes_]
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Checked:
    """One delivery of a place: its manifest (``None`` where that is damaged) and what is wrong with it, by name."""

    key: str
    manifest: Manifest | None
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """``wrong`` is what no single delivery can be blamed for, ``notes`` what a person may want to look at."""

    deliveries: tuple[Checked, ...]
    wrong: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def all_wrong(self) -> list[str]:
        """Everything that is not as a manifest says."""
        return [*(reason for one in self.deliveries for reason in one.wrong), *self.wrong]

    @property
    def not_there(self) -> int:
        """Planned captures that the manifests say are not delivered."""
        every = [one.manifest for one in self.deliveries if one.manifest is not None]
        return sum(manifest.counts.get("planned", 0) - manifest.counts.get("delivered", 0) for manifest in every)

    @property
    def over_holes(self) -> list[str]:
        """Manifests of deliveries whose captures were looked up over unread index files."""
        return [one.key for one in self.deliveries if one.manifest is not None and one.manifest.unread_index_files]

    @property
    def unfinished(self) -> list[str]:
        """Manifests of copies that were stopped."""
        return [one.key for one in self.deliveries if one.manifest is not None and not one.manifest.complete]


def verify_place(place: Transport, *, parallel: int = 4, progress: Progress | None = None) -> VerifyReport:
    """Reads every file that a manifest in ``place`` names, ``parallel`` at a time, and looks for what should not be.

    Raises ``UserInputError`` when there is no manifest, ``EnvironmentFault`` when the place does not answer.
    """
    folders: dict[str, dict[str, Listed]] = {}
    for one in place.listing(""):
        folder, _, name = one.key.rpartition("/")
        folders.setdefault(folder, {})[name] = one
    ours = {folder: there for folder, there in folders.items() if any(map(delivery_of_manifest, there))}
    if not ours:
        raise UserInputError(f"there is no delivery in {place.source}: no file is called manifest-….json")
    deliveries: list[Checked] = []
    wrong: list[str] = []
    notes: list[str] = []
    for folder, there in sorted(ours.items()):
        found = _Folder(place, folder, there, parallel, progress).check()
        deliveries += found.deliveries
        wrong += found.wrong
        notes += found.notes
    return VerifyReport(tuple(deliveries), tuple(wrong), tuple(notes))


@dataclass(slots=True)
class _Folder:
    place: Transport
    folder: str
    there: Mapping[str, Listed]
    parallel: int
    progress: Progress | None
    wrong: list[str] = field(default_factory=list)

    def check(self) -> VerifyReport:
        manifests: dict[str, Manifest | DataFault] = {}
        for name in sorted(filter(delivery_of_manifest, self.there)):
            try:
                manifests[name] = read_manifest(self.place, self._key(name))
            except DataFault as fault:
                manifests[name] = fault
        good = {name: one for name, one in manifests.items() if isinstance(one, Manifest)}
        parts = {part.file.name: part for one in good.values() for part in one.parts}
        verdicts, held = self._parts(parts)
        self._twice(held)
        names = np.unique(np.concatenate([*held.values(), np.empty(0, "S16")]))
        deliveries = [
            Checked(self._key(name), None, (str(one),))
            if isinstance(one, DataFault)
            else Checked(self._key(name), one, tuple(self._delivery(one, verdicts, names)))
            for name, one in manifests.items()
        ]
        return VerifyReport(tuple(deliveries), tuple(self.wrong), tuple(self._strange(good.values())))

    def _key(self, name: str) -> str:
        return key_in(self.folder, name)

    def _parts(self, parts: Mapping[str, PartEntry]) -> tuple[dict[str, list[str]], dict[str, _Names]]:
        verdicts: dict[str, list[str]] = {}
        held: dict[str, _Names] = {}
        done, total = 0, sum(part.file.size for part in parts.values())
        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            try:
                for part, (reasons, names) in zip(parts.values(), pool.map(self._part, parts.values()), strict=True):
                    verdicts[part.file.name] = reasons
                    held[part.file.name] = names
                    done += part.file.size
                    if self.progress is not None:
                        self.progress(len(verdicts), len(parts), done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return verdicts, held

    def _part(self, part: PartEntry) -> tuple[list[str], _Names]:
        key, nothing = self._key(part.file.name), np.empty(0, "S16")
        size = self._size_differs(part.file) or self._size_differs(part.list)
        if size is not None:
            return [size], nothing
        reasons: list[str] = []
        try:
            if sha256_of(self.place, self._key(part.list.name), part.list.size) != part.list.sha256:
                reasons.append(f"{self._key(part.list.name)}: its SHA-256 is not the manifest's")
            proof = prove_part(self.place, self.folder, part.file.name, part.kind, part.file.size, part.list.size)
        except DataFault as fault:
            return [*reasons, str(fault)], nothing
        if proof.sha256 != part.file.sha256:
            reasons.append(f"{key}: its SHA-256 is not the manifest's")
        reasons += [f"{key}: {reason}" for reason in proof.reasons]
        if proof.more:
            reasons.append(f"{key}: {proof.more:,} more records are not as its list says")
        if proof.captures.num_rows != part.records:
            reasons.append(f"{key}: its list has {proof.captures.num_rows:,} captures, the manifest {part.records:,}")
        return reasons, _named(proof.captures)

    def _size_differs(self, entry: FileEntry) -> str | None:
        found = self.there.get(entry.name)
        if found is None:
            return f"{self._key(entry.name)}: is not there"
        if found.size != entry.size:
            return f"{self._key(entry.name)}: has {found.size:,} bytes, the manifest says {entry.size:,}"
        return None

    def _twice(self, held: Mapping[str, _Names]) -> None:
        """Captures that two parts hold, or one part twice."""
        files = list(held)
        every = np.concatenate([*held.values(), np.empty(0, "S16")])
        of = np.concatenate([np.full(len(held[name]), n) for n, name in enumerate(files)] or [np.empty(0, np.int64)])
        order = np.argsort(every, kind="stable")
        again = np.flatnonzero(every[order][1:] == every[order][:-1])
        pairs = {(int(of[order[at]]), int(of[order[at + 1]])) for at in again}
        for first, second in sorted(pairs)[:_MOST_NAMED]:
            where = " and ".join(dict.fromkeys((self._key(files[first]), self._key(files[second]))))
            self.wrong.append(f"{where}: the same capture is held twice")
        if len(again):
            self.wrong.append(f"{self.folder}: {len(again):,} captures are held more than once")

    def _delivery(self, manifest: Manifest, verdicts: Mapping[str, list[str]], names: _Names) -> Iterator[str]:
        for part in manifest.parts:
            yield from verdicts[part.file.name]
        for name in manifest.superseded:
            if name in self.there:
                yield f"{self._key(name)}: is superseded and still there; the copy that deletes it was stopped"
        if manifest.ledger is None:
            if manifest.complete:
                yield f"{self.folder}: the manifest of {manifest.delivery} names no ledger"
            return
        size = self._size_differs(manifest.ledger)
        if size is not None:
            yield size
            return
        try:
            yield from self._ledger(manifest, manifest.ledger, names)
        except DataFault as fault:
            yield str(fault)

    def _ledger(self, manifest: Manifest, entry: FileEntry, names: _Names) -> Iterator[str]:
        key = self._key(entry.name)
        columns = (*CAPTURE, "url", "subset", "outcome", "delivered")
        table, sha256 = read_table(self.place, key, entry.size, columns)
        if sha256 != entry.sha256:
            yield f"{key}: its SHA-256 is not the manifest's"
        if set(table.schema.names) != set(columns):
            yield f"{key}: lacks columns of a ledger"
            return
        if not manifest.complete:
            return  # it is of the copy before
        if counted(table) != (manifest.counts, manifest.subsets):
            yield f"{key}: its captures are not as many as the manifest counts"
        given = table.filter(table["delivered"])
        absent = np.flatnonzero(~np.isin(_named(given), names))
        for row in given.take(absent[:_MOST_NAMED]).to_pylist():
            yield f"{row['url']} ({row['warc_filename']} at {row['warc_record_offset']}): no part has it"
        if len(absent) > _MOST_NAMED:
            yield f"{key}: {len(absent) - _MOST_NAMED:,} more captures are in no part"

    def _strange(self, manifests: Iterable[Manifest]) -> Iterator[str]:
        """Files that look like ours and that no manifest names."""
        known: set[str] = set()
        for one in manifests:
            known |= {entry.name for entry in one.files} | set(one.superseded)
        for name in sorted(self.there):
            ours = part_named(name) is not None or delivery_of(name) is not None
            if ours and name not in known:
                yield f"{self._key(name)}: no manifest names it"


def _named(captures: pa.Table) -> _Names:
    """16 bytes for each capture, alike for the same one."""
    names = bytearray()
    for batch in captures.select([*CAPTURE]).to_batches(max_chunksize=10_000):
        for capture in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            names += hashlib.blake2b(repr(capture).encode(), digest_size=16).digest()
    return np.frombuffer(bytes(names), "S16")
