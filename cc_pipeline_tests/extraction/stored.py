"""The stored files of a home against its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW

#: Columns whose values differ between two runs that did the same.
VARYING = ("fetched_at", "stored_file", "stored_offset", "stored_length", "attempts")


def stored_files(workspace: Workspace, crawl: str = NEW) -> set[Path]:
    """The files of stored records of a crawl in a home with a local lake."""
    folder = workspace.settings.home / "lake" / "records" / crawl
    return {path for path in folder.iterdir() if path.name.endswith((".warc.gz", ".arc.gz", ".quarantine"))}


def dangling(workspace: Workspace, rows: pa.Table | None = None) -> list[str]:
    """Stored files that rows need and that are gone or too short."""
    named = workspace.lake.read("records") if rows is None else rows
    found = set()
    for row in named.select(["stored_file", "stored_offset", "stored_length"]).to_pylist():
        if row["stored_file"] is not None:
            path = workspace.settings.home / "lake" / row["stored_file"]
            if not path.exists() or path.stat().st_size < row["stored_offset"] + row["stored_length"]:
                found.add(row["stored_file"])
    return sorted(found)


def without_varying(table: pa.Table) -> pa.Table:
    """The rows in an order of their own, without what differs from run to run."""
    kept = table.drop_columns([name for name in VARYING if name in table.column_names])
    return kept.sort_by([(name, "ascending") for name in ("target", "warc_filename", "warc_record_offset")])
