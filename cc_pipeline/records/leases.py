"""Leases: what running fetches hold of a crawl's stored files, so that sweeping leaves those alone.

A lease is a small object ``records/<crawl>/leases/<commit>.json``, written before the fetch looks at any row and
removed after its commit. It first holds everything of the crawl, then the files that the fetch really counts on. The
files that the fetch writes have its commit in their names and are held as well. It is renewed while the fetch runs,
and ends by itself when nobody renews it. They lie in a folder of their own, so that finding them costs one short
listing however many files the crawl has.

Runs and purges have such leases too, ``leases/runs`` and ``leases/purges``, which say whose targets they are about.
Each writes its own lease, and then reads those of the others: so of a run and a purge that begin at the same time at
least one sees the other.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cc_pipeline.atomic import unfinished
from cc_pipeline.errors import CcPipelineError, PlaceFault
from cc_pipeline.locks import SKEW, has_come
from cc_pipeline.processes import is_gone, this_process
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.faults import FaultKind, RangeFault

LEASES = "leases"
#: Where leases lie that are about the targets of any crawl: those of runs, and those of purges.
RUNS, PURGES = f"{LEASES}/runs", f"{LEASES}/purges"
_STOPPED = ".stopped"
#: Seconds for which a lease holds unless it is renewed.
LIFE = 3_600.0
#: Seconds after which nobody counts on a lease that was left by a process of which nothing is known.
_FORGOTTEN = 7 * 86_400.0
#: Renewals in a row that may fail before the lease ends.
_RENEWALS = 6
_LARGEST = 64 << 20


class LeaseRanOut(PlaceFault):
    """This process was stopped for longer than its lease holds, so it commits nothing more."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease as others read it. ``files`` is ``None`` where it holds everything of the crawl, ``targets`` (slugs of
    what is being fetched) where it does not say. ``crawls`` are those of a run, ``holder`` names its process, and
    ``is_gone`` says that this has surely ended."""

    key: str
    commit: str
    files: frozenset[str] | None
    targets: frozenset[str] | None = None
    crawls: frozenset[str] = frozenset()
    holder: str = ""
    is_gone: bool = False

    def holds(self, file: str) -> bool:
        """Whether the stored file must stay."""
        return self.files is None or file in self.files or f"-{self.commit}-" in file.rpartition("/")[2]

    def is_about(self, slugs: Collection[str]) -> bool:
        """Whether any of these targets may be among its own."""
        return self.targets is None or not self.targets.isdisjoint(slugs)


class Lease:
    """A lease of this process on files of ``crawl``, to fetch ``targets``; or one in another ``folder``, which is about
    ``targets`` in ``crawls``. ``clock`` gives seconds since the epoch."""

    def __init__(
        self,
        storage: RecordStorage,
        crawl: str,
        commit: str,
        clock: Callable[[], float] = time.time,
        targets: Iterable[str] = (),
        *,
        folder: str = "",
        crawls: Iterable[str] = (),
    ) -> None:
        self.key = f"{folder or _folder(storage, crawl)}/{commit}.json"
        self._storage = storage
        self._targets = sorted(targets)
        self._crawls = sorted(crawls)
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[str] | None = None
        self._expires: float | None = None

    def renew(self) -> None:
        """Writes the lease, so that it holds for ``LIFE`` seconds from now. Raises ``EnvironmentFault``, also where it
        ran out before: others may have gone by that."""
        with self._lock:
            if self._expires is not None:
                self.confirm()
            expires = self._clock() + LIFE
            content = {
                "process": this_process(),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "expires": expires,
                "files": self._files,
                "targets": self._targets,
                "crawls": self._crawls,
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
        """Raises ``LeaseRanOut`` where the lease ran out, as when the machine slept: what it held may be gone."""
        if self._expires is None or self._clock() >= self._expires:
            raise LeaseRanOut(
                f"this run was stopped for so long that its lease {self.key} ran out: upkeep may have deleted what it "
                "counts on, or a purge begun, so it commits nothing more",
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
    with _kept(Lease(storage, crawl, commit, targets=targets)) as file_lease:
        yield file_lease


@contextmanager
def lease_of(
    storage: RecordStorage, folder: str, targets: Iterable[str], crawls: Iterable[str] = ()
) -> Iterator[Lease]:
    """A lease in ``folder`` (``RUNS`` or ``PURGES``) about ``targets`` (slugs) that is renewed until the end of the
    block. Look for those of others only inside it. Raises ``EnvironmentFault`` where the lease cannot be written."""
    with _kept(Lease(storage, "", uuid.uuid4().hex, targets=targets, folder=folder, crawls=crawls)) as file_lease:
        yield file_lease


@contextmanager
def _kept(file_lease: Lease) -> Iterator[Lease]:
    file_lease.renew()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(LIFE / _RENEWALS):
            try:
                file_lease.renew()
            except LeaseRanOut:
                return
            except CcPipelineError:
                # tried again long before the lease runs out; ``confirm`` finds one that did
                continue

    keeper = threading.Thread(target=keep, name="cc-pipeline-lease", daemon=True)
    keeper.start()
    try:
        yield file_lease
    finally:
        ended.set()
        keeper.join()
        # one that cannot be removed ends by itself
        with suppress(CcPipelineError):
            file_lease.end()


def living(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[Holding]:
    """The leases on a crawl that hold now. Raises ``EnvironmentFault`` where they cannot be read."""
    return [holding for holding, is_active in _read(storage, _folder(storage, crawl), clock) if is_active]


def leases_of(
    storage: RecordStorage, folder: str, clock: Callable[[], float] = time.time
) -> tuple[list[Holding], list[Holding]]:
    """The leases in ``folder`` (``RUNS`` or ``PURGES``) that hold now, and those that were left: of processes that are
    gone, or that were stopped and may go on. Raises ``EnvironmentFault`` where they cannot be read."""
    readings = list(_read(storage, folder, clock))
    return [holding for holding, is_active in readings if is_active], [
        holding for holding, is_active in readings if not is_active
    ]


def stop_note(storage: RecordStorage, crawl: str, commit: str) -> str:
    """The key of the note that has all workers of a fetch stop asking its source."""
    return f"{storage.folder(crawl)}/{LEASES}/{commit}{_STOPPED}"


def left_behind(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[str]:
    """Keys of leases, of halves of them and of notes to stop, whose process is gone or which ran out."""
    listing = _listed(storage, _folder(storage, crawl))
    halves = [lease_file.key for lease_file in listing if is_half_of_gone(lease_file.key)]
    readings = list(_read(storage, _folder(storage, crawl), clock))
    alive = {holding.commit for holding, is_active in readings if is_active}
    stopped = {
        lease_file.key.rpartition("/")[2].removesuffix(_STOPPED): lease_file.key
        for lease_file in listing
        if lease_file.key.endswith(_STOPPED)
    }
    ended_notes = [stopped[commit] for commit in sorted(stopped.keys() - alive)]
    return [holding.key for holding, is_active in readings if not is_active] + halves + ended_notes


def forget_ended(storage: RecordStorage, clock: Callable[[], float] = time.time) -> int:
    """Removes the leases of runs and purges that killed processes left, also in halves; gives how many. Those of
    processes that may only have been stopped stay for a week. Raises ``EnvironmentFault``."""
    ended_keys: list[str] = []
    for folder in (RUNS, PURGES):
        listing = _listed(storage, folder)
        old = {lease_file.key for lease_file in listing if clock() - lease_file.modified >= _FORGOTTEN}
        ended_keys += [lease_file.key for lease_file in listing if is_half_of_gone(lease_file.key)]
        ended_keys += [
            lease_file.key
            for lease_file in leases_of(storage, folder, clock)[1]
            if lease_file.is_gone or lease_file.key in old
        ]
    forget(storage, ended_keys)
    return len(ended_keys)


def forget(storage: RecordStorage, keys: Sequence[str]) -> None:
    """Removes what :func:`left_behind` gave."""
    for key in keys:
        storage.transport.delete(key)


def is_half_of_gone(key: str) -> bool:
    """Whether the key is a file that a process which is gone had begun to write."""
    part_file = unfinished(key.rpartition("/")[2])
    return part_file is not None and is_gone(part_file[1]) is True


def _folder(storage: RecordStorage, crawl: str) -> str:
    return f"{storage.folder(crawl)}/{LEASES}"


def _listed(storage: RecordStorage, folder: str) -> list[Listed]:
    return storage.transport.listing(f"{folder}/")


def _read(storage: RecordStorage, folder: str, clock: Callable[[], float]) -> Iterator[tuple[Holding, bool]]:
    """Every lease in a folder, and whether it still holds."""
    for lease_file in _listed(storage, folder):
        if not lease_file.key.endswith(".json"):
            continue
        commit = lease_file.key.rpartition("/")[2].removesuffix(".json")
        try:
            data = storage.transport.read_all(lease_file.key, limit=_LARGEST).data
        except RangeFault as fault:
            if fault.kind is FaultKind.NOT_FOUND:
                continue  # its fetch has ended in this moment, and what it committed names its files
            raise
        try:
            content = json.loads(data)
            process, expires = str(content["process"]), float(content["expires"])
            holder = f"process {content.get('pid')} of {content.get('host')}"
            files, targets = _names(content["files"]), _names(content.get("targets"))
            crawls = _names(content.get("crawls")) or frozenset()
        except (ValueError, KeyError, TypeError, AttributeError):
            # not as we write it: it holds everything, for as long as any
            process, expires, holder, files, targets, crawls = "", 0.0, "", None, None, frozenset()
        # the place's own clock counts too, since the writer's may be wrong; what nobody can have written yet does not
        now = clock()
        until = max((end for end in (expires, lease_file.modified + LIFE) if has_come(end, now + LIFE)), default=0.0)
        ended = is_gone(process) is True
        yield Holding(lease_file.key, commit, files, targets, crawls, holder, ended), now < until + SKEW and not ended


def _names(names: object) -> frozenset[str] | None:
    return frozenset(map(str, names)) if isinstance(names, list) else None
