"""White space collapsed, as every text of a page is kept."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast


def collapsed_plainly(text: str) -> str:
    """``collapsed`` in Python, for builds without the compiled one: three times slower on a page's text."""
    return " ".join(text.split())


def _compiled() -> Callable[[str], str] | None:
    try:
        module = importlib.import_module("cc_pipeline.documents.html._whitespace")
    except ImportError:
        return None
    return cast("Callable[[str], str]", module.collapsed)


#: A text with each run of white space (what ``str.isspace`` says it is) made one space, and none at either end.
collapsed: Callable[[str], str] = _compiled() or collapsed_plainly

#: Whether the compiled one is in use.
COMPILED = collapsed is not collapsed_plainly
