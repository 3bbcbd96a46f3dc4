"""Exports parsed pages of a slice as numbered SequenceFiles, for programs of 2012. The same records give the same
bytes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, get_args

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.derived_files.files import CRAWL_ENTRY
from cc_pipeline.derived_files.sequencefile import Compression, SequenceFileWriter
from cc_pipeline.documents.document2012.json import Compat, metadata_json
from cc_pipeline.documents.schemas import PAGE_METADATA_SCHEMA, PROVENANCE_COLUMNS
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.extraction.run_inputs import hold_run_lease
from cc_pipeline.extraction.slice_selection import find_part_slices
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.lake.slice import PARSE, READ_FILES, Slice, StageReport
from cc_pipeline.lake.streaming import stream_slices
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.workspace.workspace import Workspace, export_prefix

_KEYS = ("warc_filename", "warc_record_offset", "url")
#: Rows in memory at a time: a row may hold a whole page.
_BATCH_ROWS = 64
_SPILLED = pa.schema([pa.field("value", pa.large_string(), nullable=False)])
_NOT_IN_JSON = frozenset(KEY_NAMES) | {field.name for field in PROVENANCE_COLUMNS} | {"metadata_json"}
#: The columns that ``metadata_json`` writes; ``url`` is the record's key.
_METADATA_COLUMNS = tuple(name for name in PAGE_METADATA_SCHEMA.names if name not in _NOT_IN_JSON)

RecordKey = tuple[str | None, int | None, str | None]

Codec = Literal["gzip", "default"]

VERSION = "1"
TARGET_ENTRY = "cc_pipeline.target"

#: The two kinds of file, by the names of 2012.
ExportKind = Literal["textData", "metadata"]
EXPORT_KINDS: tuple[ExportKind, ...] = get_args(ExportKind)


def record_order(workspace: Workspace, slice_: Slice) -> list[RecordKey]:
    """Returns the keys of the slice's metadata rows, failures included: by archive file, offset, URL."""
    keys = [key for key, _ in _rows(workspace, "page_metadata", slice_, ())]
    return sorted(keys, key=_place)


def metadata_records(
    workspace: Workspace, slice_: Slice, order: Sequence[RecordKey], folder: Path, compat: Compat
) -> Iterator[tuple[str, str]]:
    """Yields URL and 2012 JSON of every record, in ``order``."""

    def written(row: Mapping[str, Any]) -> str:
        return metadata_json(row, compat=compat)

    return _read_in_order(workspace, "page_metadata", slice_, _METADATA_COLUMNS, written, order, folder)


def text_records(
    workspace: Workspace, slice_: Slice, order: Sequence[RecordKey], folder: Path
) -> Iterator[tuple[str, str]]:
    """Yields URL and full text of every record, in ``order``; an empty text for records without one."""

    def written(row: Mapping[str, Any]) -> str:
        return row["text"] or ""

    return _read_in_order(workspace, "page_text", slice_, ("text",), written, order, folder)


def _read_in_order(
    workspace: Workspace,
    table: str,
    slice_: Slice,
    columns: Sequence[str],
    written: Callable[[Mapping[str, Any]], str],
    order: Sequence[RecordKey],
    folder: Path,
) -> Iterator[tuple[str, str]]:
    path = folder / f"{table}.arrow"
    places: dict[RecordKey, list[tuple[int, int]]] = {}
    batch: list[str] = []
    number = 0
    try:
        with pa.ipc.new_file(str(path), _SPILLED) as spill:
            for key, row in _rows(workspace, table, slice_, columns):
                places.setdefault(key, []).append((number, len(batch)))
                batch.append(written(row))
                if len(batch) == _BATCH_ROWS:
                    spill.write_batch(pa.record_batch([batch], schema=_SPILLED))
                    batch, number = [], number + 1
            if batch:
                spill.write_batch(pa.record_batch([batch], schema=_SPILLED))
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error}", "Check the disk, then export again.") from error
    with pa.OSFile(str(path)) as source:
        spilled = pa.ipc.open_file(source)
        loaded, column = -1, None
        for key in order:
            # equal keys (rows without a location in an archive) take their values one after another
            spill_places = places.get(key)
            value = ""
            if spill_places:
                number, place = spill_places.pop(0) if len(spill_places) > 1 else spill_places[0]
                if number != loaded:
                    loaded, column = number, spilled.get_batch(number).column(0)
                assert column is not None
                value = column[place].as_py()
            yield key[2] or "", value


def _rows(
    workspace: Workspace, table: str, slice_: Slice, columns: Sequence[str]
) -> Iterator[tuple[RecordKey, dict[str, Any]]]:
    parts = workspace.rows_of([slice_.target])[slice_.target]
    for batch in stream_slices(workspace.lake, table, slice_.crawl, parts, [*_KEYS, *columns]):
        for row in batch.to_pylist():
            yield (row.pop("warc_filename"), row.pop("warc_record_offset"), row.pop("url")), row


def _place(key: RecordKey) -> tuple[bool, str, int, str]:
    filename, offset, url = key
    return filename is None, filename or "", -1 if offset is None else offset, url or ""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of SequenceFiles: ``block`` and ``gzip`` as in 2012. ``records_per_file`` applies to text and metadata;
    ``compat="2012"`` writes the JSON with the 2012 writer's bugs.

    Raises ``UserInputError`` for an unknown value.
    """

    compression: Compression = "block"
    codec: Codec = "gzip"
    records_per_file: int = 10_000
    compat: Literal["2012"] | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("compression", self.compression, get_args(Compression)),
            ("codec", self.codec, get_args(Codec)),
            ("compat", self.compat, (None, "2012")),
        ):
            if value not in choices:
                raise UserInputError(f"{name} is {value!r}; choose one of {', '.join(map(str, choices))}")
        if self.records_per_file < 1:
            raise UserInputError(f"records_per_file is {self.records_per_file}; it must be 1 or more")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One complete file: its name, records, bytes, and the hexadecimal SHA-256 of its bytes."""

    name: str
    records: int
    bytes: int
    sha256: str

    def json_fields(self) -> dict[str, Any]:
        """Returns the fields for JSON."""
        return asdict(self)


def write_files(
    records: Iterable[tuple[str, str]],
    prefix: str,
    folder: Path,
    options: ExportOptions,
    header: tuple[tuple[str, str], ...],
) -> Iterator[tuple[ExportedFile, Path]]:
    """Writes ``records`` (URL, text) in their order to ``prefix-00000``, ``prefix-00001``, ... in ``folder``. Yields
    each complete file.

    ``header`` becomes the files' header metadata; it and the name determine the sync marker. Without records there is
    no file. Raises ``EnvironmentFault`` if the disk cannot be written.
    """
    waiting = iter(records)
    number = 0
    while (first := next(waiting, None)) is not None:
        name = f"{prefix}-{number:05d}"
        path = folder / name
        count = 0
        with disk_trouble(path), path.open("wb") as stream:
            seed = "\n".join((name, *(text for entry in header for text in entry)))
            with SequenceFileWriter(stream, options.compression, options.codec, seed, header) as writer:
                for url, text in chain((first,), islice(waiting, options.records_per_file - 1)):
                    writer.append(url, text)
                count = writer.count
        yield ExportedFile(name, count, path.stat().st_size, _sha256(path)), path
        number += 1


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def export_slices(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    kinds: Sequence[ExportKind] = EXPORT_KINDS,
    options: ExportOptions | None = None,
) -> StageReport:
    """Writes the SequenceFiles of ``slugs`` in ``crawl``; files of the same inputs and options are reused.

    Both kinds have the same records in the same order under the same numbers. Raises ``EnvironmentFault`` for a
    slice that was not parsed, for a target that is being purged, and if lake or disk fail.
    """
    started = time.monotonic()
    options = options or ExportOptions()
    metrics: dict[str, dict[str, int | float | str]] = {slug: {} for slug in slugs}
    fresh = written = size = rows = 0
    notes: list[str] = []
    place = workspace.place
    for slug in slugs:
        slice_ = Slice(crawl, slug)
        # a purge of the target deletes its exports
        with hold_run_lease(workspace, {crawl: [slug]}) as run:
            run.begin([slug])
            pages = pages_digest(workspace, slice_)
            exports = {kind: _export(workspace, place, slice_, kind, options, pages) for kind in kinds}
        for kind, (manifest, is_fresh) in exports.items():
            sizes = sum(file["bytes"] for file in manifest["files"])
            metrics[slug] |= {
                f"{kind} records": manifest["records"],
                f"{kind} files": len(manifest["files"]),
                f"{kind} bytes": sizes,
                f"{kind} reused": str(not is_fresh).lower(),
            }
            rows += manifest["records"]
            fresh += is_fresh
            written += manifest["records"] if is_fresh else 0
            size += sizes if is_fresh else 0
        notes += _disagreement(place, crawl, slug)
    return StageReport(
        "export",
        rows=rows,
        written=written,
        bytes=size,
        seconds=time.monotonic() - started,
        fresh_slices=fresh,
        reused_slices=len(slugs) * len(kinds) - fresh,
        notes=tuple(notes),
        per_target=metrics,
    )


def _export(
    workspace: Workspace, place: Transport, slice_: Slice, kind: ExportKind, options: ExportOptions, pages: str
) -> tuple[dict[str, Any], bool]:
    prefix = export_prefix(slice_.crawl, slice_.target)
    # texts have no compat mode
    applied = asdict(options) | ({"compat": None} if kind == "textData" else {})
    digest = compute_input_digest(
        {"stage": "export", "version": VERSION, "kind": kind, "pages": pages, "options": applied}
    )
    manifest = read_manifest(place, prefix, kind)
    if manifest is not None and manifest["digest"] == digest and _is_complete(place, prefix, manifest):
        return manifest, False
    folder = workspace.scratch / f"export-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        place.delete(f"{prefix}_{kind}.json")
        files = _write(workspace, place, slice_, kind, options, folder)
        _delete_others(place, prefix, kind, files)
        manifest = {
            "digest": digest,
            "pages": pages,
            "records": sum(file.records for file in files),
            **applied,
            "files": [file.json_fields() for file in files],
        }
        place.put(f"{prefix}_{kind}.json", (json.dumps(manifest, indent=1) + "\n").encode())
    except RangeFault as fault:
        raise EnvironmentFault(
            f"the export {place.source}/{prefix} cannot be written: {fault}", "Export again."
        ) from fault
    finally:
        rmtree(folder, ignore_errors=True)
    return manifest, True


def _write(
    workspace: Workspace, place: Transport, slice_: Slice, kind: ExportKind, options: ExportOptions, folder: Path
) -> list[ExportedFile]:
    order = record_order(workspace, slice_)
    if kind == "metadata":
        records = metadata_records(workspace, slice_, order, folder, options.compat)
    else:
        records = text_records(workspace, slice_, order, folder)
    header = ((CRAWL_ENTRY, slice_.crawl), (TARGET_ENTRY, slice_.target))
    files: list[ExportedFile] = []
    exported_records = 0
    for file, path in write_files(records, kind, folder, options, header):
        place.put(f"{export_prefix(slice_.crawl, slice_.target)}{file.name}", path)
        path.unlink()
        files.append(file)
        exported_records += file.records
        progress.report(f"export {kind}", exported_records, len(order))
    return files


def read_manifest(place: Transport, prefix: str, kind: ExportKind) -> dict[str, Any] | None:
    """Reads the manifest of an export below ``prefix``; returns ``None`` without a usable one. Raises
    ``EnvironmentFault``."""
    try:
        read = json.loads(place.read_all(f"{prefix}_{kind}.json").data)
    except (RangeFault, ValueError) as error:
        if isinstance(error, RangeFault) and isinstance(error, EnvironmentFault):
            raise
        return None
    return read if isinstance(read, dict) and {"digest", "files", "records"} <= read.keys() else None


def _is_complete(place: Transport, prefix: str, manifest: dict[str, Any]) -> bool:
    for file in manifest["files"]:
        stored = place.head(prefix + file["name"])
        if stored is None or stored.size != file["bytes"]:
            return False
    return True


def _delete_others(place: Transport, prefix: str, kind: ExportKind, files: Sequence[ExportedFile]) -> None:
    """Deletes the further files of an earlier, larger export."""
    current_keys = {prefix + file.name for file in files}
    for stored_object in place.listing(f"{prefix}{kind}-"):
        if stored_object.key not in current_keys:
            place.delete(stored_object.key)


def _disagreement(place: Transport, crawl: str, slug: str) -> list[str]:
    """Returns a note if the two kinds of an export do not have the same records under the same numbers."""
    cuts = set()
    with suppress(RangeFault):
        for kind in EXPORT_KINDS:
            manifest = read_manifest(place, export_prefix(crawl, slug), kind)
            if manifest is not None:
                cuts.add((manifest.get("pages"), manifest.get("records_per_file")))
    if len(cuts) < 2:
        return []
    return [
        f"{slug}: the textData files and the metadata files do not have the same records under the same numbers, since "
        "they were exported at different times. Export both in one run"
    ]


def pages_digest(workspace: Workspace, slice_: Slice) -> str:
    """Returns the input digest of the pages, of a divided set over all its parts. Raises ``EnvironmentFault`` if they
    were not parsed, or come from two runs."""
    digests = [_read_part_digest(workspace, part) for part in find_part_slices(workspace, [slice_])]
    return digests[0] if len(digests) == 1 else compute_input_digest({"parts": digests})


def _read_part_digest(workspace: Workspace, slice_: Slice) -> str:
    for stage in (PARSE, READ_FILES):
        name = stage.digest_name(slice_)
        metadata, text = (workspace.lake.digest(table, name) for table in ("page_metadata", "page_text"))
        if metadata is not None and metadata == text:
            return metadata
        if metadata != text:
            raise EnvironmentFault(
                f"the pages of {whole_slug(slice_.target)} in {slice_.crawl} are from two runs, one of them "
                "interrupted, so they cannot be exported",
                "Run it again: the asset page_metadata of this partition, or cc-pipeline run.",
            )
    raise EnvironmentFault(
        f"{whole_slug(slice_.target)} in {slice_.crawl} has not been parsed, so there are no pages to export",
        "Run it first: the asset page_metadata of this partition, or cc-pipeline run.",
    )
