"""Hosts that have just refused, written into the file that all processes share."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from cc_pipeline.transport.host_file import HostFile
from cc_pipeline.transport.host_state import ROW, Refusal
from cc_pipeline.transport.limits import SourceLimits


def make_refuse(path: Path, host: str, limits: SourceLimits, *, status: int = 403, ahead: float = 50.0) -> None:
    """Lets a host refuse three objects, so many seconds from now: its pause does not end in the meantime."""
    moment = time.time() + ahead
    with closing(HostFile(path, host, limits)) as file:
        for number in range(ROW):
            refusal = Refusal(f"f{number}", moment, moment, f"status {status}", status == 403)
            file.change(lambda state, refusal=refusal: state.refused(limits, refusal))  # type: ignore[misc]


def note_answer(path: Path, host: str, limits: SourceLimits) -> None:
    """Lets a host answer a request that is sent now."""
    now = time.time()
    with closing(HostFile(path, host, limits)) as file:
        file.change(lambda state: (state.answered(now, now), None))
