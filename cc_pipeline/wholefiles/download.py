"""The bytes of a file that is read whole: the file on this disk, or a copy that is deleted after reading."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault, disk_trouble
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange

#: The first record of a WAT or WET file and the header of a SequenceFile are far smaller.
_HEAD = 1 << 16
#: WAT files have some 150 to 400 MB: large enough pieces to be few requests, small enough to try again.
_PIECE = 8 << 20


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A file on this disk, and the bytes and requests it took to download it."""

    path: Path
    bytes: int = 0
    requests: int = 0


def is_local(location: str) -> bool:
    """Whether ``location`` is a path of this machine; keys of the source are never absolute."""
    return location.startswith("/")


def size_and_tag(transport: Transport, location: str) -> tuple[int, str] | None:
    """Size in bytes and the ETag (of a file here: when it was changed), ``None`` where there is no such file.

    ``transport`` leads to the source; a file on this machine does not use it. Raises ``EnvironmentFault`` when the
    source does not say.
    """
    if is_local(location):
        try:
            found = Path(location).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(location, error.strerror or str(error)) from error
        return found.st_size, f"{found.st_mtime_ns:x}"
    info = _asked(transport, location)
    return None if info is None else (info[0], info[1] or str(info[0]))


def read_head(transport: Transport, location: str) -> bytes:
    """The first bytes of a file. Raises ``EnvironmentFault`` when it cannot be read."""
    if is_local(location):
        try:
            with Path(location).open("rb") as file:
                return file.read(_HEAD)
        except OSError as error:
            raise _unreadable(location, error.strerror or str(error)) from error
    info = _asked(transport, location)
    if info is None or not info[0]:
        return b""
    try:
        return transport.read(location, 0, min(_HEAD, info[0])).data
    except RangeFault as fault:
        raise _unreadable(location, str(fault)) from fault


@contextmanager
def local_copy(transport: Transport, location: str, scratch: Path) -> Iterator[LocalCopy]:
    """The file on this disk: itself, or a copy in the folder ``scratch`` that is deleted afterwards.

    Raises ``EnvironmentFault`` when the file is gone, cannot be read, or the disk is full.
    """
    if is_local(location):
        if not Path(location).is_file():
            raise _unreadable(location, "there is no such file")
        yield LocalCopy(Path(location))
        return
    path = scratch / f"source-{time.monotonic_ns()}"
    requests = transport.stats.requests
    try:
        size = _download(transport, location, path)
        yield LocalCopy(path, size, transport.stats.requests - requests)
    finally:
        path.unlink(missing_ok=True)


def _download(transport: Transport, key: str, path: Path) -> int:
    info = _asked(transport, key)
    if info is None:
        raise _unreadable(key, "the source has no such file")
    size, tag = info
    pieces = (ByteRange(key, start, min(_PIECE, size - start), tag, total=size) for start in range(0, size, _PIECE))
    done = 0
    with disk_trouble(path), path.open("wb") as file:
        for piece in transport.read_many(pieces):
            if isinstance(piece, RangeFault):
                raise _unreadable(key, str(piece)) from piece
            file.seek(piece.offset)
            file.write(piece.data)
            done += len(piece.data)
            progress.report("download", done, size)
    return size


def _asked(transport: Transport, key: str) -> tuple[int, str | None] | None:
    try:
        info = transport.head(key)
    except RangeFault as fault:
        raise _unreadable(key, str(fault)) from fault
    if info is None:
        return None
    if info.size is None:
        raise _unreadable(key, "the source does not say how large it is")
    return info.size, info.etag


def _unreadable(location: str, why: str) -> EnvironmentFault:
    return EnvironmentFault(f"{location} cannot be read: {why}", "Check the file or the source, then run it again.")
