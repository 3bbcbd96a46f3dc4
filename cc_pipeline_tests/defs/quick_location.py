"""The code location of cc_pipeline, whose code server forks its runs from a process that has loaded what they need.

Dagster starts an interpreter for each run, which loads all of that anew: three seconds of a processor. Here too a run
has a process of its own, which may be killed and which outlives its code server.

Importing it changes ``multiprocessing``, so tests name this module for code servers and never import it.
"""

from __future__ import annotations

from multiprocessing import context, set_forkserver_preload

from cc_pipeline.definitions import defs

__all__ = ["defs"]

#: Modules that runs load, and no program that starts one. None of them starts a thread when it is loaded.
_NEEDED_BY_RUNS = (
    "dagster.cli",
    "cc_pipeline.definitions",
    "cc_pipeline.defs.assets.extraction",
    "cc_pipeline.extraction.run",
    "cc_pipeline.publish.publish",
    "aiohttp",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "uvloop",
)

set_forkserver_preload([*_NEEDED_BY_RUNS])
context.SpawnProcess._Popen = staticmethod(context.ForkServerProcess._Popen)
