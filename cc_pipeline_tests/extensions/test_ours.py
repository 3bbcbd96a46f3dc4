"""Every extension does what the core expects of every extension."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import dagster as dg
import pytest

from cc_pipeline.children import run, whole_environment
from cc_pipeline.cli.app import find_commands
from cc_pipeline.defs.build import build_home
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.export.formats import FORMATS
from cc_pipeline.extension import PACKAGE, Extension, extensions
from cc_pipeline.publish.macros import MACROS
from cc_pipeline.publish.views import Blocked, Sharing, publication_views
from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import declarations
from cc_pipeline.settings.reading import settings_of_extensions
from cc_pipeline.workspace.tables import all_tables

#: Libraries that take longer to load than a command that prints its help may take.
_HEAVY = ("dagster", "pyarrow", "duckdb", "numpy", "deltalake", "boto3", "pyspark", "jinja2")
_COMMANDS = f"""
import sys
import typer
from cc_pipeline.cli.app import build_app
typer.main.get_command(build_app())
print(*(name for name in {_HEAVY!r} if name in sys.modules))
"""

each_extension = pytest.mark.parametrize("extension", extensions(), ids=lambda extension: extension.name)


def test_each_has_the_name_of_its_package_and_a_summary_of_one_line() -> None:
    for extension in extensions():
        assert sys.modules[f"{PACKAGE}.{extension.name}"].EXTENSION is extension
        assert extension.summary and "\n" not in extension.summary


def test_all_of_them_are_listed_by_every_command_and_load_nothing_heavy() -> None:
    done = run([sys.executable, "-P", "-c", _COMMANDS], whole_environment({}))
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr.decode()


def contribution_names() -> Iterator[tuple[str, str]]:
    """Names of contributions that the core merges by name; Dagster itself refuses definitions of one name."""
    kinds = [("", Settings), ("", ProcessSettings), *settings_of_extensions().items()]
    yield from (("setting", setting.name) for name, kind in kinds for setting in declarations(kind, name))
    yield from (("table", table.name) for table in all_tables())
    yield from (("format", name) for name in FORMATS)
    yield from (("macro", macro.name) for macro in MACROS)
    yield from (("view", view.name) for view in publication_views([], Sharing((), ()), Blocked((), ())))
    for extension in extensions():
        yield from (("engine", name) for name in extension.engines())
        yield from (("macro", macro.name) for macro in extension.macros())
        yield from (("view", view.name) for view in extension.views())


def test_no_two_contributions_have_one_name() -> None:
    assert [name for name, count in Counter(contribution_names()).items() if count > 1] == []
    for extension in extensions():
        for name, command in extension.commands().items():
            assert find_commands()[name] == command


@each_extension
def test_maintenance_and_purges_find_the_rows_of_each_table(extension: Extension) -> None:
    for table in extension.tables():
        columns = {*table.schema.names}
        assert columns >= {*table.slice_columns, *table.sort_by, *table.provenance_columns}, table.name
        assert "target" not in columns or table.has_targets or table.is_of_files, table.name
        if table.has_targets:
            assert table.stage is not None, table.name
            assert table.name in table.stage.tables, table.name


@each_extension
def test_each_column_of_a_table_has_a_note(extension: Extension) -> None:
    added = extension.definitions(OWN_HOME)
    specs = [spec for asset in (added.assets or () if added is not None else ()) for spec in asset.specs]
    tables = {spec.metadata["dagster/table_name"]: spec for spec in specs if "dagster/table_name" in spec.metadata}
    for table in extension.tables():
        columns = tables[table.name].metadata["dagster/column_schema"].columns
        assert [column.name for column in columns] == table.schema.names, "no asset has the notes of a table"
        assert [column.name for column in columns if not (column.description or "").strip()] == []


def test_their_definitions_have_the_prefix_of_a_home() -> None:
    namespace = HomeNamespace(("books",), is_only_home=False)
    built = build_home(namespace, is_automatic=False)
    dg.Definitions.validate_loadable(built)
    keys = {spec.key for spec in built.resolve_all_asset_specs()}
    for extension in extensions():
        if (added := extension.definitions(namespace)) is not None:
            own = {spec.key for asset in added.assets or () for spec in asset.specs}
            assert own and own <= keys and all(key.path[0] == "books" for key in own)
