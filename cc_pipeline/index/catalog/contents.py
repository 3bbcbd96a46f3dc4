"""What a catalog's folder holds: a file per crawl, two files merged of many, and the list of the crawls.

``contents.json`` names the crawls and what each one's file was made from. It is written after the file is in place,
and a crawl leaves it before its file goes; so whatever it names is there. Merged files say themselves what they were
merged of, so that a reader can tell which crawls have changed since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cc_pipeline.atomic import write_whole
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


def file_of_before(folder: Path) -> Path:
    """Where versions of before kept the whole catalog in one file: beside the folder."""
    return folder.with_name(f"{folder.name}.duckdb")


def catalog_exists(path: Path) -> bool:
    """Whether there is anything to open at ``path``: a folder, or the one file of versions of before."""
    return (path / _LIST).exists() or path.is_file() or file_of_before(path).exists()


def read_contents(folder: Path) -> Contents:
    """The list of the folder; nothing where there is none, or it is of another layout or broken."""
    try:
        noted = json.loads((folder / _LIST).read_text("utf-8"))
        if noted["layout"] != _LAYOUT:
            return Contents()
        return Contents({str(crawl): str(digest) for crawl, digest in noted["crawls"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Contents()


def write_contents(folder: Path, contents: Contents) -> None:
    """Replaces the list in one step. Raises ``EnvironmentFault`` when the folder cannot be written."""
    noted = {"layout": _LAYOUT, "crawls": dict(sorted(contents.crawls.items()))}
    try:
        write_whole(folder / _LIST, json.dumps(noted, indent=0), durable=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{folder / _LIST} cannot be written: {error.strerror or error}", "Check the disk, then run it again."
        ) from error
