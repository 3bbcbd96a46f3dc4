"""Collapses white space, as in every stored text of a page."""

from __future__ import annotations


def collapsed(text: str) -> str:
    """Returns ``text`` with each run of white space (``str.isspace``) as one space, and none at either end."""
    return " ".join(text.split())
