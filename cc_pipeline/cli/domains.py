"""``domains``: the watch list."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, show_table
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.settings import claim_home, load_settings
from cc_pipeline.stages import watch_list

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="The watch list (domains.txt in the home): the targets that the schedule keeps up to date.",
)

_Texts = Annotated[list[str], typer.Argument(help="Domains or other targets.", show_default=False)]


@app.command()
def add(targets: _Texts, home: options.Home = None) -> None:
    """Add targets to the watch list.

    [bold]Examples[/]

      cc-pipeline domains add example.com münchen.de

      cc-pipeline domains add host:www.example.org suffix:gov.uk "set:press = bbc.co.uk, nytimes.com"
    """
    settings = load_settings(home=home)
    parsed = [parse_target(text) for text in targets]
    claim_home(settings)
    added = watch_list.add(settings.watch_list_path, parsed)
    for target in parsed:
        word = "added" if target in added else "already there"
        console.print(f"{word}: {target.definition}  (partition key {target.slug})", highlight=False, markup=False)


@app.command()
def remove(targets: _Texts, home: options.Home = None) -> None:
    """Remove targets from the watch list; pages already extracted stay."""
    settings = load_settings(home=home)
    gone = watch_list.remove(settings.watch_list_path, [parse_target(text) for text in targets])
    for target in gone:
        console.print(f"removed: {target.definition}", highlight=False, markup=False)
    if len(gone) < len(targets):
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
        ["target", "kind", "partition key"],
        [(t.definition, t.kind, t.slug) for t in found],
    )
