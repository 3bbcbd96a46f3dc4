"""Sorts any number of byte strings with flat memory: in runs on disk, which are merged.

Not ``lake/ordered.py``, which sorts rows of columns: there 1.5 million keys take as long, and 2.5 times the memory.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from cc_pipeline.errors import EnvironmentFault

_LENGTH = struct.Struct("<I")
#: Overhead in bytes of a byte string in a list.
_OVERHEAD = 41
#: Maximum runs, and so open files, of a merge. As many runs are merged into one.
_MAX_RUNS = 64
#: Bytes of the buffer of each open run.
_BUFFER = 1 << 17


class ExternalSort:
    """Sorts byte strings that are added in any order. A context manager: it deletes its files at the end.

    ``memory`` bounds the strings held at a time, in bytes. Runs are files in a folder of its own below ``scratch``.
    """

    def __init__(self, scratch: Path, memory: int = 32 << 20) -> None:
        self.count = 0
        self._memory = memory
        self._buffered: list[bytes] = []
        self._size = 0
        self._runs: list[Path] = []
        self._number = 0
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            self._folder = tempfile.TemporaryDirectory(prefix="sort-", dir=scratch)
        except OSError as error:
            raise EnvironmentFault(f"cannot write to {scratch}: {error.strerror}", "Choose another folder") from error

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def add(self, item: bytes) -> None:
        """Adds a byte string. Raises ``EnvironmentFault`` if the disk does not take a run."""
        self._buffered.append(item)
        self._size += len(item) + _OVERHEAD
        self.count += 1
        if self._size >= self._memory:
            self._spill()

    def items(self) -> Iterator[bytes]:
        """Yields all strings, sorted as bytes; call it once, after all have been added."""
        self._buffered.sort()
        if not self._runs:
            yield from self._buffered
            return
        with ExitStack() as stack:
            yield from heapq.merge(self._buffered, *(self._read(path, stack) for path in self._runs))

    def _spill(self) -> None:
        self._buffered.sort()
        self._runs.append(self._write(self._buffered))
        self._buffered, self._size = [], 0
        if len(self._runs) >= _MAX_RUNS:
            with ExitStack() as stack:
                merged = self._write(heapq.merge(*(self._read(path, stack) for path in self._runs)))
            for path in self._runs:
                path.unlink()
            self._runs = [merged]

    def _write(self, items: Iterable[bytes]) -> Path:
        self._number += 1
        path = Path(self._folder.name) / f"run-{self._number}"
        try:
            with path.open("wb", buffering=_BUFFER) as out:
                for item in items:
                    out.write(_LENGTH.pack(len(item)) + item)
        except OSError as error:
            raise EnvironmentFault(f"cannot write {path}: {error.strerror}", "Check the disk's free space") from error
        return path

    def _read(self, path: Path, stack: ExitStack) -> Iterator[bytes]:
        file: IO[bytes] = stack.enter_context(path.open("rb", buffering=_BUFFER))
        return _items(file)


def _items(file: IO[bytes]) -> Iterator[bytes]:
    while head := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(head)[0])
