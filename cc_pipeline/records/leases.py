"""Leases: what running fetches hold of a crawl's stored files, so that sweeping leaves those alone.

A lease is a small object ``records/<crawl>/leases/<commit>.json``, written before the fetch looks at any row and
removed after its commit. It first holds everything of the crawl, then the files that the fetch really counts on. The
files that the fetch writes have its commit in their names and are held as well. It is renewed while the fetch runs,
and ends by itself when nobody renews it. They lie in a folder of their own, so that finding them costs one short
listing however many files the crawl has.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cc_pipeline.atomic import unfinished
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault
from cc_pipeline.locks import SKEW, has_come
from cc_pipeline.processes import is_gone, this_process
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.faults import FaultKind, RangeFault

LEASES = "leases"
_STOPPED = ".stopped"
#: Seconds for which a lease holds unless it is renewed.
LIFE = 3_600.0
#: Renewals in a row that may fail before the lease ends.
_RENEWALS = 6
_LARGEST = 64 << 20


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease as others read it. ``files`` is ``None`` where it holds everything of the crawl, ``targets`` (slugs of
    what is being fetched) where it does not say."""

    key: str
    commit: str
    files: frozenset[str] | None
    targets: frozenset[str] | None = None

    def holds(self, file: str) -> bool:
        """Whether the stored file must stay."""
        return self.files is None or file in self.files or f"-{self.commit}-" in file.rpartition("/")[2]


class Lease:
    """A lease of this process, to fetch ``targets``. ``clock`` gives seconds since the epoch."""

    def __init__(
        self,
        storage: RecordStorage,
        crawl: str,
        commit: str,
        clock: Callable[[], float] = time.time,
        targets: Iterable[str] = (),
    ) -> None:
        self.key = f"{storage.folder(crawl)}/{LEASES}/{commit}.json"
        self._storage = storage
        self._targets = sorted(targets)
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[str] | None = None
        self._expires = 0.0

    def renew(self) -> None:
        """Writes the lease, so that it holds for ``LIFE`` seconds from now. Raises ``EnvironmentFault``."""
        with self._lock:
            expires = self._clock() + LIFE
            content = {
                "process": this_process(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "expires": expires,
                "files": self._files,
                "targets": self._targets,
            }
            try:
                self._storage.transport.put(self.key, json.dumps(content).encode())
            except OSError as error:
                raise PlaceFault(
                    f"{self.key} cannot be written: {error.strerror or error}", "Check the place and its free space."
                ) from error
            self._expires = expires

    def hold(self, files: Iterable[str]) -> None:
        """Holds these files, and those of its own commit, instead of everything of the crawl."""
        with self._lock:
            self._files = sorted(set(files))
        self.renew()

    def confirm(self) -> None:
        """Raises ``EnvironmentFault`` where the lease ran out, as when the machine slept: what it held may be gone."""
        if self._clock() >= self._expires:
            raise EnvironmentFault(
                f"this run was stopped for so long that its lease {self.key} ran out, and upkeep may have deleted what "
                "it counts on",
                "Run it again: what was fetched is kept and taken over.",
            )

    def end(self) -> None:
        """Removes the lease."""
        self._storage.transport.delete(self.key)


@contextmanager
def lease(storage: RecordStorage, crawl: str, commit: str, targets: Iterable[str] = ()) -> Iterator[Lease]:
    """A lease on everything of ``crawl``, to fetch ``targets`` (slugs), that is renewed until the end of the block.

    Read rows only inside the block, and leave it only after the commit. Raises ``EnvironmentFault`` where the lease
    cannot be written.
    """
    mine = Lease(storage, crawl, commit, targets=targets)
    mine.renew()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(LIFE / _RENEWALS):
            # one that fails is tried again long before the lease runs out; ``confirm`` finds one that did
            with suppress(CcPipelineError):
                mine.renew()

    keeper = threading.Thread(target=keep, name="cc-pipeline-lease", daemon=True)
    keeper.start()
    try:
        yield mine
    finally:
        ended.set()
        keeper.join()
        # one that cannot be removed ends by itself
        with suppress(CcPipelineError):
            mine.end()


def living(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[Holding]:
    """The leases on a crawl that hold now. Raises ``EnvironmentFault`` where they cannot be read."""
    return [holding for holding, living in _read(storage, crawl, clock) if living]


def stop_note(storage: RecordStorage, crawl: str, commit: str) -> str:
    """The key of the note that has all workers of a fetch stop asking its source."""
    return f"{storage.folder(crawl)}/{LEASES}/{commit}{_STOPPED}"


def left_behind(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[str]:
    """Keys of leases, of halves of them and of notes to stop, whose process is gone or which ran out."""
    listed = _listed(storage, crawl)
    halves = [one.key for one in listed if is_half_of_gone(one.key)]
    found = list(_read(storage, crawl, clock))
    alive = {holding.commit for holding, living in found if living}
    stopped = {
        one.key.rpartition("/")[2].removesuffix(_STOPPED): one.key for one in listed if one.key.endswith(_STOPPED)
    }
    over = [stopped[commit] for commit in sorted(stopped.keys() - alive)]
    return [holding.key for holding, living in found if not living] + halves + over


def forget(storage: RecordStorage, keys: Sequence[str]) -> None:
    """Removes what :func:`left_behind` gave."""
    for key in keys:
        storage.transport.delete(key)


def is_half_of_gone(key: str) -> bool:
    """Whether the key is a file that a process which is gone had begun to write."""
    left = unfinished(key.rpartition("/")[2])
    return left is not None and is_gone(left[1]) is True


def _listed(storage: RecordStorage, crawl: str) -> list[Listed]:
    return storage.transport.listing(f"{storage.folder(crawl)}/{LEASES}/")


def _read(storage: RecordStorage, crawl: str, clock: Callable[[], float]) -> Iterator[tuple[Holding, bool]]:
    """Every lease on a crawl, and whether it still holds."""
    for one in _listed(storage, crawl):
        if not one.key.endswith(".json"):
            continue
        commit = one.key.rpartition("/")[2].removesuffix(".json")
        try:
            data = storage.transport.read_all(one.key, limit=_LARGEST).data
        except RangeFault as fault:
            if fault.kind is FaultKind.NOT_FOUND:
                continue  # its fetch has ended in this moment, and what it committed names its files
            raise
        try:
            content = json.loads(data)
            process, expires = str(content["process"]), float(content["expires"])
            held, targets = _names(content["files"]), _names(content.get("targets"))
        except (ValueError, KeyError, TypeError):
            # not as we write it: it holds everything, for as long as any
            process, expires, held, targets = "", 0.0, None, None
        # the place's own clock counts too, since the writer's may be wrong; what nobody can have written yet does not
        now = clock()
        until = max((end for end in (expires, one.modified + LIFE) if has_come(end, now + LIFE)), default=0.0)
        yield Holding(one.key, commit, held, targets), now < until + SKEW and is_gone(process) is not True


def _names(listed: object) -> frozenset[str] | None:
    return frozenset(map(str, listed)) if isinstance(listed, list) else None
