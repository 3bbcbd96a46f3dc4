"""Runs of the jobs in this process, on the home's own instance: what the command line calls.

Belongs here: turning "these crawls, these domains" into runs. Not here: printing, or what a stage does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from cc_pipeline import interruption
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.instance import (
    PROCESS_TAG,
    end_runs_of_dead_processes,
    end_runs_of_this_process,
    open_instance,
    this_process,
)
from cc_pipeline.defs.internals import definitions_in
from cc_pipeline.defs.partitions import (
    CRAWL,
    DOMAIN,
    SOURCE_FILE,
    between,
    contiguous_ranges,
    partition_key,
    range_tags,
)
from cc_pipeline.defs.resources import WORKSPACE
from cc_pipeline.errors import CcPipelineError, Incomplete
from cc_pipeline.stages.indexing.crawls import crawls_are_listed, find_crawl
from cc_pipeline.stages.indexing.harvest import is_harvested
from cc_pipeline.stages.keeping.debris import clear_debris
from cc_pipeline.stages.workspace import Workspace

# a person watches progress bars; Dagster's own lines go to the event log
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
#: Partition keys that one call to Dagster adds.
_ADD_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class LaunchedRun:
    """One finished run."""

    job: str
    run_id: str
    partitions: str


class RunFailed(Exception):
    """A run ended in failure.

    ``error_class`` is the class name of the error that a step raised, ``None`` where no step failed. ``reason`` is
    that error's message. The name of a class that is not ours stands in front of it.
    """

    def __init__(self, job: str, run_id: str, partitions: str, reason: str, error_class: str | None = None) -> None:
        self.job = job
        self.run_id = run_id
        self.reason = reason
        self.error_class = error_class
        super().__init__(f"{job} ({partitions}) failed: {reason}")


class Launcher:
    """Runs jobs one after the other. A context manager: it holds the instance open.

    Every run works with ``workspace``: its settings and its connections. Whoever opened the workspace closes it.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._instance = open_instance(workspace.settings)
        end_runs_of_dead_processes(self._instance)
        clear_debris(workspace.settings)
        self._definitions = definitions_in(Path(__file__).parent)
        self._resources = {WORKSPACE: workspace}

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._instance.dispose()

    @property
    def instance(self) -> dg.DagsterInstance:
        """The instance runs are recorded in."""
        return self._instance

    def list_crawls(self) -> LaunchedRun:
        """Materializes ``crawls``."""
        return self._run("list_crawls", "")

    def list_new_crawls(self) -> LaunchedRun | None:
        """Materializes ``crawls``, unless that would change nothing: then no run is started."""
        if crawls_are_listed(self._workspace) and self._was_made("crawls"):
            return None
        return self.list_crawls()

    def harvest_what_is_new(self, crawls: Sequence[str]) -> list[LaunchedRun]:
        """Materializes the index assets of those of ``crawls`` where it would change something. Raises as ``harvest``
        does."""
        known = [crawl for crawl in crawls if self._was_made("row_groups", crawl)]
        behind = [crawl for crawl in crawls if crawl not in known or not is_harvested(self._workspace, crawl)]
        return self.harvest(behind) if behind else []

    def _was_made(self, asset: str, partition: str | None = None) -> bool:
        """Whether Dagster has a materialization of an asset, or of a partition of one."""
        which = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=[partition] if partition else None)
        return bool(self._instance.fetch_materializations(which, limit=1).records)

    def harvest(self, crawls: Sequence[str]) -> list[LaunchedRun]:
        """Materializes the index assets of ``crawls``.

        Raises ``UserInputError`` for a crawl the source lacks, and ``RunFailed`` when a run fails. Where that is
        because index files could not be read, the other crawls are harvested first.
        """
        crawls = [find_crawl(self._workspace, crawl).id for crawl in crawls]
        self._add(CRAWL, crawls)
        ordered = self._instance.get_dynamic_partitions("crawl")
        return list(self._run_ranges("harvest_crawl", contiguous_ranges(ordered, crawls)))

    def extract(self, crawls: Sequence[str], targets: Sequence[Target]) -> Iterator[LaunchedRun]:
        """Materializes captures to pages of ``targets`` in ``crawls``: many partitions in each run.

        Raises ``RunFailed``. Where that is because the source did not give everything, the other runs come first.
        """
        self._workspace.register_targets(targets)
        slugs = [target.slug for target in targets]
        self._add(DOMAIN, slugs)
        self._add(CRAWL, crawls)
        ordered_crawls = self._instance.get_dynamic_partitions("crawl")
        ordered_domains = self._instance.get_dynamic_partitions("domain")
        pairs = [
            (partition_key(first_crawl, first), partition_key(last_crawl, last))
            for first_crawl, last_crawl in contiguous_ranges(ordered_crawls, crawls)
            for first, last in contiguous_ranges(ordered_domains, slugs)
        ]
        yield from self._run_ranges("extract_domain", pairs)

    def read_source_files(self, slugs: Sequence[str]) -> list[LaunchedRun]:
        """Materializes the ``sources`` assets of registered files; ``slugs`` are their partition keys."""
        self.add_source_files(slugs)
        ordered = self._instance.get_dynamic_partitions("source_file")
        return [self._run_range("read_source_files", *pair) for pair in contiguous_ranges(ordered, slugs)]

    def repair(self, crawl: str) -> LaunchedRun:
        """Materializes ``repaired_statistics`` of a harvested crawl."""
        self._add(CRAWL, [crawl])
        return self._run("repair_statistics", crawl, partition_key=crawl)

    def build_url_index(self, crawl: str) -> LaunchedRun:
        """Materializes ``url_index`` of a crawl."""
        self._add(CRAWL, [crawl])
        return self._run("build_url_index", crawl, partition_key=crawl)

    def fetch(self, crawl: str, targets: Sequence[Target]) -> Iterator[LaunchedRun]:
        """Materializes captures and records of ``targets`` in ``crawl``."""
        self.add_targets(targets)
        self._add(CRAWL, [crawl])
        return self._run_domains("fetch_domain", crawl, [target.slug for target in targets])

    def parse(self, crawl: str, slugs: Sequence[str]) -> Iterator[LaunchedRun]:
        """Materializes the page tables of partitions whose records are there."""
        return self._run_domains("parse_domain", crawl, slugs)

    def record_outside_run(self, asset: str, crawl: str, slug: str, metadata: Mapping[str, int | str]) -> None:
        """Notes in the instance that a partition of ``asset`` was written by no run."""
        event = dg.AssetMaterialization(asset, partition=partition_key(crawl, slug), metadata=dict(metadata))
        self._instance.report_runless_asset_event(event)

    def publish(self) -> LaunchedRun:
        """Materializes ``warehouse``."""
        return self._run("publish", "")

    def add_targets(self, targets: Sequence[Target]) -> None:
        """Writes the definitions of ``targets`` down and makes them partitions."""
        self._workspace.register_targets(targets)
        self._add(DOMAIN, [target.slug for target in targets])

    def add_source_files(self, slugs: Sequence[str]) -> None:
        """Makes registered files partitions."""
        self._add(SOURCE_FILE, slugs)

    def _add(self, definition: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
        assert definition.name is not None
        known = set(self._instance.get_dynamic_partitions(definition.name))
        new = [key for key in dict.fromkeys(keys) if key not in known]
        for start in range(0, len(new), _ADD_AT_ONCE):
            self._instance.add_dynamic_partitions(definition.name, new[start : start + _ADD_AT_ONCE])

    def _run_domains(self, job: str, crawl: str, slugs: Sequence[str]) -> Iterator[LaunchedRun]:
        ordered = self._instance.get_dynamic_partitions("domain")
        ranges = contiguous_ranges(ordered, slugs)
        yield from self._run_ranges(
            job, [(partition_key(crawl, one), partition_key(crawl, two)) for one, two in ranges]
        )

    def _run_ranges(self, job: str, pairs: Iterable[tuple[str, str]]) -> Iterator[LaunchedRun]:
        """A run for each range. What one lacks is no reason to keep the others from their own: that is raised last.

        In a range over several crawls a step that fails for one of them ends the run for all, so they run one by one.
        """
        incomplete: RunFailed | None = None
        for first, last in pairs:
            try:
                run = self._run_range(job, first, last)
            except RunFailed as failed:
                if failed.error_class not in _names(Incomplete):
                    raise
                single = self._crawl_by_crawl(first, last)
                try:
                    if len(single) > 1:
                        yield from self._run_ranges(job, single)
                    else:
                        incomplete = incomplete or failed
                except RunFailed as again:
                    if again.error_class not in _names(Incomplete):
                        raise
                    incomplete = incomplete or again
            else:
                yield run
        if incomplete is not None:
            raise incomplete

    def _crawl_by_crawl(self, first: str, last: str) -> list[tuple[str, str]]:
        """The same partitions (crawl × domain) as a range for each crawl."""
        (first_crawl, one, first_domain), (last_crawl, _, last_domain) = first.partition("|"), last.partition("|")
        crawls = between(self._instance.get_dynamic_partitions("crawl"), first_crawl, last_crawl) if one else ()
        return [(partition_key(crawl, first_domain), partition_key(crawl, last_domain)) for crawl in crawls]

    def _run_range(self, job: str, first: str, last: str) -> LaunchedRun:
        shown = first if first == last else f"{first} … {last}"
        if first == last:
            return self._run(job, shown, partition_key=first)
        return self._run(job, shown, tags=range_tags(first, last))

    def _run(
        self, job: str, shown: str, partition_key: str | None = None, tags: dict[str, str] | None = None
    ) -> LaunchedRun:
        interruption.check()
        definition = self._definitions.resolve_job_def(job)
        try:
            result = definition.execute_in_process(
                instance=self._instance,
                partition_key=partition_key,
                # the daemon must not launch again what a person runs in a terminal
                tags={**(tags or {}), PROCESS_TAG: this_process(), "dagster/max_retries": "0"},
                run_config=_QUIET,
                resources=self._resources,
                raise_on_error=False,
            )
        finally:
            if interruption.received() is not None:
                end_runs_of_this_process(self._instance)
        interruption.check()
        if not result.success:
            raise _failure(job, shown, result)
        return LaunchedRun(job, result.run_id, shown)


def _failure(job: str, shown: str, result: dg.ExecuteInProcessResult) -> RunFailed:
    for event in result.all_events:
        error = event.step_failure_data.error if event.is_step_failure else None
        if error is not None:
            # Dagster wraps what a step raises in an error of its own
            raised = error.cause or error
            words = what_was_said(raised.message, raised.cls_name)
            return RunFailed(job, result.run_id, shown, words, raised.cls_name)
    return RunFailed(job, result.run_id, shown, "no step gave a reason; see the run in the UI")


def what_was_said(logged: str, error_class: str | None) -> str:
    """The message of an error in the event log. The name of a class that is not ours stands in front of it.

    ``logged`` is the line that Python prints for an error: its module and class, a colon, its message.
    """
    _, found, words = logged.strip().partition(f"{error_class}: ")
    if not found or error_class is None:
        return logged.strip()
    return words if error_class in _names(CcPipelineError) else f"{error_class}: {words}"


def _names(family: type[BaseException]) -> set[str]:
    return {family.__name__}.union(*(_names(each) for each in family.__subclasses__()))
