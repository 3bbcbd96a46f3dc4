"""When to ask again, and after how long: decorrelated jitter, per kind of fault."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, Finding

#: Kinds that a second look settles; more would only load the place.
_FEW: Mapping[FaultKind, int] = {
    FaultKind.FORBIDDEN: 3,
    FaultKind.WHOLE_OBJECT: 3,
    FaultKind.LONG_BODY: 3,
    FaultKind.WRONG_RANGE: 3,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``attempts`` in all, the first included; ``few`` overrides it by kind. Waits are in seconds.

    The next wait is drawn between ``base`` and three times the last one, at most ``longest`` ("decorrelated
    jitter"), so that many clients that failed together do not come back together. A ``Retry-After`` is
    waited for in full when it is at most ``patience``; a longer one ends the attempts.
    """

    attempts: int = 6
    base: float = 0.5
    longest: float = 30.0
    patience: float = 120.0
    few: Mapping[FaultKind, int] = field(default_factory=lambda: _FEW)

    def next_wait(self, finding: Finding, attempt: int, last_wait: float) -> float | None:
        """Seconds to wait before the attempt after ``attempt`` (from 1), ``None`` to give up."""
        if finding.kind in PERMANENT_KINDS or attempt >= min(self.attempts, self.few.get(finding.kind, self.attempts)):
            return None
        asked = finding.retry_after or 0.0
        if asked > self.patience:
            return None
        drawn = random.uniform(self.base, max(self.base, last_wait * 3))
        return max(asked, min(self.longest, drawn))
