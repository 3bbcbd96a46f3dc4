"""Commands and methods side by side: each command stands in the table of docs/python.md, each method beside its own.

``python -m cc_pipeline_tests.python.test_words`` writes the table anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from cc_pipeline.cli.app import app
from cc_pipeline.python.home import Home

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
#: Commands whose method has another name, since it gives something else than the command's own.
OTHER_NAMES = {"sql": ("sql", "table", "tables"), "report": ("report", "changes"), "files captures": ("add_captures",)}


def commands(group: Any = None, before: str = "") -> list[str]:
    found: list[str] = []
    for name, command in (get_command(app) if group is None else group).commands.items():
        inner = getattr(command, "commands", None)
        found += commands(command, f"{name} ") if inner else [before + name]
    return found


def methods() -> set[str]:
    return {name for name in vars(Home) if not name.startswith("_")}


def table() -> str:
    rows = ["| command | method |", "|---|---|"]
    for command in commands():
        named = OTHER_NAMES.get(command, (command,) if command in methods() else ())
        rows.append(f"| `cc-pipeline {command}` | {', '.join(f'`home.{name}`' for name in named)} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    return re.sub(r"\| command \| method \|\n(?:\|.*\n)+", lambda _: table(), PAGE.read_text("utf-8"))


def test_the_table_has_every_command_and_every_method() -> None:
    assert set(re.findall(r"`home\.(\w+)`", table())) == methods()
    assert PAGE.read_text("utf-8") == written() and table() in written()


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
