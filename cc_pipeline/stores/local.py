"""A local folder that answers like a web server, so that the same code verifies the answers of all stores."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_pipeline.atomic import make_durable_folder, written_whole
from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.answer import Answer, ListedObject, Span

_STATUS_OF_ERRNO: Final = {
    errno.ENOENT: 404,
    errno.ENOTDIR: 404,
    errno.EISDIR: 404,
    errno.ENAMETOOLONG: 404,
    errno.EINVAL: 404,
    errno.ELOOP: 404,
    errno.EACCES: 403,
    errno.EPERM: 403,
}


class LocalStore:
    """Objects are files below ``root``; a key can never name a file outside it by ``..`` or an absolute path. Links are
    followed: they are the choice of whoever made the folder."""

    host = "local"

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().absolute()
        self._prefix = str(self.root) + os.sep

    def path(self, key: str) -> Path:
        """Returns the file of a key. Raises ``UserInputError`` for a key that would leave the root."""
        return Path(self._resolve_key(key))

    def _resolve_key(self, key: str) -> str:
        if not key or key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise UserInputError(f"{key!r} is not a path inside {self.root}")
        return self._prefix + key

    def url(self, key: str) -> str:
        # called for each record: it must not access the disk
        return Path(self._resolve_key(key)).as_uri()

    async def fetch(self, key: str, span: Span | None = None, limit: int = 0, skip: int = 0) -> Answer:
        try:
            descriptor = os.open(self._resolve_key(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return _refusal(error)
        try:
            return _answer(descriptor, span, limit, skip)
        except OSError as error:
            return _refusal(error)
        finally:
            os.close(descriptor)

    async def head(self, key: str) -> Answer:
        try:
            file_status = os.stat(self._resolve_key(key))
        except OSError as error:
            return _refusal(error)
        if not stat.S_ISREG(file_status.st_mode):
            return Answer(404, {}, b"not a regular file")
        return Answer(200, {"content-length": str(file_status.st_size), "etag": _etag(file_status)}, b"")

    async def put(self, key: str, data: bytes | Path, *, only_if_absent: bool = False) -> Answer:
        """Writes under another name, then renames (or links, if the object must be new): no partial object is seen."""
        target = self.path(key)
        # outside of the try: a file in place of a folder is not an existing object
        make_durable_folder(target.parent)
        try:
            with written_whole(target, durable=True, new=only_if_absent, make_folder=False) as temporary:
                if isinstance(data, Path):
                    shutil.copyfile(data, temporary)
                else:
                    temporary.write_bytes(data)
        except FileExistsError:
            return Answer(412, {}, b"the object exists already")
        try:
            return Answer(200, {"etag": _etag(os.stat(target))}, b"")
        except FileNotFoundError:
            return Answer(200, {}, b"")  # another process deleted it since

    async def delete(self, key: str) -> Answer:
        self.path(key).unlink(missing_ok=True)
        return Answer(204, {}, b"")

    def _list(self, prefix: str) -> Iterator[ListedObject]:
        """Yields the files whose key starts with ``prefix``, in key order within each folder."""
        folder = self.root / prefix.rpartition("/")[0]
        for parent, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(parent, name)
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    try:
                        file_status = path.stat()
                    except FileNotFoundError:
                        continue  # renamed or deleted since the folder was read
                    yield ListedObject(key, file_status.st_size, _etag(file_status), file_status.st_mtime)

    async def listing(self, prefix: str) -> tuple[Answer, list[ListedObject]]:
        return Answer(200, {}, b""), list(self._list(prefix))

    async def close(self) -> None:
        """Does nothing: no file is kept open."""


def _etag(file_status: os.stat_result) -> str:
    # without the inode: a moved home keeps the times of its files, and not their inodes
    return f'"{file_status.st_mtime_ns:x}-{file_status.st_size:x}"'


def _refusal(error: OSError) -> Answer:
    status = _STATUS_OF_ERRNO.get(error.errno or 0, 500)
    return Answer(status, {}, (error.strerror or str(error)).encode())


def _answer(descriptor: int, span: Span | None, limit: int, skip: int) -> Answer:
    file_status = os.fstat(descriptor)
    if not stat.S_ISREG(file_status.st_mode):
        return Answer(404, {}, b"not a regular file")
    size = file_status.st_size
    etag = _etag(file_status)
    if span is None:
        first = skip if skip < size else 0
        body = _read(descriptor, first, min(size - first, limit + 1))
        return Answer(200, {"content-length": str(size), "etag": etag}, body)
    start = max(0, size - span.length) if span.offset is None else span.offset
    stop = min(size, start + span.length)
    if start >= stop:
        return Answer(416, {"content-range": f"bytes */{size}", "etag": etag}, b"")
    body = _read(descriptor, start, stop - start)
    headers = {"content-range": f"bytes {start}-{stop - 1}/{size}", "content-length": str(stop - start), "etag": etag}
    return Answer(206, headers, body)


def _read(descriptor: int, offset: int, length: int) -> bytes:
    body = os.pread(descriptor, length, offset)
    if len(body) == length or not body:
        return body
    parts = [body]
    size = len(body)
    # one pread stops at about 2 GiB on Linux, and may stop early on network file systems
    while size < length and (piece := os.pread(descriptor, length - size, offset + size)):
        parts.append(piece)
        size += len(piece)
    return b"".join(parts)
