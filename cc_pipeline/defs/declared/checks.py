"""Asset checks: what the tables promise, reported beside the assets. They never block; commits enforce what must hold.

How one looks: ``defs/checks/looks.py``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

import dagster as dg

from cc_pipeline.defs.declared.assets import asset_of
from cc_pipeline.defs.declared.bodies import later
from cc_pipeline.defs.placement import Placement
from cc_pipeline.documents.schemas import SCHEMAS

#: What one look is at: partitions of crawl × target, crawls, files read whole, or one thing for all.
Unit = Literal["partition", "crawl", "file", "whole"]
#: ``(Workspace, Scope) -> CheckResult``
Verdict = Callable[[Any, Any], Any]
#: The name of the check that asks the instance for what was left failed.
LEFT_FAILED: Final = "partitions_left_failed"
_FILES: Final = "pagefiles.verdicts"
_PAGES: Final = tuple(SCHEMAS)
#: Tables whose rows are counted against each other.
_COUNTED: Final = ("captures", "records", *_PAGES)


@dataclass(frozen=True)
class Check:
    """A check of ``asset``. ``watched`` are the tables whose logs say what changed, under the digest names of
    ``stages`` (constants of ``lake/slice.py``); without them every look of its own is at everything, and costs little.
    Without a ``verdict`` the instance is asked for what was left failed, and not the lake."""

    asset: str
    name: str
    description: str
    verdict: Verdict | None
    unit: Unit = "whole"
    watched: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()

    def key(self, at: Placement) -> dg.AssetCheckKey:
        """What Dagster knows it by."""
        return dg.AssetCheckKey(at.key(self.asset), self.name)

    @property
    def digests(self) -> tuple[Any, ...]:
        """The ``stages`` themselves."""
        return tuple(getattr(import_module("cc_pipeline.lake.slice"), name) for name in self.stages)


def _of_index(name: str, description: str) -> Check:
    call = later("checks.tables.index_verdict")

    def verdict(workspace: Any, scope: Any) -> Any:
        return call(workspace, name, scope)

    return Check("row_groups", name, description, verdict, "crawl", ("row_groups",), ("HARVEST",))


def _of_exports(asset: str) -> Check:
    call = later(f"{_FILES}.exports_verdict")

    def verdict(workspace: Any, scope: Any) -> Any:
        return call(workspace, import_module(f"cc_pipeline.{_FILES}").EXPORTS[asset], scope)

    text = "The files of every export are there, whole, with the records promised, and of the pages of now."
    return Check(asset, "files_are_there", text, verdict, "partition")


def _of_annotation(name: str) -> Check:
    text, call = "The files of the dataset can be read.", later("hostfacts.verdicts.annotation_verdict")
    return Check(asset_of(name), "can_be_read", text, lambda workspace, _: call(workspace, name))


def _whole(place: str) -> Verdict:
    call = later(place)
    return lambda workspace, _: call(workspace)


#: The checks by the step that evaluates them.
GROUPS: Final[Mapping[str, tuple[Check, ...]]] = {
    "crawl_list_checks": (
        Check(
            "crawls",
            "list_is_of_now",
            "The table has the crawls of the published list.",
            _whole("checks.tables.crawl_list_verdict"),
        ),
    ),
    "index_checks": (
        Check(
            "index_manifest",
            "as_the_catalog_expects",
            "A path list names each file once, in its crawl, and as many as the catalog was made of.",
            later("checks.tables.manifest_verdict"),
            "crawl",
            ("index_manifest", "row_groups"),
            ("LIST", "HARVEST"),
        ),
        Check(
            "index_footers",
            "every_footer_is_kept",
            "The home has a footer of each listed index file of the wanted subsets.",
            later("checks.tables.footers_verdict"),
            "crawl",
            ("index_manifest", "row_groups"),
            ("LIST", "HARVEST"),
        ),
        _of_index("coverage", "All index files of the harvested subsets were read."),
        _of_index("row_counts", "The row groups of a file have as many rows together as its footer says."),
        _of_index("plausible_rows", "A whole crawl has a number of rows like the other published crawls."),
        _of_index("statistics", "Every row group has key bounds."),
        _of_index("sortedness", "The key ranges of a file's row groups do not overlap."),
        _of_index("schema_drift", "Index files have the columns of the crawl before; every change is named."),
    ),
    "extraction_checks": (
        Check(
            "captures",
            "locators_agree",
            "A second index has the same captures, in a sample of the partitions looked up last.",
            later("checks.tables.locators_verdict"),
            "partition",
            ("captures",),
            ("LOCATE",),
        ),
        Check(
            "captures",
            "index_complete",
            "No partition lacks captures because index files could not be read.",
            _whole("checks.tables.index_complete_verdict"),
        ),
        Check(
            "records",
            "ledger_balances",
            "In every partition: captures = records = planned, each once, and pages = records where they were parsed.",
            later("checks.conservation.conservation_verdict"),
            "partition",
            (*_COUNTED, "lookups", "fetches"),
            ("LOCATE", "FETCH", "PARSE"),
        ),
        Check(
            "records",
            "stored_files",
            "The files of stored records are there, as long as their rows need them.",
            later("checks.tables.stored_verdict"),
            "partition",
            ("records",),
            ("FETCH",),
        ),
        Check(
            "records",
            "nothing_missing",
            "Every planned capture is here, or missing by name and for good.",
            lambda of, _: later("checks.tables.shortfall_verdict")(of.lake),
        ),
    ),
    "page_checks": (
        Check(
            "page_metadata", "none_left_failed", "No partition failed, of whoever's run, and was not made since.", None
        ),
        Check(
            "page_text",
            "texts_are_there",
            "Each HTML page has its text, and most of a partition's have a main text.",
            later("checks.page_tables.texts_verdict"),
            "partition",
            _PAGES,
            ("PARSE",),
        ),
    ),
    "source_checks": (
        Check(
            "source_faults",
            "files_are_readable",
            "Every stretch of every file could be read, and gave pages.",
            later(f"{_FILES}.faults_verdict"),
            "file",
        ),
    ),
    "url_index_checks": (
        Check(
            "url_index",
            "index_is_whole",
            "Every URL index built here has the files, sizes and numbers it was built with.",
            later("checks.outputs.url_indexes_verdict"),
            "crawl",
        ),
    ),
    "built_index_checks": (
        Check(
            "built_index",
            "every_file_is_indexed",
            "Each archive file that a crawl without a published index lists has an index here, and all of it was read.",
            later("checks.outputs.built_index_verdict"),
            "crawl",
        ),
    ),
    "warehouse_checks": (
        Check(
            "warehouse",
            "rows_as_in_the_lake",
            "The published file shows as many rows as the lake has at the versions it names, and is not far behind.",
            _whole("checks.outputs.published_verdict"),
        ),
        Check(
            "warehouse",
            "files_are_there",
            "Every file that the published views name is there.",
            _whole("checks.outputs.published_files_verdict"),
        ),
    ),
    "export_checks": tuple(map(_of_exports, ("text_sequencefile", "metadata_sequencefile"))),
    "report_checks": (
        Check(
            "report",
            "as_published",
            "Reports are of what is published now, or of a day before at most.",
            _whole("checks.outputs.pages_about_targets_verdict"),
        ),
    ),
}


def of_asset(asset: str) -> list[Check]:
    """The checks of an asset, but for those of datasets."""
    return [check for group in GROUPS.values() for check in group if check.asset == asset]


def checks(at: Placement, added: Iterable[str]) -> list[dg.AssetChecksDefinition]:
    """All checks of a home; ``added`` are the names of datasets that a person added to it."""

    # on what is made seldom: a check of a table would be a step of every run over its partitions
    @dg.asset_check(
        asset=at.key("warehouse"),
        name=LEFT_FAILED,
        description="No partition failed in the last week and was not made since, whoever asked for it.",
    )
    def partitions_left_failed(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        found: dg.AssetCheckResult = later("defs.checks.looks.left_failed_result")(context.instance, at)
        return found

    annotations = tuple(map(_of_annotation, added))
    groups = {**GROUPS, "annotation_checks": annotations} if annotations else GROUPS
    return [partitions_left_failed, *(_step(at, name, group) for name, group in groups.items())]


def _step(at: Placement, name: str, group: tuple[Check, ...]) -> dg.AssetChecksDefinition:
    """One step for a group: each step of a run costs more than most checks."""
    specs = [dg.AssetCheckSpec(one.name, asset=at.key(one.asset), description=one.description) for one in group]

    @dg.multi_asset_check(name=at.of(name), specs=specs, can_subset=True, required_resource_keys={at.resource})
    def run_checks(context: dg.AssetCheckExecutionContext) -> Iterable[dg.AssetCheckResult]:
        yield from later("defs.checks.looks.results")(context, at, group)

    return run_checks
