"""The report of a target: asked of ``cc.duckdb``, written as one file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.reading import open_published, quoted, s3_place
from cc_pipeline.processes import this_process
from cc_pipeline.settings import Settings
from cc_pipeline.stages.questions.findings import Findings, find
from cc_pipeline.stages.questions.page import page_of

#: What DuckDB may hold in memory; it puts more into the home's scratch folder.
_MEMORY: Final = "1GB"


def report_path(settings: Settings, slug: str) -> Path:
    """Where the report of a target lies in its home."""
    return settings.home / "reports" / f"{slug}.html"


def write_report(settings: Settings, slug: str, path: Path | None = None) -> Findings:
    """Writes the report of a target from what was published, and gives what it says.

    ``slug`` is the target's key; the file is ``path``, by default in the home, and appears whole or not at all. Raises
    ``EnvironmentFault`` where nothing was published or it cannot be read or written, ``UserInputError`` for a target
    that nobody looked for.
    """
    published, to = settings.published_path, path or report_path(settings, slug)
    if not published.exists():
        raise EnvironmentFault(
            f"{published} does not exist yet", f"Publish it first: cc-pipeline run --crawl newest --domain {slug}"
        )
    try:
        found = _found(settings, slug)
        to.parent.mkdir(parents=True, exist_ok=True)
        # names in titles may hold what no encoding can write
        beside = to.with_name(f".{to.name}.{this_process()}")
        try:
            beside.write_text(page_of(found), "utf-8", errors="replace")
            beside.replace(to)
        finally:
            beside.unlink(missing_ok=True)
    except (duckdb.Error, OSError) as error:
        raise EnvironmentFault(
            f"could not write the report {to}: {error}",
            "Check the disk and the lake; if tables have moved, publish again: cc-pipeline run.",
        ) from error
    return found


def _found(settings: Settings, slug: str) -> Findings:
    scratch = settings.home / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(dir=scratch, prefix=f"report-{this_process()}-") as spill,
        open_published(settings.published_path, s3_place(settings)) as connection,
    ):
        connection.execute(f"SET temp_directory = {quoted(spill)}")
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        return find(connection, slug)
