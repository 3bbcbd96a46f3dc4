"""The checks of the core's assets, in the order of its stages. An extension has its checks beside its assets.

Each check is a function: its name is the name of the check, its docstring the description. A long check, or one that is
used elsewhere too, calls a function in the module of its subject. This module is loaded with the definitions of a home,
so heavy imports are inside the functions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from cc_pipeline.advice import advise
from cc_pipeline.checks.check import Check, check, checks_in
from cc_pipeline.checks.scope import CheckResult, Scope, join_results, key_of
from cc_pipeline.progress import format_count, list_first

if TYPE_CHECKING:
    from cc_pipeline.workspace.workspace import Workspace


@check("row_groups", unit="crawl")
def coverage(workspace: Workspace, scope: Scope) -> CheckResult:
    """All index files of the harvested subsets were read."""
    from cc_pipeline.checks.tables import check_coverage, examine_catalog

    return examine_catalog(workspace, scope, "coverage", check_coverage)


@check("row_groups", unit="crawl")
def statistics(workspace: Workspace, scope: Scope) -> CheckResult:
    """Every row group has key bounds."""
    from cc_pipeline.checks.tables import check_statistics, examine_catalog

    return examine_catalog(workspace, scope, "row_groups", check_statistics)


@check("captures")
def index_complete(workspace: Workspace, _: Scope) -> CheckResult:
    """No partition has missing captures because of gaps in an index."""
    from cc_pipeline.extraction.lookup_notes import describe_completeness as describe
    from cc_pipeline.extraction.lookup_notes import find_incomplete_slices

    partial = {located_slice.partition: row for located_slice, row in find_incomplete_slices(workspace).items()}
    if not partial:
        return CheckResult("index_complete", "ok", "no lookup had gaps in its index")
    examples = [f"{key_of(slice_)}: {describe(row)}" for slice_, row in sorted(partial.items())]
    message = (
        f"{format_count(len(partial), 'partition')} may lack captures, since index files could not be read: "
        f"{list_first(examples, 5, '; ')}. Read these files (cc-pipeline index harvest; index build for an index that "
        "is built here), then run these targets again"
    )
    return CheckResult("index_complete", "error", message, {"incomplete partitions": len(partial)})


@check("captures")
def targets_found(workspace: Workspace, _: Scope) -> CheckResult:
    """Some crawl has captures of each target that was looked up."""
    from cc_pipeline.checks.tables import found_targets_verdict

    return found_targets_verdict(workspace.lake)


@check("records", unit="partition", blocking=True)
def ledger_balances(workspace: Workspace, scope: Scope) -> CheckResult:
    """In every partition: captures = records = planned, pages = records where they were parsed, and each table has the
    rows that were committed."""
    from cc_pipeline.checks.conservation import conservation_verdict

    return conservation_verdict(workspace, scope)


@check("records", unit="partition", blocking=True)
def stored_files(workspace: Workspace, scope: Scope) -> CheckResult:
    """The files of stored records exist as long as their rows need them."""
    from cc_pipeline.lake.slice import Slice
    from cc_pipeline.maintenance.stored_files import find_lost_records

    lost = find_lost_records(workspace, scope.slices)
    metrics: dict[str, int | float | str] = {
        "lost records": sum(loss.records for loss in lost),
        "files gone or too short": sum(len(loss.files) for loss in lost),
    }
    if lost:
        examples = "; ".join(
            f"{loss.records:,} in {loss.crawl} of {', '.join([*loss.targets][:5])}" for loss in lost[:5]
        )
        message = f"the bytes of stored records are missing, since files are gone or too short (records: {examples})"
        keys = {key_of(Slice(loss.crawl, target)) for loss in lost for target in loss.targets}
        advice = advise("doctor", repair=True, sentence="Fetch these records again: {}")
        return CheckResult("stored_files", "error", message, metrics, tuple(keys), advice)
    return CheckResult("stored_files", "ok", "the bytes of all stored records are there", metrics)


@check("records")
def nothing_missing(workspace: Workspace, _: Scope) -> CheckResult:
    """Every planned capture is stored, or its loss is final."""
    from cc_pipeline.checks.tables import missing_captures_verdict

    return missing_captures_verdict(workspace.lake)


#: This check is about the run, not the lake.
no_failed_partitions: Final = Check(
    asset="page_metadata",
    name="no_failed_partitions",
    description="The last run over the partition made it.",
    verdict=None,
    unit="partition",
)


@check("built_index", unit="crawl")
def every_file_is_indexed(workspace: Workspace, scope: Scope) -> CheckResult:
    """Each archive file in the list of a crawl without a published index has an index in this home, and all of it was
    read."""
    from cc_pipeline.commoncrawl.crawls import index_is_built
    from cc_pipeline.index.shards import folder_of
    from cc_pipeline.lake.slice import MANIFEST
    from cc_pipeline.lake.slices import list_slices
    from cc_pipeline.lake.streaming import count_rows
    from cc_pipeline.workspace.source_files import MAX_FAULT_ROWS

    name, lake, metrics = "every_file_is_indexed", workspace.lake, Counter[str]()
    verdicts: list[CheckResult] = []
    built_crawls = {slice_.crawl for slice_ in list_slices(lake, MANIFEST) if index_is_built(slice_.crawl)}
    for crawl in sorted(built_crawls if scope.crawls is None else built_crawls & scope.crawls):
        listed_paths = lake.read("index_manifest", {"crawl": crawl}, ["path"])["path"].to_pylist()
        indexed_paths = {index_file.key for index_file in workspace.place.listing(folder_of(crawl))}
        missing = [path for path in listed_paths if path not in indexed_paths]
        counts = count_rows(lake, "source_faults", {"crawl": crawl}, ["source_file"]).values()
        unread, at_least = sum(counts), "at least " if max(counts, default=0) >= MAX_FAULT_ROWS else ""
        metrics.update({"archive files": len(listed_paths), "not indexed": len(missing), "unread byte ranges": unread})
        if missing:
            message = (
                f"{crawl}: {len(missing):,} of {len(listed_paths):,} archive files are not indexed yet, so lookups "
                f"miss their captures: cc-pipeline index build --crawl {crawl}"
            )
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
        elif unread:
            message = (
                f"{crawl}: {at_least}{format_count(unread, 'byte range')} of archive files could not be read (see "
                "source_faults)"
            )
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
    if verdicts:
        return join_results(name, verdicts)
    message = f"all {metrics['archive files']:,} archive files are indexed" if metrics else "no index was built here"
    return CheckResult(name, "ok", message, dict(metrics))


@check("warehouse")
def rows_as_in_the_lake(workspace: Workspace, scope: Scope) -> CheckResult:
    """The published file can be read, shows the rows that count in the lake, and is not far behind."""
    from cc_pipeline.checks.outputs import published_verdict

    return published_verdict(workspace, scope)


#: All checks, in the order of the module.
CHECKS: Final = checks_in(globals())
