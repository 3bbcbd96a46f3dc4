"""Builds a month's index and ends itself with kill -9 at a moment: ``python -m … SOURCE HOME MOMENT``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from cc_pipeline.harvesting import build_index as build
from cc_pipeline.settings import load_settings
from cc_pipeline.transport.client import Transport
from cc_pipeline.workspace.workspace import open_workspace

#: By moment: what is called then, and whether the process ends behind the call.
MOMENTS: dict[str, tuple[Any, str, bool]] = {
    "within a file": (build, "_read", False),
    "before its index is written": (build, "write_shard", False),
    "behind its faults": (build, "_commit_faults", True),
    "with its index half in place": (os, "link", False),
    "behind its index": (Transport, "put", True),
}


def deadly(call: Callable[..., Any], behind: bool, at: int) -> Callable[..., Any]:
    calls = 0

    def called(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*given, **named)
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return called


if __name__ == "__main__":
    source, home, month, moment = sys.argv[1:]
    where, name, behind = MOMENTS[moment]
    # in the second of the files: the first is whole
    setattr(where, name, deadly(getattr(where, name), behind, 2))
    with open_workspace(load_settings({}, source=source, home=home)) as workspace:
        build.build_index(workspace, month)
