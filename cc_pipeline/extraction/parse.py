"""Parses stored records into metadata, text, links and feed items: one pass, four commits.

``page_metadata`` is committed last. A slice is complete only when all four tables have the same digest. After a run was
killed between two commits the digests differ, and publishing leaves the slice out (see publish/publish).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.engine import LOCAL, Engine, ParseRequest
from cc_pipeline.extraction.parsed_pages import ReusablePages, build_parse_options
from cc_pipeline.extraction.plan import ReasonKind, SliceRequest, options_of, parse_input_digest, plan
from cc_pipeline.extraction.reusable_records import build_lost_fault
from cc_pipeline.extraction.run_inputs import RunInputs, run_and_replan
from cc_pipeline.extraction.slice_selection import empty_obsolete_slices
from cc_pipeline.extraction.slice_state import SliceState
from cc_pipeline.lake.row_counts import read_committed_counts
from cc_pipeline.lake.slice import FETCH, PAGE_TABLES, PARSE, Metrics, Slice, StageReport, group_targets_by_crawl
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.records.schema import PARSED_SCHEMA
from cc_pipeline.workspace.workspace import Workspace


def parse_records(workspace: Workspace, crawl: str, slugs: Sequence[str], *, engine: Engine = LOCAL) -> StageReport:
    """Parses the records of ``slugs`` in ``crawl`` into the four page tables, by ``engine``. Slices with unchanged
    inputs stay.

    A page that breaks a parser becomes a metadata row that says so. Raises ``EnvironmentFault`` when the lake cannot be
    read or written, and ``UserInputError`` if other homes on the lake parse with other settings. Raises
    ``EnvironmentFault`` also for slices whose stored bytes do not exist any more, after the other slices were
    committed: parsed, their pages would count as missing although they were fetched. Raises as
    :func:`~cc_pipeline.extraction.run_inputs.run_and_replan` does.
    """
    return run_and_replan(workspace, crawl, slugs, lambda run: _parse_all(workspace, crawl, slugs, run, engine))


def _parse_all(workspace: Workspace, crawl: str, slugs: Sequence[str], run: RunInputs, engine: Engine) -> StageReport:
    started = time.monotonic()
    options = options_of(workspace.settings)
    group_state = run.take_state(crawl, slugs)
    target_slices, slice_states = group_state.target_slices, group_state.slice_states
    for slug, slices in target_slices.requested.items():
        if all(slice_states[slice_].fetched is None for slice_ in (*slices, *target_slices.additional[slug])):
            raise EnvironmentFault(
                f"{slug} in {crawl} has not been fetched",
                "Fetch the target first: cc-pipeline run, or materialize the asset records.",
            )
    requests = dict.fromkeys(
        (slice_ for slice_ in target_slices.all_slices if slice_states[slice_].fetched is not None), SliceRequest("")
    )
    reasons = plan(requests, slice_states, {}, options, (PARSE,)).reasons_for(PARSE)
    # a refetch changes records of all subsets; other stages of slices that were not requested stay due
    requested_slices = set(target_slices.requested_slices)
    due_slices = [
        slice_
        for slice_, reason in reasons.items()
        if slice_ in requested_slices or reason.kind in (ReasonKind.RECORDS, ReasonKind.PARTIALLY_COMMITTED)
    ]
    lost_records = {
        slice_: slice_states[slice_].lost_records for slice_ in due_slices if slice_states[slice_].lost_records
    }
    if input_digests := {
        slice_: parse_input_digest(
            _get_records_digest(slice_states[slice_]), options.parser, options.extractor, options.markdown
        )
        for slice_ in due_slices
        if slice_ not in lost_records
    }:
        workspace.choose()
        run.expect(FETCH, {slice_: _get_records_digest(slice_states[slice_]) for slice_ in input_digests})
        committed_slices = [slice_ for slice_ in input_digests if not slice_states[slice_].partially_committed]
        with run.replacing(PARSE, {slice_: slice_states[slice_] for slice_ in committed_slices}):
            _parse(workspace, crawl, input_digests, engine)
    if lost_records:
        raise build_lost_fault(crawl, lost_records)
    report = PARSE.report(read_page_metrics(workspace, requests), due_slices, started)
    empty_obsolete_slices(workspace, PARSE, target_slices)
    return target_slices.fold_by_target(report)


def _get_records_digest(slice_state: SliceState) -> str:
    assert slice_state.fetched is not None, "it was fetched"
    return slice_state.fetched.content_digest


def _parse(workspace: Workspace, crawl: str, input_digests: Mapping[Slice, str], engine: Engine) -> None:
    where = {"crawl": crawl, "target": [slice_.target for slice_ in input_digests]}
    with workspace.scratch_folder("parse") as folder:
        reusable_pages = ReusablePages(workspace, input_digests, build_parse_options(workspace.settings))
        records = (
            reusable_pages.take(batch) for batch in stream_rows(workspace.lake, "records", where, PARSED_SCHEMA.names)
        )
        engine.parse(workspace, ParseRequest(crawl, input_digests, records, reusable_pages, folder))


def read_page_metrics(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, Metrics]:
    """``rows:<table>`` and ``version:<table>`` of every page table for each slice, as they were committed. Rows are
    counted for slices whose count the log does not have."""
    lake = workspace.lake
    metrics = PARSE.read_content_metrics(lake, slices)
    for table in PAGE_TABLES:
        committed = read_committed_counts(lake, table, [(slice_.crawl, slice_.target) for slice_ in slices])
        uncounted = [slice_ for slice_ in slices if committed[slice_.crawl, slice_.target] is None]
        counted_rows: Counter[tuple[str, ...]] = Counter()
        for crawl, targets in group_targets_by_crawl(uncounted).items():
            counted_rows += count_rows(lake, table, {"crawl": crawl, "target": targets})
        for slice_ in slices:
            key = (slice_.crawl, slice_.target)
            count = committed[key]
            metrics[slice_][f"rows:{table}"] = counted_rows[key] if count is None else count
    return metrics
