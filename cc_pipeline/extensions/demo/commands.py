"""The command ``demo``: a small invented crawl, and the whole Dagster graph on it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cc_pipeline import progress
from cc_pipeline.api.target_runs import run_part
from cc_pipeline.automation import watch_list
from cc_pipeline.cli.output import coloured, console, progress_bars
from cc_pipeline.cli.run_report import print_home_totals, warn_if_not_compiled
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.progress import format_count
from cc_pipeline.settings import load_settings

_INSTALLED: Final = "cc-pipeline"
#: Number of domains that become a target of their own.
_DEMO_DOMAINS: Final = 5


def demo(
    overrides: Mapping[str, Any],
    pages: Annotated[int | None, typer.Option(help="Size of the mini crawl, in pages.")] = None,
) -> None:
    """Generate a mini crawl, materialize the whole graph through Dagster, and print what it found.

    Nothing leaves this machine: the source is a small generated bucket in a home of its own, which without --home is
    the folder demo of the usual one. No other home is asked or changed.
    """
    # slow imports that most commands do not need
    from cc_pipeline.testing.mini_crawl.generate import ensure
    from cc_pipeline.testing.mini_crawl.spec import DEMO, spec_for

    where = load_settings(**overrides).home if overrides["home"] else load_settings().home / "demo"
    where.mkdir(parents=True, exist_ok=True)
    console.print(coloured(("1 of 3", "bold"), " a mini crawl, generated here"))
    root = where / "minicrawl"
    with progress_bars():
        mini_crawl = ensure(root, DEMO if pages is None else spec_for(pages), progress.report)
    crawls = [crawl for crawl in mini_crawl.crawls if mini_crawl.captures_of(crawl)]
    console.print(
        f"      {format_count(len(mini_crawl.captures), 'capture')} of {len(mini_crawl.domains())} domains in "
        f"{', '.join(crawls)}"
    )
    settings = load_settings(source=str(root), home=str(where))
    warn_if_not_compiled(settings)
    targets = [parse_target(text) for text in _targets(mini_crawl.domains())]
    watch_list.add(settings.watch_list_path, targets)
    console.print(coloured(("2 of 3", "bold"), " the whole graph, materialized through Dagster"))
    _, fault = run_part(settings, crawls, targets, {}, None, short_ways=False)
    if fault is not None:
        raise fault
    console.print(coloured(("3 of 3", "bold"), " what it found"))
    print_home_totals(settings)
    published_file = _short_path(settings.published_path)
    command, flag = _typed_command(), f"--home {shlex.quote(_short_path(where))}"
    question = f'{command} sql {flag} "SELECT domain, count(*) FROM page_metadata GROUP BY ALL"'
    console.print()
    for label, command_line in (
        ("The Dagster UI on this home:", f"{command} ui {flag}"),
        ("One question to DuckDB:", question),
        ("The same file from Python:", f"duckdb.connect('{published_file}', read_only=True)"),
        ("This home for a whole terminal:", f"export CC_PIPELINE_HOME={shlex.quote(_short_path(where))}"),
    ):
        console.print(coloured(f"{label:<34}", (command_line, "bold")), soft_wrap=True)


def _typed_command() -> str:
    """The command as a user types it in the current folder: in a checkout after ``make setup``, or installed."""
    in_checkout = Path(".venv/bin") / _INSTALLED
    return str(in_checkout) if in_checkout.exists() else _INSTALLED


def _targets(domains: Sequence[str]) -> list[str]:
    """The largest domains as a target each, and all others as one set, because each partition takes time."""
    largest_domains, small_domains = list(domains[:_DEMO_DOMAINS]), list(domains[_DEMO_DOMAINS:])
    return (
        [*largest_domains, f"set:small-sites = {', '.join(small_domains)}"]
        if len(small_domains) > 1
        else [*largest_domains, *small_domains]
    )


def _short_path(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
