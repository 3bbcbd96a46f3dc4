"""Commands and methods side by side: the table of docs/python.md has each method, beside its command of the core.

``python -m cc_pipeline_tests.api.test_words`` writes the table anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer.main import get_command

from cc_pipeline.api.home import Home
from cc_pipeline.cli.app import app
from cc_pipeline.extension import extensions

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
#: Commands whose method has another name, since it gives something else than the command's own.
OTHER_NAMES = {"sql": ("sql", "table", "tables"), "files captures": ("add_captures",)}


def commands() -> list[str]:
    """The core's commands: those of extensions are told of on their own pages."""
    of_extensions = {name for extension in extensions() for name in extension.commands()}
    tree: Any = get_command(app)
    return [one for name, command in tree.commands.items() if name not in of_extensions for one in below(command, name)]


def below(command: Any, name: str) -> list[str]:
    inner = getattr(command, "commands", {})
    return [one for each, group in inner.items() for one in below(group, f"{name} {each}")] or [name]


def methods() -> set[str]:
    return {name for name in vars(Home) if not name.startswith("_")}


def table() -> str:
    rows = ["| command | method |", "|---|---|"]
    for command in commands():
        if named := OTHER_NAMES.get(command, (command,) if command in methods() else ()):
            rows.append(f"| `cc-pipeline {command}` | {', '.join(f'`home.{name}`' for name in named)} |")
    return "\n".join(rows) + "\n"


def written() -> str:
    return re.sub(r"\| command \| method \|\n(?:\|.*\n)+", lambda _: table(), PAGE.read_text("utf-8"))


def test_the_table_has_every_method() -> None:
    assert set(re.findall(r"`home\.(\w+)`", table())) == methods()
    assert PAGE.read_text("utf-8") == written() and table() in written()


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
