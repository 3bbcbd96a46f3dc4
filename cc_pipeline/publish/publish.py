"""Publishes the current lake as one DuckDB snapshot, and finds how far the published file lags behind."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb

from cc_pipeline import __version__
from cc_pipeline.atomic import parse_leftover_name, write_whole
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.slice_slugs import with_subset
from cc_pipeline.duck import connect_newest
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extension import extensions
from cc_pipeline.extraction.reusable_records import find_sharing
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS
from cc_pipeline.lake.lake import PinnedTable
from cc_pipeline.lake.published_file import get_s3_location
from cc_pipeline.lake.repeats import PER_CAPTURE, find_changed_slices, find_slices_with_repeats
from cc_pipeline.lake.slice import PARSE, READ_FILES, Slice
from cc_pipeline.lake.snapshot import Copying, MacroSpec, Publication, ViewSpec, pin, publish, unpin
from cc_pipeline.lake.streaming import count_rows, stream_table
from cc_pipeline.locks import LockTimeout, locked
from cc_pipeline.processes import has_ended, start_ticks
from cc_pipeline.publish.macros import MACROS
from cc_pipeline.publish.views import Sharing, publication_views
from cc_pipeline.records.file_leases import PURGES, leases_of
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.miscounts import find_changed_miscounts, without_miscounted
from cc_pipeline.workspace.source_files import read_source_files
from cc_pipeline.workspace.workspace import Workspace

#: Seconds without a change after which a leftover is deleted if the end of its process cannot be known.
_UNTOUCHED_SECONDS = 86_400
#: In the home; held by whoever publishes.
_LOCK: Final = "publish.lock"


def publish_warehouse(workspace: Workspace) -> Publication:
    """Builds ``cc.duckdb`` from pinned versions of all tables and swaps it in; one publisher at a time on a host.

    By the setting ``publish`` it holds views over the lake's files, or their rows. Slices with other rows than they
    were committed with are left out (``workspace/miscounts.py``). Raises ``EnvironmentFault`` if it cannot be built;
    the old file then stays. Raises ``UserInputError`` in a home that publishes nothing.
    """
    settings, lake = workspace.settings, workspace.lake
    if settings.publish == "none":
        raise UserInputError(
            "this home writes no cc.duckdb: CC_PIPELINE_PUBLISH is none. Use the cc.duckdb of another home of this "
            "lake, or set CC_PIPELINE_PUBLISH to views or copy here"
        )
    copied = settings.publish == "copy"
    with locked(settings.home / _LOCK), lake.hold_versions():
        delete_leftovers(settings)
        lake.invalidate()  # whoever had the lock may have committed, or purged
        pinned = [lake.pin(name) for name in _list_published_tables(workspace)]
        pinned = without_miscounted(lake, pinned, find_changed_miscounts(settings, lake, pinned))
        views = publication_views(_find_withheld(workspace, pinned), _find_sharing(workspace))
        remote = get_s3_location(settings) if any(table.files for table in pinned) else None
        rows = None if remote is None else lambda table: stream_table(lake, table)
        is_shared = settings.has_separate_lake
        if is_shared and not copied:
            pin(workspace.place, settings.home, pinned, keep_previous=True)
        published = publish(
            settings.published_path,
            pinned,
            [*views, *_extension_views()],
            macros=_all_macros(),
            s3=remote,
            copying=Copying(workspace.scratch / "publish", rows) if copied else None,
            build_digest=compute_build_digest(workspace),
        )
        if is_shared and copied:
            unpin(workspace.place, settings.home)
        elif is_shared:
            pin(workspace.place, settings.home, pinned)
        with suppress(OSError, duckdb.Error):
            _read_published_tables(settings)
        return published


def _find_withheld(workspace: Workspace, pinned: Sequence[PinnedTable]) -> list[tuple[str, str, bool]]:
    """The slices that are left out (crawl, target), and whether with all their rows."""
    # a stage may commit while tables are pinned one after the other, so the pinned versions decide
    partial_slices = find_partial_slices(workspace, {table.spec.name: table.version for table in pinned})
    withheld = dict.fromkeys([*partial_slices, *_find_purged_slices(workspace)], False)
    withheld |= dict.fromkeys(find_repeating_slices(workspace), True)
    return [(slice_.crawl, slice_.target, hides_all_rows) for slice_, hides_all_rows in withheld.items()]


def _find_sharing(workspace: Workspace) -> Sharing:
    """Targets that can share captures, in any subset; and crawls with files that were read whole, which may have rows
    of any page."""
    overlapping = {with_subset(slug, subset) for slug in find_sharing(workspace.lake) for subset in SUBSETS}
    read_whole = {file.crawl for file in read_source_files(workspace).values() if file.crawl}
    return Sharing(tuple(sorted(overlapping)), tuple(sorted(read_whole)))


def is_being_published(settings: Settings) -> bool:
    """Whether a process of this host is publishing ``cc.duckdb``. Raises ``OSError`` if the home has no locks."""
    try:
        with locked(settings.home / _LOCK, 0):
            return False
    except LockTimeout:
        return True


def _extension_views() -> list[ViewSpec]:
    return [view for extension in extensions() for view in extension.views()]


def _all_macros() -> list[MacroSpec]:
    """The macros of the core, then those of the extensions, which read views of theirs."""
    return [*MACROS, *(macro for extension in extensions() for macro in extension.macros())]


def compute_build_digest(workspace: Workspace) -> str:
    """A digest of how :func:`publish_warehouse` builds the file, whatever the tables hold: the version of this program,
    the extensions, the settings, and the place of the tables."""
    settings = workspace.settings
    return compute_input_digest(
        {
            "program": __version__,
            "publish": settings.publish,
            "tables": _list_published_tables(workspace),
            "lake": [str(workspace.lake.root), settings.lake_endpoint],
            "views": _describe_views([*publication_views([], Sharing((), ())), *_extension_views()]),
            "macros": repr(_all_macros()),
        }
    )


def _list_published_tables(workspace: Workspace) -> list[str]:
    copied = workspace.settings.publish == "copy"
    specs = workspace.lake.specs.values()
    return [spec.name for spec in specs if spec.is_published or not copied]


def _describe_views(views: Sequence[ViewSpec]) -> list[list[object]]:
    return [
        [view.name, view.comment, view.sql if isinstance(view.sql, str) else "", sorted(view.notes.items())]
        for view in views
    ]


def find_partial_slices(workspace: Workspace, versions: Mapping[str, int] | None = None) -> list[Slice]:
    """Slices whose page tables are not from one run, as of ``versions`` by table (default: now).

    A run that is killed between two commits leaves such slices. Their rows are not published until the next run.
    """
    table_versions = versions or {}
    files = [Slice(file.crawl, slug) for slug, file in read_source_files(workspace).items()]
    names = workspace.lake.find_differing(PARSE.tables, table_versions, PARSE.name_prefix)
    if names is not UNKNOWN_DIGESTS:
        mixed = sorted(slice_ for slice_ in map(PARSE.parse_digest_name, names) if slice_ is not None)
    else:
        # the logs do not tell: read the rows, and the captures of slices that were never parsed
        rows = [count_rows(workspace.lake, table, {}) for table in ("captures", *PARSE.tables)]
        mixed = PARSE.find_partial_slices(
            workspace.lake, sorted({Slice(*key) for counts in rows for key in counts}), table_versions
        )
    return mixed + READ_FILES.find_partial_slices(workspace.lake, files, table_versions)


def find_repeating_slices(workspace: Workspace) -> dict[Slice, tuple[str, ...]]:
    """Slices that have a capture more than once, with the tables in which they do. They are not published until they
    are made again by ``cc-pipeline doctor --repair``.

    The result is cached with the commits it is about, so that only slices that were committed since are read. If a
    table's rows cannot be read, its cached result counts. Raises ``EnvironmentFault`` for a log.
    """
    lake, cache_file = workspace.lake, workspace.settings.cache_path / "repeating.json"
    before: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        before = json.loads(cache_file.read_text("utf-8"))
    after: dict[str, Any] = {}
    tables_by_slice: dict[Slice, tuple[str, ...]] = {}
    for table in PER_CAPTURE:
        # pinned before the look: later commits are looked at the next time
        pinned = lake.pin(table)
        version, commit = pinned.version, pinned.commit_id
        if version < 0:
            continue
        slices: set[Slice] | None = None
        repeating_now: set[Slice] = set()
        with suppress(KeyError, ValueError, TypeError):
            repeating_now = {Slice(*key) for key in before[table]["slices"]}
            if before[table]["commit_id"] == commit:
                changed: set[Slice] | None = set()
            else:
                changed = find_changed_slices(lake, table, int(before[table]["version"]), before[table]["commit_id"])
            slices = None if changed is None else changed | repeating_now
        try:
            repeating_now = find_slices_with_repeats(lake, table, slices) if slices is None or slices else set()
        except EnvironmentFault:
            # a damaged file: its slices are left out anyway, and the next look begins where this one did
            after |= {table: before[table]} if table in before else {}
        else:
            keys = sorted((slice_.crawl, slice_.target) for slice_ in repeating_now)
            after[table] = {"version": version, "commit_id": commit, "slices": keys}
        for slice_ in sorted(repeating_now):
            tables_by_slice[slice_] = (*tables_by_slice.get(slice_, ()), table)
    with suppress(OSError):
        write_whole(cache_file, json.dumps(after))
    return tables_by_slice


def _find_purged_slices(workspace: Workspace) -> list[Slice]:
    """Parsed slices of targets that are being purged, by whatever home: some of their tables may be empty already.

    Raises ``EnvironmentFault`` for a purge whose lease does not name its targets: it may be about any.
    """
    slugs: set[str] = set()
    for purge in leases_of(workspace.storage, PURGES)[0]:
        if purge.targets is None:
            raise EnvironmentFault(
                f"cc.duckdb was not published: a purge is running, and its lease {purge.key} (which names its targets) "
                "cannot be read",
                "cc.duckdb is unchanged. Run the command again after the purge. A lease without a time ends after a "
                "day.",
            )
        slugs |= purge.targets
    return [slice_ for slice_ in PARSE.list_slices(workspace.lake) if slice_.partition.target in slugs] if slugs else []


@dataclass(frozen=True, slots=True)
class PublicationLag:
    """The lag of the published file behind the lake.

    ``commits`` has the id of the newest commit of each table that the file shows otherwise, or not at all. ``fault`` is
    the error if the file itself cannot be read. With neither, other settings or another version of this program made
    it. ``state`` is a text for all of that, the same for the same state of the tables. ``since`` is the age of the
    published file; ``None`` if there is none that can be read.
    """

    state: str
    since: timedelta | None
    commits: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    def longer_than(self, minutes: float) -> bool:
        """Whether the last publication is older than so many minutes, or there was none."""
        return self.since is None or self.since >= timedelta(minutes=minutes)


def find_publication_lag(workspace: Workspace) -> PublicationLag | None:
    """The lag of the published file; ``None`` if it shows everything, and if there is nothing to show. A file that
    another version of this program made, or other settings, lags too. ``None`` in a home that publishes nothing.

    Tables are compared by the ids of their commits, so that one whose log was restored counts as another. It reads each
    table's log and no data. Raises ``EnvironmentFault``.
    """
    if workspace.settings.publish == "none":
        return None
    settings, lake = workspace.settings, workspace.lake
    published_commits: dict[str, str] = {}
    since, fault = None, ""
    build_digests: set[str | None] = set()
    try:
        since = datetime.now(UTC) - datetime.fromtimestamp(settings.published_path.stat().st_mtime, UTC)
        rows = _read_published_tables(settings)
        published_commits, build_digests = (
            {name: commit for name, commit, _ in rows},
            {build_digest for *_, build_digest in rows},
        )
    except FileNotFoundError:
        fault = f"{settings.published_path} does not exist"
    except (OSError, duckdb.Error) as error:
        # an unreadable file is replaced
        since, fault = None, f"{settings.published_path} cannot be read: {error}"
    # the tables of the last publication, or all
    names = [name for name in published_commits if name in lake.specs] or [*lake.specs]
    current_commits = {name: lake.commit_id(name) for name in names}
    if not any([*current_commits.values(), *published_commits.values()]):
        return None
    commits = {name: commit for name, commit in current_commits.items() if published_commits.get(name) != commit}
    if not commits and not fault and build_digests == {compute_build_digest(workspace)}:
        return None
    state = hashlib.sha256(repr(sorted(current_commits.items())).encode()).hexdigest()[:16]
    return PublicationLag(state, since, commits, fault)


def _read_published_tables(settings: Settings) -> list[tuple[str, str, str | None]]:
    """The tables in the published file, each with the id of its commit and the digest of how the file was built. They
    are cached as JSON: servers ask each minute, and need not open DuckDB for it. Raises ``OSError`` and
    ``duckdb.Error``."""
    path, cache_file = settings.published_path, settings.cache_path / "published.json"
    file_status = path.stat()
    mark = [file_status.st_ino, file_status.st_size, file_status.st_mtime_ns]
    with suppress(OSError, ValueError, TypeError, KeyError):
        cached = json.loads(cache_file.read_text("utf-8"))
        if cached["file"] == mark:
            return [(name, commit, build_digest) for name, commit, build_digest in cached["tables"]]
    with connect_newest(path) as connection:
        rows = connection.execute("SELECT table_name, commit_id, build_digest FROM main.publication").fetchall()
    with suppress(OSError):
        write_whole(cache_file, json.dumps({"file": mark, "tables": rows}))
    return rows


def delete_leftovers(settings: Settings) -> int:
    """Deletes files and folders that ended processes left in the home. Returns how many.

    Files of processes on other machines and in containers, or of versions that wrote a bare process id, are deleted
    once they were not touched for a day. Files that cannot be deleted stay.
    """
    cleared = 0
    for path, mark in _find_leftovers(settings):
        with suppress(OSError):
            if _is_leftover(path, mark):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                cleared += 1
    return cleared


def _find_leftovers(settings: Settings) -> Iterator[tuple[Path, str]]:
    for folder in {settings.home, settings.cache_path, settings.published_path.parent}:
        for path in folder.glob(".*.part*"):
            if unfinished_parts := parse_leftover_name(path.name):
                yield path, unfinished_parts[1]
    scratch = settings.home / "scratch"
    for path in scratch.iterdir() if scratch.is_dir() else ():
        yield path, path.name


def _is_leftover(path: Path, mark: str) -> bool:
    ended = has_ended(mark)
    if ended is not None:
        return ended
    alive = mark.isdigit() and start_ticks(int(mark)) != ""
    return not alive and time.time() - path.stat().st_mtime > _UNTOUCHED_SECONDS
