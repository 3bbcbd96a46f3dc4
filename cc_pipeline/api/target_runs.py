"""Extracts targets from crawls: harvests, looks up, fetches, parses and publishes, and reports it to Dagster."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline import progress
from cc_pipeline.advice import option
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.api.run_steps import (
    build_indexes,
    find_agreed_builds,
    harvest_despite_gaps,
    is_partial_failure,
    report_damage,
    resolve_crawls,
    run_step,
)
from cc_pipeline.api.user_input import refuse_unnamed_captures
from cc_pipeline.commoncrawl.target import GIVEN_KIND, WHERE_SLUG, Target, by_subsets
from cc_pipeline.errors import (
    CrawlUnpublished,
    EnvironmentFault,
    Incomplete,
    PlaceFault,
    SourceRefuses,
    UserInputError,
    disk_is_full,
)
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.extraction.crawl_plan import CrawlPlan, PartitionChange
    from cc_pipeline.lake.slice import Slice
    from cc_pipeline.records.range_plan import FetchEstimate
    from cc_pipeline.workspace.workspace import Workspace

#: Files of the columnar index per subset of a crawl; each is a request of a harvest.
_INDEX_FILES = 300
#: After this many failed crawls in a row the remaining ones are not tried: the cause is none of them.
_MAX_FAILURES_IN_A_ROW = 5


#: The columns of a row for each crawl and target.
PARTITION_COLUMNS = ("crawl", "target", "change", "captures", "new", "pending", "lost")
#: The most characters of a target's definition in a row or a note.
_MAX_DEFINITION_CHARS = 120


@dataclass(frozen=True, slots=True)
class Part:
    """The result of a run in some of its crawls: changes by slice, in the order of the crawls. ``forgotten`` are the
    slugs of new targets without any capture, which are not kept. ``notes`` are lines for a person. ``position`` is the
    number of this part and how many parts the run has; several parts get a summary at the end. The part of
    the crawls without an index has a note and nothing else."""

    settings: Settings
    targets: tuple[Target, ...]
    changes: Mapping[Slice, PartitionChange]
    forgotten: frozenset[str]
    notes: tuple[str, ...]
    position: tuple[int, int] = (1, 1)
    seconds: float = 0.0


def list_partitions(changes: Mapping[Slice, PartitionChange], targets: Iterable[Target]) -> list[Sequence[object]]:
    """Returns a row for each changed slice, with ``PARTITION_COLUMNS``. The change is new, updated, same or not run."""
    definitions = {target.slug: shorten_definition(target) for target in targets}
    return [
        (slice_.crawl, definitions[slice_.target], change.change, *count_captures([change]))
        for slice_, change in changes.items()
    ]


def count_captures(changes: Iterable[PartitionChange]) -> tuple[int, int, int, int]:
    """Returns the numbers of captures, and of new, pending and lost ones. Captures without a plan are pending too."""
    all_changes = list(changes)
    return (
        sum(change.after.captures for change in all_changes),
        sum(change.after.captures - change.before.captures for change in all_changes),
        sum(change.after.captures - change.after.fetched - change.after.lost for change in all_changes),
        sum(change.after.lost for change in all_changes),
    )


def shorten_definition(target: Target) -> str:
    """Returns the definition of a target, cut if it is long."""
    text = target.definition
    if len(text) <= _MAX_DEFINITION_CHARS:
        return text
    return f"{text[:_MAX_DEFINITION_CHARS]}… ({len(target.members):,} members)"


def run_targets(
    settings: Settings,
    crawls: Sequence[str],
    targets: Sequence[Target],
    *,
    select_crawls: Callable[[Sequence[str]], Sequence[str]] = tuple,
    yes: bool = False,
    on_part: Callable[[Part], object] = lambda part: None,
) -> list[EnvironmentFault]:
    """Extracts ``targets`` from ``crawls`` (a person's words), from the index to pages, and publishes them.

    For ``all``, a year or a range, each crawl is run by itself, the newest first: its pages are there before the last
    index is harvested. With several such crawls, pages are published when the last publication is older than the
    settings say, and at the end. ``select_crawls`` returns those of the crawls to run. ``on_part`` is called with each
    finished part.

    Returns why partitions failed; the others are published all the same. If one of several crawls cannot be run at all,
    it is left with a note, and the next one is run; the first returned fault then names all crawls that were left.
    Crawls without an index are a part of their own, and no fault unless there are no others.

    Raises as ``run_part``, ``NoIndex`` if no crawl has an index, and ``UserInputError`` for a cost that nobody
    agreed to.
    """
    refuse_unnamed_captures(settings, targets)
    crawl_ids, is_sequential = _resolve_selection(settings, crawls, targets)
    selected = select_crawls(crawl_ids)
    groups: list[tuple[Sequence[str], Sequence[Target]]] = [(selected, targets)] if selected else []
    unsearched: tuple[str, ...] = ()
    if is_sequential:
        groups, unsearched = _split_by_crawl(settings, selected, targets)
    priced: dict[Slice, FetchEstimate] = {}
    unfound: dict[str, list[Slice]] = {}
    # a target may name the subsets that it is looked up in
    run_parts = [
        (group_crawls, replace(settings, subsets=subsets), part_targets)
        for group_crawls, group_targets in groups
        for subsets, part_targets in by_subsets(group_targets, settings.subsets).items()
    ]
    total = len(unsearched) + len(run_parts)
    if unsearched:
        on_part(_make_unsearched_part(settings, unsearched, total))
    troubles: list[EnvironmentFault] = []
    failed_crawls: dict[str, EnvironmentFault] = {}
    failed_in_a_row = 0
    for number, (crawls, part_settings, part_targets) in enumerate(run_parts, start=len(unsearched) + 1):
        # if a crawl was not run, the target may have captures there
        is_last = number == total and not failed_crawls
        position = (number, total) if is_sequential else (1, 1)
        try:
            part, trouble = run_part(
                part_settings, crawls, part_targets, priced, (unfound, is_last), position=position, yes=yes
            )
        except CrawlUnpublished:
            if not is_sequential:
                raise
            get_reporter().note(f"{', '.join(crawls)} is announced but not published yet, so it is skipped")
            continue
        except EnvironmentFault as fault:
            if not is_sequential or total == 1 or isinstance(fault, PlaceFault):
                raise
            failed_crawls |= dict.fromkeys(crawls, fault)
            failed_in_a_row += 1
            get_reporter().note(f"{', '.join(crawls)} could not be run and is skipped: {fault.problem}. {fault.advice}")
            if isinstance(fault, SourceRefuses) or failed_in_a_row == _MAX_FAILURES_IN_A_ROW:
                failed_crawls |= {
                    crawl: failed_crawls.get(crawl, fault)
                    for group_crawls, _, _ in run_parts[number - len(unsearched) :]
                    for crawl in group_crawls
                }
                break
            continue
        failed_in_a_row = 0
        on_part(part)
        troubles += [trouble] if trouble else []
    if is_sequential and total > 1:
        _publish(settings)
    return (
        [
            _make_skipped_fault(failed_crawls, {crawl for group_crawls, _, _ in run_parts for crawl in group_crawls}),
            *troubles,
        ]
        if failed_crawls
        else troubles
    )


def _split_by_crawl(
    settings: Settings, crawls: Sequence[str], targets: Sequence[Target]
) -> tuple[list[tuple[Sequence[str], Sequence[Target]]], tuple[str, ...]]:
    """Returns each crawl with the targets that may be found there, and the crawls without an index. Raises ``NoIndex``
    if none has one."""
    crawls_by_target = _read_named_crawls(settings, targets)
    # captures that a person listed are in no index
    is_indexed = any(target.kind != GIVEN_KIND for target in targets)
    unsearched = _find_unsearchable(settings, crawls) if is_indexed else ()
    groups = [
        ((crawl,), _select_targets(crawl, targets, crawls_by_target, is_searchable=crawl not in unsearched))
        for crawl in crawls
    ]
    return [group for group in groups if group[1]], unsearched


def _make_unsearched_part(settings: Settings, crawls: tuple[str, ...], total: int) -> Part:
    """Returns the part of the crawls without an index, of a run with so many parts."""
    note = f"{format_count(len(crawls), 'crawl')} not searched, since no index is published: {', '.join(crawls)}"
    return Part(settings, (), {}, frozenset(), (note,), position=(len(crawls), total))


def _find_unsearchable(settings: Settings, crawls: Sequence[str]) -> tuple[str, ...]:
    """Returns the crawls of which nobody published or built an index; only those of the ARC years may have none. Raises
    ``NoIndex`` if these are all."""
    from cc_pipeline.api.lookups import NoIndex, find_index_sources
    from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
    from cc_pipeline.lake.slice import LOCATE
    from cc_pipeline.lake.slices import list_slices
    from cc_pipeline.workspace.workspace import open_workspace

    faults: dict[str, NoIndex] = {}
    arc_crawls = [crawl for crawl in crawls if crawl in ARC_CRAWLS]
    if not arc_crawls:
        return ()
    with open_workspace(settings) as workspace:
        for crawl in arc_crawls:
            try:
                # a target that was located before is not looked up again
                if not list_slices(workspace.lake, LOCATE, {"crawl": crawl}):
                    find_index_sources(workspace, crawl, settings.index)
            except NoIndex as fault:
                faults[crawl] = fault
            except EnvironmentFault:
                continue  # the run of that crawl reports it
    if faults and len(faults) == len(crawls):
        raise next(iter(faults.values()))
    return tuple(faults)


def _publish(settings: Settings) -> None:
    """Publishes the results of several parts of a run, if none of the parts published them."""
    from cc_pipeline.workspace.workspace import open_workspace

    with report_disk_faults(settings.home), open_workspace(settings) as workspace:
        from cc_pipeline.defs.stage_runner import StageRunner

        with StageRunner(workspace) as runner, get_reporter().bars():
            run_step("cc.duckdb", runner.publish_changes)


def _make_skipped_fault(
    faults_by_crawl: Mapping[str, EnvironmentFault], requested_crawls: Collection[str]
) -> EnvironmentFault:
    """Returns the fault of a run that left crawls. It is ``Incomplete`` only if the fault of each crawl was."""
    first = next(iter(faults_by_crawl.values()))
    faults = faults_by_crawl.values()
    family = EnvironmentFault if not all(isinstance(fault, Incomplete) for fault in faults) else Incomplete
    family = SourceRefuses if any(isinstance(fault, SourceRefuses) for fault in faults) else family
    return family(
        f"{len(faults_by_crawl):,} of {len(requested_crawls):,} crawls were skipped: {', '.join(faults_by_crawl)}. "
        f"The first: {first.problem}",
        option(crawl=[*faults_by_crawl], sentence=f"Run it again for these crawls: {{}}. {first.advice}"),
    )


def _read_named_crawls(settings: Settings, targets: Sequence[Target]) -> Mapping[str, Collection[str]]:
    """Returns the crawls of each of ``targets`` whose captures a person listed."""
    from cc_pipeline.named_captures.adding import list_named_captures
    from cc_pipeline.workspace.workspace import open_workspace

    if not any(target.kind == GIVEN_KIND for target in targets):
        return {}
    with open_workspace(settings) as workspace:
        return list_named_captures(workspace.lake)


def _select_targets(
    crawl: str, targets: Sequence[Target], crawls_by_target: Mapping[str, Collection[str]], *, is_searchable: bool
) -> tuple[Target, ...]:
    """Returns the targets that may be found in a crawl. Targets with listed captures have them in their crawls only,
    and need no index."""
    return tuple(
        target
        for target in targets
        if (
            is_searchable
            if target.kind != GIVEN_KIND
            else crawl in crawls_by_target.get(target.slug.partition(WHERE_SLUG)[0], ())
        )
    )


def _resolve_selection(
    settings: Settings, texts: Sequence[str], targets: Sequence[Target]
) -> tuple[tuple[str, ...], bool]:
    """Returns the crawls that a person named, and whether ``all``, a year or a range is among them. In that case it
    reports the estimated cost of their indexes first. Above the limit of the settings somebody has to agree."""
    from cc_pipeline.api.lookups import needs_harvest
    from cc_pipeline.commoncrawl.crawls import is_selection
    from cc_pipeline.workspace.workspace import open_workspace

    if not any(is_selection(text, ()) for text in texts):
        return (*texts,), False
    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        crawls = resolve_crawls(workspace, texts)
        indexed = any(target.kind != GIVEN_KIND for target in targets)
        fresh = [crawl for crawl in crawls if indexed and needs_harvest(workspace, crawl)]
    requests = len(fresh) * len(settings.subsets) * _INDEX_FILES
    estimate = f"{format_count(len(crawls), 'crawl')}, {', '.join(crawls[:3])}{' …' if len(crawls) > 3 else ''}"
    if fresh:
        indexes = f"harvesting the indexes of {format_count(len(fresh), 'crawl')}"
        estimate += f"; {indexes} takes at most some {format_count(requests, 'request')}"
    get_reporter().notice(f"{estimate}; the cost of each fetch is known after its lookup")
    if requests > settings.max_requests and not get_reporter().agrees("Go on?"):
        raise UserInputError(
            f"{estimate}, more than CC_PIPELINE_MAX_REQUESTS ({settings.max_requests:,}), so nothing was run. "
            f"Confirm the cost with {option(yes=True)}"
        )
    return tuple(crawls), True


def run_part(
    settings: Settings,
    crawls: Sequence[str],
    targets: Sequence[Target],
    priced: dict[Slice, FetchEstimate],
    unfound: tuple[dict[str, list[Slice]], bool] | None,
    *,
    short_ways: bool = True,
    position: tuple[int, int] = (1, 1),
    yes: bool = False,
) -> tuple[Part, EnvironmentFault | None]:
    """Runs the graph for ``targets`` in ``crawls`` with progress bars and a line per run. Runs nothing if nothing is to
    be done.

    Returns the result, and why partitions failed, if some did (``Incomplete`` if the source did not return everything).
    All other partitions, and what was fetched of these, are published all the same.

    - ``priced`` is the cost of the command's other fetches, since all of them count together; those of this part are
      added.
    - ``unfound`` are targets that are new in this command and have no capture yet, and whether these crawls are the
      last ones: then targets without captures are not kept.
    - ``short_ways``: a crawl is not harvested for a few targets that another index finds with fewer requests.
    - ``position`` is the number of these crawls and how many such parts the command has. With several parts, the steps
      are details, and a part publishes only when the last publication is older than the settings say.
    - ``yes`` agrees to the cost of an index that has to be built first.
    """
    started = time.monotonic()
    briefly = position[1] > 1
    from cc_pipeline.extraction.crawl_plan import compare_plans, plan_crawl
    from cc_pipeline.extraction.index_choice import choose_indexes, explain_index_choices
    from cc_pipeline.workspace.workspace import open_workspace

    with ExitStack() as stack:
        stack.enter_context(report_disk_faults(settings.home))
        workspace = stack.enter_context(open_workspace(settings, one_command=True))
        workspace.fetch_estimates.update(priced)
        # captures that a person listed are in no index
        indexed = any(target.kind != GIVEN_KIND for target in targets)
        to_build = find_agreed_builds(workspace, crawls if indexed else (), yes)
        stack.enter_context(get_reporter().bars())
        if briefly:
            progress.report(
                "crawls", position[0] - 1, position[1], f"crawl {position[0]} of {position[1]}: {crawls[0]}"
            )
        # a crawl that is in no list gets its row after it was found by its name; a wrong name is reported before
        # Dagster loads
        crawl_ids = resolve_crawls(workspace, crawls)
        from cc_pipeline.defs.stage_runner import StageRunner

        def plan_crawls() -> list[CrawlPlan]:
            return [plan_crawl(workspace, crawl, [target.slug for target in targets]) for crawl in crawl_ids]

        runner = stack.enter_context(StageRunner(workspace))
        runner.refuse_too_many(crawl_ids, targets)
        run_step("crawls", runner.list_new_crawls)
        runner.add_targets(targets, crawl_ids)
        build_indexes(runner, to_build)
        report_damage(workspace, to_build)
        before = plan_crawls()
        if short_ways:
            workspace.index_choices.update(choose_indexes(workspace, before, targets))
            show_line = get_reporter().detail if briefly else get_reporter().answer
            for line in explain_index_choices(workspace.index_choices):
                show_line(line)
        to_harvest = [crawl for crawl in crawl_ids if indexed and crawl not in workspace.index_choices]
        now = _harvest(runner, workspace, before, to_harvest)
        made, trouble = _extract(runner, now, targets)
        # if nothing was due, nothing has changed
        after = plan_crawls() if made or trouble else now
        forgotten = _remove_empty_targets(runner, workspace, after, *unfound) if unfound else []
        if not briefly or _is_publication_old(workspace):
            run_step("cc.duckdb", runner.publish_changes)
        priced.update(workspace.fetch_estimates)
        changes = compare_plans(before, after)
        notes = _describe_omissions(workspace, targets, changes, after)
    seconds = time.monotonic() - started
    part = Part(
        settings, tuple(targets), changes, frozenset(forgotten), tuple(notes), position=position, seconds=seconds
    )
    return part, trouble


def _harvest(
    runner: StageRunner, workspace: Workspace, crawl_plans: list[CrawlPlan], crawls: Sequence[str]
) -> list[CrawlPlan]:
    """Harvests crawls, and returns the plans with the new indexes."""
    from cc_pipeline.extraction.crawl_plan import replan_with_new_indexes

    harvested: list[str] = []
    is_complete = harvest_despite_gaps(
        lambda: run_step(
            "index",
            lambda: harvested.extend(runner.harvest_changed(crawls)),
        )
    )
    if is_complete and not harvested:
        return crawl_plans
    return [replan_with_new_indexes(workspace, crawl_plan) for crawl_plan in crawl_plans]


def _extract(
    runner: StageRunner, crawl_plans: Sequence[CrawlPlan], targets: Sequence[Target]
) -> tuple[list[str], EnvironmentFault | None]:
    """Extracts the targets from the crawls. Returns the extracted partitions, and the fault of those that failed."""
    crawls = [plan.target_slices.crawl for plan in crawl_plans]
    made: list[str] = []
    try:
        run_step(
            "pages",
            lambda: made.extend(runner.extract(crawls, targets, crawl_plans)),
        )
    except EnvironmentFault as error:
        if not (is_partial_failure(error) or isinstance(error, Incomplete)):
            raise
        return made, error
    return made, None


def _describe_omissions(
    workspace: Workspace,
    targets: Sequence[Target],
    changes: Mapping[Slice, PartitionChange],
    crawl_plans: Sequence[CrawlPlan],
) -> list[str]:
    """Returns notes on what a run left out: blocked sites, gaps of an index, subsets that were not requested."""
    from cc_pipeline.checks.omissions import describe_omitted_subsets
    from cc_pipeline.extraction.blocklist import read_blocklist
    from cc_pipeline.extraction.lookup_notes import describe_gaps

    notes = read_blocklist(workspace).describe_blocks(targets)
    changed = list(dict.fromkeys(slice_.crawl for slice_, change in changes.items() if change.change != "same"))
    if changed:
        notes += describe_gaps(workspace, changed, targets)
    if any(change.change == "new" for change in changes.values()):
        other_slices = (slices for plan in crawl_plans for slices in plan.target_slices.additional.values())
        stored_subsets = {slice_.subset for slices in other_slices for slice_ in slices}
        notes += describe_omitted_subsets(workspace, changed, targets, stored_subsets)
    return notes


def _is_publication_old(workspace: Workspace) -> bool:
    from cc_pipeline.publish.publish import find_publication_lag

    lag = find_publication_lag(workspace)
    return lag is not None and lag.longer_than(workspace.settings.publish_every)


def _remove_empty_targets(
    runner: StageRunner,
    workspace: Workspace,
    crawl_plans: Sequence[CrawlPlan],
    unfound: dict[str, list[Slice]],
    last: bool,
) -> list[str]:
    """Adds to ``unfound`` the slices that these crawls have of it. After the ``last`` crawls it removes targets without
    any capture."""
    unfound |= {slug: [] for slug in sorted(runner.new_targets)}
    for slug in [*unfound]:
        target_plans = [crawl_plan for crawl_plan in crawl_plans if slug in crawl_plan.target_slices.requested]
        if all(crawl_plan.has_no_captures(slug) for crawl_plan in target_plans):
            unfound[slug] += [
                slice_ for crawl_plan in target_plans for slice_ in crawl_plan.target_slices.requested[slug]
            ]
        else:
            del unfound[slug]
    if not last or not unfound:
        return []
    from cc_pipeline.defs.purging import forget_unfound_targets

    return forget_unfound_targets(workspace, runner.instance, unfound)


@contextmanager
def report_disk_faults(home: Path) -> Iterator[None]:
    """Turns errors of the disk and of Dagster's databases inside the block into a ``PlaceFault``."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (OSError, DBAPIError) as error:
        is_full = disk_is_full(error)
        problem = "the disk is full" if is_full else str(error).partition("\n")[0]
        remedy = "Free some space." if is_full else "Check the disk, and the permissions of the folder and its files."
        raise PlaceFault(
            f"the state in {home} cannot be written or read: {problem}",
            f"{remedy} Then run the command again: committed work is kept.",
        ) from error
