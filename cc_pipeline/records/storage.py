"""Where stored records lie: files below ``records/`` in the lake's root, a folder or an S3 prefix.

A file is written under ``open/`` on the local disk and moved (or uploaded) to its place when it is complete.
Beside each file lies a journal, one JSON row per record, until the rows are in the lake's table.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.stores.local import LocalStore, sync_folder
from cc_pipeline.transport.client import Transport

JOURNAL_SUFFIX = ".rows.jsonl"
_CRAWL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")


class RecordShelf:
    """The stored records of one lake. ``spool`` is the local folder for open files when the lake is not local.

    Every method raises ``EnvironmentFault`` when the disk or the bucket refuses.
    """

    def __init__(
        self,
        root: str,
        *,
        spool: Path | None = None,
        s3_endpoint: str | None = None,
        s3_region: str | None = None,
        s3_anonymous: bool = False,
    ) -> None:
        self.root = root
        self.transport = Transport(
            root, s3_endpoint=s3_endpoint, s3_region=s3_region, s3_anonymous=s3_anonymous, concurrency=32
        )
        store = self.transport.store
        self._local = store if isinstance(store, LocalStore) else None
        if self._local is None and spool is None:
            raise UserInputError(f"stored records of {root} need a local folder for the files being written")
        self._spool = spool

    def __enter__(self) -> RecordShelf:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self.transport.close()

    def folder(self, crawl: str) -> str:
        """The key prefix of a crawl's files, without a slash at its end."""
        if not _CRAWL.match(crawl):
            raise UserInputError(f"{crawl!r} cannot name a folder")
        return f"records/{crawl}"

    def open_folder(self, crawl: str) -> Path:
        """Where files of a crawl are written; on the same file system as their place when the lake is local."""
        base = self._local.root / self.folder(crawl) if self._local is not None else self._spooled(crawl)
        path = base / "open"
        with disk_trouble(path):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, file: Path, key: str) -> None:
        """Moves a complete file to its place; afterwards it is never changed."""
        with disk_trouble(file):
            if self._local is not None:
                os.replace(file, self._local.path(key))
                sync_folder(self._local.path(key).parent)
            else:
                self.transport.put(key, file)
                file.unlink()

    def holds(self, key: str) -> bool:
        return self.transport.exists(key)

    def journals(self, crawl: str) -> list[str]:
        """Keys of the journals of complete files whose rows may not be in the table yet."""
        prefix = f"{self.folder(crawl)}/"
        return sorted(
            listed.key
            for listed in self.transport.listing(prefix)
            if listed.key.endswith(JOURNAL_SUFFIX) and "/" not in listed.key[len(prefix) :]
        )

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Bytes of a stored file. Raises ``DataFault`` where the file has no such bytes."""
        return self.transport.read(key, offset, length).data

    def _spooled(self, crawl: str) -> Path:
        assert self._spool is not None
        return self._spool / self.folder(crawl)


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Turns what the local disk refuses into an ``EnvironmentFault`` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = f"Check that {path.parent} can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "Free some space; what is complete is kept and the next run goes on from there"
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror or error}", advice) from error
