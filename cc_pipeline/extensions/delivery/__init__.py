"""Copies of records: standard WARC files in a bucket or folder of the user's own, with a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.cli.command import Row


def _commands() -> Mapping[str, Row]:
    from cc_pipeline.extensions.delivery.commands import COMMANDS

    return COMMANDS


EXTENSION = Extension(
    name="delivery",
    summary="copies of records as WARC files, with a manifest",
    commands=_commands,
)
