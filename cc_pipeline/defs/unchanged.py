"""Partitions that a run would neither change nor record otherwise than they are recorded: a command leaves them out.

Belongs here: the plan (extraction/run.look) beside what Dagster has recorded. Not here: who leaves them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import dagster as dg

from cc_pipeline import progress
from cc_pipeline.defs.automation.flight import EXTRACTED, left_failed, recorded
from cc_pipeline.defs.internals_partitions import recorded_versions
from cc_pipeline.defs.partitions import partition_key
from cc_pipeline.extraction.run import Look, current
from cc_pipeline.stages.workspace import Workspace


def unchanged(
    instance: dg.DagsterInstance, workspace: Workspace, keys: Sequence[str], looks: Iterable[Look] = ()
) -> set[str]:
    """Those of the partitions ``keys`` (crawl × domain) that are current in the lake, that Dagster has recorded with
    the very rows that are there, in all assets, and that did not fail since.

    What was committed and not recorded, as by a run that was killed in between, or where Dagster's database was lost,
    is not among them. Asks Dagster once for each asset, however many partitions there are. ``looks`` are those that
    were just taken at some of the crawls.
    """
    looked = {look.asked.crawl: look.current for look in looks}
    by_crawl: dict[str, list[str]] = {}
    for key in keys:
        crawl, _, slug = key.partition("|")
        by_crawl.setdefault(crawl, []).append(slug)
    versions: dict[str, dict[str, str]] = {}
    for done, (crawl, slugs) in enumerate(by_crawl.items()):
        progress.report("look", done, len(by_crawl), crawl)
        found = looked[crawl] if crawl in looked else current(workspace, crawl, slugs)
        versions |= {partition_key(crawl, slug): found[slug] for slug in slugs if slug in found}
    if versions:
        for crawl, slug in left_failed(instance):
            versions.pop(partition_key(crawl, slug), None)
    for asset in EXTRACTED if versions else ():
        here = {key: own.get(asset) for key, own in versions.items()}
        versions = {key: versions[key] for key in _recorded(instance, asset, here)}
    return set(versions)


def _recorded(instance: dg.DagsterInstance, asset: str, here: dict[str, str | None]) -> Collection[str]:
    """The keys in ``here`` of which Dagster has a record of ``asset`` whose rows say what is said there; any record
    where nothing is."""
    found = recorded_versions(instance, asset, here)
    silent = {key for key, version in here.items() if version is None}
    known = {partition_key(*pair) for pair in recorded(instance, asset)} if silent else set()
    return [key for key, version in here.items() if (key in known if key in silent else found.get(key) == version)]
