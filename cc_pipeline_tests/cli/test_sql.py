"""``sql``: statements end with a semicolon, every result shows, and nothing of a value is lost on its way out."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cc_pipeline.cli import output
from cc_pipeline.cli import sql_results as answers
from cc_pipeline.cli.sql_results import run_statements
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = pytest.mark.xdist_group("cli published")

VALUES = (
    "SELECT 'a, \"b\"\nc' AS text, [1, 2] AS list, {'x': 'y'} AS struct, 'ab'::BLOB AS bytes, true AS yes, "
    "NULL AS none, TIMESTAMPTZ '2024-05-01 12:00:00+02' AS at, "
    "TIMESTAMP '2024-05-01 12:00:00.25' AS clock, 1.50::DECIMAL(5, 2) AS price"
)
WHOLE = {
    "text": 'a, "b"\nc', "list": [1, 2], "struct": {"x": "y"}, "bytes": "6162", "yes": True, "none": None,
    "at": "2024-05-01T10:00:00Z", "clock": "2024-05-01T12:00:00.250000", "price": 1.5,
}  # fmt: skip


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_every_result_shows(cli: Cli, world: World) -> None:
    text = "SELECT 1 AS a; ; SELECT ';' AS b -- the ; of a comment\n; SELECT 2 AS c WHERE false"
    assert cli("sql", text, "--home", world.home).out == "a\n1\n\nb\n;\n\nc\n"
    assert cli("sql", text, "--format", "csv", "--home", world.home).out == "a\n1\n\nb\n;\n\nc\n"
    assert cli("sql", text, "--format", "json", "--home", world.home).out == '{"a":1}\n{"b":";"}\n'


def test_statements_are_read_from_a_file_and_from_standard_input(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "two.sql"
    file.write_text("\ufeffSELECT 1 AS a;\nSELECT 2 AS b;\n", "utf-8")
    assert cli("sql", f"@{file}", "--home", world.home).out == "a\n1\n\nb\n2\n"
    for words in (("sql", "-"), ("sql",)):
        typed(monkeypatch, "SELECT 4\nAS d;\n")
        assert cli(*words, "--home", world.home).out == "d\n4\n"
    assert "no/such.sql" in cli("sql", "@no/such.sql", "--home", world.home).err


def test_values_are_whole_in_csv_and_json(cli: Cli, world: World) -> None:
    said = cli("sql", "--format", "csv", VALUES, "--home", world.home)
    [row] = csv.DictReader(io.StringIO(said.out))
    assert row == {
        **{name: str(value) for name, value in WHOLE.items()},
        "list": "[1,2]", "struct": '{"x":"y"}', "yes": "true", "none": "", "price": "1.50",
    }  # fmt: skip
    assert json.loads(cli("sql", "--format", "json", VALUES, "--home", world.home).out) == WHOLE
    # what is for a person stays on its line, and gives no orders to a terminal
    plain = cli("sql", "SELECT 'a\nb' AS text, [1, 2] AS list, chr(27) AS escape", "--home", world.home)
    assert plain.out == "text  list   escape\na\\nb  [1,2]  \\x1b\n"


def test_a_file_is_written_whole_in_the_format_of_its_name(cli: Cli, world: World, tmp_path: Path) -> None:
    for name in ("rows.parquet", "rows.csv", "rows.jsonl"):
        said = cli("sql", "SELECT [i] AS l FROM range(3) t(i)", "--out", tmp_path / name, "--home", world.home)
        assert (said.status, said.out) == (0, "")
    assert pq.read_table(tmp_path / "rows.parquet").column("l").to_pylist() == [[0], [1], [2]]
    assert (tmp_path / "rows.csv").read_text("utf-8").splitlines() == ["l", "[0]", "[1]", "[2]"]
    assert (tmp_path / "rows.jsonl").read_text("utf-8").splitlines()[2] == '{"l":[2]}'
    late = "SELECT CASE WHEN i < 100000 THEN i ELSE error('late') END FROM range(100001) t(i)"
    assert cli("sql", late, "--out", tmp_path / "late.csv", "--home", world.home).status == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.jsonl", "rows.parquet"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("SELECT 1; SELECT 2", "--out", "two.csv"), "2"),
        (("/**/", "--format", "parquet"), "0"),
        (("SELECT 1", "--format", "tables"), "tables"),
        (("SELECT 1", "--format", "table", "--out", "a.txt"), "csv"),
        (("SELECT 1", "--out", "a.csv.gz"), "--format"),
        (("SELECT * FROM nothing_here",), "SHOW TABLES"),
        (("SELEC 1",), "syntax"),
        (("SELECT 1; CREATE TEMP TABLE t AS SELECT 1",), "read-only"),
        (("COPY (SELECT 1) TO 'a.csv'",), "read-only"),
        (("WITH a AS (COPY (SELECT 1) TO 'a.csv') FROM a",), "top level"),
        (("FROM read_text('/etc/passwd')",), "disabled by configuration"),
        (("FROM read_text('/etc/passwd')", "--out", "a.parquet"), "disabled by configuration"),
        (("--catalog", "FROM read_text('/etc/passwd')"), "disabled by configuration"),
    ],
)
def test_what_cannot_be_answered_is_status_1(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli("sql", *arguments, "--home", world.home)
    assert (said.status, said.out) == (1, "")
    assert word in said.err
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_results_before_a_mistake_are_shown(cli: Cli, world: World) -> None:
    said = cli("sql", "SELECT 1 AS a; SELECT 1 FROM nothing_here", "--home", world.home)
    assert (said.status, said.out) == (1, "a\n1\n")


def test_a_terminal_gets_cells_that_fit_and_a_bound_on_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Console(force_terminal=True, width=60, color_system=None, file=io.StringIO())
    monkeypatch.setattr(output, "console", screen)
    monkeypatch.setattr(answers, "console", screen)
    connection = duckdb.connect()
    run_statements(connection, "SELECT i, repeat('long ', 100) AS text, '[/red]' AS odd FROM range(1001) t(i)")
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) == 60
    assert "…" in lines[2] and "[/red]" in lines[2]
    assert len(lines) == 1000 + 2
    assert "1,000" in capsys.readouterr().err
    run_statements(connection, f"SELECT {', '.join(f'{n} AS c{n}' for n in range(30))}, repeat('x', 90) AS wide")
    apart = screen.file.getvalue().splitlines()[len(lines) :]
    assert apart[:3] == ["row 1", "c0    0", "c1    1"]
    assert apart[-1].endswith("…") and len(apart[-1]) == 60


def test_the_catalog_answers_queries_and_takes_no_orders(cli: Cli, world: World) -> None:
    query = (
        "SELECT crawl, sum(rows)::BIGINT AS rows FROM row_groups WHERE subset = 'warc' GROUP BY crawl ORDER BY crawl"
    )
    said = cli("sql", "--catalog", query, "--format", "json", "--home", world.home)
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {"crawl": crawl, "rows": len(world.truth.captures_of(crawl, subset="warc"))} for crawl in (OLD, NEW)
    ]
    said = cli("sql", "--catalog", "DROP TABLE row_groups", "--home", world.home)
    assert said.status == 1
    assert "read-only" in said.err
    assert cli("sql", "--catalog", "SELEKT 1", "--home", world.home).status == 1
