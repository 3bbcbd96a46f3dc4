"""The files of a dataset: its path list and its footers, asked for once and kept in the home."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.paths import describe_odd_lines, inflated, listed_keys, refuse_odd_list
from cc_pipeline.errors import DataFault, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.places import keyed_path
from cc_pipeline.extensions.host_facts.shards import Gap
from cc_pipeline.index.catalog.from_footers import footers_digest
from cc_pipeline.index.footers.harvest import FIRST_GUESS, HarvestPolicy, harvest_crawl
from cc_pipeline.index.footers.store import CrawlFooters, FooterStore
from cc_pipeline.lake.streaming import crawls_of
from cc_pipeline.locks import locked
from cc_pipeline.settings import Settings
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.workspace.workspace import Workspace, open_named

#: A path list is asked for again after a day, and, where it lacks the crawl that is asked for, after an hour.
_FRESH: Final = timedelta(days=1)
_HOPEFUL: Final = timedelta(hours=1)
#: A shard that could not be read is asked for again after so long.
_AGAIN: Final = timedelta(minutes=10)
#: Files of a dataset, of all crawls. The host index has 30 a crawl.
_MOST_FILES: Final = 100_000
_CRAWL: Final = re.compile(r"(?:^|/)crawl=([^/]+)/")
#: The name under which footers lie of files that are of no crawl.
_NO_CRAWL: Final = "all"
_CUT: Final = 2**20
#: What is kept of a dataset that this home does not know, nor was asked for in so long, goes.
_UNASKED: Final = timedelta(days=30)
#: A folder of :func:`_folder`: the name of a dataset, and its place.
_KEPT: Final = re.compile(r"(.+)-([0-9a-f]{15})")


@dataclass(frozen=True, slots=True)
class Listed:
    """The Parquet files of a dataset by crawl (``all`` where it has none). ``gaps`` are lines that are no such file."""

    files: dict[str, list[str]]
    gaps: tuple[Gap, ...]
    read_at: datetime
    note: str | None = None

    def of(self, dataset: Dataset, crawl: str) -> list[str]:
        """The files that speak of ``crawl``."""
        return self.files.get(crawl if dataset.by_crawl else _NO_CRAWL, [])


@dataclass(frozen=True, slots=True)
class Shards:
    """The kept ``footers`` of a dataset's files that speak of one crawl; equal ``version``: equal rows.

    ``gaps`` are lines of the path list that are no file of it. ``crawls`` are those that it has.
    """

    paths: tuple[str, ...]
    footers: CrawlFooters
    version: str
    gaps: tuple[Gap, ...]
    crawls: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HarvestPrice:
    """What has to be read of a dataset before a look-up in it: ``files`` whose footers are not here yet."""

    files: int
    requests: int
    bytes: int


@contextmanager
def dataset_transport(workspace: Workspace, dataset: Dataset) -> Iterator[Transport]:
    """A transport to where a dataset lies: the workspace's own for the source, one of its own for another root."""
    if not dataset.root:
        yield workspace.transport
        return
    with open_named(workspace.settings, dataset.root) as transport:
        yield transport


def list_files(workspace: Workspace, dataset: Dataset, crawl: str, reader: Transport) -> Listed:
    """The files of a dataset, from its path list, which is kept for a day.

    Raises ``EnvironmentFault`` where the list cannot be read and no copy of it is here, ``DataFault`` for one that is
    none.
    """
    if dataset.files:
        return _sorted_out(dataset, "files", enumerate(dataset.files), datetime.now(UTC))
    key = dataset.paths.replace("{crawl}", crawl)
    copy = _list_copy(workspace, dataset, key)
    stored_listing = _kept_list(dataset, key, copy)
    now = datetime.now(UTC)
    if stored_listing is not None:
        wait = _FRESH if stored_listing.of(dataset, crawl) else _HOPEFUL
        if timedelta(0) <= now - stored_listing.read_at < wait:
            return stored_listing
    try:
        listing, data = reader.read_parsed(key, lambda data: (_read_list(dataset, key, data, now), data))
    except RangeFault as fault:
        if stored_listing is not None:
            age = (now - stored_listing.read_at) / timedelta(days=1)
            note = f"{key} could not be read ({fault.kind.value}); the copy from {age:.0f} days ago is used instead"
            return replace(stored_listing, note="; ".join(filter(None, (note, stored_listing.note))))
        raise EnvironmentFault(
            f"the path list of the dataset {dataset.name} at {key} could not be read ({fault.kind.value})",
            "The dataset may not be there: check where.paths of its YAML file, the source and the network.",
        ) from fault
    _write(copy, data)
    return listing


def price_harvest(workspace: Workspace, dataset: Dataset, crawl: str) -> HarvestPrice:
    """What reading the footers of a dataset's files about ``crawl`` costs yet; asks for its path list if need be."""
    with dataset_transport(workspace, dataset) as reader:
        listing = list_files(workspace, dataset, crawl, reader)
    paths = listing.of(dataset, crawl)
    footers = _store(workspace, dataset).read(_name(dataset, crawl))
    missing = _missing(footers, paths)
    footer_sizes = [entry.footer_bytes for entry in footers.entries.values() if not entry.failed]
    return HarvestPrice(len(missing), len(missing), len(missing) * (max(footer_sizes) if footer_sizes else FIRST_GUESS))


def harvest_dataset(
    workspace: Workspace, dataset: Dataset, crawl: str, reader: Transport, *, anew: Sequence[str] = ()
) -> Shards:
    """The shards of a dataset about ``crawl``; footers that are not here yet are fetched and kept, one request each,
    and those of files ``anew`` again. Another process that does the same is waited for.

    A shard that stays bad is left out, for ten minutes. Raises ``EnvironmentFault`` when the source fails.
    """
    listing = list_files(workspace, dataset, crawl, reader)
    paths = listing.of(dataset, crawl)
    name, store = _name(dataset, crawl), _store(workspace, dataset)
    with suppress(OSError):
        # asked for now: see forget_unknown
        os.utime(_folder(workspace, dataset))
    footers = store.read(name)
    if anew or _missing(footers, paths):
        with _alone(store.crawl_folder(name)):
            _forget(store, name, anew)
            missing = set(_missing(store.read(name), paths)) | set(anew)
            if missing:
                policy = HarvestPolicy(retry_failed=bool(missing & footers.entries.keys()))
                harvest_crawl(name, paths, reader, store, policy, columns=(dataset.key,), lookup_columns=())
        footers = store.read(name)
    version = _version(dataset, name, paths, footers, store)
    crawls = tuple(sorted(listing.files)) if dataset.by_crawl else ()
    notes = () if listing.note is None else (listing.note,)
    return Shards(tuple(paths), footers, version, listing.gaps, crawls, notes)


def read_ahead(
    workspace: Workspace, dataset: Dataset, reader: Transport, crawls: Sequence[str] = ()
) -> dict[str, Shards]:
    """The shards of a dataset before anybody asks about a target, by crawl: of ``crawls``, or, where none is named, of
    the newest crawl harvested here that it has (else the newest that it has): each has files of its own. A dataset
    whose files are of no crawl is one, under the name ``all``.

    Raises ``UserInputError`` where no crawl can be told, and as :func:`harvest_dataset` does.
    """
    if not _is_split(dataset):
        return {_NO_CRAWL: harvest_dataset(workspace, dataset, "", reader)}
    if not crawls:
        # of the ARC years there is an index of another kind, and no data by host
        local_crawls = sorted(set(crawls_of(workspace.lake.pin("row_groups"))) - ARC_CRAWLS.keys(), reverse=True)
        # a list of each crawl's own says nothing about others
        dataset_crawls = (
            set(local_crawls) if "{crawl}" in dataset.paths else set(list_files(workspace, dataset, "", reader).files)
        )
        crawls = [crawl for crawl in local_crawls if crawl in dataset_crawls][:1] or sorted(dataset_crawls)[-1:]
    if not crawls:
        raise UserInputError(f"{dataset.name} has no files of a crawl that is known here: harvest a crawl, or name one")
    return {crawl: harvest_dataset(workspace, dataset, crawl, reader) for crawl in crawls}


def shards_read(workspace: Workspace, dataset: Dataset) -> dict[str, Shards]:
    """What is here of a dataset, by crawl as :func:`read_ahead` gives it, without a request."""
    names = _store(workspace, dataset).crawls() if _is_split(dataset) else (_NO_CRAWL,)
    shards_by_name = {name: kept_shards(workspace, dataset, name) for name in names}
    return {name: shards for name, shards in shards_by_name.items() if shards is not None and shards.paths}


def _is_split(dataset: Dataset) -> bool:
    return dataset.by_crawl or "{crawl}" in dataset.paths


def kept_shards(workspace: Workspace, dataset: Dataset, crawl: str) -> Shards | None:
    """The same of what is here already, however old, without a request; ``None`` where something is not here."""
    key = dataset.paths.replace("{crawl}", crawl)
    if dataset.files:
        listing: Listed | None = _sorted_out(dataset, "files", enumerate(dataset.files), datetime.now(UTC))
    else:
        listing = _kept_list(dataset, key, _list_copy(workspace, dataset, key))
    if listing is None:
        return None
    paths, name, store = listing.of(dataset, crawl), _name(dataset, crawl), _store(workspace, dataset)
    footers = store.read(name)
    if not all(path in footers.entries for path in paths):
        return None
    crawls = tuple(sorted(listing.files)) if dataset.by_crawl else ()
    return Shards(tuple(paths), footers, _version(dataset, name, paths, footers, store), listing.gaps, crawls)


def page_indexes(workspace: Workspace, dataset: Dataset) -> Path:
    """Where the page indexes of a dataset's files are kept."""
    return _folder(workspace, dataset) / "page-indexes"


def forget_files(settings: Settings, name: str, but: str = "") -> None:
    """Deletes what is kept of the files of the dataset ``name``; ``but`` is the place whose files are still its."""
    for folder, dataset_name, place in _kept_folders(settings):
        if dataset_name == name and place != but:
            _delete(folder)


def forget_unknown(settings: Settings, places: Collection[tuple[str, str]]) -> int:
    """Deletes what is kept of files of datasets that are none of ``places`` (name and place) and were not asked for in
    a month: they may be known to a program of somebody's. Gives how many datasets these were."""
    oldest_kept = time.time() - _UNASKED.total_seconds()
    unused_folders = [
        folder
        for folder, name, place in _kept_folders(settings)
        if (name, place) not in places and _changed_at(folder) < oldest_kept
    ]
    for folder in unused_folders:
        _delete(folder)
    return len(unused_folders)


def _kept_folders(settings: Settings) -> list[tuple[Path, str, str]]:
    folders = keyed_path(settings).iterdir() if keyed_path(settings).is_dir() else ()
    return [(folder, match[1], match[2]) for folder in folders if (match := _KEPT.fullmatch(folder.name))]


def _changed_at(folder: Path) -> float:
    """When something was kept in a folder last; now for one that somebody deletes meanwhile."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _delete(folder: Path) -> None:
    with disk_trouble(folder), suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _list_copy(workspace: Workspace, dataset: Dataset, key: str) -> Path:
    return _folder(workspace, dataset) / f"paths-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _forget(store: FooterStore, name: str, paths: Sequence[str]) -> None:
    """Has the footers of files fetched again."""
    if paths:
        with store.write(name) as writer:
            for path in paths:
                writer.put_failure(path, "the file was replaced since its footer was read")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process harvests into ``folder``."""
    with ExitStack() as stack:
        with disk_trouble(folder):
            stack.enter_context(locked(folder / "harvest.lock"))
        yield


def _missing(footers: CrawlFooters, paths: Sequence[str]) -> list[str]:
    """Files to ask for: those never asked for, and those that failed some minutes ago; all where none came: then it was
    the source that failed."""
    now = datetime.now(UTC)
    wait = _AGAIN if any(path in footers for path in paths) else timedelta(0)
    missing_paths = []
    for path in paths:
        entry = footers.entries.get(path)
        if entry is None or (entry.failed and not timedelta(0) <= now - entry.harvested_at <= wait):
            missing_paths.append(path)
    return missing_paths


def _version(dataset: Dataset, name: str, paths: Sequence[str], footers: CrawlFooters, store: FooterStore) -> str:
    """A digest of the files' footers. It is kept beside them: reading hundreds to hash them takes a while."""
    harvest_times = [
        (path, footers.entries[path].harvested_at.isoformat()) for path in paths if path in footers.entries
    ]
    state = hashlib.sha256(json.dumps([list(paths), harvest_times]).encode()).hexdigest()
    place = footers.folder / "version.json"
    try:
        note = json.loads(place.read_bytes())
        if note["state"] == state:
            return str(note["version"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    version = footers_digest(name, paths, store)[:24]
    if footers.folder.is_dir():
        _write(place, json.dumps({"state": state, "version": version}).encode())
    return version


def _kept_list(dataset: Dataset, key: str, copy: Path) -> Listed | None:
    try:
        read_at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        return _read_list(dataset, key, copy.read_bytes(), read_at)
    except (OSError, DataFault):
        return None


def _read_list(dataset: Dataset, key: str, data: bytes, read_at: datetime) -> Listed:
    plain = (
        inflated(data, key)
        if data[:2] == b"\x1f\x8b"
        else (data[offset : offset + _CUT] for offset in range(0, len(data), _CUT))
    )
    bad_lines: list[DataFault] = []
    listing = _sorted_out(dataset, key, listed_keys(plain, key, most=_MOST_FILES, odd=bad_lines), read_at)
    refuse_odd_list(bad_lines, sum(map(len, listing.files.values())) + len(listing.gaps))
    return replace(listing, note="; ".join(describe_odd_lines(bad_lines, key)) or None)


def _sorted_out(dataset: Dataset, source: str, keys: Iterator[tuple[int, str]], read_at: datetime) -> Listed:
    """Keys by crawl. What is no Parquet file is passed over; a Parquet file of no crawl may be of any: a gap."""
    paths_by_crawl: dict[str, list[str]] = {}
    gaps = []
    for offset, path in keys:
        if not path.endswith(".parquet"):
            continue
        crawl = _CRAWL.search(path)
        if not dataset.by_crawl:
            paths_by_crawl.setdefault(_NO_CRAWL, []).append(path)
        elif crawl is None:
            gaps.append(Gap(source, f"the line {path[:200]!r} names no crawl (crawl=…)", offset))
        else:
            paths_by_crawl.setdefault(crawl[1], []).append(path)
    return Listed({name: list(dict.fromkeys(paths)) for name, paths in paths_by_crawl.items()}, tuple(gaps), read_at)


def _store(workspace: Workspace, dataset: Dataset) -> FooterStore:
    return FooterStore(_folder(workspace, dataset) / "footers")


def _folder(workspace: Workspace, dataset: Dataset) -> Path:
    return keyed_path(workspace.settings) / f"{dataset.name}-{dataset.place}"


def _name(dataset: Dataset, crawl: str) -> str:
    return crawl if dataset.by_crawl else _NO_CRAWL


def _write(path: Path, data: bytes) -> None:
    with disk_trouble(path):
        write_whole(path, data)
