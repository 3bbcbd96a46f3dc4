"""Exporting a partition as the SequenceFiles of 2012: ``textData-nnnnn`` and ``metadata-nnnnn``.

They lie below ``exports/CRAWL/TARGET/`` in the lake. Files are complete or not there; ``_textData.json`` and
``_metadata.json`` (names Hadoop passes over) are written last, say what is there, and hold the digest of the inputs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, get_args

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction import progress
from cc_pipeline.extraction.export_files import ExportedFile, ExportOptions, write_files
from cc_pipeline.extraction.export_rows import Slice, metadata_records, record_order, text_records
from cc_pipeline.extraction.report import StageReport
from cc_pipeline.extraction.source_files import CRAWL_ENTRY
from cc_pipeline.extraction.stage_sources import source_digest_name
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault

VERSION = "1"
TARGET_ENTRY = "cc_pipeline.target"

#: The two kinds of file, by the names of 2012.
ExportKind = Literal["textData", "metadata"]
EXPORT_KINDS: tuple[ExportKind, ...] = get_args(ExportKind)


def export_slices(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    kinds: Sequence[ExportKind] = EXPORT_KINDS,
    options: ExportOptions | None = None,
) -> StageReport:
    """Writes the SequenceFiles of ``slugs`` in ``crawl``; those made from the same inputs and options stay.

    Both kinds have the same records in the same order under the same numbers. Raises ``EnvironmentFault`` for a
    slice that has not been parsed, and when lake or disk refuse.
    """
    started = time.monotonic()
    options = options or ExportOptions()
    figures: dict[str, dict[str, int | float | str]] = {slug: {} for slug in slugs}
    fresh = written = size = rows = 0
    notes: list[str] = []
    with _open_place(workspace) as place:
        for slug in slugs:
            pages = _pages_digest(workspace, crawl, slug)
            made = {kind: _export(workspace, place, Slice(crawl, slug), kind, options, pages) for kind in kinds}
            for kind, (manifest, is_fresh) in made.items():
                sizes = sum(file["bytes"] for file in manifest["files"])
                figures[slug] |= {
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
        per_target=figures,
    )


def export_prefix(crawl: str, slug: str) -> str:
    """Where in the lake a slice's files lie, with a slash at its end."""
    return f"exports/{crawl}/{slug}/"


def _export(
    workspace: Workspace, place: Transport, slice_: Slice, kind: ExportKind, options: ExportOptions, pages: str
) -> tuple[dict[str, Any], bool]:
    prefix = export_prefix(slice_.crawl, slice_.slug)
    # the text knows no compat mode
    applied = asdict(options) | ({"compat": None} if kind == "textData" else {})
    digest = input_digest({"stage": "export", "version": VERSION, "kind": kind, "pages": pages, "options": applied})
    manifest = _manifest(place, prefix, kind)
    if manifest is not None and manifest["digest"] == digest and _is_whole(place, prefix, manifest):
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
            "files": [file.as_dict() for file in files],
        }
        place.put(f"{prefix}_{kind}.json", (json.dumps(manifest, indent=1) + "\n").encode())
    except RangeFault as fault:
        raise EnvironmentFault(f"{place.source}/{prefix} cannot be written: {fault}", "Run it again.") from fault
    finally:
        rmtree(folder, ignore_errors=True)
    return manifest, True


def _write(
    workspace: Workspace,
    place: Transport,
    slice_: Slice,
    kind: ExportKind,
    options: ExportOptions,
    folder: Path,
) -> list[ExportedFile]:
    order = record_order(workspace, slice_)
    if kind == "metadata":
        records = metadata_records(workspace, slice_, order, folder, options.compat)
    else:
        records = text_records(workspace, slice_, order, folder)
    header = ((CRAWL_ENTRY, slice_.crawl), (TARGET_ENTRY, slice_.slug))
    files: list[ExportedFile] = []
    done = 0
    for file, path in write_files(records, kind, folder, options, header):
        place.put(f"{export_prefix(slice_.crawl, slice_.slug)}{file.name}", path)
        path.unlink()
        files.append(file)
        done += file.records
        progress.report(f"export {kind}", done, len(order))
    return files


def _manifest(place: Transport, prefix: str, kind: ExportKind) -> dict[str, Any] | None:
    try:
        read = json.loads(place.read_all(f"{prefix}_{kind}.json").data)
    except (RangeFault, ValueError) as error:
        if isinstance(error, RangeFault) and isinstance(error, EnvironmentFault):
            raise
        return None
    return read if isinstance(read, dict) and {"digest", "files", "records"} <= read.keys() else None


def _is_whole(place: Transport, prefix: str, manifest: dict[str, Any]) -> bool:
    for file in manifest["files"]:
        found = place.head(prefix + file["name"])
        if found is None or found.size != file["bytes"]:
            return False
    return True


def _delete_others(place: Transport, prefix: str, kind: ExportKind, files: Sequence[ExportedFile]) -> None:
    """An earlier export may have had more files."""
    here = {prefix + file.name for file in files}
    for listed in place.listing(f"{prefix}{kind}-"):
        if listed.key not in here:
            place.delete(listed.key)


def _disagreement(place: Transport, crawl: str, slug: str) -> list[str]:
    """Both kinds have equal numbers for equal records only if they were cut alike from the same pages."""
    cuts = set()
    with suppress(RangeFault):
        for kind in EXPORT_KINDS:
            manifest = _manifest(place, export_prefix(crawl, slug), kind)
            if manifest is not None:
                cuts.add((manifest.get("pages"), manifest.get("records_per_file")))
    if len(cuts) < 2:
        return []
    return [
        f"{slug}: textData and metadata were exported from different pages or cut differently; "
        "export both together to have the same records under the same numbers"
    ]


def _pages_digest(workspace: Workspace, crawl: str, slug: str) -> str:
    for name in (f"parse:{crawl}:{slug}", source_digest_name(slug)):
        metadata, text = (workspace.lake.digest(table, name) for table in ("page_metadata", "page_text"))
        if metadata is not None and metadata == text:
            return metadata
        if metadata != text:
            raise EnvironmentFault(
                f"pages of {slug} in {crawl} are from two runs, one of them interrupted", "Materialize them again."
            )
    raise EnvironmentFault(f"{slug} in {crawl} has not been parsed", "Materialize page_metadata and page_text first.")


def _open_place(workspace: Workspace) -> Transport:
    settings = workspace.settings
    return Transport(settings.lake, s3_endpoint=settings.lake_endpoint, s3_region=settings.s3_region)
