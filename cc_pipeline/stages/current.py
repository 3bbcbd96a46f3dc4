"""Which partitions all stages would leave as they are. The stages' own functions say so: there is no second opinion."""

from __future__ import annotations

from collections.abc import Sequence

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.expanding import left_over, summed
from cc_pipeline.extraction.fetch import to_fetch
from cc_pipeline.extraction.locate import to_locate
from cc_pipeline.extraction.parse import to_parse
from cc_pipeline.extraction.slice import FETCH, LOCATE, PARSE, VERSION, slices_of
from cc_pipeline.records.leases import left_behind
from cc_pipeline.stages.workspace import Workspace

_STAGES = (LOCATE, FETCH, PARSE)


def current(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Those of the registered ``slugs`` of whose captures, records and pages in ``crawl`` a run would change nothing:
    all was made from what it would be made from now, nothing is to be asked for again, and no stored bytes are gone.

    Gives what the rows of each say, by table, where that is known (slices of earlier versions do not tell). Reads logs,
    and some columns of the records of those that are current by the logs. Gives none where anything is in the way: a
    run says what.
    """
    try:
        if left_behind(workspace.storage, crawl):
            # the next fetch settles what a killed one left
            return {}
        parts = workspace.parts(slugs)
        wanted, stale = to_locate(workspace, crawl, parts)
        kept = set(wanted).difference(stale)
        for stage in (to_fetch, to_parse):
            kept.difference_update(stage(workspace, crawl, sorted(one.target for one in kept))[1])
        whole = {
            slug: own
            for slug, own in parts.items()
            if kept.issuperset(slices_of(crawl, own))
            and not any(left_over(workspace, stage, crawl, slug, own) for stage in _STAGES)
        }
        every = [slice_ for own in whole.values() for slice_ in slices_of(crawl, own)]
        versions = [stage.versions(workspace.lake, every) for stage in _STAGES]
    except CcPipelineError:
        return {}
    return {
        slug: {
            name.removeprefix(VERSION): str(version)
            for by_slice in versions
            for name, version in summed([by_slice[slice_] for slice_ in slices_of(crawl, own)]).items()
        }
        for slug, own in whole.items()
    }
