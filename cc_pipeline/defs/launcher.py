"""Runs jobs in this process on the home's own instance, for the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import dagster as dg

from cc_pipeline import interruption, progress
from cc_pipeline.checks.outputs import judge_publication, refuse_unpublished
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.declared.build import everything, listed_job
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.dynamic_keys import refuse_too_many
from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.instance import (
    end_runs_of_dead_processes,
    end_runs_of_this_process,
    find_running_partitions,
    open_instance,
)
from cc_pipeline.defs.internals import LOCATION
from cc_pipeline.defs.partitions import (
    PROCESS_TAG,
    config_of,
    contiguous_ranges,
    group_by_crawl,
    partition_key,
    range_tags,
)
from cc_pipeline.defs.partitions_in_flight import EXTRACTED, find_recorded_keys, find_unresolved_failures
from cc_pipeline.defs.recording import summarize_failures
from cc_pipeline.defs.run_failures import (
    FailedPartition,
    describe_failure,
    gravest_class,
    is_error_class,
    translate_database_errors,
)
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, Incomplete, PlaceFault, disk_is_full
from cc_pipeline.extraction.crawl_plan import CrawlPlan, find_current_targets
from cc_pipeline.harvesting.crawl_index import is_harvested
from cc_pipeline.harvesting.crawls import crawls_are_listed, find_crawl
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.processes import this_process
from cc_pipeline.progress import format_count
from cc_pipeline.publish.publish import PublicationLag, delete_leftovers, find_publication_lag
from cc_pipeline.workspace.workspace import Workspace

_LOG: Final = logging.getLogger(__name__)
# a person sees progress bars; Dagster's own lines go to the event log
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
#: Tags of each run. The daemon must not retry runs of a terminal, and the UI lists only runs that name its code
#: location.
_TAGS = {"dagster/max_retries": "0", ".dagster/repository": f"__repository__@{LOCATION}"}
#: Seconds between two checks of runs that are waited for.
_POLL_SECONDS = 2.0
#: The partition keys that one call to Dagster adds.
_KEYS_PER_CALL = 1_000


@dataclass(frozen=True, slots=True)
class LaunchedRun:
    """A finished run."""

    job: str
    run_id: str
    partitions: str


class RunFailed(Exception):
    """A run ended in failure.

    ``error_class`` is the class name of the error that a step raised, ``None`` if no step failed. ``reason`` is that
    error's message, preceded by the name of a class that is not ours. ``failed`` are the partitions that failed by
    themselves, while all others of the run were made; ``error_class`` is then the gravest of theirs.
    """

    def __init__(
        self,
        job: str,
        run_id: str,
        partitions: str,
        reason: str,
        error_class: str | None = None,
        failed: Sequence[FailedPartition] = (),
    ) -> None:
        self.job = job
        self.run_id = run_id
        self.reason = reason
        self.error_class = error_class
        self.failed = tuple(failed)
        super().__init__(f"{job} ({partitions}) failed: {reason}")

    @property
    def is_incomplete(self) -> bool:
        """Whether the only problem is that the source did not return everything."""
        return is_error_class(self.error_class, Incomplete)


class Launcher:
    """Runs jobs one after the other. As a context manager, it holds the instance open.

    Every run works with ``workspace``: its settings and its connections. The caller that opened the workspace closes
    it.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._instance = open_instance(workspace.settings)
        end_runs_of_dead_processes(self._instance)
        delete_leftovers(workspace.settings)
        self._resources = {WORKSPACE: workspace}
        self._listed_jobs: dict[str, dg.JobDefinition] = {}
        self._added: set[tuple[str, str]] = set()
        #: Keys of targets that this launcher registered first.
        self.new_targets: set[str] = set()
        #: Whether it has waited for a run of another process: then the tables have changed.
        self.has_waited = False

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._instance.dispose()

    @cached_property
    def _definitions(self) -> dg.Definitions:
        # this takes half a second, which a command with nothing to do can save
        return everything()

    def _job(self, name: str) -> dg.JobDefinition:
        """Returns a job by its name. A job that takes a list of partitions is built alone, which saves half a second;
        all others need all definitions."""
        if name not in listed_ops():
            return self._definitions.resolve_job_def(name)
        if name not in self._listed_jobs:
            self._listed_jobs[name] = listed_job(name)
        return self._listed_jobs[name]

    @property
    def instance(self) -> dg.DagsterInstance:
        """The instance in which runs are recorded."""
        return self._instance

    def list_crawls(self) -> LaunchedRun:
        """Materializes ``crawls``."""
        return self._run("list_crawls", "")

    def list_new_crawls(self) -> LaunchedRun | None:
        """Materializes ``crawls``, unless that would change nothing: then no run is started."""
        if crawls_are_listed(self._workspace) and self._is_materialized("crawls"):
            return None
        return self.list_crawls()

    def harvest_changed(self, crawls: Sequence[str]) -> list[LaunchedRun]:
        """Materializes the index assets of the crawls whose index would change. Raises as ``harvest`` does."""
        materialized = [crawl for crawl in crawls if self._is_materialized("row_groups", crawl)]
        outdated = [crawl for crawl in crawls if crawl not in materialized or not is_harvested(self._workspace, crawl)]
        return self.harvest(outdated) if outdated else []

    def _is_materialized(self, asset: str, partition: str | None = None) -> bool:
        """Whether Dagster has a materialization of an asset or of its partition."""
        record_filter = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[partition] if partition else None)
        return bool(self._instance.fetch_materializations(record_filter, limit=1).records)

    def harvest(self, crawls: Sequence[str], *, refresh: bool = False) -> list[LaunchedRun]:
        """Materializes the index assets of ``crawls``. With ``refresh``, replaced index files are harvested again.

        Raises ``UserInputError`` for a crawl that the source lacks, and ``RunFailed`` when a run fails. If it fails
        because index files could not be read, the other crawls are harvested first.
        """
        crawls = [find_crawl(self._workspace, crawl).id for crawl in crawls]
        self._add("crawl", crawls)
        ordered = self._instance.get_dynamic_partitions("crawl")
        config = {"ops": {"index_footers": {"config": {"refresh": refresh}}}}
        return list(self._run_ranges("harvest_crawl", contiguous_ranges(ordered, crawls), config))

    def extract(
        self, crawls: Sequence[str], targets: Sequence[Target], crawl_plans: Iterable[CrawlPlan] = ()
    ) -> Iterator[LaunchedRun]:
        """Materializes captures to pages of ``targets`` in ``crawls``, with many partitions in each run, in any order
        of their keys. Unchanged partitions are left out; no run is started if none is left. ``crawl_plans`` are plans
        of the crawls, if they were just made, so that nothing is planned twice.

        Raises ``RunFailed``. If partitions failed by themselves, all others are made first.
        """
        self.add_targets(targets, crawls)
        keys = [partition_key(crawl, target.slug) for crawl in crawls for target in targets]
        plans = list(crawl_plans)

        def exclude_unchanged(group: Sequence[str]) -> list[str]:
            # partitions that waited for another run are planned again when that has ended
            plans_now, plans[:] = list(plans), []
            unchanged_keys = find_unchanged(self._instance, self._workspace, group, plans_now) if group else ()
            return [key for key in group if key not in unchanged_keys]

        return self._run_keys("extract_targets", keys, exclude_done=exclude_unchanged)

    def run_listed_job(
        self, job: str, crawls: Sequence[str], targets: Sequence[Target], **config: object
    ) -> Iterator[LaunchedRun]:
        """Runs a job over listed partitions for ``targets`` in ``crawls``, which are partitions. ``config`` is added to
        the op's configuration. Raises as :meth:`extract` does."""
        keys = [partition_key(crawl, target.slug) for crawl in crawls for target in targets]
        return self._run_keys(job, keys, config)

    def read_source_files(self, slugs: Sequence[str]) -> list[LaunchedRun]:
        """Materializes the ``sources`` assets of registered files; ``slugs`` are their partition keys."""
        self.add_source_files(slugs)
        ordered = self._instance.get_dynamic_partitions("source_file")
        return [self._run_range("read_source_files", *pair) for pair in contiguous_ranges(ordered, slugs)]

    def repair(self, crawl: str) -> LaunchedRun:
        """Materializes ``repaired_statistics`` of a harvested crawl."""
        self._add("crawl", [crawl])
        return self._run("repair_statistics", crawl, partition_key=crawl)

    def build_index(self, crawl: str, max_files: int | None = None) -> LaunchedRun:
        """Materializes ``built_index`` of a crawl, at most ``max_files`` files of it. Its cost was agreed to."""
        self._add("crawl", [crawl])
        agreed = {"ops": {"index_archives": {"config": {"yes": True, "max_files": max_files or 0}}}}
        return self._run("build_index", crawl, partition_key=crawl, config=agreed)

    def fetch(self, crawl: str, targets: Sequence[Target]) -> Iterator[LaunchedRun]:
        """Materializes captures and records of ``targets`` in ``crawl``; raises as ``extract`` does."""
        self.add_targets(targets, [crawl])
        keys = [partition_key(crawl, target.slug) for target in targets]
        return self._run_keys("extract_targets", keys, {"tables": ["captures", "records"]})

    def parse(self, crawl: str, slugs: Sequence[str]) -> Iterator[LaunchedRun]:
        """Materializes the page tables of partitions whose records are stored; raises as ``extract`` does. The records
        may be of another home of the lake, which had the crawl harvested."""
        self._add("crawl", [crawl])
        keys = [partition_key(crawl, slug) for slug in slugs]
        return self._run_keys("extract_targets", keys, {"tables": [*PAGE_TABLES]})

    def record_outside_run(self, asset: str, crawl: str, slug: str, metadata: Mapping[str, int | str]) -> None:
        """Records in the instance that a partition of ``asset`` was written outside of any run."""
        event = dg.AssetMaterialization(asset, partition=partition_key(crawl, slug), metadata=dict(metadata))
        self._instance.report_runless_asset_event(event)

    def publish(self, initial_lag: PublicationLag | None = None) -> Publication | None:
        """Publishes, and records the publication for ``warehouse`` with its checks. A run of a job for that one step
        would cost as much again. Does nothing in a home whose tables another home publishes.

        ``initial_lag`` is how far the file is behind (default: it is read). Raises ``EnvironmentFault`` if anything
        fails, if the file does not show earlier commits afterwards, and if Dagster's database refuses the record.
        """
        if self._workspace.settings.publish == "none":
            return None
        interruption.check()
        try:
            with translate_database_errors():
                published = self._publish(initial_lag or find_publication_lag(self._workspace))
        except CcPipelineError:
            raise
        except Exception as error:  # an error of an extension or a file fails like a run would
            family = PlaceFault if disk_is_full(error) else EnvironmentFault
            advice = (
                "Free some space, then run the command again."
                if family is PlaceFault
                else "Committed rows are kept. Run the command again; if it fails again, see cc-pipeline doctor."
            )
            raise family(f"cc.duckdb was not published: {type(error).__name__}: {error}", advice) from error
        interruption.check()
        return published

    def _publish(self, initial_lag: PublicationLag | None) -> Publication:
        # these modules load merging and checks, which a command with nothing to do does not need
        from cc_pipeline.defs.checks.check_runs import CheckContext  # noqa: PLC0415
        from cc_pipeline.defs.publication import find_inputs, record_checked_publication  # noqa: PLC0415
        from cc_pipeline.maintenance.maintain import merge_and_publish  # noqa: PLC0415

        input_tags = find_inputs(self._instance, OWN_HOME)
        published = merge_and_publish(self._workspace)
        record_checked_publication(CheckContext(self._instance, _LOG), self._workspace, published, OWN_HOME, input_tags)
        refuse_unpublished(self._workspace, initial_lag or PublicationLag("", None))
        return published

    def run_maintenance(self) -> Iterator[LaunchedRun]:
        """Merges small files, publishes, and deletes files that were superseded a week ago. Then deletes Dagster's old
        runs, in as many runs as needed. Raises ``RunFailed``."""
        from cc_pipeline.defs.history import is_trimmed  # noqa: PLC0415  # loads the stages

        yield self._run("maintenance", "")
        yield self._run("trim_history", "")
        while not is_trimmed(self._instance):
            yield self._run("trim_history", "")

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
        newest = self._instance.fetch_materializations(dg.AssetKey("warehouse"), limit=1).records
        modified_at = self._workspace.settings.published_path.stat().st_mtime
        return bool(newest) and newest[0].timestamp >= modified_at

    def refuse_too_many(self, crawls: Iterable[str], targets: Iterable[Target]) -> None:
        """Raises ``UserInputError`` if these and the registered partitions would be too many. Call it before any
        request or write for them."""
        refuse_too_many(self._instance, domains=[target.slug for target in targets], crawls=crawls)

    def add_targets(self, targets: Sequence[Target], crawls: Sequence[str] = ()) -> None:
        """Stores the definitions of ``targets`` and registers them, and ``crawls``, as partitions.

        Keys that this launcher has added before are skipped: if somebody has deleted one since, that was intended.
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
        registered = set(self._instance.get_dynamic_partitions(definition))
        new = [key for key in dict.fromkeys(keys) if key not in registered]
        if new and definition == "crawl":
            # Dagster lists keys in the order of their registration. Deleting and adding keys to reorder the old ones
            # would change the meaning of ranges of runs and of open backfills.
            new.sort()
            refuse_too_many(self._instance, crawls=new)
        for start in range(0, len(new), _KEYS_PER_CALL):
            self._instance.add_dynamic_partitions(definition, new[start : start + _KEYS_PER_CALL])
        return new

    def _run_keys(
        self,
        job: str,
        keys: Sequence[str],
        config: Mapping[str, object] = MappingProxyType({}),
        exclude_done: Callable[[Sequence[str]], Sequence[str]] = lambda keys: keys,
    ) -> Iterator[LaunchedRun]:
        """Runs a job over listed partitions, in groups. ``exclude_done`` filters each group before its run. If some
        partitions fail, the other groups run first and the failure is raised at the end.

        Partitions that another run is making come last, when that run has ended: then the result is complete, nothing
        is fetched twice, and checking them costs little.
        """
        failures: list[RunFailed] = []
        for group in self._group_keys(list(dict.fromkeys(keys)), exclude_done):
            label = group[0] if len(group) == 1 else f"{len(group):,} partitions from {group[0]} to {group[-1]}"
            try:
                yield self._run(job, label, config=config_of(listed_ops()[job], group, **config))
            except RunFailed as failed:
                if not failed.failed:
                    raise
                failures.append(failed)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            failed_partitions = [partition for failure in failures for partition in failure.failed]
            label = format_count(len(keys), "partition")
            raise RunFailed(
                job,
                failures[-1].run_id,
                label,
                summarize_failures(failed_partitions, len(keys)),
                gravest_class(failed_partitions),
                failed_partitions,
            )

    def _group_keys(
        self, keys: Sequence[str], exclude_done: Callable[[Sequence[str]], Sequence[str]]
    ) -> Iterator[Sequence[str]]:
        """Yields ``keys`` in groups of one run's size. Waits before the keys that another run is making."""
        max_partitions = self._workspace.settings.partitions_per_run
        busy_keys = set(keys) & find_running_partitions(self._instance).keys()
        self.has_waited = self.has_waited or bool(busy_keys)
        free_keys = exclude_done([key for key in keys if key not in busy_keys])
        yield from (free_keys[start : start + max_partitions] for start in range(0, len(free_keys), max_partitions))
        if not busy_keys:
            return
        postponed_keys = [key for key in keys if key in busy_keys]
        while waiting := busy_keys & (running_keys := find_running_partitions(self._instance)).keys():
            interruption.check()
            runs = ", ".join(sorted({running_keys[key] for key in waiting}))
            progress.report("waiting for another run", len(postponed_keys) - len(waiting), len(postponed_keys), runs)
            time.sleep(_POLL_SECONDS)
        postponed_keys = list(exclude_done(postponed_keys))
        yield from (
            postponed_keys[start : start + max_partitions] for start in range(0, len(postponed_keys), max_partitions)
        )

    def _run_ranges(
        self, job: str, pairs: Iterable[tuple[str, str]], config: Mapping[str, object]
    ) -> Iterator[LaunchedRun]:
        """Starts a run for each range of crawls. If the source lacks data of one range, the others run first and the
        failure is raised at the end."""
        incomplete: RunFailed | None = None
        for first, last in pairs:
            try:
                yield self._run_range(job, first, last, config)
            except RunFailed as failed:
                if not failed.is_incomplete:
                    raise
                incomplete = incomplete or failed
        if incomplete is not None:
            raise incomplete

    def _run_range(self, job: str, first: str, last: str, config: Mapping[str, object] | None = None) -> LaunchedRun:
        label = first if first == last else f"{first} … {last}"
        if first == last:
            return self._run(job, label, partition_key=first, config=config)
        return self._run(job, label, tags=range_tags(first, last), config=config)

    def _run(
        self,
        job: str,
        label: str,
        partition_key: str | None = None,
        tags: dict[str, str] | None = None,
        config: Mapping[str, object] | None = None,
    ) -> LaunchedRun:
        interruption.check()
        definition = self._job(job)
        try:
            result = definition.execute_in_process(
                instance=self._instance,
                partition_key=partition_key,
                tags={**(tags or {}), PROCESS_TAG: this_process(), **_TAGS},
                run_config={**_QUIET, **(config or {})},
                resources=self._resources,
                raise_on_error=False,
            )
        finally:
            if interruption.received_signal() is not None:
                end_runs_of_this_process(self._instance)
        interruption.check()
        if not result.success:
            failure = describe_failure(event for event in result.all_events if event.is_step_failure)
            raise RunFailed(job, result.run_id, label, failure.reason, failure.error_class, failure.partitions)
        return LaunchedRun(job, result.run_id, label)


def find_unchanged(
    instance: dg.DagsterInstance, workspace: Workspace, keys: Sequence[str], crawl_plans: Iterable[CrawlPlan] = ()
) -> set[str]:
    """Returns the partitions among ``keys`` (crawl × target) that are current in the lake, that Dagster shows as made
    in all assets, and that did not fail since.

    Partitions that were committed and not recorded are left out: the run may have been killed in between, or Dagster's
    database was lost. Queries Dagster twice for each asset, for any number of partitions. ``crawl_plans`` are the plans
    of some of the crawls, if they were just made.
    """
    current_by_crawl = {crawl_plan.target_slices.crawl: crawl_plan.current_targets for crawl_plan in crawl_plans}
    slugs_by_crawl = group_by_crawl(keys)
    unchanged_keys: set[str] = set()
    for finished, (crawl, slugs) in enumerate(slugs_by_crawl.items()):
        progress.report("unchanged partitions", finished, len(slugs_by_crawl), crawl)
        current_slugs = (
            current_by_crawl[crawl] if crawl in current_by_crawl else find_current_targets(workspace, crawl, slugs)
        )
        unchanged_keys |= {partition_key(crawl, slug) for slug in slugs if slug in current_slugs}
    if unchanged_keys:
        unchanged_keys -= {partition_key(*pair) for pair in find_unresolved_failures(instance)}
    for asset in EXTRACTED if unchanged_keys else ():
        unchanged_keys &= find_recorded_keys(instance, asset, unchanged_keys)
    return unchanged_keys
