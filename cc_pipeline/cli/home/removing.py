"""What ``domains remove`` and ``domains clean`` say, ask and do in a home in which something was extracted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from cc_pipeline.cli.output import console, progress_bars, show_table
from cc_pipeline.errors import UserInputError

if TYPE_CHECKING:
    import dagster as dg

    from cc_pipeline.settings import Settings
    from cc_pipeline.stages.keeping.purge import PurgeReport
    from cc_pipeline.stages.keeping.purge_plan import PurgePlan
    from cc_pipeline.stages.workspace import Workspace

#: Keys that are shown.
_SHOWN = 50


def remove(
    settings: Settings,
    texts: Sequence[str],
    listed: Mapping[str, str],
    *,
    purge: bool,
    now: bool,
    dry_run: bool,
    yes: bool,
    subset: str | None = None,
) -> None:
    """Removes the targets that ``texts`` mean, or what a ``subset`` has of them; ``listed`` are the definitions on the
    watch list, by slug."""
    from cc_pipeline.defs.instance import open_instance
    from cc_pipeline.extraction import targets
    from cc_pipeline.stages.automation import watch_list
    from cc_pipeline.stages.keeping.known_keys import defined, purges_begun, which_target
    from cc_pipeline.stages.keeping.purge_plan import plan_purge
    from cc_pipeline.stages.workspace import open_workspace

    with open_workspace(settings) as workspace, open_instance(settings) as instance:
        begun = purges_begun(workspace)
        known = {*listed, *defined(workspace.lake), *begun, *instance.get_dynamic_partitions("domain")}
        slugs = list(dict.fromkeys(which_target(text, known) for text in texts))
        if subset is not None:
            _drop_subset(workspace, slugs, subset, yes=yes)
            return
        written = {**begun, **targets.definitions(workspace.lake, slugs), **listed}
        plans = {slug: plan_purge(workspace, slug, written.get(slug, slug), files=purge) for slug in slugs}
        if purge:
            _purge(workspace, instance, [*plans.values()], now=now, dry_run=dry_run, yes=yes)
            return
        for slug, plan in plans.items():
            if plan.found_nothing:
                _remove_whole(workspace, instance, plan, listed=slug in listed)
                continue
            gone = watch_list.remove(settings.watch_list_path, [slug])
            said = f"removed from the watch list: {plan.definition}" if gone else f"not on the watch list: {slug}"
            _say(f"{said}; what was extracted stays. To delete that: cc-pipeline domains remove {slug} --purge")


def clean(settings: Settings, *, yes: bool) -> None:
    """Takes keys away that mean nothing."""
    from cc_pipeline.defs.instance import open_instance
    from cc_pipeline.defs.keys import delete_keys, strange_keys
    from cc_pipeline.stages.keeping.known_keys import known_keys
    from cc_pipeline.stages.workspace import open_workspace

    with open_workspace(settings) as workspace, open_instance(settings) as instance:
        strange = strange_keys(instance, known_keys(workspace))
        if strange.unjudged:
            _say(f"crawls were not looked at: {strange.unjudged}")
        every = [("domain", *one) for one in strange.domains.items()] + [
            ("crawl", *one) for one in strange.crawls.items()
        ]
        if not every:
            _say("every partition key means something")
            return
        show_table(f"{len(every):,} partition keys that mean nothing", ["of", "key", "why"], every[:_SHOWN])
        if len(every) > _SHOWN:
            _say(f"and {len(every) - _SHOWN:,} more")
        _ask(f"Take {len(every):,} keys away?", yes=yes)
        events = delete_keys(instance, domains=[*strange.domains], crawls=[*strange.crawls])
        _say(f"{len(every):,} keys are gone, and {events:,} events that Dagster had of them")


def _drop_subset(workspace: Workspace, slugs: Sequence[str], subset: str, *, yes: bool) -> None:
    from cc_pipeline.stages.keeping.purge import drop_subset

    _ask(f"Take away what {subset} has of {', '.join(slugs)}, in every crawl? This cannot be undone.", yes=yes)
    for slug in slugs:
        count = drop_subset(workspace, slug, subset)
        _say(f"{slug}: {count:,} captures of {subset} are gone; upkeep deletes bytes that nothing else names in a week")


def _purge(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    plans: Sequence[PurgePlan],
    *,
    now: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    from cc_pipeline.defs.automation.purging import purge_target

    for plan in plans:
        _show(plan)
    if dry_run:
        return
    when = "now" if now else "in a week"
    if now:
        _say(
            "With --now, all superseded files of the lake are deleted at once: whoever has cc.duckdb open has to open "
            "it anew, and queries that are running there fail."
        )
    names = ", ".join(plan.slug for plan in plans)
    _ask(f"Hide {names} at once, and delete its rows and bytes {when}? This cannot be undone.", yes=yes)
    for plan in plans:
        with progress_bars():
            report = purge_target(workspace, instance, plan, now=now)
        _say_done(report)


def _remove_whole(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, *, listed: bool) -> None:
    from cc_pipeline.defs.automation.purging import remove_target
    from cc_pipeline.stages.publish import publish_warehouse

    remove_target(workspace, instance, plan)
    if workspace.settings.published_path.exists():
        publish_warehouse(workspace)
    place = "the watch list, its partition key" if listed else "its partition key"
    _say(f"removed whole: {plan.definition} found nothing, so {place} and its definition are gone too")


def _show(plan: PurgePlan) -> None:
    rows = [(table, count) for table, count in plan.rows.items() if count]
    show_table(f"rows of {plan.slug} in {len({one.crawl for one in plan.slices}):,} crawls", ["table", "rows"], rows)
    for text in plan.sentences:
        _say(text)


def _say_done(report: PurgeReport) -> None:
    slug = report.plan.slug
    if report.gone_after is None:
        _say(f"purged: {slug}; its rows and bytes are deleted, but for the copies named above")
        return
    when = f"{report.gone_after:%Y-%m-%d %H:%M} UTC"
    _say(f"hidden: {slug}. Its rows and bytes are deleted by the first upkeep after {when}")
    if report.waiting:
        _say(f"{report.waiting:,} stored files wait for that")
    _say(f"without schedules, run then: cc-pipeline domains remove {slug} --purge")
    if report.held:
        _say(
            f"fetches that are running in {', '.join(report.held)} still count on some files; upkeep sees to those too"
        )


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserInputError("nobody can be asked here, and nothing was changed; say --yes to go on without a question")
    if not typer.confirm(question):
        raise typer.Abort


def _say(text: str) -> None:
    console.print(text, soft_wrap=True)
