"""Fetches and reads the robots.txt captures of targets' hosts, for the command ``policies``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.api.run_steps import run_step
from cc_pipeline.api.target_runs import Part, report_disk_faults, run_targets
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.policies.definitions import ASSET, read_partition
from cc_pipeline.extensions.policies.fill import find_stale_targets
from cc_pipeline.extensions.policies.hosts import crawls_with_robots, policy_targets
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import open_workspace

#: A reminder of the limits of the table.
TO_CCBOT = (
    "Common Crawl's own robot, CCBot, was allowed to fetch every captured page; robots.txt adds rules for other "
    "robots, and preferences on uses"
)


def read_policies(
    settings: Settings,
    crawls: Sequence[str],
    targets: Sequence[Target],
    *,
    yes: bool = False,
    on_part: Callable[[Part], object] = lambda part: None,
) -> list[EnvironmentFault]:
    """Fetches the robots.txt captures of the hosts of ``targets`` from ``crawls`` (the user's words) and reads them.

    They are located, estimated and fetched like any subset. Crawls without a subset of robots.txt captures are skipped
    with a note. Returns the errors of failed partitions; raises as ``run_targets``.
    """
    host_targets = policy_targets(targets)
    robots_settings = replace(settings, subsets=("robotstxt",))
    parts: list[Part] = []

    def select_crawls(requested_crawls: Sequence[str]) -> Sequence[str]:
        policy_crawls = crawls_with_robots(requested_crawls)
        if other_crawls := [crawl for crawl in requested_crawls if crawl not in policy_crawls]:
            get_reporter().note(
                f"{', '.join(other_crawls)} has no subset of robots.txt captures: the rules of that time are unknown"
            )
        return policy_crawls

    def report_part(part: Part) -> None:
        parts.append(part)
        # Notes about other subsets do not concern this command.
        on_part(replace(part, notes=()))

    faults = run_targets(
        robots_settings, crawls, host_targets, select_crawls=select_crawls, yes=yes, on_part=report_part
    )
    _read(robots_settings, parts)
    return faults


def _read(settings: Settings, parts: Sequence[Part]) -> None:
    with report_disk_faults(settings.home), open_workspace(settings) as workspace:
        keys: list[str] = []
        for part in parts:
            slugs = [target.slug for target in part.targets if target.slug not in part.forgotten]
            for crawl in dict.fromkeys(partition.crawl for partition in part.changes):
                keys += [partition_key(crawl, slug) for slug in find_stale_targets(workspace, crawl, slugs)]
        if not keys:
            return
        with StageRunner(workspace) as runner, get_reporter().bars():
            read = partial(runner.run_each, [ASSET], keys, partial(read_partition, workspace))
            run_step("policies", read)
            run_step("cc.duckdb", runner.publish_changes)
    get_reporter().notice(TO_CCBOT)
