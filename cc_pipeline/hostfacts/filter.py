"""A filter on facts: an expression over columns, in SQL's words and with its three truth values.

It is read here and worked out by Arrow: no text of a person's ever becomes part of a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import UserInputError
from cc_pipeline.hostfacts.datasets import no_such

Kind = Literal["number", "text", "truth"]

#: Characters of an expression, and how deep parentheses and NOTs may be nested in it.
_LONGEST: Final = 4_000
_DEEPEST: Final = 50
_INT64: Final = 1 << 63

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<text>'(?:[^']|'')*')"
    r'|(?P<name>"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|<>|!=|==|[-=<>+*/(),]))'
)
_COMPARED: Final = {"=": "equal", "==": "equal", "<>": "not_equal", "!=": "not_equal", "<": "less", "<=": "less_equal",
                    ">": "greater", ">=": "greater_equal"}  # fmt: skip
_COUNTED: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "like", "ilike", "true", "false"})


@dataclass(frozen=True, slots=True)
class _Node:
    """``call`` is what is done with the values of ``parts``, ``at`` where that stands in the text."""

    call: str
    parts: tuple[_Node, ...] = ()
    value: Any = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Matches:
    """``rows`` is true where an expression is (no nulls); of ``unknown`` rows it is neither true nor false, because a
    column that it needs is null there."""

    rows: pa.Array
    unknown: int

    @property
    def count(self) -> int:
        """How many rows match."""
        return int(pc.sum(self.rows).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition as a person typed it, and the columns that it names."""

    text: str
    columns: tuple[str, ...]
    _tree: _Node

    def check(self, known: Mapping[str, pa.DataType]) -> None:
        """Raises ``UserInputError`` for a column that is not ``known``, naming those that are, and where values are
        compared or counted that cannot be."""
        if _kind(self._tree, _Columns(self.text, known)) != "truth":
            _wrong(self.text, 0, "is no condition: compare something, as in fetch_200 > 100")

    def over(self, table: pa.Table) -> Matches:
        """Which rows of ``table`` match. Raises ``UserInputError`` as :meth:`check` does."""
        schema = table.schema
        self.check({name: schema.field(name).type for name in schema.names})
        columns = _Columns(self.text, {name: schema.field(name).type for name in schema.names})
        found = _worked_out(self._tree, table, columns)
        truth = pa.repeat(found, table.num_rows) if isinstance(found, pa.Scalar) else found
        truth = truth.combine_chunks() if isinstance(truth, pa.ChunkedArray) else truth
        return Matches(pc.fill_null(truth, False), truth.null_count)


def parse_filter(text: str) -> Filter:
    """The condition in ``text``: columns, numbers, ``'text'``, ``true``, ``false``; ``= <> < <= > >=``, ``+ - * /``,
    ``[NOT] IN (…)``, ``[NOT] BETWEEN … AND …``, ``[NOT] LIKE``, ``IS [NOT] NULL``, ``AND OR NOT``, parentheses.

    Raises ``UserInputError`` that says where the text is wrong.
    """
    if len(text) > _LONGEST:
        raise UserInputError(f"a filter of {len(text):,} characters is longer than the {_LONGEST:,} that are read")
    reader = _Reader(text)
    tree = reader.either(0)
    reader.end()
    return Filter(text.strip(), tuple(dict.fromkeys(_named(tree))), tree)


def _named(node: _Node) -> list[str]:
    own = [node.value] if node.call == "column" else []
    return own + [name for part in node.parts for name in _named(part)]


def _wrong(text: str, at: int, why: str) -> NoReturn:
    where = f" at {text[at : at + 30]!r}" if at < len(text.rstrip()) else " at its end"
    raise UserInputError(f"the filter {text.strip()[:200]!r}{where}: {why}")


class _Reader:
    """Reads an expression from left to right; methods are named by what they read, loosest first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                _wrong(text, start, "cannot be read; see docs/facts.md for what a filter may say")
            self.tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()
        self.next = 0

    def at(self) -> int:
        return self.tokens[self.next][2] if self.next < len(self.tokens) else len(self.text)

    def word(self) -> str:
        """The next token as a keyword or sign; empty where it is neither."""
        if self.next == len(self.tokens):
            return ""
        kind, token, _ = self.tokens[self.next]
        return token if kind == "sign" else token.lower() if kind == "name" and token.lower() in _WORDS else ""

    def takes(self, *wanted: str) -> str:
        """The next token where it is one of these, which is then behind us."""
        found = self.word()
        if found not in wanted or not found:
            return ""
        self.next += 1
        return found

    def needs(self, wanted: str) -> None:
        if not self.takes(wanted):
            _wrong(self.text, self.at(), f"{wanted.upper()} is missing")

    def end(self) -> None:
        if self.next < len(self.tokens):
            _wrong(self.text, self.at(), "AND or OR is missing before it")

    def either(self, depth: int) -> _Node:
        return self._joined(self.both, "or", depth)

    def both(self, depth: int) -> _Node:
        return self._joined(self.negated, "and", depth)

    def negated(self, depth: int) -> _Node:
        at = self.at()
        if depth > _DEEPEST:
            _wrong(self.text, at, f"is nested deeper than {_DEEPEST}")
        if self.takes("not"):
            return _Node("invert", (self.negated(depth + 1),), at=at)
        return self.compared(depth)

    def compared(self, depth: int) -> _Node:
        left, at = self.sum(depth), self.at()
        if sign := self.takes(*_COMPARED):
            return _Node(_COMPARED[sign], (left, self.sum(depth)), at=at)
        if self.takes("is"):
            node = _Node("is_null", (left,), at=at)
            inverted = self.takes("not")
            self.needs("null")
            return _Node("invert", (node,), at=at) if inverted else node
        inverted = self.takes("not")
        if self.takes("in"):
            node = self._in(left, at, depth)
        elif self.takes("between"):
            low = self.sum(depth)
            self.needs("and")
            bounds = _Node("greater_equal", (left, low), at=at), _Node("less_equal", (left, self.sum(depth)), at=at)
            node = _Node("and_kleene", bounds, at=at)
        elif how := self.takes("like", "ilike"):
            pattern = self.value(depth)
            if pattern.call != "value" or not isinstance(pattern.value, str):
                _wrong(self.text, pattern.at, f"{how.upper()} takes a text, as in host LIKE '%.example.com'")
            node = _Node(how, (left,), pattern.value, at)
        elif inverted:
            _wrong(self.text, self.at(), "IN, BETWEEN or LIKE is missing behind NOT")
        else:
            return left
        return _Node("invert", (node,), at=at) if inverted else node

    def _in(self, left: _Node, at: int, depth: int) -> _Node:
        self.needs("(")
        parts = [_Node("equal", (left, self.sum(depth)), at=at)]
        while self.takes(","):
            parts.append(_Node("equal", (left, self.sum(depth)), at=at))
        self.needs(")")
        return _Node("or_kleene", tuple(parts), at=at)

    def sum(self, depth: int) -> _Node:
        return self._row(self.product, {"+": "add", "-": "subtract"}, depth)

    def product(self, depth: int) -> _Node:
        return self._row(self.value, {"*": "multiply", "/": "divide"}, depth)

    def value(self, depth: int) -> _Node:
        at = self.at()
        if depth > _DEEPEST:
            _wrong(self.text, at, f"is nested deeper than {_DEEPEST}")
        if self.takes("("):
            inner = self.either(depth + 1)
            self.needs(")")
            return inner
        if self.takes("-"):
            return _Node("negate", (self.value(depth + 1),), at=at)
        if truth := self.takes("true", "false"):
            return _Node("value", value=truth == "true", at=at)
        if self.next == len(self.tokens) or self.word():
            _wrong(self.text, at, "a column, a number or a text is missing")
        kind, token, _ = self.tokens[self.next]
        self.next += 1
        if kind == "number":
            return _Node("value", value=self._number(token, at), at=at)
        if kind == "text":
            return _Node("value", value=token[1:-1].replace("''", "'"), at=at)
        return _Node("column", value=token[1:-1].replace('""', '"') if token[0] == '"' else token, at=at)

    def _number(self, token: str, at: int) -> int | float:
        if not token.isdigit():
            return float(token)
        if int(token) >= _INT64:
            _wrong(self.text, at, "is a larger number than any fact")
        return int(token)

    def _row(self, part: Callable[[int], _Node], signs: Mapping[str, str], depth: int) -> _Node:
        """Parts that are counted together, from left to right."""
        node = part(depth)
        for _ in range(_DEEPEST):
            at = self.at()
            sign = self.takes(*signs)
            if not sign:
                return node
            node = _Node(signs[sign], (node, part(depth)), at=at)
        _wrong(self.text, self.at(), f"counts more than {_DEEPEST} things together")

    def _joined(self, part: Callable[[int], _Node], word: str, depth: int) -> _Node:
        """Conditions of which all (``and``) or any (``or``) must be true: side by side, however many there are."""
        at = self.at()
        parts = [part(depth)]
        while self.takes(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else _Node(f"{word}_kleene", tuple(parts), at=at)


class _Columns:
    """The columns that an expression may name: as they are written, or in any case where that is clear."""

    def __init__(self, text: str, known: Mapping[str, pa.DataType]) -> None:
        self.text = text
        self.known = known
        self._folded: dict[str, list[str]] = {}
        for name in known:
            self._folded.setdefault(name.lower(), []).append(name)

    def name(self, node: _Node) -> str:
        wanted: str = node.value
        if wanted in self.known:
            return wanted
        alike = self._folded.get(wanted.lower(), [])
        if len(alike) == 1:
            return alike[0]
        _wrong(self.text, node.at, no_such("column", wanted, self.known))

    def kind(self, node: _Node) -> Kind:
        name = self.name(node)
        stored = self.known[name]
        if pa.types.is_boolean(stored):
            return "truth"
        if pa.types.is_integer(stored) or pa.types.is_floating(stored):
            return "number"
        if pa.types.is_string(stored) or pa.types.is_large_string(stored):
            return "text"
        _wrong(self.text, node.at, f"the column {name} is of the type {stored}, which no filter compares")


def _kind(node: _Node, columns: _Columns) -> Kind:
    """What an expression gives. Raises ``UserInputError`` where kinds do not go together."""
    if node.call == "column":
        return columns.kind(node)
    if node.call == "value":
        return "truth" if isinstance(node.value, bool) else "text" if isinstance(node.value, str) else "number"
    kinds = [_kind(part, columns) for part in node.parts]
    if node.call == "is_null":
        return "truth"
    if node.call in _COUNTED.values() or node.call == "negate":
        return _only("number", kinds, node, columns)
    if node.call in ("and_kleene", "or_kleene", "invert"):
        return _only("truth", kinds, node, columns)
    if node.call in ("like", "ilike"):
        _only("text", kinds, node, columns)
    elif kinds[0] != kinds[1]:
        _wrong(columns.text, node.at, f"a {kinds[0]} is compared with a {kinds[1]}")
    return "truth"


def _only(wanted: Kind, kinds: Sequence[Kind], node: _Node, columns: _Columns) -> Kind:
    for part, kind in zip(node.parts, kinds, strict=True):
        if kind != wanted:
            _wrong(columns.text, part.at, f"is a {kind} where a {wanted} is needed")
    return wanted


def _like(pattern: str) -> str:
    """A LIKE pattern as a regular expression. SQL's LIKE has no escape, and Arrow's has one."""
    signs = {"%": ".*", "_": "."}
    return rf"(?s)\A{''.join(signs.get(letter) or re.escape(letter) for letter in pattern)}\z"


def _worked_out(node: _Node, table: pa.Table, columns: _Columns) -> Any:
    if node.call == "column":
        found = table[columns.name(node)]
        if pa.types.is_floating(found.type):
            return _known(found)
        return found.cast(pa.string()) if pa.types.is_large_string(found.type) else found
    if node.call == "value":
        return pa.scalar(node.value)
    parts = [_worked_out(part, table, columns) for part in node.parts]
    if node.call in ("like", "ilike"):
        return pc.match_substring_regex(parts[0], _like(node.value), ignore_case=node.call == "ilike")
    if node.call in ("and_kleene", "or_kleene"):
        return reduce(getattr(pc, node.call), parts)
    if node.call in _COUNTED.values() or node.call == "negate":
        parts = [_double(part) for part in parts]
        if node.call == "divide":
            # nothing divided by nothing is no number, and no reason to fail
            zero = pc.equal(parts[1], 0.0)
            parts[1] = pc.if_else(zero, pa.scalar(None, pa.float64()), parts[1])
        return _known(getattr(pc, node.call)(*parts))
    if node.call in _COMPARED.values() and any(pa.types.is_floating(part.type) for part in parts):
        parts = [_double(part) for part in parts]
    return getattr(pc, node.call)(*parts)


def _double(numbers: Any) -> Any:
    """Numbers as doubles: of whole ones above 2^53 the nearest, where Arrow by itself would refuse to go on."""
    return pc.cast(numbers, pa.float64(), safe=False)


def _known(numbers: Any) -> Any:
    """What is not a number is not known, as null is: it would match the opposite of every condition."""
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)
