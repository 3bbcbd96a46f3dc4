"""The checks of the core's assets, in the order of its stages. What an extension checks is beside what it makes.

A check is a function here, and nothing else: its name is that of the check, its docstring the description. This module
is loaded with the definitions of a home, so verdicts are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cc_pipeline.checks.check import Check, check, checks_in
from cc_pipeline.documents.schemas import SCHEMAS

if TYPE_CHECKING:
    from cc_pipeline.checks.scope import CheckResult, Scope
    from cc_pipeline.workspace.workspace import Workspace

_PAGES: Final = tuple(SCHEMAS)
_STAGES: Final = "cc_pipeline.lake.slice"
_LIST, _HARVEST = f"{_STAGES}.LIST", f"{_STAGES}.HARVEST"
_LOCATE, _FETCH, _PARSE = f"{_STAGES}.LOCATE", f"{_STAGES}.FETCH", f"{_STAGES}.PARSE"


@check("crawls", step="crawl_list_checks")
def list_is_of_now(workspace: Workspace, _: Scope) -> CheckResult:
    """The table has the crawls of the published list."""
    from cc_pipeline.checks.tables import crawl_list_verdict

    return crawl_list_verdict(workspace)


@check(
    "index_manifest",
    step="index_checks",
    unit="crawl",
    watched=("index_manifest", "row_groups"),
    stages=(_LIST, _HARVEST),
)
def as_the_catalog_expects(workspace: Workspace, scope: Scope) -> CheckResult:
    """A path list names each file once, in its crawl, and as many as the catalog was made of."""
    from cc_pipeline.checks.tables import manifest_verdict

    return manifest_verdict(workspace, scope)


@check(
    "index_footers",
    step="index_checks",
    unit="crawl",
    watched=("index_manifest", "row_groups"),
    stages=(_LIST, _HARVEST),
)
def every_footer_is_kept(workspace: Workspace, scope: Scope) -> CheckResult:
    """The home has a footer of each listed index file of the wanted subsets."""
    from cc_pipeline.checks.tables import footers_verdict

    return footers_verdict(workspace, scope)


def _of_index(name: str, description: str) -> Check:
    """A check of the catalog; several of them read its tables once."""

    def verdict(workspace: Workspace, scope: Scope) -> CheckResult:
        from cc_pipeline.checks.tables import index_verdict

        return index_verdict(workspace, name, scope)

    verdict.__doc__ = description
    of_crawls = check(
        "row_groups", step="index_checks", name=name, unit="crawl", watched=("row_groups",), stages=(_HARVEST,)
    )
    return of_crawls(verdict)


_INDEX_CHECKS: Final = (
    _of_index("coverage", "All index files of the harvested subsets were read."),
    _of_index("row_counts", "The row groups of a file have as many rows together as its footer says."),
    _of_index("plausible_rows", "A whole crawl has a number of rows like the other published crawls."),
    _of_index("statistics", "Every row group has key bounds."),
    _of_index("sortedness", "The key ranges of a file's row groups do not overlap."),
    _of_index("schema_drift", "Index files have the columns of the crawl before; every change is named."),
)


@check("captures", step="extraction_checks", unit="partition", watched=("captures",), stages=(_LOCATE,))
def locators_agree(workspace: Workspace, scope: Scope) -> CheckResult:
    """A second index has the same captures, in a sample of the partitions looked up last."""
    from cc_pipeline.checks.tables import locators_verdict

    return locators_verdict(workspace, scope)


@check("captures", step="extraction_checks")
def index_complete(workspace: Workspace, _: Scope) -> CheckResult:
    """No partition lacks captures because index files could not be read."""
    from cc_pipeline.checks.tables import index_complete_verdict

    return index_complete_verdict(workspace)


@check(
    "records",
    step="extraction_checks",
    unit="partition",
    watched=("captures", "records", *_PAGES, "lookups", "fetches"),
    stages=(_LOCATE, _FETCH, _PARSE),
)
def ledger_balances(workspace: Workspace, scope: Scope) -> CheckResult:
    """In every partition: captures = records = planned, each once, and pages = records where they were parsed."""
    from cc_pipeline.checks.conservation import conservation_verdict

    return conservation_verdict(workspace, scope)


@check("records", step="extraction_checks", unit="partition", watched=("records",), stages=(_FETCH,))
def stored_files(workspace: Workspace, scope: Scope) -> CheckResult:
    """The files of stored records are there, as long as their rows need them."""
    from cc_pipeline.checks.tables import stored_verdict

    return stored_verdict(workspace, scope)


@check("records", step="extraction_checks")
def nothing_missing(workspace: Workspace, _: Scope) -> CheckResult:
    """Every planned capture is here, or missing by name and for good."""
    from cc_pipeline.checks.tables import shortfall_verdict

    return shortfall_verdict(workspace.lake)


#: Dagster's instance tells, and not the lake.
none_left_failed: Final = Check(
    asset="page_metadata",
    name="none_left_failed",
    description="No partition failed, of whoever's run, and was not made since.",
    step="page_checks",
    verdict=None,
)


@check("page_text", step="page_checks", unit="partition", watched=_PAGES, stages=(_PARSE,))
def texts_are_there(workspace: Workspace, scope: Scope) -> CheckResult:
    """Each HTML page has its text, and most of a partition's have a main text."""
    from cc_pipeline.checks.page_tables import texts_verdict

    return texts_verdict(workspace, scope)


@check("source_faults", step="source_checks", unit="file")
def files_are_readable(workspace: Workspace, scope: Scope) -> CheckResult:
    """Every stretch of every file could be read, and gave pages."""
    from cc_pipeline.checks.page_files import faults_verdict

    return faults_verdict(workspace, scope)


@check("url_index", step="url_index_checks", unit="crawl")
def index_is_whole(workspace: Workspace, scope: Scope) -> CheckResult:
    """Every URL index built here has the files, sizes and numbers it was built with."""
    from cc_pipeline.checks.outputs import url_indexes_verdict

    return url_indexes_verdict(workspace, scope)


@check("built_index", step="built_index_checks", unit="crawl")
def every_file_is_indexed(workspace: Workspace, scope: Scope) -> CheckResult:
    """Each archive file that a crawl without a published index lists has an index here, and all of it was read."""
    from cc_pipeline.checks.outputs import built_index_verdict

    return built_index_verdict(workspace, scope)


@check("warehouse", step="warehouse_checks")
def rows_as_in_the_lake(workspace: Workspace, scope: Scope) -> CheckResult:
    """The published file shows as many rows as the lake has at the versions it names, and is not far behind."""
    from cc_pipeline.checks.outputs import published_verdict

    return published_verdict(workspace, scope)


@check("warehouse", step="warehouse_checks")
def files_are_there(workspace: Workspace, scope: Scope) -> CheckResult:
    """Every file that the published views name is there."""
    from cc_pipeline.checks.outputs import published_files_verdict

    return published_files_verdict(workspace, scope)


def _of_exports(asset: str) -> Check:
    @check(asset, step="export_checks", unit="partition")
    def files_are_there(workspace: Workspace, scope: Scope) -> CheckResult:
        """The files of every export are there, whole, with the records promised, and of the pages of now."""
        from cc_pipeline.checks.page_files import EXPORTS, exports_verdict

        return exports_verdict(workspace, EXPORTS[asset], scope)

    return files_are_there


_EXPORT_CHECKS: Final = tuple(map(_of_exports, ("text_sequencefile", "metadata_sequencefile")))
#: In the order of the module.
CHECKS: Final = checks_in(globals())
