"""What ``doctor`` does to stored records: reads them against their rows, and fetches again what is lost or damaged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cc_pipeline.cli.output import console, progress_bars
from cc_pipeline.cli.running import all_runs, step
from cc_pipeline.errors import Incomplete
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.stages.keeping.stored_files import Verified
    from cc_pipeline.stages.reports.health import Finding
    from cc_pipeline.stages.workspace import Workspace


def verify_and_repair(settings: Settings, *, verify: bool, everything: bool, repair: bool) -> list[Finding]:
    """Verifies a sample of the stored records (or ``everything``), fetches again what is lost or damaged, parses and
    publishes it; gives the findings. Raises ``EnvironmentFault`` where the source or the lake's place fails;
    ``Incomplete`` at the end, where the source does not give everything."""
    from cc_pipeline.stages.keeping import stored_files
    from cc_pipeline.stages.reports.health import Finding, verified_finding
    from cc_pipeline.stages.workspace import open_lake, open_workspace

    if not verify and not repair:
        return []
    findings: list[Finding] = []
    with open_workspace(settings) as workspace, progress_bars():
        lake, storage = open_lake(settings), workspace.storage
        found = stored_files.Verified(0, 0)
        if verify:
            found = stored_files.verify(lake, storage, None if everything else stored_files.SAMPLE)
            findings.append(verified_finding(found))
        if repair:
            lost = stored_files.lost_records(workspace)
            again: dict[str, set[str]] = defaultdict(set)
            for one in lost:
                again[one.crawl] |= one.targets.keys()
            for crawl, places in found.damaged.items():
                again[crawl] |= {*stored_files.holders(lake, crawl, places)}
            count = sum(one.records for one in lost) + found.records
            if again:
                _repair(workspace, found, again)
                text = f"{count:,} records were asked for again, parsed and published; see the ledger for missing ones"
                findings = [Finding("ok", "repaired", text)]
            else:
                findings.append(Finding("ok", "repaired", "nothing was to be repaired"))
    return findings


def _repair(workspace: Workspace, found: Verified, again: dict[str, set[str]]) -> None:
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.extraction.expanding import part_slices
    from cc_pipeline.extraction.fetch import fetch_captures
    from cc_pipeline.extraction.slice import slices_of
    from cc_pipeline.stages.workspace import open_workspace

    trouble: Incomplete | None = None
    for crawl, slugs in sorted(again.items()):
        subsets: dict[str, set[str]] = defaultdict(set)
        for slice_ in part_slices(workspace, slices_of(crawl, sorted(slugs))):
            subsets[slice_.whole.target].add(slice_.subset)
        targets = workspace.targets(sorted(slugs))
        if places := found.damaged.get(crawl):
            try:
                # no run knows which bytes are wrong; the runs below parse what this brings
                fetch_captures(workspace, crawl, [*targets], distrusted=[*places])
            except Incomplete as error:
                trouble = trouble or error
        # in the subsets that they have, whatever the settings ask for
        for some in sorted({tuple(sorted(one)) for one in subsets.values()}):
            mine = [target for slug, target in targets.items() if tuple(sorted(subsets[slug])) == some]
            with open_workspace(replace(workspace.settings, subsets=some)) as own, Launcher(own) as launcher:
                try:
                    step(f"lost records of {crawl}", partial(all_runs, launcher.extract([crawl], mine)), console)
                except Incomplete as error:
                    # what one crawl lacks keeps no other from its own
                    trouble = trouble or error
    with Launcher(workspace) as launcher:
        step("cc.duckdb", launcher.publish, console)
    if trouble is not None:
        raise trouble
