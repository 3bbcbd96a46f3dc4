"""Writes exported files and folders atomically, with a README and other documents about the origin of the rows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline import SOFTWARE
from cc_pipeline.atomic import folder_written_whole, write_whole, written_whole
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.export.cards import TABULAR, About, DataFile, card_head, croissant, schema_of
from cc_pipeline.export.provenance import Provenance, read, write_targets
from cc_pipeline.processes import this_process

README, PROVENANCE, CROISSANT, TARGETS = "README.md", "provenance.json", "croissant.json", "targets.csv"
#: Maximum lines before the line that identifies our README: a card for Hugging Face comes before it.
_HEAD_LINES = 1_000
_TERMS = """Common Crawl publishes its data under its terms of use (https://commoncrawl.org/terms-of-use). The pages
belong to those who wrote them: what may be done with a page follows from its own licence and from the law. Robots
rules and reservations of text and data mining that pages carried are in `page_metadata`, where that table is here."""


@dataclass(frozen=True, slots=True)
class Handed:
    """An exported table or file: its name, number of rows, rows by crawl if it has a column ``crawl``, and for a table
    the name and DuckDB type of each of its ``columns``."""

    name: str
    rows: int
    crawls: Mapping[str, int] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    note: str | None = None


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``out``. It replaces ``out`` if the block ends without an error.

    Raises ``EnvironmentFault`` if the disk refuses.
    """
    with disk_trouble(out), written_whole(out, durable=True) as beside:
        yield beside


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Does the same for a folder. An existing folder is replaced if it is empty or has our README.

    Raises ``UserInputError`` for a folder with other files.
    """
    if out.exists() and not out.is_dir():
        raise UserInputError(f"{out} is a file; name a new folder")
    if out.is_dir() and any(out.iterdir()) and not _is_ours(out / README):
        raise UserInputError(f"{out} has files that no export wrote; name another folder")
    with disk_trouble(out), folder_written_whole(out) as beside:
        yield beside


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
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


def paper(out: Path, name: str) -> Path:
    """Returns the path of a document about ``out``: in it, if it is a folder, else beside it."""
    return out / name if out.is_dir() else out.with_name(f"{out.name}.{name}")


def write_papers(
    out: Path,
    about: About,
    provenance: Provenance,
    handed: Sequence[Handed],
    files: Sequence[Path],
    more: str = "",
    told: Mapping[str, Any] | None = None,
) -> tuple[Path, ...]:
    """Writes the documents about ``out``, a file or folder whose ``files`` are complete: README.md, provenance.json,
    targets.csv, and croissant.json if the first of ``files`` are those of the tables ``handed``, in that order. The
    README of a folder of tables begins with a card. ``more`` is added to the README, ``told`` to the JSON. Documents of
    an earlier export are deleted. Returns ``files`` and the documents. Raises ``EnvironmentFault`` if the disk refuses.
    """
    folder = out.is_dir()

    def named(file: Path) -> str:
        return str(file.relative_to(out) if folder else file.name)

    with disk_trouble(out):
        if paper(out, PROVENANCE).exists():
            # documents of an earlier export that are not replaced would be wrong
            for name in (TARGETS, CROISSANT):
                paper(out, name).unlink(missing_ok=True)
        if provenance.targets:
            write_targets(paper(out, TARGETS), provenance.targets)
            files = [*files, paper(out, TARGETS)]
        listed: list[dict[str, Any]] = [
            {"name": named(one), "bytes": one.stat().st_size, "sha256": sha256_of(one)} for one in files
        ]
        said = provenance.as_json() | {
            "name": about.title,
            "counts": {one.name: one.rows for one in handed},
            "files": listed,
            **(told or {}),
        }
        _write_json(paper(out, PROVENANCE), said)
        tables = [one for one, file in zip(handed, files, strict=False) if one.columns and file.suffix in TABULAR]
        head, papers = "", [paper(out, README), paper(out, PROVENANCE)]
        if tables and len(tables) == len(handed):
            rows = [
                DataFile(one.name, about_file["name"], about_file["sha256"], about_file["bytes"], one.rows,
                         schema_of(file, one.columns))
                for one, file, about_file in zip(tables, files, listed, strict=False)
            ]  # fmt: skip
            also = [
                DataFile(one["name"], one["name"], one["sha256"], one["bytes"], 0, pa.schema([]))
                for one in listed[len(rows) :]
            ]
            papers.append(paper(out, CROISSANT))
            _write_json(papers[-1], croissant(about, provenance, rows, also))
            head = card_head(about, rows) if folder else ""
        lines = _readme(about, provenance, handed, listed, more)
        write_whole(paper(out, README), head + "\n".join(lines))
    return (*files, *papers)


def provenance_of(folder: Path, asked: Sequence[str]) -> Provenance:
    """Reads the provenance of a folder that :func:`write_papers` wrote, and adds what was ``asked`` of it now. Without
    these documents, nothing else is known."""
    try:
        before = read(json.loads(paper(folder, PROVENANCE).read_bytes()), paper(folder, TARGETS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Provenance(asked=tuple(asked))
    return replace(before, asked=(*before.asked, *asked))


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _readme(
    about: About, provenance: Provenance, handed: Sequence[Handed], listed: Sequence[Mapping[str, Any]], more: str
) -> list[str]:
    lines = [f"# {about.title}", "", f"Handed on by {SOFTWARE} at {provenance.made_at:%Y-%m-%d %H:%M:%S} UTC.", ""]
    lines += ["## What is here", "", "| name | rows | columns | crawls |", "|---|---|---|---|"]
    for one in handed:
        crawls = ", ".join(f"{crawl}: {rows:,}" for crawl, rows in sorted(one.crawls.items(), reverse=True))
        lines.append(f"| `{one.name}` | {one.rows:,} | {len(one.columns) or ''} | {crawls} |")
    lines += ["", *(f"`{one.name}`: {one.note}" for one in handed if one.note), ""]
    lines += ["| file | bytes | SHA-256 |", "|---|---|---|"]
    lines += [f"| `{one['name']}` | {one['bytes']:,} | `{one['sha256']}` |" for one in listed]
    lines += ["", "## Where it came from", ""]
    lines += [f"- source: {one}" for one in provenance.sources] + [f"- {one}" for one in provenance.asked]
    if provenance.targets:
        told = ", ".join(f"{count:,} {name}" for name, count in provenance.outcomes.items() if count)
        lines.append(f"- what became of the targets, or of the members of sets: {told}; `{TARGETS}` names each")
    for crawl in provenance.crawls:
        told = ", ".join(f"{kind} `{digest}`" for kind, digest in crawl.indexes.items())
        lines.append(
            f"- {crawl.crawl}: path list `{crawl.path_list or 'not asked'}`" + (f"; indexes: {told}" if told else "")
        )
    if provenance.published is not None:
        lines.append(f"- published: {provenance.published:%Y-%m-%d %H:%M:%S} UTC")
    if provenance.versions:
        told = ", ".join(f"{name} {version}" for name, version in sorted(provenance.versions.items()))
        lines.append(f"- versions of the lake's tables: {told}")
    lines.append(f"- the same for programs, with the versions of pipeline and parser: `{PROVENANCE}`")
    if more:
        lines += ["", more.strip()]
    return [*lines, "", "## Terms", "", _TERMS, ""]


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal digits."""
    with disk_trouble(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_ours(readme: Path) -> bool:
    try:
        return any(line.startswith("Handed on by ") for line in readme.read_text("utf-8").splitlines()[:_HEAD_LINES])
    except (OSError, UnicodeDecodeError):
        return False
