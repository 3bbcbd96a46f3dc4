"""``crawls``, ``sql`` and ``metadata-json``: commands that only read."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import answer_query, checked_format, console, console_err, show_table, warn
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings, load_settings


def crawls(
    source: options.Source = None,
    home: options.Home = None,
    limit: Annotated[int, typer.Option(help="How many, newest first; 0 for all.")] = 20,
) -> None:
    """List the crawls of the source, newest first."""
    from cc_pipeline.stages.indexing.crawls import known_crawls
    from cc_pipeline.stages.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    with open_workspace(settings) as workspace:
        listed = known_crawls(workspace)
    found = listed.crawls
    if listed.note is not None:
        warn(listed.note)
    rows = [(c.id, c.era, str(c.started or ""), str(c.ended or ""), c.name) for c in found[: limit or None]]
    show_table(f"crawls of {settings.source}", ["crawl", "era", "from", "to", "name"], rows)
    if limit and len(found) > limit:
        console.print(f"{len(found) - limit:,} more: cc-pipeline crawls --limit 0")


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One query; without it a prompt opens.", show_default=False)
    ] = None,
    home: options.Home = None,
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
) -> None:
    """Query cc.duckdb, read-only: one query, or a prompt.

    [bold]Examples[/]

      cc-pipeline sql "SELECT crawl, count(*) FROM captures GROUP BY ALL ORDER BY ALL"

      cc-pipeline sql --format csv "SELECT url, title FROM page_text" > titles.csv
    """
    checked_format(output)
    settings = load_settings(home=home)
    if query is not None:
        _answer(settings, query, output)
        return
    console_err.print("Type one statement per line. SHOW TABLES lists the tables. Leave with Ctrl-D.")
    while True:
        try:
            line = input("cc> ").strip().rstrip(";")
        except EOFError:
            return
        if line.lower() in ("exit", "quit", ".quit"):
            return
        if line:
            try:
                _answer(settings, line, output)
            except UserInputError as error:
                console_err.print(f"[red]{error}[/]", highlight=False, markup=True)


def _answer(settings: Settings, query: str, output: str) -> None:
    from cc_pipeline.lake.reading import s3_place

    advice = "Publish it first: cc-pipeline run --crawl … --domain …, or make demo."
    answer_query(settings.published_path, query, output, advice=advice, lake=s3_place(settings))


#: Rows held at a time: a row of ``page_metadata`` holds all links of its page.
_BATCH = 200
#: Characters that would end a line or a column; no valid URL has them unescaped.
_ESCAPED = {ord(character): f"%{ord(character):02X}" for character in "\t\r\n"}


def metadata_json(
    where: Annotated[str, typer.Option(help="Which rows: a condition in SQL over page_metadata.")] = "true",
    compat: Annotated[
        str | None, typer.Option(help="2012: reproduce the bugs of the writer of 2012.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="At most this many rows; 0 for all.")] = 0,
    home: options.Home = None,
) -> None:
    """Print the 2012 metadata document of published pages, one a line: URL, tab, JSON.

    [bold]Examples[/]

      cc-pipeline metadata-json --where "domain = 'example.com'" > example.tsv

      cc-pipeline metadata-json --where "parsed_as = 'feed'" --limit 1 --compat 2012
    """
    import duckdb

    from cc_pipeline.documents.legacy2012.json import metadata_json as document_of
    from cc_pipeline.lake.reading import open_published, s3_place

    if compat not in (None, "2012"):
        raise UserInputError(f"--compat is {compat!r}; the only value is 2012")
    mode: Literal["2012"] | None = "2012" if compat else None
    settings = load_settings(home=home)
    path = settings.published_path
    if not path.exists():
        raise EnvironmentFault(f"{path} does not exist yet", "Publish it first: cc-pipeline run --crawl … --domain …")
    order = "crawl, warc_filename, warc_record_offset, url"
    query = f"SELECT * FROM page_metadata WHERE ({where}) ORDER BY {order}" + (f" LIMIT {limit}" if limit else "")
    with open_published(path, s3_place(settings)) as connection:
        try:
            result = connection.execute(query)
            columns = [column[0] for column in result.description or []]
            while rows := result.fetchmany(_BATCH):
                for values in rows:
                    row = dict(zip(columns, values, strict=True))
                    url = (row["url"] or "").translate(_ESCAPED)
                    sys.stdout.write(f"{url}\t{document_of(row, compat=mode)}\n")
        except duckdb.Error as error:
            raise UserInputError(f"DuckDB says: {error}") from None
