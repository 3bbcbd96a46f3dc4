"""A finding of ``cc-pipeline doctor``. Commands that only reject a wrong value use it, so it loads nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from cc_pipeline.advice import Advice
from cc_pipeline.errors import CcPipelineError, EnvironmentFault


@dataclass(frozen=True, slots=True)
class Finding:
    """``level`` is ``ok``, ``note`` or ``bad``."""

    level: str
    topic: str
    text: str
    advice: str | Advice = ""


def describe_fault(topic: str, error: CcPipelineError) -> Finding:
    """Returns the finding that an error is."""
    if isinstance(error, EnvironmentFault):
        return Finding("bad", topic, error.problem, error.advice)
    return Finding("bad", topic, str(error))
