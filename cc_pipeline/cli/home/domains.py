"""``domains``: the watch list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, show_table
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, claim_home, load_settings
from cc_pipeline.stages.automation import watch_list

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The watch list (domains.txt in the home): the targets that the schedule keeps up to date.",
)

#: Characters of a definition in the list; a set's may have thousands.
_MOST_SHOWN = 120
#: Targets of a list that are named one by one when they are added.
_MOST_NAMED = 100
_Texts = Annotated[
    list[str],
    typer.Argument(
        help="Domains or other targets, @FILE with one a line, or - for standard input.", show_default=False
    ),
]


@app.command()
def add(targets: _Texts, home: options.Home = None) -> None:
    """Add targets to the watch list.

    [bold]Examples[/]

      cc-pipeline domains add example.com münchen.de

      cc-pipeline domains add host:www.example.org suffix:gov.uk "set:press = bbc.co.uk, nytimes.com"

      cc-pipeline domains add "set:press = @press.txt"      (a file beside domains.txt, a member a line)
    """
    settings = load_settings(home=home)
    parsed = options.read_targets(targets, settings, settings.watch_list_path.parent)
    claim_home(settings)
    _refuse_too_many(settings, [*watch_list.read(settings.watch_list_path), *parsed])
    added = watch_list.add(settings.watch_list_path, parsed)
    if len(parsed) > _MOST_NAMED:
        _say(f"added {len(added):,} targets; {len(parsed) - len(added):,} more were on the list already")
        return
    for target in parsed:
        word = "added" if target in added else "already there"
        _say(f"{word}: {target.definition}  (partition key {target.slug})")


@app.command()
def remove(
    targets: _Texts,
    purge: Annotated[
        bool, typer.Option("--purge", help="Delete what was extracted of them too, a week later (or --now).")
    ] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="With --purge: delete at once. Whoever reads cc.duckdb then has to open it anew."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --purge: only say what would go.")] = False,
    subset: Annotated[
        str | None,
        typer.Option("--subset", show_default=False, help="Delete what this subset has of them, and nothing else."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: options.Home = None,
) -> None:
    """Remove targets from the watch list; pages already extracted stay, unless --purge deletes them.

    A target is named by its definition or its partition key, a set by its name too (press, set:press). One that found
    nothing is removed whole: its key and its definition go too.

    [bold]Examples[/]

      cc-pipeline domains remove example.com

      cc-pipeline domains remove set:press --purge --dry-run

      cc-pipeline domains remove example.com --purge

      cc-pipeline domains remove example.com --subset robotstxt
    """
    if not purge and (now or dry_run):
        raise UserInputError("--now and --dry-run are for --purge: plain remove deletes no pages")
    if subset is not None and (purge or subset not in SUBSETS):
        raise UserInputError(f"--subset takes one of {', '.join(SUBSETS)}, and goes without --purge")
    settings = load_settings(home=home)
    targets = options.lines_meant(targets)
    listed = {target.slug: target.definition for target in watch_list.read(settings.watch_list_path)}
    if not settings.lake_is_apart and not (settings.dagster_home / "dagster.yaml").exists():
        # nothing was ever extracted here
        from cc_pipeline.stages.keeping.known_keys import which_target

        for slug in [which_target(text, listed) for text in targets]:
            _say(f"removed from the watch list: {listed[slug]}")
            watch_list.remove(settings.watch_list_path, [slug])
        return
    from cc_pipeline.cli.home import removing

    removing.remove(settings, targets, listed, purge=purge, now=now, dry_run=dry_run, yes=yes, subset=subset)


@app.command()
def clean(yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, home: options.Home = None) -> None:
    """Take away partition keys that mean nothing: typed into the UI, with no definition and nothing made of them.

    Crawls that the source does not list, and of which nothing is here, go too. What goes is shown first.
    """
    from cc_pipeline.cli.home import removing

    removing.clean(load_settings(home=home), yes=yes)


@app.command("list")
def list_(home: options.Home = None) -> None:
    """Show the watch list with its partition keys."""
    settings = load_settings(home=home)
    found = watch_list.read(settings.watch_list_path)
    if not found:
        console.print("the watch list is empty; add to it with: cc-pipeline domains add example.com")
        return
    show_table(
        str(settings.watch_list_path),
        ["target", "kind", "members", "partition key"],
        [(_shown(t), t.kind, len(t.members) or None, t.slug) for t in found],
    )


def _refuse_too_many(settings: Settings, targets: Sequence[Target]) -> None:
    if not (settings.dagster_home / "dagster.yaml").exists():
        return  # no crawl is registered yet
    from cc_pipeline.defs.instance import open_instance
    from cc_pipeline.defs.keys import refuse_too_many

    with open_instance(settings) as instance:
        refuse_too_many(instance, domains=[target.slug for target in targets])


def _say(text: str) -> None:
    console.print(text, soft_wrap=True)


def _shown(target: Target) -> str:
    text = target.definition
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"
