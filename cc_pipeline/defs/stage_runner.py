"""Runs the stages of a command in its own process, and reports what they made to the Dagster instance of the home."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import dagster as dg

from cc_pipeline import interruption
from cc_pipeline.checks.outputs import judge_publication, publication_verdict
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.assets import catalog
from cc_pipeline.defs.assets.extraction import record_result
from cc_pipeline.defs.assets.sources import read_file
from cc_pipeline.defs.checks import checks_of, evaluate_partitions, evaluations
from cc_pipeline.defs.dynamic_keys import refuse_too_many
from cc_pipeline.defs.engines import LOCAL
from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.lake_records import SOURCE_TABLES, report_records, report_unrecorded
from cc_pipeline.defs.partitions import partition_key, split_key
from cc_pipeline.defs.publication import record_publication
from cc_pipeline.defs.recording import (
    Described,
    Events,
    PartitionLog,
    PartitionsFailed,
    database_errors,
    materialization,
    record_each,
)
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, IndexIncomplete, PlaceFault, disk_is_full
from cc_pipeline.extraction.crawl_plan import CrawlPlan, find_current_targets
from cc_pipeline.harvesting.crawl_index import is_harvested
from cc_pipeline.harvesting.crawls import crawls_are_listed, find_crawl
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.publish.publish import PublicationLag, delete_leftovers, find_publication_lag
from cc_pipeline.workspace.workspace import Workspace

_LOG: Final = logging.getLogger(__name__)
#: The partition keys that one call to Dagster adds.
_KEYS_PER_CALL: Final = 1_000


class StageRunner:
    """Runs stages one after the other, in the caller's open ``workspace``. As a context manager, it holds the instance
    open.

    A partition is reported when it is done, and the checks of the whole lake at the end of a call. No Dagster run is
    started.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._added: set[tuple[str, str]] = set()
        #: The instance in which partitions are recorded.
        self.instance = open_instance(workspace.settings)
        #: Keys of targets that this runner registered first.
        self.new_targets: set[str] = set()
        delete_leftovers(workspace.settings)

    def __enter__(self) -> StageRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.instance.dispose()

    def list_new_crawls(self) -> None:
        """Reads the list of crawls, unless that would change nothing."""
        key = dg.AssetKey("crawls")
        if crawls_are_listed(self._workspace) and self.instance.get_latest_materialization_event(key) is not None:
            return
        metadata, version = catalog.list_crawls(self._workspace)
        tags = {"dagster/data_version": version}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=dict(metadata), tags=tags))
        self._evaluate(["crawls"])

    def harvest_changed(self, crawls: Sequence[str]) -> list[str]:
        """Harvests the crawls whose index would change, and returns them. Raises as :meth:`harvest`."""
        recorded = self.instance.get_materialized_partitions(dg.AssetKey("row_groups"))
        outdated = [crawl for crawl in crawls if crawl not in recorded or not is_harvested(self._workspace, crawl)]
        self.harvest(outdated)
        return outdated

    def harvest(self, crawls: Sequence[str], *, refresh: bool = False) -> None:
        """Harvests ``crawls``. With ``refresh``, replaced index files are harvested again.

        Raises ``UserInputError`` for a crawl that the source lacks, and ``EnvironmentFault``; ``IndexIncomplete``, if
        index files could not be read, after all other crawls.
        """
        crawls = [find_crawl(self._workspace, crawl).id for crawl in crawls]
        self._add("crawl", crawls)
        steps: Mapping[str, Callable[[Workspace, str], catalog.Metadata]] = {
            "index_manifest": catalog.list_index_files,
            "index_footers": partial(catalog.fetch_footers, refresh=refresh),
            "row_groups": catalog.build_catalog,
        }
        incomplete: IndexIncomplete | None = None
        for crawl in crawls:
            for asset, make in steps.items():
                interruption.check()
                metadata = make(self._workspace, crawl)
                if asset == "row_groups":
                    try:
                        catalog.refuse_gaps(self._workspace, [crawl])
                    except IndexIncomplete as fault:
                        incomplete = incomplete or fault
                        continue
                self.record(asset, crawl, metadata)
            self._evaluate(catalog.HARVESTED)
        if incomplete is not None:
            raise incomplete

    def repair(self, crawl: str) -> None:
        """Computes key bounds of a harvested crawl."""
        self._add("crawl", [crawl])
        self.record("repaired_statistics", crawl, catalog.repair_crawl(self._workspace, crawl))

    def build_index(self, crawl: str, max_files: int | None = None) -> None:
        """Builds the index of a crawl, or ``max_files`` files of it. Its cost was agreed to."""
        self._add("crawl", [crawl])
        self.record("built_index", crawl, catalog.index_crawl(self._workspace, crawl, max_files))

    def extract(
        self,
        crawls: Sequence[str],
        targets: Sequence[Target],
        crawl_plans: Iterable[CrawlPlan] = (),
        tables: Sequence[str] = TABLES,
    ) -> list[str]:
        """Makes ``tables`` of ``targets`` in ``crawls``, and returns the keys of the partitions that were not current.
        ``crawl_plans`` are plans of the crawls, if they were just made. Current partitions are only recorded, where
        Dagster lacks them.

        Raises ``PartitionsFailed`` if partitions failed by themselves, after all others were made, and errors that
        affect all partitions.
        """
        self.add_targets(targets, crawls)
        slugs = [target.slug for target in targets]
        plans = {plan.target_slices.crawl: plan.current_targets for plan in crawl_plans}
        current: set[str] = set()
        for crawl in crawls:
            current_slugs = plans[crawl] if crawl in plans else find_current_targets(self._workspace, crawl, slugs)
            current |= {partition_key(crawl, slug) for slug in current_slugs}
        keys = list(dict.fromkeys(partition_key(crawl, slug) for crawl in crawls for slug in slugs))
        due = [key for key in keys if key not in current]
        with database_errors():
            report_unrecorded(self.instance, self._workspace, OWN_HOME, [key for key in keys if key in current])
            if due:
                self._extract(due, tables)
        return due

    def fetch(self, crawl: str, targets: Sequence[Target]) -> None:
        """Makes captures and records of ``targets`` in ``crawl``; raises as :meth:`extract` does."""
        self.add_targets(targets, [crawl])
        self._extract([partition_key(crawl, target.slug) for target in targets], ("captures", "records"))

    def _extract(self, keys: Sequence[str], tables: Sequence[str]) -> None:
        if self._workspace.settings.engine != LOCAL:
            from cc_pipeline.defs.engine_job import extract_by_job  # noqa: PLC0415  # loads all definitions

            extract_by_job(self.instance, self._workspace, keys, tables)
            return
        from cc_pipeline.extraction.run import extract  # noqa: PLC0415  # a command with nothing to do needs none

        def record(log: PartitionLog) -> Iterator[dg.AssetMaterialization]:
            for result in extract(self._workspace, [split_key(key) for key in keys], tables):
                yield from record_result(log, self._workspace, result)

        self._report(record, tables)

    def read_source_files(self, slugs: Sequence[str]) -> None:
        """Reads registered files; ``slugs`` are their partition keys. Raises as :meth:`extract`."""
        self.add_source_files(slugs)
        self.run_each([*SOURCE_TABLES], slugs, lambda slug: read_file(self._workspace, _LOG, slug))

    def run_each(
        self, assets: Sequence[str], keys: Sequence[str], make: Callable[[str], Mapping[str, Described]]
    ) -> None:
        """Calls ``make`` for each partition, which makes ``assets``. Raises as :meth:`extract`."""
        self._report(lambda log: record_each(log, keys, make), assets)

    def _report(self, run: Callable[[PartitionLog], Events], assets: Sequence[str]) -> None:
        """Reports the events of ``run`` as they come, then the checks of ``assets``."""
        log = PartitionLog(OWN_HOME, _LOG)
        with database_errors():
            for event in run(log):
                self.instance.report_runless_asset_event(event)
                interruption.check()
            self._evaluate(assets)
        if log.errors:
            raise PartitionsFailed(log.errors, len(log.described.keys() | log.errors.keys()))

    def _evaluate(self, assets: Sequence[str]) -> None:
        # Dagster 1.13 refuses a second evaluation of a partition that no run made (docs/decisions/0008)
        checks = [check for check in checks_of(assets) if check.unit == "whole"]
        for evaluation in evaluate_partitions(OWN_HOME, self._workspace, _LOG, checks, ()):
            self.instance.report_runless_asset_event(evaluation)

    def record(self, asset: str, key: str, metadata: Mapping[str, dg.MetadataValue]) -> None:
        """Records that a partition of ``asset`` was written."""
        report_records(self.instance, iter([materialization(dg.AssetKey(asset), key, metadata)]))

    def publish(self, initial_lag: PublicationLag | None = None) -> Publication | None:
        """Publishes, and records the publication for ``warehouse`` with its checks. Does nothing in a home whose tables
        another home publishes.

        ``initial_lag`` is how far the file is behind (default: it is read). Raises ``EnvironmentFault`` if anything
        fails, if the file does not show earlier commits afterwards, and if Dagster's database refuses the record.
        """
        if self._workspace.settings.publish == "none":
            return None
        interruption.check()
        try:
            with database_errors():
                published = self._publish(initial_lag or find_publication_lag(self._workspace))
        except CcPipelineError:
            raise
        except Exception as error:  # of an extension or a file
            is_full = disk_is_full(error)
            advice = (
                "Free some space, then run the command again."
                if is_full
                else "Committed rows are kept. Run the command again; if it fails again, see cc-pipeline doctor."
            )
            reason = f"cc.duckdb was not published: {type(error).__name__}: {error}"
            raise (PlaceFault if is_full else EnvironmentFault)(reason, advice) from error
        interruption.check()
        return published

    def _publish(self, initial_lag: PublicationLag | None) -> Publication:
        # loads merging, which a command with nothing to do does not need
        from cc_pipeline.maintenance.maintain import merge_and_publish  # noqa: PLC0415

        published = merge_and_publish(self._workspace)
        record_publication(self.instance, published, OWN_HOME)
        # the check and the command judge the file once, by the commits that there were before
        result = publication_verdict(self._workspace, initial_lag or PublicationLag("", None))
        [check] = checks_of(["warehouse"])
        [evaluation] = evaluations(OWN_HOME, check, result, ())
        self.instance.report_runless_asset_event(evaluation)
        if result.severity == "error":
            raise EnvironmentFault(result.message, result.advice)
        return published

    def publish_changes(self) -> Publication | None:
        """Publishes, unless ``cc.duckdb`` can be read, shows everything already, and was recorded. Raises as
        :meth:`publish`."""
        if self._workspace.settings.publish == "none":
            return None
        # views that were published with a missing file fail; a verdict finds it, since its rows are not counted
        lag = find_publication_lag(self._workspace)
        is_current = lag is None and judge_publication(self._workspace, lag).passed
        return None if is_current and self._is_recorded() else self.publish(lag)

    def _is_recorded(self) -> bool:
        """Whether the existing ``cc.duckdb`` was recorded for ``warehouse``: the record is newer than the file."""
        newest = self.instance.get_latest_materialization_event(dg.AssetKey("warehouse"))
        return newest is not None and newest.timestamp >= self._workspace.settings.published_path.stat().st_mtime

    def run_maintenance(self) -> None:
        """Merges small files, publishes, and deletes files that were superseded a week ago. Then deletes Dagster's old
        runs."""
        from cc_pipeline.defs.history import trim_history  # noqa: PLC0415
        from cc_pipeline.maintenance.maintain import run_maintenance  # noqa: PLC0415

        run_maintenance(self._workspace)
        trim_history(self.instance, self._workspace, OWN_HOME)

    def refuse_too_many(self, crawls: Iterable[str], targets: Iterable[Target]) -> None:
        """Raises ``UserInputError`` if these and the registered partitions would be too many. Call it before any
        request or write for them."""
        refuse_too_many(self.instance, targets=[target.slug for target in targets], crawls=crawls)

    def add_targets(self, targets: Sequence[Target], crawls: Sequence[str] = ()) -> None:
        """Stores the definitions of ``targets`` and registers them, and ``crawls``, as partitions.

        Keys that this runner has added before are skipped: if somebody has deleted one since, that was intended.
        Raises ``UserInputError`` if there would be too many; then nothing was written.
        """
        requested = {("crawl", crawl) for crawl in crawls} | {("target", target.slug) for target in targets}
        if requested <= self._added:
            return
        self.refuse_too_many(crawls, targets)
        self._workspace.register_targets(targets)
        self.new_targets |= {*self._add("target", [target.slug for target in targets])}
        self._add("crawl", crawls)
        self._added |= requested

    def add_source_files(self, slugs: Sequence[str]) -> None:
        """Registers files as partitions."""
        self._add("source_file", slugs)

    def _add(self, definition: str, keys: Sequence[str]) -> list[str]:
        """Registers the new ones of ``keys`` as partitions, and returns them."""
        registered = set(self.instance.get_dynamic_partitions(definition))
        new = [key for key in dict.fromkeys(keys) if key not in registered]
        if definition == "crawl" and new:
            # Dagster lists keys in the order of their registration
            new.sort()
            refuse_too_many(self.instance, crawls=new)
        for start in range(0, len(new), _KEYS_PER_CALL):
            self.instance.add_dynamic_partitions(definition, new[start : start + _KEYS_PER_CALL])
        return new
