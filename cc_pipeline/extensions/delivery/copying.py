"""Copies the records of targets of one crawl to a place of the user.

A file that the manifest names and that is unchanged is not written again. The manifest names a file once it was sent,
so a stopped copy continues after the last sent file. Nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.archive.writing import Address
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.index_schema import distinct_captures
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.extensions.delivery.manifest import (
    MAX_UNDELIVERED,
    CrawlCopy,
    Manifest,
    RecordFile,
    read_manifest,
    sha256_of,
    write_manifest,
)
from cc_pipeline.extensions.delivery.record_files import PlannedFile, WrittenFile, plan_files, write_file
from cc_pipeline.records.outcomes import NO_LOCATION
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

_CAPTURES = pa.schema([RECORD_SCHEMA.field(name) for name in CAPTURE])
#: Maximum bytes of a list.
_MAX_LIST_BYTES = 4 << 30
#: Columns of an undelivered capture in the manifest.
_UNDELIVERED_COLUMNS = ("url", "subset", "warc_filename", "warc_record_offset", "warc_record_length", "outcome",
                        "reason", "detail")  # fmt: skip

#: ``(files done, files in all, bytes sent, bytes in all)``.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True, slots=True)
class Order:
    """The copy that a user requests: ``targets`` in words, files of at most ``file_bytes``.

    ``unread_index_files`` is how many index files were unread when the captures were located, which the user allowed.
    ``address`` returns an archive file's address at the source, for converted records. ``provenance`` goes into the
    manifest.
    """

    crawl: str
    targets: tuple[str, ...]
    subsets: tuple[str, ...]
    convert: bool = False
    file_bytes: int = 128_000_000
    unread_index_files: int = 0
    address: Address = str
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The outcome of a copy: the crawl's part of the manifest. ``files_before`` of the crawl's ``files`` were not
    written again. ``bytes`` were sent."""

    copy: CrawlCopy
    files: int
    files_before: int
    bytes: int


def copy_records(
    order: Order,
    records: pa.Table,
    storage: RecordStorage,
    place: Transport,
    scratch: Path,
    *,
    parallel: int = 4,
    progress: Progress | None = None,
) -> CopyReport:
    """Adds to ``place`` what it lacks of ``records`` (rows of the records table of one crawl).

    ``parallel`` files are checked or sent at a time. A capture in an unchanged file of the place is not sent again, and
    it stays delivered even if the source no longer has it. Raises ``UserInputError`` if the files of the place were
    written with another ``convert``, ``EnvironmentFault`` (also as ``RangeFault``) if the place or the disk fails.
    """
    before = _read_manifest_like(place, order)
    rows = _distinct_records(records)
    kept, captures = _find_unchanged_files(place, before.files_of(order.crawl), parallel)
    is_present = _find_present(rows, captures)
    is_fetched = pc.equal(rows["outcome"], "fetched").to_numpy()
    planned = plan_files(rows.filter(pa.array(is_fetched & ~is_present)), order.file_bytes, convert=order.convert)
    manifest = before.with_copy(kept, CrawlCopy(order.crawl, order.targets, order.subsets))
    # Names of changed files are used again, so the manifest stops naming these first.
    write_manifest(place, manifest)
    left_out: dict[int, str] = {}
    sent = 0
    for file, written in _write_files(order, planned, kept, storage, place, scratch, parallel, progress):
        row_numbers = file.rows["row"].to_numpy()
        is_present[row_numbers] = True
        left_out |= {int(row_numbers[row]): str(fault) for row, fault in written.left_out.items()}
        if written.entry is not None:
            manifest = replace(manifest, files=(*manifest.files, written.entry))
            write_manifest(place, manifest)
            sent += written.entry.file.size
    is_present[[*left_out]] = False
    files = manifest.files_of(order.crawl)
    copy = _summarize(order, rows, is_present, left_out)
    write_manifest(place, manifest.with_copy(files, copy))
    return CopyReport(copy, len(files), len(kept), sent)


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
    default_fields = {"outcome": "pending", "detail": "not asked for yet", "attempts": 0, "asks": 0}
    columns = [
        unrecorded[name]
        if name in unrecorded.schema.names
        else pa.array([default_fields.get(name)] * unrecorded.num_rows, RECORD_SCHEMA.field(name).type)
        for name in RECORD_SCHEMA.names
    ]
    return pa.concat_tables([records, pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)])


def _distinct_records(records: pa.Table) -> pa.Table:
    """Returns each capture once, in file and offset order, numbered in the column ``row``. A capture that was fetched
    for one target counts as fetched.
    """
    best = records.take(pc.sort_indices(records, [("outcome", "ascending")]))  # fetched, lost, pending
    rows = distinct_captures(best).sort_by([("warc_filename", "ascending"), ("warc_record_offset", "ascending")])
    return rows.append_column("row", pa.array(np.arange(rows.num_rows)))


def _read_manifest_like(place: Transport, order: Order) -> Manifest:
    """Reads the manifest of ``place``, or starts one. Raises ``UserInputError`` for files in another form."""
    manifest = read_manifest(place) or Manifest(order.convert)
    if manifest.convert != order.convert:
        raise UserInputError(
            f"the files in {place.source} were copied {'with' if manifest.convert else 'without'} --convert warc; "
            "copy in the same form, or to another place"
        )
    return manifest


def _find_unchanged_files(
    place: Transport, files: Sequence[RecordFile], parallel: int
) -> tuple[list[RecordFile], pa.Table]:
    """Returns those of ``files`` that are in ``place`` with their SHA-256, and all captures in them."""
    with ThreadPoolExecutor(max(1, parallel)) as pool:
        unchanged = [found for found in pool.map(partial(_read_unchanged, place), files) if found is not None]
    tables = [captures for _, captures in unchanged]
    return [file for file, _ in unchanged], pa.concat_tables([_CAPTURES.empty_table(), *tables])


def _read_unchanged(place: Transport, file: RecordFile) -> tuple[RecordFile, pa.Table] | None:
    stored = place.head(file.file.name)
    if stored is None or stored.size != file.file.size:
        return None
    is_same = stored.etag is not None and stored.etag == file.file.etag
    try:
        if not is_same and sha256_of(place, file.file.name, file.file.size) != file.file.sha256:
            return None
        data = place.read_all(file.list.name, limit=_MAX_LIST_BYTES).data
    except DataFault:  # it is missing, or another program replaced it during the read
        return None
    if hashlib.sha256(data).hexdigest() != file.list.sha256:
        return None
    captures = pq.read_table(pa.BufferReader(data), schema=_CAPTURES)
    return replace(file, file=replace(file.file, etag=stored.etag)), captures


def _find_present(rows: pa.Table, captures: pa.Table) -> npt.NDArray[np.bool_]:
    is_present = np.zeros(rows.num_rows, bool)
    found = rows.select([*CAPTURE, "row"]).join(captures, [*CAPTURE], join_type="left semi")
    is_present[found["row"].to_numpy()] = True
    return is_present


def _write_files(
    order: Order, planned: Sequence[PlannedFile], kept: Sequence[RecordFile], storage: RecordStorage, place: Transport,
    scratch: Path, parallel: int, progress: Progress | None,
) -> Iterator[tuple[PlannedFile, WrittenFile]]:  # fmt: skip
    """Writes ``planned`` files under names that no file of ``kept`` has. Yields each when it was sent."""
    kept_stems = {file.file.name.partition(".")[0] for file in kept}
    stems = (stem for number in count() if (stem := f"{order.crawl}/{order.crawl}-{number:05d}") not in kept_stems)
    done = sent = 0
    total = sum(file.bytes for file in planned)
    with ThreadPoolExecutor(max(1, parallel)) as pool:
        running: dict[Future[WrittenFile], PlannedFile] = {}
        for file, stem in zip(planned, stems, strict=False):
            name = f"{stem}.{file.kind}.gz"
            future = pool.submit(write_file, file, order.crawl, name, storage, place, scratch, order.address)
            running[future] = file
        try:
            for future in as_completed(running):
                yield running[future], future.result()
                done += 1
                sent += running[future].bytes
                if progress is not None:
                    progress(done, len(planned), sent, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _summarize(
    order: Order, rows: pa.Table, is_present: npt.NDArray[np.bool_], left_out: Mapping[int, str]
) -> CrawlCopy:
    undelivered = [
        row | ({"outcome": "left_out", "detail": left_out.get(row["row"])} if row["outcome"] == "fetched" else {})
        for row in rows.filter(pa.array(~is_present)).select([*_UNDELIVERED_COLUMNS, "row"]).to_pylist()
    ]
    counts = dict.fromkeys(("pending", "lost", "left_out"), 0) | Counter(row["outcome"] for row in undelivered)
    return CrawlCopy(
        crawl=order.crawl,
        targets=order.targets,
        subsets=order.subsets,
        complete=True,
        counts={"planned": rows.num_rows, "delivered": int(is_present.sum()), **counts},
        undelivered=tuple({name: row[name] for name in _UNDELIVERED_COLUMNS} for row in undelivered[:MAX_UNDELIVERED]),
        unread_index_files=order.unread_index_files,
        provenance=order.provenance,
    )
