"""File leases: they protect the stored files that running fetches need from a sweep.

A lease is a small object ``records/<crawl>/leases/<commit>.json``, written before the fetch reads any row and removed
after its commit. It first protects all files of the crawl, then only the files that the fetch needs. Files that the
fetch writes have its commit in their names and are protected too. The lease is renewed while the fetch runs, and
expires if nobody renews it, as when the machine slept. It is taken again if nobody acted on that. Leases have a folder
of their own, so that one short listing finds them however many files the crawl has.

A lease names the targets that are fetched. A purge takes the epoch of its target away and then reads the leases; a
fetch writes its lease and then reads the epochs. So at least one of them sees the other."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cc_pipeline.atomic import parse_leftover_name
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import CcPipelineError, PlaceFault
from cc_pipeline.locks import MAX_CLOCK_SKEW, is_plausible
from cc_pipeline.processes import has_ended, this_process
from cc_pipeline.records.storage import MISSING_SIZE, RecordStorage, StoredSizes
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.faults import FaultKind, RangeFault

LEASES = "leases"
_STOPPED = ".stopped"
#: Seconds for which a lease is valid without renewal.
LIFE = 3_600.0
#: Renewals in a row that may fail before the lease expires.
_RENEWALS = 6
_LARGEST = 64 << 20


class LeaseExpired(PlaceFault):
    """Others acted on the lease of this process, which was suspended for longer than it is valid: it commits nothing
    more."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease as other processes read it. ``files`` is ``None`` if it protects all files of the crawl. ``targets`` are
    slugs, ``None`` if the lease does not name them."""

    key: str
    commit: str
    files: frozenset[str] | None
    targets: frozenset[str] | None = None

    def holds(self, file: str) -> bool:
        """Whether the lease protects the stored file."""
        return self.files is None or file in self.files or f"-{self.commit}-" in file.rpartition("/")[2]

    def concerns(self, slugs: Collection[str]) -> bool:
        """Whether any of these targets, or a part or subset of one, may be among the lease's targets."""
        return self.targets is None or not {*map(whole_slug, self.targets)}.isdisjoint(slugs)


class FileLease:
    """A lease of this process on files of ``crawl``, to fetch ``targets``. ``clock`` returns seconds since the epoch.

    An expired lease can be taken again while all files that it names exist.
    """

    def __init__(
        self,
        storage: RecordStorage,
        crawl: str,
        commit: str,
        clock: Callable[[], float] = time.time,
        targets: Iterable[str] = (),
    ) -> None:
        self.key = f"{_folder(storage, crawl)}/{commit}.json"
        self._storage = storage
        self._crawl = crawl
        self._targets = sorted(targets)
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
            self._refuse_expired(self._has_files)
            self._expires = expires

    def _refuse_expired(self, is_intact: Callable[[], bool]) -> None:
        if self.has_expired() and not is_intact():
            raise LeaseExpired(
                f"this run was suspended for so long that its lease {self.key} expired: maintenance may have deleted "
                "files that it needs, so it commits nothing more",
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
    file_lease = FileLease(storage, crawl, commit, targets=targets)
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
            files, targets = _names(content["files"]), _names(content.get("targets"))
        except (ValueError, KeyError, TypeError, AttributeError):
            # unknown content protects all files, for as long as any lease
            process, expires, files, targets = "", 0.0, None, None
        # the place's own clock counts too, since the writer's may be wrong; a time in the future does not
        now = clock()
        until = max(
            (end for end in (expires, lease_file.modified + LIFE) if is_plausible(end, now + LIFE)), default=0.0
        )
        is_active = now < until + MAX_CLOCK_SKEW and has_ended(process) is not True
        yield Holding(lease_file.key, commit, files, targets), is_active


def _names(names: object) -> frozenset[str] | None:
    return frozenset(map(str, names)) if isinstance(names, list) else None
