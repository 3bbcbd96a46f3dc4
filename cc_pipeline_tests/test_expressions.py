"""Every regular expression of a module is linear in its input, the way it is used: each is run on pieces of its own
text, repeated, with an ending that fails, at n and 2n characters."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import cc_pipeline

ROOT = Path(cc_pipeline.__file__).parent
_METHODS = ("sub", "subn", "match", "search", "fullmatch", "findall", "finditer", "split")
#: Characters of a text; processor seconds from which its growth is measured, and at which a search is ended.
SIZE, QUICK, LONGEST = 2_500, 0.000_6, 0.1
#: What is not linear, and from how many characters on it is, or its caller gives it at most: it is quick on these.
BOUNDED = {
    ("commoncrawl/surt.py", "_QUERY_SESSIONS"): 8_192,
    ("documents/charset.py", "_META"): 1_024,
    ("documents/html/description.py", "_SEPARATED"): 1_000,
}
QUICK_BOUNDED = 0.05
#: A linear search takes 2 times as long on twice the text, a quadratic one 4 times.
SUPERLINEAR = 3.0
#: A busy machine can make the shorter text seem slow, once but not each time.
TRIES = 3


class Use(NamedTuple):
    """An expression, where it stands, and the method that is called on it."""

    place: str
    name: str
    expression: re.Pattern[Any]
    method: str


@cache
def uses() -> tuple[Use, ...]:
    """Every expression that a module names, with each method that is called on the name; and those written in a call of
    ``re``. One that no call names is taken to be matched at one place, by a loop over several."""
    found: list[Use] = []
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    for path, source in sources.items():
        place = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                module, _, method = ast.unparse(node.func).rpartition(".")
                if module == "re" and method in _METHODS:
                    found.append(Use(place, "", re.compile(str(node.args[0].value)), method))
        if "re.compile(" not in source:
            continue
        for name, value in vars(importlib.import_module(f"cc_pipeline.{place[:-3].replace('/', '.')}")).items():
            if expressions := [*_expressions(value)]:
                users = [text for other, text in sources.items() if other == path or f"import {name}" in text]
                methods = _methods_called(name, "\n".join(users)) or ["match"]
                found += [Use(place, name, expression, method) for expression in expressions for method in methods]
    return (*found,)


def _methods_called(name: str, source: str) -> list[str]:
    return sorted(set(re.findall(rf"\b{name}(?:\[[^]]*\])?\s*\.({'|'.join(_METHODS)})\b", source)))


def _expressions(value: object) -> Iterator[re.Pattern[Any]]:
    """The expressions that a name of a module stands for: itself, or those in it."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _expressions((*value.keys(), *value.values()))
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from _expressions(part)


def pieces(expression: re.Pattern[Any]) -> list[str]:
    """What an expression's text is made of: its words, its characters, and pairs of these."""
    text = expression.pattern if isinstance(expression.pattern, str) else expression.pattern.decode("latin-1")
    words = re.findall(r"[\w<!/&#:=-]{2,}", text)[:12]
    characters = [*dict.fromkeys(" a0" + re.sub(r"[\\()\[\]*+?{}^$]|\\[a-zA-Z]", "", text))][:14]
    pairs = [one + other for one, other in itertools.permutations(characters[:5], 2)]
    return [*dict.fromkeys([*characters, *words, *pairs, *(f"{word} " for word in words[:4])])]


class _TooLongError(Exception):
    pass


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _TooLongError


def seconds(use: Use, text: str) -> float:
    """Processor seconds of an expression's use on a text, at most about ``LONGEST``."""
    given: Any = text.encode("latin-1", "replace") if isinstance(use.expression.pattern, bytes) else text
    arguments = (given[:0], given) if use.method in ("sub", "subn") else (given,)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    start = time.thread_time()
    try:
        result: Any = getattr(use.expression, use.method)(*arguments)
        if use.method == "finditer":
            for _ in result:
                pass
    except _TooLongError:
        return LONGEST
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - start


def growth(use: Use, piece: str) -> float:
    """How many times longer twice the text takes, the least of some tries; 0 where it is too quick to tell."""

    def least_seconds(size: int) -> float:
        text = piece * (size // len(piece)) + "\0"
        return min(seconds(use, text) for _ in range(2))

    if seconds(use, piece * (SIZE // len(piece)) + "\0") < QUICK or least_seconds(SIZE) < QUICK:
        return 0.0
    least = float("inf")
    for _ in range(TRIES):
        first, second = least_seconds(SIZE), least_seconds(2 * SIZE)
        least = min(least, second / first if second < LONGEST else SUPERLINEAR + 1)
    return least


@pytest.fixture(autouse=True)
def _ends_what_takes_too_long() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, _stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


def _is_linear(use: Use) -> bool:
    return all(growth(use, piece) < SUPERLINEAR for piece in pieces(use.expression))


def test_every_expression_is_linear() -> None:
    linear = {use: _is_linear(use) for use in uses() if (use.place, use.name) not in BOUNDED}
    assert len(linear) > 250
    assert not [use for use in linear if not linear[use]]


def test_what_is_not_linear_is_quick_on_the_most_it_gets() -> None:
    bounded = {(use.place, use.name): use for use in uses() if (use.place, use.name) in BOUNDED}
    assert bounded.keys() == BOUNDED.keys()
    for key, use in bounded.items():
        for piece in pieces(use.expression):
            text = piece * (BOUNDED[key] // len(piece))
            assert min(seconds(use, text) for _ in range(3)) < QUICK_BOUNDED, (key, piece)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\]\s*+)?>", "sub"),
        (r"\s+\Z", "search"),
        (r"(?:a|aa)+\Z", "match"),
        (r"<!--.*-->", "finditer"),
        (r"\s*x\s*,?\s*\d|\s*,", "sub"),
        (r"(.+?)\s+[|]\s+([^|]*)\Z", "fullmatch"),
        (r"\s+x", "search"),
    ],
)
def test_an_expression_that_is_not_linear_is_seen(pattern: str, method: str) -> None:
    assert not _is_linear(Use("", "", re.compile(pattern, re.DOTALL), method))


def test_the_method_decides() -> None:
    assert _is_linear(Use("", "", re.compile(r"\s+x"), "match"))
