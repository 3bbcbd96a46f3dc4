"""Two fingerprints of a main text, so that the same article is found again under another template.

Both are taken over the casefolded text and are the same in every process and version of this package; a change of
either would be a new column.

``content_simhash``: the simhash of 2012 (see legacy2012/simhash.py) over the text with white space collapsed. Two
texts are alike where few of the 64 bits differ (3 or fewer for near copies): ``bit_count(xor(a, b))`` in SQL.

``content_minhash``: 64 functions over the set of all runs of five words, of each the least value. A word is a run of
letters and digits, in scripts without spaces each character. A word is hashed with FNV-1a over its code points, a
run by folding its words through splitmix64's end, a function is the upper half of ``run * factor + term`` modulo
2^64 with numbers that splitmix64 gives from seed 0. The share of places where two sketches are equal estimates the
share of five-word runs that the texts have in common (Jaccard), with a standard error of at most 0.0625.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.legacy2012.simhash import text_simhash
from cc_pipeline.documents.signals import plain


class Fingerprint(NamedTuple):
    """The columns; ``None`` where the text has no word."""

    content_simhash: int | None
    content_minhash: list[int] | None


def _compiled() -> Callable[[str], list[int] | None] | None:
    try:
        module = importlib.import_module("cc_pipeline.documents.signals._signals")
    except ImportError:
        return None
    return cast("Callable[[str], list[int] | None]", module.minhash)


_minhash = _compiled() or plain.minhash

#: Whether the compiled one is in use.
COMPILED = _minhash is not plain.minhash


def fingerprint(text: str | None) -> Fingerprint:
    """The fingerprints of a main text."""
    folded = text.casefold() if text else ""
    sketch = _minhash(folded)
    return Fingerprint(None, None) if sketch is None else Fingerprint(text_simhash(collapsed(folded)), sketch)


def likeness(one: Sequence[int], other: Sequence[int]) -> float:
    """The share of five-word runs that two texts have in common, estimated from their ``content_minhash``."""
    return float(np.mean(np.asarray(one) == np.asarray(other)))
