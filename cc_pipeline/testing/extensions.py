"""The test suite for extensions: inherit :class:`ExtensionTests`, and set the module that has the ``EXTENSION``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
import typer

from cc_pipeline.checks.extensions import list_extensions
from cc_pipeline.children import run, whole_environment
from cc_pipeline.cli.app import build_app, find_commands
from cc_pipeline.columns import notes_of
from cc_pipeline.defs.declared.build import definitions
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.duck import connect
from cc_pipeline.extension import COLLECTED, LEFT_OUT_VARIABLE, Extension, collect, extensions, find_extensions
from cc_pipeline.index.locators import index_kinds
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.tables import all_tables, tables_by_extension
from cc_pipeline.workspace.workspace import open_workspace

#: Libraries that take longer to load than a command that prints its help may take.
_HEAVY = ("dagster", "pyarrow", "duckdb", "numpy", "deltalake", "boto3", "pyspark", "jinja2")
_LOADED = "import sys\nimport {module}\nprint(*(name for name in {heavy!r} if name in sys.modules))"
_COMMANDS = """
import sys
import typer
from cc_pipeline.cli.app import build_app
print("commands:", *typer.main.get_command(build_app()).commands)
print("loaded:", *(name for name in {heavy!r} if name in sys.modules))
"""
_LEFT_OUT_CODE = """
import sys
import cc_pipeline.cli.app, cc_pipeline.definitions
from cc_pipeline.extension import find_extensions
[found] = [one for one in find_extensions() if one.name == {name!r}]
assert found.is_left_out, found
print(*(name for name in sys.modules if name == {module!r} or name.startswith({module!r} + ".")))
"""


class ExtensionTests:
    """Tests an extension: ``module`` is the name of the module with the value ``EXTENSION``."""

    module: str

    @pytest.fixture
    def extension(self) -> Extension:
        """The extension under test."""
        value = import_module(self.module).EXTENSION
        assert isinstance(value, Extension)
        return value

    def test_it_is_found_with_a_summary(self, extension: Extension) -> None:
        """It is in use under its own name, with a summary of one line."""
        assert [found_extension for found_extension in extensions() if found_extension.name == extension.name] == [
            extension
        ]
        assert extension.summary and "\n" not in extension.summary

    def test_its_module_loads_nothing_heavy(self) -> None:
        """Every command imports every extension, so that its module must be cheap."""
        code = _LOADED.format(module=self.module, heavy=_HEAVY)
        assert _python(code).split() == []

    def test_its_commands_load_nothing_heavy(self, extension: Extension) -> None:
        """Every command first builds the whole tree of commands, even to print its help."""
        commands, loaded = _python(_COMMANDS.format(heavy=_HEAVY)).splitlines()
        assert {*commands.split()[1:]} >= {*extension.commands()}
        assert loaded.split()[1:] == []

    def test_its_contributions_load_under_unique_names(self, extension: Extension) -> None:
        """Each joint is called as by the core, which refuses an extension that raises or uses another one's name."""
        for joint in COLLECTED:
            assert extension.name in collect(joint), joint
        find_commands()
        index_kinds()
        tables_by_extension()
        assert _problem(extension) == ""

    def test_each_table_declares_how_to_find_its_rows(self, extension: Extension) -> None:
        """Slices, order and stage refer to existing columns and tables, so that maintenance and purges find rows."""
        for table in extension.tables():
            columns = {*table.schema.names}
            assert columns >= {*table.slice_columns, *table.sort_by, *table.provenance_columns}, table.name
            assert table in all_tables()
            has_slice_columns = {"crawl", "target"} <= columns
            assert not has_slice_columns or table.has_targets or table.removed_with == "nothing", (
                f"no purge clears {table.name}"
            )
            assert table.stage is None or not table.has_row_a_slice or table.slice_columns, table.name

    def test_each_column_of_a_table_and_a_view_has_a_note(self, extension: Extension, tmp_path: Path) -> None:
        """A note is one line: the UI shows it, and ``cc.duckdb`` has it as a comment, also for the view itself."""
        schemas = {table.name: table.schema for table in extension.tables()}
        added = extension.definitions(HomeNamespace(("books",), is_only_home=False))
        assets = {asset.table or asset.name: asset for asset in (() if added is None else added.assets)}
        assert schemas.keys() <= assets.keys(), "no asset has the notes of a table"
        for table, asset in assets.items():
            notes = notes_of(asset.columns)
            assert table not in schemas or {*schemas[table].names} == notes.keys(), asset.name
            assert [name for name, note in notes.items() if note.splitlines() != [note.strip()]] == [], asset.name
        if not extension.views():
            return
        (tmp_path / "source").mkdir()
        with open_workspace(load_settings({}, source=str(tmp_path / "source"), home=str(tmp_path / "home"))) as empty:
            publish_warehouse(empty)
            published = empty.settings.published_path
        with connect(published, read_only=True) as connection:
            columns = connection.execute(
                "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE schema_name = 'main'"
            ).fetchall()
            views = connection.execute(
                "SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'main' UNION ALL "
                "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'main'"
            ).fetchall()
        own_views = {view.name for view in extension.views() if "." not in view.name}
        assert {view for view, comment in views if comment} >= own_views
        assert [f"{view}.{column}" for view, column, note in columns if view in own_views and not note] == []

    def test_each_command_has_help(self, extension: Extension) -> None:
        """Each command has help in the list of commands, and each command of a group too."""
        tree = typer.main.get_command(build_app())
        for name in extension.commands():
            command = tree.commands[name]  # type: ignore[attr-defined]
            assert command.get_short_help_str(), name
            for subcommand_name, subcommand in getattr(command, "commands", {}).items():
                assert subcommand.get_short_help_str(), f"{name} {subcommand_name}"

    def test_its_definitions_build_under_a_prefix(self, extension: Extension) -> None:
        """In a code location of several homes, every asset and job has the name of its home as a prefix."""
        placement = HomeNamespace(("books",), is_only_home=False)
        added = extension.definitions(placement)
        built = definitions(placement)
        dg.Definitions.validate_loadable(built)
        assert _problem(extension) == ""
        keys = {spec.key for spec in built.resolve_all_asset_specs()}
        jobs = {job.name for job in built.resolve_all_job_defs()}
        if added is not None:
            assert keys >= {placement.key(asset.name) for asset in added.assets}
            assert jobs >= {placement.qualify(job.name) for job in added.jobs}

    def test_missing_libraries_are_listed_with_the_install_command(self, extension: Extension) -> None:
        """An extension without its libraries is listed with the command that installs them."""
        assert all(extension.needs.values())
        [listing] = [
            listed_extension
            for listed_extension in list_extensions(load_settings({}))
            if listed_extension.name == extension.name
        ]
        assert listing.state == ("lacks libraries" if extension.missing else "in use")
        assert bool(listing.advice) == bool(extension.missing)

    def test_all_else_works_without_it(self, extension: Extension) -> None:
        """If the variable excludes it, the command line and the definitions load none of its modules."""
        loaded = _python(
            _LEFT_OUT_CODE.format(name=extension.name, module=self.module), **{LEFT_OUT_VARIABLE: extension.name}
        )
        assert loaded.split() == []


def _problem(extension: Extension) -> str:
    [problem] = [
        found_extension.problem for found_extension in find_extensions() if found_extension.name == extension.name
    ]
    return problem


def _python(code: str, **variables: str) -> str:
    process = run([sys.executable, "-P", "-c", code], whole_environment(variables))
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode()
