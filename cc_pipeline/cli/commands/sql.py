"""``crawls``, ``sql`` and ``metadata-json``: commands that only read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cc_pipeline import interruption
from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, console_err, notice, show_table, warn
from cc_pipeline.errors import CcPipelineError, UserInputError
from cc_pipeline.settings import Settings, load_settings

if TYPE_CHECKING:
    import duckdb
    from prompt_toolkit.history import History
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import Output


_LEAVE = ("exit", "quit", "\\q", ".quit", ".exit")
_GREETING = "A statement ends with ; and Enter. Tab completes names, SHOW TABLES; lists tables. Leave with Ctrl-D."
_NAMES = (
    "SELECT DISTINCT name FROM (SELECT table_name AS name FROM information_schema.tables UNION ALL "
    "SELECT column_name FROM information_schema.columns WHERE table_schema = 'main') ORDER BY 1"
)


def converse(
    connection: duckdb.DuckDBPyConnection,
    history: Path,
    ask: Callable[[str], object],
    *,
    screen: tuple[Input, Output] | None = None,
) -> None:
    """Hands what a person types to ``ask``, until they leave; an error is shown, and the next statement awaited.

    Ctrl-C drops what is typed, or ends the query that runs. ``history`` is a file that what was typed is kept in.
    ``screen`` is another terminal than this process's, for tests.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import FuzzyWordCompleter
    from prompt_toolkit.filters import Condition

    session: PromptSession[str] = PromptSession(
        history=_kept(history),
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="..> ",
        completer=FuzzyWordCompleter(lambda: [row[0] for row in connection.execute(_NAMES).fetchall()]),
        complete_while_typing=Condition(lambda: False),
        enable_open_in_editor=True,
        input=screen[0] if screen else None,
        output=screen[1] if screen else None,
    )
    notice(_GREETING)
    while True:
        try:
            text = session.prompt("cc> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.rstrip(";").strip().lower() in _LEAVE:
            return
        try:
            with interruption.of_one_step():
                ask(text)
        except CcPipelineError as error:
            console_err.print(str(error), style="red")
        except KeyboardInterrupt:
            notice("stopped")


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    from cc_pipeline.cli.answers import is_complete

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        """Enter ends a statement that is whole, a word that leaves, and, on an empty line, anything."""
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.lower() in _LEAVE or is_complete(text) or not buffer.document.current_line.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _kept(path: Path) -> History:
    """The history in ``path``, which nobody else may read; in memory where it cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    with suppress(OSError):
        path.chmod(0o600)
    return FileHistory(str(path))


def crawls(
    source: options.Source = None,
    home: options.Home = None,
    limit: Annotated[int, typer.Option(help="How many, newest first; 0 for all.")] = 20,
) -> None:
    """List the crawls of the source, newest first."""
    from cc_pipeline.indexing.crawls import known_crawls
    from cc_pipeline.workspace.workspace import open_workspace

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
        str | None,
        typer.Argument(
            help="Statements, or @FILE with them, or - for standard input; without any a prompt opens.",
            show_default=False,
        ),
    ] = None,
    home: options.Home = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format", show_default=False, help="table, csv, jsonl or parquet (default: by --out, or table)."
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Short for --format csv.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format jsonl: an object a line.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", show_default=False, help="Write the result to this file.")
    ] = None,
) -> None:
    """Query cc.duckdb, read-only: statements that end with ;, or a prompt.

    Every result shows. On a terminal cells are cut to fit; in a pipe and in the other formats they are whole.

    [bold]Examples[/]

      cc-pipeline sql "SELECT crawl, count(*) FROM captures GROUP BY ALL ORDER BY ALL"

      cc-pipeline sql --csv "SELECT url, title FROM page_text" > titles.csv

      cc-pipeline sql "FROM page_metadata" --out pages.parquet

      cc-pipeline sql @questions.sql
    """
    from cc_pipeline.cli.answers import answer, chosen_format, explained

    settings = load_settings(home=home)
    chosen = chosen_format(output, out, csv=as_csv, json=as_json)
    if query is None and not sys.stdin.isatty():
        query = "-"
    text = None if query is None else options.text_meant(query)
    with open_answers(settings) as connection:
        if text is None:

            def ask(typed: str) -> None:
                with explained(settings.published_path):
                    answer(connection, typed, chosen, out)

            converse(connection, settings.home / "sql_history", ask)
        else:
            answer(connection, text, chosen, out)


@contextmanager
def open_answers(settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    """The home's cc.duckdb, read-only, for the length of the block; DuckDB's errors inside become ours.

    Raises ``EnvironmentFault`` where nothing was published or a file cannot be read, ``UserInputError`` for a
    statement that DuckDB refuses.
    """
    from cc_pipeline.cli.answers import explained
    from cc_pipeline.lake.reading import open_settled

    with explained(settings.published_path), open_settled(settings) as connection:
        yield connection


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
    from cc_pipeline.documents.document2012.json import metadata_json as document_of

    if compat not in (None, "2012"):
        raise UserInputError(f"--compat is {compat!r}; the only value is 2012")
    mode: Literal["2012"] | None = "2012" if compat else None
    order = "crawl, warc_filename, warc_record_offset, url"
    query = f"SELECT * FROM page_metadata WHERE ({where}) ORDER BY {order}" + (f" LIMIT {limit}" if limit else "")
    with open_answers(load_settings(home=home)) as connection:
        result = connection.execute(query)
        columns = [column[0] for column in result.description or []]
        while rows := result.fetchmany(_BATCH):
            for values in rows:
                row = dict(zip(columns, values, strict=True))
                url = (row["url"] or "").translate(_ESCAPED)
                sys.stdout.write(f"{url}\t{document_of(row, compat=mode)}\n")
