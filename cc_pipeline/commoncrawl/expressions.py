"""The language of conditions, on captures and on facts of hosts: an expression over columns, with SQL's words and its
three truth values.

It is parsed here and evaluated by Arrow: no user's text ever becomes part of a query. After a comparison a text needs
no quotes: ``mime=text/html``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite
from typing import Any, Final, Literal, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import UserInputError, describe_unknown_name

Kind = Literal["number", "text", "truth"]

#: The maximum length of an expression, and the maximum nesting of parentheses and NOTs.
_LONGEST: Final = 4_000
_DEEPEST: Final = 50
_INT64_LIMIT: Final = 1 << 63

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<text>'(?:[^']|'')*')"
    r'|(?P<name>"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|<>|!=|==|[-=<>+*/(),]))'
)
#: A text without quotes, and a number.
BARE: Final = re.compile(r"[A-Za-z0-9_./*%:+~?&#@$^-]+")
NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
COMPARED: Final = {"=": "equal", "==": "equal", "<>": "not_equal", "!=": "not_equal", "<": "less", "<=": "less_equal",
                    ">": "greater", ">=": "greater_equal"}  # fmt: skip
_ARITHMETIC: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
#: Comparisons with a constant text: ``value`` of the node.
_WITH_TEXT: Final = frozenset({"like", "ilike", "starts_with", "match_substring"})
WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "like", "ilike", "true", "false"})


@dataclass(frozen=True, slots=True)
class Node:
    """A node of an expression. ``call`` is the operation on the values of ``parts``, ``position`` its position in the
    text. ``perhaps`` is ambiguous: an expression, or the text in ``value``; the other side of the comparison
    decides."""

    call: str
    parts: tuple[Node, ...] = ()
    value: Any = None
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Matches:
    """``rows`` is true for matching rows (no nulls); for ``unknown_count`` rows the expression is neither true nor
    false, because a column that it needs is null."""

    rows: pa.Array
    unknown_count: int

    @property
    def count(self) -> int:
        """Number of matching rows."""
        return int(pc.sum(self.rows).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition as typed, and the columns that it names; ``perhaps`` are names that may be texts."""

    text: str
    columns: tuple[str, ...]
    tree: Node
    perhaps: tuple[str, ...] = ()

    def raise_error(self, position: int, reason: str) -> NoReturn:
        """Raises ``UserInputError`` that shows the position."""
        _raise_error(self.text, position, reason)

    def check(self, column_types: Mapping[str, pa.DataType]) -> None:
        """Raises ``UserInputError`` for a column that is not in ``column_types``, with the known ones, and for values
        that cannot be compared or calculated."""
        columns = _Columns(self.text, column_types)
        if _kind(_resolve_ambiguous(self.tree, columns), columns) != "truth":
            _raise_error(self.text, 0, "is no condition; compare a column with a value, as in status = 200")

    def match_table(self, table: pa.Table) -> Matches:
        """Returns the matching rows of ``table``. Raises ``UserInputError`` as :meth:`check` does."""
        truth = self.truth(table)
        return Matches(pc.fill_null(truth, False), truth.null_count)

    def truth(self, table: pa.Table, unread: Mapping[str, pa.Array] | None = None) -> pa.Array:
        """Returns whether the condition holds, row by row; null if a column that it needs is. Raises as :meth:`check`.

        ``unread`` marks by column the rows that are null only because nobody read them: there IS NULL is unknown
        too."""
        column_types = {field.name: field.type for field in table.schema}
        self.check(column_types)
        columns = _Columns(self.text, column_types, unread or {})
        evaluated = _evaluate(_resolve_ambiguous(self.tree, columns), table, columns)
        truth = pa.repeat(evaluated, table.num_rows) if isinstance(evaluated, pa.Scalar) else evaluated
        return truth.combine_chunks() if isinstance(truth, pa.ChunkedArray) else truth


def parse_filter(text: str) -> Filter:
    """Parses the condition in ``text``: columns, numbers, ``'text'``, ``true``, ``false``; ``= <> < <= > >=``, ``+ - *
    /``, ``[NOT] IN (…)``, ``[NOT] BETWEEN … AND …``, ``[NOT] LIKE``, ``IS [NOT] NULL``, ``AND OR NOT``, parentheses. A
    text after a comparison needs no quotes.

    Raises ``UserInputError`` with the position of the fault.
    """
    if len(text) > _LONGEST:
        raise UserInputError(f"the filter has {len(text):,} characters; at most {_LONGEST:,} are allowed")
    reader = _Reader(text)
    tree = reader.read_or(0)
    reader.end()
    sure = tuple(dict.fromkeys(_column_names(tree)))
    return Filter(
        text, sure, tree, tuple(name for name in dict.fromkeys(_column_names(tree, True)) if name not in sure)
    )


def _column_names(node: Node, perhaps: bool = False) -> list[str]:
    if node.call == "perhaps" and not perhaps:
        return []
    own_names = [node.value] if node.call == "column" else []
    return own_names + [name for part in node.parts for name in _column_names(part, perhaps)]


def _raise_error(text: str, position: int, reason: str) -> NoReturn:
    where = f" at {text[position : position + 30]!r}" if position < len(text.rstrip()) else " at its end"
    raise UserInputError(f"the filter {text.strip()[:200]!r}{where}: {reason}")


class _Reader:
    """Reads an expression from left to right. A method reads the construct in its name, the loosest binding first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end_of_last = 0

    def next_position(self) -> int:
        """Returns the position of the next token."""
        remaining_text = self.text[self.end_of_last :]
        return self.end_of_last + len(remaining_text) - len(remaining_text.lstrip())

    def peek(self) -> tuple[str, str, int]:
        """Returns the next token: its kind (empty at the end), text and end."""
        position = self.next_position()
        if position == len(self.text):
            return "", "", position
        match = _TOKEN.match(self.text, position)
        if match is None or match.lastgroup is None:
            _raise_error(self.text, position, "cannot be read; see docs/targets.md for the words of a condition")
        return match.lastgroup, match[match.lastgroup], match.end()

    def word(self) -> str:
        """Returns the next token as a keyword or sign; empty if it is neither."""
        kind, token, _ = self.peek()
        return token if kind == "sign" else token.lower() if kind == "name" and token.lower() in WORDS else ""

    def accept(self, *words: str) -> str:
        """Consumes and returns the next token if it is one of these; else returns an empty text."""
        word = self.word()
        if word not in words or not word:
            return ""
        self.end_of_last = self.peek()[2]
        return word

    def expect(self, word: str) -> None:
        if not self.accept(word):
            _raise_error(self.text, self.next_position(), f"{word.upper()} is missing")

    def end(self) -> None:
        if self.peek()[0]:
            _raise_error(self.text, self.next_position(), "AND or OR is missing before this text")

    def read_or(self, depth: int) -> Node:
        return self._joined(self.read_and, "or", depth)

    def read_and(self, depth: int) -> Node:
        return self._joined(self.negated, "and", depth)

    def negated(self, depth: int) -> Node:
        position = self.next_position()
        if depth > _DEEPEST:
            _raise_error(self.text, position, f"is nested deeper than {_DEEPEST}")
        if self.accept("not"):
            return Node("invert", (self.negated(depth + 1),), position=position)
        return self.compared(depth)

    def compared(self, depth: int) -> Node:
        left_operand, position = self.sum(depth), self.next_position()
        if sign := self.accept(*COMPARED):
            return Node(COMPARED[sign], (left_operand, self.operand(depth)), position=position)
        if self.accept("is"):
            node = Node("is_null", (left_operand,), position=position)
            inverted = self.accept("not")
            self.expect("null")
            return Node("invert", (node,), position=position) if inverted else node
        inverted = self.accept("not")
        if self.accept("in"):
            node = self._read_list(left_operand, position, depth)
        elif self.accept("between"):
            low = self.operand(depth)
            self.expect("and")
            bounds = (
                Node("greater_equal", (left_operand, low), position=position),
                Node("less_equal", (left_operand, self.operand(depth)), position=position),
            )
            node = Node("and_kleene", bounds, position=position)
        elif operator := self.accept("like", "ilike"):
            pattern = self.operand(depth)
            if pattern.call not in ("value", "perhaps") or not isinstance(pattern.value, str):
                _raise_error(
                    self.text, pattern.position, f"{operator.upper()} takes a text, as in host LIKE '%.example.com'"
                )
            node = Node(operator, (left_operand,), pattern.value, position)
        elif inverted:
            _raise_error(self.text, self.next_position(), "IN, BETWEEN or LIKE is missing after NOT")
        else:
            return left_operand
        return Node("invert", (node,), position=position) if inverted else node

    def _read_list(self, left_operand: Node, position: int, depth: int) -> Node:
        self.expect("(")
        parts = [Node("equal", (left_operand, self.operand(depth)), position=position)]
        while self.accept(","):
            parts.append(Node("equal", (left_operand, self.operand(depth)), position=position))
        self.expect(")")
        return Node("or_kleene", tuple(parts), position=position)

    def operand(self, depth: int) -> Node:
        """Reads the right side of a comparison: an arithmetic expression, or a text, quoted or not."""
        position = self.next_position()
        match = BARE.match(self.text, position)
        if match is None or match[0].lower() in WORDS or NUMBER.fullmatch(match[0]):
            return self.sum(depth)
        try:
            arithmetic = self.sum(depth)
        except UserInputError:
            arithmetic = None
        if arithmetic is None or self.end_of_last < match.end():
            self.end_of_last = match.end()
            return Node("value", value=match[0], position=position)
        return Node("perhaps", (arithmetic,), match[0], position) if self.end_of_last == match.end() else arithmetic

    def sum(self, depth: int) -> Node:
        return self._row(self.product, {"+": "add", "-": "subtract"}, depth)

    def product(self, depth: int) -> Node:
        return self._row(self.value, {"*": "multiply", "/": "divide"}, depth)

    def value(self, depth: int) -> Node:
        position = self.next_position()
        if depth > _DEEPEST:
            _raise_error(self.text, position, f"is nested deeper than {_DEEPEST}")
        if self.accept("("):
            inner = self.read_or(depth + 1)
            self.expect(")")
            return inner
        if self.accept("-"):
            return Node("negate", (self.value(depth + 1),), position=position)
        if truth := self.accept("true", "false"):
            return Node("value", value=truth == "true", position=position)
        kind, token, end = self.peek()
        if not kind or self.word():
            _raise_error(self.text, position, "a column, a number or a text is missing")
        self.end_of_last = end
        if kind == "number":
            return Node("value", value=self._number(token, position), position=position)
        if kind == "text":
            return Node("value", value=token[1:-1].replace("''", "'"), position=position)
        return Node("column", value=token[1:-1].replace('""', '"') if token[0] == '"' else token, position=position)

    def _number(self, token: str, position: int) -> int | float:
        if not token.isdigit() and isfinite(number := float(token)):
            return number
        if not token.isdigit() or int(token) >= _INT64_LIMIT:
            _raise_error(self.text, position, "the number is too large for a column")
        return int(token)

    def _row(self, part: Callable[[int], Node], signs: Mapping[str, str], depth: int) -> Node:
        """Reads parts that are calculated from left to right."""
        node = part(depth)
        for _ in range(_DEEPEST):
            position = self.next_position()
            sign = self.accept(*signs)
            if not sign:
                return node
            node = Node(signs[sign], (node, part(depth)), position=position)
        _raise_error(self.text, self.next_position(), f"has more than {_DEEPEST} terms in one calculation")

    def _joined(self, part: Callable[[int], Node], word: str, depth: int) -> Node:
        """Reads conditions of which all (``and``) or any (``or``) must be true, into one flat node."""
        position = self.next_position()
        parts = [part(depth)]
        while self.accept(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Node(f"{word}_kleene", tuple(parts), position=position)


class _Columns:
    """The columns that an expression may name: as written, or in any case if that is unambiguous."""

    def __init__(
        self, text: str, column_types: Mapping[str, pa.DataType], unread: Mapping[str, pa.Array] | None = None
    ) -> None:
        self.text = text
        self.column_types = column_types
        self.unread = unread or {}
        self._folded: dict[str, list[str]] = {}
        for name in column_types:
            self._folded.setdefault(name.lower(), []).append(name)

    def name(self, node: Node) -> str:
        name: str = node.value
        if name in self.column_types:
            return name
        spellings = self._folded.get(name.lower(), [])
        if len(spellings) == 1:
            return spellings[0]
        _raise_error(self.text, node.position, describe_unknown_name("column", name, self.column_types))

    def has_column(self, name: str) -> bool:
        """Whether ``name`` is the name of a column."""
        return name in self.column_types or len(self._folded.get(name.lower(), [])) == 1

    def kind(self, node: Node) -> Kind:
        name = self.name(node)
        stored = self.column_types[name]
        if pa.types.is_boolean(stored):
            return "truth"
        if pa.types.is_integer(stored) or pa.types.is_floating(stored):
            return "number"
        if pa.types.is_string(stored) or pa.types.is_large_string(stored):
            return "text"
        _raise_error(
            self.text, node.position, f"the column {name} has the type {stored}, which a filter cannot compare"
        )


def _resolve_ambiguous(node: Node, columns: _Columns) -> Node:
    """Resolves each ``perhaps``: a column's name is the column, else next to a text it is a text."""
    if node.call in COMPARED.values() and node.parts[1].call == "perhaps":
        left, right = node.parts[0], node.parts[1]
        is_column = right.parts[0].call == "column" and columns.has_column(right.parts[0].value)
        if not is_column and left.call != "value" and _kind(_resolve_ambiguous(left, columns), columns) == "text":
            right = Node("value", value=right.value, position=right.position)
        return replace(node, parts=(_resolve_ambiguous(left, columns), _resolve_ambiguous(right, columns)))
    if node.call == "perhaps":
        return _resolve_ambiguous(node.parts[0], columns)
    return replace(node, parts=tuple(_resolve_ambiguous(part, columns) for part in node.parts)) if node.parts else node


def _kind(node: Node, columns: _Columns) -> Kind:
    """Returns the kind of an expression's value. Raises ``UserInputError`` for incompatible kinds."""
    if node.call == "column":
        return columns.kind(node)
    if node.call == "value":
        return "truth" if isinstance(node.value, bool) else "text" if isinstance(node.value, str) else "number"
    kinds = [_kind(part, columns) for part in node.parts]
    if node.call == "is_null":
        return "truth"
    if node.call in _ARITHMETIC.values() or node.call == "negate":
        return _only("number", kinds, node, columns)
    if node.call in ("and_kleene", "or_kleene", "invert"):
        return _only("truth", kinds, node, columns)
    if node.call in _WITH_TEXT:
        _only("text", kinds, node, columns)
    elif kinds[0] != kinds[1]:
        _raise_error(columns.text, node.position, f"a {kinds[0]} cannot be compared with a {kinds[1]}")
    return "truth"


def _only(expected: Kind, kinds: Sequence[Kind], node: Node, columns: _Columns) -> Kind:
    for part, kind in zip(node.parts, kinds, strict=True):
        if kind != expected:
            _raise_error(columns.text, part.position, f"is a {kind} where a {expected} is needed")
    return expected


def _like(pattern: str) -> str:
    """Returns a LIKE pattern as a regular expression. SQL's LIKE has no escape, and Arrow's has one."""
    signs = {"%": ".*", "_": "."}
    return rf"(?s)\A{''.join(signs.get(letter) or re.escape(letter) for letter in pattern)}\z"


def _evaluate(node: Node, table: pa.Table, columns: _Columns) -> Any:
    if node.call == "column":
        column = table[columns.name(node)]
        if pa.types.is_floating(column.type):
            return _replace_nan(column)
        return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column
    if node.call == "value":
        return pa.scalar(node.value)
    parts = [_evaluate(part, table, columns) for part in node.parts]
    if node.call in ("like", "ilike"):
        return pc.match_substring_regex(parts[0], _like(node.value), ignore_case=node.call == "ilike")
    if node.call in _WITH_TEXT:
        return getattr(pc, node.call)(parts[0], node.value)
    if node.call in ("and_kleene", "or_kleene"):
        return reduce(getattr(pc, node.call), parts)
    if node.call == "is_null":
        missing = pc.is_null(parts[0])
        unread = [columns.unread[name] for name in _column_names(node, True) if name in columns.unread]
        return reduce(_unless_unread, unread, missing)
    if node.call in _ARITHMETIC.values() or node.call == "negate":
        parts = [_double(part) for part in parts]
        if node.call == "divide":
            # zero divided by zero is not a number, and no reason to fail
            zero = pc.equal(parts[1], 0.0)
            parts[1] = pc.if_else(zero, pa.scalar(None, pa.float64()), parts[1])
        return _replace_nan(getattr(pc, node.call)(*parts))
    if node.call in COMPARED.values() and any(pa.types.is_floating(part.type) for part in parts):
        parts = [_double(part) for part in parts]
    return getattr(pc, node.call)(*parts)


def _unless_unread(missing: Any, unread: pa.Array) -> Any:
    """Returns ``missing``, null where it is true and a column was not read: reading it might give a value."""
    return pc.if_else(pc.and_kleene(missing, unread), pa.scalar(None, pa.bool_()), missing)


def _double(numbers: Any) -> Any:
    """Returns numbers as doubles; whole numbers above 2^53 are rounded, which Arrow refuses by default."""
    return pc.cast(numbers, pa.float64(), safe=False)


def _replace_nan(numbers: Any) -> Any:
    """Replaces NaN by null: it would match the opposite of every condition."""
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)
