"""``files``: captures from a list, archive files as a crawl, and files that are read completely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.advice import ANY, advise, option
from cc_pipeline.api.run_steps import build_indexes, find_agreed_builds, harvest_despite_gaps, run_step
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command, Group
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.claim import claim_existing_home

if TYPE_CHECKING:
    from cc_pipeline.workspace.source_files import SourceFile
    from cc_pipeline.workspace.workspace import Workspace

_CAPTURE_COLUMNS = ("target", "crawl", "captures")
_Rows = Sequence[Sequence[object]]
_FILE_COLUMNS = ("file", "crawl", "partition key", "rows", "unreadable ranges", "reason")


def add_captures(
    settings: Settings,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Parquet, CSV, JSON or CDXJ lines; - is standard input.")],
    name: Annotated[str | None, typer.Option("--name", help="The name of the captures (default: the file's).")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="COLUMN=NAME", help="The file's name of a column; may be repeated."),
    ] = None,
    extend: Annotated[bool, typer.Option("--add", help="Add to the existing captures of this name.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the existing captures of this name with those of the file.")
    ] = False,
) -> None:
    r"""Make captures that you name one by one a target: captures:NAME.

    A row has a location: warc_filename, warc_record_offset, and warc_record_length if it is known. Columns may have the
    names of Athena, or of CDX servers and clients; map others with --column warc_filename=path.

    No capture is fetched yet: run them like any target. Rows that cannot be used are printed with their numbers, and
    the command ends with status 3. The same file given again adds nothing.

    [bold]Examples[/]

      cc-pipeline files captures rows.parquet

      cc-pipeline files captures athena.csv --name swiss-pdf

      cdxt --cc --from 2024 iter 'example.com/*' --jsonl \
        | cc-pipeline files captures - --name example

      cc-pipeline files captures mine.csv --column warc_filename=path \
        --column warc_record_offset=start

      cc-pipeline run captures:rows -c CC-MAIN-2024-22
    """
    from cc_pipeline.api.add_captures import add_captures as add
    from cc_pipeline.named_captures.reading import COLUMN_ALIASES

    columns = dict(pair.partition("=")[::2] for pair in column or ())
    if unknown_columns := [
        column_name
        for column_name, file_column in columns.items()
        if column_name not in COLUMN_ALIASES or not file_column
    ]:
        raise UserInputError(
            f"--column {unknown_columns[0]} is not understood: write COLUMN=NAME, with COLUMN one of "
            f"{', '.join(COLUMN_ALIASES)}"
        )
    added = add(settings, file, name, columns=columns, extend=extend, replace=replace)
    for note in added.notes:
        notice(note)
    notice(f"to fetch them: {added.run}")
    write_rows("", _CAPTURE_COLUMNS, [(added.target.definition, *crawl) for crawl in added.held.items()])
    if added.wrong.count:
        raise Incomplete(
            f"{format_count(added.wrong.count, 'row')} of {file} could not be used",
            option(
                add=True,
                sentence=f"The first {len(added.wrong.first)} are printed above with the reason; all other rows were "
                "added. Correct these rows, then give the file again with {}.",
            ),
        )


def add_files(
    settings: Settings,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Local files, or keys in the source; for kind warc also addresses."),
    ],
    kind: Annotated[str, typer.Option("--kind", help="sequencefile, or warc (ARC too).")],
    crawl: Annotated[
        str | None,
        typer.Option(
            "--crawl",
            "-c",
            help="Crawl of the files (default: 2012); for kind warc the collection to add them to.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="For kind warc: do not ask for agreement to the cost.")] = False,
) -> _Rows:
    r"""Read whole SequenceFiles of 2012, and publish cc.duckdb with their pages.

    For WARC and ARC files an index is built instead. They become a collection that every command accepts as a crawl.
    Records are fetched from the files where they are.

    [bold]Examples[/]

      cc-pipeline files add metadata-00000 textData-00000 --kind sequencefile

      cc-pipeline files add *.warc.gz https://example.org/more.warc.gz \
        --kind warc --crawl press

      cc-pipeline run example.com --crawl LOCAL-press  (the pages of a site)
    """
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.workspace.source_files import ARCHIVE, SEQUENCEFILE, identify, register
    from cc_pipeline.workspace.workspace import open_workspace

    if kind == ARCHIVE:
        return _add_archives(settings, files, crawl, yes)
    if kind != SEQUENCEFILE:
        raise UserInputError(f"--kind is {kind!r}; choose {SEQUENCEFILE} or {ARCHIVE}")
    with open_workspace(settings) as workspace:
        source_files = [identify(workspace.transport, location, crawl) for location in files]
        register(workspace, source_files)
        slugs = list(dict.fromkeys(file.slug for file in source_files))
        with StageRunner(workspace) as runner, progress_bars():
            run_step("files", lambda: runner.read_source_files(slugs))
            run_step("cc.duckdb", runner.publish)
        counts = {file: _count_rows(settings, file.slug) for file in source_files}
        return _describe_files(workspace, counts, nothing_found="no page was found")


def _add_archives(settings: Settings, files: list[str], collection_name: str | None, yes: bool) -> _Rows:
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.harvesting.archives import collection_id, register_archives
    from cc_pipeline.workspace.workspace import open_workspace

    crawl = collection_id(collection_name)
    claim_existing_home(settings)
    with open_workspace(settings) as workspace:
        added = register_archives(workspace, files, crawl)
        to_build = find_agreed_builds(workspace, [crawl], yes)
        with StageRunner(workspace) as runner, progress_bars():
            build_indexes(runner, to_build)
            harvest_despite_gaps(lambda: run_step("index", lambda: runner.harvest_changed([crawl])))
        counts = _count_captures(workspace, crawl, added)
        rows = _describe_files(workspace, counts, nothing_found="no capture is in its index")
    notice(f"to get the pages of a site from these files: {advise('run', ANY, crawl=crawl)}")
    return rows


def _count_captures(workspace: Workspace, crawl: str, files: list[SourceFile]) -> dict[SourceFile, int]:
    """Returns the number of captures in the index of each file, by the catalog; 0 without an index."""
    from cc_pipeline.harvesting.archives import archive_files
    from cc_pipeline.harvesting.catalog import open_catalog

    keys = {shard.filename: shard.key for shard in archive_files(workspace, crawl)}
    with open_catalog(workspace.lake) as catalog:
        indexes = catalog.index_files(crawl).select(["path", "rows"]).to_pylist()
    rows = {index["path"]: index["rows"] or 0 for index in indexes}
    return {file: rows.get(keys.get(file.location, ""), 0) for file in files}


def _count_rows(settings: Settings, slug: str) -> int:
    """Returns the number of rows that were read from a file."""
    from cc_pipeline.lake.published_file import open_home_publication

    tables = ("page_metadata", "page_text", "page_links", "feed_items")
    counts = " UNION ALL ".join(f"SELECT count(*) AS rows FROM lake.{table} WHERE target = $1" for table in tables)
    with open_home_publication(settings) as connection:
        [(count,)] = connection.execute(f"SELECT sum(rows)::BIGINT FROM ({counts})", [slug]).fetchall()
    return int(count)


def _describe_files(workspace: Workspace, counts: dict[SourceFile, int], *, nothing_found: str) -> _Rows:
    """Returns a row for each file, with the byte ranges that could not be read, and the first reason if the file has no
    rows: ``nothing_found`` if all of it was read. Raises ``UserInputError`` if no file has any row."""
    from cc_pipeline.workspace.source_files import MAX_FAULT_ROWS

    rows: list[tuple[str, str, str, int, int, str]] = []
    for file, count in counts.items():
        where = {"crawl": file.crawl, "target": file.slug}
        faults = workspace.lake.read("source_faults", where, ["byte_offset", "reason"]).to_pylist()
        reason = f"at byte {faults[0]['byte_offset'] or 0:,}: {faults[0]['reason']}" if faults else nothing_found
        name = file.location.rpartition("/")[2]
        rows.append((name, file.crawl, file.slug, count, len(faults), "" if count else reason))
    if rows and not any(counts.values()):
        examples = "; ".join(f"{row[0]} ({row[4]} unreadable ranges, {row[5]})" for row in rows[:3])
        raise UserInputError(f"nothing was found in {format_count(len(rows), 'file')}: {examples}")
    if unread := sum(row[4] for row in rows):
        # more ranges of a file are not stored
        at_least = "at least " if max(row[4] for row in rows) >= MAX_FAULT_ROWS else ""
        notice(
            f"{at_least}{format_count(unread, 'byte range')} could not be read; to list them: "
            f"{advise('sql', 'FROM source_faults')}"
        )
    return rows


COMMANDS = {
    "files": Group(
        "Files of your own: lists of captures, archive files as a crawl, and files that are read completely.",
        FEATURES,
        70,
    ),
    "files captures": Command(add_captures, options=options.REMOTE, columns=_CAPTURE_COLUMNS),
    "files add": Command(add_files, options=options.REMOTE, columns=_FILE_COLUMNS),
}
