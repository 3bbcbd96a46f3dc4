"""Conditions on captures: their columns, and the values allowed for each.

An index may lack a value that a condition needs. Then only the parsed page shows whether the capture matches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, has_feature, index_is_built
from cc_pipeline.commoncrawl.expressions import BARE, COMPARED, NUMBER, WORDS, Filter, Node, parse_filter
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, CONDITION_COLUMNS
from cc_pipeline.errors import UserInputError, describe_unknown_name

#: The values of the column ``condition_match`` of captures and pages, if their target has a condition. For captures and
#: records, ``unknown: `` precedes the rest of the condition, which the page must decide.
MATCH_YES, MATCH_NO, MATCH_UNKNOWN = "yes", "no", "unknown"
OPEN = f"{MATCH_UNKNOWN}: "

_TIME = re.compile(r"(\d{4})-?(?:(\d\d)-?(?:(\d\d)(?:[T ]?(\d\d):?(?:(\d\d):?(\d\d)?)?)?)?)?Z?")
_STATUSES = re.compile(r"[1-9]xx")
_MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/(?:\*|[a-z0-9][a-z0-9!#$&^_.+-]*)")
_LANGUAGE = re.compile(r"[a-z]{3}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLIPPED: Final = {
    "equal": "equal", "not_equal": "not_equal", "less": "greater", "greater": "less", "less_equal": "greater_equal",
    "greater_equal": "less_equal",
}  # fmt: skip
_SIGNS: Final = {"equal": "=", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
                 "greater_equal": ">="}  # fmt: skip
_ARITHMETIC: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

#: The columns of a condition, with the columns of a capture from which each is computed.
COLUMNS: Final = CONDITION_COLUMNS
_NUMBERS: Final = frozenset({"status", "time", "length"})
#: Columns computed from the URL: never missing if it is known.
_OF_URL: Final = frozenset({"protocol", "host", "domain", "tld", "path", "query"})
#: Columns that the crawler detects. Null means that it detected nothing, if the index has the column and the crawler
#: tried: languages only in HTML. Of other types ``_READ_LATER`` has a text, and so a language.
_DETECTED: Final = frozenset({"lang", "charset"})
_READ_LATER: Final = "application/pdf"
#: The indexes with the crawler's detections. A value that only other indexes lack is unknown.
_DESCRIBING: Final = ("parquet", "zipnum")
_IN_LOWER_CASE: Final = frozenset({"mime", "mime_claimed", "lang", "protocol", "host", "domain", "tld", "subset"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the captures of a target. ``text`` is its normal form, ``columns`` are the columns of a capture
    that it reads."""

    text: str
    columns: tuple[str, ...]
    _tree: Node
    _filter: Filter

    def truth(self, captures: pa.Table, *, parsed: bool = False) -> pa.Array:
        """Returns whether each of ``captures`` of one crawl matches, null if unknown. For ``parsed`` captures missing
        values are final."""
        unread = {} if parsed else {name: _unread(name, captures) for name in self._names}
        return self._truth({name: _compute_column(name, captures, parsed) for name in self._names}, captures, unread)

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self._filter.columns, *self._filter.perhaps)

    def _truth(
        self, condition_columns: Mapping[str, Any], captures: pa.Table, unread: Mapping[str, pa.Array]
    ) -> pa.Array:
        """Does the same with ``condition_columns``, those that could be computed from ``captures``."""
        columns: dict[str, Any] = {
            name: pa.nulls(len(captures), pa.int64() if name in _NUMBERS else pa.string())
            for name in COLUMNS
            # a table needs a column to have rows
            if name in self._names or name == "subset"
        }
        return self._filter.truth(pa.table(columns | dict(condition_columns)), unread)

    def _truth_of_one(self, column: str, captures: pa.Table) -> pa.Array:
        """Does the same if only one ``column`` of ``captures`` was read, besides the columns that all of them have."""
        has_value = pc.is_valid(captures[column])
        condition_columns: dict[str, Any] = {}
        unread = {name: pa.repeat(True, len(captures)) for name in self._names}
        for name in unread:
            first, *fallbacks = COLUMNS[name]
            if first == column:
                # of several columns the first with a value counts
                is_sole_source = not fallbacks and name not in _OF_URL
                nothing = pa.scalar(None, pa.int64() if name in _NUMBERS else pa.string())
                values = _compute_column(name, captures, False)
                condition_columns[name] = values if is_sole_source else pc.if_else(has_value, values, nothing)
                unread[name] = _unread(name, captures) if is_sole_source else pc.invert(has_value)
        return self._truth(condition_columns, captures, unread)

    def keep(self, captures: pa.Table) -> pa.Table:
        """Returns the ``captures`` of one crawl that may match, with the result in ``meant``."""
        truth = self.truth(captures)
        is_possible = pc.fill_null(truth, True)
        captures, truth = captures.filter(is_possible), truth.filter(is_possible)
        verdicts = pc.if_else(pc.is_valid(truth), MATCH_YES, pa.scalar(None, pa.string()))
        if truth.null_count:
            verdicts = pc.replace_with_mask(verdicts, pc.is_null(truth), self._open(captures.filter(pc.is_null(truth))))
        position = captures.schema.get_field_index("condition_match")
        return captures.set_column(position, captures.schema.field(position), verdicts)

    def _open(self, captures: pa.Table) -> pa.Array:
        """Returns for each of ``captures`` the rest of the condition that its page must decide."""
        parts = {_written(part): part for part in _parts(self._tree)}
        truths = [parse_condition(text).truth(captures).to_pylist() for text in parts]
        open_conditions: dict[tuple[bool | None, ...], str] = {}
        for row in set(zip(*truths, strict=True)):
            remainder = _simplify(self._tree, dict(zip(parts, row, strict=True)))
            assert isinstance(remainder, Node), "else the truth would be known"
            open_conditions[row] = OPEN + parse_condition(_written(remainder)).text
        return pa.array([open_conditions[row] for row in zip(*truths, strict=True)], pa.string())

    def values_of(self, name: str) -> tuple[str, ...]:
        """Returns the only values of a column that the condition allows; none if it allows any."""
        for part in self._tree.parts if self._tree.call == "and_kleene" else (self._tree,):
            equals = part.parts if part.call == "or_kleene" else (part,)
            if all(comparison.call == "equal" and _column(comparison) == name for comparison in equals):
                return tuple(str(comparison.parts[1].value) for comparison in equals)
        return ()

    def rules_out(self, column: str, values: pa.Array, crawl: str) -> pa.Array:
        """Returns for each value of one ``column`` of an index whether it alone excludes a capture."""
        bare = {field.name: pa.nulls(len(values), field.type) for field in CAPTURE_SCHEMA}
        bare |= {name: pa.repeat(text, len(values)) for name, text in (("crawl", crawl), ("located_by", "parquet"))}
        bare[column] = values
        return pc.fill_null(pc.invert(self._truth_of_one(column, pa.table(bare))), False)

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that the condition allows; none if it does not restrict them."""
        if "subset" not in self.columns:
            return ()
        bare = {field.name: pa.nulls(len(SUBSETS), field.type) for field in CAPTURE_SCHEMA}
        bare |= {"crawl": pa.array([""] * len(SUBSETS)), "subset": pa.array(SUBSETS)}
        truth = self._truth_of_one("subset", pa.table(bare)).to_pylist()
        return tuple(subset for subset, is_met in zip(SUBSETS, truth, strict=True) if is_met is not False)


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Parses the condition on captures in ``text``, see docs/targets.md. ``parse_condition(c.text) == c``.

    Raises ``UserInputError`` with the position of the fault.
    """
    typed = parse_filter(text.strip())
    tree = _normal(typed.tree, typed)
    normal = _written(tree)
    try:
        parse_filter(normal)
    except UserInputError:
        typed.raise_error(0, "is too long, or nested too deep, when its short forms are written out in full")
    executable_filter = replace(typed, tree=_worked(tree, typed))
    executable_filter.check({name: pa.int64() if name in _NUMBERS else pa.string() for name in COLUMNS})
    used_columns = {name for name in COLUMNS if name in _names(tree)}
    read = dict.fromkeys(column for name in COLUMNS if name in used_columns for column in COLUMNS[name])
    return Condition(
        normal,
        tuple(read),
        tree,
        replace(executable_filter, text=normal, columns=tuple(sorted(used_columns)), perhaps=()),
    )


def join_conditions(first: str, second: str) -> str:
    """Joins two conditions with ``and``; an empty one is ignored."""
    return f"({first}) and ({second})" if first and second else first or second


def build_condition(
    *,
    from_time: str | None = None,
    to_time: str | None = None,
    status: str | None = None,
    mime: str | None = None,
    language: str | None = None,
) -> str:
    """Builds the condition from its parts; lists are comma-separated. Without any part the text is empty.

    Raises ``UserInputError`` with a reason.
    """
    if from_time and to_time and period(from_time)[0] >= period(to_time)[1]:
        raise UserInputError(f"the first time, {from_time}, is after the last, {to_time}, so nothing can match")
    parts = [f"time >= {_quoted(from_time)}"] if from_time else []
    parts += [f"time <= {_quoted(to_time)}"] if to_time else []
    for name, values in (("status", status), ("mime", mime), ("lang", language)):
        items = [item.strip() for item in (values or "").split(",") if item.strip()]
        if items:
            parts.append(f"{name} in ({', '.join(value if value.isdigit() else _quoted(value) for value in items)})")
    return parse_condition(" and ".join(parts)).text if parts else ""


def period(text: str) -> tuple[datetime, datetime]:
    """Returns the first moment of the year, month, day, hour, minute or second in ``text``, and the first one after.

    ``text`` is ``2018``, ``2018-05``, ``2018-05-01``, ``2018-05-01T12:30`` or 4 to 14 digits, in UTC. Raises
    ``UserInputError``.
    """
    match = _TIME.fullmatch(text.strip().upper())
    numbers = [int(part) for part in match.groups() if part is not None] if match else []
    year, month, day, hour, minute, second = (*numbers, *(0, 1, 1, 0, 0, 0)[len(numbers) :])
    try:
        begin = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if len(numbers) == 1:
            return begin, begin.replace(year=year + 1)
        if len(numbers) == 2:
            return begin, (begin + timedelta(days=31)).replace(day=1)
        units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
        return begin, begin + units[len(numbers) - 3]
    except (ValueError, OverflowError) as fault:
        raise UserInputError(f"{text[:80]!r} is not a time; write 2018, 2018-05-01 or 2018-05-01T12:30") from fault


def _compute_column(name: str, captures: pa.Table, parsed: bool) -> Any:
    """Computes a column of conditions for each of ``captures``."""
    columns = [captures[column] for column in COLUMNS[name]]
    values = columns[0] if name == "lang" else pc.coalesce(*columns)
    if name in ("mime", "mime_claimed"):
        return pc.replace_substring_regex(pc.utf8_lower(values), r"(?s)[\s;].*", "")
    if name == "status":
        return pc.if_else(pc.greater(values, 0), values, None)  # -1 means a missing status
    if name == "time":
        return values.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    if name in _OF_URL:
        return pc.coalesce(values, pc.if_else(pc.is_valid(captures["url"]), "", None))
    if name in _DETECTED:
        if name == "lang":
            values = pc.binary_join_element_wise("", values, "", ",")
        detects = _detects(captures)
        if name == "lang":
            detects = pc.and_(detects, pc.fill_null(pc.not_equal(columns[1], _READ_LATER), True))
        absent_value = "" if parsed else pc.if_else(detects, "", None)
        return pc.coalesce(values, absent_value)
    return values


def _unread(name: str, captures: pa.Table) -> pa.Array:
    """Returns for each of ``captures`` of one crawl whether a column is null only because the index lacks it."""
    if name in _OF_URL or name == "url":
        return pa.repeat(False, len(captures))
    has_column = _detects(captures) if name in _DETECTED else _is_described(captures)
    return pc.invert(has_column).combine_chunks()


def _detects(captures: pa.Table) -> Any:
    """Returns for each capture of one crawl whether the index that located it has the crawler's detections."""
    crawl = captures["crawl"][0].as_py() if captures.num_rows else ""
    detects_languages = (
        crawl not in ARC_CRAWLS and not index_is_built(crawl) and has_feature(crawl, "content_languages") is not False
    )
    return pc.and_(_is_described(captures), detects_languages)


def _is_described(captures: pa.Table) -> Any:
    """Returns for each capture whether the index that located it has more than URL and location."""
    locators = captures["located_by"]
    return pc.is_in(locators, pa.array(_DESCRIBING))


def _normal(node: Node, typed: Filter) -> Node:
    """Returns the normal form: columns on the left, values as they are compared, and commutative parts sorted."""
    if node.call == "column":
        name = node.value.lower()
        if name not in COLUMNS:
            typed.raise_error(node.position, describe_unknown_name("column", node.value, COLUMNS))
        return replace(node, value=name)
    if node.call in COMPARED.values():
        left, right = node.parts
        if _column(node) is None and _is_column(right):
            # a column may follow its value
            node = replace(node, call=_FLIPPED[node.call], parts=(_as_column(right), left))
        name = _column(node)
        if name in COLUMNS:
            return _compared(node, str(name), typed)
    if node.call == "perhaps":
        return _normal(node.parts[0], typed)
    if node.call in ("like", "ilike") and _column(node) in ("lang", "time"):
        typed.raise_error(node.position, f"{_column(node)} cannot be compared with LIKE; use = instead")
    if node.call == "like" and _column(node) in _IN_LOWER_CASE:
        node = replace(node, value=node.value.lower())
    parts = [_normal(part, typed) for part in node.parts]
    if node.call in ("and_kleene", "or_kleene"):
        inner = [operand for part in parts for operand in (part.parts if part.call == node.call else (part,))]
        by_text = {_written(operand): operand for operand in inner}
        parts = [by_text[text] for text in sorted(by_text)]
        if len(parts) == 1:
            return parts[0]
    return replace(node, parts=tuple(parts))


def _compared(node: Node, name: str, typed: Filter) -> Node:
    """Returns the normal form of a comparison of a column, with its value, if it is one, normalized."""
    left, right = _normal(node.parts[0], typed), node.parts[1]
    if name == "lang" and node.call not in ("equal", "not_equal"):
        typed.raise_error(
            node.position, "lang can only be compared with = and !=, since a page may have several languages"
        )
    if _is_column(right) or right.call not in ("value", "perhaps") or isinstance(right.value, bool):
        if name in ("lang", "time"):
            typed.raise_error(
                right.position, f"{name} can only be compared with a value, not with a column or calculation"
            )
        return replace(node, parts=(left, _normal(right, typed)))
    value = right.value
    if name in _IN_LOWER_CASE:
        value = str(value).lower()
    if name == "status" and isinstance(value, str):
        value = value.lower()
        if not _STATUSES.fullmatch(value) or node.call not in ("equal", "not_equal"):
            if right.call == "perhaps":
                return replace(node, parts=(left, _normal(right, typed)))
            typed.raise_error(
                right.position, f"{str(right.value)[:80]!r} is not an HTTP status; write 200, or status = 3xx"
            )
    elif name == "time":
        value = str(value).upper()
        try:
            period(value)
        except UserInputError as refused:
            typed.raise_error(right.position, str(refused))
    elif name in _NUMBERS and right.call == "perhaps":
        return replace(node, parts=(left, _normal(right, typed)))
    for names, pattern, expected in (
        (("mime", "mime_claimed"), _MIME, "a MIME type, such as text/html or image/*"),
        (("lang",), _LANGUAGE, "a language; use ISO 639-3 codes such as eng, deu, zho"),
        (("subset",), re.compile("|".join(SUBSETS)), f"a subset; there are {', '.join(SUBSETS)}"),
    ):
        if name in names and not pattern.fullmatch(value):
            typed.raise_error(right.position, f"{str(right.value)[:80]!r} is not {expected}")
    if name not in _NUMBERS and not isinstance(value, str):
        typed.raise_error(right.position, f"{name} can only be compared with a text; put quotes around the value")
    return replace(node, parts=(left, Node("value", value=value, position=right.position)))


def _column(node: Node) -> str | None:
    """Returns the column on the left, if there is one."""
    left_operand = node.parts[0]
    return left_operand.value.lower() if left_operand.call == "column" else None


def _is_column(node: Node) -> bool:
    return _as_column(node).call == "column" and _as_column(node).value.lower() in COLUMNS


def _as_column(node: Node) -> Node:
    return node.parts[0] if node.call == "perhaps" else node


def _names(node: Node) -> set[str]:
    own_names = {node.value} if node.call == "column" else set()
    return own_names.union(*map(_names, node.parts))


def _worked(node: Node, typed: Filter) -> Node:
    """Returns an executable form: periods as moments, languages and types as parts of texts."""
    if node.call not in COMPARED.values() or node.parts[1].call != "value" or _column(node) is None:
        return replace(node, parts=tuple(_worked(part, typed) for part in node.parts))
    name, value, left_operand = _column(node), node.parts[1].value, node.parts[0]

    def compare_with(call: str, number: int) -> Node:
        return Node(call, (left_operand, Node("value", value=number)), position=node.position)

    if name == "time":
        first, end = ((moment - _EPOCH) // timedelta(milliseconds=1) for moment in period(value))
        if node.call not in ("equal", "not_equal"):
            return compare_with(*{
                "less": ("less", first), "less_equal": ("less", end),
                "greater": ("greater_equal", end), "greater_equal": ("greater_equal", first),
            }[node.call])  # fmt: skip
        return _unless(node, Node("and_kleene", (compare_with("greater_equal", first), compare_with("less", end))))
    if name == "status" and isinstance(value, str):
        first = int(value[0]) * 100
        return _unless(
            node, Node("and_kleene", (compare_with("greater_equal", first), compare_with("less", first + 100)))
        )
    if name == "lang":
        return _unless(node, Node("match_substring", (left_operand,), f",{value},", node.position))
    if name in ("mime", "mime_claimed") and value.endswith("/*"):
        return _unless(node, Node("starts_with", (left_operand,), value[:-1], node.position))
    return node


def _parts(node: Node) -> list[Node]:
    """Returns the comparisons in a condition."""
    if node.call in ("and_kleene", "or_kleene", "invert"):
        return [comparison for part in node.parts for comparison in _parts(part)]
    return [node]


def _simplify(node: Node, truths: Mapping[str, bool | None]) -> Node | bool:
    """Returns the undecided rest of a condition, or its truth. ``truths`` has the truth of its comparisons by their
    texts."""
    if node.call not in ("and_kleene", "or_kleene", "invert"):
        is_met = truths[_written(node)]
        return node if is_met is None else is_met
    parts = [_simplify(part, truths) for part in node.parts]
    if node.call == "invert":
        return not parts[0] if isinstance(parts[0], bool) else replace(node, parts=(parts[0],))
    decides = node.call == "or_kleene"
    if decides in [part for part in parts if isinstance(part, bool)]:
        return decides
    open_ = tuple(part for part in parts if isinstance(part, Node))
    return not decides if not open_ else open_[0] if len(open_) == 1 else replace(node, parts=open_)


def _unless(node: Node, equal: Node) -> Node:
    return Node("invert", (equal,)) if node.call == "not_equal" else equal


def _written(node: Node, inside: bool = False) -> str:
    """Returns an expression as text; ``inside`` another one in parentheses, if it needs them."""
    if node.call == "column":
        return str(node.value)
    if node.call == "value":
        if isinstance(node.value, bool):
            return str(node.value).lower()
        return _quoted(node.value) if isinstance(node.value, str) else repr(node.value)
    if node.call in _SIGNS:
        left, right = node.parts
        name = _column(node)
        value = _bare(right.value, name) if right.call == "value" and name else _operand(right)
        return f"{_operand(left)}{_SIGNS[node.call]}{value}"
    if node.call in ("like", "ilike"):
        return f"{_operand(node.parts[0])} {node.call} {_bare(node.value, None)}"
    if node.call == "is_null":
        return f"{_operand(node.parts[0])} is null"
    if node.call == "invert":
        return f"not {_written(node.parts[0], True)}"
    if node.call == "negate":
        return f"(-{_operand(node.parts[0])})"
    if node.call in _ARITHMETIC:
        first, second = (_operand(part) for part in node.parts)
        return f"({first} {_ARITHMETIC[node.call]} {second})"
    if node.call == "or_kleene" and len({_column(comparison) for comparison in node.parts if comparison.parts}) == 1:
        name = _column(node.parts[0])
        if name and all(
            comparison.call == "equal" and comparison.parts[1].call == "value" for comparison in node.parts
        ):
            return f"{name} in ({', '.join(_bare(comparison.parts[1].value, name) for comparison in node.parts)})"
    word = node.call.removesuffix("_kleene")
    text = f" {word} ".join(_written(part, True) for part in node.parts)
    return f"({text})" if inside else text


def _operand(node: Node) -> str:
    """Returns an operand of a comparison or calculation as text: a truth value needs parentheses."""
    is_plain = node.call in ("column", "value", "negate", *_ARITHMETIC)
    return _written(node) if is_plain else f"({_written(node)})"


def _bare(value: Any, name: str | None) -> str:
    """Returns a value as text, without quotes if it is read as the same value."""
    if not isinstance(value, str):
        return _written(Node("value", value=value))
    is_read = BARE.fullmatch(value) and value.lower() not in WORDS and value.lower() not in COLUMNS
    number = NUMBER.fullmatch(value) is not None
    return value if is_read and (name == "time" or not number) else _quoted(value)


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
