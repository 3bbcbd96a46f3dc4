"""Every regular expression of the package is linear in its input, the way it is used: each is run on strings grown from
its own form (a part repeated, then an ending that fails), at n and 2n characters."""

from __future__ import annotations

import ast
import importlib
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
#: No public interface tells the parts of an expression.
_PARSER: Any = importlib.import_module("re._parser")
_METHODS = frozenset({"sub", "subn", "match", "search", "fullmatch", "findall", "finditer", "split"})
#: Characters of a text; processor seconds from which its growth is measured, and at which a search is ended.
SIZE, QUICK, LONGEST = 2_500, 0.000_6, 0.1
#: What is not linear, and how many characters its caller gives it at most: it is quick on these.
BOUNDED: dict[tuple[str, str | None], int] = {
    ("documents/charset.py", "_META"): 1_024,
    ("documents/html/description.py", "_SEPARATED"): 1_000,
}
QUICK_BOUNDED = 0.05
#: A linear search takes 2 times as long on twice the text, a quadratic one 4 times.
SUPERLINEAR = 3.0
#: A busy machine can make the shorter text seem slow, once but not each time.
TRIES = 3
#: Texts a use of an expression beside those of its repetitions.
_MOST_TEXTS = 80


class Used(NamedTuple):
    """An expression, where it stands, and the method that is called on it."""

    place: str
    name: str | None
    expression: re.Pattern[Any]
    method: str


class Grown(NamedTuple):
    """What leads to a repetition, a part to repeat, and an ending that fails: a text of any length."""

    lead: str
    part: str
    ending: str

    def __call__(self, size: int) -> str:
        return self.lead + self.part * (size // len(self.part)) + self.ending


@cache
def uses() -> tuple[Used, ...]:
    """Every expression of the package with each method that is called on it."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    imported = {
        alias.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found: list[Used] = []
    everywhere = _methods_by_name([*trees.values()])
    for path, tree in trees.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_of_re(node.func)]
        if not calls:
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
        methods = _methods_by_name([tree])
        names = {id(part): target.id for node in tree.body for target in _targets(node) for part in ast.walk(node)}
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            expression = _expression(call, vars(module))
            name = names.get(id(call))
            called = {call.func.attr} & _METHODS or methods.get(name or "", set())
            if name in imported:
                called = called | everywhere.get(name or "", set())
            if expression:
                place = str(path.relative_to(ROOT))
                found += [Used(place, name, expression, method) for method in sorted(called or {"finditer"})]
    return (*found,)


def _is_of_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _METHODS | {"compile"}
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
    )


def _targets(node: ast.stmt) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in targets if isinstance(target, ast.Name)]


def _expression(call: ast.Call, names: dict[str, Any]) -> re.Pattern[Any] | None:
    """The expression that a call of ``re`` compiles; ``None`` where it is made of local names."""
    flags = [word.value for word in call.keywords if word.arg == "flags"]
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "compile":
        flags += call.args[1:]
    made = ast.Call(ast.parse("re.compile", mode="eval").body, [call.args[0], *flags[:1]], [])
    try:
        found = eval(
            compile(ast.fix_missing_locations(ast.Expression(made)), "expression", "eval"), {**names, "re": re}
        )
    except NameError:
        return None
    assert isinstance(found, re.Pattern)
    return found


def _methods_by_name(trees: list[ast.Module]) -> dict[str, set[str]]:
    """The methods taken of each name, and of the names that loops over it and functions that get it have for it."""
    methods: dict[str, set[str]] = {}
    loops: list[tuple[ast.expr | ast.arg, ast.expr]] = []
    functions = {
        node.name: node.args.args for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                value = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                name = (
                    value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
                )
                methods.setdefault(name, set()).add(node.attr)
            if isinstance(node, ast.For | ast.comprehension):
                loops.append((node.target, node.iter))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                loops += zip(functions.get(node.func.id, ()), node.args, strict=False)
    for target, over in loops:
        names = {
            part.arg if isinstance(part, ast.arg) else part.id
            for part in ast.walk(target)
            if isinstance(part, ast.Name | ast.arg)
        }
        given = {method for name in names for method in methods.get(name, ())}
        for part in ast.walk(over):
            if isinstance(part, ast.Name) and given:
                methods.setdefault(part.id, set()).update(given)
    return methods


def grown(pattern: str | bytes, flags: int) -> Iterator[Grown]:
    """Texts of any length: what leads to a repetition, a part repeated, and an ending that fails."""
    repetitions: list[tuple[str, str]] = []
    tree = _PARSER.parse(pattern, flags & ~re.UNICODE if isinstance(pattern, bytes) else flags)
    whole = _sample(tree, "", repetitions)
    excluded: list[str] = []
    singles = [*dict.fromkeys(_characters(tree, excluded))]
    endings = [*dict.fromkeys(["\0", *excluded[:2]])]
    parts = [*dict.fromkeys(part for before, body in repetitions for part in (body, before, before + body))]
    parts = [part for part in dict.fromkeys([*parts, whole, *singles[:16]]) if part][:40]
    pairs = [one + other for one in singles[:5] for other in singles[:5] if one != other]
    leads = [*dict.fromkeys(lead for lead, _ in repetitions if lead)]
    own = [*dict.fromkeys((lead, part) for lead, body in repetitions for part in (body, " ") if body)]
    other = [(lead, part, end) for part in [*parts, *pairs] for lead in ["", *leads[:3]] for end in endings]
    other = other[:: max(1, len(other) // _MOST_TEXTS)]
    for lead, part, end in [*((lead, part, end) for lead, part in own for end in endings), *other]:
        yield Grown(lead, part, end)


def _sample(tree: Any, before: str, repetitions: list[tuple[str, str]]) -> str:
    """A text that a part of an expression matches; open repetitions are added with what leads to them."""
    text = ""
    for kind, value in tree:
        lead = before + text
        match str(kind):
            case "LITERAL":
                text += chr(value)
            case "NOT_LITERAL":
                text += "a" if value != ord("a") else "b"
            case "ANY":
                text += "a"
            case "IN":
                text += _of_class(value)
            case "BRANCH":
                branches = [_sample(branch, lead, repetitions) for branch in value[1]]
                text += branches[0]
            case "SUBPATTERN":
                text += _sample(value[3], lead, repetitions)
            case "ATOMIC_GROUP":
                text += _sample(value, lead, repetitions)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, part = value
                body = _sample(part, lead, repetitions)
                if most > 20 and body:
                    repetitions.append((lead, body))
                text += body * min(max(least, 1), 40)
    return text


def _of_class(items: Any) -> str:
    """A character of a class."""
    inside = re.compile(_class_text(items), re.DOTALL)
    return next((sign for sign in "a0 -/\n.:;=\"'<>&@%_~," if inside.match(sign)), _characters([("IN", items)], [])[:1])


def _class_text(items: Any) -> str:
    text = ""
    for kind, value in items:
        match str(kind):
            case "NEGATE":
                text += "^"
            case "LITERAL":
                text += re.escape(chr(value))
            case "RANGE":
                text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
            case "CATEGORY":
                text += _CATEGORIES[str(value)]
    return f"[{text}]"


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


#: A character that is not in the class.
_IN_NONE = {"CATEGORY_NOT_DIGIT": "0", "CATEGORY_NOT_SPACE": " ", "CATEGORY_NOT_WORD": "a"}


def _characters(tree: Any, excluded: list[str]) -> str:
    """Characters that an expression names; those that a class leaves out are added to ``excluded``."""
    text = ""
    for kind, value in tree:
        match str(kind):
            case "LITERAL" | "NOT_LITERAL":
                text += chr(value)
                excluded += [chr(value)] * (str(kind) == "NOT_LITERAL")
            case "IN":
                named = "".join(
                    chr(each if str(one) == "LITERAL" else each[0])
                    for one, each in value
                    if str(one) in ("LITERAL", "RANGE")
                )
                named += "".join(_of_category(str(each)) for one, each in value if str(one) == "CATEGORY")
                excluded += list(named) if str(value[0][0]) == "NEGATE" else []
                excluded += [
                    _IN_NONE[str(each)] for one, each in value if str(one) == "CATEGORY" and str(each) in _IN_NONE
                ]
                text += named
            case "BRANCH":
                text += "".join(_characters(branch, excluded) for branch in value[1])
            case "SUBPATTERN":
                text += _characters(value[3], excluded)
            case "ATOMIC_GROUP":
                text += _characters(value, excluded)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                text += _characters(value[2], excluded)
            case "ANY":
                text += "a"
    return text


def _of_category(name: str) -> str:
    return next(sign for sign in "a0 -" if re.match(_CATEGORIES[name], sign))


class _TooLongError(Exception):
    pass


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _TooLongError


def seconds(used: Used, text: str) -> float:
    """Processor seconds of an expression's use on a text, at most about ``LONGEST``."""
    given: Any = text.encode("latin-1", "replace") if isinstance(used.expression.pattern, bytes) else text
    run = getattr(used.expression, used.method)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    start = time.thread_time()
    try:
        if used.method in ("sub", "subn"):
            run(given[:0], given)
        elif used.method == "finditer":
            for _ in run(given):
                pass
        else:
            run(given)
    except _TooLongError:
        return LONGEST
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.thread_time() - start


def growth(used: Used, text: Grown) -> float:
    """How many times longer twice the text takes, the least of some tries; 0 where it is too quick to tell."""
    quick = min(seconds(used, text(SIZE)) for _ in range(2)) if seconds(used, text(SIZE)) >= QUICK else 0.0
    if quick < QUICK:
        return 0.0
    if quick >= LONGEST:
        return SUPERLINEAR + 1
    least = float("inf")
    for _ in range(3):
        first, second = (min(seconds(used, text(size)) for _ in range(2)) for size in (SIZE, 2 * SIZE))
        least = min(least, second / max(first, 1e-9) if second < LONGEST else SUPERLINEAR + 1)
        if least < SUPERLINEAR:
            break
    return least


@pytest.fixture(autouse=True)
def _ends_what_takes_too_long() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, _stop)
    yield
    signal.signal(signal.SIGVTALRM, before)


def _slowest(used: Used) -> tuple[float, str]:
    texts = grown(used.expression.pattern, used.expression.flags)
    slowest = (0.0, "")
    for text in texts:
        slowest = max(slowest, (growth(used, text), text(12)))
        if slowest[0] >= SUPERLINEAR:
            break
    return slowest


def test_every_expression_is_linear() -> None:
    found = [(*_slowest(used), *used) for used in uses() if (used.place, used.name) not in BOUNDED]
    slow = [each for each in found if each[0] >= SUPERLINEAR]
    print(f"{len(found)} uses of expressions; the slowest growth: {max(found, key=lambda each: each[0])}")
    assert len(found) > 250
    assert not slow, "\n".join(map(str, slow))


def test_what_is_not_linear_is_quick_on_the_most_it_gets() -> None:
    bounded = {(used.place, used.name): used for used in uses() if (used.place, used.name) in BOUNDED}
    assert bounded.keys() == BOUNDED.keys()
    for key, used in bounded.items():
        for text in grown(used.expression.pattern, used.expression.flags):
            assert min(seconds(used, text(BOUNDED[key])) for _ in range(3)) < QUICK_BOUNDED, (key, text(12))


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"<!DOCTYPE[^>\[]*+(?:\[[^\]]*+\]\s*+)?>", "sub"),
        (r"\s+\Z", "search"),
        (r"(?:a|aa)+\Z", "match"),
        (r"<!--.*-->", "finditer"),
        (r"\s*x\s*,?\s*\d|\s*,", "sub"),
        (r"(.+?)\s+[|]\s+([^|]*)\Z", "fullmatch"),
    ],
)
def test_an_expression_that_is_not_linear_is_seen(pattern: str, method: str) -> None:
    used = Used("", None, re.compile(pattern, re.DOTALL), method)
    assert any(_slowest(used)[0] >= SUPERLINEAR for _ in range(TRIES))


def test_the_method_decides() -> None:
    assert _slowest(Used("", None, re.compile(r"\s+x"), "match"))[0] < SUPERLINEAR
    assert any(_slowest(Used("", None, re.compile(r"\s+x"), "search"))[0] >= SUPERLINEAR for _ in range(TRIES))
