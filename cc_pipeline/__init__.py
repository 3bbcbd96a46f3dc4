"""cc_pipeline: every capture of a domain out of Common Crawl, 2008 to today, as a Dagster pipeline.

``docs/architecture.md`` describes the rooms and what each may import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cc_pipeline.python.home import open_home as open

__all__ = ["open"]
__version__ = "0.1.0"

#: The name under which requests are sent and files are written.
SOFTWARE = f"cc_pipeline/{__version__.rpartition('.')[0]}"


def compiled(module: str, name: str) -> Any:
    """The function ``name`` of the compiled ``cc_pipeline.<module>``; ``None`` where that was not built, or of an older
    source: a twin in Python then does the same, slower."""
    try:
        return getattr(import_module(f"cc_pipeline.{module}"), name, None)
    except ImportError:
        return None


def __getattr__(name: str) -> Any:
    # nothing else of the program is loaded by its import
    if name == "open":
        return import_module("cc_pipeline.python.home").open_home
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
