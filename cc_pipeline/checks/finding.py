"""A finding of ``cc-pipeline doctor``. Commands that only reject a wrong value use it, so it loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from cc_pipeline.advice import Advice


@dataclass(frozen=True, slots=True)
class Finding:
    """``level`` is ``ok``, ``note`` or ``bad``."""

    level: str
    topic: str
    text: str
    advice: str | Advice = ""
