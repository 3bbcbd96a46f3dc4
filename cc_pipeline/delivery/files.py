"""Files and folders that are handed on appear whole or not at all, with a README that says where the rows came from."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cc_pipeline import SOFTWARE
from cc_pipeline.atomic import folder_written_whole, write_whole, written_whole
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.processes import this_process

README = "README.md"
_CHUNK = 1 << 20
_TERMS = """Common Crawl publishes its data under its terms of use (https://commoncrawl.org/terms-of-use). The pages
belong to those who wrote them: what may be done with a page follows from its own licence and from the law. Robots
rules and reservations of text and data mining that pages carried are in `page_metadata`, where that table is here."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows that are handed on came from. ``versions`` are lake tables with their version at the publication,
    ``published`` when that was, ``asked`` what was selected, line by line."""

    home: str
    source: str | None
    asked: Sequence[str] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    published: datetime | None = None

    def as_rows(self) -> list[tuple[str, str]]:
        """Names and values, for files that hold it as a table."""
        rows = [("home", self.home), ("source", self.source or ""), *(("asked", one) for one in self.asked)]
        return rows + [(f"version of {name}", str(version)) for name, version in sorted(self.versions.items())]


@dataclass(frozen=True, slots=True)
class Handed:
    """One table or file that was handed on: its name, rows, and rows by crawl where the rows name one."""

    name: str
    rows: int
    crawls: Mapping[str, int] = field(default_factory=dict)
    columns: int | None = None
    note: str | None = None


@contextmanager
def whole_file(out: Path) -> Iterator[Path]:
    """A path beside ``out`` to write to, which takes its place when the block ends without an error.

    Raises ``EnvironmentFault`` where the disk refuses.
    """
    with disk_trouble(out), written_whole(out, durable=True) as beside:
        yield beside


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """The same for a folder. One that is there is replaced if it has our README, or nothing, in it.

    Raises ``UserInputError`` for a folder that holds something else.
    """
    if out.exists() and not out.is_dir():
        raise UserInputError(f"{out} is a file; name a folder that is not there yet")
    if out.is_dir() and any(out.iterdir()) and not _is_ours(out / README):
        raise UserInputError(f"{out} holds files that no export wrote; name another folder")
    with disk_trouble(out), folder_written_whole(out) as beside:
        yield beside


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` for what does not fit into memory, deleted when the block ends."""
    folder = out.with_name(f".{out.name}.{this_process()}.scratch")
    try:
        with disk_trouble(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def readme_beside(out: Path) -> Path:
    """Where the README of a single file lies."""
    return out.with_name(f"{out.name}.{README}")


def write_readme(
    path: Path,
    title: str,
    origin: Origin,
    handed: Sequence[Handed],
    files: Sequence[Path],
    more: str = "",
    root: Path | None = None,
) -> None:
    """Writes the README of what is handed on. ``files`` are complete; their names are told relative to ``root``."""
    lines = [f"# {title}", "", f"Handed on by {SOFTWARE} at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC.", ""]
    lines += ["## What is here", "", "| name | rows | columns | crawls |", "|---|---|---|---|"]
    for one in handed:
        crawls = ", ".join(f"{crawl}: {rows:,}" for crawl, rows in sorted(one.crawls.items(), reverse=True))
        lines.append(f"| `{one.name}` | {one.rows:,} | {one.columns or ''} | {crawls} |")
    lines += ["", *(f"`{one.name}`: {one.note}" for one in handed if one.note), ""]
    lines += ["| file | bytes | SHA-256 |", "|---|---|---|"]
    for file in files:
        name = file.relative_to(root) if root is not None else file.name
        lines.append(f"| `{name}` | {file.stat().st_size:,} | `{sha256_of(file)}` |")
    lines += ["", "## Where it came from", "", f"- home: `{origin.home}`", f"- source: {origin.source or 'unknown'}"]
    lines += [f"- {one}" for one in origin.asked]
    if origin.published is not None:
        lines.append(f"- published: {origin.published:%Y-%m-%d %H:%M:%S} UTC")
    if origin.versions:
        told = ", ".join(f"{name} {version}" for name, version in sorted(origin.versions.items()))
        lines.append(f"- versions of the lake's tables: {told}")
    if more:
        lines += ["", more.strip()]
    lines += ["", "## Terms", "", _TERMS, ""]
    with disk_trouble(path):
        write_whole(path, "\n".join(lines))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with disk_trouble(path), path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _is_ours(readme: Path) -> bool:
    try:
        return any(line.startswith("Handed on by ") for line in readme.read_text("utf-8").splitlines()[:5])
    except (OSError, UnicodeDecodeError):
        return False
