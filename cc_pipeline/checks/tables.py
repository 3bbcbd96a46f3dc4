"""Checks of the current tables for the asset checks, and of the promises of a catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.advice import advise
from cc_pipeline.checks.scope import CheckResult, Scope, Severity, join_results, key_of
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.domains import suggest_names
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.harvesting.catalog import read_catalog_table
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, HARVEST, LOCATE
from cc_pipeline.lake.slices import list_slices, read_notes
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.workspace.workspace import Workspace

#: The sums of a fetch note.
_COUNTS: Final = ("planned", "fetched", "pending", "mismatched")
#: The most partitions that a message names.
_MAX_NAMED_PARTITIONS = 5


def examine_catalog(
    workspace: Workspace, scope: Scope, table: str, examine: Callable[[pa.Table], CheckResult]
) -> CheckResult:
    """Examines a table of the catalog of each harvested crawl that has a columnar index, oldest crawl first."""
    lake = workspace.lake
    harvested = {slice_.crawl for slice_ in list_slices(lake, HARVEST)} - {*ARC_CRAWLS}
    results = [
        _prefix_with_crawl(crawl, examine(read_catalog_table(lake, table, crawl)))
        for crawl in sorted(harvested if scope.crawls is None else harvested & scope.crawls)
    ]
    return join_results(table, results)


def found_targets_verdict(lake: Lake) -> CheckResult:
    """Names the targets of which no crawl has captures, with targets of similar names that have some."""
    captures: Counter[str] = Counter()
    for row in read_notes(lake, (LOCATE,)):
        if row.tables:
            captures[whole_slug(row.slice_.target)] += row.note["captures"]
    absent = sorted(slug for slug, count in captures.items() if not count)
    if not absent:
        return CheckResult("targets_found", "ok", "every target has captures in a crawl that it was looked up in")
    names = suggest_names(absent, [slug for slug, count in captures.items() if count])
    message = (
        f"no crawl that was looked up has captures of {format_count(len(absent), 'target')}: "
        f"{list_first(names, _MAX_NAMED_PARTITIONS)}"
    )
    advice = advise("targets remove", absent[0], sentence="To remove one: {}")
    return CheckResult("targets_found", "warn", message, {"targets without captures": len(absent)}, advice=advice)


def missing_captures_verdict(lake: Lake) -> CheckResult:
    """Checks how many of the planned captures are not fetched, a capture of several targets counted for each: a warning
    from one pending capture, an error from one in a hundred. For lost captures it is a warning from one in a
    hundred."""
    counts, worst = _count_captures(lake)
    planned, fetched, pending = counts["planned"], counts["fetched"], counts["pending"]
    unlisted = sum(row.note["unlisted"] for row in read_notes(lake, (LOCATE,)))
    lost = planned - fetched - pending
    metrics: dict[str, int | float | str] = {
        "planned": planned, "pending": pending, "lost": lost, "not fetched": share(pending + lost, planned),
        "payloads other than indexed": counts["mismatched"], "no longer in the index": unlisted,
    }  # fmt: skip
    if not pending and lost * 100 < max(planned, 1):
        message = f"{fetched:,} of {planned:,} captures are fetched"
        if counts["mismatched"]:
            message += f"; {counts['mismatched']:,} of them have another payload digest than the index lists"
        return CheckResult("nothing_missing", "ok", message, metrics)
    problems = [f"{pending:,} of {planned:,} captures are pending and will be requested again"] if pending else []
    if lost:
        problems.append(f"{lost:,} of {planned:,} are lost in the source itself")
    lines = ["; ".join(problems)]
    for partition, waiting in worst:
        lines.append(f"{partition}: {waiting.pending:,} of {waiting.planned:,}, {waiting.reason}")
    bad = pending and pending * 100 >= planned
    advice = "Request the pending captures now: run their targets again with cc-pipeline run." if pending else ""
    return CheckResult("nothing_missing", "error" if bad else "warn", "\n".join(lines), metrics, advice=advice)


@dataclass(slots=True)
class _Waiting:
    """The pending captures of a partition, of those planned in its slices with pending ones; and the most common reason
    of the first of these slices."""

    reason: str | None
    pending: int = 0
    planned: int = 0


def _count_captures(lake: Lake) -> tuple[Counter[str], list[tuple[str, _Waiting]]]:
    """Sums the counts of all fetches, and returns the partitions with the most pending captures."""
    counts, by_partition = Counter[str](), dict[str, _Waiting]()
    for row in read_notes(lake, (FETCH,)):
        counts.update({name: row.note[name] or 0 for name in _COUNTS})
        if row.note["pending"]:
            waiting = by_partition.setdefault(key_of(row.slice_), _Waiting(row.note["reason"]))
            waiting.pending += row.note["pending"]
            waiting.planned += row.note["planned"]
    return counts, nlargest(_MAX_NAMED_PARTITIONS, by_partition.items(), key=lambda item: item[1].pending)


def _prefix_with_crawl(crawl: str, result: CheckResult) -> CheckResult:
    wrong = () if result.passed else (crawl,)
    return CheckResult(result.name, result.severity, f"{crawl}: {result.message}", result.metrics, wrong)


def check_coverage(coverage: pa.Table) -> CheckResult:
    """Checks that all files of the harvested subsets in the path list were harvested."""
    expected, harvested = _sum(coverage["expected"]), _sum(coverage["harvested"])
    failed, missing = _sum(coverage["failed"]), _sum(coverage["missing"])
    metrics = {"expected": expected, "harvested": harvested, "failed": failed, "missing": missing}
    if missing or failed:
        severity: Severity = "error" if missing else "warn"
        return CheckResult(
            "coverage",
            severity,
            f"of {expected} index files, {failed} could not be read and {missing} were not harvested, so lookups may "
            "miss captures",
            metrics,
        )
    rows = coverage.to_pylist()
    subsets = " and ".join(row["subset"] for row in rows if row["expected"])
    sentences = [f"all {expected} files of {subsets} are harvested"] if subsets else []
    sentences += dict.fromkeys(row["reason"] for row in rows if row["reason"])
    return CheckResult("coverage", "ok", "; ".join(sentences), metrics)


def check_statistics(row_groups: pa.Table) -> CheckResult:
    """Counts the row groups with key bounds by the source of the bounds; row groups without bounds can never be
    pruned."""
    total = len(row_groups)
    sources = row_groups[f"{KEY_COLUMN}_source"]
    metrics: dict[str, int | float | str] = {"row_groups": total}
    for entry in pc.value_counts(sources).to_pylist():
        metrics[entry["values"] or "without bounds"] = entry["counts"]
    unbounded = sources.null_count
    if unbounded:
        message = (
            f"{unbounded} of {total} row groups were published without bounds of {KEY_COLUMN}, so every lookup reads "
            "these row groups. Results are right; to make lookups cheaper: cc-pipeline index repair"
        )
        return CheckResult("statistics", "warn", message, metrics)
    return CheckResult("statistics", "ok", f"all {total} row groups have bounds of {KEY_COLUMN}", metrics)


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
