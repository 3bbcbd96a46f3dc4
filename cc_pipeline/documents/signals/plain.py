"""The functions of ``_signals.c`` in Python: for builds without a compiler, and as their definition."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

VALUES = 64
SHINGLE = 5
TOP = (2, 3, 4)
TWICE = (5, 6, 7, 8, 9, 10)

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_SPACELESS_RANGES = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),
    *((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
)
_HAS_SPACELESS = re.compile("[{}]".format("".join(f"{chr(first)}-{chr(last)}" for first, last in _SPACELESS_RANGES)))


def _mixed(value: int) -> int:
    """Returns the final mix of splitmix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _numbers() -> Iterable[tuple[int, int]]:
    state = 0
    for _ in range(VALUES):
        state += 2 * _GOLDEN
        yield _mixed((state - _GOLDEN) & _MASK) | 1, _mixed(state & _MASK)


_NUMBERS = tuple(_numbers())


def _word_hash(word: str) -> int:
    """Returns FNV-1a over code points, mixed."""
    hash_value = 0xCBF29CE484222325
    for character in word:
        hash_value = ((hash_value ^ ord(character)) * 0x100000001B3) & _MASK
    return _mixed(hash_value)


def _run_hash(words: Iterable[int]) -> int:
    hash_value = 0
    for word in words:
        hash_value = _mixed((hash_value + _GOLDEN + word) & _MASK)
    return hash_value


def _is_spaceless(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _SPACELESS_RANGES)


def words_of(text: str) -> list[str]:
    """Returns the runs of letters and digits; in scripts without spaces each character."""
    tokens = []
    for alphanumeric, characters in groupby(text, str.isalnum):
        if alphanumeric:
            for is_spaceless, run in groupby(characters, _is_spaceless):
                word = "".join(run)
                tokens += list(word) if is_spaceless else [word]
    return tokens


def words(text: str) -> list[str]:
    """Splits at white space; a part with characters of a script without spaces is split by ``words_of``."""
    if text.isascii() or not _HAS_SPACELESS.search(text):
        return text.split()
    return [word for part in text.split() for word in (words_of(part) if _HAS_SPACELESS.search(part) else (part,))]


def minhash(text: str) -> list[int] | None:
    """Returns the least value of every hash function over all shingles, as signed 32 bits; ``None`` without words."""
    hashes = [_word_hash(word) for word in words_of(text)]
    if not hashes:
        return None
    size = min(SHINGLE, len(hashes))
    shingles = {_run_hash(hashes[start : start + size]) for start in range(len(hashes) - size + 1)}
    minima = [min(((run * factor + term) & _MASK) >> 32 for run in shingles) for factor, term in _NUMBERS]
    return [value - (1 << 32) if value >> 31 else value for value in minima]


def repetition(text: str) -> tuple[int, ...]:
    """Returns the numbers of words, of their characters, and of words with a letter; then the characters of all
    occurrences of the most frequent run of 2, 3, 4 words (0 if none repeats), and those in repeated runs of 5 to 10
    words."""
    tokens = words(text)
    letters = sum(any(map(str.isalpha, word)) for word in tokens)
    return (
        len(tokens),
        sum(map(len, tokens)),
        letters,
        *(_top(tokens, size) for size in TOP),
        *(_twice(tokens, size) for size in TWICE),
    )


def _top(words: list[str], size: int) -> int:
    times: dict[tuple[str, ...], int] = {}
    for start in range(len(words) - size + 1):
        run = tuple(words[start : start + size])
        times[run] = times.get(run, 0) + 1
    best = max(times.values(), default=0)
    if best <= 1:
        return 0
    return best * max(sum(map(len, run)) for run, count in times.items() if count == best)


def _twice(words: list[str], size: int) -> int:
    seen: set[tuple[str, ...]] = set()
    start = characters = 0
    while start + size <= len(words):
        run = tuple(words[start : start + size])
        if run in seen:
            characters += sum(map(len, run))
            start += size
        else:
            seen.add(run)
            start += 1
    return characters
