"""``targets``: the watch list, blocked sites, and removing the rows of a target."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.advice import advise
from cc_pipeline.api import user_input
from cc_pipeline.api.target_runs import shorten_definition
from cc_pipeline.automation import watch_list
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command, Group
from cc_pipeline.cli.output import console, notice, progress_bars, write_rows
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.claim import claim_home, has_lake

if TYPE_CHECKING:
    import dagster as dg

    from cc_pipeline.maintenance.purge import PurgeReport
    from cc_pipeline.maintenance.purge_plan import PurgePlan
    from cc_pipeline.workspace.workspace import Workspace

_PLAN_COLUMNS = ("target", "table", "rows")

#: Maximum number of added targets that are printed one by one.
_MAX_NAMED_TARGETS = 100


def remove_targets(
    settings: Settings,
    texts: Sequence[str],
    watched_definitions: Mapping[str, str],
    *,
    purge: bool,
    now: bool,
    dry_run: bool,
    yes: bool,
    agreed: str | None = None,
) -> None:
    """Removes the targets that ``texts`` name. ``watched_definitions`` are the definitions on the watch list, by slug.
    ``agreed`` is the digest of a purge plan that needs no confirmation."""
    from cc_pipeline.automation.known_keys import find_target, find_unfinished_purges, read_defined_slugs
    from cc_pipeline.defs.instance import open_instance
    from cc_pipeline.lake import target_definitions as targets
    from cc_pipeline.maintenance.purge_plan import plan_purge
    from cc_pipeline.workspace.workspace import Workspace

    class UnclaimedWorkspace(Workspace):
        def claim(self) -> None:
            """Notes nothing in the home or the lake, where a dry run may be the first command."""

    with closing((UnclaimedWorkspace if dry_run else Workspace)(settings)) as workspace:
        unfinished_purges = find_unfinished_purges(workspace)
        known_slugs = {*watched_definitions, *read_defined_slugs(workspace.lake), *unfinished_purges}
        slugs = list(dict.fromkeys(find_target(text, known_slugs) for text in texts))
        written = {**targets.read_definitions(workspace.lake, slugs), **watched_definitions}
        plans = {slug: plan_purge(workspace, slug, written.get(slug, slug), files=purge) for slug in slugs}
        if dry_run:
            _show_dry_run([*plans.values()])
            return
        # opened last: Dagster writes to its files even when they are only read
        with open_instance(settings) as instance:
            if purge:
                _purge(workspace, instance, [*plans.values()], now=now, yes=yes, agreed=agreed)
                return
            for slug, plan in plans.items():
                _remove(workspace, instance, plan, is_watched=slug in watched_definitions)


def _purge(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    plans: Sequence[PurgePlan],
    *,
    now: bool,
    yes: bool,
    agreed: str | None,
) -> None:
    from cc_pipeline.defs.purging import purge_target
    from cc_pipeline.maintenance.purge_plan import require_plan_digest

    for plan in plans:
        _show_plan(plan)
    if yes or agreed is not None or not sys.stdin.isatty():
        require_plan_digest(plans, agreed or "")
    deletion_time = "now" if now else "in a week"
    if now:
        _print(
            "With --now, all superseded files of the lake are deleted at once. Running queries on cc.duckdb fail, and "
            "readers must open it again."
        )
    names = ", ".join(plan.slug for plan in plans)
    _confirm(
        f"Hide {names} in all tables at once, and delete the rows and bytes {deletion_time}? This cannot be undone.",
        # a killed purge has hidden everything already
        yes=agreed is not None or (yes and all(plan.is_empty for plan in plans)),
    )
    for plan in plans:
        with progress_bars():
            report = purge_target(workspace, instance, plan, now=now)
        _report_purge(plan.slug, report)


def _remove(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, *, is_watched: bool) -> None:
    """Removes a target from the watch list; one without captures is removed completely."""
    from cc_pipeline.defs.purging import remove_target
    from cc_pipeline.publish.publish import publish_warehouse

    settings, slug = workspace.settings, plan.slug
    if not plan.is_empty:
        watch_list.remove(settings.watch_list_path, [slug])
        message = f"removed from the watch list: {plan.definition}" if is_watched else f"not on the watch list: {slug}"
        _print(f"{message}; extracted rows are kept. To delete them: {advise('targets remove', slug, purge=True)}")
        return
    remove_target(workspace, instance, plan)
    if settings.published_path.exists():
        publish_warehouse(workspace)
    place = "the watch list, its partition key" if is_watched else "its partition key"
    _print(f"removed: {plan.definition} has no captures, so {place} and its definition were deleted too")


def _show_dry_run(plans: Sequence[PurgePlan]) -> None:
    from cc_pipeline.maintenance.purge_plan import combine_digests

    for plan in plans:
        _show_plan(plan)
    digest = combine_digests(plans)
    _print(
        f"nothing was changed: this was a dry run. The digest of this plan is {digest}. To purge without confirmation, "
        f"while the plan is the same: --purge --plan {digest}"
    )


def _show_plan(plan: PurgePlan) -> None:
    rows = [(plan.slug, table, count) for table, count in plan.rows.items() if count]
    if rows:
        crawl_count = len({slice_.crawl for slice_ in plan.slices})
        write_rows(f"rows of {plan.slug} in {format_count(crawl_count, 'crawl')}", _PLAN_COLUMNS, rows)
    else:
        _print(f"{plan.slug} has no rows in this lake")
    for text in plan.sentences:
        _print(text)


def _report_purge(slug: str, report: PurgeReport) -> None:
    if report.fetches:
        _print(
            f"{format_count(report.fetches, 'fetch', 'are')} of {slug} running: what they store is never shown, and "
            "maintenance deletes it"
        )
    if report.leftovers is not None:
        _print(f"purged: {slug}; its rows and bytes are deleted, except for the copies named above")
        for text in report.leftovers.sentences:
            _print(text)
        return
    deletion_time = f"{report.deleted_after:%Y-%m-%d %H:%M} UTC"
    _print(f"hidden: {slug}. Its rows and bytes are deleted by the first maintenance after {deletion_time}")
    _print(f"if no schedule runs maintenance, run after that time: {advise('automation clean')}")


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserInputError("no terminal for confirmation, so nothing was changed; add --yes to continue without it")
    if not typer.confirm(question):
        raise typer.Abort


def add(settings: Settings, targets: options.Targets) -> None:
    """Add targets to the watch list, and their partition keys to Dagster.

    [bold]Examples[/]

      cc-pipeline targets add example.com münchen.de

      cc-pipeline targets add host:www.example.org suffix:gov.uk

      cc-pipeline targets add "set:press = bbc.co.uk, nytimes.com"

      cc-pipeline targets add "set:press = @press.txt"  (beside domains.txt)
    """
    parsed = user_input.read_targets(targets, settings.watch_list_path.parent)
    user_input.refuse_unnamed_captures(settings, parsed)
    claim_home(settings)
    _register(settings, [*watch_list.read(settings.watch_list_path), *parsed])
    added = watch_list.add(settings.watch_list_path, parsed)
    if len(parsed) > _MAX_NAMED_TARGETS:
        _print(
            f"added {format_count(len(added), 'target')} to the watch list; {len(parsed) - len(added):,} more were "
            "on the list already"
        )
        return
    for target in parsed:
        word = "added" if target in added else "already there"
        _print(f"{word}: {target.definition}  (partition key {target.slug})")


def remove(
    settings: Settings,
    targets: options.Targets,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete their extracted rows and bytes, a week later (or --now).")
    ] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="With --purge: delete at once. Readers must open cc.duckdb again."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --purge: only show what would be deleted.")] = False,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="DIGEST",
            help="With --purge: do not ask for confirmation if the plan still has this digest of --dry-run.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. A purge also needs --plan.")] = False,
) -> None:
    """Remove targets from the watch list. Extracted pages are kept, unless --purge deletes them.

    A target is named by its definition or its partition key, a set by its name too (press, set:press). A target without
    captures is removed completely, with its key and its definition.

    [bold]Examples[/]

      cc-pipeline targets remove example.com

      cc-pipeline targets remove set:press --purge --dry-run

      cc-pipeline targets remove example.com --purge

      cc-pipeline targets remove example.com --purge --plan DIGEST
    """
    if not purge and (now or dry_run or plan is not None):
        raise UserInputError(
            "--now, --dry-run and --plan need --purge: without --purge, remove only changes the watch list"
        )
    targets = user_input.expand_lists(targets)
    watched_definitions = {target.slug: target.definition for target in watch_list.read(settings.watch_list_path)}
    if not dry_run and not has_lake(settings):
        # no home and no tables: a mistyped folder must not become the home of a source
        from cc_pipeline.automation.known_keys import find_target

        for slug in [find_target(text, watched_definitions) for text in targets]:
            _print(f"removed from the watch list: {watched_definitions[slug]}")
            watch_list.remove(settings.watch_list_path, [slug])
        return

    remove_targets(
        settings,
        targets,
        watched_definitions,
        purge=purge,
        now=now,
        dry_run=dry_run,
        yes=yes,
        agreed=plan,
    )


def block(
    settings: Settings,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET…", help="Sites: domains or other targets, @FILE with one a line, or -."),
    ] = None,
    reason: Annotated[str, typer.Option("--why", help="The reason, shown wherever the block applies.")] = "",
) -> None:
    """Block sites: no run, copy, get, set or schedule of any home on this lake fetches them. Without a site, shows what
    is blocked.

    Existing rows of a blocked target are kept (targets remove SITE --purge deletes them). Other targets with captures
    of blocked sites, such as sets, lose these in their next run.

    [bold]Examples[/]

      cc-pipeline targets block example.com --why "their letter of May"

      cc-pipeline targets block
    """
    from cc_pipeline.extraction import blocklist as blocked
    from cc_pipeline.workspace.workspace import open_workspace

    parsed = user_input.read_targets(targets or ())
    user_input.refuse_unnamed_captures(settings, parsed)
    with open_workspace(settings) as workspace:
        blocklist = blocked.block(workspace, parsed, reason) if parsed else blocked.read_blocklist(workspace)
    for site_block in blocklist.blocks:
        _print(str(site_block))
    if not blocklist.blocks:
        _print("no sites are blocked")


def unblock(settings: Settings, targets: options.Targets) -> None:
    """Unblock sites. The next run of each target fetches its captures of these sites."""
    from cc_pipeline.extraction import blocklist as blocked
    from cc_pipeline.workspace.workspace import open_workspace

    parsed = user_input.read_targets(targets)
    with open_workspace(settings) as workspace:
        blocked.unblock(workspace, parsed)
    for target in parsed:
        _print(f"no longer blocked: {target.definition}")


def show_list(settings: Settings) -> list[Sequence[object]]:
    """Show the watch list with its partition keys."""
    watched_targets = watch_list.read(settings.watch_list_path)
    if not watched_targets:
        notice(f"the watch list is empty; add to it with: {advise('targets add', 'example.com')}")
    return [
        (shorten_definition(target), target.kind, len(target.members) or None, target.slug)
        for target in watched_targets
    ]


def _register(settings: Settings, targets: Sequence[Target]) -> None:
    """Makes ``targets`` partitions, so that the UI has them although no sensor is on. Raises ``UserInputError`` if
    there would be too many."""
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.workspace import open_workspace

    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.add_targets(targets)


def _print(text: str) -> None:
    console.print(text, soft_wrap=True)


COMMANDS = {
    "targets": Group("The watch list (domains.txt in the home), blocked sites, and removing targets.", EVERYDAY, 80),
    "targets add": Command(add, options=options.LOCAL),
    "targets remove": Command(remove, options=options.LOCAL, columns=_PLAN_COLUMNS),
    "targets block": Command(block, options=options.LOCAL),
    "targets unblock": Command(unblock, options=options.LOCAL),
    "targets list": Command(show_list, options=options.LOCAL, columns=("target", "kind", "members", "partition key")),
}
