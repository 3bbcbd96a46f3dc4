"""``plan``: the cost of lookups and fetches, before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.advice import ANY, advise
from cc_pipeline.api.lookups import LookupRequest, find_index_sources, open_lookup
from cc_pipeline.api.user_input import read_targets
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import console, notice, row_format, write_rows
from cc_pipeline.commoncrawl.slice_slugs import PLAIN
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.extraction.crawl_plan import CrawlPlan
    from cc_pipeline.extraction.plan import Price
    from cc_pipeline.index.locator import LookupEstimate
    from cc_pipeline.records.range_plan import FetchEstimate
    from cc_pipeline.workspace.workspace import Workspace

_COLUMNS: Final = (
    "crawl", "step", "target", "files", "row groups", "requests", "bytes at most", "bytes likely", "seconds", "because",
)  # fmt: skip
#: Maximum number of targets with lines of their own.
_MAX_TARGET_ROWS = 40


def plan(
    settings: Settings,
    targets: options.Targets,
    crawl: options.Crawls,
) -> None:
    """Show what a run would do, why, and what it would cost, before anything is read from the index.

    There is a line for each step of each target (locate, fetch, parse) with the reason; none if all is up to date. For
    a lookup it shows files, row groups, requests and bytes, which index is used, and why. The fetch can be estimated
    only if an earlier run has located the captures; lookup --count locates them without a run.

    [bold]Examples[/]

      cc-pipeline plan example.com --crawl CC-MAIN-2024-22

      cc-pipeline plan suffix:gov.uk -c newest --index parquet
    """
    with open_lookup(settings, read_targets(targets), crawl) as question:
        rows, notes = _plan_rows(question)
    if row_format() == "table" and console.is_terminal:
        _show_rows(rows)
    else:
        write_rows("", _COLUMNS, rows)
    for note in notes:
        notice(note)


def _show_rows(rows: Sequence[Sequence[object]]) -> None:
    """Prints a table for each crawl, with the costs as one text: ten columns fit no terminal."""
    for crawl, crawl_rows in groupby(rows, key=lambda row: str(row[0])):
        cells = [(step, target, _describe_cost(costs), reason) for _, step, target, *costs, reason in crawl_rows]
        write_rows(crawl, ["step", "target", "cost", "because"], cells)


def _describe_cost(costs: Sequence[Any]) -> str | None:
    """Returns the costs of a row (the columns ``files`` to ``seconds``) as text; ``None`` if none is known."""
    files, row_groups, requests, max_bytes, likely_bytes, seconds = costs
    texts = [
        format_count(count, name)
        for count, name in ((files, "file"), (row_groups, "row group"), (requests, "request"))
        if count is not None
    ]
    if likely_bytes is not None:
        at_most = f" (at most {human_bytes(max_bytes)})" if max_bytes != likely_bytes else ""
        texts.append(human_bytes(likely_bytes) + at_most)
    if seconds is not None:
        texts.append(f"{seconds:,} s")
    return ", ".join(texts) or None


def _plan_rows(question: LookupRequest) -> tuple[list[Sequence[object]], list[str]]:
    """Returns the rows of the plan, and the notes below it."""
    from cc_pipeline.commoncrawl.target import GIVEN_KIND, by_subsets
    from cc_pipeline.extraction.crawl_plan import plan_targets
    from cc_pipeline.extraction.index_choice import choose_indexes, explain_index_choices
    from cc_pipeline.index.lookup import price_lookup
    from cc_pipeline.lake.slice import LOCATE
    from cc_pipeline.workspace.workspace import rate_now

    rows: list[Sequence[object]] = []
    notes: list[str] = []
    settings, rate = question.settings, rate_now(question.workspace)
    for crawl in question.crawls:
        crawl_plan = plan_targets(question.workspace, crawl, question.targets)
        unlocated = {slice_.partition.target for slice_ in crawl_plan.plan.reasons_for(LOCATE)}
        lookup_targets = [
            target for target in question.targets if target.slug in unlocated and target.kind != GIVEN_KIND
        ]
        for subsets, subset_targets in by_subsets(lookup_targets, settings.subsets).items():
            sources = find_index_sources(question.workspace, crawl, settings.index)
            lookup_price = price_lookup(crawl, subsets, subset_targets, sources, via=settings.index)
            likely = lookup_price.expected_bytes
            rows.append(
                (crawl, "lookup", None, lookup_price.files, lookup_price.row_groups, lookup_price.requests,
                 lookup_price.bytes, likely, _seconds(rate, lookup_price.requests), lookup_price.reason)
            )  # fmt: skip
            notes += [
                f"{crawl}: {note}"
                for note in (
                    *lookup_price.notes,
                    *_catalog_notes(question.workspace, lookup_targets, crawl, lookup_price),
                )
            ]
        notes += explain_index_choices(choose_indexes(question.workspace, [crawl_plan], question.targets))
        if unlocated:
            count = advise("lookup", ANY, crawl=crawl, count=True)
            notes.append(
                f"{crawl}: the cost of the fetch is not known before the lookup; to do the lookup now: {count}"
            )
        elif fetch := _estimate_fetch(question.workspace, crawl_plan):
            reason = f"{format_count(fetch.captures, 'capture')} of {fetch.record_bytes:,} bytes"
            rows.append(
                (crawl, "fetch", None, fetch.files, None, fetch.requests, fetch.bytes, fetch.bytes,
                 _seconds(rate, fetch.requests), reason)
            )  # fmt: skip
        if current_count := len(crawl_plan.current_targets):
            amount = (
                "all targets are"
                if current_count == len(question.targets)
                else f"{current_count:,} of {len(question.targets):,} targets {'is' if current_count == 1 else 'are'}"
            )
            notes.append(f"{crawl}: {amount} up to date, so a run would do nothing for them")
        rows += _step_rows(settings, rate, crawl_plan)
    notes += _duration_note(settings, rate, sum(row[5] for row in rows if isinstance(row[5], int)))
    return rows, notes


def _catalog_notes(workspace: Workspace, targets: Sequence[Target], crawl: str, price: LookupEstimate) -> Sequence[str]:
    """Returns a note on row groups that are read because they have no key bounds."""
    from cc_pipeline.commoncrawl.key_ranges import merge_ranges
    from cc_pipeline.harvesting.catalog import open_catalog
    from cc_pipeline.index.locator import surt_ranges

    if price.index != "parquet":
        return ()
    ranges_of = surt_ranges(crawl, price.index)
    ranges = merge_ranges(keys for target in targets for keys in ranges_of(target))
    with open_catalog(workspace.lake) as catalog:
        unbounded = catalog.unbounded(crawl, workspace.settings.subsets, ranges)
    message = f"{unbounded} row groups have no key bounds, so each lookup reads them. To compute the bounds once"
    return (f"{message}: {advise('index repair', crawl=crawl)}",) if unbounded else ()


def _estimate_fetch(workspace: Workspace, crawl_plan: CrawlPlan) -> FetchEstimate | None:
    """Estimates the cost of the captures of located slices with a pending fetch. ``None`` without any. The few pending
    or lost captures of a slice have a line of their own."""
    from cc_pipeline.capture_columns import CAPTURE
    from cc_pipeline.commoncrawl.index_schema import distinct_captures
    from cc_pipeline.extraction.fetch import PARTIAL_FETCH_REASONS
    from cc_pipeline.lake.slice import FETCH
    from cc_pipeline.records.range_plan import price_of

    reasons = crawl_plan.plan.reasons_for(FETCH, excluded_kinds=PARTIAL_FETCH_REASONS)
    if not reasons:
        return None
    where = {"crawl": crawl_plan.target_slices.crawl, "target": [slice_.target for slice_ in reasons]}
    return price_of(distinct_captures(workspace.lake.read("captures", where, [*CAPTURE, "warc_record_length"])))


def _step_rows(settings: Settings, rate: float | None, crawl_plan: CrawlPlan) -> list[Sequence[object]]:
    """Returns a row for each planned step; for many targets, one for each step and reason."""
    from cc_pipeline.automation.reparse import estimate_seconds
    from cc_pipeline.extraction.plan import estimate_price
    from cc_pipeline.extraction.slice_state import STAGES

    prices_by_step: dict[tuple[str, str, str], list[Price]] = {}
    is_grouped = len(crawl_plan.plan.slice_plans) > _MAX_TARGET_ROWS
    for todo in crawl_plan.plan.slice_plans:
        subset = "" if todo.slice_.subset == PLAIN else f" ({todo.slice_.subset})"
        steps = [stage for stage in STAGES if todo.reason_for(stage) is not None]
        reason, words = todo.first_reason, ", then ".join(stage.label for stage in steps)
        assert reason is not None, "something is to be done"
        key = ("" if is_grouped else f"{todo.slice_.partition.target}{subset}", words, str(reason))
        prices_by_step.setdefault(key, []).append(
            estimate_price(crawl_plan.slice_states[todo.slice_], steps[0], reason)
        )
    rows: list[Sequence[object]] = []
    for (target, step, words), prices in prices_by_step.items():
        requests, size, pages = (
            _sum_known(getattr(price, name) for price in prices) for name in ("requests", "bytes", "pages")
        )
        seconds = round(estimate_seconds(settings, pages), 1) if pages else _seconds(rate, requests)
        label = target or format_count(len(prices), "target")
        rows.append((crawl_plan.target_slices.crawl, step, label, None, None, requests, size, size, seconds, words))
    return rows


def _sum_known(values: Iterable[int | None]) -> int | None:
    amounts = list(values)
    return None if None in amounts else sum(value or 0 for value in amounts)


def _seconds(rate: float | None, requests: int | None) -> float | None:
    """Returns the seconds that requests take; ``None`` without a rate limit, or if their number is unknown."""
    return None if rate is None or requests is None else round(requests / rate, 1)


def _duration_note(settings: Settings, rate: float | None, requests: int) -> list[str]:
    """Returns a note on how long the requests take, if the source has a rate limit."""
    if rate is None or not requests:
        return []
    from cc_pipeline.workspace.workspace import limits_of

    seconds = requests / rate
    duration = f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 3600:,.1f} h"
    full = limits_of(settings).rate
    slower = (
        "" if full is None or rate >= full else f"; slower than the usual {full:g}, since the source refused lately"
    )
    return [f"{format_count(requests, 'request', 'take')} {duration} at {rate:.3g} requests a second{slower}"]


_OPTIONS = (options.INDEX, options.SUBSET, options.ALLOW_GAPS, *options.REMOTE)
COMMANDS = {"plan": Command(plan, EVERYDAY, 20, _OPTIONS, _COLUMNS)}
