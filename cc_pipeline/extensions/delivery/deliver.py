"""A delivery: the records of some targets of one crawl in a place of the user, and a manifest that vouches for them.

A copy compares what is planned with what the place holds, sends what is not there, and then swaps the manifest. So
whoever reads a manifest finds what it names: parts are sent before it, and what they replace is deleted after it.
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
from cc_pipeline.extensions.delivery.inventory import Inventory, take_stock
from cc_pipeline.extensions.delivery.manifest import (
    MOST_NAMED,
    FileEntry,
    Manifest,
    PartEntry,
    delivery_id,
    delivery_of,
    holds,
    ledger_name,
    list_name,
    manifest_name,
    to_json,
)
from cc_pipeline.extensions.delivery.parts import (
    LISTED,
    PART_BYTES,
    Address,
    Part,
    Written,
    plan_copy,
    table_bytes,
    write_part,
)
from cc_pipeline.records.outcomes import NOWHERE
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import Listed
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport

#: Seconds after which a copy writes down what it has sent, so that a copy after a kill need not read it.
_CHECKPOINT = 60.0
_LEDGER_SCHEMA = pa.schema(
    [*(RECORD_SCHEMA.field(name) for name in LISTED), pa.field("delivered", pa.bool_(), nullable=False),
     pa.field("left_out", pa.string())]
)  # fmt: skip
#: What a manifest says of a capture that is not there.
_NAMED = ("url", "subset", "warc_filename", "warc_record_offset", "warc_record_length", "outcome", "reason", "detail",
          "left_out")  # fmt: skip

#: ``(parts done, parts in all, bytes sent, bytes in all)``.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks to have delivered: ``targets`` are definitions, ``indexes`` those that named the captures.

    ``unread_index_files`` could not be read when they did, which was allowed. ``address`` gives an archive file's
    address at the source, for records that are converted, and ``provenance`` goes into the manifest.
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
        """Its name in the place. The same targets and subsets are the same delivery, however they are written."""
        return delivery_id(self.crawl, self.targets, self.subsets)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What the place has now: ``manifest`` says it in full. ``held`` of its ``parts`` files were there before.

    ``bytes`` were sent. ``notes`` are for the person who copies.
    """

    manifest: Manifest
    parts: int
    held: int
    bytes: int
    notes: tuple[str, ...]

    @property
    def lost(self) -> dict[str, int]:
        """Planned captures that are not there, by outcome."""
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
    """Brings the delivery in ``place`` to what ``records`` (rows of the records table, one crawl) say.

    ``parallel`` parts are checked or sent at a time. A capture that a good file in the place holds is not sent, whoever
    delivered it, and is not lost because the source lacks it today. Files go only when others hold their captures.
    Raises ``EnvironmentFault`` (also as ``RangeFault``) when the place or the disk refuses; what was sent stays, and
    copying again goes on from there.
    """
    ledger = _ledger_rows(records)
    stock = take_stock(place, order.crawl, order.delivery, ledger, order.convert, parallel)
    numbered = ledger.append_column("row", pa.array(np.arange(ledger.num_rows)))
    parts = plan_copy(
        numbered.filter(pa.array(~stock.have)), convert=order.convert, part_bytes=order.part_bytes
    )  # fmt: skip
    work = _Work(order, storage, place, scratch, stock)
    written = work.send(parts, parallel, progress)
    for part, done in zip(parts, written, strict=True):
        rows = part.rows["row"].to_numpy()
        stock.have[rows] = True
        for row, fault in done.left_out:
            stock.have[rows[row]] = False
            stock.left_out[int(rows[row])] = str(fault)
    new = [done.entry for done in written if done.entry is not None]
    manifest = work.publish(ledger, [*stock.kept, *new])
    return DeliveryReport(
        manifest,
        len(manifest.parts) + len(manifest.borrowed),
        len(stock.kept) + len(stock.borrowed),
        sum(part.file.size for part in new),
        tuple(stock.notes),
    )


def with_planned(records: pa.Table, captures: pa.Table) -> pa.Table:
    """``records`` and a row for each of ``captures`` (``RECORD_KEY_NAMES``) that has none: its fetch was cut short."""
    # rows of the records table name a place even where the index names none
    for name, nothing in NOWHERE.items():
        place = captures.schema.get_field_index(name)
        captures = captures.set_column(place, RECORD_SCHEMA.field(name), pc.fill_null(captures[name], nothing))
    new = captures.join(records.select([*CAPTURE]), [*CAPTURE], join_type="left anti")
    if not new.num_rows:
        return records
    fixed = {"outcome": "missing", "detail": "not asked for yet", "attempts": 0}
    columns = [
        new[name]
        if name in new.schema.names
        else pa.array([fixed.get(name)] * new.num_rows, RECORD_SCHEMA.field(name).type)
        for name in RECORD_SCHEMA.names
    ]
    return pa.concat_tables([records, pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)])


def _ledger_rows(records: pa.Table) -> pa.Table:
    """Each capture once, in file and offset order. What one target has fetched, the delivery has."""
    best = records.take(pc.sort_indices(records, [("outcome", "ascending")]))  # fetched, missing, quarantined
    return distinct_captures(best).sort_by([("warc_filename", "ascending"), ("warc_record_offset", "ascending")])


@dataclass(slots=True)
class _Work:
    """One delivery being written."""

    order: Order
    storage: RecordStorage
    place: Transport
    scratch: Path
    stock: Inventory
    _saved: float = field(default_factory=time.monotonic)

    def send(self, parts: Sequence[Part], parallel: int, progress: Progress | None) -> list[Written]:
        """Writes ``parts``; what each became, in their order."""
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
                with suppress(CcPipelineError, OSError):  # the first error says more
                    self._checkpoint(running)
                raise
        return [future.result() for future in running]

    def _checkpoint(self, running: Iterable[Future[Written]]) -> None:
        """Writes down what was sent so far, where the manifest of before does not say more."""
        self._saved = time.monotonic()
        over = [one for one in running if one.done() and not one.cancelled() and one.exception() is None]
        new = [entry for one in over if (entry := one.result().entry) is not None]
        if self.stock.replaced or not new:
            return
        blank = Manifest(self.order.delivery, self.order.crawl, tuple(sorted(self.order.targets)),
                         tuple(sorted(self.order.subsets)))  # fmt: skip
        self._put(replace(self.stock.manifest or blank, convert=self.order.convert, complete=False,
                          parts=self._tagged([*self.stock.kept, *new])))  # fmt: skip

    def publish(self, rows: pa.Table, parts: Sequence[PartEntry]) -> Manifest:
        """Sends the ledger, swaps the manifest, and deletes what it supersedes; the manifest."""
        order, stock = self.order, self.stock
        table = pa.Table.from_arrays(
            [*(rows[name] for name in LISTED), pa.array(stock.have),
             pa.array([stock.left_out.get(row) for row in range(rows.num_rows)], pa.string())],
            schema=_LEDGER_SCHEMA,
        )  # fmt: skip
        ledger = self._send_ledger(table)
        counts, subsets = counted(table)
        lacking = table.filter(pc.invert(table["delivered"])).select(_NAMED).slice(0, MOST_NAMED)
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
            parts=tuple(sorted(self._tagged(parts), key=lambda part: part.file.name)),
            borrowed=tuple(sorted(stock.borrowed)),
            not_there=tuple(lacking.to_pylist()),
            unread_index_files=order.unread_index_files,
            provenance=order.provenance,
        )
        replaced = tuple(sorted(self._superseded(manifest)))
        if manifest != stock.manifest or replaced:
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
        before = self.stock.manifest.ledger if self.stock.manifest is not None else None
        if before is not None and before.name == name:
            held = holds(self.place, self.order.crawl, before, self.stock.there.get(name))
            if held is not None:
                return held
        self.place.put(f"{self.order.crawl}/{name}", data)
        entry = FileEntry(name, len(data), sha256)
        return self._with_tag(entry, self._listing(name))

    def _tagged(self, parts: Sequence[PartEntry]) -> tuple[PartEntry, ...]:
        """``parts`` with the ETags that the place gave them. Raises ``EnvironmentFault`` where it lacks one."""
        new = {part.file.name for part in parts} - {part.file.name for part in self.stock.kept}
        there = self._listing() if new else {}
        return tuple(
            replace(part, file=self._with_tag(part.file, there), list=self._with_tag(part.list, there))
            if part.file.name in new
            else part
            for part in parts
        )

    def _with_tag(self, entry: FileEntry, there: Mapping[str, Listed]) -> FileEntry:
        found = there.get(entry.name)
        if found is None or found.size != entry.size:
            has = "nothing" if found is None else f"{found.size} bytes"
            raise EnvironmentFault(
                f"{self.order.crawl}/{entry.name} was sent with {entry.size} bytes, and the place has {has}",
                "Look whether something else writes or deletes there, then copy again",
            )
        return entry if isinstance(self.place.store, LocalStore) else replace(entry, etag=found.etag)

    def _listing(self, name: str = "") -> dict[str, Listed]:
        prefix = f"{self.order.crawl}/"
        return {one.key.removeprefix(prefix): one for one in self.place.listing(prefix + name)}

    def _superseded(self, manifest: Manifest) -> set[str]:
        """Files of this delivery, by an earlier manifest or by their name, that no manifest needs any more."""
        before = self.stock.manifest
        named = set(self.stock.leftovers)
        if before is not None:
            named |= {entry.name for entry in before.files} | set(before.superseded)
        named -= {entry.name for entry in manifest.files} | self.stock.of_others
        for part, (rows, total) in self.stock.unkept.items():
            if part in named and part in self.stock.there and (len(rows) < total or not self.stock.have[rows].all()):
                named -= {part, list_name(part)}
                self.stock.notes.append(
                    f"{part} stays, and no manifest names it: it has captures that nothing else has"
                )
        return {name for name in named if delivery_of(name) == self.order.delivery and name in self.stock.there}

    def _put(self, manifest: Manifest) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        key = f"{self.order.crawl}/{manifest_name(manifest.delivery)}"
        self.place.put(key, to_json(replace(manifest, created=now)))


def counted(ledger: pa.Table) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """What a manifest counts of its ledger: in all, and for each subset."""
    columns = ["subset", "outcome", "delivered"]
    found = ledger.select(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist()
    counts = _nothing()
    subsets: dict[str, dict[str, int]] = {}
    for row in found:
        outcome = "left_out" if row["outcome"] == "fetched" else row["outcome"]
        for of in (counts, subsets.setdefault(row["subset"], _nothing())):
            of["planned"] += row["count_all"]
            of["delivered" if row["delivered"] else outcome] += row["count_all"]
    return counts, dict(sorted(subsets.items()))


def _nothing() -> dict[str, int]:
    return dict.fromkeys(("planned", "delivered", "missing", "quarantined", "left_out"), 0)
