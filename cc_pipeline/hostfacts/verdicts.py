"""Verdicts on facts: the table of hosts, and the datasets that a person added."""

from __future__ import annotations

from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, joined, some
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.hostfacts.dataset_files import shards_read
from cc_pipeline.hostfacts.host_keys import HostRanges
from cc_pipeline.hostfacts.known import known_datasets
from cc_pipeline.lake.slice import FACTS, Slice
from cc_pipeline.lake.target_definitions import definitions
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "hosts_of_their_targets"


def host_facts_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Whether each slice has each of its hosts once, and no host that its target does not mean."""
    lake = workspace.lake
    slices = scope.slices
    if slices is None:
        slices = FACTS.here(lake)
    verdicts, sound = [], 0
    texts = definitions(lake, sorted({one.target for one in slices}))
    for one in slices:
        keys = lake.read("host_facts", Slice(one.crawl, one.target).where, ["surt_host_name"])["surt_host_name"]
        hosts = keys.to_pylist()
        twice = len(hosts) - len(set(hosts))
        astray = _astray(texts.get(one.target), hosts)
        if twice or astray:
            message = f"{one.crawl}|{one.target}: {twice:,} hosts stand twice, {len(astray):,} are of no host of it"
            wrong = (f"{one.crawl}|{one.target}",)
            verdicts.append(CheckResult(_NAME, "error", f"{message} ({some(set(astray))}); fill it again", wrong=wrong))
        else:
            sound += 1
    return joined(_NAME, verdicts) if verdicts else CheckResult(_NAME, "ok", f"{sound:,} partitions have their hosts")


def _astray(definition: str | None, hosts: list[str]) -> list[str]:
    from cc_pipeline.commoncrawl.target_text import parse_target  # noqa: PLC0415  # most looks find nothing to parse

    if definition is None or not hosts:
        return []
    ranges = HostRanges(parse_target(definition))
    return [key for key in hosts if not ranges.holds(key)]


def annotation_verdict(workspace: Workspace, name: str) -> CheckResult:
    """Whether a dataset that was added is still what a home can read, as far as that is known without asking."""
    check = "can_be_read"
    try:
        known = known_datasets(workspace.settings).get(name)
    except CcPipelineError as error:
        return CheckResult(check, "error", f"{error}")
    if known is None:
        return CheckResult(check, "warn", f"{name} was forgotten; it goes when the code location is loaded again")
    here = shards_read(workspace, known.dataset).values()
    if not here:
        return CheckResult(check, "ok", f"{name} was not asked for yet")
    failed = [path for shards in here for path in shards.paths if shards.footers.entries[path].failed]
    files = sum(len(shards.paths) for shards in here)
    figures = {"files": files, "unread": len(failed)}
    if failed:
        message = f"{len(failed):,} of {files:,} files of {name} could not be read: {some(set(failed))}"
        return CheckResult(check, "warn", message, figures)
    return CheckResult(check, "ok", f"{files:,} files of {name} can be read", figures)
