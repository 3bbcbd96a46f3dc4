"""The check of the published file: whether it shows the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.advice import advise
from cc_pipeline.checks.conservation import count_live_rows
from cc_pipeline.checks.scope import MAX_SHOWN_KEYS, CheckResult, Scope, Severity, abbreviate_keys, key_of
from cc_pipeline.duck import connect_newest
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.keyed import newest_rows
from cc_pipeline.lake.lake import SEQ
from cc_pipeline.lake.live_rows import Miscount
from cc_pipeline.lake.published_file import open_home_publication
from cc_pipeline.lake.quoting import quote_name
from cc_pipeline.lake.slice import HARVEST, LOCATE, MANIFEST
from cc_pipeline.lake.slices import CONDEMNED, SLICES, list_slices
from cc_pipeline.progress import list_first
from cc_pipeline.publish.publish import PublicationLag, find_publication_lag
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace

#: The longest lag of the published file behind the lake.
_MAX_LAG_MINUTES: Final = 24 * 60
#: Tables and stages that decide about no published capture.
_CATALOG_TABLES: Final = frozenset(("crawls", "source_files"))
_CATALOG_STAGES: Final = (MANIFEST.label, HARVEST.label, CONDEMNED)
_REBUILD: Final = advise("doctor", repair=True, sentence="Rebuild these slices: {}.")
_PUBLISH: Final = "Publish cc.duckdb again: repeat any cc-pipeline run, or materialize `warehouse`."


def publication_verdict(workspace: Workspace, initial_lag: PublicationLag | None = None) -> CheckResult:
    """Checks that ``cc.duckdb`` exists, can be read, and shows the current lake, as :func:`judge_publication` does."""
    return judge_publication(workspace, find_publication_lag(workspace), initial_lag)


def published_verdict(workspace: Workspace, _: Scope) -> CheckResult:
    """As :func:`publication_verdict`, for a home in which runs go on: commits of less than a day are no problem, nor is
    a file that was not written yet."""
    if not workspace.settings.published_path.exists():
        return CheckResult("publication", "ok", "cc.duckdb was not written yet")
    lag = find_publication_lag(workspace)
    is_young = lag is not None and not lag.fault and not lag.longer_than(_MAX_LAG_MINUTES)
    return judge_publication(workspace, lag, PublicationLag("", None) if is_young else None)


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
        return CheckResult(name, "ok", "cc.duckdb was not written yet, and there is nothing to show")
    if fault := _find_unreadable(settings):
        return CheckResult(name, "error", fault, advice=_PUBLISH)
    if miscounts := count_live_rows(workspace).miscounts:
        return _describe_left_out(name, miscounts)
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
    lake, query = workspace.lake, "SELECT version, commit_id FROM publication WHERE table_name = 'slices'"
    try:
        with connect_newest(workspace.settings.published_path) as connection:
            [(version, commit_id)] = connection.execute(query).fetchall()
        if lake.pin(SLICES.name, version).commit_id != commit_id:
            return False
        handles = lake.open(SLICES, version), lake.handle(SLICES)
    except (EnvironmentFault, duckdb.Error, ValueError):
        return False  # the log was restored, or the file does not show the table
    tables = [newest_rows(lake, SLICES, handle, {}, [SEQ.name]) for handle in handles if handle is not None]
    before, now = (rows.filter(pc.invert(pc.is_in(rows["stage"], pa.array(_CATALOG_STAGES)))) for rows in tables)
    return bool(before.equals(now))


def _describe_left_out(name: str, miscounts: Sequence[Miscount]) -> CheckResult:
    """The error that publications leave out slices with other rows than were committed."""
    message = f"cc.duckdb does not show incomplete slices: {list_first([*map(str, miscounts)], MAX_SHOWN_KEYS, '; ')}"
    wrong = tuple(sorted({key_of(one.slice_) for one in miscounts}))
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
