"""Checks of the current tables for the asset checks, and of the promises of a catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.checks.scope import CheckResult, Scope, Severity, abbreviate_keys, join_results, key_of
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built
from cc_pipeline.commoncrawl.slice_slugs import defined_slug
from cc_pipeline.extraction.fetch_counts import share
from cc_pipeline.extraction.reusable_records import find_sharing
from cc_pipeline.harvesting.catalog import read_catalog_table, read_catalog_tables, read_subsets
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
    verdicts: list[CheckResult] = []
    previous: list[str] | None = None
    harvested_ids = {slice_.crawl for slice_ in list_slices(lake, HARVEST)} - set(ARC_CRAWLS)
    harvested = sorted(harvested_ids, key=lambda crawl: (index_is_built(crawl), crawl))
    # A schema is compared with that of the previous crawl. Indexes built in this home are sorted last and have a schema
    # of their own.
    first = next((place for place, crawl in enumerate(harvested) if crawls is None or crawl in crawls), 0)
    for crawl in harvested[max(0, first - 1) :]:
        if crawls is not None and crawl not in crawls:
            earlier_files = read_catalog_table(lake, "index_files", crawl)
            previous = next((columns for columns in earlier_files.column("columns").to_pylist() if columns), previous)
            continue
        coverage, files, groups = read_catalog_tables(lake, ["coverage", "index_files", "row_groups"], crawl)
        verdicts += [
            _prefix_with_crawl(crawl, check_coverage(coverage)),
            _prefix_with_crawl(crawl, check_row_counts(files, groups)),
            _prefix_with_crawl(crawl, check_statistics(groups)),
            _prefix_with_crawl(crawl, check_sortedness(groups)),
        ]
        if index_is_built(crawl):
            continue
        verdicts += [
            _prefix_with_crawl(crawl, check_plausible_rows(coverage)),
            _prefix_with_crawl(crawl, check_schema_drift(files, previous)),
        ]
        previous = next((columns for columns in files.column("columns").to_pylist() if columns), previous)
    return verdicts


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


#: Rows of subset ``warc`` in a crawl, from the smallest to the largest published crawl, with a margin on both sides.
PLAUSIBLE_ROWS: Final = (1_000_000_000, 6_000_000_000)
#: Files of a subset. A crawl with fewer files is a generated or cut one, which has no usual size.
WHOLE_CRAWL_FILES: Final = 200


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


def check_plausible_rows(coverage: pa.Table) -> CheckResult:
    """Checks that a whole crawl has a usual number of captures; cut and generated crawls have no usual number."""
    rows = {row["subset"]: row for row in coverage.to_pylist()}
    coverage_row = rows.get("warc")
    if coverage_row is None or coverage_row["expected"] < WHOLE_CRAWL_FILES:
        return CheckResult("plausible_rows", "ok", "this is not a whole crawl, so any number of rows is plausible")
    if coverage_row["failed"] or coverage_row["missing"]:
        message = "not all index files were read, so the number of rows is not judged"
        return CheckResult("plausible_rows", "ok", message, {"rows": coverage_row["rows"]})
    min_rows, max_rows = PLAUSIBLE_ROWS
    metrics = {"rows": coverage_row["rows"], "least": min_rows, "most": max_rows}
    if not min_rows <= coverage_row["rows"] <= max_rows:
        message = (
            f"{coverage_row['rows']:,} captures are unusual: published crawls have {min_rows:,} to {max_rows:,}. "
            "Compare the number with Common Crawl's announcement of the crawl"
        )
        return CheckResult("plausible_rows", "warn", message, metrics)
    return CheckResult("plausible_rows", "ok", f"{coverage_row['rows']:,} captures", metrics)


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


def check_sortedness(row_groups: pa.Table) -> CheckResult:
    """Counts the neighbouring row groups of a file that overlap; sorted files (since May 2022) have none."""
    low, high = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
    bounded = row_groups.filter(pc.and_(pc.is_valid(row_groups[low]), pc.is_valid(row_groups[high])))
    ordered = bounded.select(["path", "row_group", low, high]).sort_by(
        [("path", "ascending"), ("row_group", "ascending")]
    )
    if len(ordered) < 2:
        return CheckResult("sortedness", "ok", "too few row groups to tell", {"pairs": 0, "overlapping": 0})
    before, after = ordered.slice(0, len(ordered) - 1), ordered.slice(1)
    is_same_file = pc.equal(before["path"].combine_chunks(), after["path"].combine_chunks())
    overlap = pc.and_(is_same_file, pc.greater(before[high].combine_chunks(), after[low].combine_chunks()))
    pairs, overlapping = pc.sum(is_same_file).as_py() or 0, pc.sum(overlap).as_py() or 0
    metrics = {"pairs": pairs, "overlapping": overlapping}
    message = f"{overlapping} of {pairs} neighbouring row groups overlap" + (
        ", as in crawls before May 2022, so lookups read more row groups. There is nothing to do"
        if overlapping
        else ": sorted by key"
    )
    return CheckResult("sortedness", "ok" if not overlapping else "warn", message, metrics)


def schema_changes(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Returns the differences of two column lists (``columns`` of ``index_files``): a sentence per column, in file
    order."""
    old, new = _by_name(before), _by_name(after)
    changes = []
    for name in dict.fromkeys((*old, *new)):
        old_type, new_type = old.get(name), new.get(name)
        if old_type is None:
            changes.append(f"{name} is new ({new_type})")
        elif new_type is None:
            changes.append(f"{name} was removed (was {old_type})")
        elif old_type != new_type:
            changes.append(f"{name} was {old_type}, is {new_type}")
    return changes


def check_schema_drift(index_files: pa.Table, previous: Sequence[str] | None = None) -> CheckResult:
    """Checks that all files of a crawl have the same columns, and compares them with ``previous``, those of another
    crawl."""
    decoded = index_files.filter(pc.equal(index_files["outcome"], DECODED))
    schemas: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    for digest, columns in zip(decoded["schema_digest"].to_pylist(), decoded["columns"].to_pylist(), strict=True):
        schemas.setdefault(digest, columns)
        counts[digest] = counts.get(digest, 0) + 1
    if not schemas:
        return CheckResult("schema_drift", "ok", "no files to compare", {"schemas": 0})
    usual = max(counts, key=lambda digest: counts[digest])
    inside = [
        f"{format_count(counts[digest], 'file')}: {change}"
        for digest, columns in schemas.items()
        if digest != usual
        for change in schema_changes(schemas[usual], columns)
    ]
    drift = schema_changes(previous, schemas[usual]) if previous is not None else []
    metrics: dict[str, int | float | str] = {"schemas": len(schemas), "columns": len(schemas[usual]), "digest": usual}
    if inside or drift:
        advice = "A missing column is null in captures; an unknown column is in extra_columns. There is nothing to do"
        return CheckResult("schema_drift", "warn", f"{'; '.join((*inside, *drift))}. {advice}", metrics)
    return CheckResult("schema_drift", "ok", f"all files have the same {len(schemas[usual])} columns", metrics)


def _by_name(columns: Iterable[str]) -> dict[str, str]:
    return {name: data_type for name, _, data_type in (column.partition(" ") for column in columns)}


def _sum(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
