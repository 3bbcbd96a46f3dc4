"""``run`` and ``demo``: the graph, materialized through Dagster in this process, and what it found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline import progress
from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, progress_bars, show_table
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_is_full
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.stages import watch_list

if TYPE_CHECKING:
    import duckdb

#: Beyond this many (crawl, target) pairs only those without captures are named.
_SHOWN_PAIRS = 40
_NAMED = 5


def what_was_found(settings: Settings, crawls: Sequence[str], targets: Sequence[Target]) -> None:
    """Prints it for ``crawls`` × ``targets``. A target without captures and an index file that could not be read are
    named, since both look like success otherwise."""
    import duckdb

    with duckdb.connect(str(settings.published_path), read_only=True) as connection:
        rows = connection.execute(
            "SELECT table_name, lake_rows, coalesce(published_rows, lake_rows) FROM publication WHERE lake_rows > 0"
        ).fetchall()
        outcomes = connection.execute(
            "SELECT crawl, count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome = 'quarantined'), "
            "count(*) FILTER (outcome = 'missing') FROM ledger GROUP BY crawl ORDER BY crawl DESC"
        ).fetchall()
        counts = _captures(connection)
        gaps = _gaps(connection, crawls)
    show_table("a table per stage", ["table", "rows in the lake", "published"], rows)
    show_table("the ledger", ["crawl", "planned", "fetched", "quarantined", "missing"], outcomes)
    pairs = [(crawl, target, counts.get((crawl, target.slug), 0)) for crawl in crawls for target in targets]
    if len(pairs) <= _SHOWN_PAIRS:
        asked = [(crawl, target.definition, count) for crawl, target, count in pairs]
        show_table("what was asked for", ["crawl", "target", "captures"], asked)
    empty = [f"{target.definition} in {crawl}" for crawl, target, count in pairs if not count]
    if empty:
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        subsets = ", ".join(settings.subsets)
        _note(f"no captures (subset {subsets}) of {'; '.join(empty[:_NAMED])}{more}")
    for gap in gaps:
        _note(gap)


def _captures(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    rows = connection.execute("SELECT crawl, target, count(*) FROM capture_targets GROUP BY ALL").fetchall()
    return {(crawl, target): count for crawl, target, count in rows}


def _gaps(connection: duckdb.DuckDBPyConnection, crawls: Sequence[str]) -> list[str]:
    rows = connection.execute(
        "SELECT crawl, subset, failed + missing, expected FROM coverage "
        "WHERE failed + missing > 0 AND list_contains(?, crawl) ORDER BY ALL",
        [list(crawls)],
    ).fetchall()
    notes = []
    for crawl, subset, lost, expected in rows:
        failed = connection.execute(
            "SELECT path, reason FROM index_files WHERE crawl = ? AND subset = ? AND outcome = 'failed' "
            f"ORDER BY path LIMIT {_NAMED}",
            [crawl, subset],
        ).fetchall()
        named = "".join(f"\n      {path}: {reason}" for path, reason in failed)
        notes.append(
            f"{lost:,} of {expected:,} index files of {crawl} {subset} could not be read, so captures they name are "
            f"not found; run it again to try them once more{named}"
        )
    return notes


def _note(text: str) -> None:
    console.print(f"note: {text}", highlight=False, markup=False, soft_wrap=True, style="yellow")


_DEMO_DOMAINS = 5


def run(
    crawl: options.Crawls,
    domain: options.Targets,
    source: options.Source = None,
    home: options.Home = None,
    subset: options.Subsets = None,
    via: options.Via = None,
) -> None:
    """Materialize domains of crawls, from the index to parsed pages, and publish cc.duckdb.

    [bold]Examples[/]

      cc-pipeline run --crawl CC-MAIN-2024-22 --domain example.com

      cc-pipeline run -c newest -d example.com -d host:www.example.org --subset warc --subset robotstxt

      cc-pipeline run -c CC-MAIN-2012 -d prefix:http://www.example.com/blog/
    """
    settings = load_settings(source=source, home=home, subsets=tuple(subset) if subset else None, via=via)
    targets = [parse_target(text) for text in domain]
    chosen = materialize(settings, crawl, targets)
    what_was_found(settings, chosen, targets)


def demo(
    home: options.Home = None,
    pages: Annotated[int | None, typer.Option(help="Size of the mini crawl, in pages.", show_default=False)] = None,
) -> None:
    """Generate a mini crawl, materialize the whole graph through Dagster, and print what it found.

    Nothing leaves this machine: the source is a small generated bucket in the home.
    """
    from cc_pipeline.minicrawl.generate import ensure
    from cc_pipeline.minicrawl.spec import DEMO, spec_for

    where = Path(home or os.environ.get("CC_PIPELINE_HOME") or "data").expanduser().resolve()
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
    materialize(settings, crawls, targets)
    console.print("[bold]3 of 3[/] what it found")
    what_was_found(settings, crawls, targets)
    shown = _shown(settings.published_path)
    console.print(
        "\nThe Dagster UI on this state:     [bold]make dev[/]"
        "\nOne question to DuckDB:           [bold].venv/bin/cc-pipeline sql "
        '"SELECT domain, count(*) FROM page_metadata GROUP BY ALL"[/]'
        f"\nThe same file from Python:        [bold]duckdb.connect('{shown}', read_only=True)[/]",
        highlight=False,
    )


def demo_targets(domains: Sequence[str]) -> list[str]:
    """The largest domains each for itself, the others as one named set: a partition each costs time, a set does not."""
    largest, others = list(domains[:_DEMO_DOMAINS]), list(domains[_DEMO_DOMAINS:])
    return [*largest, f"set:small-sites = {', '.join(others)}"] if len(others) > 1 else [*largest, *others]


def _generated(crawl: str, done: int, total: int) -> None:
    progress.report(crawl, done, total)


def materialize(settings: Settings, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """Runs the graph for ``targets`` in ``crawls`` with progress bars and a line per run; gives the crawls' ids."""
    from cc_pipeline.defs.launch import Launcher

    # a run reads its settings again from the environment, as it does in the UI's processes
    with environment(settings), room_in(settings.home), Launcher(settings) as launcher, progress_bars():
        step("crawls", launcher.list_crawls)
        chosen = resolve_crawls(settings, crawls)
        step("index", lambda: launcher.harvest(chosen))
        step("pages", lambda: list(launcher.extract(chosen, targets)))
        step("cc.duckdb", launcher.publish)
    return chosen


def resolve_crawls(settings: Settings, crawls: Iterable[str]) -> list[str]:
    """Crawl ids, ``newest`` replaced by the newest that is published.

    Raises ``UserInputError`` for a crawl the source does not have or has only announced.
    """
    from cc_pipeline.stages.crawls import find_crawl, known_crawls
    from cc_pipeline.stages.harvest import is_published
    from cc_pipeline.stages.workspace import Workspace

    workspace = Workspace(settings)
    chosen: list[str] = []
    for crawl in crawls:
        if crawl == "newest":
            listed, _ = known_crawls(workspace)
            found = next((one.id for one in listed if is_published(workspace, one.id)), None)
            if found is None:
                raise UserInputError(f"{settings.source} lists no crawl that is published; see: cc-pipeline crawls")
        else:
            found = find_crawl(workspace, crawl).id
            if not is_published(workspace, found):
                raise UserInputError(
                    f"{found} is announced, but its path list is not at {settings.source} yet. Run it once it is "
                    "published, or take the newest that is: --crawl newest"
                )
        chosen.append(found)
    return list(dict.fromkeys(chosen))


@contextmanager
def room_in(home: Path) -> Iterator[None]:
    """Turns what the disk under Dagster's own files says inside the block into an ``EnvironmentFault``."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (OSError, DBAPIError) as error:
        what = "the disk is full" if disk_is_full(error) else str(error).partition("\n")[0]
        raise EnvironmentFault(
            f"the state in {home} cannot be written: {what}",
            "Free some space, or check the folder's permissions; then run it again. What was committed before stays.",
        ) from error


def step(name: str, work: object) -> None:
    """Does one part of a command, says how long it took, and turns a failed run into what to do about it."""
    from cc_pipeline.defs.launch import RunFailed

    assert callable(work)
    started = time.monotonic()
    try:
        work()
    except RunFailed as failed:
        raise EnvironmentFault(
            failed.reason, f"The run is {failed.run_id}; see it in the UI (make dev). What was committed before stays."
        ) from failed
    console.print(f"      {name:<10} {time.monotonic() - started:6.1f} s", highlight=False)


@contextmanager
def environment(settings: Settings) -> Iterator[None]:
    """Flags as variables of the environment while the block runs: runs read their settings from there."""
    values = {"CC_PIPELINE_SUBSETS": ",".join(settings.subsets), "CC_PIPELINE_VIA": settings.via}
    if settings.concurrency is not None:
        values["CC_PIPELINE_CONCURRENCY"] = str(settings.concurrency)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
