"""Conditions on captures: terms such as ``mime=text/html``, all of which a capture must meet.

An index may lack a value that a term needs. Then only the parsed page shows whether the capture matches. A user's text
never becomes part of a query: Arrow evaluates the terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, reduce
from itertools import compress
from operator import attrgetter
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, has_feature, index_is_built
from cc_pipeline.commoncrawl.index_schema import CONDITION_COLUMNS
from cc_pipeline.errors import UserInputError, describe_unknown_name

#: The values of the column ``condition_match`` of captures and pages, if their target has a condition. For captures and
#: records, ``unknown: `` precedes the terms that the page must decide.
MATCH_YES, MATCH_NO, MATCH_UNKNOWN = "yes", "no", "unknown"
OPEN = f"{MATCH_UNKNOWN}: "

#: The maximum length of a condition.
_MAX_CHARACTERS: Final = 4_000
_BARE: Final = r"[A-Za-z0-9_./*%:+~?&#@$^-]++"
_VALUE: Final = rf"'(?:[^']|'')*+'|{_BARE}"
_TERM: Final = re.compile(
    rf"""\s*(?P<column>[A-Za-z_]+)(?:
        \s*(?P<sign><=|>=|!=|[=<>])\s*(?P<value>{_VALUE})
        | \s+(?P<in>(?:not\s+)?in)\s*\(\s*(?P<values>(?:{_VALUE})(?:\s*,\s*(?:{_VALUE}))*)\s*\)
        | \s+(?P<like>(?:not\s+)?like)\s+(?P<pattern>{_VALUE})
        | \s+(?P<null>is\s+(?:not\s+)?null)
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_AND: Final = re.compile(r"(?<=[\s)'])and(?=\s)", re.IGNORECASE)
_TIME = re.compile(r"(\d{4})-?(?:(\d\d)-?(?:(\d\d)(?:[T ]?(\d\d):?(?:(\d\d):?(\d\d)?)?)?)?)?Z?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The forms of values of some columns, and their descriptions.
_FORMS: Final = {
    **dict.fromkeys(
        ("mime", "mime_claimed"), re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/(?:\*|[a-z0-9][a-z0-9!#$&^_.+-]*)")
    ),
    "lang": re.compile(r"[a-z]{3}"),
    "status": re.compile(r"[1-9]xx|\d{1,18}"),
    "length": re.compile(r"\d{1,18}"),
    "subset": re.compile("|".join(SUBSETS)),
}
_DESCRIPTIONS: Final = {
    **dict.fromkeys(("mime", "mime_claimed"), "a MIME type, such as text/html or image/*"),
    "lang": "a language; use ISO 639-3 codes such as eng, deu, zho",
    "status": "an HTTP status, such as 200 or 3xx",
    "length": "a number of bytes",
    "subset": f"a subset; there are {', '.join(SUBSETS)}",
}
_NUMBERS: Final = frozenset({"status", "time", "length"})
_LOWER_CASE: Final = frozenset(
    {"mime", "mime_claimed", "lang", "status", "protocol", "host", "domain", "tld", "subset"}
)
#: Columns computed from the URL: null says that the URL has no such part.
_OF_URL: Final = frozenset({"protocol", "host", "domain", "tld", "path", "query"})
#: Columns that the crawler detects: null says that it detected nothing, if the index has the column and the crawler
#: tried. It tried no language of ``_READ_LATER``, which has a text all the same.
_DETECTED: Final = frozenset({"lang", "charset"})
_READ_LATER: Final = "application/pdf"
#: The indexes with the crawler's detections.
_DESCRIBING: Final = ("parquet", "zipnum")


@dataclass(frozen=True, slots=True)
class Term:
    """A comparison of a column with values (none for ``is null``, one or several of ``in``)."""

    column: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The term in its normal form."""
        written = ", ".join(map(_write, self.values))
        if self.operator in ("in", "not in"):
            written = f"({written})"
        space = " " if self.operator[0].isalpha() else ""
        return space.join(filter(None, (self.column, self.operator, written)))

    def truth(self, captures: pa.Table, *, parsed: bool = False) -> pa.Array:
        """Returns whether each of ``captures`` of one crawl meets the term; null if only its page can tell. For
        ``parsed`` captures a missing value is null, as in SQL: only ``is null`` is true of it."""
        values = _compute_column(self.column, captures)
        if parsed:
            is_known = pa.scalar(True)
        elif self.column in _OF_URL:
            is_known = pc.is_valid(captures["url"])
        else:
            is_known = _was_detected(self.column, captures) if self.column in _DETECTED else pa.scalar(False)
        of_null = pc.if_else(is_known, pa.scalar(self.operator == "is null"), pa.scalar(None, pa.bool_()))
        truth = pc.coalesce(self.truth_of_values(values), of_null)
        return truth.combine_chunks() if isinstance(truth, pa.ChunkedArray) else truth

    def truth_of_values(self, values: pa.Array) -> pa.Array:
        """Returns whether each of ``values`` of the column meets the term; null for null."""
        if self.operator in ("is null", "is not null"):
            is_met = pa.scalar(self.operator == "is not null")
            return pc.if_else(pc.is_valid(values), is_met, pa.scalar(None, pa.bool_()))
        if self.operator in ("<", "<=", ">", ">="):
            first, end = _interval(self.column, self.values[0])
            bound = first if self.operator in ("<", ">=") else end
            return pc.less(values, bound) if self.operator[0] == "<" else pc.greater_equal(values, bound)
        is_equal = _matches_pattern if self.operator in ("like", "not like") else _equals
        is_any = reduce(pc.or_, (is_equal(self.column, values, value) for value in self.values))
        return pc.invert(is_any) if self.operator in ("!=", "not in", "not like") else is_any


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the captures of a target: its distinct ``terms``, sorted by their texts."""

    terms: tuple[Term, ...]

    @property
    def text(self) -> str:
        """The condition in its normal form."""
        return " and ".join(term.text for term in self.terms)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a capture that the condition reads."""
        return tuple(dict.fromkeys(column for term in self.terms for column in CONDITION_COLUMNS[term.column]))

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that the condition allows; none if it does not restrict them."""
        truths = [term.truth_of_values(pa.array(SUBSETS)).to_pylist() for term in self.terms if term.column == "subset"]
        return tuple(compress(SUBSETS, map(all, zip(*truths, strict=True)))) if truths else ()

    def truth(self, captures: pa.Table, *, parsed: bool = False) -> pa.Array:
        """Returns whether each of ``captures`` of one crawl matches; null if only its page can tell."""
        return reduce(pc.and_kleene, (term.truth(captures, parsed=parsed) for term in self.terms))

    def keep(self, captures: pa.Table) -> pa.Table:
        """Returns the ``captures`` of one crawl that may match, with the outcome in ``condition_match``."""
        truths = [term.truth(captures) for term in self.terms]
        is_possible = pc.fill_null(reduce(pc.and_kleene, truths), True)
        captures = captures.filter(is_possible)
        open_terms = list(zip(*(truth.filter(is_possible).is_null().to_pylist() for truth in truths), strict=True))
        outcomes = {is_open: self._describe_outcome(is_open) for is_open in set(open_terms)}
        position = captures.schema.get_field_index("condition_match")
        column = pa.array(map(outcomes.get, open_terms), pa.string())
        return captures.set_column(position, captures.schema.field(position), column)

    def _describe_outcome(self, is_open: tuple[bool, ...]) -> str:
        """Returns the outcome of a capture for which some of the terms are open."""
        return OPEN + Condition(tuple(compress(self.terms, is_open))).text if any(is_open) else MATCH_YES


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Condition:
    """Parses the condition on captures in ``text``, see docs/targets.md. ``parse_condition(c.text) == c``.

    Raises ``UserInputError`` with the position of the fault.
    """
    if len(text) > _MAX_CHARACTERS:
        raise UserInputError(f"the condition has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are allowed")
    return Condition(tuple(sorted(set(_read_terms(text)), key=attrgetter("text"))))


def join_conditions(*texts: str) -> str:
    """Joins conditions with ``and``; empty ones are ignored."""
    return " and ".join(filter(None, texts))


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


def _read_terms(text: str) -> Iterator[Term]:
    position = 0
    while match := _TERM.match(text, position):
        yield _read_term(text, match)
        position = match.end()
        if position == len(text):
            return
        joint = _AND.match(text, position)
        if joint is None:
            break
        position = joint.end()
    reason = (
        "a condition is one or several terms joined by and, such as status=200, lang in (deu, fra), path like /blog/%, "
        "query is null; filter the answer in SQL for more"
    )
    _refuse(text, position, reason)


def _read_term(text: str, match: re.Match[str]) -> Term:
    column = match["column"].lower()
    if column not in CONDITION_COLUMNS:
        reason = describe_unknown_name("column", match["column"], CONDITION_COLUMNS)
        _refuse(text, match.start("column"), reason)
    kind = "sign" if match["sign"] else "in" if match["in"] else "like" if match["like"] else "null"
    operator = " ".join(match[kind].lower().split())
    if operator in ("<", "<=", ">", ">=") and column not in _NUMBERS:
        _refuse(text, match.start(kind), f"{column} has no order; {operator} takes {', '.join(sorted(_NUMBERS))}")
    if kind == "like" and column in (*_NUMBERS, "lang"):
        _refuse(text, match.start(kind), f"{column} cannot be compared with LIKE; use = instead")
    if kind == "null":
        return Term(column, operator)
    group = {"sign": "value", "in": "values", "like": "pattern"}[kind]
    values = set()
    for written in re.finditer(_VALUE, match[group]):
        value = written[0][1:-1].replace("''", "'") if written[0][0] == "'" else written[0]
        value = value.lower() if column in _LOWER_CASE else value.upper() if column == "time" else value
        if kind != "like" and (fault := _find_fault(column, value)):
            _refuse(text, match.start(group) + written.start(), fault)
        values.add(value)
    if kind == "in" and len(values) == 1:
        operator = "=" if operator == "in" else "!="
    return Term(column, operator, tuple(sorted(values)))


def _find_fault(column: str, value: str) -> str | None:
    """Returns why a column cannot have a value; ``None`` if it can."""
    if column == "time":
        try:
            period(value)
        except UserInputError as refused:
            return str(refused)
    if column not in _FORMS or _FORMS[column].fullmatch(value):
        return None
    return f"{value[:80]!r} is not {_DESCRIPTIONS[column]}"


def _refuse(text: str, position: int, reason: str) -> NoReturn:
    rest = text[position:].strip()[:30]
    where = f" at {rest!r}" if rest else " at its end"
    raise UserInputError(f"the condition {text.strip()[:200]!r}{where}: {reason}")


def _write(value: str) -> str:
    return value if re.fullmatch(_BARE, value) else _quote(value)


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _compute_column(name: str, captures: pa.Table) -> pa.ChunkedArray:
    """Computes a column of conditions for each of ``captures``, from those of its columns that they have."""
    columns = [captures[column] for column in CONDITION_COLUMNS[name] if column in captures.column_names]
    if name in ("mime", "mime_claimed"):
        return pc.replace_substring_regex(pc.utf8_lower(pc.coalesce(*columns)), r"(?s)[\s;].*", "")
    if name == "status":
        return pc.if_else(pc.greater(columns[0], 0), columns[0], None)  # -1 means a missing status
    if name == "time":
        return columns[0].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return columns[0]


def _was_detected(name: str, captures: pa.Table) -> pa.Array | pa.Scalar:
    """Returns for each capture of one crawl whether the crawler tried to detect a column that the index has."""
    crawl = captures["crawl"][0].as_py() if captures.num_rows else ""
    if crawl in ARC_CRAWLS or index_is_built(crawl) or has_feature(crawl, "content_languages") is False:
        return pa.scalar(False)
    is_described = pc.is_in(captures["located_by"], pa.array(_DESCRIBING))
    if name == "charset":
        return is_described
    return pc.and_(is_described, pc.fill_null(pc.not_equal(captures["content_mime_detected"], _READ_LATER), True))


def _interval(column: str, value: str) -> tuple[int, int]:
    """Returns the first number that a value of a numeric column stands for, and the first one behind."""
    if column == "time":
        first, end = ((moment - _EPOCH) // timedelta(milliseconds=1) for moment in period(value))
        return first, end
    return (int(value), int(value) + 1) if value.isdigit() else (int(value[0]) * 100, int(value[0]) * 100 + 100)


def _equals(column: str, values: pa.Array, value: str) -> pa.Array:
    if column in _NUMBERS:
        first, end = _interval(column, value)
        return pc.and_(pc.greater_equal(values, first), pc.less(values, end))
    if column == "lang":
        return pc.match_substring(pc.binary_join_element_wise("", values, "", ","), f",{value},")
    if column in ("mime", "mime_claimed") and value.endswith("/*"):
        return pc.starts_with(values, value[:-1])
    return pc.equal(values, value)


def _matches_pattern(column: str, values: pa.Array, pattern: str) -> pa.Array:
    """Compares as SQL's LIKE, which has no escape."""
    signs = {"%": ".*", "_": "."}
    expression = "".join(signs.get(letter) or re.escape(letter) for letter in pattern)
    return pc.match_substring_regex(values, rf"(?s)\A{expression}\z")
