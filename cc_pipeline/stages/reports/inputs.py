"""Verdicts on what is read: the list of crawls, path lists, kept footers, files read whole."""

from __future__ import annotations

import pyarrow.compute as pc

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.slice import LIST, Figures
from cc_pipeline.index.catalog.checks import CheckResult
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.stages.indexing.crawls import crawls_are_listed, known_crawls
from cc_pipeline.stages.indexing.harvest import asked_subsets
from cc_pipeline.stages.reports.looking import Look, joined, some
from cc_pipeline.stages.workspace import Workspace


def crawl_list_verdict(workspace: Workspace) -> CheckResult:
    """Whether the table has the crawls of the list as it is published now (or as it was read in the last day)."""
    name = "list_is_of_now"
    have = set(workspace.lake.read("crawls", columns=["crawl"]).column("crawl").to_pylist())
    if not have:
        return CheckResult(name, "ok", "the list of crawls was not read yet")
    try:
        listed = known_crawls(workspace)
    except EnvironmentFault as fault:
        return CheckResult(name, "warn", f"{len(have):,} crawls; {fault.what}. {fault.advice}")
    figures: Figures = {"crawls": len(have), "listed at": f"{listed.read_at:%Y-%m-%d %H:%M} UTC"}
    new = {crawl.id for crawl in listed.crawls} - have
    if listed.note is not None:
        return CheckResult(name, "warn", f"{len(have):,} crawls; {listed.note}", figures)
    if new or not crawls_are_listed(workspace):
        message = f"the published list is another: {some(new) or 'of the same crawls'}. Materialize crawls"
        return CheckResult(name, "warn", message, figures)
    return CheckResult(name, "ok", f"all {len(have):,} crawls of the list read {listed.age}", figures)


def manifest_verdict(workspace: Workspace, look: Look) -> CheckResult:
    """Whether each path list names every file once, in its own crawl, and as many as the catalog expects."""
    name, lake = "as_the_catalog_expects", workspace.lake
    coverage = lake.read("coverage", columns=["crawl", "subset", "expected"]).to_pylist()
    expected: dict[str, dict[str, int]] = {}
    for row in coverage:
        expected.setdefault(row["crawl"], {})[row["subset"]] = row["expected"]
    verdicts, sound = [], 0
    for crawl in _listed_crawls(workspace, look):
        table = lake.read("index_manifest", {"crawl": crawl}, ["subset", "path"])
        counted = {row["values"]: row["counts"] for row in pc.value_counts(table["subset"]).to_pylist()}
        twice = len(table) - len(table["path"].unique())
        astray = sum(f"/crawl={crawl}/" not in path for path in table["path"].to_pylist())
        differs = {k for k, v in expected.get(crawl, counted).items() if v != counted.get(k, 0)} - {""}
        if twice or astray:
            message = f"{crawl}: {twice:,} files are listed twice, {astray:,} are of another crawl; list it again"
            verdicts.append(CheckResult(name, "error", message, wrong=(crawl,)))
        elif differs:
            message = f"{crawl}: the catalog was made from another list ({some(differs)}); harvest the crawl again"
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
        else:
            sound += 1
    return joined(name, verdicts) if verdicts else CheckResult(name, "ok", f"{sound:,} path lists are as expected")


def footers_verdict(workspace: Workspace, look: Look) -> CheckResult:
    """Whether there is a footer of each listed index file of the wanted subsets that were harvested; reads the heads of
    what is kept, no footer itself."""
    name, store = "every_footer_is_kept", FooterStore(workspace.settings.footers_path)
    covered = workspace.lake.read("coverage", columns=["crawl", "subset"]).to_pylist()
    harvested = {(row["crawl"], row["subset"]) for row in covered}
    verdicts, kept = [], 0
    for crawl in _listed_crawls(workspace, look):
        asked = [one for one in asked_subsets(workspace.settings, crawl) if (crawl, one) in harvested]
        where = {"crawl": crawl, "subset": asked}
        paths = workspace.lake.read("index_manifest", where, ["path"])["path"].to_pylist()
        footers = store.read(crawl)
        lost = [path for path in paths if path not in footers]
        kept += len(paths) - len(lost)
        if lost:
            message = f"{crawl}: {len(lost):,} of {len(paths):,} footers are not kept; harvest the crawl again"
            verdicts.append(CheckResult(name, "warn", message, wrong=(crawl,)))
    return joined(name, verdicts) if verdicts else CheckResult(name, "ok", f"all {kept:,} footers are kept")


def _listed_crawls(workspace: Workspace, look: Look) -> list[str]:
    """The crawls whose path list was read, of those to look at."""
    made = {slice_.crawl for slice_ in LIST.here(workspace.lake)}
    return sorted(made if look.crawls is None else made & look.crawls)
