"""The findings of ``cc-pipeline doctor``: twelve topics, each with its state and the advice."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from cc_pipeline import COMPILED, describe_missing_modules
from cc_pipeline.advice import advise
from cc_pipeline.checks.asset_checks import ledger_balances, nothing_missing, stored_files
from cc_pipeline.checks.evaluate import evaluate_check
from cc_pipeline.checks.finding import Finding, describe_fault
from cc_pipeline.checks.outputs import publication_verdict
from cc_pipeline.duck import connect
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.harvesting.crawls import known_crawls, probe, unknown_crawl_error
from cc_pipeline.home import format_setting, read_note
from cc_pipeline.lake.damaged_files import find_damaged_files
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.published_file import enable_s3_reads, get_s3_location
from cc_pipeline.maintenance.leftovers import count_purged_rows
from cc_pipeline.maintenance.purge_plan import find_unknown_tables
from cc_pipeline.maintenance.stored_files import VerificationReport
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.settings import PREFIX, Settings, choices_of, environment_value
from cc_pipeline.transport.host_file import HostReport, read_hosts
from cc_pipeline.transport.host_state import CAUTION
from cc_pipeline.workspace.claim import is_home_of, remembered_source
from cc_pipeline.workspace.crawl_list import ago
from cc_pipeline.workspace.workspace import Workspace, open_lake, open_workspace

if TYPE_CHECKING:
    from cc_pipeline.checks.check import Verdict

#: Free bytes below which the disk is reported: records and tables need gigabytes.
_LOW_DISK = 5_000_000_000
#: Files of a table above which maintenance merges them (``maintain.py``).
_MANY_FILES = 2_000
_MAX_NAMES = 5


def examine(settings: Settings) -> list[Finding]:
    """Returns all findings. Raises nothing, since a person runs it on a broken home."""
    findings = [
        *_check_program(),
        *_check_home(settings),
        *_check_contact(settings),
        *_check_disk(settings.home),
    ]
    with open_workspace(settings) as workspace:
        findings += _check_source(workspace)
        if is_home_of(settings):
            lake = open_lake(settings)
            findings += [*_check_tables(lake), *_check_rows(workspace), *_check_purges(lake)]
    return [*findings, *budget_findings(settings)]


def _check_program() -> Iterator[Finding]:
    yield Finding("ok", "program", f"Python {sys.version.split()[0]}, {sys.executable}")
    warning = describe_missing_modules()
    if warning is None:
        yield Finding("ok", "program", f"all {len(COMPILED)} compiled parts are installed")
    else:
        description, _, advice = warning.removeprefix("compiled parts: ").partition("; ")
        advice = (
            f"{advice[:1].upper()}{advice[1:]}: make setup, or pip install --force-reinstall --no-deps cc-pipeline."
        )
        yield Finding("note", "program", description, advice)


def _check_home(settings: Settings) -> Iterator[Finding]:
    home_source = remembered_source(settings.home)
    if home_source is None:
        text = f"{settings.home} is no home yet; the first run makes the folder a home of {settings.source}"
        yield Finding("note", "home", text)
    elif not is_home_of(settings):
        advice = f"Name another folder ({PREFIX}HOME, --home), or leave out the source ({PREFIX}SOURCE, --source)."
        text = f"{settings.home} holds tables of {home_source}, and the settings name {settings.source}"
        yield Finding("bad", "home", text, advice)
    else:
        yield Finding("ok", "home", f"{settings.home}, of {home_source}")
        yield from _check_choices(settings)


def _check_choices(settings: Settings) -> Iterator[Finding]:
    """Yields the settings that the home's rows were made with, and variables that differ from them."""
    note = read_note(settings.home)
    for name, value in (choices_of(note) if note is not None else {}).items():
        variable, home_value = environment_value(name), format_setting(value)
        if variable is not None and variable.lower() != home_value:
            text = f"this home uses {name}={home_value}, so {PREFIX}{name.upper()}={variable} is ignored"
            yield Finding(
                "note", "home", text, advise("settings", f"{name}={variable}", sentence="To change the home: {}")
            )
        else:
            yield Finding("ok", "home", f"this home uses {name}={home_value}")


def _check_contact(settings: Settings) -> Iterator[Finding]:
    if settings.is_public and not settings.contact:
        text = "no contact is set, so requests to Common Crawl do not say whose they are"
        advice = f"Set {PREFIX}CONTACT to your mail address or web page, so that Common Crawl can reach you."
        yield Finding("note", "contact", text, advice)
    elif settings.contact:
        yield Finding("ok", "contact", settings.user_agent)


def _check_disk(home: Path) -> Iterator[Finding]:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < _LOW_DISK:
        text = f"only {free / 1e9:.1f} GB are free on the disk of the home, so a run may fail"
        yield Finding("bad", "disk", text, "Free some space: records and tables need gigabytes.")
    else:
        yield Finding("ok", "disk", f"{free / 1e9:.0f} GB are free on the disk of the home")


def _check_source(workspace: Workspace) -> Iterator[Finding]:
    settings = workspace.settings
    try:
        crawl_list = known_crawls(workspace)
    except EnvironmentFault as fault:
        yield describe_fault("source", fault)
        return
    except CcPipelineError as error:
        yield Finding("bad", "source", str(error), f"Check {PREFIX}SOURCE and {PREFIX}COLLINFO, and the network.")
        return
    crawls = crawl_list.crawls
    text = (
        f"{settings.source}: {format_count(len(crawls), 'crawl')}, newest {crawls[0].id if crawls else '-'}, "
        f"listed {crawl_list.age}"
    )
    if crawl_list.fault is None:
        yield Finding("ok", "source", text)
        return
    # with a remembered list everything works if the data host answers
    yield Finding("note", "source", f"{crawl_list.note}. {text}", crawl_list.fault.advice)
    newest = next((crawl for crawl in crawls if crawl.era == "columnar"), None)
    if newest is not None:
        yield _check_data(workspace, newest.id)


def _check_data(workspace: Workspace, crawl: str) -> Finding:
    """Tells whether the source itself answers while the host with the crawl list does not."""
    answer = probe(workspace, crawl)
    if answer.state == "unknown":
        return describe_fault("source", unknown_crawl_error(workspace, answer))
    age_text = f" (request sent {ago(answer.answered_at)})" if answer.remembered else ""
    availability = "exists" if answer.state == "there" else "does not exist yet"
    return Finding("ok", "source", f"{workspace.settings.source} answers: {crawl} {availability}{age_text}")


def _check_tables(lake: Lake) -> Iterator[Finding]:
    rows, files, tables = 0, 0, 0
    for spec in lake.specs.values():
        try:
            if damaged_files := find_damaged_files(lake, spec.name):
                yield from (Finding("bad", "tables", damaged.text, damaged.advice) for damaged in damaged_files)
                continue
            pinned = lake.pin(spec.name)
        except CcPipelineError as error:
            yield describe_fault("tables", error)
            continue
        if len(pinned.files) > _MANY_FILES:
            text = f"{spec.name} has {len(pinned.files):,} files; so many small files make queries slow"
            yield Finding("note", "tables", text, advise("automation clean", sentence="Merge the small files: {}"))
        rows, files, tables = rows + pinned.rows, files + len(pinned.files), tables + (pinned.version >= 0)
    yield Finding(
        "ok", "tables", f"{format_count(tables, 'table')} with {rows:,} rows in {format_count(files, 'file')}"
    )
    yield from _check_unknown_tables(lake)


def _check_unknown_tables(lake: Lake) -> Iterator[Finding]:
    try:
        unknown_tables = find_unknown_tables(lake)
    except CcPipelineError as error:
        yield describe_fault("tables", error)
        return
    for name, (reason, advice) in unknown_tables.items():
        text = f"cc.duckdb does not show the table {name}, and no target can be purged while it is there: {reason}"
        yield Finding("bad", "tables", text, advice)


def _check_rows(workspace: Workspace) -> Iterator[Finding]:
    """Evaluates the checks of the lake's rows and files, and of ``cc.duckdb``."""
    checks: Mapping[str, Verdict | None] = {
        "records": nothing_missing.verdict,
        "balance": ledger_balances.verdict,
        "stored": stored_files.verdict,
        "cc.duckdb": lambda *_: publication_verdict(workspace),
    }
    for topic, verdict in checks.items():
        if verdict is not None:
            yield evaluate_check(workspace, topic, verdict)
    location = get_s3_location(workspace.settings)
    if location is None or workspace.settings.publish != "views":
        return
    try:
        with connect() as connection:
            enable_s3_reads(connection, location)
        yield Finding("ok", "cc.duckdb", f"DuckDB {duckdb.__version__} has httpfs for views over {location.root}")
    except EnvironmentFault as fault:
        yield describe_fault("cc.duckdb", fault)


def _check_purges(lake: Lake) -> Iterator[Finding]:
    """Yields the finding on rows of purged targets that are stored until maintenance drops them, if there are any."""
    try:
        counts = count_purged_rows(lake)
    except CcPipelineError:
        return  # a finding on tables names the cause
    if counts:
        tables = ", ".join(f"{count:,} in {table}" for table, count in sorted(counts.items()))
        text = f"rows of purged targets are hidden, and not deleted yet: {tables}"
        yield Finding("note", "purges", text, advise("automation clean", sentence="Delete them: {}"))


def verified_finding(verification: VerificationReport) -> Finding:
    """Returns the finding on a verification of stored records."""
    share = "all of them" if verification.is_complete else "a sample; --all reads all records"
    text = f"{verification.read:,} of {verification.stored:,} records were read from their files ({share})"
    if not verification.records:
        as_fetched = f"{text}: lengths, gzip checksums, URLs and payload digests are the same as when they were fetched"
        if not verification.mismatched:
            return Finding("ok", "verified", f"{as_fetched}, and no digest contradicts the index")
        mismatch_text = (
            f"{format_count(verification.mismatched, 'record', 'have')} another payload digest than the index lists"
        )
        return Finding("note", "verified", f"{as_fetched}, but {mismatch_text}: see digest_check in the view ledger")
    damaged_records = [
        f"{file} at {offset}: {reason}"
        for places in verification.damaged.values()
        for (file, offset), reason in places.items()
    ]
    return Finding(
        "bad",
        "verified",
        f"{text}; {format_count(verification.records, 'record', 'are')} damaged: "
        f"{list_first(damaged_records, _MAX_NAMES, '; ')}",
        advise("doctor", verify=True, all=True, repair=True, sentence="Fetch the damaged records again: {}."),
    )


def budget_findings(settings: Settings) -> Iterator[Finding]:
    """Yields a finding per host that this home has sent requests to, or one that says that none was sent yet."""
    try:
        hosts = read_hosts(settings.budget_path)
    except EnvironmentFault as fault:
        yield describe_fault("budget", fault)
        return
    if not hosts:
        rate = "the source's own" if settings.rate is None else f"{settings.rate:g} requests/s"
        concurrency_text = "" if settings.concurrency is None else f", {settings.concurrency} at the same time"
        text = f"this home has sent no request to a web host or S3 yet; limits: {rate}{concurrency_text}"
        yield Finding("ok", "budget", text)
    yield from map(_describe_host, hosts)


def _describe_host(host: HostReport) -> Finding:
    allowed = "unlimited" if host.full_rate is None else f"{host.full_rate:g} requests/s"
    text = f"{host.host}: {allowed}, at most {host.concurrency} at the same time"
    refused = ""
    if host.address_refused_at is not None and datetime.now(UTC) - host.address_refused_at < timedelta(seconds=CAUTION):
        text += f"; it refused this address at {_format_time(host.address_refused_at)}"
    if host.last_refusal is not None and host.last_refusal_at is not None:
        refused = f"; last refusal {host.last_refusal} at {_format_time(host.last_refusal_at)}"
    if host.refuses_until is not None:
        return Finding(
            "bad",
            "budget",
            f"{host.host} refuses requests, so none is sent until {_format_time(host.refuses_until)}, and then "
            f"one as a test{refused}",
            advise(
                "doctor",
                reset_host=host.host,
                sentence="Run the command again: it waits, and continues where it stopped. If this host never "
                "answered, check the credentials. To try at once: {}",
            ),
        )
    if host.paused_until is not None:
        return Finding(
            "note",
            "budget",
            f"{text}; the host asked to wait, so no request is sent until {_format_time(host.paused_until)}{refused}",
        )
    if host.rate is not None and host.full_rate is not None and host.rate < host.full_rate:
        slower = f"slowed to {host.rate:.2g} requests/s for now"
        return Finding("note" if refused else "ok", "budget", f"{text}; {slower}{refused}")
    return Finding("ok", "budget", text + refused)


def _format_time(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%d %H:%M:%S UTC")
