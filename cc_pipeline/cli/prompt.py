"""The prompt of ``cc-pipeline sql``: statements over several lines, history, completion of names with Tab."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import FuzzyWordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from cc_pipeline import interruption
from cc_pipeline.cli.output import console_err, notice
from cc_pipeline.cli.sql_results import is_complete
from cc_pipeline.errors import CcPipelineError

if TYPE_CHECKING:
    import duckdb
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

_EXIT_WORDS = ("exit", "quit", "\\q", ".quit", ".exit")
_GREETING = "A statement ends with ; and Enter. Tab completes names, SHOW TABLES; lists tables. Leave with Ctrl-D."
_NAMES = (
    "SELECT DISTINCT name FROM (SELECT table_name AS name FROM information_schema.tables UNION ALL "
    "SELECT column_name FROM information_schema.columns WHERE table_schema = 'main' UNION ALL "
    "SELECT function_name FROM duckdb_functions() WHERE NOT internal) ORDER BY 1"
)


def prompt_statements(
    connection: duckdb.DuckDBPyConnection,
    history: Path,
    run_statement: Callable[[str], object],
    *,
    screen: tuple[Input, Output] | None = None,
) -> None:
    """Passes each typed statement to ``run_statement`` until the person leaves. Errors are printed, and the prompt
    continues.

    Ctrl-C clears the input, or stops the running query. ``history`` is the history file. ``screen`` is another
    terminal, for tests.
    """
    session: PromptSession[str] = PromptSession(
        history=_open_history(history),
        multiline=True,
        key_bindings=_key_bindings(),
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
        if text.rstrip(";").strip().lower() in _EXIT_WORDS:
            return
        try:
            with interruption.interruptible_step():
                run_statement(text)
        except CcPipelineError as error:
            console_err.print(str(error), style="red", highlight=False, markup=False)
        except KeyboardInterrupt:
            notice("stopped")


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        """Submits a complete statement, a word that leaves, and, on an empty line, anything."""
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.lower() in _EXIT_WORDS or is_complete(text) or not buffer.document.current_line.strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _open_history(path: Path) -> History:
    """Returns the history in ``path``, readable by its owner only; in memory if it cannot be written."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    with suppress(OSError):
        path.chmod(0o600)
    return FileHistory(str(path))
