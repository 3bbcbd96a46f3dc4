"""The verdict on what was read of robots.txt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from cc_pipeline.checks.scope import CheckResult, Scope, joined
from cc_pipeline.lake.slice import POLICIES
from cc_pipeline.lake.streaming import stream_slices
from cc_pipeline.workspace.workspace import Workspace

_NAME: Final = "each_capture_once"
#: Slices that are read together.
_TOGETHER: Final = 1_000


def site_policies_verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    """Whether each slice has each robots.txt capture once, and the lines of each body that was read."""
    slices = sorted(POLICIES.here(workspace.lake) if scope.slices is None else scope.slices)
    wrong: dict[str, str] = {}
    for crawl, own in groupby(slices, lambda one: one.crawl):
        targets = [one.target for one in own]
        for first in range(0, len(targets), _TOGETHER):
            wrong |= _wrong(workspace, crawl, targets[first : first + _TOGETHER])
    if wrong:
        return joined(_NAME, [CheckResult(_NAME, "error", said, wrong=(key,)) for key, said in sorted(wrong.items())])
    return CheckResult(_NAME, "ok", f"{len(slices):,} partitions have each robots.txt capture once, and its lines")


def _wrong(workspace: Workspace, crawl: str, targets: Sequence[str]) -> dict[str, str]:
    """What is wrong, by partition."""
    rows, names, bodies, told = Counter[str](), set[tuple[str, str]](), set[tuple[str, str]](), set[tuple[str, str]]()
    columns = ["target", "robots", "content_digest", "lines"]
    for batch in stream_slices(workspace.lake, "site_policies", crawl, targets, columns):
        target, robots, digest = (column.to_pylist() for column in batch.columns[:3])
        rows.update(target)
        names |= {*zip(target, robots, strict=True)}
        own = [*zip(target, digest, batch["lines"].is_valid().to_pylist(), strict=True)]
        bodies |= {(of, body) for of, body, _ in own if body is not None}
        told |= {(of, body) for of, body, here in own if here}
    once, lacking = Counter(of for of, _ in names), Counter(of for of, _ in bodies - told)
    found = {}
    for of, count in rows.items():
        said = f"{count - once[of]:,} robots.txt captures stand twice" if count > once[of] else ""
        said = said or (f"the lines of {lacking[of]:,} bodies are not there" if lacking[of] else "")
        if said:
            key = f"{crawl}|{of}"
            found[key] = f"{key}: {said}; read them again: cc-pipeline policies"
    return found
