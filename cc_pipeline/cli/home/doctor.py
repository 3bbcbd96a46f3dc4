"""``doctor``, ``migrate`` and ``ui``: the state of this home, and the UI on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import coloured, console, console_err
from cc_pipeline.errors import UserInputError
from cc_pipeline.interruption import BY_SIGNAL
from cc_pipeline.settings import load_settings


def doctor(
    source: options.Source = None,
    home: options.Home = None,
    reset: Annotated[
        str | None,
        typer.Option(
            "--reset-breaker",
            metavar="HOST",
            show_default=False,
            help="Close the circuit breaker of a host, so that requests are sent to it again.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Also read stored records and compare them with their rows: a sample of them."),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --verify: read all stored records.")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Fetch records again whose bytes are gone (and those that --verify finds damaged)."
        ),
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Only ask the source: which of what this project assumes of it holds.")
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", metavar="FILE", show_default=False, help="With --live: write all answers, as JSON."),
    ] = None,
) -> None:
    """Check settings, source, engine, disk, request budget, tables and stored files; say what to do about each problem.

    All processes of this machine share the request budget. When a host throttles, all of them slow down. When a host
    keeps refusing, its circuit breaker opens, and no process sends it requests for a while.

    --live sends at most 60 requests, one a second, and says of each assumption whether it held.

    [bold]Examples[/]

      cc-pipeline doctor

      cc-pipeline doctor --reset-breaker data.commoncrawl.org

      cc-pipeline doctor --verify --all

      cc-pipeline doctor --verify --repair

      cc-pipeline doctor --live
    """
    from cc_pipeline.cli.home.live import look
    from cc_pipeline.cli.home.repairing import verify_and_repair
    from cc_pipeline.engines.spark.examining import engine_findings
    from cc_pipeline.stages.reports.health import budget_findings, examine
    from cc_pipeline.transport.states import reset_breaker

    settings = load_settings(source=source, home=home)
    if reset is not None and not reset_breaker(settings.budget_path, reset):
        raise UserInputError(
            f"no request was ever sent to {reset!r} from {settings.home}; cc-pipeline doctor lists the hosts it knows"
        )
    if everything and not verify:
        raise UserInputError("--all says how much --verify reads; give both")
    if answers is not None and not live:
        raise UserInputError("--answers says where what --live was answered goes; give both")
    if live and (verify or repair):
        raise UserInputError("--live asks the source, --verify and --repair are about this home; take one of them")
    if live:
        look(settings, answers)
        return
    found = verify_and_repair(settings, verify=verify, everything=everything, repair=repair)
    findings = [*examine(settings), *found, *engine_findings(settings), *budget_findings(settings)]
    marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "bad": ("bad ", "red")}
    for finding in findings:
        console.print(coloured(marks[finding.level], " ", (f"{finding.topic:<10}", "bold"), f" {finding.text}"))
        if finding.advice:
            console.print(f"     {'':<10} what to do: {finding.advice}")
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


def migrate(
    home: options.Home = None,
    yes: Annotated[bool, typer.Option("--yes", help="Rewrite tables without asking first.")] = False,
) -> None:
    """Bring a home that an older version made to the layout of this version.

    The next run does migrations that rewrite nothing by itself. Only this command does migrations that rewrite tables.
    It first shows how many bytes it will rewrite. As many bytes must be free on the disk, because the old files stay
    until upkeep deletes them. If a migration was stopped, this command goes on where it stopped.

    [bold]Examples[/]

      cc-pipeline migrate

      cc-pipeline migrate --home ~/commoncrawl --yes
    """
    from cc_pipeline.home import LAYOUT, read_note
    from cc_pipeline.lake.evolution import pending
    from cc_pipeline.stages.tables import MIGRATIONS
    from cc_pipeline.stages.workspace import open_lake, open_workspace

    settings = load_settings(home=home)
    if read_note(settings.home) is None:
        raise UserInputError(f"{settings.home} is no home yet; the first run makes it one")
    with open_workspace(settings) as workspace:
        workspace.claim()
        lake = open_lake(settings)
        steps = pending(settings.home, MIGRATIONS)
        if not steps:
            console.print(f"{settings.home} needs no migration (layout {LAYOUT})", soft_wrap=True)
            return
        price = sum(step.price(lake) for step in steps)
        for step in steps:
            console.print(f"layout {step.layout}: {step.what}; rewrites {step.price(lake):,} bytes")
        if price and not yes and not typer.confirm(f"This rewrites {price:,} bytes and needs as many free. Go on?"):
            raise typer.Exit(1)
        workspace.migrate(MIGRATIONS, rewrite=True)
    console.print(f"{settings.home} has layout {LAYOUT} now")


def ui(
    home: options.Home = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 3000,
) -> None:
    """Open the Dagster UI (webserver and daemon) on this home's state; stop it with Ctrl-C or SIGTERM."""
    from cc_pipeline.cli.serving import serve
    from cc_pipeline.defs.instance import end_runs_of_gone_servers, prepare_instance, workspace_file

    settings = load_settings(home=home)
    prepare_instance(settings)
    # of a UI that was killed
    end_runs_of_gone_servers(settings)
    console.print(f"http://127.0.0.1:{port}  ({settings.source}, home {settings.home})", soft_wrap=True)
    named = os.environ.get("DAGSTER_HOME")
    if named and Path(named).expanduser().resolve() != settings.dagster_home:
        note = f"note: DAGSTER_HOME={named} is not used: this shows the runs of the home, in {settings.dagster_home}"
        console_err.print(note, soft_wrap=True)
    command = str(Path(sys.executable).with_name("dagster"))
    arguments = ["dev", "-w", str(workspace_file(settings)), "-h", "127.0.0.1", "-p", str(port)]
    # a process of its own: the environment is the only way to tell it which home is meant
    told = {"CC_PIPELINE_HOME": str(settings.home), "DAGSTER_HOME": str(settings.dagster_home)}
    try:
        # dagster lets a .env of the current folder win over the environment, and that one may name another home
        status = serve([command, *arguments], settings.dagster_home, {**os.environ, **told})
    finally:
        end_runs_of_gone_servers(settings)
    raise typer.Exit(status if status >= 0 else BY_SIGNAL - status)
