"""Writes exported files and folders atomically, with a README and other documents about the origin of the rows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline import SOFTWARE
from cc_pipeline.atomic import folder_written_whole, write_whole, written_whole
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.export.cards import TABULAR, DataFile, DatasetDescription, build_card_head, build_croissant, schema_of
from cc_pipeline.export.provenance import Provenance, write_targets
from cc_pipeline.processes import this_process

README, PROVENANCE, CROISSANT, TARGETS = "README.md", "provenance.json", "croissant.json", "targets.csv"
#: Maximum lines before the line that identifies our README: a card for Hugging Face comes before it.
_HEAD_LINES = 1_000
_TERMS = """Common Crawl publishes its data under its terms of use (https://commoncrawl.org/terms-of-use). The pages
belong to those who wrote them: what may be done with a page follows from its own licence and from the law. Robots
rules and reservations of text and data mining that pages carried are in `page_metadata`, where that table is here."""


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """An exported table or file: its name, number of rows, rows by crawl if it has a column ``crawl``, and for a table
    the name and DuckDB type of each of its ``columns``."""

    name: str
    rows: int
    crawls: Mapping[str, int] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    note: str | None = None


def refuse_empty(out: Path) -> None:
    """Raises ``UserInputError`` if there is a file or folder at ``out`` with content, which nothing would replace."""
    if out.exists() and (any(out.iterdir()) if out.is_dir() else out.stat().st_size):
        raise UserInputError(f"no row was found, so {out} was kept as it is")


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``out``. It replaces ``out`` if the block ends without an error.

    Raises ``EnvironmentFault`` if the disk refuses.
    """
    with disk_trouble(out), written_whole(out, durable=True) as temporary_path:
        yield temporary_path


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Does the same for a folder. An existing folder is replaced if it is empty or has our README.

    Raises ``UserInputError`` for a folder with other files.
    """
    if out.exists() and not out.is_dir():
        raise UserInputError(f"{out} is a file, and this export writes a folder; name a new folder")
    if out.is_dir() and any(out.iterdir()) and not _is_own_readme(out / README):
        raise UserInputError(
            f"nothing was written: the folder {out} has files that no export wrote; name another folder"
        )
    with disk_trouble(out), folder_written_whole(out) as temporary_folder:
        yield temporary_folder


@contextmanager
def open_scratch_folder(out: Path) -> Iterator[Path]:
    """Yields a folder beside ``out`` for spill files, which is deleted at the end of the block."""
    folder = out.with_name(f".{out.name}.{this_process()}.scratch")
    try:
        with disk_trouble(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def files_in(folder: Path) -> tuple[Path, ...]:
    """Returns all files in a folder and its subfolders, in the order of their names."""
    return tuple(sorted(path for path in folder.rglob("*") if path.is_file()))


def document_path(out: Path, name: str) -> Path:
    """Returns the path of a document about ``out``: in it, if it is a folder, else beside it."""
    return out / name if out.is_dir() else out.with_name(f"{out.name}.{name}")


def write_export_documents(
    out: Path,
    description: DatasetDescription,
    provenance: Provenance,
    exported_tables: Sequence[ExportedTable],
    files: Sequence[Path],
    extra_text: str = "",
    extra_fields: Mapping[str, Any] | None = None,
) -> tuple[Path, ...]:
    """Writes the documents about ``out``, a file or folder whose ``files`` are complete: README.md, provenance.json,
    targets.csv, and croissant.json if the first of ``files`` are those of the tables ``exported_tables``, in that
    order. The README of a folder of tables begins with a card. ``extra_text`` is added to the README, ``extra_fields``
    to the JSON. Documents of an earlier export are deleted. Returns ``files`` and the documents. Raises
    ``EnvironmentFault`` if the disk refuses.
    """
    folder = out.is_dir()

    def relative_name(file: Path) -> str:
        return str(file.relative_to(out) if folder else file.name)

    with disk_trouble(out):
        if document_path(out, PROVENANCE).exists():
            # documents of an earlier export that are not replaced would be wrong
            for name in (TARGETS, CROISSANT):
                document_path(out, name).unlink(missing_ok=True)
        if provenance.targets:
            write_targets(document_path(out, TARGETS), provenance.targets)
            files = [*files, document_path(out, TARGETS)]
        file_facts: list[dict[str, Any]] = [
            {"name": relative_name(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
        ]
        document = provenance.as_json() | {
            "name": description.title,
            "counts": {table.name: table.rows for table in exported_tables},
            "files": file_facts,
            **(extra_fields or {}),
        }
        _write_json(document_path(out, PROVENANCE), document)
        tables = [
            table
            for table, file in zip(exported_tables, files, strict=False)
            if table.columns and file.suffix in TABULAR
        ]
        head, documents = "", [document_path(out, README), document_path(out, PROVENANCE)]
        if tables and len(tables) == len(exported_tables):
            rows = [
                DataFile(table.name, about_file["name"], about_file["sha256"], about_file["bytes"], table.rows,
                         schema_of(file, table.columns))
                for table, file, about_file in zip(tables, files, file_facts, strict=False)
            ]  # fmt: skip
            other_files = [
                DataFile(
                    file_fact["name"], file_fact["name"], file_fact["sha256"], file_fact["bytes"], 0, pa.schema([])
                )
                for file_fact in file_facts[len(rows) :]
            ]
            documents.append(document_path(out, CROISSANT))
            _write_json(documents[-1], build_croissant(description, provenance, rows, other_files))
            head = build_card_head(description, rows) if folder else ""
        lines = _readme(description, provenance, exported_tables, file_facts, extra_text)
        write_whole(document_path(out, README), head + "\n".join(lines))
    return (*files, *documents)


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _readme(
    description: DatasetDescription,
    provenance: Provenance,
    exported_tables: Sequence[ExportedTable],
    file_facts: Sequence[Mapping[str, Any]],
    extra_text: str,
) -> list[str]:
    lines = [
        f"# {description.title}",
        "",
        f"Exported by {SOFTWARE} at {provenance.created_at:%Y-%m-%d %H:%M:%S} UTC.",
        "",
    ]
    lines += ["## What is here", "", "| name | rows | columns | crawls |", "|---|---|---|---|"]
    for table in exported_tables:
        crawls = ", ".join(f"{crawl}: {rows:,}" for crawl, rows in sorted(table.crawls.items(), reverse=True))
        lines.append(f"| `{table.name}` | {table.rows:,} | {len(table.columns) or ''} | {crawls} |")
    lines += ["", *(f"`{table.name}`: {table.note}" for table in exported_tables if table.note), ""]
    lines += ["| file | bytes | SHA-256 |", "|---|---|---|"]
    lines += [
        f"| `{file_fact['name']}` | {file_fact['bytes']:,} | `{file_fact['sha256']}` |" for file_fact in file_facts
    ]
    lines += ["", "## Where it came from", ""]
    source = [f"source: {provenance.source}"] if provenance.source else []
    lines += [f"- {sentence}" for sentence in (*source, *provenance.selection)]
    if provenance.targets:
        summary = ", ".join(f"{count:,} {name}" for name, count in provenance.outcomes.items() if count)
        lines.append(f"- what became of the targets, or of the members of sets: {summary}; `{TARGETS}` names each")
    for crawl in provenance.crawls:
        summary = ", ".join(f"{kind} `{digest}`" for kind, digest in crawl.indexes.items())
        lines.append(
            f"- {crawl.crawl}: path list `{crawl.path_list or 'not asked'}`"
            + (f"; indexes: {summary}" if summary else "")
        )
    if provenance.published is not None:
        lines.append(f"- published: {provenance.published:%Y-%m-%d %H:%M:%S} UTC")
    if provenance.versions:
        summary = ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items()))
        lines.append(f"- versions of the lake's tables: {summary}")
    lines.append(f"- the same for programs, with the versions of pipeline and parser: `{PROVENANCE}`")
    if extra_text:
        lines += ["", extra_text.strip()]
    return [*lines, "", "## Terms", "", _TERMS, ""]


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits."""
    with disk_trouble(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_own_readme(readme: Path) -> bool:
    try:
        return any(
            line.startswith("Exported by cc_pipeline") for line in readme.read_text("utf-8").splitlines()[:_HEAD_LINES]
        )
    except (OSError, UnicodeDecodeError):
        return False
