"""The first command of a new user: runs the whole graph on a small invented crawl. Nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.cli.command import Command


def _commands() -> Mapping[str, Command]:
    from cc_pipeline.cli.command import EVERYDAY, Command  # each --help finds extensions
    from cc_pipeline.cli.options import LOCAL
    from cc_pipeline.extensions.demo.commands import demo

    return {"demo": Command(demo, EVERYDAY, 110, LOCAL)}


EXTENSION = Extension(
    name="demo", summary="generates a small crawl, and runs the whole graph on it", commands=_commands
)
