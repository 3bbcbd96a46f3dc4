"""Archive files without a published index, which is built here: those of a month's path list, or files that the user
named. Also the user's own list of index files, for a crawl without a path list."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import holds_access, redact_address, scheme_of
from cc_pipeline.advice import advise
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import LOCAL, news_month, validate_crawl_id
from cc_pipeline.commoncrawl.paths import (
    IndexFile,
    current_key,
    describe_faulty_lines,
    parse_keys,
    parse_path_list,
    path_list_key,
    refuse_faulty_list,
)
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, SourceRefuses, UserInputError, disk_trouble
from cc_pipeline.harvesting.path_lists import path_list_fault, read_path_list
from cc_pipeline.index.shards import Shard, folder_of, shard_of
from cc_pipeline.lake.keyed import Row, update_rows
from cc_pipeline.settings import Settings
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.workspace.source_files import ARCHIVE, SourceFile
from cc_pipeline.workspace.workspace import Workspace

#: A month has some 350 files; each becomes an object, a row, and a footer to read.
_MAX_FILES: Final = 100_000
#: The collection of files for which the user named none.
DEFAULT_COLLECTION: Final = f"{LOCAL}files"


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """The state of an index that is built here: ``shards`` are its planned files, one for each archive file of
    ``crawl`` in their order; ``stored_keys`` are the keys of those that the lake store has."""

    crawl: str
    shards: tuple[Shard, ...]
    stored_keys: frozenset[str]

    @property
    def missing(self) -> list[Shard]:
        """The files that are still to be built."""
        return [shard for shard in self.shards if shard.key not in self.stored_keys]


def archive_files(workspace: Workspace, crawl: str) -> list[Shard]:
    """Returns the planned index files of ``crawl``, one for each of its archive files.

    For a month of CC-NEWS this reads its path list, with one request. Raises ``EnvironmentFault`` if that cannot be
    read, ``DataFault`` if it is no path list, and ``UserInputError`` for a collection without files.
    """
    return list_archives(workspace, crawl)[0]


def list_archives(workspace: Workspace, crawl: str) -> tuple[list[Shard], tuple[str, ...]]:
    """Returns :func:`archive_files`, and notes on lines of the path list that name no archive file."""
    if news_month(crawl) is not None:
        key = path_list_key(crawl, "warc")
        try:
            paths, notes = _parse_archive_list(read_path_list(workspace, key), key)
        except SourceRefuses:
            raise
        except RangeFault as fault:
            raise path_list_fault(crawl, key, fault) from fault
        return [shard_of(crawl, path) for path in paths], notes
    rows = _archive_rows(workspace, crawl)
    if not rows:
        raise UserInputError(
            f"no file was added to {crawl}; add some: {advise('files add', 'FILE', kind='warc', crawl=crawl)}"
        )
    return [shard_of(crawl, str(row["source_file"]), row["content_tag"] or "") for row in rows], ()


def _parse_archive_list(data: bytes, key: str) -> tuple[list[str], tuple[str, ...]]:
    faults: list[DataFault] = []
    paths: dict[str, None] = {}
    for path in parse_path_list(data, key, max_lines=_MAX_FILES, faults=faults):
        if ".warc" in path.rpartition("/")[2]:
            paths[path] = None
        else:
            faults.append(DataFault(DataKind.MALFORMED, path, None, "does not have the name of a WARC file"))
    refuse_faulty_list(faults, len(paths))
    return [*paths], describe_faulty_lines(faults, key)


def has_archives(workspace: Workspace, crawl: str) -> bool:
    """Whether the user added a file to the collection ``crawl``."""
    return bool(_archive_rows(workspace, crawl))


def built_index(workspace: Workspace, crawl: str) -> BuiltIndex:
    """Returns the state of the index of ``crawl``. Raises as :func:`archive_files`, and ``EnvironmentFault`` if the
    lake store cannot be listed."""
    shards = archive_files(workspace, crawl)
    stored_keys = frozenset(stored_object.key for stored_object in workspace.place.listing(folder_of(crawl)))
    return BuiltIndex(crawl, tuple(shards), stored_keys)


def collection_id(name: str | None) -> str:
    """Returns the crawl id of a collection: ``press`` and ``LOCAL-press`` are the same.

    Raises ``UserInputError`` for an impossible name, and for the id of a crawl of Common Crawl's.
    """
    if name is None:
        return DEFAULT_COLLECTION
    text = name.strip()
    if text[: len(LOCAL)].upper() != LOCAL:
        if text[:3].lower() == "cc-":
            raise UserInputError(
                f"{name!r} is a crawl of Common Crawl, to which no files can be added; name a collection, such as press"
            )
        text = LOCAL + text
    return validate_crawl_id(text)


def register_archives(workspace: Workspace, names: Iterable[str], crawl: str) -> list[SourceFile]:
    """Adds archive files to the collection ``crawl`` and returns them: paths of this machine, addresses, keys of the
    source. A file that has changed since it was added is indexed again.

    Raises ``UserInputError`` for a file that does not exist, and for an address with credentials.
    """
    files: dict[str, tuple[SourceFile, str]] = {}
    for text in names:
        location = _location(text)
        tag = _content_tag(workspace, crawl, location)
        if tag is None:
            raise UserInputError(
                f"{redact_address(text)!r} is neither a file on this machine nor one of {workspace.settings.source}"
            )
        file = SourceFile(ARCHIVE, location, crawl)
        files[file.slug] = (file, tag)
    rows: list[Row] = [
        {"slug": slug, "source_kind": file.kind, "source_file": file.location, "crawl": crawl, "content_tag": tag}
        for slug, (file, tag) in files.items()
    ]

    def build(stored: list[Row]) -> list[Row]:
        tags = {row["slug"]: row["content_tag"] for row in stored}
        return [row for row in rows if tags.get(row["slug"]) != row["content_tag"]]

    if rows:
        update_rows(workspace.lake, "source_files", {"slug": [*files]}, build)
    return [file for file, _ in files.values()]


def _archive_rows(workspace: Workspace, crawl: str) -> Sequence[dict[str, str | None]]:
    rows = workspace.lake.read("source_files", {"crawl": crawl}).to_pylist()
    return sorted((row for row in rows if row["source_kind"] == ARCHIVE), key=lambda row: row["source_file"])


def _location(text: str) -> str:
    """Returns the location of a named file: an address (of this machine too), or a key of the source."""
    path = Path(text).expanduser()
    if path.is_file():
        return path.absolute().as_uri()
    if path.is_absolute():
        raise UserInputError(f"{text} is not a file on this machine")
    try:
        # an address of Common Crawl's own bucket is a key, valid at any source of its data
        return current_key(text)
    except DataFault as fault:
        if scheme_of(text) not in ("http", "https", "s3"):
            raise UserInputError(
                f"{redact_address(text)!r} is neither a file on this machine nor a key of the source: {fault.reason}"
            ) from None
    if holds_access(text):
        raise UserInputError(
            f"{redact_address(text)!r} has credentials or a query in it, which would be stored with every capture; "
            "download the file, or name it without them"
        )
    return text


def _content_tag(workspace: Workspace, crawl: str, location: str) -> str | None:
    """Returns the version of a file's content, its size and ETag; ``None`` if there is no such file."""
    try:
        info = workspace.archives(crawl).head(location)
    except RangeFault as fault:
        raise EnvironmentFault(
            f"{redact_address(location)} cannot be read ({fault.kind.value}: {fault.detail})",
            "Check the address and the network, then run the command again.",
        ) from fault
    return None if info is None else f"{info.size} {info.etag or ''}".strip()


def store_user_list(settings: Settings, crawl_id: str, data: bytes, name: str, max_files: int) -> int:
    """Stores ``data`` in the home and returns the number of its keys: index files of ``crawl_id``, one per line
    (gzipped or not). It replaces an earlier list. ``name`` is the name of the file in messages.

    Raises ``UserInputError`` for a malformed list, and for one with files of another crawl.
    """
    crawl = validate_crawl_id(crawl_id)
    try:
        keys = (
            parse_path_list(data, name, max_lines=max_files)
            if data[:2] == b"\x1f\x8b"
            else parse_keys([data], name, max_lines=max_files)
        )
        files = [IndexFile.from_path(key) for key in keys]
    except DataFault as fault:
        raise UserInputError(f"{name} must have the key of one index file per line: {fault}") from fault
    other_crawls = sorted({file.crawl for file in files} - {crawl})
    if other_crawls or not files:
        problem = f"has files of {', '.join(other_crawls[:3])}" if other_crawls else "names no file"
        raise UserInputError(f"{name} {problem}, not only index files of {crawl}")
    path = _path(settings, crawl)
    with disk_trouble(path):
        write_whole(path, zlib.compress("".join(f"{key}\n" for key in keys).encode(), wbits=31), durable=True)
    return len(files)


def read_user_list(settings: Settings, crawl: str) -> bytes | None:
    """Returns the user's list as a gzipped path list; ``None`` if there is none, so that the source's own counts.
    Raises ``EnvironmentFault`` if it cannot be read."""
    path = _path(settings, crawl)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(
            f"{path}, the list of index files of {crawl}, cannot be read: {error.strerror or error}",
            advise(
                "index harvest",
                crawl=crawl,
                index_files="FILE",
                sentence="Check the file's permissions, or give the list again: {}",
            ),
        ) from error


def first_user_key(settings: Settings, crawl: str) -> str | None:
    """Returns an index file that a source with this crawl has, if the user listed its files."""
    data = read_user_list(settings, crawl)
    return parse_path_list(data)[0] if data is not None else None


def _path(settings: Settings, crawl: str) -> Path:
    return settings.home / "path_lists" / f"{crawl}.cc-index-table.paths.gz"
