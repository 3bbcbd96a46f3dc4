"""Asset checks: what the tables promise, reported beside the assets. They never block; commits enforce what must hold.

A check in a run over partitions looks at these alone. Alone, it looks at what changed since it last did, and at what
was wrong then; in a run with the tag ``cc_pipeline/look: everything`` (job ``check_everything``) at the whole lake.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import dagster as dg

from cc_pipeline.automation.due import MOST_FAILURES
from cc_pipeline.checks import outputs, page_tables
from cc_pipeline.checks import tables as checks
from cc_pipeline.checks.scope import Note, Scope, changed_since, noted, read_note, some, versions_of
from cc_pipeline.checks.verdict import CheckResult
from cc_pipeline.defs.assets.facts import ADDED, asset_of
from cc_pipeline.defs.automation.flight import REMEMBERED, Failed, flight, left_failed
from cc_pipeline.defs.internals import last_evaluation
from cc_pipeline.defs.metadata import as_table
from cc_pipeline.defs.partitions import EVERYTHING, KEYS_TAG, LOOK_TAG, between, partition_key, range_of
from cc_pipeline.defs.run_notes import Pair, run_partitions
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.target_slices import part_slices
from cc_pipeline.hostfacts.verdicts import annotation_verdict, host_facts_verdict
from cc_pipeline.lake.slice import FACTS, FETCH, HARVEST, LIST, LOCATE, PAGE_TABLES, PARSE, Slice, Stage
from cc_pipeline.pagefiles.verdicts import EXPORTS, exports_verdict, faults_verdict, files_read_verdict
from cc_pipeline.workspace.workspace import Workspace

#: Partitions that the check names.
_SHOWN = 50
_MINUTE = "%Y-%m-%d %H:%M"

#: What one look is at: partitions of crawl × domain, crawls, files read whole, or one thing for all.
Unit = Literal["partition", "crawl", "file", "whole"]
Verdict = Callable[[Workspace, Scope], CheckResult]
#: Metadata of a result: the note for the next look.
_NOTE = "looked at"


@dataclass(frozen=True)
class Check:
    """A check of ``asset``. ``watched`` are the tables whose logs say what changed, under the digest names of
    ``stages``; without them every look of its own is at everything, and costs little. Without a ``verdict`` the
    instance is asked for what was left failed, and not the lake."""

    asset: str
    name: str
    description: str
    verdict: Verdict | None
    unit: Unit = "whole"
    watched: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()

    @property
    def spec(self) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(self.name, asset=self.asset, description=self.description)


def _definitions(name: str, *group: Check) -> dg.AssetChecksDefinition:
    """One step for ``group``: each step of a run costs more than most checks."""

    @dg.multi_asset_check(name=name, specs=[check.spec for check in group], can_subset=True)
    def run_checks(
        context: dg.AssetCheckExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> Iterable[dg.AssetCheckResult]:
        memo: dict[object, dict[object, object]] = {}
        for check in group:
            if check.spec.key in context.selected_asset_check_keys:
                yield _result(context, workspace, check, memo)

    return run_checks


def _result(
    context: dg.AssetCheckExecutionContext, workspace: Workspace, check: Check, memo: dict[object, dict[object, object]]
) -> dg.AssetCheckResult:
    slices, mine, before = None, False, None
    try:
        if check.watched:
            before = read_note(last_evaluation(context.instance, check.spec.key, _NOTE))
        now = versions_of(workspace.lake, check.watched)
        slices = _of_run(context, workspace, check.unit)
        mine = slices is not None
        if mine:
            now = {}
        elif before is not None and context.run.tags.get(LOOK_TAG) != EVERYTHING:
            slices = _changed(workspace, check, before, now)
        shared = memo.setdefault(None if slices is None else tuple(slices), {})
        scope = Scope(slices, _began(context) if mine else None, shared)
        found = _left_failed(context.instance) if check.verdict is None else check.verdict(workspace, scope)
        verdict, note = noted(found, scope, before, now)
    except Exception as error:  # the run has made its partitions, and a check that breaks does not take that back
        why = str(error) if isinstance(error, CcPipelineError) else repr(error)
        verdict, note = CheckResult(check.name, "error", f"this could not be looked at: {why}"), before or Note()
        context.log.exception(f"{check.name} broke")
    what = "everything" if slices is None else f"{len(slices):,} {check.unit}s, {'of this run' if mine else 'changed'}"
    severity = dg.AssetCheckSeverity.ERROR if verdict.severity == "error" else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        passed=verdict.passed,
        check_name=check.name,
        asset_key=check.asset,
        severity=severity,
        description=verdict.message,
        metadata={**verdict.figures, "scope": what, **({_NOTE: note.as_dict()} if check.watched else {})},
    )


def _began(context: dg.AssetCheckExecutionContext) -> datetime | None:
    """When the run was asked for."""
    record = context.instance.get_run_record_by_id(context.run.run_id)
    return None if record is None else record.create_timestamp


def _changed(workspace: Workspace, check: Check, before: Note, now: dict[str, int]) -> list[Slice] | None:
    changed = changed_since(workspace.lake, before, now, check.stages)
    if changed is None:
        return None
    wrong = [Slice(*key.split("|", 1)) for key in before.wrong]
    again = part_slices(workspace, wrong) if check.unit == "partition" else wrong
    return sorted({*changed, *again})


def _of_run(context: dg.AssetCheckExecutionContext, workspace: Workspace, unit: Unit) -> list[Slice] | None:
    """The slices of the run's partitions; ``None`` for a run without any of this kind."""
    tags, instance = context.run.tags, context.instance
    first, last = range_of(tags)
    of_pairs = KEYS_TAG in tags or "|" in first
    if unit == "partition" and of_pairs:
        pairs = run_partitions(instance, [context.run])[context.run.run_id]
        return part_slices(workspace, [Slice(*pair) for pair in pairs])
    if unit == "crawl" and first and not of_pairs:
        return [Slice(crawl) for crawl in between(instance.get_dynamic_partitions("crawl"), first, last)]
    if unit == "file" and first and not of_pairs:
        return [Slice("", slug) for slug in between(instance.get_dynamic_partitions("source_file"), first, last)]
    return None


def _of_index(name: str, description: str) -> Check:
    def verdict(workspace: Workspace, scope: Scope) -> CheckResult:
        return checks.index_verdict(workspace, name, scope)

    return Check("row_groups", name, description, verdict, "crawl", ("row_groups",), (HARVEST,))


def _of_pages(asset: str, name: str, description: str, verdict: Verdict) -> Check:
    return Check(asset, name, description, verdict, "partition", PAGE_TABLES, (PARSE,))


def _rows_of_pages(table: str) -> Check:
    text = "Every row is about a page that is in page_metadata."
    return _of_pages(table, "rows_of_pages", text, lambda of, scope: page_tables.places_verdict(of, table, scope))


def _of_files(asset: str, table: str) -> Check:
    text = "Each file's tables come from one reading, and the file gave rows."
    return Check(asset, "files_of_one_reading", text, lambda of, scope: files_read_verdict(of, table, scope), "file")


def _of_exports(asset: str) -> Check:
    def verdict(workspace: Workspace, scope: Scope) -> CheckResult:
        return exports_verdict(workspace, EXPORTS[asset], scope)

    text = "The files of every export are there, whole, with the records promised, and of the pages of now."
    return Check(asset, "files_are_there", text, verdict, "partition")


def _of_annotation(name: str) -> Check:
    text = "The files of the dataset can be read."
    return Check(asset_of(name), "can_be_read", text, lambda workspace, _: annotation_verdict(workspace, name))


def _left_failed(instance: dg.DagsterInstance) -> CheckResult:
    name, left = "none_left_failed", left_failed(instance)
    failed = {pair: one for pair, one in left.items() if one.times}
    if not failed:
        return CheckResult(name, "ok", "no partition was left failed")
    keys = ["|".join(pair) for pair in failed]
    worst = max(failed.values(), key=lambda one: one.times)
    message = (
        f"{len(keys):,} partitions failed and were not made since ({some(keys)}), one of them {worst.times:,} times, "
        f"last in the run {worst.run_id}. Look at its error, then materialize them again"
    )
    return CheckResult(name, "warn", message, {"partitions": len(keys)})


# on what is made seldom: a check of a table would be a step of every run over its partitions
@dg.asset_check(
    asset="warehouse",
    name="partitions_left_failed",
    description="No partition failed in the last week and was not made since, whoever asked for it.",
)
def partitions_left_failed(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Looks at runs of all jobs and backfills."""
    return left_failed_result(context.instance)


def left_failed_result(instance: dg.DagsterInstance) -> dg.AssetCheckResult:
    """Warns of partitions that failed or were not tried, and will be, and fails for those that were tried often enough.
    Those that are in flight now are being tried."""
    going_on = flight(instance).pairs
    left = {pair: one for pair, one in left_failed(instance).items() if pair not in going_on}
    failed = {pair: one for pair, one in left.items() if one.times}
    waiting = {pair: one for pair, one in left.items() if not one.times}
    untried = len(waiting)
    given_up = [pair for pair, one in failed.items() if one.times >= MOST_FAILURES]
    worst = sorted(failed.items(), key=lambda one: (-one[1].times, one[0]))[:_SHOWN]
    longest = sorted(waiting.items(), key=lambda one: (-one[1].unreached, one[0]))[:_SHOWN]
    return dg.AssetCheckResult(
        passed=not left,
        severity=dg.AssetCheckSeverity.ERROR if given_up else dg.AssetCheckSeverity.WARN,
        description=_said(len(failed), len(given_up), untried),
        metadata={
            "partitions left failed": len(failed),
            "tried often enough": len(given_up),
            "never tried": untried,
            **({"partitions": _partitions((pair, one.times, one) for pair, one in worst)} if failed else {}),
            **({"not tried": _partitions((pair, one.unreached, one) for pair, one in longest)} if waiting else {}),
            "looked at": f"{datetime.now(UTC):{_MINUTE}} UTC",
        },
    )


def _partitions(rows: Iterable[tuple[Pair, int, Failed]]) -> dg.MetadataValue:
    cells = (
        (partition_key(*pair), times, f"{one.since:{_MINUTE}}", f"{one.last:{_MINUTE}}", one.run_id)
        for pair, times, one in rows
    )
    return as_table(["partition", "times", "first", "last", "run"], cells)


def _said(failed: int, given_up: int, untried: int) -> str:
    words = f"{failed:,} partitions failed and were not made since"
    if not failed:
        words = f"no partition failed in {REMEMBERED.days} days without being made since"
    if given_up:
        words += (
            f"; {given_up:,} of them failed {MOST_FAILURES} times in a row, so the schedule leaves them alone: see why "
            "in their runs, and run them by hand"
        )
    if untried:
        words += (
            f"; {untried:,} others were never tried, since their runs ended early: the schedule asks for them again"
        )
    return words


crawl_list_checks = _definitions(
    "crawl_list_checks",
    Check(
        "crawls",
        "list_is_of_now",
        "The table has the crawls of the published list.",
        lambda workspace, _: checks.crawl_list_verdict(workspace),
    ),
)
index_checks = _definitions(
    "index_checks",
    Check(
        "index_manifest",
        "as_the_catalog_expects",
        "A path list names each file once, in its crawl, and as many as the catalog was made of.",
        checks.manifest_verdict,
        "crawl",
        ("index_manifest", "coverage"),
        (LIST, HARVEST),
    ),
    Check(
        "index_footers",
        "every_footer_is_kept",
        "The home has a footer of each listed index file of the wanted subsets.",
        checks.footers_verdict,
        "crawl",
        ("index_manifest", "coverage"),
        (LIST, HARVEST),
    ),
    _of_index("coverage", "All index files of the harvested subsets were read."),
    _of_index("row_counts", "The row groups of a file have as many rows together as its footer says."),
    _of_index("plausible_rows", "A whole crawl has a number of rows like the other published crawls."),
    _of_index("statistics", "Every row group has key bounds."),
    _of_index("sortedness", "The key ranges of a file's row groups do not overlap."),
    _of_index("schema_drift", "Index files have the columns of the crawl before; every change is named."),
)
extraction_checks = _definitions(
    "extraction_checks",
    Check(
        "captures",
        "locators_agree",
        "A second index has the same captures, in a sample of the partitions looked up last.",
        checks.locators_verdict,
        "partition",
        ("captures",),
        (LOCATE,),
    ),
    Check(
        "captures",
        "index_complete",
        "No partition lacks captures because index files could not be read.",
        lambda workspace, _: checks.index_complete_verdict(workspace),
    ),
    Check(
        "records",
        "ledger_balances",
        "In every partition: planned captures = fetched + quarantined + missing.",
        checks.ledger_verdict,
        "partition",
        ("captures", "records"),
        (LOCATE, FETCH),
    ),
    Check(
        "records",
        "stored_files",
        "The files of stored records are there, as long as their rows need them.",
        checks.stored_verdict,
        "partition",
        ("records",),
        (FETCH,),
    ),
    Check(
        "records",
        "nothing_missing",
        "Every planned capture is here, or missing by name and for good.",
        lambda workspace, _: checks.shortfall_verdict(workspace.lake),
    ),
)
page_checks = _definitions(
    "page_checks",
    Check(
        "page_metadata",
        "a_page_per_record",
        "Every partition that was parsed has a page for each record.",
        page_tables.complete_verdict,
        "partition",
        ("records", "page_metadata"),
        (FETCH, PARSE),
    ),
    Check(
        "page_metadata",
        "none_left_failed",
        "No partition failed, of whoever's run, and was not made since.",
        None,
    ),
    _of_pages(
        "page_metadata",
        "tables_of_one_run",
        "The four tables of a partition come from one run.",
        page_tables.one_run_verdict,
    ),
    _of_pages(
        "page_text",
        "texts_are_there",
        "Each HTML page has its text, and most of a partition's have a main text.",
        page_tables.texts_verdict,
    ),
    *map(_rows_of_pages, ("page_text", "page_links", "feed_items")),
)
source_checks = _definitions(
    "source_checks",
    Check(
        "source_faults",
        "files_are_readable",
        "Every stretch of every file could be read.",
        faults_verdict,
        "file",
    ),
    _of_files("source_metadata", "page_metadata"),
    _of_files("source_text", "page_text"),
    _of_files("source_links", "page_links"),
    _of_files("source_feed_items", "feed_items"),
)
url_index_checks = _definitions(
    "url_index_checks",
    Check(
        "url_index",
        "index_is_whole",
        "Every URL index built here has the files, sizes and numbers it was built with.",
        outputs.url_indexes_verdict,
        "crawl",
    ),
)
built_index_checks = _definitions(
    "built_index_checks",
    Check(
        "built_index",
        "every_file_is_indexed",
        "Each archive file that a crawl without a published index lists has an index here, and all of it was read.",
        outputs.built_index_verdict,
        "crawl",
    ),
)
warehouse_checks = _definitions(
    "warehouse_checks",
    Check(
        "warehouse",
        "rows_as_in_the_lake",
        "The published file shows as many rows as the lake has at the versions it names, and is not far behind.",
        lambda workspace, _: outputs.published_verdict(workspace),
    ),
    Check(
        "warehouse",
        "files_are_there",
        "Every file that the published views name is there.",
        lambda workspace, _: outputs.published_files_verdict(workspace),
    ),
)

export_checks = _definitions("export_checks", *map(_of_exports, EXPORTS))
report_checks = _definitions(
    "report_checks",
    Check(
        "report",
        "as_published",
        "Reports are of what is published now, or of a day before at most.",
        lambda workspace, _: outputs.pages_about_targets_verdict(workspace),
    ),
)
fact_checks = _definitions(
    "fact_checks",
    Check(
        "host_facts",
        "hosts_of_their_targets",
        "Every partition has each of its hosts once, and no other's.",
        host_facts_verdict,
        "partition",
        ("host_facts",),
        (FACTS,),
    ),
    *map(_of_annotation, ADDED),
)
