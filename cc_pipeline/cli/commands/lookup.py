"""``lookup``: the captures of targets, or how many pages and bytes they are."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cc_pipeline.api.lookups import (
    PLACE,
    LookupRequest,
    columns_to_read,
    look_up_captures,
    look_up_each_crawl,
    open_lookup,
    refuse_failed,
    report_costs,
)
from cc_pipeline.api.user_input import check_format, names_with_captures, read_targets
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import MAX_CRAWL_LINES, YEAR, choose_format, notice, warn, write_rows
from cc_pipeline.commoncrawl.domains import suggest_name, suggest_names
from cc_pipeline.errors import UserInputError
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

#: The most targets without captures that are named.
_MAX_NAMED_TARGETS: Final = 20


def lookup(
    settings: Settings,
    targets: options.Targets,
    crawl: options.Crawls,
    count: Annotated[
        bool, typer.Option("--count", help="Count pages, captures, archive files and bytes of each target instead.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="CONDITION", help="Only captures that match: 'status=200 and mime=text/html' …"
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--format", help="table, json, csv or parquet (default: by the name of --out).")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file, not to standard output.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Comma-separated columns; fewer are cheaper to read.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most this many captures; 0 for all.")] = 0,
    harvest: Annotated[bool, typer.Option("--harvest", help="First harvest the index of crawls that need it.")] = False,
) -> None:
    r"""Find the captures of targets in crawls, in the cheapest index or in the one that --index names.

    Captures go to standard output (or --out). Notes about what was read, and about gaps, go to standard error.

    [bold]Examples[/]

      cc-pipeline lookup example.com --crawl CC-MAIN-2024-22

      cc-pipeline lookup example.com -c CC-MAIN-2012 --index btree --format json

      cc-pipeline lookup suffix:gov.uk -c newest \
        --where "status=200 and mime=text/html" --out gov.parquet

      cc-pipeline lookup example.com example.org -c 2018..2024 --count

      cc-pipeline lookup example.com -c newest --columns url,fetch_time | head

      cc-pipeline lookup url:example.com/about -c 2018..2024 --out about.parquet

      cc-pipeline lookup tld:ch -c newest --where mime=application/pdf \
        --out swiss.parquet

    Crawls are searched one after the other, the newest first, and each result is written at once. A crawl without an
    index is skipped with a note. If the index of a crawl cannot be read, the command names it and ends with status 3.

    With --count, [bold]pages[/] are distinct URLs, [bold]captures[/] their captures, [bold]bytes[/] their compressed
    records. [bold]to read[/] is how many bytes a fetch would read: neighbouring records are read together.
    """
    from cc_pipeline.cli.capture_output import capture_writer, choose_columns
    from cc_pipeline.commoncrawl.conditions import parse_condition

    condition = parse_condition(where).text if where else ""
    if count:
        if out is not None or columns is not None or limit:
            raise UserInputError("--count cannot be combined with --out, --columns or --limit")
        with open_lookup(settings, read_targets(targets), crawl, where=condition, harvest=harvest) as question:
            _print_counts(question, check_format(output or "table"))
        return
    output_format = choose_format(output, out)
    names = choose_columns(columns, output_format)
    read = columns_to_read(names)
    with (
        open_lookup(settings, read_targets(targets), crawl, where=condition, harvest=harvest) as question,
        capture_writer(output_format, names, out) as write,
    ):
        remaining = limit or None

        def ask(crawl: str) -> list[pa.Table]:
            return look_up_captures(question, crawl, read)

        failed: list[str] = []
        found_slugs: set[str] = set()
        searched_crawls: list[str] = []
        # one crawl's captures are held at a time
        for crawl_id, tables in look_up_each_crawl(question.crawls, ask, failed):
            searched_crawls.append(crawl_id)
            found_slugs.update(
                target.slug for target, table in zip(question.targets, tables, strict=True) if table.num_rows
            )
            for table in tables:
                part = table if remaining is None else table.slice(0, remaining)
                write(part)
                remaining = None if remaining is None else remaining - part.num_rows
            sys.stdout.flush()
            if remaining == 0:
                report_costs(question.costs)
                notice(f"stopped after {format_count(limit, 'capture')} (--limit); there may be more")
                return
        report_costs(question.costs)
        absent = [target.definition for target in question.targets if target.slug not in found_slugs]
        if found_slugs and absent:
            absent_names = suggest_names(absent, names_with_captures(settings))
            notice(f"no captures of {list_first(absent_names, _MAX_NAMED_TARGETS)}")
        if out is not None:
            # an incomplete file must not appear, and an empty one must replace none
            refuse_failed(question, failed)
            _refuse_unfound(question, searched_crawls, found_slugs)
    refuse_failed(question, failed)
    _refuse_unfound(question, searched_crawls, found_slugs)


def _refuse_unfound(question: LookupRequest, crawls: Sequence[str], found_slugs: Collection[str]) -> None:
    """Raises ``UserInputError`` if no target has a capture in any of the searched ``crawls``. With index gaps, that is
    unknown."""
    if not found_slugs and question.targets and crawls and not question.settings.max_index_gaps:
        first_target, *more_targets = question.targets
        more_note = f" and {len(more_targets):,} more" if more_targets else ""
        where = crawls[0] if len(crawls) == 1 else format_count(len(crawls), "crawl")
        name = suggest_name(first_target.definition, names_with_captures(question.settings))
        raise UserInputError(f"the index of {where} lists no capture of {name}{more_note}")


def _print_counts(original_question: LookupRequest, output: str) -> None:
    """Writes the counts of each target by crawl: pages, captures, archive files, bytes, and the cost of a fetch."""
    import pyarrow as pa

    from cc_pipeline.checks.omissions import describe_omitted_subsets
    from cc_pipeline.commoncrawl.index_schema import distinct_captures

    columns = ["crawl", "target", "pages", "captures", "files", "bytes", "requests to fetch", "to read"]
    failed: list[str] = []
    counts: dict[str, dict[str, int]] = {}
    # a list of reversed names is one target, but a person who lists names wants a row for each
    single = tuple(
        {
            single_target.slug: single_target
            for target in original_question.targets
            for single_target in (target.members or (target,))
        }.values()
    )
    question = replace(original_question, targets=single)

    def rows() -> Iterator[Sequence[object]]:
        for crawl_id, tables in look_up_each_crawl(
            question.crawls, lambda crawl: look_up_captures(question, crawl, PLACE), failed
        ):
            yield from (
                (crawl_id, single_target.definition, *_measure_captures(table))
                for single_target, table in zip(single, tables, strict=True)
            )
            if len(single) > 1:
                yield (crawl_id, "all of them", *_measure_captures(distinct_captures(pa.concat_tables(tables))))
            counts[crawl_id] = {
                single_target.slug: table.num_rows for single_target, table in zip(single, tables, strict=True)
            }

    if output == "table":
        _show_counts(columns, [*rows()])
    else:
        # lines for programs appear as they are found
        write_rows("what there is", columns, rows(), output)
    report_costs(question.costs)
    for note in describe_omitted_subsets(question.workspace, [*counts], single):
        warn(note)
    found_slugs = {slug for crawl_counts in counts.values() for slug, count in crawl_counts.items() if count}
    refuse_failed(question, failed)
    _refuse_unfound(question, [*counts], found_slugs)


def _show_counts(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Shows counts in few lines and columns: a line a crawl, of many crawls a line a year. JSON and CSV have a line for
    each crawl and all columns."""
    crawl_count = len({row[0] for row in rows})
    if crawl_count > MAX_CRAWL_LINES:
        # pages of several crawls are the same ones, so they cannot be added
        columns = ("year", "target", *columns[3:])
        rows = _sum_by_year(rows)
        notice(f"{crawl_count:,} crawls by year; a line for each: --format csv")
    if len({row[1] for row in rows}) == 1:
        columns, rows = (columns[0], *columns[2:]), [(row[0], *row[2:]) for row in rows]
    write_rows("what there is", columns, rows, "table")


def _sum_by_year(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Adds the counts of a target in the crawls of a year, in the order of the rows."""
    sums: dict[tuple[str, str], list[int]] = {}
    for crawl, target, _, *counts in rows:
        year = YEAR.search(crawl)
        group = sums.setdefault((crawl if year is None else year[0], target), [0] * len(counts))
        group[:] = map(sum, zip(group, counts, strict=True))
    return [(*group, *counts) for group, counts in sums.items()]


def _measure_captures(captures: pa.Table) -> tuple[int, int, int, int, int, int]:
    import pyarrow.compute as pc

    from cc_pipeline.records.range_plan import price_of

    price = price_of(captures)
    pages = pc.count_distinct(captures["url_surtkey"]).as_py()
    return pages, captures.num_rows, price.files, price.record_bytes, price.requests, price.bytes


_OPTIONS = (options.INDEX, options.SUBSET, options.ALLOW_GAPS, options.WAIT, options.YES, *options.REMOTE)
COMMANDS = {"lookup": Command(lookup, EVERYDAY, 30, _OPTIONS)}
