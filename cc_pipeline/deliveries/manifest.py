"""What a delivery says of itself: the manifest, one JSON file, and the names of the files it vouches for.

All files of a delivery lie in one folder of the place, named after the crawl. A part and a ledger are named after the
SHA-256 of their bytes, so a name never stands for other bytes than those it was given for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from cc_pipeline import SOFTWARE
from cc_pipeline.atomic import unfinished
from cc_pipeline.errors import DataFault, DataKind

#: Raised when a manifest can no longer be read by the code of before.
VERSION: Final = 1
#: Captures that are not there and are named in the manifest itself. The ledger names all of them.
MOST_NAMED: Final = 1_000
#: Bytes of a manifest that are read at most: about 200,000 parts.
LARGEST_MANIFEST: Final = 128 << 20

_FORMAT: Final = "cc_pipeline delivery"
_MANIFEST: Final = re.compile(r"manifest-([0-9a-f]{12})\.json\Z")
_LEDGER: Final = re.compile(r"ledger-([0-9a-f]{12})-[0-9a-f]{16}\.parquet\Z")
#: Copies made before there were manifests have no delivery in the names of their parts.
_PART: Final = re.compile(r"[A-Za-z0-9._-]+?-(?:([0-9a-f]{12})-)?[0-9a-f]{16}\.(warc|arc)\.gz\Z")
_LIST_SUFFIX: Final = ".captures.parquet"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was sent: its name within the folder, bytes, SHA-256, and the ETag that the place gave it.

    ``etag`` is ``None`` in a folder, where it would not survive a move."""

    name: str
    size: int
    sha256: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class PartEntry:
    """A file of records, ``kind`` is warc or arc, and the Parquet list that says where in it each capture lies."""

    file: FileEntry
    kind: str
    records: int
    list: FileEntry


@dataclass(frozen=True, slots=True)
class Manifest:
    """One delivery: what was asked for, what is there, what is not and why.

    ``counts`` has planned, delivered, missing, quarantined and left_out captures, ``subsets`` the same for each subset.
    ``not_there`` names the first captures that are not in the place. ``borrowed`` are parts of other deliveries in the
    folder that hold captures of this one. ``superseded`` are files that the parts replace; they are deleted next.
    ``complete`` is false while a copy is under way, or was stopped. ``unread_index_files`` were allowed to be unread
    when the captures were looked up: nobody knows which captures they name.
    """

    delivery: str
    crawl: str
    targets: tuple[str, ...]
    wanted_subsets: tuple[str, ...]
    convert: bool = False
    complete: bool = False
    indexes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    subsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ledger: FileEntry | None = None
    parts: tuple[PartEntry, ...] = ()
    borrowed: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    not_there: tuple[Mapping[str, Any], ...] = ()
    unread_index_files: int = 0
    software: str = field(default=SOFTWARE, compare=False)
    created: str = field(default="", compare=False)

    @property
    def files(self) -> Iterator[FileEntry]:
        """All files that the manifest vouches for."""
        for part in self.parts:
            yield part.file
            yield part.list
        if self.ledger is not None:
            yield self.ledger


def delivery_id(crawl: str, targets: Sequence[str], subsets: Sequence[str]) -> str:
    """The name of what a person asked for: a crawl, target definitions and subsets, in any order."""
    text = json.dumps([crawl, sorted(targets), sorted(subsets)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def key_in(folder: str, name: str) -> str:
    """The key of a file in a folder of the place; the folder of the place itself is empty."""
    return f"{folder}/{name}" if folder else name


def manifest_name(delivery: str) -> str:
    """The manifest's file."""
    return f"manifest-{delivery}.json"


def part_name(crawl: str, delivery: str, sha256: str, kind: str) -> str:
    """The file of records with this SHA-256."""
    return f"{crawl}-{delivery}-{sha256[:16]}.{kind}.gz"


def ledger_name(delivery: str, sha256: str) -> str:
    """The Parquet file of all planned captures."""
    return f"ledger-{delivery}-{sha256[:16]}.parquet"


def list_name(part: str) -> str:
    """The Parquet list beside a part."""
    return part + _LIST_SUFFIX


def delivery_of_manifest(name: str) -> str | None:
    """The delivery whose manifest a file is, by its name."""
    found = _MANIFEST.match(name)
    return found[1] if found else None


def part_named(name: str) -> tuple[str | None, str] | None:
    """The delivery (``None`` for a copy of before manifests) and the kind of a part by its name; else ``None``."""
    found = _PART.match(name)
    return (found[1], found[2]) if found else None


def delivery_of(name: str) -> str | None:
    """The delivery that a part, a list, a ledger or an unfinished file belongs to by its name."""
    left = unfinished(name)
    if left is not None:
        return delivery_of(left[0]) or delivery_of_manifest(left[0])
    ledger = _LEDGER.match(name)
    part = part_named(name.removesuffix(_LIST_SUFFIX))
    return ledger[1] if ledger is not None else part[0] if part is not None else None


def is_ours(name: str, delivery: str) -> bool:
    """Whether a copy of this delivery may delete a file of this name when its manifest has it: never other files."""
    part = part_named(name.removesuffix(_LIST_SUFFIX))
    return delivery_of(name) == delivery or (part is not None and part[0] is None)


def to_json(manifest: Manifest) -> bytes:
    """The manifest as the file has it."""
    document = {"format": _FORMAT, "version": VERSION, **asdict(manifest)}
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(data: bytes, source: str) -> Manifest:
    """The manifest in a file named ``source``. Raises ``DataFault`` for anything else, and for a newer format."""
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise DataFault(DataKind.MALFORMED, source, None, "not a manifest of a delivery")
        if document["version"] != VERSION:
            raise DataFault(DataKind.UNSUPPORTED, source, None, "the manifest was written by a newer cc_pipeline")
        return _manifest(document, source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataFault(DataKind.MALFORMED, source, None, f"not a manifest of a delivery ({error!r:.200})") from None


def _manifest(document: dict[str, Any], source: str) -> Manifest:
    parts = tuple(
        PartEntry(_file(part["file"]), str(part["kind"]), int(part["records"]), _file(part["list"]))
        for part in document["parts"]
    )
    for part in parts:
        named = part_named(part.file.name)
        if named is None or named[1] != part.kind or part.list.name != list_name(part.file.name):
            raise DataFault(DataKind.MALFORMED, source, None, f"{part.file.name!r} is not the name of a part")
    ledger = None if document["ledger"] is None else _file(document["ledger"])
    if ledger is not None and not _LEDGER.match(ledger.name):
        raise DataFault(DataKind.MALFORMED, source, None, f"{ledger.name!r} is not the name of a ledger")
    return Manifest(
        delivery=str(document["delivery"]),
        crawl=str(document["crawl"]),
        targets=tuple(map(str, document["targets"])),
        wanted_subsets=tuple(map(str, document["wanted_subsets"])),
        convert=bool(document["convert"]),
        complete=bool(document["complete"]),
        indexes=tuple(map(str, document["indexes"])),
        counts={str(key): int(count) for key, count in document["counts"].items()},
        subsets={str(s): {str(key): int(n) for key, n in of.items()} for s, of in document["subsets"].items()},
        ledger=ledger,
        parts=parts,
        borrowed=tuple(map(str, document["borrowed"])),
        superseded=tuple(map(str, document["superseded"])),
        not_there=tuple(map(dict, document["not_there"])),
        unread_index_files=int(document.get("unread_index_files", 0)),
        software=str(document["software"]),
        created=str(document["created"]),
    )


def _file(entry: dict[str, Any]) -> FileEntry:
    etag = entry["etag"]
    return FileEntry(str(entry["name"]), int(entry["size"]), str(entry["sha256"]), None if etag is None else str(etag))
