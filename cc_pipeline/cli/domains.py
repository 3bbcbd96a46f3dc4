"""``domains``: the watch list."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, show_table
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import slug_meant
from cc_pipeline.settings import claim_home, load_settings
from cc_pipeline.stages import watch_list

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The watch list (domains.txt in the home): the targets that the schedule keeps up to date.",
)

#: Characters of a definition in the list; a set's may have thousands.
_MOST_SHOWN = 120
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
    added = watch_list.add(settings.watch_list_path, parsed)
    for target in parsed:
        word = "added" if target in added else "already there"
        console.print(f"{word}: {target.definition}  (partition key {target.slug})", highlight=False, markup=False)


@app.command()
def remove(targets: _Texts, home: options.Home = None) -> None:
    """Remove targets from the watch list (of a set its name: set:press); pages already extracted stay."""
    settings = load_settings(home=home)
    named = options.lines_meant(targets)
    gone = watch_list.remove(settings.watch_list_path, [slug_meant(text) for text in named])
    for definition in gone:
        console.print(f"removed: {definition}", highlight=False, markup=False)
    if len(gone) < len(named):
        console.print("the others were not on the list; see: cc-pipeline domains list")


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


def _shown(target: Target) -> str:
    text = target.definition
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"
