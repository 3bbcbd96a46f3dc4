"""``metadata-json``: rows of page_metadata as the JSON documents of 2012."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from cc_pipeline.cli import options
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import load_settings

_BATCH = 200
#: What would end a line or a column of it; no valid URL has it unescaped.
_ESCAPED = {ord(character): f"%{ord(character):02X}" for character in "\t\r\n"}


def metadata_json(
    where: Annotated[str, typer.Option(help="Which rows: a condition in SQL over page_metadata.")] = "true",
    compat: Annotated[
        str | None, typer.Option(help="2012: with the bugs the writer had in 2012.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many; 0 for all.")] = 0,
    home: options.Home = None,
) -> None:
    """Print the 2012 metadata document of published pages, one a line: URL, tab, JSON.

    [bold]Examples[/]

      cc-pipeline metadata-json --where "domain = 'example.com'" > example.tsv

      cc-pipeline metadata-json --where "parsed_as = 'feed'" --limit 1 --compat 2012
    """
    import duckdb

    from cc_pipeline.documents.legacy_json import metadata_json as document_of

    if compat not in (None, "2012"):
        raise UserInputError(f"--compat is {compat!r}; the only one there is: 2012")
    mode: Literal["2012"] | None = "2012" if compat else None
    path = load_settings(home=home).published_path
    if not path.exists():
        raise EnvironmentFault(f"{path} is not there yet", "Publish it first: cc-pipeline run --crawl … --domain …")
    order = "crawl, warc_filename, warc_record_offset, url"
    query = f"SELECT * FROM page_metadata WHERE ({where}) ORDER BY {order}" + (f" LIMIT {limit}" if limit else "")
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
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
