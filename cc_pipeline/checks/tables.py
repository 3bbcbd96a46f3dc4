"""Checks of the current tables for the asset checks, and of the promises of a catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.checks.scope import CheckResult, Scope, Severity, abbreviate_keys, join_results, key_of
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.domains import find_closest_name
from cc_pipeline.commoncrawl.slice_slugs import defined_slug, whole_slug
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.extraction.reusable_records import find_sharing
from cc_pipeline.harvesting.catalog import read_catalog_tables, read_subsets
from cc_pipeline.harvesting.crawl_index import requested_subsets
from cc_pipeline.index.catalog.schemas import DECODED, KEY_COLUMN
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, HARVEST, LOCATE, MANIFEST, Slice
from cc_pipeline.lake.slices import list_slices, read_notes
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector
from cc_pipeline.workspace.schemas import FETCHES_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: The sums of a fetch note.
_COUNTS: Final = ("planned", "fetched", "pending", "mismatched")
#: Notes that are Python objects at a time.
_NOTES_AT_ONCE: Final = 10_000
#: Bits of the rank of a capture's row: the more important criterion has the higher bit.
_PENDING, _MISMATCHED, _BY_NAME, _FETCHED = 1, 2, 4, 1 << 40
#: The most partitions that a message names.
_MAX_NAMED_PARTITIONS = 5


def manifest_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that each path list has every file once, in its own crawl, and as many files as the catalog expects."""
    name, lake = "as_the_catalog_expects", workspace.lake
    expected: dict[str, dict[str, int]] = {}
    for row in read_subsets(lake):
        expected.setdefault(row.crawl, {})[row.subset] = row.expected
    verdicts, sound = [], 0
    for crawl in _listed_crawls(workspace, scope):
        table = lake.read("index_manifest", {"crawl": crawl}, ["subset", "path"])
        counts = {row["values"]: row["counts"] for row in pc.value_counts(table["subset"]).to_pylist()}
        twice = len(table) - len(table["path"].unique())
        misplaced = sum(f"/crawl={crawl}/" not in path for path in table["path"].to_pylist())
        changed_subsets = {
            subset for subset, count in expected.get(crawl, counts).items() if count != counts.get(subset, 0)
        } - {""}
        if twice or misplaced:
            message = (
                f"{crawl}: the path list has {format_count(twice, 'file')} twice and "
                f"{format_count(misplaced, 'file')} of another crawl; harvest the crawl again"
            )
            verdicts.append(CheckResult(name, "error", message, wrong=(crawl,)))
        elif changed_subsets:
            message = (
                f"{crawl}: the path list changed after the harvest ({abbreviate_keys(changed_subsets)}), so lookups "
                "may miss files; harvest the crawl again"
            )
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
        else:
            sound += 1
    return (
        join_results(name, verdicts)
        if verdicts
        else CheckResult(name, "ok", f"{sound:,} path lists name each file once, and the catalog has the same files")
    )


def footers_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that each listed index file of the selected and harvested subsets has a footer in the home. For subsets
    that another home of the lake harvested, the home needs none. Reads the heads of the stored footers only."""
    name, store = "every_footer_is_kept", FooterStore(workspace.settings.footers_path)
    harvested = {(row.crawl, row.subset) for row in read_subsets(workspace.lake)}
    is_shared = workspace.settings.has_separate_lake
    verdicts, kept_count = [], 0
    for crawl in _listed_crawls(workspace, scope):
        subsets = [subset for subset in requested_subsets(workspace.settings, crawl) if (crawl, subset) in harvested]
        where = {"crawl": crawl, "subset": subsets}
        footers = store.read(crawl)
        paths_by_subset: dict[str, list[str]] = {}
        for row in workspace.lake.read("index_manifest", where, ["subset", "path"]).to_pylist():
            paths_by_subset.setdefault(row["subset"], []).append(row["path"])
        paths = [
            path
            for subset_paths in paths_by_subset.values()
            # a subset without any footer was harvested by another home of the lake
            if not is_shared or any(path in footers for path in subset_paths)
            for path in subset_paths
        ]
        lost = [path for path in paths if path not in footers]
        kept_count += len(paths) - len(lost)
        if lost:
            message = f"{crawl}: {len(lost):,} of {len(paths):,} footers of index files are missing; harvest it again"
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
    return (
        join_results(name, verdicts) if verdicts else CheckResult(name, "ok", f"all {kept_count:,} footers are stored")
    )


def _listed_crawls(workspace: Workspace, scope: Scope) -> list[str]:
    """Returns the crawls in the scope whose path list was read."""
    stored_crawls = {slice_.crawl for slice_ in list_slices(workspace.lake, MANIFEST)}
    return sorted(stored_crawls if scope.crawls is None else stored_crawls & scope.crawls)


def index_verdict(workspace: Workspace, name: str, scope: Scope) -> CheckResult:
    """Returns one of the checks of :func:`index_verdicts`; several of them read the tables once."""
    if "index" not in scope.memo:
        scope.memo["index"] = index_verdicts(workspace, scope.crawls)
    return join_results(name, [verdict for verdict in scope.memo["index"] if verdict.name == name])


def index_verdicts(workspace: Workspace, crawls: Collection[str] | None = None) -> list[CheckResult]:
    """Returns every check of ``crawls`` (default: all harvested ones) that have a columnar index, oldest crawl
    first."""
    lake = workspace.lake
    harvested = {slice_.crawl for slice_ in list_slices(lake, HARVEST)} - {*ARC_CRAWLS}
    verdicts: list[CheckResult] = []
    for crawl in sorted(harvested if crawls is None else harvested.intersection(crawls)):
        coverage, files, groups = read_catalog_tables(lake, ["coverage", "index_files", "row_groups"], crawl)
        results = (check_coverage(coverage), check_row_counts(files, groups), check_statistics(groups))
        verdicts += [_prefix_with_crawl(crawl, result) for result in results]
    return verdicts


def found_targets_verdict(lake: Lake) -> CheckResult:
    """Names the targets of which no crawl has captures, each with the target of the lake that it may be a mistyping
    of."""
    captures: Counter[str] = Counter()
    for row in read_notes(lake, (LOCATE,)):
        if row.tables:
            captures[whole_slug(row.slice_.target)] += row.note["captures"]
    absent = sorted(slug for slug, count in captures.items() if not count)
    if not absent:
        return CheckResult("targets_found", "ok", "every target has captures in a crawl that it was looked up in")
    found_slugs = [slug for slug, count in captures.items() if count]
    guesses = {slug: find_closest_name(slug, found_slugs) for slug in absent[:_MAX_NAMED_PARTITIONS]}
    names = [f"{slug} (did you mean {guess}?)" if guess else slug for slug, guess in guesses.items()]
    message = (
        f"no crawl that was looked up has captures of {format_count(len(absent), 'target')}: {', '.join(names)}. To "
        f"remove one: cc-pipeline targets remove {absent[0]}"
    )
    return CheckResult("targets_found", "warn", message, {"targets without captures": len(absent)})


def missing_captures_verdict(lake: Lake) -> CheckResult:
    """Checks how many of the planned captures are not fetched, each capture counted once: a warning from one pending
    capture, an error from one in a hundred. For lost captures it is a warning from one in a hundred."""
    rows = _read_fetches(lake)
    planned, fetched, pending, mismatched = _sum_distinct_captures(lake, rows)
    unlisted = sum(row.note["unlisted"] for row in read_notes(lake, (LOCATE,)))
    lost = planned - fetched - pending
    metrics: dict[str, int | float | str] = {
        "planned": planned, "pending": pending, "lost": lost, "not here": share(pending + lost, planned),
        "payloads other than indexed": mismatched, "no longer in the index": unlisted,
    }  # fmt: skip
    if not pending and lost * 100 < max(planned, 1):
        message = f"{fetched:,} of {planned:,} captures are fetched"
        mismatch_text = (
            f"; {mismatched:,} of them have another payload digest than the index lists" if mismatched else ""
        )
        return CheckResult("nothing_missing", "ok", message + mismatch_text, metrics)
    problems = [f"{pending:,} of {planned:,} captures are pending and will be requested again"] if pending else []
    if lost:
        problems.append(f"{lost:,} of {planned:,} are lost in the source itself")
    message = "; ".join(problems)
    for partition, (missing, total, reason) in _find_worst(rows)[:_MAX_NAMED_PARTITIONS] if pending else ():
        message += f"\n{partition}: {missing:,} of {total:,}, {reason}"
    bad = pending and pending * 100 >= planned
    return CheckResult("nothing_missing", "error" if bad else "warn", message, metrics)


def _read_fetches(lake: Lake) -> pa.Table:
    """Reads the counts in the notes of all fetches, of which there may be hundreds of thousands."""
    schema = pa.schema([FETCHES_SCHEMA.field(name) for name in (*SLICE, *_COUNTS, "reason")])
    rows = ({**row.slice_.where, **row.note} for row in read_notes(lake, (FETCH,)))
    batches = iter(lambda: [*islice(rows, _NOTES_AT_ONCE)], [])
    return pa.Table.from_batches([pa.RecordBatch.from_pylist(batch, schema) for batch in batches], schema)


def _sum_distinct_captures(lake: Lake, notes: pa.Table) -> tuple[int, ...]:
    """Returns the sums of ``_COUNTS``, with a capture of several targets counted once: for targets that can share
    captures their records are read. A slice without records counts as its note says."""
    shared = find_sharing(lake)
    is_shared = pa.array([defined_slug(target) in shared for target in notes["target"].to_pylist()], pa.bool_())
    totals = [pc.sum(notes.filter(pc.invert(is_shared))[name]).as_py() or 0 for name in _COUNTS]
    by_crawl: dict[str, list[dict[str, Any]]] = {}
    for row in notes.filter(is_shared).to_pylist():
        by_crawl.setdefault(row["crawl"], []).append(row)
    for crawl, crawl_rows in by_crawl.items():
        stored_counts = count_rows(
            lake, "records", {"crawl": crawl, "target": [row["target"] for row in crawl_rows]}, ["target"]
        )
        complete_targets = {
            row["target"]
            for row in crawl_rows
            if len(crawl_rows) > 1 and stored_counts[(row["target"],)] == row["planned"]
        }
        for position, name in enumerate(_COUNTS):
            totals[position] += sum(row[name] or 0 for row in crawl_rows if row["target"] not in complete_targets)
        for position, count in enumerate(_count_distinct_records(lake, crawl, sorted(complete_targets))):
            totals[position] += count
    return tuple(totals)


def _count_distinct_records(lake: Lake, crawl: str, targets: Sequence[str]) -> tuple[int, ...]:
    """Counts ``_COUNTS`` over the distinct captures of some slices. Of several rows of a capture the published one
    counts: a fetched one first, then by the target's name. Holds 16 bytes per capture."""
    if not targets:
        return (0,) * len(_COUNTS)
    where: dict[str, str | Sequence[str]] = {"crawl": crawl, "target": targets}
    collector = LocationCollector()
    for batch in stream_rows(lake, "records", where, PLACE_NAME):
        collector.add(batch)
    locations = collector.places()
    best = np.full(len(locations), -1, np.int64)
    order = pa.array(targets)
    columns = ["target", *PLACE_NAME, "outcome", "digest_check"]
    for batch in stream_rows(lake, "records", where, columns):
        rows = pa.Table.from_batches([batch])
        fetched = pc.equal(rows["outcome"], "fetched")
        mismatched = pc.and_(fetched, pc.fill_null(pc.equal(rows["digest_check"], "mismatch"), False))
        last = pc.subtract(len(targets), pc.index_in(rows["target"], value_set=order))
        flags = ((fetched, _FETCHED), (mismatched, _MISMATCHED), (pc.equal(rows["outcome"], "pending"), _PENDING))
        ranks = _to_numbers(last) * _BY_NAME
        for flag, bit in flags:
            ranks += _to_numbers(flag) * bit
        np.maximum.at(best, locations.positions(batch), ranks)
    masks = (np.ones(len(best), bool), best & _FETCHED, best & _PENDING, best & _MISMATCHED)
    return tuple(int(np.count_nonzero(mask)) for mask in masks)


def _to_numbers(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(values.to_numpy()).astype(np.int64)


def _find_worst(rows: pa.Table) -> list[tuple[str, tuple[int, int, str | None]]]:
    """Returns partitions with missing captures, the worst first: how many are missing, of how many, and the most common
    reason."""
    totals: dict[str, tuple[int, int, str | None]] = {}
    rows = rows.filter(pc.greater(rows["pending"], 0))
    for row in rows.sort_by([("pending", "descending"), ("target", "ascending")]).to_pylist():
        # of the parts of a set, the one with the most missing captures comes first
        partition = key_of(Slice(row["crawl"], row["target"]))
        missing, planned, reason = totals.get(partition, (0, 0, row["reason"]))
        totals[partition] = (missing + row["pending"], planned + row["planned"], reason)
    return sorted((pair for pair in totals.items() if pair[1][0]), key=lambda pair: -pair[1][0])


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


def check_row_counts(index_files: pa.Table, row_groups: pa.Table) -> CheckResult:
    """Checks that the rows of a file's row groups are as many as the file says."""
    grouped = row_groups.group_by("path").aggregate([("rows", "sum"), ("rows", "count")])
    sums = {row["path"]: (row["rows_sum"], row["rows_count"]) for row in grouped.to_pylist()}
    wrong = []
    for row in index_files.filter(pc.equal(index_files["outcome"], DECODED)).to_pylist():
        if sums.get(row["path"], (0, 0)) != (row["rows"], row["row_groups"]):
            wrong.append(row["path"])
    if wrong:
        message = (
            f"the rows of the row groups do not add up to the row count of the index file in {list_first(wrong, 3)}"
        )
        return CheckResult("row_counts", "error", message, {"files": len(wrong)})
    return CheckResult(
        "row_counts", "ok", f"{_sum(row_groups['rows'])} rows in {format_count(len(row_groups), 'row group')}"
    )


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
            "these row groups. Results are right; to make lookups cheaper: cc-pipeline index repair, or the job "
            "repair_statistics"
        )
        return CheckResult("statistics", "warn", message, metrics)
    return CheckResult("statistics", "ok", f"all {total} row groups have bounds of {KEY_COLUMN}", metrics)


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
