"""The names that others hold: queries, schedules, notebooks and scripts break without a word where one of them goes.

``names.txt`` is the list, one name a line behind its kind. Who changes a name on purpose writes a line in
docs/CHANGELOG.md, and then the list anew: ``python -m cc_pipeline_tests.test_names``.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer

from cc_pipeline.cli import app as front
from cc_pipeline.definitions import defs
from cc_pipeline.errors import CcPipelineError, Incomplete
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import declarations
from cc_pipeline.settings.reading import settings_of_extensions
from cc_pipeline.workspace.tables import all_tables
from cc_pipeline_tests import settings_page
from cc_pipeline_tests.closing import close_all
from cc_pipeline_tests.publish.lake_pages import make_workspace

LIST = Path(__file__).with_name("names.txt")
_PACKAGE = Path(front.__file__).parents[1]
_VARIABLE = r"CC_PIPELINE_[A-Z0-9_]*[A-Z0-9]\b"
SOURCES = sorted(_PACKAGE.rglob("*.py"))


def of_stages() -> Iterator[str]:
    """A stage's label, which is stored in every home, and its tables."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Stage":
                label, tables = node.args
                if isinstance(label, ast.Constant):
                    yield f"stage {ast.unparse(label)} {ast.unparse(tables)}"


def of_the_lake() -> Iterator[str]:
    for table in all_tables():
        yield from (f"lake {table.name}.{field.name}: {field.type}" for field in table.schema)


def of_the_published_file(home: Path) -> Iterator[str]:
    workspace = make_workspace(home)
    publish_warehouse(workspace)
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        views = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE schema_name = 'main' AND NOT internal"
        )
        yield from (f"view {table}.{column}: {kind}" for table, column, kind in views.fetchall())
        macros = connection.execute(
            "SELECT function_name, parameters FROM duckdb_functions() WHERE schema_name = 'main' AND NOT internal"
        )
        yield from (f"macro {name}({', '.join(parameters)})" for name, parameters in macros.fetchall())


def of_dagster() -> Iterator[str]:
    repository = defs().get_repository_def()
    graph = repository.asset_graph
    yield from (f"asset {key.to_user_string()}" for key in graph.get_all_asset_keys())
    yield from (f"check {key.asset_key.to_user_string()} {key.name}" for key in graph.asset_check_keys)
    yield from (f"job {name}" for name in repository.job_names if not name.startswith("__"))
    yield from (f"schedule {each.name}" for each in repository.schedule_defs)
    yield from (f"sensor {each.name}" for each in repository.sensor_defs)


def of_settings() -> Iterator[str]:
    """Settings, and each variable that the code reads or writes down for another process."""
    kinds = [("", Settings), ("", ProcessSettings), *settings_of_extensions().items()]
    for one in (one for extension, kind in kinds for one in declarations(kind, extension)):
        yield from (f"setting {one.name}", f"variable {one.variable}")
    for path in SOURCES:
        yield from (f"variable {name}" for name in re.findall(_VARIABLE, path.read_text("utf-8")))


def of_commands() -> Iterator[str]:
    yield from _of_command("cc-pipeline", typer.main.get_command(front.app))


def _of_command(path: str, command: Any) -> Iterator[str]:
    yield f"command {path}"
    for given in command.params:
        names = [*given.opts, *given.secondary_opts]
        said = " ".join(names) if names[0].startswith("-") else f"<{names[0]}>"
        yield f"command {path} {said}"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of_command(f"{path} {name}", inner)


def all_names(home: Path) -> set[str]:
    """Every name that the code has, with its kind in front."""
    return {
        *of_stages(), *of_the_lake(), *of_the_published_file(home), *of_dagster(),
        *of_settings(), *of_commands(),
    }  # fmt: skip


def test_the_names_that_others_hold_stay(tmp_path: Path) -> None:
    listed, there = set(LIST.read_text("utf-8").splitlines()), all_names(tmp_path)
    came, went = sorted(there - listed), sorted(listed - there)
    assert not came and not went, (
        f"names that went: {went}; names that came: {came}. If that is meant, say so in docs/CHANGELOG.md, "
        "then write the list anew: python -m cc_pipeline_tests.test_names"
    )


def test_the_pages_of_settings_have_every_variable_and_no_other() -> None:
    pages = [settings_page.DOCS / "settings.md", *(settings_page.DOCS / "extensions").glob("*.md")]
    told = {f"variable {name}" for page in pages for name in re.findall(_VARIABLE, page.read_text("utf-8"))}
    assert told == {name for name in of_settings() if name.startswith("variable ")}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (CcPipelineError("broken"), 1),
        (OSError(28, "No space left"), 1),
        (Incomplete("some is missing", "Run it again."), 3),
    ],
)
def test_an_exit_status_stays(monkeypatch: pytest.MonkeyPatch, error: Exception | None, status: int) -> None:
    def ends() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(front, "app", ends)
    monkeypatch.setattr(front, "isolate_descendants", lambda: None)
    monkeypatch.setattr(front, "drop_output", lambda: None)  # it would close the streams of the tests
    monkeypatch.setattr(front, "prepare_streams", lambda: None)
    monkeypatch.setattr(front.progress, "set_fallback_sink", lambda listener: None)
    try:
        front.main()
    except SystemExit as end:
        assert end.code == status
    else:
        assert status == 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        LIST.write_text("".join(f"{name}\n" for name in sorted(all_names(Path(scratch)))), "utf-8")
        close_all()
