"""cc_pipeline: every capture of a domain out of Common Crawl, 2008 to today, as a Dagster pipeline.

``docs/architecture.md`` describes the rooms and what each may import.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cc_pipeline import errors
    from cc_pipeline.api.home import Home
    from cc_pipeline.api.home import open_home as open

__all__ = ["Home", "errors", "open"]
__version__ = "0.1.0"

#: The name under which requests are sent and files are written.
SOFTWARE = f"cc_pipeline/{__version__.rpartition('.')[0]}"


#: What compiled modules have to be made for, ``MADE_FOR`` of ``_module.h``: raised here and there with what a function
#: of theirs takes or gives.
MADE_FOR = 2

#: The compiled parts; without one its twin in Python does the same, slower.
COMPILED = (
    "documents.document2012._simhash",
    "documents.html._bounds",
    "documents.html._model",
    "documents.html._scan",
    "documents.html._walk",
    "documents.signals._signals",
    "index.footers._footerwalk",
)
#: What pages cost without them, measured by ``make bench-documents``.
_SLOWER = "pages take 7 to 9 times as long to parse"


def compiled(module: str, name: str) -> Any:
    """The function ``name`` of the compiled ``cc_pipeline.<module>``; ``None`` where that was not built, or of another
    source, which is warned of: a twin in Python then does the same, slower."""
    try:
        found = import_module(f"cc_pipeline.{module}")
    except ImportError:
        return None
    if getattr(found, "made_for", 0) != MADE_FOR:
        _warn_of_old_modules()
        return None
    return getattr(found, name)


def lacks_compiled() -> str | None:
    """A line on compiled parts that are missing or of another source, and what that costs; ``None`` where all are
    here."""
    missing, old = [], []
    for module in COMPILED:
        try:
            found = import_module(f"cc_pipeline.{module}")
        except ImportError:
            missing.append(module)
        else:
            if getattr(found, "made_for", 0) != MADE_FOR:
                old.append(module)
    parts = [f"{len(some)} of {len(COMPILED)} are {how}" for some, how in ((missing, "missing"), (old, "old")) if some]
    if not parts:
        return None
    return (
        f"compiled parts: {', '.join(parts)}, so {_SLOWER}; install a C compiler and Python's headers, and build again"
    )


@cache
def _warn_of_old_modules() -> None:
    text = "The compiled modules are of another source: Python does their work, many times slower"
    warnings.warn(f"{text}. `make setup` builds them.", RuntimeWarning, stacklevel=3)


def __getattr__(name: str) -> Any:
    # nothing else of the program is loaded by its import
    if name == "errors":
        return import_module("cc_pipeline.errors")
    if name in ("Home", "open"):
        return getattr(import_module("cc_pipeline.api.home"), {"open": "open_home"}.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
