"""Index files of a crawl that publishes no list of them: a person names them, and the home keeps the list."""

from __future__ import annotations

import zlib
from pathlib import Path

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import validate_crawl_id
from cc_pipeline.commoncrawl.paths import IndexFile, parse_keys, parse_path_list
from cc_pipeline.errors import DataFault, UserInputError, disk_trouble
from cc_pipeline.settings import Settings


def keep_own_list(settings: Settings, crawl_id: str, data: bytes, name: str, most: int) -> int:
    """Keeps ``data``, the keys of index files of ``crawl_id`` one a line (gzipped or not), in the home, in the place of
    a list of before; gives their number. ``name`` is the file that messages name.

    Raises ``UserInputError`` for what is no such list, and for one with files of another crawl.
    """
    crawl = validate_crawl_id(crawl_id)
    try:
        keys = (
            parse_path_list(data, name, most=most) if data[:2] == b"\x1f\x8b" else parse_keys([data], name, most=most)
        )
        files = [IndexFile.from_path(key) for key in keys]
    except DataFault as fault:
        raise UserInputError(f"{name} has the key of an index file on each line, or it is no list: {fault}") from fault
    others = sorted({file.crawl for file in files} - {crawl})
    if others or not files:
        what = f"has files of {', '.join(others[:3])}" if others else "names no file"
        raise UserInputError(f"{name} {what}, not only index files of {crawl}")
    path = _path(settings, crawl)
    with disk_trouble(path):
        write_whole(path, zlib.compress("".join(f"{key}\n" for key in keys).encode(), wbits=31), durable=True)
    return len(files)


def own_list(settings: Settings, crawl: str) -> bytes | None:
    """The list that a person named, as a gzipped path list; ``None`` where the source's own counts."""
    try:
        return _path(settings, crawl).read_bytes()
    except OSError:
        return None


def first_own_key(settings: Settings, crawl: str) -> str | None:
    """An index file that a source with this crawl has, where a person named its files."""
    data = own_list(settings, crawl)
    return parse_path_list(data)[0] if data is not None else None


def _path(settings: Settings, crawl: str) -> Path:
    return settings.home / "path_lists" / f"{crawl}.cc-index-table.paths.gz"
