"""File leases: they protect the stored files that running fetches need from a sweep.

A lease is a small object ``records/<crawl>/leases/<commit>.json``, written before the fetch reads any row and removed
after its commit. It first protects all files of the crawl, then only the files that the fetch needs. Files that the
fetch writes have its commit in their names and are protected too. The lease is renewed while the fetch runs, and
expires if nobody renews it, as when the machine slept. It is taken again if nobody acted on that. Leases have a folder
of their own, so that one short listing finds them however many files the crawl has.

Runs and purges have such leases too, in ``leases/runs`` and ``leases/purges``, with the names of their targets. Each
writes its own lease and then reads the others. So if a run and a purge start at the same time, at least one of them
sees the other.
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

from cc_pipeline.atomic import parse_leftover_name
from cc_pipeline.errors import CcPipelineError, PlaceFault
from cc_pipeline.locks import MAX_CLOCK_SKEW, is_plausible
from cc_pipeline.processes import has_ended, this_process
from cc_pipeline.records.storage import MISSING_SIZE, RecordStorage, StoredSizes
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.faults import FaultKind, RangeFault

LEASES = "leases"
#: The folders of leases on targets of any crawl: those of runs, and those of purges.
RUNS, PURGES = f"{LEASES}/runs", f"{LEASES}/purges"
_STOPPED = ".stopped"
#: Seconds for which a lease is valid without renewal.
LIFE = 3_600.0
#: Seconds after which the expired lease of an unknown process is removed.
_ABANDONED_AFTER = 7 * 86_400.0
#: Renewals in a row that may fail before the lease expires.
_RENEWALS = 6
_LARGEST = 64 << 20


class LeaseExpired(PlaceFault):
    """Others acted on the lease of this process, which was suspended for longer than it is valid: it commits nothing
    more."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease as other processes read it. ``files`` is ``None`` if it protects all files of the crawl. ``targets`` are
    slugs, ``None`` if the lease does not name them. ``crawls`` are those of a run, ``holder`` names its process, and
    ``is_process_dead`` says that the process has certainly ended."""

    key: str
    commit: str
    files: frozenset[str] | None
    targets: frozenset[str] | None = None
    crawls: frozenset[str] = frozenset()
    holder: str = ""
    is_process_dead: bool = False

    def holds(self, file: str) -> bool:
        """Whether the lease protects the stored file."""
        return self.files is None or file in self.files or f"-{self.commit}-" in file.rpartition("/")[2]

    def concerns(self, slugs: Collection[str]) -> bool:
        """Whether any of these targets may be among the lease's targets."""
        return self.targets is None or not self.targets.isdisjoint(slugs)


class FileLease:
    """A lease of this process on files of ``crawl``, to fetch ``targets``; or a lease in another ``folder`` on
    ``targets`` in ``crawls``. ``clock`` returns seconds since the epoch.

    ``is_intact`` decides whether the expired lease can be taken again; as a rule, if all files that it names exist.
    """

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
        self.is_intact: Callable[[], bool] = self._has_files
        self._storage = storage
        self._crawl = crawl
        self._targets = sorted(targets)
        self._crawls = sorted(crawls)
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[str] | None = None
        self._expires: float | None = None

    def renew(self) -> None:
        """Writes the lease, valid for ``LIFE`` seconds from now. Raises ``EnvironmentFault``, and ``LeaseExpired`` if
        the lease had expired and others may have acted on that."""
        with self._lock:
            # a fetch that adopted the records of this one removed its lease
            self._refuse_expired(lambda: self._storage.holds(self.key))
            expires = self._clock() + LIFE
            self._write(expires)
            # others see the lease again before this looks for what they did meanwhile
            self._refuse_expired(self.is_intact)
            self._expires = expires

    def _refuse_expired(self, is_intact: Callable[[], bool]) -> None:
        if self.has_expired() and not is_intact():
            raise LeaseExpired(
                f"this run was suspended for so long that its lease {self.key} expired: maintenance may have deleted "
                "files that it needs, or a purge may have started, so it commits nothing more",
                "Run it again: fetched records are kept and used.",
            )

    def _write(self, expires: float) -> None:
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
                "the note that protects the files of this command from deletion cannot be written to "
                f"{self.key}: {error.strerror or error}",
                "Check that the lake can be written to and has free space, then run the command again.",
            ) from error

    def hold(self, files: Iterable[str]) -> None:
        """Protects these files, and those of its own commit, instead of all files of the crawl."""
        with self._lock:
            self._files = sorted(set(files))
        self.renew()

    def confirm(self) -> None:
        """Takes the lease again if it expired. Raises as :meth:`renew` does."""
        if self.has_expired():
            self.renew()

    def has_expired(self) -> bool:
        """Whether nobody renewed the lease in time, as when the machine slept."""
        return self._expires is not None and self._clock() >= self._expires

    def _has_files(self) -> bool:
        return self._files is not None and MISSING_SIZE not in StoredSizes(self._storage, self._crawl).sizes_of(
            self._files
        )

    def end(self) -> None:
        """Removes the lease."""
        self._storage.transport.delete(self.key)


@contextmanager
def lease(storage: RecordStorage, crawl: str, commit: str, targets: Iterable[str] = ()) -> Iterator[FileLease]:
    """Opens a lease on all files of ``crawl``, to fetch ``targets`` (slugs). It is renewed until the end of the block.

    Read rows only inside the block, and leave it only after the commit. Raises ``EnvironmentFault`` if the lease cannot
    be written.
    """
    with _keep_renewed(FileLease(storage, crawl, commit, targets=targets)) as file_lease:
        yield file_lease


@contextmanager
def lease_of(
    storage: RecordStorage, folder: str, targets: Iterable[str], crawls: Iterable[str] = ()
) -> Iterator[FileLease]:
    """Opens a lease in ``folder`` (``RUNS`` or ``PURGES``) on ``targets`` (slugs). It is renewed until the end of the
    block. Read the leases of others only inside it. Raises ``EnvironmentFault`` if the lease cannot be written."""
    with _keep_renewed(
        FileLease(storage, "", uuid.uuid4().hex, targets=targets, folder=folder, crawls=crawls)
    ) as file_lease:
        yield file_lease


@contextmanager
def _keep_renewed(file_lease: FileLease) -> Iterator[FileLease]:
    file_lease.renew()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(LIFE / _RENEWALS):
            # the next try comes long before the lease expires; ``confirm`` takes an expired one again
            with suppress(CcPipelineError):
                if not file_lease.has_expired():
                    file_lease.renew()

    keeper = threading.Thread(target=keep, name="cc-pipeline-lease", daemon=True)
    keeper.start()
    try:
        yield file_lease
    finally:
        ended.set()
        keeper.join()
        # a lease that cannot be removed expires
        with suppress(CcPipelineError):
            file_lease.end()


def list_active_leases(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[Holding]:
    """Returns the leases on a crawl that are valid now. Raises ``EnvironmentFault`` if they cannot be read."""
    return [holding for holding, is_active in _read(storage, _folder(storage, crawl), clock) if is_active]


def leases_of(
    storage: RecordStorage, folder: str, clock: Callable[[], float] = time.time
) -> tuple[list[Holding], list[Holding]]:
    """Returns the leases in ``folder`` (``RUNS`` or ``PURGES``) that are valid now, and the others: of processes that
    have ended, or that are suspended and may go on. Raises ``EnvironmentFault`` if they cannot be read."""
    readings = list(_read(storage, folder, clock))
    return [holding for holding, is_active in readings if is_active], [
        holding for holding, is_active in readings if not is_active
    ]


def stop_note(storage: RecordStorage, crawl: str, commit: str) -> str:
    """Returns the key of the note that makes all workers of a fetch stop sending requests."""
    return f"{storage.folder(crawl)}/{LEASES}/{commit}{_STOPPED}"


def list_expired_leases(storage: RecordStorage, crawl: str, clock: Callable[[], float] = time.time) -> list[str]:
    """Returns the keys of leases, part files and stop notes whose process has ended or whose lease expired."""
    listing = _list_folder(storage, _folder(storage, crawl))
    halves = [lease_file.key for lease_file in listing if is_orphaned_part_file(lease_file.key)]
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
    """Removes the leases of killed runs and purges, and their part files; returns how many. Leases of processes that
    may only be suspended stay for a week. Raises ``EnvironmentFault``."""
    ended_keys: list[str] = []
    for folder in (RUNS, PURGES):
        listing = _list_folder(storage, folder)
        old = {lease_file.key for lease_file in listing if clock() - lease_file.modified >= _ABANDONED_AFTER}
        ended_keys += [lease_file.key for lease_file in listing if is_orphaned_part_file(lease_file.key)]
        ended_keys += [
            lease_file.key
            for lease_file in leases_of(storage, folder, clock)[1]
            if lease_file.is_process_dead or lease_file.key in old
        ]
    forget(storage, ended_keys)
    return len(ended_keys)


def forget(storage: RecordStorage, keys: Sequence[str]) -> None:
    """Removes the objects that :func:`list_expired_leases` returned."""
    for key in keys:
        storage.transport.delete(key)


def is_orphaned_part_file(key: str) -> bool:
    """Whether the key is the part file of a process that has ended."""
    part_file = parse_leftover_name(key.rpartition("/")[2])
    return part_file is not None and has_ended(part_file[1]) is True


def _folder(storage: RecordStorage, crawl: str) -> str:
    return f"{storage.folder(crawl)}/{LEASES}"


def _list_folder(storage: RecordStorage, folder: str) -> list[ListedObject]:
    return storage.transport.listing(f"{folder}/")


def _read(storage: RecordStorage, folder: str, clock: Callable[[], float]) -> Iterator[tuple[Holding, bool]]:
    """Yields every lease in a folder, and whether it is valid."""
    for lease_file in _list_folder(storage, folder):
        if not lease_file.key.endswith(".json"):
            continue
        commit = lease_file.key.rpartition("/")[2].removesuffix(".json")
        try:
            data = storage.transport.read_all(lease_file.key, limit=_LARGEST).data
        except RangeFault as fault:
            if fault.kind is FaultKind.NOT_FOUND:
                continue  # its fetch has ended in this moment, and its committed rows name its files
            raise
        try:
            content = json.loads(data)
            process, expires = str(content["process"]), float(content["expires"])
            holder = f"process {content.get('pid')} of {content.get('host')}"
            files, targets = _names(content["files"]), _names(content.get("targets"))
            crawls = _names(content.get("crawls")) or frozenset()
        except (ValueError, KeyError, TypeError, AttributeError):
            # unknown content protects all files, for as long as any lease
            process, expires, files, targets, crawls = "", 0.0, None, None, frozenset()
            holder = f"an unknown process, since {lease_file.key} cannot be read"
        # the place's own clock counts too, since the writer's may be wrong; a time in the future does not
        now = clock()
        until = max(
            (end for end in (expires, lease_file.modified + LIFE) if is_plausible(end, now + LIFE)), default=0.0
        )
        ended = has_ended(process) is True
        yield (
            Holding(lease_file.key, commit, files, targets, crawls, holder, ended),
            now < until + MAX_CLOCK_SKEW and not ended,
        )


def _names(names: object) -> frozenset[str] | None:
    return frozenset(map(str, names)) if isinstance(names, list) else None
