"""Damage found by code that knows neither the file nor the offset: its caller makes a fault of it."""

from __future__ import annotations

from cc_pipeline.errors import DataFault, DataKind


class Damage(ValueError):
    """Bytes that break their format, and the ``kind`` of that. Any other ``ValueError`` counts as ``malformed``."""

    def __init__(self, kind: DataKind, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


def damage_fault(error: ValueError, source: str, offset: int | None, where: str = "") -> DataFault:
    """The fault that ``error`` is at ``offset`` (bytes) of ``source``; ``where`` is set before its words."""
    kind = error.kind if isinstance(error, Damage) else DataKind.MALFORMED
    return DataFault(kind, source, offset, f"{where}{error}")
