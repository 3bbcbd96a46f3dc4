"""Describes the captures that a command left out: those in subsets that were not selected."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cc_pipeline.advice import ANY, advise
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, index_is_built
from cc_pipeline.commoncrawl.target import GIVEN_KIND, Target
from cc_pipeline.workspace.workspace import Workspace


def describe_omitted_subsets(
    workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target], stored_subsets: Collection[str] = ()
) -> list[str]:
    """Returns a sentence with the subsets that a command left out and the home has nothing of (``stored_subsets``: the
    subsets that it has), and the options that select them. Looks nothing up.

    Crawls of the ARC years, and those whose index is built in this home, have no subsets. Conditions and listed
    captures select subsets themselves."""
    selected = workspace.settings.subsets
    omitted = [subset for subset in SUBSETS if subset not in selected and subset not in stored_subsets]
    with_subsets = [crawl for crawl in crawls if crawl not in ARC_CRAWLS and not index_is_built(crawl)]
    plain = [target for target in targets if not target.where and target.kind != GIVEN_KIND]
    if not omitted or not plain or not with_subsets:
        return []
    verb = "was" if len(omitted) == 1 else "were"
    # of many targets or crawls the first says enough; the definition of a set may have any number of members
    example = next((target.definition for target in plain if not target.members), ANY)
    count = advise("lookup", example, crawl=with_subsets[0], count=True, subset=[*selected, *omitted])
    return [f"the subsets {' and '.join(omitted)} {verb} not requested; to count their captures: {count}"]
