"""Text of strangers in CSV: exact, and on request nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.cli import output
from cc_pipeline.cli.capture_output import capture_writer
from cc_pipeline.cli.output import write_rows
from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES
from cc_pipeline.export.files import README, document_path
from cc_pipeline_tests.cli.conftest import Cli, World

#: Cells as they are, and as they are made harmless; numbers are no text.
CELLS = {
    "=1+1": "'=1+1", "+a": "'+a", "-a": "'-a", "@a": "'@a", "\ta": "'\ta", "\ra": "'\ra", "\na": "'\na", "": "",
    "'=a": "'=a", "a=1": "a=1", " =a": " =a", "é": "é",
}  # fmt: skip
QUERY = "SELECT unnest([{}]) AS text, -1 AS number".format(
    ", ".join("'{}'".format(cell.replace("'", "''")) for cell in CELLS)
)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


@pytest.fixture
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output._flags, "guards_formulas", True)


@pytest.mark.parametrize("flags", [(), ("--guard-formulas",)])
def test_queries_and_exports_are_exact_and_harmless_on_request(
    cli: Cli, world: World, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    wanted = [[CELLS[cell] if flags else cell, "-1"] for cell in CELLS]
    out, place = tmp_path / "out.csv", ("--home", world.home)
    for words in (("sql", QUERY), ("export", "--query", QUERY)):
        assert cli(*words, "--out", out, *flags, *place).status == 0
        with out.open(newline="") as stream:
            assert sorted(read(stream.read())) == sorted(wanted), words
    assert ("--guard-formulas" in document_path(out, README).read_text("utf-8")) == bool(flags)
    said = cli("sql", "SELECT '=1' AS a, -1 AS b", "--format", "json", *flags, *place)
    assert said.out == '{"a":"=1","b":-1}\n'


@pytest.mark.usefixtures("_asked")
def test_so_are_rows_and_captures_that_python_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("", ["text", "number"], [(cell, -1) for cell in CELLS], "csv")
    assert read(capsys.readouterr().out) == [[cell, "-1"] for cell in CELLS.values()]
    columns = {name: [None] for name in NAMED_CAPTURES.names} | {"url": ["=1+1"], "fetch_status": [-1]}
    with capture_writer("csv", ["url", "fetch_status"], tmp_path / "captures.csv") as write:
        write(pa.table({name: columns[name] for name in ("url", "fetch_status")}))
    assert read((tmp_path / "captures.csv").read_text("utf-8")) == [["'=1+1", "-1"]]
