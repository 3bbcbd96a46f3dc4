"""Parses stored records into metadata, text, links and feed items: one pass, four commits.

``page_metadata`` is committed last. A slice is complete only when all four tables have the same digest. After a run was
killed between two commits the digests differ, and publishing leaves the slice out (see publish/publish).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, ToParse
from cc_pipeline.extraction.parsed_pages import PagesBefore
from cc_pipeline.extraction.parsed_pages import options_of as parse_options
from cc_pipeline.extraction.plan import Wanted, Why, options_of, parsed_from, plan
from cc_pipeline.extraction.reusable_records import gone
from cc_pipeline.extraction.run_inputs import RunInputs, planned_again
from cc_pipeline.extraction.standing import Standing
from cc_pipeline.extraction.target_slices import retire_others
from cc_pipeline.lake.row_counts import committed_counts
from cc_pipeline.lake.slice import FETCH, PAGE_TABLES, PARSE, Figures, Slice, StageReport, targets_by_crawl
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.records.schema import PARSED_SCHEMA
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace


def parse_records(workspace: Workspace, crawl: str, slugs: Sequence[str], *, engine: Engine = LOCAL) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables, by ``engine``. Slices with unchanged
    inputs stay.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake cannot be
    read or written, and ``UserInputError`` if other homes on the lake parse with other settings. Raises
    ``EnvironmentFault`` also for slices whose stored bytes do not exist any more, after the other slices were
    committed: parsed, their pages would count as missing although they were fetched. Raises as
    :func:`~cc_pipeline.extraction.run_inputs.planned_again` does.
    """
    return planned_again(workspace, crawl, slugs, lambda run: _parse_all(workspace, crawl, slugs, run, engine))


def _parse_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunInputs, engine: Engine) -> StageReport:
    started = time.monotonic()
    settings = workspace.settings
    group_state = run.take_state(crawl, slugs)
    target_slices, slice_states = group_state.asked, group_state.standings
    for slug, slices in target_slices.for_.items():
        if all(slice_states[slice_].fetched is None for slice_ in (*slices, *target_slices.beside[slug])):
            raise EnvironmentFault(f"{slug} in {crawl} has not been fetched", "Materialize records first.")
    requests = dict.fromkeys(
        (slice_ for slice_ in target_slices.every if slice_states[slice_].fetched is not None), Wanted("")
    )
    reasons = plan(requests, slice_states, {}, options_of(settings), (PARSE,)).of(PARSE)
    # a refetch changes records of all subsets; other stages of slices that were not requested stay due
    requested_slices = set(target_slices.slices)
    due_slices = [
        slice_
        for slice_, reason in reasons.items()
        if slice_ in requested_slices or reason.why in (Why.RECORDS, Why.TORN)
    ]
    lost_records = {slice_: slice_states[slice_].lost for slice_ in due_slices if slice_states[slice_].lost}
    if input_digests := {
        slice_: _made_from(slice_states[slice_], settings) for slice_ in due_slices if slice_ not in lost_records
    }:
        workspace.choose()
        run.expect(FETCH, {slice_: _says(slice_states[slice_]) for slice_ in input_digests})
        committed_slices = [slice_ for slice_ in input_digests if not slice_states[slice_].torn]
        with run.replacing(PARSE, {slice_: slice_states[slice_] for slice_ in committed_slices}):
            _parse(workspace, crawl, input_digests, engine)
    if lost_records:
        raise gone(crawl, lost_records)
    report = PARSE.report(page_figures(workspace, requests), due_slices, started)
    retire_others(workspace, PARSE, target_slices)
    return target_slices.folded(report)


def _says(slice_state: Standing) -> str:
    assert slice_state.fetched is not None, "it was fetched"
    return slice_state.fetched.says


def _made_from(slice_state: Standing, settings: Settings) -> str:
    options = options_of(settings)
    return parsed_from(_says(slice_state), options.parser, options.extractor, options.markdown)


def _parse(workspace: Workspace, crawl: str, input_digests: Mapping[Slice, str], engine: Engine) -> None:
    where = {"crawl": crawl, "target": [slice_.target for slice_ in input_digests]}
    with workspace.scratch_folder("parse") as folder:
        reusable_pages = PagesBefore(workspace, input_digests, parse_options(workspace.settings))
        records = (
            reusable_pages.take(batch) for batch in stream_rows(workspace.lake, "records", where, PARSED_SCHEMA.names)
        )
        engine.parse(workspace, ToParse(crawl, input_digests, records, reusable_pages, folder))


def page_figures(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, Figures]:
    """``rows:<table>`` and ``version:<table>`` of every page table for each slice, as they were committed. Rows are
    counted for slices whose count the log does not have."""
    lake = workspace.lake
    metrics = PARSE.versions(lake, slices)
    for table in PAGE_TABLES:
        committed = committed_counts(lake, table, [(slice_.crawl, slice_.target) for slice_ in slices])
        uncounted = [slice_ for slice_ in slices if committed[slice_.crawl, slice_.target] is None]
        counted_rows: Counter[tuple[str, ...]] = Counter()
        for crawl, targets in targets_by_crawl(uncounted).items():
            counted_rows += count_rows(lake, table, {"crawl": crawl, "target": targets})
        for slice_ in slices:
            key = (slice_.crawl, slice_.target)
            count = committed[key]
            metrics[slice_][f"rows:{table}"] = counted_rows[key] if count is None else count
    return metrics
