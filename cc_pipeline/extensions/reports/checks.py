"""The check of the asset ``report``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cc_pipeline.checks.check import check, checks_in
from cc_pipeline.checks.scope import CheckResult, Scope, abbreviate_keys

if TYPE_CHECKING:
    from cc_pipeline.workspace.workspace import Workspace

#: Maximum age difference of a report and the publication.
_MAX_LAG: Final = timedelta(days=1)


@check("report")
def as_published(workspace: Workspace, _: Scope) -> CheckResult:
    """Reports are of what is published now, or of a day before at most."""
    from cc_pipeline.extensions.reports.page import report_path

    name, settings = "as_published", workspace.settings
    folder, published = report_path(settings, "any").parent, settings.published_path
    written = {path.stem: path.stat().st_mtime for path in folder.glob("*.html")} if folder.is_dir() else {}
    published_time = published.stat().st_mtime if published.exists() else 0.0
    older = {
        slug: published_time - written_time for slug, written_time in written.items() if written_time < published_time
    }
    metrics: dict[str, int | float | str] = {"reports": len(written), "older than the publication": len(older)}
    if late := {slug for slug, seconds in older.items() if seconds > _MAX_LAG.total_seconds()}:
        message = (
            f"{len(late):,} reports are older than cc.duckdb ({abbreviate_keys(late)}): materialize the asset report "
            "for these targets"
        )
        return CheckResult(name, "warn", message, metrics)
    older_text = f", {len(older):,} of them older than cc.duckdb" if older else ""
    message = f"{len(written):,} reports{older_text}" if written else "no report was made"
    return CheckResult(name, "ok", message, metrics)


CHECKS: Final = checks_in(globals())
