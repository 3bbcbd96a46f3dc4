"""Markup inside feeds: its relative references made absolute, as feed readers show it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import unescape

from cc_pipeline.documents.urls import Resolved, resolver

_TAG = re.compile(r"<[a-zA-Z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
_REFERENCE = re.compile(
    r"""(\s(?:href|src|cite|action|background|longdesc|usemap|poster|data)\s*=\s*)(?:"([^"]*)"|'([^']*)')""",
    re.IGNORECASE,
)


def absolutize(markup: str | None, base: str) -> str | None:
    """``markup`` with the references of its tags resolved against ``base``; other text untouched."""
    if not markup or "<" not in markup or "=" not in markup or not base:
        return markup
    resolve = resolver(base)
    return _TAG.sub(lambda tag: _REFERENCE.sub(partial(_resolved, resolve), tag.group(0)), markup)


def _resolved(resolve: Callable[[str], Resolved], found: re.Match[str]) -> str:
    quote = '"' if found.group(2) is not None else "'"
    value = found.group(2) if found.group(2) is not None else found.group(3)
    url, _ = resolve(unescape(value))
    if url is None or value.startswith("#") or "://" in value:
        return found.group(0)
    return f"{found.group(1)}{quote}{url.replace('&', '&amp;').replace(quote, '&quot;')}{quote}"
