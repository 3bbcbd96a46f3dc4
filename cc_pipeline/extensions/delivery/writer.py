"""A delivery: the records of some targets of one crawl in a place of the user, and a manifest that lists them.

A copy compares the planned captures with the files in the place, sends what is missing, and then replaces the manifest.
New parts are sent before the manifest and superseded parts are deleted after it, so every file that a manifest names
exists.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.index_schema import distinct_captures
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.extensions.delivery.inventory import Inventory, build_inventory
from cc_pipeline.extensions.delivery.manifest import (
    MAX_UNDELIVERED,
    FileEntry,
    Manifest,
    PartEntry,
    delivery_id,
    ledger_name,
    list_name,
    manifest_name,
    parse_delivery,
    to_json,
    verify_file,
)
from cc_pipeline.extensions.delivery.parts import (
    LIST_COLUMNS,
    PART_BYTES,
    Address,
    Part,
    WrittenPart,
    plan_copy,
    table_bytes,
    write_part,
)
from cc_pipeline.records.outcomes import NO_LOCATION
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport

#: Seconds between two checkpoints of a copy. After a kill, the next copy need not read the parts of a checkpoint.
_CHECKPOINT = 60.0
_LEDGER_SCHEMA = pa.schema(
    [*(RECORD_SCHEMA.field(name) for name in LIST_COLUMNS), pa.field("delivered", pa.bool_(), nullable=False),
     pa.field("left_out", pa.string())]
)  # fmt: skip
#: Columns of an undelivered capture in the manifest.
_UNDELIVERED_COLUMNS = ("url", "subset", "warc_filename", "warc_record_offset", "warc_record_length",
    "outcome", "reason", "detail",
          "left_out")  # fmt: skip

#: ``(parts done, parts in all, bytes sent, bytes in all)``.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """The delivery that a user requests: ``targets`` are definitions, ``indexes`` are the indexes that listed the
    captures.

    ``unread_index_files`` is how many index files were unread when the captures were located, which the user allowed.
    ``address`` returns an archive file's address at the source, for converted records. ``provenance`` goes into the
    manifest.
    """

    crawl: str
    targets: tuple[str, ...]
    subsets: tuple[str, ...]
    convert: bool = False
    part_bytes: int = PART_BYTES
    indexes: tuple[str, ...] = ()
    unread_index_files: int = 0
    address: Address = str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delivery(self) -> str:
        """The name of the delivery in the place. Equal targets and subsets give equal names, in any order."""
        return delivery_id(self.crawl, self.targets, self.subsets)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The outcome of a copy. ``manifest`` describes the place completely. ``parts_before`` of its ``parts`` files
    existed before.

    ``bytes`` were sent. ``notes`` are messages for the user.
    """

    manifest: Manifest
    parts: int
    parts_before: int
    bytes: int
    notes: tuple[str, ...]

    @property
    def lost(self) -> dict[str, int]:
        """Planned captures that are not in the place, by outcome."""
        names = ("missing", "quarantined", "left_out")
        return {name: self.manifest.counts[name] for name in names if self.manifest.counts[name]}


def deliver(
    order: Order,
    records: pa.Table,
    storage: RecordStorage,
    place: Transport,
    scratch: Path,
    *,
    parallel: int = 4,
    progress: Progress | None = None,
) -> DeliveryReport:
    """Updates the delivery in ``place`` to ``records`` (rows of the records table of one crawl).

    ``parallel`` parts are checked or sent at a time. A capture in a good file of the place is not sent again, whichever
    delivery the file belongs to, and it stays delivered even if the source no longer has it. A file is deleted only
    after other files hold its captures.

    Raises ``EnvironmentFault`` (also as ``RangeFault``) if the place or the disk fails. Sent files stay, and the next
    copy continues from there.
    """
    ledger = _ledger_rows(records)
    inventory = build_inventory(place, order.crawl, order.delivery, ledger, order.convert, parallel)
    numbered = ledger.append_column("row", pa.array(np.arange(ledger.num_rows)))
    parts = plan_copy(
        numbered.filter(pa.array(~inventory.is_present)), convert=order.convert, part_bytes=order.part_bytes
    )  # fmt: skip
    writer = _DeliveryWriter(order, storage, place, scratch, inventory)
    written = writer.send(parts, parallel, progress)
    for part, written_part in zip(parts, written, strict=True):
        rows = part.rows["row"].to_numpy()
        inventory.is_present[rows] = True
        for row, fault in written_part.left_out:
            inventory.is_present[rows[row]] = False
            inventory.left_out[int(rows[row])] = str(fault)
    new_entries = [written_part.entry for written_part in written if written_part.entry is not None]
    manifest = writer.publish(ledger, [*inventory.kept_parts, *new_entries])
    return DeliveryReport(
        manifest,
        len(manifest.parts) + len(manifest.borrowed),
        len(inventory.kept_parts) + len(inventory.borrowed_parts),
        sum(part.file.size for part in new_entries),
        tuple(inventory.notes),
    )


def add_planned_captures(records: pa.Table, captures: pa.Table) -> pa.Table:
    """Adds a row to ``records`` for each of ``captures`` (``RECORD_KEY_NAMES``) that has none, because its fetch was
    interrupted.
    """
    # Rows of the records table have a location even if the index has none.
    for name, default in NO_LOCATION.items():
        column_index = captures.schema.get_field_index(name)
        captures = captures.set_column(column_index, RECORD_SCHEMA.field(name), pc.fill_null(captures[name], default))
    unrecorded = captures.join(records.select([*CAPTURE]), [*CAPTURE], join_type="left anti")
    if not unrecorded.num_rows:
        return records
    default_fields = {"outcome": "missing", "detail": "not asked for yet", "attempts": 0}
    columns = [
        unrecorded[name]
        if name in unrecorded.schema.names
        else pa.array([default_fields.get(name)] * unrecorded.num_rows, RECORD_SCHEMA.field(name).type)
        for name in RECORD_SCHEMA.names
    ]
    return pa.concat_tables([records, pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)])


def _ledger_rows(records: pa.Table) -> pa.Table:
    """Returns each capture once, in file and offset order. A capture that was fetched for one target
    counts as fetched.
    """
    best = records.take(pc.sort_indices(records, [("outcome", "ascending")]))  # fetched, missing, quarantined
    return distinct_captures(best).sort_by([("warc_filename", "ascending"), ("warc_record_offset", "ascending")])


@dataclass(slots=True)
class _DeliveryWriter:
    """Writes one delivery."""

    order: Order
    storage: RecordStorage
    place: Transport
    scratch: Path
    inventory: Inventory
    _saved: float = field(default_factory=time.monotonic)

    def send(self, parts: Sequence[Part], parallel: int, progress: Progress | None) -> list[WrittenPart]:
        """Writes ``parts``. Returns the result of each, in the same order."""
        order, done, sent = self.order, 0, 0
        total = sum(part.bytes for part in parts)
        with ThreadPoolExecutor(max(1, parallel)) as pool:
            running = {
                pool.submit(
                    write_part,
                    part,
                    n,
                    self.storage,
                    self.place,
                    self.scratch,
                    order.crawl,
                    order.delivery,
                    order.address,
                ): part
                for n, part in enumerate(parts)
            }
            try:
                for future in as_completed(running):
                    future.result()
                    done += 1
                    sent += running[future].bytes
                    if progress is not None:
                        progress(done, len(parts), sent, total)
                    if time.monotonic() - self._saved > _CHECKPOINT:
                        self._checkpoint(running)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                with suppress(CcPipelineError, OSError):  # the first error is the cause
                    self._checkpoint(running)
                raise
        return [future.result() for future in running]

    def _checkpoint(self, running: Iterable[Future[WrittenPart]]) -> None:
        """Writes a manifest of the parts that were sent so far, unless the previous manifest lists more."""
        self._saved = time.monotonic()
        finished = [
            future for future in running if future.done() and not future.cancelled() and future.exception() is None
        ]
        new_entries = [entry for future in finished if (entry := future.result().entry) is not None]
        if self.inventory.replaces_parts or not new_entries:
            return
        blank = Manifest(self.order.delivery, self.order.crawl, tuple(sorted(self.order.targets)),
                         tuple(sorted(self.order.subsets)))  # fmt: skip
        self._put(replace(self.inventory.manifest or blank, convert=self.order.convert, complete=False,
                          parts=self._add_etags([*self.inventory.kept_parts, *new_entries])))  # fmt: skip

    def publish(self, rows: pa.Table, parts: Sequence[PartEntry]) -> Manifest:
        """Sends the ledger, replaces the manifest, deletes the superseded files, and returns the manifest."""
        order, inventory = self.order, self.inventory
        table = pa.Table.from_arrays(
            [*(rows[name] for name in LIST_COLUMNS), pa.array(inventory.is_present),
             pa.array([inventory.left_out.get(row) for row in range(rows.num_rows)], pa.string())],
            schema=_LEDGER_SCHEMA,
        )  # fmt: skip
        ledger = self._send_ledger(table)
        counts, subsets = count_captures(table)
        undelivered = table.filter(pc.invert(table["delivered"])).select(_UNDELIVERED_COLUMNS).slice(0, MAX_UNDELIVERED)
        manifest = Manifest(
            delivery=order.delivery,
            crawl=order.crawl,
            targets=tuple(sorted(order.targets)),
            wanted_subsets=tuple(sorted(order.subsets)),
            convert=order.convert,
            complete=True,
            indexes=tuple(sorted(order.indexes)),
            counts=counts,
            subsets=subsets,
            ledger=ledger,
            parts=tuple(sorted(self._add_etags(parts), key=lambda part: part.file.name)),
            borrowed=tuple(sorted(inventory.borrowed_parts)),
            not_there=tuple(undelivered.to_pylist()),
            unread_index_files=order.unread_index_files,
            provenance=order.provenance,
        )
        replaced = tuple(sorted(self._superseded_files(manifest)))
        if manifest != inventory.manifest or replaced:
            self._put(replace(manifest, superseded=replaced))
        if replaced:
            for name in replaced:
                self.place.delete(f"{order.crawl}/{name}")
            self._put(manifest)
        return manifest

    def _send_ledger(self, table: pa.Table) -> FileEntry:
        data = table_bytes(table)
        sha256 = hashlib.sha256(data).hexdigest()
        name = ledger_name(self.order.delivery, sha256)
        previous_ledger = self.inventory.manifest.ledger if self.inventory.manifest is not None else None
        if previous_ledger is not None and previous_ledger.name == name:
            stored_ledger = verify_file(
                self.place, self.order.crawl, previous_ledger, self.inventory.stored_objects.get(name)
            )
            if stored_ledger is not None:
                return stored_ledger
        self.place.put(f"{self.order.crawl}/{name}", data)
        entry = FileEntry(name, len(data), sha256)
        return self._with_tag(entry, self._listing(name))

    def _add_etags(self, parts: Sequence[PartEntry]) -> tuple[PartEntry, ...]:
        """Returns ``parts`` with the ETags of the place. Raises ``EnvironmentFault`` if a part is missing there."""
        new_names = {part.file.name for part in parts} - {part.file.name for part in self.inventory.kept_parts}
        stored_objects = self._listing() if new_names else {}
        return tuple(
            replace(
                part, file=self._with_tag(part.file, stored_objects), list=self._with_tag(part.list, stored_objects)
            )
            if part.file.name in new_names
            else part
            for part in parts
        )

    def _with_tag(self, entry: FileEntry, stored_objects: Mapping[str, ListedObject]) -> FileEntry:
        stored_object = stored_objects.get(entry.name)
        if stored_object is None or stored_object.size != entry.size:
            stored_size = "nothing" if stored_object is None else f"{stored_object.size} bytes"
            raise EnvironmentFault(
                f"{self.order.crawl}/{entry.name} was sent with {entry.size} bytes, but {stored_size} arrived",
                "Check whether another program writes or deletes there, then copy again",
            )
        return entry if isinstance(self.place.store, LocalStore) else replace(entry, etag=stored_object.etag)

    def _listing(self, name: str = "") -> dict[str, ListedObject]:
        prefix = f"{self.order.crawl}/"
        return {
            stored_object.key.removeprefix(prefix): stored_object for stored_object in self.place.listing(prefix + name)
        }

    def _superseded_files(self, manifest: Manifest) -> set[str]:
        """Files of this delivery, by an earlier manifest or by their name, that no manifest needs."""
        previous_manifest = self.inventory.manifest
        unused_files = set(self.inventory.leftovers)
        if previous_manifest is not None:
            unused_files |= {entry.name for entry in previous_manifest.files} | set(previous_manifest.superseded)
        unused_files -= {entry.name for entry in manifest.files} | self.inventory.foreign_files
        for part, (rows, total) in self.inventory.dropped_parts.items():
            if (
                part in unused_files
                and part in self.inventory.stored_objects
                and (len(rows) < total or not self.inventory.is_present[rows].all())
            ):
                unused_files -= {part, list_name(part)}
                self.inventory.notes.append(
                    f"{part} is kept without a manifest, because no other file has some of its captures"
                )
        return {
            name
            for name in unused_files
            if parse_delivery(name) == self.order.delivery and name in self.inventory.stored_objects
        }

    def _put(self, manifest: Manifest) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        key = f"{self.order.crawl}/{manifest_name(manifest.delivery)}"
        self.place.put(key, to_json(replace(manifest, created=now)))


def count_captures(ledger: pa.Table) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Counts the captures of a ledger by outcome: in total, and for each subset."""
    columns = ["subset", "outcome", "delivered"]
    groups = ledger.select(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist()
    counts = _nothing()
    subsets: dict[str, dict[str, int]] = {}
    for row in groups:
        outcome = "left_out" if row["outcome"] == "fetched" else row["outcome"]
        for counter in (counts, subsets.setdefault(row["subset"], _nothing())):
            counter["planned"] += row["count_all"]
            counter["delivered" if row["delivered"] else outcome] += row["count_all"]
    return counts, dict(sorted(subsets.items()))


def _nothing() -> dict[str, int]:
    return dict.fromkeys(("planned", "delivered", "missing", "quarantined", "left_out"), 0)
