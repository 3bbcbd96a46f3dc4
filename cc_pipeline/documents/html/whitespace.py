"""White space collapsed, as every text of a page is kept."""

from __future__ import annotations


def collapsed(text: str) -> str:
    """``text`` with each run of white space (as ``str.isspace`` has it) made one space, and none at either end."""
    return " ".join(text.split())
