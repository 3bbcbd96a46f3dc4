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

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, has, index_is_built
from cc_pipeline.commoncrawl.expressions import BARE, COMPARED, NUMBER, WORDS, Filter, Node, parse_filter
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, CONDITION_COLUMNS
from cc_pipeline.errors import UserInputError, no_such

#: The values of the column ``meant`` of captures and pages, if their target has a condition. For captures and records,
#: ``unknown: `` precedes the rest of the condition, which the page must decide.
YES, NO, UNKNOWN = "yes", "no", "unknown"
OPEN = f"{UNKNOWN}: "

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
_COUNTED: Final = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

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
        return self._truth({name: _made(name, captures, parsed) for name in self._names}, captures, unread)

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self._filter.columns, *self._filter.perhaps)

    def _truth(self, made: Mapping[str, Any], captures: pa.Table, unread: Mapping[str, pa.Array]) -> pa.Array:
        """Does the same with the columns of conditions in ``made``, those that could be computed from ``captures``."""
        columns: dict[str, Any] = {
            name: pa.nulls(len(captures), pa.int64() if name in _NUMBERS else pa.string())
            for name in COLUMNS
            # a table needs a column to have rows
            if name in self._names or name == "subset"
        }
        return self._filter.truth(pa.table(columns | dict(made)), unread)

    def _truth_of_one(self, column: str, captures: pa.Table) -> pa.Array:
        """Does the same if only one ``column`` of ``captures`` was read, besides the columns that all of them have."""
        given = pc.is_valid(captures[column])
        made: dict[str, Any] = {}
        unread = {name: pa.repeat(True, len(captures)) for name in self._names}
        for name in unread:
            first, *others = COLUMNS[name]
            if first == column:
                # of several columns the first with a value counts
                alone = not others and name not in _OF_URL
                nothing = pa.scalar(None, pa.int64() if name in _NUMBERS else pa.string())
                values = _made(name, captures, False)
                made[name] = values if alone else pc.if_else(given, values, nothing)
                unread[name] = _unread(name, captures) if alone else pc.invert(given)
        return self._truth(made, captures, unread)

    def keep(self, captures: pa.Table) -> pa.Table:
        """Returns the ``captures`` of one crawl that may match, with the result in ``meant``."""
        truth = self.truth(captures)
        may_be = pc.fill_null(truth, True)
        captures, truth = captures.filter(may_be), truth.filter(may_be)
        said = pc.if_else(pc.is_valid(truth), YES, pa.scalar(None, pa.string()))
        if truth.null_count:
            said = pc.replace_with_mask(said, pc.is_null(truth), self._open(captures.filter(pc.is_null(truth))))
        at = captures.schema.get_field_index("meant")
        return captures.set_column(at, captures.schema.field(at), said)

    def _open(self, captures: pa.Table) -> pa.Array:
        """Returns for each of ``captures`` the rest of the condition that its page must decide."""
        parts = {_written(part): part for part in _parts(self._tree)}
        told = [parse_condition(text).truth(captures).to_pylist() for text in parts]
        asked: dict[tuple[bool | None, ...], str] = {}
        for row in set(zip(*told, strict=True)):
            left = _left(self._tree, dict(zip(parts, row, strict=True)))
            assert isinstance(left, Node), "else the truth would be known"
            asked[row] = OPEN + parse_condition(_written(left)).text
        return pa.array([asked[row] for row in zip(*told, strict=True)], pa.string())

    def values_of(self, name: str) -> tuple[str, ...]:
        """Returns the only values of a column that the condition allows; none if it allows any."""
        for part in self._tree.parts if self._tree.call == "and_kleene" else (self._tree,):
            equals = part.parts if part.call == "or_kleene" else (part,)
            if all(one.call == "equal" and _column(one) == name for one in equals):
                return tuple(str(one.parts[1].value) for one in equals)
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
        return tuple(subset for subset, so in zip(SUBSETS, truth, strict=True) if so is not False)


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
        typed.wrong(0, "is too long, or nested too deep, once it is written out in full")
    asked = replace(typed, tree=_worked(tree, typed))
    asked.check({name: pa.int64() if name in _NUMBERS else pa.string() for name in COLUMNS})
    named = {name for name in COLUMNS if name in _names(tree)}
    read = dict.fromkeys(column for name in COLUMNS if name in named for column in COLUMNS[name])
    return Condition(normal, tuple(read), tree, replace(asked, text=normal, columns=tuple(sorted(named)), perhaps=()))


def both(one: str, other: str) -> str:
    """Joins two conditions with ``and``; an empty one is ignored."""
    return f"({one}) and ({other})" if one and other else one or other


def in_words(
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
    for name, listed in (("status", status), ("mime", mime), ("lang", language)):
        items = [item.strip() for item in (listed or "").split(",") if item.strip()]
        if items:
            parts.append(f"{name} in ({', '.join(one if one.isdigit() else _quoted(one) for one in items)})")
    return parse_condition(" and ".join(parts)).text if parts else ""


def period(text: str) -> tuple[datetime, datetime]:
    """Returns the first moment of the year, month, day, hour, minute or second in ``text``, and the first one after.

    ``text`` is ``2018``, ``2018-05``, ``2018-05-01``, ``2018-05-01T12:30`` or 4 to 14 digits, in UTC. Raises
    ``UserInputError``.
    """
    match = _TIME.fullmatch(text.strip().upper())
    given = [int(part) for part in match.groups() if part is not None] if match else []
    year, month, day, hour, minute, second = (*given, *(0, 1, 1, 0, 0, 0)[len(given) :])
    try:
        begin = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if len(given) == 1:
            return begin, begin.replace(year=year + 1)
        if len(given) == 2:
            return begin, (begin + timedelta(days=31)).replace(day=1)
        units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
        return begin, begin + units[len(given) - 3]
    except (ValueError, OverflowError) as fault:
        raise UserInputError(f"{text[:80]!r} is not a time; write 2018, 2018-05-01 or 2018-05-01T12:30") from fault


def _made(name: str, captures: pa.Table, parsed: bool) -> Any:
    """Computes a column of conditions for each of ``captures``."""
    columns = [captures[column] for column in COLUMNS[name]]
    found = columns[0] if name == "lang" else pc.coalesce(*columns)
    if name in ("mime", "mime_claimed"):
        return pc.replace_substring_regex(pc.utf8_lower(found), r"(?s)[\s;].*", "")
    if name == "status":
        return pc.if_else(pc.greater(found, 0), found, None)  # -1 means a missing status
    if name == "time":
        return found.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    if name in _OF_URL:
        return pc.coalesce(found, pc.if_else(pc.is_valid(captures["url"]), "", None))
    if name in _DETECTED:
        if name == "lang":
            found = pc.binary_join_element_wise("", found, "", ",")
        looked = _detects(captures)
        if name == "lang":
            looked = pc.and_(looked, pc.fill_null(pc.not_equal(columns[1], _READ_LATER), True))
        none = "" if parsed else pc.if_else(looked, "", None)
        return pc.coalesce(found, none)
    return found


def _unread(name: str, captures: pa.Table) -> pa.Array:
    """Returns for each of ``captures`` of one crawl whether a column is null only because the index lacks it."""
    if name in _OF_URL or name == "url":
        return pa.repeat(False, len(captures))
    has_it = _detects(captures) if name in _DETECTED else _is_described(captures)
    return pc.invert(has_it).combine_chunks()


def _detects(captures: pa.Table) -> Any:
    """Returns for each capture of one crawl whether the index that located it has the crawler's detections."""
    crawl = captures["crawl"][0].as_py() if captures.num_rows else ""
    says = crawl not in ARC_CRAWLS and not index_is_built(crawl) and has(crawl, "content_languages") is not False
    return pc.and_(_is_described(captures), says)


def _is_described(captures: pa.Table) -> Any:
    """Returns for each capture whether the index that located it has more than URL and location."""
    by = captures["located_by"]
    return pc.is_in(by, pa.array(_DESCRIBING))


def _normal(node: Node, typed: Filter) -> Node:
    """Returns the normal form: columns on the left, values as they are compared, and commutative parts sorted."""
    if node.call == "column":
        name = node.value.lower()
        if name not in COLUMNS:
            typed.wrong(node.at, no_such("column", node.value, COLUMNS))
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
        typed.wrong(node.at, f"{_column(node)} is compared with =, not with LIKE")
    if node.call == "like" and _column(node) in _IN_LOWER_CASE:
        node = replace(node, value=node.value.lower())
    parts = [_normal(part, typed) for part in node.parts]
    if node.call in ("and_kleene", "or_kleene"):
        inner = [one for part in parts for one in (part.parts if part.call == node.call else (part,))]
        by_text = {_written(one): one for one in inner}
        parts = [by_text[text] for text in sorted(by_text)]
        if len(parts) == 1:
            return parts[0]
    return replace(node, parts=tuple(parts))


def _compared(node: Node, name: str, typed: Filter) -> Node:
    """Returns the normal form of a comparison of a column, with its value, if it is one, normalized."""
    left, right = _normal(node.parts[0], typed), node.parts[1]
    if name == "lang" and node.call not in ("equal", "not_equal"):
        typed.wrong(node.at, "lang takes = and !=: a page may have several languages")
    if _is_column(right) or right.call not in ("value", "perhaps") or isinstance(right.value, bool):
        if name in ("lang", "time"):
            typed.wrong(right.at, f"{name} is compared with a value")
        return replace(node, parts=(left, _normal(right, typed)))
    value = right.value
    if name in _IN_LOWER_CASE:
        value = str(value).lower()
    if name == "status" and isinstance(value, str):
        value = value.lower()
        if not _STATUSES.fullmatch(value) or node.call not in ("equal", "not_equal"):
            if right.call == "perhaps":
                return replace(node, parts=(left, _normal(right, typed)))
            typed.wrong(right.at, f"{str(right.value)[:80]!r} is not an HTTP status; write 200, or status = 3xx")
    elif name == "time":
        value = str(value).upper()
        try:
            period(value)
        except UserInputError as refused:
            typed.wrong(right.at, str(refused))
    elif name in _NUMBERS and right.call == "perhaps":
        return replace(node, parts=(left, _normal(right, typed)))
    for names, pattern, what in (
        (("mime", "mime_claimed"), _MIME, "a MIME type, such as text/html or image/*"),
        (("lang",), _LANGUAGE, "a language; use ISO 639-3 codes such as eng, deu, zho"),
        (("subset",), re.compile("|".join(SUBSETS)), f"a subset; there are {', '.join(SUBSETS)}"),
    ):
        if name in names and not pattern.fullmatch(value):
            typed.wrong(right.at, f"{str(right.value)[:80]!r} is not {what}")
    if name not in _NUMBERS and not isinstance(value, str):
        typed.wrong(right.at, f"{name} is compared with a text; put quotes around it")
    return replace(node, parts=(left, Node("value", value=value, at=right.at)))


def _column(node: Node) -> str | None:
    """Returns the column on the left, if there is one."""
    left = node.parts[0]
    return left.value.lower() if left.call == "column" else None


def _is_column(node: Node) -> bool:
    return _as_column(node).call == "column" and _as_column(node).value.lower() in COLUMNS


def _as_column(node: Node) -> Node:
    return node.parts[0] if node.call == "perhaps" else node


def _names(node: Node) -> set[str]:
    own = {node.value} if node.call == "column" else set()
    return own.union(*map(_names, node.parts))


def _worked(node: Node, typed: Filter) -> Node:
    """Returns an executable form: periods as moments, languages and types as parts of texts."""
    if node.call not in COMPARED.values() or node.parts[1].call != "value" or _column(node) is None:
        return replace(node, parts=tuple(_worked(part, typed) for part in node.parts))
    name, value, left = _column(node), node.parts[1].value, node.parts[0]

    def than(call: str, number: int) -> Node:
        return Node(call, (left, Node("value", value=number)), at=node.at)

    if name == "time":
        first, end = ((moment - _EPOCH) // timedelta(milliseconds=1) for moment in period(value))
        if node.call not in ("equal", "not_equal"):
            return than(*{
                "less": ("less", first), "less_equal": ("less", end),
                "greater": ("greater_equal", end), "greater_equal": ("greater_equal", first),
            }[node.call])  # fmt: skip
        return _unless(node, Node("and_kleene", (than("greater_equal", first), than("less", end))))
    if name == "status" and isinstance(value, str):
        first = int(value[0]) * 100
        return _unless(node, Node("and_kleene", (than("greater_equal", first), than("less", first + 100))))
    if name == "lang":
        return _unless(node, Node("match_substring", (left,), f",{value},", node.at))
    if name in ("mime", "mime_claimed") and value.endswith("/*"):
        return _unless(node, Node("starts_with", (left,), value[:-1], node.at))
    return node


def _parts(node: Node) -> list[Node]:
    """Returns the comparisons in a condition."""
    if node.call in ("and_kleene", "or_kleene", "invert"):
        return [one for part in node.parts for one in _parts(part)]
    return [node]


def _left(node: Node, told: Mapping[str, bool | None]) -> Node | bool:
    """Returns the undecided rest of a condition, or its truth. ``told`` has the truth of its comparisons by their
    texts."""
    if node.call not in ("and_kleene", "or_kleene", "invert"):
        so = told[_written(node)]
        return node if so is None else so
    parts = [_left(part, told) for part in node.parts]
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
    if node.call in _COUNTED:
        one, other = (_operand(part) for part in node.parts)
        return f"({one} {_COUNTED[node.call]} {other})"
    if node.call == "or_kleene" and len({_column(one) for one in node.parts if one.parts}) == 1:
        name = _column(node.parts[0])
        if name and all(one.call == "equal" and one.parts[1].call == "value" for one in node.parts):
            return f"{name} in ({', '.join(_bare(one.parts[1].value, name) for one in node.parts)})"
    word = node.call.removesuffix("_kleene")
    text = f" {word} ".join(_written(part, True) for part in node.parts)
    return f"({text})" if inside else text


def _operand(node: Node) -> str:
    """Returns an operand of a comparison or calculation as text: a truth value needs parentheses."""
    is_plain = node.call in ("column", "value", "negate", *_COUNTED)
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
