"""``doctor`` and ``ui``: the state of this home, and the UI on it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cc_pipeline import children
from cc_pipeline.advice import advise
from cc_pipeline.api.run_steps import run_step
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import coloured, console, console_err, progress_bars, row_format, show_indented, write_rows
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.interruption import SIGNAL_STATUS_BASE
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.lake.slice import Slice, Stage
    from cc_pipeline.maintenance.stored_files import VerificationReport
    from cc_pipeline.workspace.workspace import Workspace

#: Signals to the process group, in order, and the seconds to wait after each; the first is that of Ctrl-C.
_END_SIGNALS: Final = ((signal.SIGINT, 12.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
_POLL_SECONDS: Final = 0.05
_PR_SET_CHILD_SUBREAPER: Final = 36
_FINDING_COLUMNS: Final = ("level", "topic", "text", "advice")
#: Topics of findings on what the command itself did.
_RESULTS: Final = ("verified", "repaired")
#: Characters of a finding's topic on a terminal, where all texts begin in one column.
_TOPIC_WIDTH: Final = 14
#: Minimum characters of a finding's topic in a file or pipe; a longer topic moves its text.
_PIPED_TOPIC_WIDTH: Final = 10


def doctor(
    settings: Settings,
    reset: Annotated[
        str | None,
        typer.Option(
            "--reset-host",
            metavar="HOST",
            help="Send requests again to a host that refuses, without waiting for the end of its pause.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Also read a sample of the stored records and compare them with their rows."),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --verify: read all stored records.")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Undo incomplete commits, fetch records again whose bytes are missing (and those that --verify finds "
            "damaged), and rebuild partitions whose tables do not match.",
        ),
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Only test the source: about ten requests, with the checks of a run.")
    ] = False,
    checks: Annotated[
        bool, typer.Option("--checks", help="Only run all checks of tables and files, over the whole lake.")
    ] = False,
    details: Annotated[bool, typer.Option("--details", help="Also show what is ok.")] = False,
) -> None:
    """Check settings, source, engine, disk, request budget, tables and stored files; say what to do about each problem.

    Prints a verdict in one line, then what is not ok.

    All processes of this home share the request budget. If a host refuses, all of them wait, and one request is sent
    at the end of each pause.

    --live asks the source for the list of crawls, an index file's footer, and a page with its record, one request a
    second.

    --checks runs the checks of the job check_everything without Dagster, and so not those of failed partitions. It
    takes long on a large lake.

    [bold]Examples[/]

      cc-pipeline doctor

      cc-pipeline doctor --reset-host data.commoncrawl.org

      cc-pipeline doctor --verify --all

      cc-pipeline doctor --verify --repair

      cc-pipeline doctor --live

      cc-pipeline doctor --checks
    """
    from cc_pipeline.checks.doctor import examine
    from cc_pipeline.defs.engines import find_engine
    from cc_pipeline.transport.host_file import reset_host

    if reset is not None and not reset_host(settings.budget_path, reset):
        raise UserInputError(
            f"nothing was reset: no command of {settings.home} has sent a request to the server {reset!r}; "
            "cc-pipeline doctor lists the servers"
        )
    if everything and not verify:
        raise UserInputError("--all works only with --verify; add --verify")
    if live and (verify or repair):
        raise UserInputError("--live tests the source, --verify and --repair check this home; use one of them")
    if checks and (live or verify or repair):
        raise UserInputError("--checks cannot be combined with --live, --verify or --repair")
    if checks:
        from cc_pipeline.checks.evaluate import evaluate_checks
        from cc_pipeline.home import read_note
        from cc_pipeline.workspace.workspace import open_workspace

        if read_note(settings.home) is None:
            # an empty home would pass all checks, and checking would make this folder a home
            raise UserInputError(
                f"{settings.home} is no home yet, so there is nothing to check; name another folder with --home"
            )
        with open_workspace(settings) as workspace, progress_bars():
            findings = list(evaluate_checks(workspace))
        _print_findings(findings, details=details)
        return
    if live:
        from cc_pipeline.checks.source_probe import probe_source

        _print_findings(probe_source(settings), details=True)
        return
    engine = find_engine(settings.engine)
    if repair:
        # it fetches and parses
        engine.check_ready(settings)
    record_findings = verify_and_repair(settings, verify=verify, everything=everything, repair=repair)
    _print_findings([*examine(settings), *record_findings, *engine.examine(settings)], details=details)


def _print_findings(findings: Iterable[Finding], *, details: bool) -> None:
    """Prints a verdict, then the findings that are not ok, with ``details`` all; for programs a row for each. Ends the
    command with status 1 if one is bad."""
    marks = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "bad": ("bad ", "red")}
    topic_width = _TOPIC_WIDTH if console.is_terminal else _PIPED_TOPIC_WIDTH
    all_findings = list(findings)
    is_bad = any(finding.level == "bad" for finding in all_findings)
    if row_format() != "table":
        rows = [(finding.level, finding.topic, finding.text, finding.advice) for finding in all_findings]
        write_rows("", _FINDING_COLUMNS, rows)
        all_findings = []
    else:
        console.print(_describe_verdict(all_findings, details=details), soft_wrap=True, style="bold")
    for finding in all_findings:
        if finding.level == "ok" and finding.topic not in _RESULTS and not details:
            continue
        show_indented(coloured(marks[finding.level], " ", (f"{finding.topic:<{topic_width}} ", "bold")), finding.text)
        if finding.advice:
            show_indented(coloured(f"     {'':<{topic_width}} "), f"what to do: {finding.advice}")
    if is_bad:
        raise typer.Exit(1)


def _describe_verdict(findings: Sequence[Finding], *, details: bool) -> str:
    counts = Counter(finding.level for finding in findings)
    problems, notes = format_count(counts["bad"], "problem"), format_count(counts["note"], "note")
    verdict = f"{problems}, {notes}" if counts["bad"] else f"no problem, {notes}" if counts["note"] else "all is well"
    rest = "" if details or not counts["ok"] else "; --details shows them"
    return f"{verdict}: {counts['ok']} of {format_count(len(findings), 'finding', 'are')} ok{rest}"


def ui(
    settings: Settings,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 3000,
    init: Annotated[
        bool, typer.Option("--init", help="Start nothing: write the files here that plain `dagster dev` reads.")
    ] = False,
) -> None:
    """Open the Dagster UI (webserver and daemon) on this home's state; stop it with Ctrl-C or SIGTERM.

    --init writes a .env in the current folder and a dagster.yaml in the home, so that Dagster's own programs, `dagster
    dev` and `dg dev`, open the same state. Existing files are kept.
    """
    from cc_pipeline.cli.ui_guard import serve_guarded
    from cc_pipeline.defs.instance import DAEMON_VARIABLES, prepare_files, prepare_instance, workspace_file

    if init:
        for path in prepare_files(settings, Path.cwd()):
            console.print(f"wrote {path}", soft_wrap=True)
        return
    prepare_instance(settings)
    console.print(f"http://127.0.0.1:{port}  ({settings.source}, home {settings.home})", soft_wrap=True)
    dagster_home = os.environ.get("DAGSTER_HOME")
    if dagster_home and Path(dagster_home).expanduser().resolve() != settings.dagster_home:
        note = f"note: DAGSTER_HOME={dagster_home} is ignored: the UI shows the runs of {settings.dagster_home}"
        console_err.print(note, soft_wrap=True)
    # a process of its own: the environment is the only way to tell it which home is meant
    home_variables = {"CC_PIPELINE_HOME": str(settings.home), "DAGSTER_HOME": str(settings.dagster_home)}
    # dagster prefers a .env of the current folder to the environment, and it may name another home
    environment = children.whole_environment({**DAEMON_VARIABLES, **os.environ, **home_variables})
    with serve_guarded(port, settings.ui_hosts) as inner:
        arguments = ("-w", workspace_file(settings), "-h", inner.host, "-p", inner.port)
        program = children.module_command("dagster", "dev", *arguments)
        status = serve(program, settings.dagster_home, environment)
    raise typer.Exit(status if status >= 0 else SIGNAL_STATUS_BASE - status)


def verify_and_repair(settings: Settings, *, verify: bool, everything: bool, repair: bool) -> list[Finding]:
    """Verifies a sample of the stored records (or ``everything``), fetches lost and damaged ones again, parses and
    publishes them. Returns the findings. Raises ``EnvironmentFault`` if the source or the lake fails; ``Incomplete`` at
    the end, if the source does not return everything."""
    from cc_pipeline.checks.doctor import verified_finding
    from cc_pipeline.maintenance import stored_files
    from cc_pipeline.workspace.workspace import open_workspace

    findings: list[Finding] = []
    if not verify and not repair:
        return findings
    with open_workspace(settings) as workspace, progress_bars():
        mended, is_readable = _mend_tables(workspace) if repair else ([], True)
        if not is_readable:
            return mended
        verified = stored_files.VerificationReport(0, 0)
        if verify:
            sample = None if everything else stored_files.SAMPLE
            verified = stored_files.verify(workspace.lake, workspace.storage, sample)
            findings.append(verified_finding(verified))
        return _repair_rows(workspace, verified, mended) if repair else findings


def _repair_rows(workspace: Workspace, verified: VerificationReport, mended: list[Finding]) -> list[Finding]:
    """Makes slices again that lost rows or records. Returns the findings, those of ``mended`` tables first. Raises as
    :func:`verify_and_repair`."""
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.lake.slice import BUILT, READ_FILES
    from cc_pipeline.maintenance import stored_files

    remade = _invalidate(workspace)
    built, read_whole = remade.pop(BUILT, []), remade.pop(READ_FILES, [])
    slices = {slice_ for stage_slices in remade.values() for slice_ in stage_slices}
    slugs_to_refetch: dict[str, set[str]] = defaultdict(set)
    lost = stored_files.find_lost_records(workspace)
    for losses in lost:
        slugs_to_refetch[losses.crawl] |= losses.targets.keys()
    for crawl, places in verified.damaged.items():
        slugs_to_refetch[crawl] |= {*stored_files.find_holders(workspace.lake, crawl, places)}
    for slice_ in slices:
        if slice_.target:
            slugs_to_refetch[slice_.crawl].add(slice_.partition.target)
    if crawls := sorted({slice_.crawl for slice_ in slices if not slice_.target}):
        _launch(workspace, f"index of {', '.join(crawls)}", lambda runner: runner.harvest(crawls))
    trouble = _refetch_lost(workspace, verified, slugs_to_refetch)
    try:
        if read_whole:
            slugs = [slice_.target for slice_ in read_whole]
            _launch(workspace, "files", lambda runner: runner.read_source_files(slugs))
    finally:
        if slugs_to_refetch or mended or slices or read_whole:
            _launch(workspace, "cc.duckdb", lambda runner: runner.publish())
    if trouble is not None:
        raise trouble
    requested = sum(losses.records for losses in lost) + verified.records
    findings = [*mended, *_describe_repairs(requested, [*slices, *read_whole], built)]
    return findings or [Finding("ok", "repaired", "nothing to repair")]


def _describe_repairs(requested: int, rebuilt: Sequence[Slice], built: Sequence[Slice]) -> Iterator[Finding]:
    """Findings on records that were ``requested`` again, slices that were ``rebuilt``, and archive files that are to be
    indexed again."""
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.checks.scope import abbreviate_keys, key_of

    if requested:
        records = format_count(requested, "record", "were")
        text = f"{records} requested again, parsed and published; the view ledger lists records that are still missing"
        yield Finding("ok", "repaired", text)
    if rebuilt:
        text = f"the tables of {abbreviate_keys({*map(key_of, rebuilt)})} did not match; they were rebuilt"
        yield Finding("ok", "repaired", text)
    for crawl in sorted({slice_.crawl for slice_ in built}):
        text = f"the unreadable parts of archive files of {crawl} were lost, so these files have to be read again"
        yield Finding("note", "repaired", text, advise("index build", crawl=crawl, sentence="Index them: {}"))


def _invalidate(workspace: Workspace) -> dict[Stage, list[Slice]]:
    """Marks slices whose tables do not match to be made again by stages, which it returns: runs cannot see that. Stored
    records are adopted again, and archive files indexed again."""
    from cc_pipeline.checks.conservation import count_balance, find_slices_to_remake
    from cc_pipeline.lake.slice import BUILT, FETCH
    from cc_pipeline.lake.slices import invalidate_slices, read_slice_rows
    from cc_pipeline.records.segments import adopt_again

    remade = find_slices_to_remake(count_balance(workspace))
    # a build reads only archive files without an index file
    for row in read_slice_rows(workspace.lake, remade.get(BUILT, ()), (BUILT,)).values():
        if "key" in row.input:
            workspace.place.delete(row.input["key"])
    for stage, slices in remade.items():
        invalidate_slices(workspace.lake, stage, slices)
    for crawl in {slice_.crawl for slice_ in remade.get(FETCH, ())}:
        adopt_again(workspace.storage, crawl)
    return remade


def _mend_tables(workspace: Workspace) -> tuple[list[Finding], bool]:
    """Takes damaged files out of tables. Returns the findings, and whether all tables can be read afterwards."""
    from cc_pipeline.checks.finding import Finding
    from cc_pipeline.lake.damaged_files import find_damaged_files
    from cc_pipeline.maintenance.repair import KEPT_FOLDER, repair_tables
    from cc_pipeline.workspace.claim import is_home_of

    if not is_home_of(workspace.settings):
        return [], True
    lake = workspace.lake
    findings = []
    for damaged in repair_tables(lake):
        advice = "Run your targets again, as you wrote them the first time." if damaged.table == "targets" else ""
        text = f"{damaged.text}; it was moved to the folder {KEPT_FOLDER} of the table"
        findings.append(Finding("ok", "repaired", text, advice))
    return findings, not any(find_damaged_files(lake, table) for table in lake.specs)


def _launch(workspace: Workspace, title: str, start: Callable[[StageRunner], object]) -> None:
    from cc_pipeline.defs.stage_runner import StageRunner

    with StageRunner(workspace) as runner:
        run_step(title, partial(start, runner))


def _refetch_lost(
    workspace: Workspace, verified: VerificationReport, slugs_to_refetch: dict[str, set[str]]
) -> Incomplete | None:
    """Fetches targets again in the subsets that they have, and parses them. Returns the first error of the source."""
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.extraction.fetch import fetch_captures
    from cc_pipeline.extraction.slice_selection import find_part_slices
    from cc_pipeline.lake.slice import slices_of
    from cc_pipeline.workspace.workspace import open_workspace

    trouble: Incomplete | None = None
    for crawl, slugs in sorted(slugs_to_refetch.items()):
        subsets: dict[str, set[str]] = defaultdict(set)
        for slice_ in find_part_slices(workspace, slices_of(crawl, sorted(slugs))):
            subsets[slice_.partition.target].add(slice_.subset)
        targets = workspace.targets(sorted(slugs))
        if places := verified.damaged.get(crawl):
            try:
                # runs cannot see which bytes are wrong; the runs below parse what is fetched here
                fetch_captures(workspace, crawl, [*targets], distrusted=[*places])
            except Incomplete as error:
                trouble = trouble or error
        # in the subsets that they have, whatever the settings are
        for subset_group in sorted({tuple(sorted(slug_subsets)) for slug_subsets in subsets.values()}):
            group_targets = [target for slug, target in targets.items() if tuple(sorted(subsets[slug])) == subset_group]
            with (
                open_workspace(replace(workspace.settings, subsets=subset_group)) as group_workspace,
                StageRunner(group_workspace) as runner,
            ):
                try:
                    run_step(
                        f"lost records of {crawl}",
                        partial(runner.extract, [crawl], group_targets),
                    )
                except Incomplete as error:
                    # a failure in one crawl must not stop the others
                    trouble = trouble or error
    return trouble


def serve(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Runs ``command`` in ``folder`` until it ends, and returns its exit status.

    All processes of the command have ended when this function returns or raises, also for ``Interrupted``.
    """
    _adopt_orphans()
    process = children.start(command, environment, cwd=folder, start_new_session=True)
    try:
        return process.wait()
    finally:
        _end_group(process)


def _end_group(process: children.Process) -> None:
    for number, timeout in _END_SIGNALS:
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):  # the latter for a group of zombies, on some systems
            break
        if _wait_for_group_end(process, timeout):
            break
    process.poll()


def _wait_for_group_end(process: children.Process, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            _reap(process.pid)
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _reap(group: int) -> None:
    # orphans of the group are children of this process
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants. Works on Linux only; elsewhere init is their parent."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


COMMANDS = {
    "doctor": Command(doctor, EVERYDAY, 90, options.REMOTE, _FINDING_COLUMNS),
    "ui": Command(ui, EVERYDAY, 100, options.LOCAL),
}
