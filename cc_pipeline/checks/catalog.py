"""What a catalog's tables promise, checked: plain functions over tables, for asset checks and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.checks.scope import CheckResult, Severity
from cc_pipeline.index.catalog.schemas import KEY_COLUMN

#: Rows of subset ``warc`` in a crawl, from the smallest to the largest published, with room on both sides.
PLAUSIBLE_ROWS: Final = (1_000_000_000, 6_000_000_000)
#: Files of a subset; fewer say that this is not a whole crawl (a generated or cut one), which has no usual size.
WHOLE_CRAWL_FILES: Final = 200


def check_coverage(coverage: pa.Table) -> CheckResult:
    """Files harvested = files of the harvested subsets in the path list."""
    expected, harvested = _sum(coverage["expected"]), _sum(coverage["harvested"])
    failed, missing = _sum(coverage["failed"]), _sum(coverage["missing"])
    figures = {"expected": expected, "harvested": harvested, "failed": failed, "missing": missing}
    if missing or failed:
        severity: Severity = "error" if missing else "warn"
        return CheckResult(
            "coverage", severity, f"{failed} files failed and {missing} are missing of {expected}", figures
        )
    rows = coverage.to_pylist()
    asked = " and ".join(row["subset"] for row in rows if row["expected"])
    said = [f"all {expected} files of {asked} are harvested"] if asked else []
    said += dict.fromkeys(row["reason"] for row in rows if row["reason"])
    return CheckResult("coverage", "ok", "; ".join(said), figures)


def check_row_counts(index_files: pa.Table, row_groups: pa.Table) -> CheckResult:
    """The rows of a file's row groups are those the file claims."""
    grouped = row_groups.group_by("path").aggregate([("rows", "sum"), ("rows", "count")])
    sums = {row["path"]: (row["rows_sum"], row["rows_count"]) for row in grouped.to_pylist()}
    wrong = []
    for row in index_files.filter(pc.equal(index_files["outcome"], "decoded")).to_pylist():
        if sums.get(row["path"], (0, 0)) != (row["rows"], row["row_groups"]):
            wrong.append(row["path"])
    if wrong:
        some = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        message = f"the row groups' rows are not as many as the file says in {some}"
        return CheckResult("row_counts", "error", message, {"files": len(wrong)})
    return CheckResult("row_counts", "ok", f"{_sum(row_groups['rows'])} rows in {len(row_groups)} row groups")


def check_plausible_rows(coverage: pa.Table) -> CheckResult:
    """A whole crawl's captures are as many as crawls have; cut and generated ones have no usual number."""
    rows = {row["subset"]: row for row in coverage.to_pylist()}
    found = rows.get("warc")
    if found is None or found["expected"] < WHOLE_CRAWL_FILES:
        return CheckResult("plausible_rows", "ok", "this is not a whole crawl, so any number of rows is plausible")
    least, most = PLAUSIBLE_ROWS
    figures = {"rows": found["rows"], "least": least, "most": most}
    if not least <= found["rows"] <= most:
        return CheckResult("plausible_rows", "warn", f"{found['rows']:,} captures are unusual for a crawl", figures)
    return CheckResult("plausible_rows", "ok", f"{found['rows']:,} captures", figures)


def check_statistics(row_groups: pa.Table) -> CheckResult:
    """How many row groups have bounds of their keys, and from where; those without can never be pruned."""
    total = len(row_groups)
    sources = row_groups[f"{KEY_COLUMN}_source"]
    figures: dict[str, int | float | str] = {"row_groups": total}
    for entry in pc.value_counts(sources).to_pylist():
        figures[entry["values"] or "none"] = entry["counts"]
    without = sources.null_count
    if without:
        message = (
            f"{without} of {total} row groups have no bounds of {KEY_COLUMN}: every look-up reads them until repaired"
        )
        return CheckResult("statistics", "warn", message, figures)
    return CheckResult("statistics", "ok", f"all {total} row groups have bounds of {KEY_COLUMN}", figures)


def check_sortedness(row_groups: pa.Table) -> CheckResult:
    """How many neighbouring row groups of a file overlap; sorted files (since May 2022) have none."""
    low, high = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
    known = row_groups.filter(pc.and_(pc.is_valid(row_groups[low]), pc.is_valid(row_groups[high])))
    ordered = known.select(["path", "row_group", low, high]).sort_by(
        [("path", "ascending"), ("row_group", "ascending")]
    )
    if len(ordered) < 2:
        return CheckResult("sortedness", "ok", "too few row groups to tell", {"pairs": 0, "overlapping": 0})
    before, after = ordered.slice(0, len(ordered) - 1), ordered.slice(1)
    same = pc.equal(before["path"].combine_chunks(), after["path"].combine_chunks())
    overlap = pc.and_(same, pc.greater(before[high].combine_chunks(), after[low].combine_chunks()))
    pairs, overlapping = pc.sum(same).as_py() or 0, pc.sum(overlap).as_py() or 0
    figures = {"pairs": pairs, "overlapping": overlapping}
    message = f"{overlapping} of {pairs} neighbouring row groups overlap" + ("" if overlapping else ": sorted by key")
    return CheckResult("sortedness", "ok" if not overlapping else "warn", message, figures)


def schema_changes(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """How two column lists (``columns`` of ``index_files``) differ: a sentence a column, in file order."""
    old, new = _by_name(before), _by_name(after)
    said = []
    for name in dict.fromkeys((*old, *new)):
        was, now = old.get(name), new.get(name)
        if was is None:
            said.append(f"{name} is new ({now})")
        elif now is None:
            said.append(f"{name} is gone (was {was})")
        elif was != now:
            said.append(f"{name} was {was}, is {now}")
    return said


def check_schema_drift(index_files: pa.Table, previous: Sequence[str] | None = None) -> CheckResult:
    """Whether all files of a crawl have the same columns, and how they differ from ``previous`` (another crawl's)."""
    decoded = index_files.filter(pc.equal(index_files["outcome"], "decoded"))
    schemas: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for digest, columns in zip(decoded["schema_digest"].to_pylist(), decoded["columns"].to_pylist(), strict=True):
        schemas.setdefault(digest, columns)
        counts[digest] = counts.get(digest, 0) + 1
    if not schemas:
        return CheckResult("schema_drift", "ok", "no files to compare", {"schemas": 0})
    usual = max(counts, key=lambda digest: counts[digest])
    inside = [
        f"{counts[digest]} files: {change}"
        for digest, columns in schemas.items()
        if digest != usual
        for change in schema_changes(schemas[usual], columns)
    ]
    since = schema_changes(previous, schemas[usual]) if previous is not None else []
    figures: dict[str, int | float | str] = {"schemas": len(schemas), "columns": len(schemas[usual]), "digest": usual}
    if inside or since:
        return CheckResult("schema_drift", "warn", "; ".join((*inside, *since)), figures)
    return CheckResult("schema_drift", "ok", f"all files have the same {len(schemas[usual])} columns", figures)


def _by_name(columns: Iterable[str]) -> dict[str, str]:
    return {name: rest for name, _, rest in (column.partition(" ") for column in columns)}


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
