"""The files of a URL index built here: the tree, the archive files it points into, and what it was made from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.locator import ArchiveNames, ArcNames, BTreeLocator, ListedNames, unpack_names
from cc_pipeline.index.btree.source import LocalRanges

#: Of the layout described in docs/finding.md.
FORMAT = 1
TREE = "url-index.pbtree"
FILES = "url-index.files.gz"
ABOUT = "url-index.json"


@dataclass(frozen=True, slots=True)
class UrlIndexAbout:
    """What ``url-index.json`` says. ``pointers`` is ``listed`` (by line of the file list) or ``arc`` (by name)."""

    format: int
    crawl: str
    subsets: tuple[str, ...]
    pointers: str
    block_size: int
    items: int
    files: int
    size: int
    skipped: int


def index_folder(root: Path, crawl: str) -> Path:
    """The folder of a crawl's index below ``root``, the folder of all indexes."""
    return root / crawl


def write_about(folder: Path, about: UrlIndexAbout) -> None:
    """Writes ``url-index.json``; the last file written, so an index that has it is whole."""
    (folder / ABOUT).write_text(json.dumps(asdict(about), indent=1) + "\n", encoding="utf-8")


def read_about(folder: Path) -> UrlIndexAbout | None:
    """What is known of the index in ``folder``, ``None`` where there is none. Raises ``DataFault``."""
    path = folder / ABOUT
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        about = UrlIndexAbout(**(said | {"subsets": tuple(said["subsets"])}))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}", "Check the folder and its rights") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DataFault(DataKind.MALFORMED, str(path), None, f"is no description of a URL index ({error})") from error
    if about.format != FORMAT:
        raise DataFault(
            DataKind.UNSUPPORTED, str(path), None, f"describes format {about.format}, this version reads {FORMAT}"
        )
    return about


def index_size(root: Path, crawl: str) -> int:
    """How many archive files the index built for ``crawl`` below ``root`` points into. Raises ``DataFault``."""
    about = read_about(index_folder(root, crawl))
    return 0 if about is None else about.files


def open_url_index(root: Path, crawl: str) -> BTreeLocator | None:
    """The locator of the index built for ``crawl`` below ``root``, if there is one. Raises ``DataFault``."""
    folder = index_folder(root, crawl)
    about = read_about(folder)
    if about is None:
        return None
    size = (folder / TREE).stat().st_size if (folder / TREE).exists() else 0
    if size != about.size:
        raise DataFault(
            DataKind.MISMATCH, str(folder / TREE), None, f"has {size} bytes where {about.size} were written"
        )
    names: ArchiveNames = ArcNames(crawl)
    if about.pointers == "listed":
        files = unpack_names((folder / FILES).read_bytes(), FILES)
        if len(files) != about.files:
            raise DataFault(
                DataKind.MISMATCH,
                str(folder / FILES),
                None,
                f"lists {len(files)} files where {about.files} were written",
            )
        names = ListedNames(files, FILES)
    return BTreeLocator(LocalRanges(folder), TREE, crawl, names=names, subsets=about.subsets)
