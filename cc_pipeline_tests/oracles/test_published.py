"""Published files of two homes are compared row for row, but for what is of the run."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.oracles.published import LEFT_OUT, main
from cc_pipeline_tests.world import extract, harvest, publish, workspace_of


@pytest.mark.process
def test_two_homes_of_the_same_are_equal_and_others_are_not(
    bucket: tuple[Path, MiniCrawlTruth],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    homes = []
    for number, domain in enumerate(("example.com", "example.com", "example.org")):
        workspace = workspace_of(bucket[0], tmp_path / str(number))
        harvest(workspace)
        extract(workspace, domain)
        publish(workspace)
        homes.append(str(workspace.settings.published_path))
    first, again, other = homes
    monkeypatch.setattr("sys.argv", ["published", first, again])
    assert main() == 0
    said = capsys.readouterr().out
    # it says what it left out, and there were rows to compare
    assert all(column in said for column in LEFT_OUT)
    assert all(f"{table}: 0 rows" not in said for table in PAGE_TABLES[:1])
    monkeypatch.setattr("sys.argv", ["published", first, other])
    assert main() == 1
    assert "rows only in the first" in capsys.readouterr().out
    with duckdb.connect(first, read_only=True) as connection:
        named = connection.execute("SELECT DISTINCT column_name FROM information_schema.columns").fetchall()
    assert set(LEFT_OUT) <= {name for (name,) in named}, "what is left out is in the tables"
