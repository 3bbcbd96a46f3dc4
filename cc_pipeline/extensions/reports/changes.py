"""Describes the changes of a target's pages between two crawls: text for people, with a bounded length per page."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

import duckdb

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.reports.findings import find_crawl_pair, target_scope
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.publish import sql
from cc_pipeline.settings import Settings

#: Maximum paragraphs of a page, and characters of each. The number of further paragraphs is printed.
MAX_PARAGRAPHS: Final = 20
_CHARACTERS: Final = 600
#: Marks a report on the demo, or on any other mini crawl.
INVENTED_WEB: Final = "INVENTED WEB: a crawl generated for the demo; no page in it is real"
#: Maximum pages of each kind of change in a summary.
_SHOWN_PAGES: Final = 10
#: Maximum paragraphs of a text to compare: the time grows with their square.
_MAX_COMPARED: Final = 2_000
#: Rows in memory at a time; each may have two long texts.
_ROWS: Final = 16
#: Characters that set the direction of a text.
_DIRECTION_MARKS: Final = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
_REASONS: Final = {
    "not compared": "two versions of the parser found the texts, and the payloads differ",
    "unknown": "there is no text and no digest to compare",
}


def describe_changes(
    settings: Settings, slug: str, crawl_pair: tuple[str, str] | None = None, *, target_text: str = ""
) -> Iterator[str]:
    """Yields lines about the changes between two crawls (default: the last two with pages of the target): the pages of
    each domain, then the counts.

    Raises ``UserInputError`` if the target, or one of its crawls, was not located, ``EnvironmentFault`` if nothing was
    published.
    """
    with _open_comparison(settings, slug, crawl_pair, target_text) as comparison:
        counts: Counter[str] = Counter()
        domain = None
        yield comparison.title
        rows_cursor = comparison.connection.execute(comparison.pages)
        names = [column[0] for column in rows_cursor.description or []]
        while rows := rows_cursor.fetchmany(_ROWS):
            for row in (dict(zip(names, values, strict=True)) for values in rows):
                counts[row["change"]] += 1
                if row["change"] == "same":
                    continue
                if row["domain"] != domain:
                    domain = row["domain"]
                    yield from ("", f"== {_clean_line(domain or '')}")
                yield from ("", *_describe_page(row))
    yield from ("", _describe_counts(counts))


def summarize_changes(
    settings: Settings, slug: str, crawl_pair: tuple[str, str] | None = None, *, target_text: str = ""
) -> Iterator[str]:
    """Yields a summary of the changes between two crawls: the counts, then a line for each of the first pages of each
    kind of change. Arguments and errors are those of :func:`describe_changes`."""
    page = "{'url': url, 'new_url': new_url, 'likeness': likeness}"
    with _open_comparison(settings, slug, crawl_pair, target_text) as comparison:
        title = comparison.title
        change_groups = comparison.connection.execute(
            f"SELECT change, count(*), min_by({page}, (domain, url), {_SHOWN_PAGES}) FROM ({comparison.pages}) "
            "GROUP BY ALL ORDER BY 1"
        ).fetchall()
    yield title
    yield _describe_counts({change: count for change, count, _ in change_groups})
    for change, count, pages in change_groups:
        if change == "same":
            continue
        yield ""
        for page in pages:
            moved = f" -> {_clean_line(page['new_url'])}" if change == "moved" else ""
            likeness = "" if page["likeness"] is None else f"  (likeness {page['likeness']:.2f})"
            yield f"{change}: {_clean_line(page['url'])}{moved}{likeness}"
        if count > len(pages):
            yield f"and {count - len(pages):,} more {change}: --details lists all"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Two crawls of a target: the query of their ``pages``, on an open ``connection``."""

    connection: duckdb.DuckDBPyConnection
    pages: str
    title: str


@contextmanager
def _open_comparison(
    settings: Settings, slug: str, crawl_pair: tuple[str, str] | None, target_text: str
) -> Iterator[_Comparison]:
    invented = f" ({INVENTED_WEB})" if settings.is_mini_crawl else ""
    try:
        with open_bounded(settings) as connection:
            _, scope, _ = target_scope(connection, slug, target_text)
            before, after = find_crawl_pair(connection, slug, scope, crawl_pair, target_text)
            pages = sql.with_moves(sql.changes_between(quote_literal(before), quote_literal(after), scope))
            yield _Comparison(connection, pages, f"{target_text or slug} from {before} to {after}{invented}")
    except duckdb.Error as error:
        raise EnvironmentFault(
            f"the published file could not be read: {error}", "Check the disk and the lake."
        ) from error


def _describe_counts(counts: Mapping[str, int]) -> str:
    counts_text = ", ".join(f"{count:,} {change}" for change, count in sorted(counts.items()))
    return f"pages: {counts_text or 'no page was looked up in both crawls'}"


def paragraphs_between(before: str, after: str) -> Iterator[str]:
    """The paragraphs that only one of two texts has, in their order: ``- `` before, ``+ `` after."""
    old, new = _paragraphs(before), _paragraphs(after)
    for kind, before_start, before_end, after_start, after_end in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            yield from (f"- {paragraph}" for paragraph in old[before_start:before_end])
            yield from (f"+ {paragraph}" for paragraph in new[after_start:after_end])


def _paragraphs(text: str) -> list[str]:
    # A byte order mark is invisible and no word.
    lines = [" ".join(line.split()) for line in text.replace("\ufeff", " ").split("\n")]
    return [line for line in lines if line][:_MAX_COMPARED]


def _describe_page(row: dict[str, Any]) -> Iterator[str]:
    change = row["change"]
    moved = f" -> {_clean_line(row['new_url'])}" if change == "moved" else ""
    yield f"{change}: {_clean_line(row['url'])}{moved}"
    days = [f"{row[name]:%Y-%m-%d}" for name in ("before_time", "after_time") if row[name] is not None]
    likeness = "" if row["likeness"] is None else f", likeness {row['likeness']:.2f}"
    yield f"  captured {' and '.join(days) or 'at an unknown time'}{likeness}"
    titles = dict.fromkeys(_clean_line(row[name]) for name in ("before_title", "after_title") if row[name])
    if titles:
        yield f"  title: {' -> '.join(titles)}"
    if change in _REASONS:
        yield f"  {_REASONS[change]}"
    if change == "changed":
        yield from _describe_text_changes(row["before_text"], row["after_text"])


def _describe_text_changes(before: str | None, after: str | None) -> Iterator[str]:
    if before is None or after is None:
        yield "  the payload changed, and one of the two main texts is missing"
        return
    lines = list(paragraphs_between(before, after))
    yield from (f"  {_clean_line(line)}" for line in lines[:MAX_PARAGRAPHS])
    if len(lines) > MAX_PARAGRAPHS:
        yield f"  and {len(lines) - MAX_PARAGRAPHS:,} more paragraphs"
    if not lines:
        yield f"  the first {_MAX_COMPARED:,} paragraphs are equal, except for white space"
    elif max(before.count("\n"), after.count("\n")) >= _MAX_COMPARED:
        yield f"  only the first {_MAX_COMPARED:,} paragraphs were compared"


def _clean_line(text: str) -> str:
    """A text of strangers on one line, without characters that control a terminal or change the direction of text."""
    line = " ".join(text[: 4 * _CHARACTERS].split())
    printable = "".join(
        character
        for character in line
        if unicodedata.category(character) not in ("Cc", "Cs") and character not in _DIRECTION_MARKS
    )
    return printable if len(printable) <= _CHARACTERS else f"{printable[: _CHARACTERS - 1]}…"
