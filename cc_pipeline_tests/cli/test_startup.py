"""A command loads what it needs and nothing else: each library here costs a tenth of a second to a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import NEW, World

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli homes")]

#: What only writing to a bucket or the UI needs. Not here: pandas, which pyarrow loads by itself
#: where it is installed. Nobody needs it but tests.
_RARE = {
    "s3fs",
    "dagster_webserver",
    "dagster_graphql",
    "dagster_aws",
    "dagster_dg_cli",
    "boto3",
}
_REMOTE = {"aiohttp", "botocore"}
_RUNS = {"dagster", "sqlalchemy", "pydantic", "alembic"}
_PAGES = {"lxml", "selectolax", "resiliparse"}
_TABLES = {"numpy", "pyarrow", "deltalake", "pyarrow.dataset"}

_QUERY = _RARE | _REMOTE | _RUNS | _PAGES | _TABLES
_LOOK_UP = _QUERY - _TABLES

_SCRIPT = """
import sys
from cc_pipeline.cli import main
loaded, *arguments = sys.argv[1:]
sys.argv = ["cc-pipeline", *arguments]
try:
    main()
finally:
    open(loaded, "w").write("\\n".join(sys.modules))
"""


def loaded_by(folder: Path, *arguments: object, status: int = 0) -> set[str]:
    """The modules that are loaded when a command ends."""
    names = folder / "modules.txt"
    command = [sys.executable, "-c", _SCRIPT, str(names), *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == status, done.stderr
    return set(names.read_text("utf-8").splitlines())


def test_a_query_loads_duckdb_alone(world: World, tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "sql", "--home", world.home, "SELECT count(*) FROM captures")
    assert "duckdb" in loaded
    assert loaded & _QUERY == set()


def test_a_look_up_in_a_folder_loads_nothing_of_runs_pages_or_networks(world: World, tmp_path: Path) -> None:
    place = ("--source", world.bucket, "--home", world.home)
    loaded = loaded_by(tmp_path, "lookup", "example.com", "-c", NEW, *place)
    assert "pyarrow" in loaded
    assert loaded & _LOOK_UP == set()


def test_help_and_a_wrong_value_are_told_before_anything_of_runs_and_pages_is_loaded(
    world: World, tmp_path: Path
) -> None:
    heavy = _QUERY | {"duckdb", "alembic"}
    assert loaded_by(tmp_path, "run", "--help") & heavy == set()
    wrong = ("run", "-c", "CC-MAIN-2013-99", "example.org", "--source", world.bucket, "--home", world.home)
    assert loaded_by(tmp_path, *wrong, status=1) & (_RARE | _PAGES | {"dagster", "alembic"}) == set()
