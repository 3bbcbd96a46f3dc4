"""Pictures of a crawl's index, as the Markdown that a UI shows."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.index.catalog_pictures import plot_coverage, plot_key_ranges
from cc_pipeline.index.catalog_tables import KEY_COLUMN


def coverage_figures(workspace: Workspace, crawl: str) -> dict[str, int | float | str]:
    """Files expected, harvested and failed, and row groups without statistics, over all subsets of ``crawl``."""
    rows = workspace.lake.read("coverage", {"crawl": crawl})
    names = {"expected": "files expected", "harvested": "files harvested", "failed": "files failed"}
    figures: dict[str, int | float | str] = {shown: pc.sum(rows[name]).as_py() or 0 for name, shown in names.items()}
    figures["index rows"] = pc.sum(rows["rows"]).as_py() or 0
    figures["row groups without key bounds"] = pc.sum(rows["without_statistics"]).as_py() or 0
    return figures


def key_range_picture(row_groups: pa.Table, crawl: str) -> str | None:
    """Which keys each row group holds, file by file; ``None`` when no bounds are known."""
    if not row_groups.num_rows or row_groups[f"{KEY_COLUMN}_min"].null_count == row_groups.num_rows:
        return None
    return _image("key ranges", plot_key_ranges(row_groups, title=f"Keys of each row group of {crawl}"))


def coverage_picture(workspace: Workspace) -> str | None:
    """Files harvested, failed and missing of every crawl; ``None`` before the first harvest."""
    rows = workspace.lake.read("coverage")
    return _image("coverage", plot_coverage(rows)) if rows.num_rows else None


def _image(name: str, png: bytes) -> str:
    return f"![{name}](data:image/png;base64,{base64.b64encode(png).decode('ascii')})"
