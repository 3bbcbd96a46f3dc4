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
from typing import Final

import duckdb
import pyarrow as pa

from cc_pipeline import __version__
from cc_pipeline.atomic import parse_leftover_name, write_whole
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.slice_slugs import with_subset
from cc_pipeline.duck import connect_newest
from cc_pipeline.errors import UserInputError
from cc_pipeline.extension import extensions
from cc_pipeline.extraction.blocklist import read_blocklist
from cc_pipeline.extraction.reusable_records import find_sharing
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.live_rows import LiveTable, find_live_rows
from cc_pipeline.lake.published_file import get_s3_location
from cc_pipeline.lake.snapshot import Copying, MacroSpec, Publication, ViewSpec, pin, publish, unpin
from cc_pipeline.lake.streaming import stream_live_rows
from cc_pipeline.locks import LockTimeout, locked
from cc_pipeline.processes import has_ended
from cc_pipeline.publish.macros import MACROS
from cc_pipeline.publish.views import Blocked, Sharing, publication_views
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.source_files import read_source_files
from cc_pipeline.workspace.workspace import Workspace

#: Seconds without a change after which a leftover is deleted if the end of its process cannot be known.
_UNTOUCHED_SECONDS = 86_400
#: In the home; held by whoever publishes.
_LOCK: Final = "publish.lock"


def publish_warehouse(workspace: Workspace) -> Publication:
    """Builds ``cc.duckdb`` from pinned versions of all tables and swaps it in; one publisher at a time on a host.

    By the setting ``publish`` it holds views over the lake's files, or their rows. Slices with other rows than they
    were committed with are left out (``lake/live_rows.py``). Raises ``EnvironmentFault`` if it cannot be built; the old
    file then stays. Raises ``UserInputError`` in a home that publishes nothing.
    """
    settings, lake = workspace.settings, workspace.lake
    if settings.publish == "none":
        raise UserInputError(
            "this home writes no cc.duckdb: CC_PIPELINE_PUBLISH is none. Use the cc.duckdb of another home of this "
            "lake, or set CC_PIPELINE_PUBLISH to views or copy here"
        )
    copied = settings.publish == "copy"
    with locked(settings.home / _LOCK):
        delete_leftovers(settings)
        tables, left_out = _pin_tables(workspace)
        views = publication_views(left_out, _find_sharing(workspace), _find_blocked(workspace))
        remote = get_s3_location(settings) if any(table.pinned.files for table in tables) else None
        rows = None if remote is None else lambda table: stream_live_rows(lake, table)
        pinned = [table.pinned for table in tables]
        if not copied:
            pin(workspace.place, settings.home, pinned, keep_previous=True)
        published = publish(
            settings.published_path,
            tables,
            [*views, *_extension_views()],
            macros=_all_macros(),
            s3=remote,
            copying=Copying(workspace.scratch / "publish", rows) if copied else None,
            build_digest=compute_build_digest(workspace),
        )
        if copied:
            unpin(workspace.place, settings.home)
        else:
            pin(workspace.place, settings.home, pinned)
        with suppress(OSError, duckdb.Error):
            _read_published_tables(settings)
        return published


def _pin_tables(workspace: Workspace) -> tuple[list[LiveTable], list[tuple[str, str, int]]]:
    """The published tables with what counts in them; and the slices whose notes are not shown (crawl, target, epoch):
    of purged targets, and with other rows than were committed."""
    lake = workspace.lake
    # slices first: of commits meanwhile it knows nothing
    names = sorted(_list_published_tables(workspace), key=lambda name: not lake.specs[name].key)
    pinned = {name: lake.pin(name) for name in names}
    live = find_live_rows(lake, [*pinned.values()], workspace.settings.cache_path / "generations")
    tables = dict(live.tables)
    for name, table in pinned.items():
        if table.spec.key:
            rows = live.states if name == "slices" else lake.read(name, columns=table.spec.key[:1]).num_rows
            tables[name] = LiveTable(table, table.files, rows=rows)
    pa.default_memory_pool().release_unused()
    return [tables[name] for name in names], sorted(live.hidden)


def _find_blocked(workspace: Workspace) -> Blocked:
    """The keys of blocked sites. Targets that are such a site themselves keep their rows."""
    targets = [member for _, member in read_blocklist(workspace).sites]
    ranges = [keys for target in targets for keys in target.ranges]
    return Blocked(tuple((keys.start, keys.end) for keys in ranges), tuple(sorted(target.slug for target in targets)))


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
            "views": _describe_views([*publication_views([], Sharing((), ()), Blocked()), *_extension_views()]),
            "macros": repr(_all_macros()),
        }
    )


def _list_published_tables(workspace: Workspace) -> list[str]:
    copied = workspace.settings.publish == "copy"
    return [spec.name for spec in workspace.lake.specs.values() if spec.is_published or not copied]


def _describe_views(views: Sequence[ViewSpec]) -> list[list[object]]:
    return [
        [view.name, view.comment, view.sql if isinstance(view.sql, str) else "", sorted(view.notes.items())]
        for view in views
    ]


@dataclass(frozen=True, slots=True)
class PublicationLag:
    """The lag of the published file behind the lake.

    ``commits`` has the id of the newest commit of each table with a key that the file shows otherwise, or not at all.
    ``fault`` is the error if the file itself cannot be read. With neither, other settings or another version of this
    program made it. ``state`` is a text for all of that, the same for the same state of the tables. ``since`` is the
    age of the published file; ``None`` if there is none that can be read.
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
    # rows count by ``slices`` alone, so commits to the tables that have them say nothing
    names = [name for name in _list_published_tables(workspace) if lake.specs[name].key]
    current_commits = {name: lake.pin(name).commit_id for name in names}
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

    Files of processes on other machines and in containers are deleted once they were not touched for a day. Files that
    cannot be deleted stay.
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
    return ended if ended is not None else time.time() - path.stat().st_mtime > _UNTOUCHED_SECONDS
