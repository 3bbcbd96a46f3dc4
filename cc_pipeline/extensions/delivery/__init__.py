"""Proofs: deliveries of records that say what is in them, certificates, and archives for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.cli.command import Command


def _commands() -> Mapping[str, Command]:
    from cc_pipeline.extensions.delivery.commands import COMMANDS

    return COMMANDS


EXTENSION = Extension(
    name="delivery",
    summary="deliveries of records with a manifest, certificates, WACZ files",
    commands=_commands,
)
