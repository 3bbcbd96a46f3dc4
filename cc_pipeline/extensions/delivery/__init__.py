"""Proofs: deliveries of records that say what is in them, certificates, and archives for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.cli.command import Command
    from cc_pipeline.export.format import ExportFormat, RecordsRequest, Written


def _commands() -> Mapping[str, Command]:
    from cc_pipeline.extensions.delivery.commands import COMMANDS

    return COMMANDS


def _write_wacz(request: RecordsRequest) -> Written:
    from cc_pipeline.extensions.delivery.wacz_export import write_wacz_export

    return write_wacz_export(request)


def _export_formats() -> Mapping[str, ExportFormat]:
    from cc_pipeline.export.format import RecordFormat

    summary = "the stored records with an index and a list of pages, for ReplayWeb.page and other archive tools"
    return {"wacz": RecordFormat(summary=summary, write=_write_wacz, suffixes=(".wacz",))}


EXTENSION = Extension(
    name="delivery",
    summary="deliveries of records with a manifest, certificates, WACZ files",
    commands=_commands,
    export_formats=_export_formats,
)
