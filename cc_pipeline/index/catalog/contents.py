"""What a catalog's folder holds: a file per crawl, two files merged of many, and the list of the crawls.

``contents.json`` names the crawls and what each one's file was made from. It is written after the file is in place,
and a crawl leaves it before its file goes; so whatever it names is there. Merged files say themselves what they were
merged of, so that a reader can tell which crawls have changed since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

import duckdb

from cc_pipeline.atomic import write_whole
from cc_pipeline.duck import connect
from cc_pipeline.errors import EnvironmentFault

_LIST: Final = "contents.json"
#: Layout of the folder; another one is not read, and is built anew.
_LAYOUT: Final = 1


@dataclass(frozen=True, slots=True)
class Contents:
    """The crawls that have a file of their own, each with a digest of what it was made from."""

    crawls: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def crawl_file(folder: Path, crawl: str) -> Path:
    """Where the file of ``crawl`` lies."""
    return folder / f"{crawl}.duckdb"


def base_file(folder: Path) -> Path:
    """The file merged of all crawls; no crawl has such a name."""
    return folder / "all.merged.duckdb"


def recent_file(folder: Path) -> Path:
    """The file merged of the crawls that were added or replaced since the base was merged."""
    return folder / "recent.merged.duckdb"


def catalog_exists(path: Path) -> bool:
    """Whether there is anything to open at ``path``: a folder, or one file with all crawls."""
    return (path / _LIST).exists() or path.is_file()


def read_contents(folder: Path) -> Contents:
    """The list of the folder; nothing where there is none, or it is of another layout or broken."""
    try:
        return _parsed((folder / _LIST).read_text("utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Contents()


def _parsed(text: str) -> Contents:
    noted = json.loads(text)
    if noted["layout"] != _LAYOUT:
        return Contents()
    return Contents({str(crawl): str(digest) for crawl, digest in noted["crawls"].items()})


def torn_catalog_files(folder: Path) -> list[Path]:
    """The files of a catalog's folder that are there and cannot be read, and those that the list names in vain."""
    found = []
    try:
        _parsed((folder / _LIST).read_text("utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        found.append(folder / _LIST)
    merged = [path for path in (base_file(folder), recent_file(folder)) if path.exists()]
    own = [crawl_file(folder, crawl) for crawl in read_contents(folder).crawls]
    for path in (*merged, *own):
        try:
            with connect(path, read_only=True) as connection:
                connection.execute("SELECT format FROM catalog_info").fetchone()
                row = connection.execute("SELECT total_blocks * block_size FROM pragma_database_size()").fetchone()
        except duckdb.Error:
            row = None
        # blocks behind the end of a file are missed when somebody asks for them
        if row is None or path.stat().st_size < row[0]:
            found.append(path)
    return found


def set_catalog_files_aside(folder: Path, torn: Sequence[Path]) -> dict[Path, Path]:
    """Renames files that cannot be read, and takes their crawls out of the list, so that they are built anew; gives
    their new names. Raises ``EnvironmentFault`` and ``OSError``."""
    left = {crawl: digest for crawl, digest in read_contents(folder).crawls.items()
            if crawl_file(folder, crawl) not in torn}  # fmt: skip
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    kept = {}
    for path in torn:
        if path.exists():
            kept[path] = path.with_name(f"{path.name}.torn-{stamp}")
            path.replace(kept[path])
    write_contents(folder, Contents(left))
    return kept


def write_contents(folder: Path, contents: Contents) -> None:
    """Replaces the list in one step. Raises ``EnvironmentFault`` when the folder cannot be written."""
    noted = {"layout": _LAYOUT, "crawls": dict(sorted(contents.crawls.items()))}
    try:
        write_whole(folder / _LIST, json.dumps(noted, indent=0), durable=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder / _LIST} cannot be written: {error.strerror or error}", "Check the disk, then run it again."
        ) from error
