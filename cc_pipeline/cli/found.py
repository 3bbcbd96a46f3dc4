"""What a run found, read from the published file: tables, the ledger, each target, and what is not covered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cc_pipeline.cli.screen import console, show_table
from cc_pipeline.commoncrawl.targets import Target
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    import duckdb

#: Beyond this many (crawl, target) pairs only those without captures are named.
_SHOWN_PAIRS = 40
_NAMED = 5


def what_was_found(settings: Settings, crawls: Sequence[str], targets: Sequence[Target]) -> None:
    """Prints it for ``crawls`` × ``targets``. A target without captures and an index file that could not be read are
    named, since both look like success otherwise."""
    import duckdb

    with duckdb.connect(str(settings.published_path), read_only=True) as connection:
        rows = connection.execute(
            "SELECT table_name, lake_rows, coalesce(published_rows, lake_rows) FROM publication WHERE lake_rows > 0"
        ).fetchall()
        outcomes = connection.execute(
            "SELECT crawl, count(*), count(*) FILTER (outcome = 'fetched'), count(*) FILTER (outcome = 'quarantined'), "
            "count(*) FILTER (outcome = 'missing') FROM ledger GROUP BY crawl ORDER BY crawl DESC"
        ).fetchall()
        counts = _captures(connection)
        gaps = _gaps(connection, crawls)
    show_table("a table per stage", ["table", "rows in the lake", "published"], rows)
    show_table("the ledger", ["crawl", "planned", "fetched", "quarantined", "missing"], outcomes)
    pairs = [(crawl, target, counts.get((crawl, target.slug), 0)) for crawl in crawls for target in targets]
    if len(pairs) <= _SHOWN_PAIRS:
        asked = [(crawl, target.definition, count) for crawl, target, count in pairs]
        show_table("what was asked for", ["crawl", "target", "captures"], asked)
    empty = [f"{target.definition} in {crawl}" for crawl, target, count in pairs if not count]
    if empty:
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        subsets = ", ".join(settings.subsets)
        _note(f"no captures (subset {subsets}) of {'; '.join(empty[:_NAMED])}{more}")
    for gap in gaps:
        _note(gap)


def _captures(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    rows = connection.execute("SELECT crawl, target, count(*) FROM capture_targets GROUP BY ALL").fetchall()
    return {(crawl, target): count for crawl, target, count in rows}


def _gaps(connection: duckdb.DuckDBPyConnection, crawls: Sequence[str]) -> list[str]:
    rows = connection.execute(
        "SELECT crawl, subset, failed + missing, expected FROM coverage "
        "WHERE failed + missing > 0 AND list_contains(?, crawl) ORDER BY ALL",
        [list(crawls)],
    ).fetchall()
    notes = []
    for crawl, subset, lost, expected in rows:
        failed = connection.execute(
            "SELECT path, reason FROM index_files WHERE crawl = ? AND subset = ? AND outcome = 'failed' "
            f"ORDER BY path LIMIT {_NAMED}",
            [crawl, subset],
        ).fetchall()
        named = "".join(f"\n      {path}: {reason}" for path, reason in failed)
        notes.append(
            f"{lost:,} of {expected:,} index files of {crawl} {subset} could not be read, so captures they name are "
            f"not found; run it again to try them once more{named}"
        )
    return notes


def _note(text: str) -> None:
    console.print(f"note: {text}", highlight=False, markup=False, soft_wrap=True, style="yellow")
