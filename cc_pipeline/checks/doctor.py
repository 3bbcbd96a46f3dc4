"""The checks of ``cc-pipeline doctor``, including the request budget. A finding has the state and the advice."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb

from cc_pipeline import COMPILED, describe_missing_modules
from cc_pipeline.checks.asset_checks import stored_files
from cc_pipeline.checks.conservation import conservation_verdict
from cc_pipeline.checks.evaluate import evaluate_check
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.home_sizes import size_findings
from cc_pipeline.checks.outputs import publication_verdict
from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.documents.html import tree_builder
from cc_pipeline.duck import connect
from cc_pipeline.errors import CcPipelineError, EnvironmentFault
from cc_pipeline.harvesting.crawls import known_crawls, probe, unknown_crawl_error
from cc_pipeline.home import format_setting, read_note
from cc_pipeline.lake.damaged_files import find_damaged_files
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.published_file import enable_s3_reads, get_s3_location
from cc_pipeline.maintenance.purge_plan import find_unknown_tables
from cc_pipeline.maintenance.stored_files import VerificationReport
from cc_pipeline.progress import format_count
from cc_pipeline.settings import PREFIX, Settings, choices_of, environment_value
from cc_pipeline.transport.host_file import HostReport, read_hosts
from cc_pipeline.transport.host_state import CAUTION
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline.workspace.claim import is_home_of, remembered_source
from cc_pipeline.workspace.crawl_list import ago
from cc_pipeline.workspace.workspace import Workspace, limits_of, open_lake, open_workspace

#: Free bytes below which the disk is reported: records and tables need gigabytes.
_LOW_DISK = 5_000_000_000
#: Files of a table above which maintenance merges them (``maintain.py``).
_MANY_FILES = 2_000
_MAX_NAMES = 5
#: The level of a finding, by the severity of a check's result.
_LEVELS: Final = {"ok": "ok", "warn": "note", "error": "bad"}


def examine(settings: Settings) -> list[Finding]:
    """Returns all findings. Raises nothing, since a person runs it on a broken home."""
    with open_workspace(settings) as workspace:
        return [
            *_check_machine(settings),
            *_check_source(workspace),
            *_check_tables(workspace),
            *_check_stored_records(workspace),
        ]


def _check_machine(settings: Settings) -> list[Finding]:
    """Returns the findings that need no request: Python, compiled parts, the home, the contact address, free disk
    space, sizes, and the tables' publication."""
    return [
        Finding("ok", "python", f"{sys.version.split()[0]}, {sys.executable}"),
        *_check_compiled(),
        *_check_home(settings),
        *_check_contact(settings),
        *_check_disk(settings.home),
        *size_findings(settings.home),
        *_check_publishing(settings),
    ]


def _check_compiled() -> Iterator[Finding]:
    warning = describe_missing_modules()
    if warning is None:
        yield Finding("ok", "compiled", f"all {len(COMPILED)} compiled parts are here")
    else:
        description, _, advice = warning.removeprefix("compiled parts: ").partition("; ")
        yield Finding(
            "note",
            "compiled",
            description,
            f"{advice[:1].upper()}{advice[1:]}: make setup, or pip install --force-reinstall --no-deps cc-pipeline.",
        )
    if not tree_builder.READABLE:
        yield Finding(
            "note",
            "compiled",
            "this version of selectolax (the HTML parser) does not show its open elements: the depth of pages is only "
            "estimated from their markup",
            "Install the version of selectolax that pyproject.toml names.",
        )


def _check_home(settings: Settings) -> Iterator[Finding]:
    home_source = remembered_source(settings.home)
    if home_source is None:
        yield Finding(
            "note",
            "home",
            f"{settings.home} is no home yet; the first run makes the folder a home of {settings.source}",
        )
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
            yield Finding("note", "settings", text, f"To change the home: cc-pipeline settings {name}={variable}")
        else:
            yield Finding("ok", "settings", f"this home uses {name}={home_value}")


def _check_contact(settings: Settings) -> Iterator[Finding]:
    if settings.is_public and not settings.contact:
        advice = f"Set {PREFIX}CONTACT to your mail address or web page, so that Common Crawl can reach you."
        yield Finding(
            "note", "contact", "no contact is set, so requests to Common Crawl do not say whose they are", advice
        )
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


def _check_publishing(settings: Settings) -> Iterator[Finding]:
    lake = get_s3_location(settings)
    if settings.publish == "none" and not settings.has_separate_lake:
        yield Finding(
            "bad",
            "publishing",
            f"{PREFIX}PUBLISH is none, and the tables are in this home only, so no cc.duckdb shows them",
            f"Set {PREFIX}PUBLISH to views or copy.",
        )
    if lake is None or settings.publish != "views":
        return
    try:
        with connect() as connection:
            enable_s3_reads(connection, lake)
    except EnvironmentFault as fault:
        yield Finding("bad", "publishing", fault.problem, fault.advice)
        return
    yield Finding("ok", "publishing", f"DuckDB {duckdb.__version__} has httpfs for views over {lake.root}")


def _check_source(workspace: Workspace) -> Iterator[Finding]:
    settings = workspace.settings
    try:
        crawl_list = known_crawls(workspace)
    except EnvironmentFault as fault:
        yield Finding("bad", "source", fault.problem, fault.advice)
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
    source, answer = workspace.settings.source, probe(workspace, crawl)
    age_text = f" (request sent {ago(answer.answered_at)})" if answer.remembered else ""
    if answer.state == "unknown":
        fault = unknown_crawl_error(workspace, answer)
        return Finding("bad", "data", fault.problem, fault.advice)
    availability = "exists" if answer.state == "there" else "does not exist yet"
    return Finding("ok", "data", f"{source} answers: {crawl} {availability}{age_text}")


def _check_tables(workspace: Workspace) -> Iterator[Finding]:
    settings = workspace.settings
    if not is_home_of(settings):
        return
    lake = open_lake(settings)
    for spec in lake.specs.values():
        try:
            if damaged_files := find_damaged_files(lake, spec.name):
                yield from (Finding("bad", spec.name, damaged.text, damaged.advice) for damaged in damaged_files)
                continue
            pinned = lake.pin(spec.name)
        except CcPipelineError as error:
            yield Finding("bad", spec.name, str(error))
            continue
        if pinned.version < 0:
            continue
        text = (
            f"{format_count(pinned.rows, 'row')} in {format_count(len(pinned.files), 'file')}, version {pinned.version}"
        )
        level = "note" if len(pinned.files) > _MANY_FILES else "ok"
        yield Finding(
            level,
            spec.name,
            f"{text}; so many small files make queries slow" if level == "note" else text,
            "Merge the small files: cc-pipeline automation clean" if level == "note" else "",
        )
    yield from _check_unknown_tables(lake)
    yield from _check_missing_records(lake)
    yield evaluate_check(workspace, "balance", conservation_verdict)
    yield from _check_publication(workspace)


def _check_unknown_tables(lake: Lake) -> Iterator[Finding]:
    try:
        unknown_tables = find_unknown_tables(lake)
    except CcPipelineError as error:
        yield Finding("bad", "tables", str(error))
        return
    for name, (reason, advice) in unknown_tables.items():
        text = f"cc.duckdb does not show this table, and no target can be purged while it is here: {reason}"
        yield Finding("bad", name, text, advice)


def _check_publication(workspace: Workspace) -> Iterator[Finding]:
    """Tells whether ``cc.duckdb`` shows the current lake."""
    if workspace.settings.publish != "none":
        yield evaluate_check(workspace, "cc.duckdb", lambda *_: publication_verdict(workspace))


def _check_stored_records(workspace: Workspace) -> Iterator[Finding]:
    if is_home_of(workspace.settings) and stored_files.verdict is not None:
        yield evaluate_check(workspace, "stored", stored_files.verdict)


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
    ellipsis = " …" if len(damaged_records) > _MAX_NAMES else ""
    return Finding(
        "bad",
        "verified",
        f"{text}; {format_count(verification.records, 'record', 'are')} damaged: "
        f"{'; '.join(damaged_records[:_MAX_NAMES])}{ellipsis}",
        "Fetch the damaged records again: cc-pipeline doctor --verify --all --repair.",
    )


def _check_missing_records(lake: Lake) -> Iterator[Finding]:
    try:
        verdict = missing_captures_verdict(lake)
    except CcPipelineError as error:
        yield Finding("bad", "records", str(error))
        return
    if verdict.metrics["planned"]:
        advice = "Request the pending captures now: run their targets again with cc-pipeline run."
        level = _LEVELS[verdict.severity]
        is_missing = verdict.metrics["pending"] or verdict.metrics["lost"]
        share_text = f"{verdict.metrics['not here']} of the planned captures are not fetched; " if is_missing else ""
        text = f"{share_text}{verdict.message}"
        yield Finding(level, "records", text, advice if verdict.metrics["pending"] else "")


def budget_findings(settings: Settings) -> Iterator[Finding]:
    """Yields a finding per host that this home has sent requests to, or one that says that none was sent yet."""
    if settings.rate_shares > 1:
        yield _describe_share(settings)
    try:
        hosts = read_hosts(settings.budget_path)
    except EnvironmentFault as fault:
        yield Finding("bad", "budget", fault.problem, fault.advice)
        return
    if not hosts:
        yield Finding(
            "ok",
            "budget",
            f"this home has sent no request to a web host or S3 yet; limits: {_describe_limits(settings)}",
        )
    for host in hosts:
        yield _describe_host(host)


def _describe_share(settings: Settings) -> Finding:
    own_limits, total_limits = limits_of(settings), limits_of(replace(settings, rate_shares=1))
    text = (
        f"{settings.rate_shares} machines share the rate: {format_limits(own_limits)} here, of "
        f"{format_limits(total_limits)} for all"
    )
    if own_limits.concurrency * settings.rate_shares <= total_limits.concurrency:
        return Finding("ok", "budget", text)
    return Finding(
        "note",
        "budget",
        f"{text}; each machine sends at least one request at a time, so all together may exceed this limit",
        f"Use at most {total_limits.concurrency} machines, and set {PREFIX}RATE_SHARES to their number.",
    )


def format_limits(limits: SourceLimits) -> str:
    """Returns the rate and the maximum of concurrent requests as text."""
    rate = "any number of requests/s" if limits.rate is None else f"{limits.rate:g} requests/s"
    return f"{rate} and {limits.concurrency} at the same time"


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
            "refused",
            f"{host.host} refuses requests, so none is sent until {_format_time(host.refuses_until)}, and then "
            f"one as a test{refused}",
            "Run the command again: it waits, and continues where it stopped. If this host never answered, check the "
            f"credentials. To try at once: cc-pipeline doctor --reset-host {host.host}",
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


def _describe_limits(settings: Settings) -> str:
    rate = "the source's own" if settings.rate is None else f"{settings.rate:g} requests/s"
    concurrency_text = "" if settings.concurrency is None else f", {settings.concurrency} at the same time"
    return rate + concurrency_text


def _format_time(timestamp: datetime) -> str:
    return timestamp.strftime("%Y-%m-%d %H:%M:%S UTC")
