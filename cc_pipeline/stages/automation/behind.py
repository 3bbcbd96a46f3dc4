"""Whether ``cc.duckdb`` shows the tables as they are now, and for how long it has not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import duckdb

from cc_pipeline.stages.publish import made_as
from cc_pipeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Behind:
    """``state`` names the tables' versions that the file does not show, the same text for the same versions. ``since``
    is how long ago the file was published; ``None`` where there is none."""

    state: str
    since: timedelta | None

    def longer_than(self, minutes: float) -> bool:
        """Whether the last publication is older than so many minutes, or there was none."""
        return self.since is None or self.since >= timedelta(minutes=minutes)


def behind(workspace: Workspace) -> Behind | None:
    """How far the published file is behind the lake; ``None`` where it shows all there is, and where there is nothing.
    One that another version of this program made, or other settings, is behind too. ``None`` in a home that publishes
    nothing.

    It opens each table's log and no data. Raises ``EnvironmentFault``.
    """
    if workspace.settings.publish == "none":
        return None
    path, lake = workspace.settings.published_path, workspace.lake
    shown: dict[str, int] = {}
    since = None
    made: set[str | None] = set()
    try:
        since = datetime.now(UTC) - datetime.fromtimestamp(path.stat().st_mtime, UTC)
        with duckdb.connect(str(path), read_only=True) as connection:
            rows = connection.execute("SELECT table_name, version, made_as FROM main.publication").fetchall()
            shown, made = {name: version for name, version, _ in rows}, {how for _, _, how in rows}
    except (OSError, duckdb.Error):
        # no file, or one that nobody can read: another takes its place
        since = None
    # what the last publication showed, or all there is
    specs = lake.specs
    handles = {name: lake.open(specs[name]) for name in ([one for one in shown if one in specs] or specs)}
    now = {name: -1 if handle is None else handle.version() for name, handle in handles.items()}
    if (now == shown and made == {made_as(workspace)}) or all(version < 0 for version in now.values()):
        return None
    return Behind(hashlib.sha256(repr(sorted(now.items())).encode()).hexdigest()[:16], since)
