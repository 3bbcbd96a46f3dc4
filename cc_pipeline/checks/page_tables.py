"""The check of the texts of parsed pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.checks.scope import CheckResult, Scope, abbreviate_keys, key_of
from cc_pipeline.lake.slice import PARSE, Slice, group_targets_by_crawl
from cc_pipeline.lake.slices import list_slices
from cc_pipeline.lake.streaming import count_rows, stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace

#: The most pages that are examined together.
_PAGES_AT_ONCE: Final = 500_000
#: HTML pages of a partition below which their texts are not judged, and the share of pages that may have no main text.
_FEW_PAGES: Final = 20
_WITHOUT_TEXT: Final = 0.5


def texts_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Checks that each HTML page has a text, and that at least half of a partition's pages have a main text."""
    name, pages, missing_texts, empty = "texts_are_there", Counter[str](), Counter[str](), Counter[str]()
    requested = None if scope.slices is None else set(scope.slices)
    parsed = [slice_ for slice_ in list_slices(workspace.lake, PARSE) if requested is None or slice_ in requested]
    for crawl, targets in _group_targets(workspace, parsed):
        where: dict[str, str | list[str]] = {"crawl": crawl, "target": targets}
        html = _count_html_rows(workspace, PARSE.main_table, where, "parsed_as")
        texts = _count_html_rows(workspace, "page_text", where, "text_type")
        empties = _count_html_rows(
            workspace, "page_text", where, "text_type", ("main_content_extractor", "content_simhash")
        )
        for target, count in html.items():
            key = key_of(Slice(crawl, target))
            pages[key] += count
            missing_texts[key] += max(0, count - texts[target])
            empty[key] += empties[target]
    lost = {key for key, count in missing_texts.items() if count}
    textless = {key for key, count in pages.items() if count >= _FEW_PAGES and empty[key] > _WITHOUT_TEXT * count}
    metrics = {
        "html pages": pages.total(),
        "without a text": missing_texts.total(),
        "without a main text": empty.total(),
    }
    if lost:
        message = (
            f"{missing_texts.total():,} HTML pages have no row in page_text ({abbreviate_keys(lost)}). Rebuild these "
            "partitions: cc-pipeline doctor --repair"
        )
        return CheckResult(name, "error", message, metrics, tuple(lost))
    if textless:
        message = (
            f"most HTML pages of {format_count(len(textless), 'partition')} have no main text "
            f"({abbreviate_keys(textless)}): perhaps scripts write the texts in a browser, or another "
            "CC_PIPELINE_EXTRACTOR finds more"
        )
        return CheckResult(name, "warn", message, metrics, tuple(textless))
    message = f"{pages.total():,} HTML pages have a row in page_text, {empty.total():,} of them without a main text"
    return CheckResult(name, "ok", message, metrics)


def _group_targets(workspace: Workspace, slices: Sequence[Slice]) -> Iterator[tuple[str, list[str]]]:
    """Yields targets by crawl, in groups with about ``_PAGES_AT_ONCE`` pages each."""
    for crawl, targets in group_targets_by_crawl(slices).items():
        counts = count_rows(workspace.lake, PARSE.main_table, {"crawl": crawl, "target": targets}, ["target"])
        group: list[str] = []
        pages = 0
        for target in targets:
            group.append(target)
            pages += counts[(target,)]
            if pages >= _PAGES_AT_ONCE:
                yield crawl, group
                group, pages = [], 0
        if group:
            yield crawl, group


def _count_html_rows(
    workspace: Workspace, table: str, where: dict[str, str | list[str]], kind: str, empty: tuple[str, str] | None = None
) -> Counter[str]:
    """Counts the rows of HTML pages by target. With ``empty``, counts the rows whose first column has a value, so that
    an extractor was used, and whose second column is null, since it found nothing."""
    counts: Counter[str] = Counter()
    for batch in stream_rows(workspace.lake, table, where, ["target", kind, *(empty or ())]):
        mask = pc.equal(batch.column(kind), "html")
        if empty is not None:
            was_searched, is_empty = pc.is_valid(batch.column(empty[0])), pc.is_null(batch.column(empty[1]))
            mask = pc.and_(mask, pc.and_(was_searched, is_empty))
        rows = pa.Table.from_batches([batch.filter(mask)])
        for row in rows.group_by("target").aggregate([([], "count_all")]).to_pylist():
            counts[row["target"]] += row["count_all"]
    return counts
