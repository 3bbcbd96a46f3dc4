"""Atomic files and folders: they are written under a temporary name in the same folder, then renamed, so that a killed
process leaves no partial ones. With ``durable`` they also survive a power cut.

The leftover of a killed process is called ``.NAME.0a1b2c3d.MARK.part``. The mark (``processes.py``) tells it from the
file of a running process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from cc_pipeline.processes import this_process

#: Errors of file systems that cannot sync a folder.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
#: Maximum number of files that are synced one after the other; more are synced in as many threads.
_FEW_SYNCED = 8
#: Names of leftovers; those of DuckDB have a further suffix.
_LEFTOVER_NAME = re.compile(r"\.(.+)\.[0-9a-f]{8}\.([0-9a-f-]+)\.part(?:\.wal|\.tmp)?")


@contextmanager
def written_whole(
    path: Path, *, durable: bool = False, mode: int | None = None, new: bool = False, make_folder: bool = True
) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``. It replaces ``path`` if the block ends without an error.

    ``durable`` files survive a power cut. ``mode`` are the permissions of the file from the start. ``new`` raises
    ``FileExistsError`` if ``path`` exists by then. Raises ``OSError``, also for a device or a pipe (an administrator
    would replace ``/dev/null`` by a file); what was at ``path`` is kept then.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "no file, and not replaced", str(path))
    if make_folder and durable:
        make_durable_folder(path.parent)
    elif make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = _new_temporary_path(path)
    try:
        if mode is not None:
            temporary_path.touch(mode, exist_ok=False)
        yield temporary_path
        if durable:
            sync_file(temporary_path)
        if new:
            os.link(temporary_path, path)
        else:
            os.replace(temporary_path, path)
    finally:
        with suppress(OSError):
            temporary_path.unlink(missing_ok=True)
            temporary_path.with_name(f"{temporary_path.name}.wal").unlink(missing_ok=True)
        shutil.rmtree(temporary_path.with_name(f"{temporary_path.name}.tmp"), ignore_errors=True)
    if durable:
        sync_folder(path.parent)


def write_whole(path: Path, data: bytes | str, *, durable: bool = False) -> None:
    """Writes ``data``, text as UTF-8, by :func:`written_whole`."""
    with written_whole(path, durable=durable) as temporary_path:
        temporary_path.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def folder_written_whole(folder: Path) -> Iterator[Path]:
    """Does the same as :func:`written_whole` for a folder. An old folder is deleted at the end, or kept if the new one
    cannot replace it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary_folder = _new_temporary_path(folder)
    # no name of a leftover: after a kill between the two renames, it is the only complete copy
    earlier_folder = temporary_folder.with_suffix(".before")
    try:
        temporary_folder.mkdir()
        yield temporary_folder
        if folder.exists():
            os.replace(folder, earlier_folder)
        os.replace(temporary_folder, folder)
    finally:
        if earlier_folder.exists() and not folder.exists():
            os.replace(earlier_folder, folder)
        shutil.rmtree(temporary_folder, ignore_errors=True)
        shutil.rmtree(earlier_folder, ignore_errors=True)


def parse_leftover_name(name: str) -> tuple[str, str] | None:
    """Returns the final name of a leftover and the mark of its process; ``None`` if ``name`` is of no leftover."""
    match = _LEFTOVER_NAME.fullmatch(name)
    return match and (match[1], match[2])


def sync(descriptor: int) -> None:
    """Writes an open file, or a folder, to the disk itself. Raises ``OSError``."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        # fsync of macOS leaves data in the disk's cache; some file systems there do not know the other call
        with suppress(OSError):
            fcntl.fcntl(descriptor, full)
            return
    os.fsync(descriptor)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[Path]) -> None:
    """Makes files durable, then their names in their folders. Raises ``OSError``."""
    files = list(paths)
    if len(files) <= _FEW_SYNCED:
        for path in files:
            sync_file(path)
    else:
        with ThreadPoolExecutor(_FEW_SYNCED) as pool:
            for _ in pool.map(sync_file, files):
                pass
    for folder in sorted({path.parent for path in files}):
        sync_folder(folder)


def make_durable_folder(folder: Path) -> None:
    """Makes a folder and its missing parents, durably. Raises ``OSError``."""
    missing_folders = []
    while not folder.is_dir():
        missing_folders.append(folder)
        folder = folder.parent
    for new in reversed(missing_folders):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable (a renamed file is safe only once its folder is on disk), where the file
    system lets folders be synced."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            sync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)


def _new_temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{token_hex(4)}.{this_process()}.part")
