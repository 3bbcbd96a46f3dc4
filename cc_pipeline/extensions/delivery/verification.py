"""Verifies the files of a place against its manifests. It needs neither the source nor the home that copied them."""

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
from cc_pipeline.extensions.delivery.inventory import read_manifest
from cc_pipeline.extensions.delivery.manifest import (
    FileEntry,
    Manifest,
    PartEntry,
    key_in,
    parse_delivery,
    parse_manifest_name,
    parse_part_name,
    prove_part,
    read_table,
    sha256_of,
)
from cc_pipeline.extensions.delivery.writer import count_captures
from cc_pipeline.progress import format_count
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.client import Transport

#: ``(files done, files in all, bytes read, bytes in all)``.
Progress = Callable[[int, int, int, int], None]
#: Keys of captures in memory: only 16 bytes each, because a place may have very many.
_Names = npt.NDArray[np.bytes_]
_MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class DeliveryCheck:
    """The problems of one delivery of a place. ``manifest`` is ``None`` if it is damaged."""

    key: str
    manifest: Manifest | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of a verification. ``problems`` are problems that belong to no single delivery, ``notes`` are hints
    for the user."""

    deliveries: tuple[DeliveryCheck, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def all_problems(self) -> list[str]:
        """All differences from the manifests."""
        return [*(reason for check in self.deliveries for reason in check.problems), *self.problems]

    @property
    def undelivered_captures(self) -> int:
        """The number of planned captures that the manifests list as undelivered."""
        manifests = [check.manifest for check in self.deliveries if check.manifest is not None]
        return sum(manifest.counts.get("planned", 0) - manifest.counts.get("delivered", 0) for manifest in manifests)

    @property
    def with_unread_index_files(self) -> list[str]:
        """Manifests of deliveries whose captures were located while index files were unread."""
        return [
            check.key for check in self.deliveries if check.manifest is not None and check.manifest.unread_index_files
        ]

    @property
    def unfinished(self) -> list[str]:
        """Manifests of interrupted copies."""
        return [check.key for check in self.deliveries if check.manifest is not None and not check.manifest.complete]


def verify_place(place: Transport, *, parallel: int = 4, progress: Progress | None = None) -> VerifyReport:
    """Reads every file that a manifest in ``place`` lists, ``parallel`` at a time, and reports all differences.

    Raises ``UserInputError`` if there is no manifest, ``EnvironmentFault`` if the place does not answer.
    """
    folders: dict[str, dict[str, ListedObject]] = {}
    for stored_object in place.listing(""):
        folder, _, name = stored_object.key.rpartition("/")
        folders.setdefault(folder, {})[name] = stored_object
    delivery_folders = {
        folder: objects for folder, objects in folders.items() if any(map(parse_manifest_name, objects))
    }
    if not delivery_folders:
        raise UserInputError(f"there is no delivery in {place.source}: no file is called manifest-….json")
    deliveries: list[DeliveryCheck] = []
    problems: list[str] = []
    notes: list[str] = []
    for folder, objects in sorted(delivery_folders.items()):
        folder_report = _Folder(place, folder, objects, parallel, progress).check()
        deliveries += folder_report.deliveries
        problems += folder_report.problems
        notes += folder_report.notes
    return VerifyReport(tuple(deliveries), tuple(problems), tuple(notes))


@dataclass(slots=True)
class _Folder:
    place: Transport
    folder: str
    stored_objects: Mapping[str, ListedObject]
    parallel: int
    progress: Progress | None
    problems: list[str] = field(default_factory=list)

    def check(self) -> VerifyReport:
        manifests: dict[str, Manifest | DataFault] = {}
        for name in sorted(filter(parse_manifest_name, self.stored_objects)):
            try:
                manifests[name] = read_manifest(self.place, self._key(name))
            except DataFault as fault:
                manifests[name] = fault
        readable_manifests = {name: manifest for name, manifest in manifests.items() if isinstance(manifest, Manifest)}
        parts = {part.file.name: part for manifest in readable_manifests.values() for part in manifest.parts}
        verdicts, names_by_part = self._check_parts(parts)
        self._find_duplicates(names_by_part)
        names = np.unique(np.concatenate([*names_by_part.values(), np.empty(0, "S16")]))
        deliveries = [
            DeliveryCheck(self._key(name), None, (str(manifest),))
            if isinstance(manifest, DataFault)
            else DeliveryCheck(self._key(name), manifest, tuple(self._check_delivery(manifest, verdicts, names)))
            for name, manifest in manifests.items()
        ]
        return VerifyReport(
            tuple(deliveries), tuple(self.problems), tuple(self._find_unlisted_files(readable_manifests.values()))
        )

    def _key(self, name: str) -> str:
        return key_in(self.folder, name)

    def _check_parts(self, parts: Mapping[str, PartEntry]) -> tuple[dict[str, list[str]], dict[str, _Names]]:
        verdicts: dict[str, list[str]] = {}
        names_by_part: dict[str, _Names] = {}
        done, total = 0, sum(part.file.size for part in parts.values())
        with ThreadPoolExecutor(max(1, self.parallel)) as pool:
            try:
                for part, (reasons, names) in zip(
                    parts.values(), pool.map(self._check_part, parts.values()), strict=True
                ):
                    verdicts[part.file.name] = reasons
                    names_by_part[part.file.name] = names
                    done += part.file.size
                    if self.progress is not None:
                        self.progress(len(verdicts), len(parts), done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return verdicts, names_by_part

    def _check_part(self, part: PartEntry) -> tuple[list[str], _Names]:
        key, no_names = self._key(part.file.name), np.empty(0, "S16")
        size_problem = self._size_problem(part.file) or self._size_problem(part.list)
        if size_problem is not None:
            return [size_problem], no_names
        reasons: list[str] = []
        try:
            if sha256_of(self.place, self._key(part.list.name), part.list.size) != part.list.sha256:
                reasons.append(f"{self._key(part.list.name)}: its SHA-256 differs from the manifest")
            proof = prove_part(self.place, self.folder, part.file.name, part.kind, part.file.size, part.list.size)
        except DataFault as fault:
            return [*reasons, str(fault)], no_names
        if proof.sha256 != part.file.sha256:
            reasons.append(f"{key}: its SHA-256 differs from the manifest")
        reasons += [f"{key}: {reason}" for reason in proof.reasons]
        if proof.omitted_reasons:
            reasons.append(f"{key}: {format_count(proof.omitted_reasons, 'more record', 'differ')} from its list")
        if proof.captures.num_rows != part.records:
            reasons.append(
                f"{key}: its list has {format_count(proof.captures.num_rows, 'capture')}, the manifest {part.records:,}"
            )
        return reasons, _hash_captures(proof.captures)

    def _size_problem(self, entry: FileEntry) -> str | None:
        stored_object = self.stored_objects.get(entry.name)
        if stored_object is None:
            return f"{self._key(entry.name)}: the file is missing"
        if stored_object.size != entry.size:
            return f"{self._key(entry.name)}: has {stored_object.size:,} bytes, the manifest says {entry.size:,}"
        return None

    def _find_duplicates(self, names_by_part: Mapping[str, _Names]) -> None:
        """Reports captures that occur in two parts, or twice in one part."""
        files = list(names_by_part)
        all_names = np.concatenate([*names_by_part.values(), np.empty(0, "S16")])
        file_numbers = np.concatenate(
            [np.full(len(names_by_part[name]), n) for n, name in enumerate(files)] or [np.empty(0, np.int64)]
        )
        order = np.argsort(all_names, kind="stable")
        duplicate_positions = np.flatnonzero(all_names[order][1:] == all_names[order][:-1])
        pairs = {
            (int(file_numbers[order[position]]), int(file_numbers[order[position + 1]]))
            for position in duplicate_positions
        }
        for first, second in sorted(pairs)[:_MAX_EXAMPLES]:
            keys = " and ".join(dict.fromkeys((self._key(files[first]), self._key(files[second]))))
            self.problems.append(f"{keys}: a capture is in the delivery twice")
        if len(duplicate_positions):
            self.problems.append(
                f"{self.folder}: {format_count(len(duplicate_positions), 'capture', 'are')} in the delivery more "
                "than once"
            )

    def _check_delivery(self, manifest: Manifest, verdicts: Mapping[str, list[str]], names: _Names) -> Iterator[str]:
        for part in manifest.parts:
            yield from verdicts[part.file.name]
        for name in manifest.superseded:
            if name in self.stored_objects:
                yield f"{self._key(name)}: is superseded and was not deleted, because the copy was stopped"
        if manifest.ledger is None:
            if manifest.complete:
                yield f"{self.folder}: the manifest of {manifest.delivery} names no ledger"
            return
        size_problem = self._size_problem(manifest.ledger)
        if size_problem is not None:
            yield size_problem
            return
        try:
            yield from self._check_ledger(manifest, manifest.ledger, names)
        except DataFault as fault:
            yield str(fault)

    def _check_ledger(self, manifest: Manifest, entry: FileEntry, names: _Names) -> Iterator[str]:
        key = self._key(entry.name)
        columns = (*CAPTURE, "url", "subset", "outcome", "delivered")
        table, sha256 = read_table(self.place, key, entry.size, columns)
        if sha256 != entry.sha256:
            yield f"{key}: its SHA-256 is not the manifest's"
        if set(table.schema.names) != set(columns):
            yield f"{key}: columns of a ledger are missing"
            return
        if not manifest.complete:
            return  # the ledger is that of the previous copy
        if count_captures(table) != (manifest.counts, manifest.subsets):
            yield f"{key}: the number of its captures differs from the manifest"
        delivered = table.filter(table["delivered"])
        missing_rows = np.flatnonzero(~np.isin(_hash_captures(delivered), names))
        for row in delivered.take(missing_rows[:_MAX_EXAMPLES]).to_pylist():
            location = f"{row['warc_filename']} at byte {row['warc_record_offset']}"
            yield f"{row['url']} ({location}): no file of the delivery has this capture"
        if len(missing_rows) > _MAX_EXAMPLES:
            yield f"{key}: {len(missing_rows) - _MAX_EXAMPLES:,} more captures are in no file of the delivery"

    def _find_unlisted_files(self, manifests: Iterable[Manifest]) -> Iterator[str]:
        """Files with the names of a delivery that no manifest lists."""
        manifest_files: set[str] = set()
        for manifest in manifests:
            manifest_files |= {entry.name for entry in manifest.files} | set(manifest.superseded)
        for name in sorted(self.stored_objects):
            is_delivery_file = parse_part_name(name) is not None or parse_delivery(name) is not None
            if is_delivery_file and name not in manifest_files:
                yield f"{self._key(name)}: no manifest lists this file"


def _hash_captures(captures: pa.Table) -> _Names:
    """A key of 16 bytes for each capture; equal captures have equal keys."""
    names = bytearray()
    for batch in captures.select([*CAPTURE]).to_batches(max_chunksize=10_000):
        for capture in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            names += hashlib.blake2b(repr(capture).encode(), digest_size=16).digest()
    return np.frombuffer(bytes(names), "S16")
