"""Chooses the body of the footer walk: the compiled one where it was built, else the one in Python."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from cc_pipeline.index.footers import walk_py
from cc_pipeline.index.footers.thrift import FooterFault
from cc_pipeline.index.footers.walk_py import FooterWalk


class _Compiled(Protocol):
    def __call__(
        self, metadata: bytes, names: tuple[bytes, ...], stat_count: int, limit: int
    ) -> tuple[object, ...]: ...


def _compiled() -> _Compiled | None:
    try:
        module = importlib.import_module("cc_pipeline.index.footers._footerwalk")
    except ImportError:
        return None
    return cast(_Compiled, module.walk)


_walk_c = _compiled()

#: Whether the compiled walk is in use.
COMPILED = _walk_c is not None


def walk(metadata: bytes, names: tuple[bytes, ...], stat_count: int, limit: int) -> FooterWalk:
    """See ``walk_py.walk``; raises ``FooterFault``."""
    if _walk_c is None:
        return walk_py.walk(metadata, names, stat_count, limit)
    return compiled_walk(metadata, names, stat_count, limit)


def compiled_walk(metadata: bytes, names: tuple[bytes, ...], stat_count: int, limit: int) -> FooterWalk:
    """The compiled body alone, for the tests that compare the two."""
    if _walk_c is None:
        raise ImportError("the compiled footer walk was not built")
    try:
        return FooterWalk._make(_walk_c(metadata, names, stat_count, limit))
    except ValueError as error:
        raise FooterFault(*error.args) from None
