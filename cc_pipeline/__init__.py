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

#: The software name in requests and written files.
SOFTWARE = f"cc_pipeline/{__version__.rpartition('.')[0]}"


#: The interface version of compiled modules, ``MADE_FOR`` of ``_module.h``. Both are raised when the arguments or
#: results of a compiled function change.
MADE_FOR = 6

#: The compiled modules. Without one, its twin in Python does the same work more slowly.
COMPILED = (
    "documents.document2012._simhash",
    "documents.html._bounds",
    "documents.html._model",
    "documents.html._walk",
    "documents.signals._signals",
)
#: The cost of missing modules, measured by ``make bench-documents``.
_SLOWER = "pages take 7 to 9 times as long to parse"


def compiled(module: str, name: str) -> Any:
    """Returns the function ``name`` of the compiled ``cc_pipeline.<module>``; ``None`` if the module was not built, or
    was built from other sources, with a warning. Its twin in Python then does the same work more slowly."""
    try:
        compiled_module = import_module(f"cc_pipeline.{module}")
    except ImportError:
        return None
    if getattr(compiled_module, "made_for", 0) != MADE_FOR:
        _warn_of_old_modules()
        return None
    return getattr(compiled_module, name)


def describe_missing_modules() -> str | None:
    """Returns a message on compiled modules that are missing or outdated, and the cost; ``None`` if all are usable."""
    missing, old = [], []
    for module in COMPILED:
        try:
            compiled_module = import_module(f"cc_pipeline.{module}")
        except ImportError:
            missing.append(module)
        else:
            if getattr(compiled_module, "made_for", 0) != MADE_FOR:
                old.append(module)
    parts = [
        f"{len(modules)} of {len(COMPILED)} are {state_word}"
        for modules, state_word in ((missing, "missing"), (old, "old"))
        if modules
    ]
    if not parts:
        return None
    return (
        f"compiled parts: {', '.join(parts)}, so {_SLOWER}; install a C compiler and Python's headers, then build again"
    )


@cache
def _warn_of_old_modules() -> None:
    text = "The compiled modules were built from other source code and are not used: pages parse many times slower"
    warnings.warn(f"{text}. Run `make setup` to build the modules again.", RuntimeWarning, stacklevel=3)


def __getattr__(name: str) -> Any:
    # importing the package loads nothing else
    if name == "errors":
        return import_module("cc_pipeline.errors")
    if name in ("Home", "open"):
        return getattr(import_module("cc_pipeline.api.home"), {"open": "open_home"}.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
