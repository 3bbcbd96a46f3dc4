"""Checks of the published file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from cc_pipeline.checks.conservation import count_live_rows
from cc_pipeline.checks.scope import MAX_SHOWN_KEYS, CheckResult, Scope, Severity, abbreviate_keys, key_of
from cc_pipeline.duck import connect_newest
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.keyed import newest_rows
from cc_pipeline.lake.lake import SEQ, Lake, PinnedTable, TableSpec
from cc_pipeline.lake.live_rows import Incomplete, LiveRows
from cc_pipeline.lake.published_file import open_home_publication
from cc_pipeline.lake.quoting import quote_name
from cc_pipeline.lake.slice import HARVEST, LOCATE, MANIFEST, Metrics
from cc_pipeline.lake.slices import CONDEMNED, SLICES, list_slices
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.publish.publish import PublicationLag, find_publication_lag
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: The longest lag of the published file behind the lake.
_MAX_LAG: Final = timedelta(days=1)
#: Tables and stages that decide about no published capture.
_CATALOG_TABLES: Final = frozenset(("crawls", "source_files"))
_CATALOG_STAGES: Final = (MANIFEST.label, HARVEST.label, CONDEMNED)
_REBUILD: Final = "Rebuild these slices: cc-pipeline doctor --repair."
_PUBLISH: Final = "Publish cc.duckdb again: repeat any cc-pipeline run, or materialize `warehouse`."


def publication_verdict(workspace: Workspace, initial_lag: PublicationLag | None = None) -> CheckResult:
    """Checks that ``cc.duckdb`` exists, can be read, and shows the current lake, as :func:`judge_publication` does."""
    return judge_publication(workspace, find_publication_lag(workspace), initial_lag)


def judge_publication(
    workspace: Workspace, lag: PublicationLag | None, initial_lag: PublicationLag | None = None
) -> CheckResult:
    """Checks a published file that is behind the lake by ``lag``: an error if it cannot be read or does not show the
    current lake.

    It is an error too if it leaves out incomplete slices. It is a warning if only tables of the catalog are newer, and
    if other settings made the file.
    ``initial_lag`` is the lag at the start of a publication: with it only the commits of that time count, since other
    processes commit meanwhile. One row of every table of the file is read.
    """
    name, settings = "publication", workspace.settings
    if settings.publish == "none":
        return CheckResult(name, "ok", "this home writes no cc.duckdb (CC_PIPELINE_PUBLISH=none)")
    commits = dict(lag.commits) if lag is not None else {}
    if initial_lag is not None:
        commits = {table: commit for table, commit in commits.items() if initial_lag.commits.get(table) == commit}
    if lag is not None and lag.fault:
        severity: Severity = "error" if list_slices(workspace.lake, LOCATE) else "warn"
        return CheckResult(name, severity, lag.fault, advice=_PUBLISH)
    changed_tables = commits.keys() - _CATALOG_TABLES
    if changed_tables == {SLICES.name} and _is_same_but_for_catalog(workspace):
        changed_tables = set()
    if changed_tables:
        message = (
            f"{settings.published_path} is out of date: tables changed since it was written: "
            f"{abbreviate_keys(changed_tables)}"
        )
        return CheckResult(name, "error", message, {"tables with newer commits": len(commits)}, advice=_PUBLISH)
    if not settings.published_path.exists():
        return CheckResult(name, "warn", "cc.duckdb was not written yet: nothing was published", advice=_PUBLISH)
    if fault := _find_unreadable(settings):
        return CheckResult(name, "error", fault, advice=_PUBLISH)
    if incomplete := count_live_rows(workspace).incomplete:
        return _describe_left_out(name, incomplete)
    if commits:
        return CheckResult(
            name, "warn", f"{abbreviate_keys(commits)} changed after cc.duckdb was written: the next run publishes them"
        )
    if lag is not None and initial_lag is None:
        return CheckResult(
            name, "warn", "cc.duckdb was made with other settings or another version: the next run publishes it again"
        )
    return CheckResult(name, "ok", f"cc.duckdb ({settings.published_path.stat().st_size:,} bytes) is up to date")


def _is_same_but_for_catalog(workspace: Workspace) -> bool:
    """Whether only stages of the catalog committed to ``slices`` since the publication."""
    rows = _read_publication(workspace.settings.published_path)
    published = {row["table_name"]: row for row in rows}.get(SLICES.name) if isinstance(rows, list) else None
    lake = workspace.lake
    try:
        if published is None or lake.commit_id(SLICES.name, published["version"]) != published["commit_id"]:
            return False
        handles = lake.open(SLICES, published["version"]), lake.handle(SLICES)
    except EnvironmentFault:
        return False  # the log was restored
    tables = [newest_rows(lake, SLICES, handle, {}, [SEQ.name]) for handle in handles if handle is not None]
    before, now = (rows.filter(pc.invert(pc.is_in(rows["stage"], pa.array(_CATALOG_STAGES)))) for rows in tables)
    return bool(before.equals(now))


def refuse_unpublished(workspace: Workspace, initial_lag: PublicationLag | None = None) -> None:
    """Raises ``EnvironmentFault`` if :func:`publication_verdict` finds an error."""
    verdict = publication_verdict(workspace, initial_lag)
    if verdict.severity == "error":
        raise EnvironmentFault(verdict.message, verdict.advice)


def _describe_left_out(name: str, incomplete: Sequence[Incomplete]) -> CheckResult:
    """The error that publications leave out slices with other rows than were committed."""
    message = f"cc.duckdb does not show incomplete slices: {list_first([*map(str, incomplete)], MAX_SHOWN_KEYS, '; ')}"
    wrong = tuple(sorted({key_of(one.slice_) for one in incomplete}))
    return CheckResult(name, "error", message, wrong=wrong, advice=_REBUILD)


def _find_unreadable(settings: Settings) -> str:
    """Returns why a table of the published file cannot be read; empty if all can. Views over the tables are not read:
    some read all rows before they return the first."""
    try:
        with open_home_publication(settings) as connection:
            tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'lake' ORDER BY ALL"
            for (table,) in connection.execute(tables).fetchall():
                connection.execute(f"SELECT 1 FROM lake.{quote_name(table)} LIMIT 1").fetchall()
    except (duckdb.Error, OSError) as error:
        return f"{settings.published_path} cannot be read: {str(error).strip().partition(chr(10))[0]}"
    except EnvironmentFault as fault:
        return f"{fault.problem}. {fault.advice}"
    return ""


@dataclass(frozen=True, slots=True)
class _PublishedTable:
    """A table of the published file: its row in the table ``publication``, the table as it is ``now``, and as it was at
    the published commit; ``None`` if the lake has no such commit, as after a restored backup."""

    row: Mapping[str, Any]
    now: PinnedTable
    as_published: PinnedTable | None


def _read_published_tables(workspace: Workspace, scope: Scope) -> list[_PublishedTable] | CheckResult:
    """Returns the tables of the published file, read once for all checks; or the check result if there are none."""
    if "publication" not in scope.memo:
        rows = _read_publication(workspace.settings.published_path)
        read_tables = (
            rows if isinstance(rows, CheckResult) else [_read_published_table(workspace.lake, row) for row in rows]
        )
        scope.memo["publication"] = read_tables
    tables: list[_PublishedTable] | CheckResult = scope.memo["publication"]
    return tables


def _read_published_table(lake: Lake, row: Mapping[str, Any]) -> _PublishedTable:
    table, version = row["table_name"], row["version"]
    now = lake.pin(table)
    if now.commit_id == row["commit_id"]:
        return _PublishedTable(row, now, now)
    is_in_lake = version <= now.version and lake.commit_id(table, version) == row["commit_id"]
    return _PublishedTable(row, now, lake.pin(table, version) if is_in_lake else None)


def published_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that ``cc.duckdb`` shows as many rows of each table as count in the lake, unless newer ones were committed
    since."""
    name = "rows_as_in_the_lake"
    tables = _read_published_tables(workspace, scope)
    if isinstance(tables, CheckResult):
        return tables
    live = count_live_rows(workspace)
    if live.incomplete:
        return _describe_left_out(name, live.incomplete)
    # rows count by tables with a key
    newer = [
        table.row["table_name"]
        for table in tables
        if table.now.spec.key and table.now.commit_id != table.row["commit_id"]
    ]
    wrong = [
        table.row["table_name"]
        for table in tables
        if table.as_published is None
        or not (newer or table.row["lake_rows"] == _count_rows(workspace.lake, table.now.spec, live))
    ]
    rows = sum(table.row["lake_rows"] for table in tables)
    published_at = tables[0].row["published_at"] if tables else datetime.now(UTC)
    metrics: Metrics = {
        "rows": rows,
        "published at": f"{published_at:%Y-%m-%d %H:%M} UTC",
        "tables with newer commits": len(newer),
    }
    if wrong:
        message = f"cc.duckdb has other row counts than the lake in {abbreviate_keys(wrong)}. {_PUBLISH}"
        return CheckResult(name, "error", message, metrics)
    if newer and datetime.now(UTC) - published_at > _MAX_LAG:
        message = (
            f"cc.duckdb was published at {published_at:%Y-%m-%d %H:%M} UTC, and {abbreviate_keys(newer)} changed "
            f"since. {_PUBLISH}"
        )
        return CheckResult(name, "warn", message, metrics)
    changes_text = f"; {abbreviate_keys(newer)} changed since" if newer else ", up to date"
    return CheckResult(
        name, "ok", f"{format_count(rows, 'row')} of {format_count(len(tables), 'table')}{changes_text}", metrics
    )


def _count_rows(lake: Lake, spec: TableSpec, live: LiveRows) -> int:
    if spec.name == SLICES.name:
        return live.states
    return lake.read(spec.name, columns=spec.key[:1]).num_rows if spec.key else live.tables[spec.name].rows


def published_files_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that every file that the views of ``cc.duckdb`` name exists."""
    name = "files_are_there"
    published_tables = _read_published_tables(workspace, scope)
    if isinstance(published_tables, CheckResult):
        return CheckResult(name, published_tables.severity, published_tables.message)
    if not _has_views(workspace.settings.published_path):
        return CheckResult(name, "ok", "cc.duckdb has copies of the rows, so its views need no files")
    files, lost_files = 0, Counter[str]()
    for table in published_tables:
        if table.as_published is None:
            lost_files[table.row["table_name"]] += 1
            continue
        stored_paths = _list_files(workspace, table.as_published)
        files += len(table.as_published.files)
        lost_files[table.row["table_name"]] += sum(
            address.removeprefix("s3://") not in stored_paths for address in table.as_published.files
        )
    metrics = {"files": files, "missing files": lost_files.total()}
    if lost_files.total():
        tables = [table for table, count in lost_files.items() if count]
        message = (
            f"{format_count(lost_files.total(), 'file', 'are')} missing that views of cc.duckdb read (tables: "
            f"{abbreviate_keys(tables)}), so queries fail. {_PUBLISH}"
        )
        return CheckResult(name, "error", message, metrics)
    return CheckResult(name, "ok", f"all {files:,} files that views of cc.duckdb read exist", metrics)


def _read_publication(path: Path) -> list[dict[str, Any]] | CheckResult:
    """Returns the rows of the table ``publication``, or the check result if there are none."""
    name = "rows_as_in_the_lake"
    if not path.exists():
        return CheckResult(name, "ok", "cc.duckdb was not written yet")
    try:
        with connect_newest(path) as connection:
            query = "SELECT table_name, version, commit_id, lake_rows, epoch_ms(published_at) FROM publication"
            rows = connection.execute(query).fetchall()
    except duckdb.Error as error:
        return CheckResult(name, "error", f"{path} cannot be read ({error}). {_PUBLISH}")
    names = ("table_name", "version", "commit_id", "lake_rows", "published_at")
    return [dict(zip(names, (*row[:4], datetime.fromtimestamp(row[4] / 1_000, UTC)), strict=True)) for row in rows]


def _has_views(path: Path) -> bool:
    views = "FROM duckdb_views() JOIN publication ON table_name = view_name WHERE schema_name = 'lake' LIMIT 1"
    with connect_newest(path) as connection:
        return connection.execute(views).fetchone() is not None


def _list_files(workspace: Workspace, pinned: PinnedTable) -> set[str]:
    """Returns the paths of all files in the table's folder, with one listing."""
    if not pinned.files:
        return set()
    folder = workspace.lake.address(pinned.spec.name).removeprefix("s3://")
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    return {info.path for info in workspace.lake.file_system().get_file_info(selector)}
