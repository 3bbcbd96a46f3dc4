"""The report of a target: asked of ``cc.duckdb``, written as one file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from cc_pipeline.atomic import write_whole
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.moving import open_settled
from cc_pipeline.lake.reading import quoted
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
    to = path or report_path(settings, slug)
    try:
        found = _found(settings, slug)
        write_whole(to, page_of(found))
    except (duckdb.Error, OSError) as error:
        raise EnvironmentFault(
            f"could not write the report {to}: {error}",
            "Check the disk and the lake; files of the tables are there again after the next publication.",
        ) from error
    return found


def _found(settings: Settings, slug: str) -> Findings:
    with open_settled(settings) as connection:
        # a folder of this name is cleared away should the process be killed
        own = settings.home / "scratch" / this_process()
        own.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryDirectory(dir=own, prefix="report-") as spill:
                connection.execute(f"SET temp_directory = {quoted(spill)}")
                connection.execute(f"SET memory_limit = '{_MEMORY}'")
                return find(connection, slug)
        finally:
            with suppress(OSError):
                own.rmdir()  # others of this process may use it
