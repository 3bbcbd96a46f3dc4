"""Conditions against DuckDB, which reads the same text; and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.expressions import parse_filter
from cc_pipeline.errors import UserInputError

TABLE = pa.table(
    {
        "prank10": pa.array([5.5, 4.0, None, 0.0, 7.25, -1.5], pa.float64()),
        "fetch_200": pa.array([101, 100, 99, None, 2**53, 0], pa.int64()),
        "host": pa.array(["a.example.com", "b_c.org", None, "x'y", "100%\\", "A.EXAMPLE.COM"]),
        "in_gneissweb": pa.array([True, False, None, True, None, False]),
        "odd name": pa.array([1, 2, 3, 4, 5, 6], pa.int8()),
        "whole": pa.array([2**53 + 1, -(2**63), 2**63 - 1, None, 0, 100], pa.int64()),
        "gone": pa.array([math.nan, math.nan, None, 5.0, math.inf, -math.inf], pa.float64()),
    }
)

OPERANDS = (
    "prank10", "fetch_200", '"odd name"', "5", "0", "-1.5", "100", "(fetch_200 - 100)", "prank10 * 2", "fetch_200 / 4",
    "whole", "whole / 4", "whole * 3", "1e3", "9007199254740993", "gone", "gone * 2",
)  # fmt: skip
NUMBERS = st.sampled_from(OPERANDS)
TEXTS = st.sampled_from(["host", "'b_c.org'", "'x''y'", "''", "'a.example.com'"])
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
PATTERNS = st.sampled_from(["'%example%'", "'b_c%'", "'100%'", "'%\\'", "'_''y'", "''"])
NOTS = st.sampled_from(["", "not ", "NOT "])
CONDITIONS = st.one_of(
    st.builds(lambda a, s, b: f"{a} {s} {b}", NUMBERS, SIGNS, NUMBERS),
    st.builds(lambda a, s, b: f"{a} {s} {b}", TEXTS, SIGNS, TEXTS),
    st.builds(lambda a, n, b, c: f"{a} {n}BETWEEN {b} AND {c}", NUMBERS, NOTS, NUMBERS, NUMBERS),
    st.builds(lambda a, n, b, c: f"{a} {n}in ({b}, {c})", NUMBERS, NOTS, NUMBERS, NUMBERS),
    st.builds(lambda n, h, p: f"host {n}{h} {p}", NOTS, st.sampled_from(["LIKE", "ilike"]), PATTERNS),
    st.builds(lambda a, n: f"{a} IS {n}NULL", st.one_of(NUMBERS, TEXTS), NOTS),
    st.sampled_from(["in_gneissweb", "in_gneissweb = true", "not in_gneissweb", "false", "TRUE"]),
)
EXPRESSIONS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"{a} AND {b}", inner, inner),
        st.builds(lambda a, b: f"({a}) or {b}", inner, inner),
        st.builds(lambda a: f"NOT ({a})", inner),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        found.register("files", TABLE)
        # what is not a number is not known here; in SQL it is larger than all numbers
        known = "CASE WHEN NOT isnan(gone) THEN gone END"
        found.execute(f"CREATE TABLE facts AS SELECT * REPLACE ({known} AS gone) FROM files")
        yield found


_ONE = "|".join(map(re.escape, sorted(OPERANDS, key=len, reverse=True)))
_RANGE = re.compile(rf"({_ONE}) ((?i:not )?)BETWEEN ({_ONE}) AND ({_ONE})")
_LIST = re.compile(rf"({_ONE}) ((?i:not )?)in \(({_ONE}), ({_ONE})\)")


def pair_by_pair(text: str) -> str:
    """Ranges and lists as comparisons. SQL makes doubles of all numbers of a list where one is, and takes neighbours of
    2^53 for the same then; here each is compared by itself."""
    text = _RANGE.sub(r"(\2(\1 >= \3 AND \1 <= \4))", text)
    return _LIST.sub(r"(\2(\1 = \3 OR \1 = \4))", text)


@settings(max_examples=100)
@given(EXPRESSIONS)
@example("whole > 1.5 and not whole * 1 < 5")
@example("fetch_200 in (9007199254740993, prank10)")
@example("fetch_200 not BETWEEN 9007199254740993 AND prank10 or whole NOT in (5, 1e3)")
def test_rows_are_those_of_sql(session: duckdb.DuckDBPyConnection, text: str) -> None:
    # SQL counts in whole numbers, and refuses those that are too large; here all is counted in doubles
    query = pair_by_pair(text).replace("whole * ", "CAST(whole AS DOUBLE) * ")
    truth = [row[0] for row in session.execute(f"SELECT CAST(({query}) AS BOOLEAN) FROM facts").fetchall()]
    found = parse_filter(text).match_table(TABLE)
    assert found.rows.to_pylist() == [value is True for value in truth]
    assert found.unknown_count == truth.count(None)


def test_what_is_not_known_does_not_match() -> None:
    found = parse_filter("prank10 > 5 and fetch_200 > 100").match_table(TABLE)
    assert found.rows.to_pylist() == [True, False, False, False, True, False]
    assert (found.count, found.unknown_count) == (2, 0)
    assert parse_filter("prank10 > 5 or fetch_200 > 100").match_table(TABLE).unknown_count == 2
    assert parse_filter("prank10 / odd > 1").columns == ("prank10", "odd")
    assert parse_filter("fetch_200 / 0 > 1").match_table(TABLE).unknown_count == 6
    assert parse_filter("PRANK10 > 5").match_table(TABLE).count == 2
    for text in ("gone > 0", "not gone > 0", "gone = gone", "gone is not null", "gone - gone = 0"):
        assert not {0, 1, 2} & {
            at for at, row in enumerate(parse_filter(text).match_table(TABLE).rows.to_pylist()) if row
        }
    # no digit of ours, and no number
    with pytest.raises(UserInputError, match="cannot be read"):
        parse_filter("prank10 > \u0661")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prank > 5", r"there is no column prank \(did you mean prank10\?\); there are prank10, fetch_200, host"),
        ("prank10 > ", "at its end: a column, a number or a text is missing"),
        ("", "a column, a number or a text is missing"),
        ("prank10 > 5 fetch_200 > 1", "at 'fetch_200 > 1': AND or OR is missing"),
        ("(prank10 > 5", r"\) is missing"),
        ("prank10", "is no condition"),
        ("5", "is no condition"),
        ("host > 5", "a text cannot be compared with a number"),
        ("host + 1 > 5", "is a text where a number is needed"),
        ("not prank10", "is a number where a truth is needed"),
        ("prank10 like '5'", "is a number where a text is needed"),
        ("host like 5", "LIKE takes a text"),
        ("'a' = hosst", "no column hosst"),
        ("prank10 > 5; DROP TABLE captures", "at '; DROP TABLE captures': cannot be read"),
        ("host = 'a' UNION SELECT 1", "at 'UNION SELECT 1': AND or OR is missing"),
        ("read_parquet('/etc/passwd')", "AND or OR is missing"),
        ("host = 'open", "cannot be read"),
        ("prank10 is 5", "NULL is missing"),
        ("prank10 not 5", "IN, BETWEEN or LIKE is missing"),
        ("prank10 = 99999999999999999999", "the number is too large"),
        ("(" * 60 + "true" + ")" * 60, "nested deeper"),
        ("not " * 60 + "true", "nested deeper"),
        ("-" * 60 + "1 > 0", "nested deeper"),
        ("true" + " " * 5000, "characters; at most"),
        ("1" + "+1" * 1000 + " > 0", "more than 50 terms"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        parse_filter(text).match_table(TABLE)


@pytest.mark.parametrize(
    ("bare", "quoted"),
    [
        ("host = a.example.com", "host = 'a.example.com'"),
        ("host=b_c.org or prank10>5", "host = 'b_c.org' or prank10 > 5"),
        ("not host in (a.example.com,b-c, x/y*2)", "not host in ('a.example.com', 'b-c', 'x/y*2')"),
        ("host like %example%", "host like '%example%'"),
        ("host >= 5xx and fetch_200>=10*10", "host >= '5xx' and fetch_200 >= 100"),
        ("host between a and b", "host between 'a' and 'b'"),
        ("host = host", '"host" = "host"'),
    ],
)
def test_behind_a_comparison_a_text_needs_no_quotes(bare: str, quoted: str) -> None:
    assert parse_filter(bare).match_table(TABLE) == parse_filter(quoted).match_table(TABLE)


def test_a_long_row_of_conditions_is_read() -> None:
    text = " or ".join(["true"] * 500)
    assert parse_filter(text).match_table(TABLE).count == 6
    assert parse_filter(f"fetch_200 in ({', '.join(map(str, range(300)))})").match_table(TABLE).count == 4
