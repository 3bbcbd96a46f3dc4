"""Damage found by code that knows neither the file nor the offset. Its caller turns it into a ``DataFault``."""

from __future__ import annotations

from cc_pipeline.errors import DataFault, DataKind


class Damage(ValueError):
    """Bytes that break their format, and the ``kind`` of that. Any other ``ValueError`` counts as ``malformed``."""

    def __init__(self, kind: DataKind, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


def damage_fault(error: ValueError, source: str, offset: int | None, where: str = "") -> DataFault:
    """``error`` as the ``DataFault`` at ``offset`` (bytes) of ``source``; ``where`` is put in front of the reason."""
    kind = error.kind if isinstance(error, Damage) else DataKind.MALFORMED
    return DataFault(kind, source, offset, f"{where}{error}")
