"""The files of a dataset: its path list and its footers, fetched once and kept in the home."""

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
from cc_pipeline.commoncrawl.paths import describe_faulty_lines, inflated, listed_keys, refuse_faulty_list
from cc_pipeline.errors import DataFault, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.folders import keyed_path
from cc_pipeline.extensions.host_facts.shards import Gap
from cc_pipeline.index.catalog.from_footers import footers_digest
from cc_pipeline.index.footers.harvest import FIRST_GUESS, HarvestPolicy, harvest_crawl
from cc_pipeline.index.footers.store import CrawlFooters, FooterStore
from cc_pipeline.lake.streaming import list_crawls
from cc_pipeline.locks import locked
from cc_pipeline.settings import Settings
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault, advice
from cc_pipeline.workspace.workspace import Workspace, open_named

#: A cached path list is valid for a day, or for an hour if it lacks the requested crawl.
_FRESH_FOR: Final = timedelta(days=1)
_FRESH_WITHOUT_CRAWL: Final = timedelta(hours=1)
#: Time after which a failed shard is fetched again.
_RETRY_AFTER: Final = timedelta(minutes=10)
#: Maximum files of a dataset, of all crawls together. The host index has 30 files a crawl.
_MAX_FILES: Final = 100_000
_CRAWL: Final = re.compile(r"(?:^|/)crawl=([^/]+)/")
#: The name of footers of a dataset without crawls.
_NO_CRAWL: Final = "all"
_CHUNK_BYTES: Final = 2**20
#: Stored data of an unknown dataset is deleted after this time without use.
_UNUSED_FOR: Final = timedelta(days=30)
#: The name of a folder of :func:`_folder`: the name of a dataset and the digest of its location.
_DATASET_FOLDER: Final = re.compile(r"(.+)-([0-9a-f]{15})")


@dataclass(frozen=True, slots=True)
class DatasetListing:
    """The Parquet files of a dataset by crawl (``all`` if it has none). ``gaps`` are lines of the path list that name
    no crawl.
    """

    files: dict[str, list[str]]
    gaps: tuple[Gap, ...]
    read_at: datetime
    note: str | None = None

    def files_of(self, dataset: Dataset, crawl: str) -> list[str]:
        """The files with rows of ``crawl``."""
        return self.files.get(crawl if dataset.by_crawl else _NO_CRAWL, [])


@dataclass(frozen=True, slots=True)
class Shards:
    """The stored ``footers`` of a dataset's files for one crawl. Equal ``version`` means equal rows.

    ``gaps`` are lines of the path list that name no file of the crawl. ``crawls`` are all crawls of the dataset.
    """

    paths: tuple[str, ...]
    footers: CrawlFooters
    version: str
    gaps: tuple[Gap, ...]
    crawls: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HarvestEstimate:
    """The requests and bytes that must be read before a lookup in a dataset: ``files`` have no stored footer yet."""

    files: int
    requests: int
    bytes: int


@contextmanager
def dataset_transport(workspace: Workspace, dataset: Dataset) -> Iterator[Transport]:
    """Opens a transport to the location of a dataset: the workspace's own for the source, a new one
    for another root.
    """
    if not dataset.root:
        yield workspace.transport
        return
    with open_named(workspace.settings, dataset.root) as transport:
        yield transport


def list_files(workspace: Workspace, dataset: Dataset, crawl: str, reader: Transport) -> DatasetListing:
    """The files of a dataset, from its path list, which is cached for a day.

    Raises ``EnvironmentFault`` if the list cannot be read and there is no copy of it, ``DataFault`` for a malformed
    list.
    """
    if dataset.files:
        return _group_by_crawl(dataset, "files", enumerate(dataset.files), datetime.now(UTC))
    key = dataset.paths.replace("{crawl}", crawl)
    copy = _list_copy(workspace, dataset, key)
    stored_listing = _read_list_copy(dataset, key, copy)
    now = datetime.now(UTC)
    if stored_listing is not None:
        wait = _FRESH_FOR if stored_listing.files_of(dataset, crawl) else _FRESH_WITHOUT_CRAWL
        if timedelta(0) <= now - stored_listing.read_at < wait:
            return stored_listing
    try:
        data = reader.read_all(key).data
        listing = _read_list(dataset, key, data, now)
    except RangeFault as fault:
        if stored_listing is not None:
            age = (now - stored_listing.read_at) / timedelta(days=1)
            note = f"{key} could not be read ({fault.kind.value}); the copy from {age:.0f} days ago is used instead"
            return replace(stored_listing, note="; ".join(filter(None, (note, stored_listing.note))))
        raise EnvironmentFault(
            f"the path list of the dataset {dataset.name} at {key} could not be read: {fault.kind.value} "
            f"({fault.detail})",
            advice(
                fault.kind,
                f"Check where.paths of {dataset.written_in}."
                if dataset.written_in
                else "The source may not have this dataset: use Common Crawl's own, or another crawl.",
            ),
        ) from fault
    _write(copy, data)
    return listing


def estimate_harvest(workspace: Workspace, dataset: Dataset, crawl: str) -> HarvestEstimate:
    """Estimates the cost of reading the missing footers of a dataset's files for ``crawl``. Fetches the path list if
    necessary.
    """
    with dataset_transport(workspace, dataset) as reader:
        listing = list_files(workspace, dataset, crawl, reader)
    paths = listing.files_of(dataset, crawl)
    footers = _store(workspace, dataset).read(_footer_name(dataset, crawl))
    missing = _missing_footers(footers, paths)
    footer_sizes = [entry.footer_bytes for entry in footers.entries.values() if not entry.failed]
    return HarvestEstimate(
        len(missing), len(missing), len(missing) * (max(footer_sizes) if footer_sizes else FIRST_GUESS)
    )


def harvest_dataset(
    workspace: Workspace, dataset: Dataset, crawl: str, reader: Transport, *, replaced_files: Sequence[str] = ()
) -> Shards:
    """Returns the shards of a dataset for ``crawl``. Missing footers are fetched and stored, one request each, and
    those of ``replaced_files`` are fetched again. Waits while another process does the same.

    A shard that fails is left out for ten minutes. Raises ``EnvironmentFault`` if the source fails.
    """
    listing = list_files(workspace, dataset, crawl, reader)
    paths = listing.files_of(dataset, crawl)
    name, store = _footer_name(dataset, crawl), _store(workspace, dataset)
    with suppress(OSError):
        # The time marks the folder as used: see forget_unknown.
        os.utime(_dataset_folder(workspace, dataset))
    footers = store.read(name)
    if replaced_files or _missing_footers(footers, paths):
        with _harvest_lock(store.crawl_folder(name)):
            _mark_for_refetch(store, name, replaced_files)
            missing = set(_missing_footers(store.read(name), paths)) | set(replaced_files)
            if missing:
                policy = HarvestPolicy(retry_failed=bool(missing & footers.entries.keys()))
                harvest_crawl(name, paths, reader, store, policy, columns=(dataset.key,), lookup_columns=())
        footers = store.read(name)
    version = _version(dataset, name, paths, footers, store)
    crawls = tuple(sorted(listing.files)) if dataset.by_crawl else ()
    notes = () if listing.note is None else (listing.note,)
    return Shards(tuple(paths), footers, version, listing.gaps, crawls, notes)


def harvest_shards(
    workspace: Workspace, dataset: Dataset, reader: Transport, crawls: Sequence[str] = ()
) -> dict[str, Shards]:
    """Reads the shards of a dataset before any lookup, by crawl: those of ``crawls``, or by default of the newest
    crawl that is harvested here and in the dataset, else of the dataset's newest. A dataset without crawls has one
    entry, ``all``.

    Raises ``UserInputError`` if no crawl can be chosen, and as :func:`harvest_dataset` does.
    """
    if not _is_split(dataset):
        return {_NO_CRAWL: harvest_dataset(workspace, dataset, "", reader)}
    if not crawls:
        # The ARC crawls have another kind of index, and no data by host.
        local_crawls = sorted(set(list_crawls(workspace.lake.pin("row_groups"))) - ARC_CRAWLS.keys(), reverse=True)
        # A path list of one crawl does not list other crawls.
        dataset_crawls = (
            set(local_crawls) if "{crawl}" in dataset.paths else set(list_files(workspace, dataset, "", reader).files)
        )
        crawls = [crawl for crawl in local_crawls if crawl in dataset_crawls][:1] or sorted(dataset_crawls)[-1:]
    if not crawls:
        raise UserInputError(
            f"the dataset {dataset.name} has no files for a crawl of this home: harvest a crawl, or name a crawl"
        )
    return {crawl: harvest_dataset(workspace, dataset, crawl, reader) for crawl in crawls}


def read_stored_shards(workspace: Workspace, dataset: Dataset) -> dict[str, Shards]:
    """The stored shards of a dataset by crawl, in the form of :func:`harvest_shards`, without a request."""
    names = _store(workspace, dataset).crawls() if _is_split(dataset) else (_NO_CRAWL,)
    shards_by_name = {name: read_shards(workspace, dataset, name) for name in names}
    return {name: shards for name, shards in shards_by_name.items() if shards is not None and shards.paths}


def _is_split(dataset: Dataset) -> bool:
    return dataset.by_crawl or "{crawl}" in dataset.paths


def read_shards(workspace: Workspace, dataset: Dataset, crawl: str) -> Shards | None:
    """The stored shards for ``crawl``, however old, without a request; ``None`` if a part is missing."""
    key = dataset.paths.replace("{crawl}", crawl)
    if dataset.files:
        listing: DatasetListing | None = _group_by_crawl(dataset, "files", enumerate(dataset.files), datetime.now(UTC))
    else:
        listing = _read_list_copy(dataset, key, _list_copy(workspace, dataset, key))
    if listing is None:
        return None
    paths, name, store = listing.files_of(dataset, crawl), _footer_name(dataset, crawl), _store(workspace, dataset)
    footers = store.read(name)
    if not all(path in footers.entries for path in paths):
        return None
    crawls = tuple(sorted(listing.files)) if dataset.by_crawl else ()
    return Shards(tuple(paths), footers, _version(dataset, name, paths, footers, store), listing.gaps, crawls)


def page_index_folder(workspace: Workspace, dataset: Dataset) -> Path:
    """The folder for the page indexes of a dataset's files."""
    return _dataset_folder(workspace, dataset) / "page-indexes"


def delete_files(settings: Settings, name: str, current_place: str = "") -> None:
    """Deletes the stored data of the files of the dataset ``name``, except for the data of its current location."""
    for folder, dataset_name, place in _dataset_folders(settings):
        if dataset_name == name and place != current_place:
            _delete(folder)


def delete_unused(settings: Settings, places: Collection[tuple[str, str]]) -> int:
    """Deletes the stored data of unused datasets: those that are none of ``places`` (name and digest of the location)
    and were not used for a month. More recent ones may belong to another program. Returns the number of deleted
    datasets.
    """
    oldest_kept = time.time() - _UNUSED_FOR.total_seconds()
    unused_folders = [
        folder
        for folder, name, place in _dataset_folders(settings)
        if (name, place) not in places and _changed_at(folder) < oldest_kept
    ]
    for folder in unused_folders:
        _delete(folder)
    return len(unused_folders)


def _dataset_folders(settings: Settings) -> list[tuple[Path, str, str]]:
    folders = keyed_path(settings).iterdir() if keyed_path(settings).is_dir() else ()
    return [(folder, match[1], match[2]) for folder in folders if (match := _DATASET_FOLDER.fullmatch(folder.name))]


def _changed_at(folder: Path) -> float:
    """The time of the last change in a folder; the current time if another process deletes the folder."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def _delete(folder: Path) -> None:
    with disk_trouble(folder), suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _list_copy(workspace: Workspace, dataset: Dataset, key: str) -> Path:
    return _dataset_folder(workspace, dataset) / f"paths-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _mark_for_refetch(store: FooterStore, name: str, paths: Sequence[str]) -> None:
    """Marks the footers of files to be fetched again."""
    if paths:
        with store.write(name) as writer:
            for path in paths:
                writer.put_failure(path, "the file was replaced since its footer was read")


@contextmanager
def _harvest_lock(folder: Path) -> Iterator[None]:
    """Waits until no other process harvests into ``folder``."""
    with ExitStack() as stack:
        with disk_trouble(folder):
            stack.enter_context(locked(folder / "harvest.lock"))
        yield


def _missing_footers(footers: CrawlFooters, paths: Sequence[str]) -> list[str]:
    """Files whose footers must be fetched: those never fetched, those whose stored bytes are damaged, and those that
    failed some minutes ago. If all failed, the source was at fault, and all are fetched again at once.
    """
    now = datetime.now(UTC)
    wait = _RETRY_AFTER if any(path in footers for path in paths) else timedelta(0)
    missing_paths = []
    for path in paths:
        entry = footers.entries.get(path)
        if entry is None:
            is_missing = True
        elif entry.failed:
            is_missing = not timedelta(0) <= now - entry.harvested_at <= wait
        else:
            is_missing = footers.is_damaged(path)
        if is_missing:
            missing_paths.append(path)
    return missing_paths


def _version(dataset: Dataset, name: str, paths: Sequence[str], footers: CrawlFooters, store: FooterStore) -> str:
    """A digest of the files' footers. It is stored beside them, because reading hundreds of footers takes a while."""
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


def _read_list_copy(dataset: Dataset, key: str, copy: Path) -> DatasetListing | None:
    try:
        read_at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        return _read_list(dataset, key, copy.read_bytes(), read_at)
    except (OSError, DataFault):
        return None


def _read_list(dataset: Dataset, key: str, data: bytes, read_at: datetime) -> DatasetListing:
    plain = (
        inflated(data, key)
        if data[:2] == b"\x1f\x8b"
        else (data[offset : offset + _CHUNK_BYTES] for offset in range(0, len(data), _CHUNK_BYTES))
    )
    bad_lines: list[DataFault] = []
    listing = _group_by_crawl(dataset, key, listed_keys(plain, key, max_lines=_MAX_FILES, faults=bad_lines), read_at)
    refuse_faulty_list(bad_lines, sum(map(len, listing.files.values())) + len(listing.gaps))
    return replace(listing, note="; ".join(describe_faulty_lines(bad_lines, key)) or None)


def _group_by_crawl(
    dataset: Dataset, source: str, keys: Iterator[tuple[int, str]], read_at: datetime
) -> DatasetListing:
    """Groups keys by crawl. Other files than Parquet are skipped. A Parquet file without a crawl may belong to any: it
    is a gap.
    """
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
    return DatasetListing(
        {name: list(dict.fromkeys(paths)) for name, paths in paths_by_crawl.items()}, tuple(gaps), read_at
    )


def _store(workspace: Workspace, dataset: Dataset) -> FooterStore:
    return FooterStore(_dataset_folder(workspace, dataset) / "footers")


def _dataset_folder(workspace: Workspace, dataset: Dataset) -> Path:
    return keyed_path(workspace.settings) / f"{dataset.name}-{dataset.place}"


def _footer_name(dataset: Dataset, crawl: str) -> str:
    return crawl if dataset.by_crawl else _NO_CRAWL


def _write(path: Path, data: bytes) -> None:
    with disk_trouble(path):
        write_whole(path, data)
