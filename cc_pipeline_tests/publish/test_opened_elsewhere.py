"""Files for others open in what they have: DuckDB since 1.1, polars, pandas; those published and those exported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.export.table_files import select_tables, write_duckdb
from cc_pipeline.publish.macros import MACROS
from cc_pipeline.settings import Settings
from cc_pipeline_tests.publish.test_macros import CALLS

pytestmark = pytest.mark.xdist_group("questions")
#: Each is read as text, which no version of Python's types gets between.
_ASK = """
import json, sys, duckdb
path, calls = sys.argv[1], json.loads(sys.argv[2])
there = duckdb.connect(path, read_only=True)
there.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY ALL"
said = {"version": duckdb.__version__}
for asked in [name for (name,) in there.execute(tables).fetchall()] + calls:
    rows = f"SELECT to_json(one)::VARCHAR FROM (FROM {asked}) one ORDER BY ALL"
    try:
        said[asked] = [row for (row,) in there.execute(rows).fetchall()]
    except duckdb.Error as error:
        said[asked] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def files(asked_home: Settings, asked_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Of one home: the published views, a copy, and an export of all tables."""
    export = tmp_path_factory.mktemp("exported") / "all.duckdb"
    with duckdb.connect(str(asked_home.published_path), read_only=True) as connection:
        write_duckdb(connection, select_tables(connection, [], [], []), export, [("home", "here")], [MACROS])
    return {"views": asked_home.published_path, "copy": asked_copy, "export": export}


def test_they_are_stored_as_every_version_since_1_0_reads(files: Mapping[str, Path]) -> None:
    for name, path in files.items():
        head = path.read_bytes()[:20]
        assert (head[8:12], int.from_bytes(head[12:], "little")) == (b"DUCK", 64), name


@pytest.fixture(scope="module")
def here(files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    return {name: _answers(path, None) for name, path in files.items()}


@pytest.mark.process
@pytest.mark.parametrize("version", ["1.1.3", "1.4.4", "1.5.3"])
def test_another_version_gives_the_same_rows(
    files: Mapping[str, Path], here: dict[str, dict[str, Any]], version: str, request: pytest.FixtureRequest
) -> None:
    other = _installed(version, request)
    for name, path in files.items():
        found, expected = _answers(path, other), here[name]
        assert (found.pop("version"), {**expected}.pop("version")) == (version, duckdb.__version__)
        assert len(found) > 20
        for asked, rows in found.items():
            assert isinstance(expected[asked], list) and rows == expected[asked], (name, asked)


def _installed(version: str, request: pytest.FixtureRequest) -> Path:
    """The folder of another DuckDB, from the package index that pip knows; kept for the next time."""
    folder = Path(request.config.cache.mkdir("duckdb")) / version
    if not folder.is_dir():
        beside = folder.with_name(f"{version}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--retries=0"]
        pip += ["--only-binary=:all:", "--target", str(beside), f"duckdb=={version}"]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            shutil.rmtree(beside, ignore_errors=True)
            pytest.skip(f"no package index here has DuckDB {version}: {done.stderr[-200:]}")
        beside.rename(folder)
    return folder


def _answers(path: Path, duck: Path | None) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(duck or "")}
    command = [sys.executable, "-c", _ASK, str(path), json.dumps(CALLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))
