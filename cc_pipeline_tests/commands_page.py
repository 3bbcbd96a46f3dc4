"""The table of commands in docs/cli.md, made from the table that the command line is built from.

``make docs`` (``python -m cc_pipeline_tests.commands_page``) writes it between ``<!-- commands -->`` and
``<!-- end -->``; a test compares.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from cc_pipeline.api.home import Home
from cc_pipeline.cli.app import find_commands
from cc_pipeline.cli.command import Command
from cc_pipeline.extension import extensions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
_BLOCK = re.compile(r"(<!-- commands -->\n).*?(<!-- end -->)", re.DOTALL)
#: Commands whose methods have other names, or are several.
METHODS = {"sql": ("sql", "table", "tables"), "files captures": ("add_captures",)}


def methods_of(name: str) -> tuple[str, ...]:
    """The methods of a home that do what a command does."""
    return METHODS.get(name, (name,) if name in vars(Home) else ())


def page_of(text: str) -> str:
    """The page with its table as it should be."""
    return _BLOCK.sub(lambda block: f"{block[1]}{_table()}{block[2]}", text)


def _table() -> str:
    added = {name for extension in extensions() for name in extension.commands()}
    rows = [
        f"| `cc-pipeline {' '.join((name, *_usage(row)))}` | {_summary(row)} | {_python(name)} |\n"
        for name, row in find_commands().items()
        if isinstance(row, Command) and name not in added
    ]
    return f"\n| command | what it does | in Python |\n|---|---|---|\n{''.join(rows)}\n"


def _usage(command: Command) -> list[str]:
    """Its arguments, and the options that it needs."""
    arguments, options = [], []
    for parameter in inspect.signature(command.call, eval_str=True).parameters.values():
        declared: Any = next((part for part in getattr(parameter.annotation, "__metadata__", ())), None)
        is_needed = parameter.default is parameter.empty
        if isinstance(declared, ArgumentInfo):
            word = declared.metavar or parameter.name.upper()
            arguments.append(word if is_needed else f"[{word}]")
        elif isinstance(declared, OptionInfo) and is_needed:
            options.append(f"{declared.default} {parameter.name.upper()}")
    return [*arguments, *options]


def _summary(command: Command) -> str:
    paragraph = " ".join(command.text.split("\n\n")[0].split())
    return paragraph.rstrip(".").replace("|", "\\|")


def _python(name: str) -> str:
    return ", ".join(f"`home.{method}`" for method in methods_of(name))


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text("utf-8")), "utf-8")
