"""``run`` and ``demo``: materialize the graph through Dagster in this process, and print what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline import progress
from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, progress_bars, show_table
from cc_pipeline.cli.running import all_runs, despite_gaps, others_are_done, resolve_crawls, step
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, Incomplete, disk_is_full
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.stages import watch_list

if TYPE_CHECKING:
    import duckdb

    from cc_pipeline.stages.workspace import Workspace

#: Beyond this many (crawl, target) pairs only those without captures are named.
_SHOWN_PAIRS = 40
#: Pairs or files that one note names.
_NAMED = 5
#: Characters of a target's definition in a table or note.
_LONGEST_NAME = 120


def what_was_found(settings: Settings, crawls: Sequence[str], targets: Sequence[Target]) -> None:
    """Prints the rows of each table, the ledger, and the captures of ``crawls`` × ``targets``.

    It names targets without captures: without that, they look like success.
    """
    from cc_pipeline.lake.moving import open_settled

    with open_settled(settings) as connection:
        rows = connection.execute(
            "SELECT table_name, lake_rows, coalesce(published_rows, lake_rows) FROM publication WHERE lake_rows > 0"
        ).fetchall()
        outcomes = connection.execute(
            "SELECT crawl, count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome = 'quarantined'), "
            "count(*) FILTER (outcome = 'missing') FROM ledger GROUP BY crawl ORDER BY crawl DESC"
        ).fetchall()
        counts = _captures(connection)
        lacking = _lacking(connection, crawls, targets)
        absent = _absent(connection, crawls, targets)
    show_table("a table per stage", ["table", "rows in the lake", "published"], rows)
    show_table("the ledger", ["crawl", "planned", "fetched", "quarantined", "missing"], outcomes)
    pairs = [(crawl, target, counts.get((crawl, target.slug), 0)) for crawl in crawls for target in targets]
    if len(pairs) <= _SHOWN_PAIRS:
        asked = [(crawl, _named_shortly(target), count) for crawl, target, count in pairs]
        show_table("what was asked for", ["crawl", "target", "captures"], asked)
    empty = [f"{_named_shortly(target)} in {crawl}" for crawl, target, count in pairs if not count]
    if empty:
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        subsets = ", ".join(settings.subsets)
        _note(f"no captures (subset {subsets}) of {'; '.join(empty[:_NAMED])}{more}")
    for crawl, slug, count, total, named in absent:
        more = f" and {count - _NAMED:,} more: see the view set_members" if count > _NAMED else ""
        _note(
            f"{count:,} of {total:,} members of {slug} have no captures in {crawl}: {', '.join(named[:_NAMED])}{more}"
        )
    _say_shortfall(lacking)


def _named_shortly(target: Target) -> str:
    text = target.definition
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}… ({len(target.members):,} members)"


def _absent(
    connection: duckdb.DuckDBPyConnection, crawls: Sequence[str], targets: Sequence[Target]
) -> list[tuple[str, str, int, int, list[str]]]:
    """Sets that have captures, of which some members have none: crawl, slug, these, all, and the first by name."""
    sets = [target.slug for target in targets if target.members]
    rows = connection.execute(
        "SELECT crawl, target, count(*) FILTER (captures = 0), count(*), min(member, 5) FILTER (captures = 0) "
        "FROM set_members WHERE list_contains(?, crawl) AND list_contains(?, target) GROUP BY ALL "
        "HAVING count(*) FILTER (captures = 0) BETWEEN 1 AND count(*) - 1 ORDER BY ALL",
        [list(crawls), sets],
    ).fetchall()
    return [(crawl, slug, int(count), int(total), list(named)) for crawl, slug, count, total, named in rows]


def _lacking(
    connection: duckdb.DuckDBPyConnection, crawls: Sequence[str], targets: Sequence[Target]
) -> tuple[int, int, int]:
    """Captures of ``crawls`` × ``targets``: planned, unsettled, and not here for good."""
    [row] = connection.execute(
        "SELECT sum(planned), sum(unsettled), sum(planned - fetched - unsettled) FROM fetches "
        "WHERE list_contains(?, crawl) AND list_contains(?, target)",
        [list(crawls), [target.slug for target in targets]],
    ).fetchall()
    planned, unsettled, settled = (int(value or 0) for value in row)
    return planned, unsettled, settled


def _say_shortfall(lacking: tuple[int, int, int]) -> None:
    from cc_pipeline.stages.shortfall import share

    planned, unsettled, settled = lacking
    if unsettled:
        figure = f"{unsettled:,} of {planned:,} captures ({share(unsettled, planned)})"
        text = f"{figure} did not come: run the command again, it asks for these alone"
        console.print(text, highlight=False, markup=False, soft_wrap=True, style="bold red")
    if settled:
        _note(
            f"{settled:,} of {planned:,} captures ({share(settled, planned)}) are missing or damaged in the source "
            "itself: see the view ledger for each of them and why"
        )
    if planned and not unsettled and not settled:
        console.print(f"all {planned:,} captures are here", highlight=False, markup=False, style="green")


def _captures(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    rows = connection.execute("SELECT crawl, target, count(*) FROM capture_targets GROUP BY ALL").fetchall()
    return {(crawl, target): count for crawl, target, count in rows}


def _note(text: str) -> None:
    console.print(f"note: {text}", highlight=False, markup=False, soft_wrap=True, style="yellow")


_INSTALLED = "cc-pipeline"
#: Domains of the demo that become a target of their own; all others share one set.
_DEMO_DOMAINS = 5


def run(
    crawl: options.Crawls,
    domain: options.Targets,
    source: options.Source = None,
    home: options.Home = None,
    subset: options.Subsets = None,
    via: options.Via = None,
    allow_gaps: options.AllowGaps = False,
    yes: options.Yes = False,
) -> None:
    """Get domains out of crawls, from the index to parsed pages, and publish cc.duckdb.

    Ends with status 3 when the source did not give everything: run the same command again, it asks only for the rest.

    [bold]Examples[/]

      cc-pipeline run --crawl CC-MAIN-2024-22 --domain example.com

      cc-pipeline run -c newest -d example.com -d host:www.example.org --subset warc --subset robotstxt

      cc-pipeline run -c CC-MAIN-2012 -d prefix:http://www.example.com/blog/

      cc-pipeline run -c newest -d "set:press = @press.txt"      (a member a line)
    """
    from cc_pipeline.stages.reports.left_out import what_is_not_there

    settings = load_settings(
        source=source,
        home=home,
        subsets=tuple(subset) if subset else None,
        via=via,
        max_index_gaps=options.most_gaps(allow_gaps),
        max_bytes=options.at_any_price(yes),
        max_requests=options.at_any_price(yes),
    )
    targets = [parse_target(text, Path.cwd()) for text in domain]
    notes: list[str] = []
    chosen, trouble = materialize(
        settings, crawl, targets, lambda workspace, crawls: notes.extend(what_is_not_there(workspace, crawls, targets))
    )
    what_was_found(settings, chosen, targets)
    for note in notes:
        _note(note)
    if trouble is not None:
        raise trouble


def demo(
    home: options.Home = None,
    pages: Annotated[int | None, typer.Option(help="Size of the mini crawl, in pages.", show_default=False)] = None,
) -> None:
    """Generate a mini crawl, materialize the whole graph through Dagster, and print what it found.

    Nothing leaves this machine: the source is a small generated bucket in the home.
    """
    from cc_pipeline.minicrawl.generate import ensure
    from cc_pipeline.minicrawl.spec import DEMO, spec_for

    where = load_settings(home=home).home
    where.mkdir(parents=True, exist_ok=True)
    console.print("[bold]1 of 3[/] a mini crawl, generated here")
    root = where / "minicrawl"
    with progress_bars():
        truth = ensure(root, DEMO if pages is None else spec_for(pages), _generated)
    crawls = [crawl for crawl in truth.crawls if truth.of(crawl)]
    console.print(f"      {len(truth.captures):,} captures of {len(truth.domains())} domains in {', '.join(crawls)}")
    settings = load_settings(source=str(root), home=str(where))
    targets = [parse_target(text) for text in demo_targets(truth.domains())]
    watch_list.add(settings.watch_list_path, targets)
    console.print("[bold]2 of 3[/] the whole graph, materialized through Dagster")
    _, trouble = materialize(settings, crawls, targets)
    if trouble is not None:
        raise trouble
    console.print("[bold]3 of 3[/] what it found")
    what_was_found(settings, crawls, targets)
    shown = _shown(settings.published_path)
    command, flag = _spelled(), "" if where == load_settings().home else f" --home {_shown(where)}"
    ui = "make dev" if command != _INSTALLED and not flag else f"{command} ui{flag}"
    console.print(
        f"\nThe Dagster UI on this state:     [bold]{ui}[/]"
        f"\nOne question to DuckDB:           [bold]{command} sql{flag} "
        '"SELECT domain, count(*) FROM page_metadata GROUP BY ALL"[/]'
        f"\nThe same file from Python:        [bold]duckdb.connect('{shown}', read_only=True)[/]",
        highlight=False,
        soft_wrap=True,
    )


def _spelled() -> str:
    """The command as it is typed in the current folder: in a checkout after ``make setup``, or installed."""
    in_checkout = Path(".venv/bin") / _INSTALLED
    return str(in_checkout) if in_checkout.exists() else _INSTALLED


def demo_targets(domains: Sequence[str]) -> list[str]:
    """The largest domains as a target each, all others as one named set: each partition costs time."""
    largest, others = list(domains[:_DEMO_DOMAINS]), list(domains[_DEMO_DOMAINS:])
    return [*largest, f"set:small-sites = {', '.join(others)}"] if len(others) > 1 else [*largest, *others]


def _generated(crawl: str, done: int, total: int) -> None:
    progress.report(crawl, done, total)


def materialize(
    settings: Settings,
    crawls: Sequence[str],
    targets: Sequence[Target],
    afterwards: Callable[[Workspace, Sequence[str]], object] = lambda *_: None,
) -> tuple[list[str], EnvironmentFault | None]:
    """Runs the graph for ``targets`` in ``crawls`` with progress bars and a line per run.

    Gives the crawls' ids, and why partitions failed, if some did (``Incomplete`` where the source did not give all):
    the others, and what came of these, are published all the same. ``afterwards`` is called with the workspace of the
    runs, still open, and the ids.
    """
    trouble: EnvironmentFault | None = None
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.stages.workspace import open_workspace

    with (
        room_in(settings.home),
        open_workspace(settings) as workspace,
        Launcher(workspace) as launcher,
        progress_bars(),
    ):
        step("crawls", launcher.list_new_crawls, console)
        chosen = resolve_crawls(workspace, crawls)
        despite_gaps(lambda: step("index", lambda: launcher.harvest_what_is_new(chosen), console))
        try:
            step("pages", lambda: all_runs(launcher.extract(chosen, targets)), console)
        except EnvironmentFault as error:
            if not (others_are_done(error) or isinstance(error, Incomplete)):
                raise
            trouble = error
        step("cc.duckdb", launcher.publish, console)
        afterwards(workspace, chosen)
    return chosen, trouble


@contextmanager
def room_in(home: Path) -> Iterator[None]:
    """Turns errors of the disk and of Dagster's databases inside the block into an ``EnvironmentFault``."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (OSError, DBAPIError) as error:
        what = "the disk is full" if disk_is_full(error) else str(error).partition("\n")[0]
        raise EnvironmentFault(
            f"the state in {home} cannot be written: {what}",
            "Free some space, or check the folder's permissions. Then run it again: what was committed before stays.",
        ) from error


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
