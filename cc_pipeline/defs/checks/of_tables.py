"""Asset checks: what the tables promise, reported beside the assets. They never block; commits enforce what must hold.

How one looks: ``looks.py``.
"""

import dagster as dg

from cc_pipeline.checks import outputs, page_tables
from cc_pipeline.checks import tables as checks
from cc_pipeline.checks.scope import Scope
from cc_pipeline.checks.verdict import CheckResult
from cc_pipeline.defs.assets.facts import ADDED, asset_of
from cc_pipeline.defs.checks.left_failed import LEFT_FAILED, left_failed_result
from cc_pipeline.defs.checks.looks import Check, Verdict, definitions
from cc_pipeline.hostfacts.verdicts import annotation_verdict, host_facts_verdict
from cc_pipeline.lake.slice import FACTS, FETCH, HARVEST, LIST, LOCATE, PAGE_TABLES, PARSE
from cc_pipeline.pagefiles.verdicts import EXPORTS, exports_verdict, faults_verdict, files_read_verdict
from cc_pipeline.workspace.workspace import Workspace


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


# on what is made seldom: a check of a table would be a step of every run over its partitions
@dg.asset_check(
    asset="warehouse",
    name=LEFT_FAILED,
    description="No partition failed in the last week and was not made since, whoever asked for it.",
)
def partitions_left_failed(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    """Looks at runs of all jobs and backfills."""
    return left_failed_result(context.instance)


crawl_list_checks = definitions(
    "crawl_list_checks",
    Check(
        "crawls",
        "list_is_of_now",
        "The table has the crawls of the published list.",
        lambda workspace, _: checks.crawl_list_verdict(workspace),
    ),
)
index_checks = definitions(
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
extraction_checks = definitions(
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
page_checks = definitions(
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
source_checks = definitions(
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
url_index_checks = definitions(
    "url_index_checks",
    Check(
        "url_index",
        "index_is_whole",
        "Every URL index built here has the files, sizes and numbers it was built with.",
        outputs.url_indexes_verdict,
        "crawl",
    ),
)
built_index_checks = definitions(
    "built_index_checks",
    Check(
        "built_index",
        "every_file_is_indexed",
        "Each archive file that a crawl without a published index lists has an index here, and all of it was read.",
        outputs.built_index_verdict,
        "crawl",
    ),
)
warehouse_checks = definitions(
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

export_checks = definitions("export_checks", *map(_of_exports, EXPORTS))
report_checks = definitions(
    "report_checks",
    Check(
        "report",
        "as_published",
        "Reports are of what is published now, or of a day before at most.",
        lambda workspace, _: outputs.pages_about_targets_verdict(workspace),
    ),
)
fact_checks = definitions(
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
