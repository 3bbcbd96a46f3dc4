"""White space collapsed, as every text of a page is kept. Apart from languages, whose library few need."""

from __future__ import annotations

from collections.abc import Callable

from cc_pipeline import compiled


def collapsed_plainly(text: str) -> str:
    """``collapsed`` in Python, for builds without the compiled one: three times slower on a page's text."""
    return " ".join(text.split())


#: A text with each run of white space (what ``str.isspace`` says it is) made one space, and none at either end.
collapsed: Callable[[str], str] = compiled("documents.html._whitespace", "collapsed") or collapsed_plainly

#: Whether the compiled one is in use.
COMPILED = collapsed is not collapsed_plainly
