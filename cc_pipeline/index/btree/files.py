"""The files of a URL index built here: the tree, the archive files it points into, and what it was made from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.locator import ArchiveNames, ArcNames, BTreeLocator, ListedNames, unpack_names
from cc_pipeline.index.btree.source import LocalRanges

#: The version of the layout in docs/finding.md.
FORMAT = 1
TREE = "url-index.pbtree"
FILES = "url-index.files.gz"
METADATA_FILE = "url-index.json"
#: Begin of the names of folders in which a build sorts, beside the folders of the indexes. The mark of the process
#: (``processes.py``) and a random suffix follow.
SORT_PREFIX = "sort-"


@dataclass(frozen=True, slots=True)
class UrlIndexMetadata:
    """The content of ``url-index.json``. ``pointers`` is ``listed`` (by line of the file list) or ``arc`` (by name)."""

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
    """Returns the folder of a crawl's index below ``root``, the folder of all indexes."""
    return root / crawl


def write_metadata(folder: Path, metadata: UrlIndexMetadata) -> None:
    """Writes ``url-index.json``. It is the last file written, so an index with it is complete."""
    (folder / METADATA_FILE).write_text(json.dumps(asdict(metadata), indent=1) + "\n", encoding="utf-8")


def read_metadata(folder: Path) -> UrlIndexMetadata | None:
    """Returns the metadata of the index in ``folder``, ``None`` if there is none. Raises ``DataFault``."""
    path = folder / METADATA_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        metadata = UrlIndexMetadata(**(document | {"subsets": tuple(document["subsets"])}))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}", "Check the folder and its rights") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DataFault(
            DataKind.MALFORMED, str(path), None, f"does not describe a URL index ({error}); build it again"
        ) from error
    if metadata.format != FORMAT:
        raise DataFault(
            DataKind.UNSUPPORTED,
            str(path),
            None,
            f"has format {metadata.format}, this version reads {FORMAT}; build it again",
        )
    return metadata


def index_size(root: Path, crawl: str) -> int:
    """Returns the number of archive files that the index of ``crawl`` below ``root`` covers. Raises ``DataFault``."""
    metadata = read_metadata(index_folder(root, crawl))
    return 0 if metadata is None else metadata.files


def open_url_index(root: Path, crawl: str) -> BTreeLocator | None:
    """Returns the locator of the index built for ``crawl`` below ``root``, if there is one. Raises ``DataFault``."""
    folder = index_folder(root, crawl)
    metadata = read_metadata(folder)
    if metadata is None:
        return None
    size = (folder / TREE).stat().st_size if (folder / TREE).exists() else 0
    if size != metadata.size:
        raise DataFault(
            DataKind.MISMATCH,
            str(folder / TREE),
            None,
            f"has {size} bytes, but {metadata.size} were written; build it again",
        )
    names: ArchiveNames = ArcNames(crawl)
    if metadata.pointers == "listed":
        files = unpack_names((folder / FILES).read_bytes(), str(folder / FILES))
        if len(files) != metadata.files:
            raise DataFault(
                DataKind.MISMATCH,
                str(folder / FILES),
                None,
                f"lists {len(files)} files, but {metadata.files} were written; build it again",
            )
        names = ListedNames(files, str(folder / FILES))
    return BTreeLocator(LocalRanges(folder), TREE, crawl, names=names, subsets=metadata.subsets)
