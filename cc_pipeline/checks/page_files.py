"""Checks of files read whole, and of exports: reading 1 GB files and writing exports fail in ways that no row shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, abbreviate_keys, join_results
from cc_pipeline.derived_files.export import EXPORT_KINDS, ExportKind, pages_digest, read_manifest
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.slice import READ_FILES, Slice
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.source_files import FAULTS, MAX_FAULT_ROWS, SourceFile, read_source_files
from cc_pipeline.workspace.workspace import Workspace, export_prefix

#: The kind of file behind each export asset.
EXPORTS: Final[dict[str, ExportKind]] = dict(
    zip(("text_sequencefile", "metadata_sequencefile"), EXPORT_KINDS, strict=True)
)
#: Every file with pages has rows in at least one of these tables.
_MAIN_TABLES: Final = ("page_metadata", "page_text")


def faults_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that every byte range of every file could be read, and that every file gave pages."""
    name, files = "files_are_readable", list(_select_files(workspace, scope))
    counts = _count_file_rows(workspace, FAULTS, files)
    metrics = {"files": len(files), "unreadable byte ranges": sum(counts.values())}
    if counts:
        # more ranges of a file are not stored
        at_least = "at least " if max(counts.values()) >= MAX_FAULT_ROWS else ""
        message = (
            f"{at_least}{format_count(sum(counts.values()), 'byte range')} of files could not be read, so their pages "
            f"are missing: {abbreviate_keys([*counts])}; the rest of these files was read"
        )
        return CheckResult(name, "warn", message, metrics)
    read = [file for file in files if READ_FILES.was_committed(workspace.lake, Slice(file.crawl, file.slug))]
    slugs_with_pages = {slug for table in _MAIN_TABLES for slug in _count_file_rows(workspace, table, read)}
    if empty := {file.slug for file in read} - slugs_with_pages:
        return CheckResult(
            name,
            "warn",
            f"{format_count(len(empty), 'file', 'were')} read, without any page ({abbreviate_keys(empty)})",
            metrics,
        )
    if not files:
        return CheckResult(name, "ok", "no file was read whole", metrics)
    unread = f"; {len(files) - len(read):,} more are registered and not read yet" if len(read) < len(files) else ""
    return CheckResult(name, "ok", f"{format_count(len(read), 'file', 'were')} read completely{unread}", metrics)


def exports_verdict(workspace: Workspace, kind: ExportKind, scope: Scope) -> CheckResult:
    """Checks that the files of each export of ``kind`` exist, are complete, and have the current pages."""
    name = "files_are_there"
    verdicts = [
        _check_export(workspace, kind, slice_, sizes) for slice_, sizes in _find_exports(workspace, kind, scope)
    ]
    bad = [verdict for verdict in verdicts if not verdict.passed]
    if bad:
        return join_results(name, bad)
    records = sum(int(verdict.metrics["records"]) for verdict in verdicts)
    metrics = {"partitions": len(verdicts), "records": records}
    message = (
        f"{format_count(len(verdicts), 'export', 'are')} complete, with {format_count(records, 'record')}"
        if verdicts
        else "nothing was exported"
    )
    return CheckResult(name, "ok", message, metrics)


def _select_files(workspace: Workspace, scope: Scope) -> Iterator[SourceFile]:
    slugs = None if scope.slices is None else {slice_.target for slice_ in scope.slices}
    for slug, file in read_source_files(workspace).items():
        if slugs is None or slug in slugs:
            yield file


def _count_file_rows(workspace: Workspace, table: str, files: Iterable[SourceFile]) -> dict[str, int]:
    by_crawl: dict[str, list[str]] = {}
    for file in files:
        by_crawl.setdefault(file.crawl, []).append(file.slug)
    rows_by_slug: dict[str, int] = {}
    for crawl, slugs in by_crawl.items():
        counts = count_rows(workspace.lake, table, {"crawl": crawl, "target": slugs}, ["target"])
        rows_by_slug |= {target: count for (target,), count in counts.items()}
    return rows_by_slug


def _find_exports(workspace: Workspace, kind: ExportKind, scope: Scope) -> Iterator[tuple[Slice, dict[str, int]]]:
    """Yields the partitions that have an export, with the sizes of their files by name."""
    store = workspace.place
    if scope.slices is not None:
        partitions = sorted({partition.partition for partition in scope.slices})
        folders = [(partition, export_prefix(partition.crawl, partition.target)) for partition in partitions]
        files_by_partition = {partition: store.listing(folder) for partition, folder in folders}
    else:
        files_by_partition = {}
        for stored_file in store.listing("exports/"):
            _, crawl, target, _ = stored_file.key.split("/", 3)
            files_by_partition.setdefault(Slice(crawl, target), []).append(stored_file)
    for slice_, files in files_by_partition.items():
        sizes = {file.key.rpartition("/")[2]: file.size for file in files}
        if any(file.startswith((f"{kind}-", f"_{kind}.")) for file in sizes):
            yield slice_, sizes


def _check_export(workspace: Workspace, kind: ExportKind, slice_: Slice, sizes: dict[str, int]) -> CheckResult:
    name, key = "files_are_there", f"{slice_.crawl}|{slice_.target}"
    manifest = read_manifest(workspace.place, export_prefix(slice_.crawl, slice_.target), kind)
    asset = next(asset for asset, exported_kind in EXPORTS.items() if exported_kind == kind)
    advice = f"materialize {asset} for {key} again, unless a run writes it now"
    if manifest is None:
        problem = f"{key}: the manifest _{kind}.json is missing or damaged"
        return CheckResult(name, "error", f"{problem}; {advice}", wrong=(key,))
    lost = [file["name"] for file in manifest["files"] if sizes.get(file["name"]) != file["bytes"]]
    if lost:
        return CheckResult(
            name,
            "error",
            f"{key}: {abbreviate_keys(lost)} are missing or have another size; {advice}",
            wrong=(key,),
        )
    if sum(file["records"] for file in manifest["files"]) != manifest["records"]:
        return CheckResult(
            name,
            "error",
            f"{key}: the exported files do not have the {manifest['records']:,} records that the manifest lists; "
            f"{advice}",
            wrong=(key,),
        )
    try:
        pages = pages_digest(workspace, slice_)
    except EnvironmentFault as fault:
        return CheckResult(name, "warn", f"{key}: {fault.problem}. {fault.advice}", wrong=(key,))
    if manifest.get("pages") != pages:
        return CheckResult(
            name, "warn", f"{key}: pages were parsed again after this export; export it again", wrong=(key,)
        )
    return CheckResult(name, "ok", f"{key}: {manifest['records']:,} records", {"records": manifest["records"]})
