"""What a stage says when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StageReport:
    """Figures of one stage over some slices; everything it counts has been committed.

    ``rows`` are rows now in the table for the slices asked for, ``written`` those written by this call (0 when
    the inputs were already there). ``bytes`` and ``requests`` were spent on the source, ``seconds`` in the stage.
    ``per_target`` maps a slug to its own figures (for per-partition metadata).
    """

    stage: str
    rows: int
    written: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    fresh_slices: int = 0
    reused_slices: int = 0
    notes: tuple[str, ...] = ()
    per_target: dict[str, dict[str, int | float | str]] = field(default_factory=dict)
