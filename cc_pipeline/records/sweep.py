"""Deletes orphan files: refetching leaves files that no row names. Fetches and other maintenance may run meanwhile.

A file is deleted if no row names it, it has no journal, no active lease protects it, and it was both written and last
noted as superseded longer ago than the retention. An orphan file without a note is noted now, and deleted a retention
later. So nothing is deleted within the retention of being superseded, however old the file is.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cc_pipeline.errors import DataFault, PlaceFault
from cc_pipeline.locks import is_plausible
from cc_pipeline.records.file_leases import is_orphaned_part_file, list_active_leases
from cc_pipeline.records.segments import SUFFIXES, delete_committed
from cc_pipeline.records.storage import JOURNAL_SUFFIX, PLANS, RecordStorage, is_crawl_folder
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange

NOTES = "superseded"
_TIME = "%Y%m%dT%H%M%S.%fZ"

#: Seconds for which a superseded file stays, for readers that opened ``cc.duckdb`` before.
RETENTION_SECONDS = 7 * 86_400.0
#: How often a sweep restarts if rows of its crawl are committed meanwhile.
_TRIES = 5


def note(storage: RecordStorage, crawl: str, files: Iterable[str], now: float) -> None:
    """Writes a note that ``files`` are not needed any more since ``now`` (seconds since the epoch).

    Writes nothing for no files. Raises ``EnvironmentFault``.
    """
    file_names = sorted(set(files))
    if not file_names:
        return
    timestamp = datetime.fromtimestamp(now, UTC).strftime(_TIME)
    key = f"{storage.folder(crawl)}/{NOTES}/{timestamp}-{uuid.uuid4().hex}.json"
    try:
        storage.transport.put(key, json.dumps({"files": file_names}).encode())
    except OSError as error:
        raise PlaceFault(
            f"the list of old record files cannot be written to {key}: {error.strerror or error}",
            "Check that the lake can be written to and has free space, then run the command again.",
        ) from error


def note_time(note_file: ListedObject, now: float) -> float | None:
    """Returns the time of a note (seconds since the epoch): that of its name or of the place's own clock, whichever is
    later, since the writer's clock may be slow. A time after ``now`` does not count; ``None`` if no other is left."""
    try:
        written_at = (
            datetime.strptime(note_file.key.rpartition("/")[2].partition("-")[0], _TIME).replace(tzinfo=UTC).timestamp()
        )
    except ValueError:
        written_at = 0.0
    return max((moment for moment in (written_at, note_file.modified) if is_plausible(moment, now)), default=None)


def last_mentions(
    storage: RecordStorage, notes: Mapping[str, tuple[ListedObject, float]], files: Collection[str]
) -> dict[str, float]:
    """Returns the last time at which each of ``files`` was noted as not needed; files without a note are left out.
    ``notes`` are by key, each with its time.

    A note that is empty or damaged may be about any file, so no file counts as older than it. Raises
    ``EnvironmentFault`` if the place does not answer.
    """
    last: dict[str, float] = {}
    unclear = max((written_at for note_file, written_at in notes.values() if not note_file.size), default=0.0)
    requests = (
        ByteRange(note_file.key, 0, note_file.size, tag=written_at)
        for note_file, written_at in notes.values()
        if note_file.size
    )
    for answer in storage.transport.read_many(requests):
        written_at = answer.tag
        assert isinstance(written_at, float)
        mentioned: Collection[str] | None = None
        if isinstance(answer, RangeFault):
            if answer.kind is FaultKind.NOT_FOUND:
                continue  # another sweep has removed it, and sweeps remove only old notes
            if not isinstance(answer, DataFault):
                raise answer
        else:
            mentioned = _mentioned(answer.data)
        if mentioned is None:
            unclear = max(unclear, written_at)
            continue
        for file in mentioned:
            if file in files:
                last[file] = max(written_at, last.get(file, 0.0))
    return {file: max(written_at, unclear) for file, written_at in last.items()}


def _mentioned(data: bytes) -> list[str] | None:
    try:
        return [str(file) for file in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The stored files that the rows of a crawl name, and the state of the rows, which any commit changes."""

    files: Collection[str]
    state: Hashable


def crawls_with_files(storage: RecordStorage) -> list[str]:
    """Returns the crawls that have a folder of stored files, whether rows name any of them or not."""
    keys = (stored_file.key for stored_file in storage.transport.listing("records/"))
    names = {key.split("/")[1] for key in keys if key.count("/") > 1}
    return sorted(filter(is_crawl_folder, names))


def sweep(
    storage: RecordStorage,
    crawl: str,
    read_named: Callable[[], NamedFiles],
    retention: float = RETENTION_SECONDS,
    clock: Callable[[], float] = time.time,
) -> int:
    """Deletes the stored files of ``crawl`` that nothing needs, and returns their number. ``read_named`` reads the
    files that the rows name now.

    ``retention`` is in seconds; with 0 the place's clock is ignored. If rows of the crawl keep being committed, the
    next sweep deletes the files. Raises ``EnvironmentFault``."""
    for _ in range(_TRIES):
        previous = read_named()
        listing = storage.transport.listing(f"{storage.folder(crawl)}/")
        unneeded = _unneeded(storage, crawl, listing, previous.files)
        holdings = list_active_leases(storage, crawl, clock) if unneeded else []
        # The leases are read between two equal readings of the rows. A fetch writes its lease, reads the rows, commits,
        # and removes its lease. So a fetch that needs an orphan file read the rows before this sweep did, and its lease
        # is among those read here: the lease is removed only after the commit, and then the second reading would
        # differ. A fetch with a later lease reads rows that do not name the file.
        if unneeded and read_named().state != previous.state:
            continue
        free = {
            key: stored_file
            for key, stored_file in unneeded.items()
            if not any(holding.holds(key) for holding in holdings)
        }
        return _delete(storage, crawl, free, listing, retention, clock())
    return 0


def _unneeded(
    storage: RecordStorage, crawl: str, listing: list[ListedObject], named_files: Collection[str]
) -> dict[str, ListedObject]:
    """Returns the data files that no row names and that have no journal, which a later run would adopt."""
    prefix = f"{storage.folder(crawl)}/"
    # a journal may still be in its open folder (for a bucket: on this machine) although its data was moved
    journals = {
        stored_file.key.rpartition("/")[2] for stored_file in listing if stored_file.key.endswith(JOURNAL_SUFFIX)
    }
    journals |= {path.name for path in storage.open_folder(crawl).glob("*" + JOURNAL_SUFFIX)}
    return {
        stored_file.key: stored_file
        for stored_file in listing
        if "/" not in stored_file.key[len(prefix) :]
        and stored_file.key.endswith(tuple(SUFFIXES.values()))
        and stored_file.key not in named_files
        and stored_file.key[len(prefix) :] + JOURNAL_SUFFIX not in journals
    }


def _delete(
    storage: RecordStorage,
    crawl: str,
    free: dict[str, ListedObject],
    listing: list[ListedObject],
    retention: float,
    now: float,
) -> int:
    """Deletes those ``free`` files that were not needed for the ``retention``, and notes that are no longer needed.
    Returns the number of deleted files."""
    notes = _list_notes(storage, crawl, listing)
    dated = {
        stored_file.key: (stored_file, written_at)
        for stored_file in notes
        if (written_at := note_time(stored_file, now)) is not None
    }
    since = last_mentions(storage, dated, free) if free else {}
    # files that only notes without a time mention are noted again, with the current time
    note(storage, crawl, [key for key in free if key not in since], now)
    due = [
        stored_file
        for key, stored_file in free.items()
        if retention <= 0 or now - _last_need(stored_file, since.get(key, now), now) >= retention
    ]
    for stored_file in due:
        storage.transport.delete(stored_file.key)
    # after the files: a sweep that is killed in between finds the notes again
    old = [
        stored_file.key
        for stored_file in notes
        if stored_file.key not in dated or now - dated[stored_file.key][1] >= retention
    ]
    for key in (*old, *_find_leftovers(storage, crawl, listing, now)):
        storage.transport.delete(key)
    delete_committed(storage, crawl, now - RETENTION_SECONDS)
    return len(due)


def _last_need(stored_file: ListedObject, last_mention: float, now: float) -> float:
    """Returns the last time at which a file was named or written, as far as that is known."""
    return max(last_mention, stored_file.modified) if is_plausible(stored_file.modified, now) else last_mention


def _list_notes(storage: RecordStorage, crawl: str, listing: list[ListedObject]) -> list[ListedObject]:
    prefix = f"{storage.folder(crawl)}/{NOTES}/"
    return [
        stored_file
        for stored_file in listing
        if stored_file.key.startswith(prefix) and stored_file.key.endswith(".json")
    ]


def _find_leftovers(storage: RecordStorage, crawl: str, listing: list[ListedObject], now: float) -> list[str]:
    """Returns parts of notes that were never completed, and the plans that a killed driver made for its workers."""
    notes, plans = (f"{storage.folder(crawl)}/{folder}/" for folder in (NOTES, PLANS))
    return [
        stored_file.key
        for stored_file in listing
        if (stored_file.key.startswith(notes) and is_orphaned_part_file(stored_file.key))
        or (stored_file.key.startswith(plans) and now - stored_file.modified >= RETENTION_SECONDS)
    ]
