"""DuckDB's connections."""

from __future__ import annotations

import subprocess
import sys

#: A kernel of a notebook without ipywidgets, as DuckDB knows it: IPython with the configuration of a kernel.
_KERNEL = """
import sys, types
ipython = types.ModuleType("IPython")
ipython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = ipython
sys.modules["ipywidgets"] = None
import duckdb
try:
    duckdb.connect().execute("SET enable_progress_bar = false")
    print("not a kernel")
except duckdb.InvalidInputException:
    from cc_pipeline.duck import connect
    print(connect().execute("SELECT 42").fetchone())
"""


def test_a_kernel_without_ipywidgets_has_connections() -> None:
    """DuckDB 2.0 refuses any setting of the progress bar there."""
    told = subprocess.run([sys.executable, "-c", _KERNEL], capture_output=True, text=True, check=True)
    assert told.stdout == "(42,)\n"
