"""The metrics of Gopher's and C4's rules, by which dataset builders filter main texts, and fingerprints that identify
the same article.

Gopher: Rae and others 2021, "Scaling Language Models", appendix A. C4: Raffel and others 2020, "Exploring the Limits
of Transfer Learning", section 2.2. Their thresholds are in docs/documents.md; nothing is decided here. Lines are
the non-empty ones of ``main_content``, shares are from 0 to 1. Words are separated by white space; in scripts without
spaces each letter is a word, as for ``content_minhash``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cc_pipeline import compiled
from cc_pipeline.documents.document2012.simhash import text_simhash
from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.signals import plain

_SIGNALS = "documents.signals._signals"
_minhash: Callable[[str], list[int] | None] = compiled(_SIGNALS, "minhash") or plain.minhash
_repetition: Callable[[str], tuple[int, ...]] = compiled(_SIGNALS, "repetition") or plain.repetition
#: Whether the compiled functions are in use.
COMPILED = _minhash is not plain.minhash
#: The eight words of Gopher's rule.
_STOP_WORDS = (" the ", " be ", " to ", " of ", " and ", " that ", " have ", " with ")
_SYMBOLS = ("#", "\u2026", "...")
_BULLETS = ("\u2022", "\u2023", "\u25b6", "\u25c0", "\u25e6", "\u25aa", "\u25ab", "\u2013", "-", "*", "\u00b7")
_ELLIPSES = ("...", "\u2026")
#: C4's end marks, and those of other scripts.
_END_MARKS = (".", "!", "?", '"', "\u201d", "\u3002", "\uff01", "\uff1f", "\u0964", "\u061f", "\u06d4")
_SHORT_LINE = 5
#: An end mark, then optional brackets and quotes, before white space; or an end mark of a script without such spaces.
_SENTENCE_END = re.compile(r"[.!?][\"'\u2019\u201d)\]]*(?=\s|\Z)|[\u3002\uff01\uff1f\u0964\u061f\u06d4]")


class Fingerprint(NamedTuple):
    """The columns; ``None`` if the text has no word."""

    content_simhash: int | None
    content_minhash: list[int] | None


def fingerprint(text: str | None) -> Fingerprint:
    """Returns the fingerprints of a main text."""
    folded = text.casefold() if text else ""
    sketch = _minhash(folded)
    return Fingerprint(None, None) if sketch is None else Fingerprint(text_simhash(collapsed(folded)), sketch)


def likeness(first: Sequence[int], second: Sequence[int]) -> float:
    """Estimates the share of five-word runs that two texts have in common, from their ``content_minhash``."""
    return float(np.mean(np.asarray(first) == np.asarray(second)))


class Quality(NamedTuple):
    """The fields of the column ``quality``, described in docs/tables.md."""

    lines: int
    words: int
    characters: int
    mean_word_length: float
    symbols_per_word: float
    bullet_lines: float
    ellipsis_lines: float
    alphabetic_words: float
    stop_words: int
    duplicate_lines: float
    duplicate_line_characters: float
    top_2gram: float
    top_3gram: float
    top_4gram: float
    duplicate_5grams: float
    duplicate_6grams: float
    duplicate_7grams: float
    duplicate_8grams: float
    duplicate_9grams: float
    duplicate_10grams: float
    sentences: int
    punctuated_lines: float
    short_lines: float
    javascript_lines: int
    curly_brackets: int
    lorem_ipsum: int


def quality(text: str | None) -> Quality | None:
    """Returns the metrics of a main text; ``None`` if it has no word."""
    if not text:
        return None
    words, characters, alphabetic, *repeated = _repetition(text)
    shares = [min(1.0, run_chars / (characters or 1)) for run_chars in repeated]
    if not words:
        return None
    lines = [line for raw_line in text.split("\n") if (line := raw_line.strip())]
    lowered = text.lower()
    spaced = f" {collapsed(lowered)} "
    distinct_lines = set(lines)
    twice = sum(map(len, lines)) - sum(map(len, distinct_lines))
    metrics = (
        len(lines),
        words,
        len(text),
        characters / words,
        sum(map(text.count, _SYMBOLS)) / words,
        sum(line.startswith(_BULLETS) for line in lines) / len(lines),
        sum(line.endswith(_ELLIPSES) for line in lines) / len(lines),
        alphabetic / words,
        sum(map(spaced.__contains__, _STOP_WORDS)),
        (len(lines) - len(distinct_lines)) / len(lines),
        twice / sum(map(len, lines)),
        *shares,
        len(_SENTENCE_END.findall(text)),
        sum(line.endswith(_END_MARKS) for line in lines) / len(lines),
        sum(map(_is_short, lines)) / len(lines),
        sum("javascript" in line for line in lowered.split("\n")) if "javascript" in lowered else 0,
        text.count("{") + text.count("}"),
        lowered.count("lorem ipsum"),
    )
    return Quality._make(metrics)


def _is_short(line: str) -> bool:
    # the split at spaces decides most lines without a look at their script
    return len(line.split(None, _SHORT_LINE)) < _SHORT_LINE and len(plain.words(line)) < _SHORT_LINE
