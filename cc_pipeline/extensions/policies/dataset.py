"""A data set of main texts: pages pass one filter after the other, and a datasheet counts the pages that each removed.

The metrics of most filters are columns of ``page_text``, so a text is read once, to compare whole texts. DuckDB runs
all queries within a memory limit; near copies are found from sketches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.policies.dataset_filters import (
    PRESETS,
    failed_rules,
    unapplied_rules,
)
from cc_pipeline.extensions.policies.near_copies import near_duplicates, sketch_array
from cc_pipeline.extensions.policies.usage_preferences import (
    JudgmentTime,
    PreferenceCounts,
    count_unknown,
    describe_preference,
    describe_preferences,
    join_preferences,
    preference_condition,
)
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.progress import format_count

_FUNCTION: Final = "failed_rules"
_PLACE: Final = (*CAPTURE, "url")
#: Sketches of one batch.
_BATCH: Final = 16_384
#: The first of a page's languages.
_LANGUAGE: Final = "content_languages[1]"
_TEXT_COLUMNS: Final = (
    f"url, title, {_LANGUAGE} AS language, fetch_time, main_content AS text, main_content_extractor AS extractor, "
    "quality.words AS words, domain, crawl, warc_filename, warc_record_offset, warc_record_length, content_digest"
)

#: Maximum domains in the Markdown; the JSON has all of them.
_MAX_DOMAINS: Final = 50


@dataclass(frozen=True, slots=True)
class Recipe:
    """The filters of a data set. ``languages`` are ISO 639-3 codes (empty: all), word counts are those of the main
    text, ``rules`` are names in ``PRESETS``, and ``near`` is the share of common five-word runs of near copies
    (``None``: near copies are kept).

    ``respect`` are preferences of ``usage_preferences.py``, judged ``as_of`` the fetch or the latest capture.
    ``known_only`` also removes pages with an unknown preference."""

    languages: tuple[str, ...] = ()
    min_words: int = 50
    max_words: int = 100_000
    rules: tuple[str, ...] = ("gopher", "c4")
    exact: bool = True
    near: float | None = 0.8
    respect: tuple[str, ...] = ()
    as_of: JudgmentTime = "fetch"
    known_only: bool = False

    def __post_init__(self) -> None:
        unknown_rules = [name for name in self.rules if name not in PRESETS]
        if unknown_rules:
            raise UserInputError(f"{unknown_rules[0]!r} is not a set of rules; there are: {', '.join(PRESETS)}")
        if not 0 <= self.min_words <= self.max_words:
            raise UserInputError(
                f"no text has between {self.min_words} and {self.max_words} words; write the smaller number first"
            )
        if self.near is not None and not 0.5 <= self.near <= 1:
            raise UserInputError(
                f"the share of common runs of near copies is {self.near}; give 0.5 to 1, or 0 to keep near copies"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """One filter: the condition on a page, the number of pages before it, and the number that it removed."""

    name: str
    meaning: str
    page_count: int
    removed: int


@dataclass(slots=True)
class FilterResult:
    """The result of filtering. ``by_language`` and ``by_domain`` count the remaining pages; ``sql`` selects them."""

    pages: int
    steps: list[Step] = field(default_factory=list)
    kept_pages: int = 0
    words: int = 0
    by_language: dict[str, int] = field(default_factory=dict)
    by_domain: dict[str, int] = field(default_factory=dict)
    by_crawl: dict[str, int] = field(default_factory=dict)
    #: Rules without a threshold for a language, for each language of the pages that reached the presets.
    not_applied: dict[str, list[str]] = field(default_factory=dict)
    #: With preferences: the counts of all pages, and by preference the remaining pages for which it is unknown.
    preference_counts: PreferenceCounts | None = None
    unknown_preferences: dict[str, int] = field(default_factory=dict)
    sql: str = ""
    #: Crawls of all pages, including removed ones.
    crawls: tuple[str, ...] = ()


def filter_pages(connection: duckdb.DuckDBPyConnection, pages: str, recipe: Recipe, scratch: Path) -> FilterResult:
    """Filters the rows of ``pages`` (a query with the columns of ``page_text``) by ``recipe``.

    Of several copies, the one with the most words is kept, and the newest of equally long ones. A file in ``scratch``,
    attached to ``connection`` as ``filter_pages``, holds metrics and sketches of the pages; ``sql`` of the result reads
    it. Raises ``UserInputError`` if the published file lacks the metrics, ``EnvironmentFault`` if the disk fails."""
    connection.execute(f"ATTACH {quote_literal(str(scratch / 'sieve.duckdb'))} AS sieve (READ_WRITE)")
    place = ", ".join(_PLACE)
    seen = None
    if recipe.respect:
        pages, seen = join_preferences(connection, pages, recipe.respect, recipe.as_of)
    tests = [*_build_tests(recipe)]
    fails = ", ".join(f"coalesce(NOT ({sql}), true) AS f{number}" for number, (_, sql, _) in enumerate(tests))
    presets = [rules for rules in recipe.rules if rules in PRESETS]
    failures = _register_failures(connection, presets)
    first = " ".join(f"WHEN f{number} THEN {number}" for number in range(len(tests)))
    try:
        connection.execute(
            "CREATE TABLE sieve.main.pages AS SELECT row_number() OVER (ORDER BY words DESC, fetch_time DESC NULLS "
            "LAST, url, crawl, warc_filename, warc_record_offset) - 1 AS rank, *, "
            f"CASE {first} ELSE {len(tests)} END AS step FROM (SELECT {place}, language, fetch_time, domain, "
            "quality.words AS words, md5(main_content) AS digest, content_minhash AS sketch, "
            f"{fails} FROM (SELECT *, {failures} AS failures FROM (SELECT *, {_LANGUAGE} AS language FROM ({pages}))))"
        )
    except duckdb.BinderException as error:
        raise UserInputError(f"the published file lacks metrics that the filters need: {error}") from None
    finally:
        if presets:
            connection.remove_function(_FUNCTION)
    execute = connection.execute
    [(count,)] = execute("SELECT count(*) FROM sieve.main.pages").fetchall()
    filtered = FilterResult(count, preference_counts=seen)
    filtered.crawls = tuple(
        name for (name,) in execute("SELECT DISTINCT crawl FROM sieve.main.pages ORDER BY 1").fetchall()
    )
    removed_by_step = dict(execute("SELECT step, count(*) FROM sieve.main.pages GROUP BY ALL").fetchall())
    languages = execute(
        "SELECT DISTINCT language FROM sieve.main.pages WHERE language IS NOT NULL AND words > 0 ORDER BY 1"
    )
    for (code,) in languages.fetchall():
        if missing_rules := unapplied_rules(presets, code):
            filtered.not_applied[code] = missing_rules
    remaining_pages = count
    for number, (name, _, meaning) in enumerate(tests):
        filtered.steps.append(Step(name, meaning, remaining_pages, removed_by_step.get(number, 0)))
        remaining_pages -= removed_by_step.get(number, 0)
    kept_condition = f"step = {len(tests)}"
    if recipe.exact:
        remaining_pages = _drop_exact_copies(connection, filtered, kept_condition, remaining_pages)
    if recipe.near is not None:
        remaining_pages = _drop_near_copies(connection, filtered, kept_condition, remaining_pages, recipe.near, scratch)
    filtered.kept_pages = remaining_pages
    [(words,)] = execute(f"SELECT coalesce(sum(words), 0) FROM sieve.main.pages WHERE {kept_condition}").fetchall()
    filtered.words = int(words)
    for name, counts in (
        ("language", filtered.by_language),
        ("domain", filtered.by_domain),
        ("crawl", filtered.by_crawl),
    ):
        groups_query = (
            f"SELECT coalesce({name}, ''), count(*) FROM sieve.main.pages WHERE {kept_condition} GROUP BY ALL"
        )
        counts.update(execute(f"{groups_query} ORDER BY 2 DESC, 1").fetchall())
    if recipe.respect:
        kept_query = f"SELECT {place} FROM sieve.main.pages WHERE {kept_condition}"
        filtered.unknown_preferences = count_unknown(connection, kept_query, recipe.respect)
    same_place = " AND ".join(f"p.{name} IS NOT DISTINCT FROM s.{name}" for name in _PLACE)
    filtered.sql = (
        f"SELECT {_TEXT_COLUMNS} FROM ({pages}) p "
        f"SEMI JOIN (SELECT {place} FROM sieve.main.pages WHERE {kept_condition}) s ON {same_place}"
    )
    return filtered


def _build_tests(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """Yields name, condition and meaning of each filter, in order. A null metric fails."""
    yield "status", "fetch_status IS NULL OR fetch_status BETWEEN 200 AND 299", "a status of success"
    yield "main_text", "quality.words > 0", "has a main text"
    for preference in recipe.respect:
        description = (
            f"{describe_preference(preference)}, and its preference is known"
            if recipe.known_only
            else describe_preference(preference)
        )
        yield f"respect {preference}", preference_condition(preference, known_only=recipe.known_only), description
    if recipe.languages:
        description = ", ".join(map(quote_literal, recipe.languages))
        yield "language", f"language IN ({description})", f"first language is one of {', '.join(recipe.languages)}"
    yield (
        "words",
        f"quality.words BETWEEN {recipe.min_words} AND {recipe.max_words}",
        f"{recipe.min_words:,} to {format_count(recipe.max_words, 'word')}",
    )
    for rules in recipe.rules:
        for rule in PRESETS[rules]:
            name = f"{rules}: {rule.name}"
            yield name, f"NOT list_contains(failures, {quote_literal(name)})", rule.meaning


def _register_failures(connection: duckdb.DuckDBPyConnection, presets: Sequence[str]) -> str:
    """Registers a function and returns the expression of the rules that a page's text fails, null without a text."""
    if not presets:
        return "NULL::VARCHAR[]"
    connection.create_function(  # type: ignore[call-overload]  # its stubs want objects for names
        _FUNCTION,
        lambda text, language: None if not text else sorted(failed_rules(text, language, presets)),
        ["VARCHAR", "VARCHAR"],
        "VARCHAR[]",
        null_handling="special",
    )
    return f"{_FUNCTION}(main_content, language)"


def _drop_exact_copies(
    connection: duckdb.DuckDBPyConnection, filtered: FilterResult, kept_condition: str, page_count: int
) -> int:
    pages_before = page_count
    connection.execute(
        f"UPDATE sieve.main.pages SET step = -1 WHERE {kept_condition} AND rank NOT IN "
        f"(SELECT min(rank) FROM sieve.main.pages WHERE {kept_condition} GROUP BY digest)"
    )
    [(pages_after,)] = connection.execute(f"SELECT count(*) FROM sieve.main.pages WHERE {kept_condition}").fetchall()
    filtered.steps.append(
        Step("exact copies", "its text is not a copy of another text", pages_before, pages_before - pages_after)
    )
    return int(pages_after)


def _drop_near_copies(
    connection: duckdb.DuckDBPyConnection,
    filtered: FilterResult,
    kept_condition: str,
    page_count: int,
    min_similarity: float,
    scratch: Path,
) -> int:
    ranks: list[npt.NDArray[np.int64]] = []

    def read_sketches() -> Iterator[npt.NDArray[np.uint32]]:
        sketch_rows = connection.sql(
            f"SELECT rank, sketch FROM sieve.main.pages WHERE {kept_condition} AND len(sketch) = 64 ORDER BY rank"
        )
        for batch in sketch_rows.to_arrow_reader(_BATCH):
            ranks.append(batch.column(0).to_numpy())
            yield sketch_array(batch.column(1))

    dropped = near_duplicates(read_sketches(), min_similarity, scratch)
    if len(dropped):
        numbers = np.concatenate(ranks)
        dropped_ranks = pa.table({"rank": numbers[dropped[:, 0]]})
        connection.register("_gone", dropped_ranks)
        connection.execute("UPDATE sieve.main.pages SET step = -2 WHERE rank IN (SELECT rank FROM _gone)")
        connection.unregister("_gone")
    filtered.steps.append(
        Step(
            "near copies",
            f"less than {min_similarity:g} of its five-word runs are in another text",
            page_count,
            len(dropped),
        )
    )
    return page_count - len(dropped)


def build_datasheet(filtered: FilterResult, recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """The counts of each filter, as Markdown and as JSON."""
    lines = ["## Pages that each filter removed", "", "| filter | condition | pages | removed |", "|---|---|---|---|"]
    for step in filtered.steps:
        lines.append(f"| {step.name} | {step.meaning} | {step.page_count:,} | {step.removed:,} |")
    lines.append(f"| **kept** | | {filtered.kept_pages:,} | |")
    lines += [
        "",
        f"{filtered.kept_pages:,} of {filtered.pages:,} pages are kept, with {format_count(filtered.words, 'word')}.",
        "",
    ]
    lines.append(
        "The copy with the most words is kept; of equally long copies, the newest. Texts are not changed: lines that C4"
    )
    lines.append("would drop are kept, but not counted. A page without a metric fails the filter of that metric.")
    if filtered.not_applied:
        lines += ["", "| language | rules without a threshold for it, not applied |", "|---|---|"]
        lines += [f"| {name} | {', '.join(rules)} |" for name, rules in filtered.not_applied.items()]
    if filtered.preference_counts is not None:
        lines += describe_preferences(filtered.preference_counts, filtered.unknown_preferences, recipe.as_of)
    for title, counts in (
        ("language", filtered.by_language),
        ("crawl", filtered.by_crawl),
        ("domain", filtered.by_domain),
    ):
        lines += ["", f"| {title} | pages |", "|---|---|"]
        lines += [f"| {name or 'unknown'} | {count:,} |" for name, count in list(counts.items())[:_MAX_DOMAINS]]
        if len(counts) > _MAX_DOMAINS:
            lines.append(f"| {len(counts) - _MAX_DOMAINS:,} more | {sum(list(counts.values())[_MAX_DOMAINS:]):,} |")
    document: dict[str, Any] = {
        "recipe": {
            "languages": list(recipe.languages),
            "min_words": recipe.min_words,
            "max_words": recipe.max_words,
            "rules": list(recipe.rules),
            "exact_copies": recipe.exact,
            "near_copies": recipe.near,
            "respect": list(recipe.respect),
            "as_of": recipe.as_of,
            "known_only": recipe.known_only,
        },
        "pages": filtered.pages,
        "filters": [
            {
                "name": step.name,
                "wanted": step.meaning,
                "came": step.page_count,
                "removed": step.removed,
            }
            for step in filtered.steps
        ],
        "not_applied": filtered.not_applied,
        "asked_of_robots": None
        if filtered.preference_counts is None
        else {**asdict(filtered.preference_counts), "unknown_among_left": filtered.unknown_preferences},
        "left": filtered.kept_pages,
        "words": filtered.words,
        "languages": filtered.by_language,
        "crawls": filtered.by_crawl,
        "domains": filtered.by_domain,
    }
    return "\n".join(lines), document
