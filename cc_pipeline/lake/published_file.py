"""Opens a published DuckDB file read-only, with the access that DuckDB needs to read its lake, wherever the lake is
now. The file may have been published elsewhere, before its home was moved, or over S3.

DuckDB reads S3 by its extension ``httpfs``, which is no part of its wheel. It is taken from a Python package or from
DuckDB's folder of installed extensions, and never fetched from the internet. The credentials live as long as the
connection: no file holds them.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from cc_pipeline.addresses import redact_address, scheme_of
from cc_pipeline.advice import advise, option
from cc_pipeline.duck import connect, connect_newest
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_is_full, disk_trouble
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.lake.user_queries import restrict_reads
from cc_pipeline.processes import this_process
from cc_pipeline.settings import Settings

#: The package that holds the extension, a folder for each version of DuckDB.
_PACKAGE = "duckdb_extension_httpfs"

#: What DuckDB may hold in memory for a long question.
_MEMORY: Final = "1GB"
#: The first file that a view of the schema ``lake`` names, as root and the rest; the tables lie in ``<root>/tables``.
_VIEW_FILE_PATTERN: Final = r"'((?:[^']|'')*)(/tables/{table}/(?:[^']|'')*)'"


@dataclass(frozen=True, slots=True)
class S3LakeLocation:
    """A lake on S3: its root (``s3://bucket/prefix``), region, and endpoint if it is not AWS."""

    root: str
    region: str
    endpoint: str | None


def get_s3_location(settings: Settings) -> S3LakeLocation | None:
    """The settings' lake, or ``None`` if it is a folder."""
    if scheme_of(settings.lake) != "s3":
        return None
    return S3LakeLocation(settings.lake, settings.s3_region, settings.lake_endpoint)


@contextmanager
def open_published(path: Path, lake: S3LakeLocation | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """``path`` read-only, times in UTC, for the length of the block; ``lake`` is the lake that its views read, if on
    S3.

    Raises ``duckdb.Error`` when the file cannot be opened; ``EnvironmentFault`` without the extension or credentials,
    for a file that needs them. A file that holds the rows itself needs neither.
    """
    with connect_newest(path) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # a copy has tables instead of views of files
        query = "SELECT 1 FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, ?)"
        if lake is not None and connection.execute(query, ["'s3://"]).fetchone():
            enable_s3_reads(connection, lake)
        yield connection


def enable_s3_reads(connection: duckdb.DuckDBPyConnection, lake: S3LakeLocation) -> None:
    """Lets ``connection`` read the files of ``lake``, as long as it is open.

    Raises ``EnvironmentFault`` if there is no ``httpfs`` for this DuckDB, or if there are no credentials.
    """
    _load_extension(connection)
    _make_secret(connection, lake)


def check_views(settings: Settings) -> None:
    """Raises ``EnvironmentFault`` if publication would fail because the settings want views over S3 and this DuckDB has
    no ``httpfs``. A run that asks first does not fetch for hours and then fail. Sends no request."""
    if settings.publish == "views" and get_s3_location(settings) is not None:
        check_extension()


def check_extension() -> None:
    """Raises ``EnvironmentFault`` if this DuckDB has no ``httpfs``."""
    with connect() as connection:
        _load_extension(connection)


def _load_extension(connection: duckdb.DuckDBPyConnection) -> None:
    packaged = _find_packaged_extension()
    try:
        connection.execute(f"LOAD {quote_literal(str(packaged))}" if packaged else "LOAD httpfs")
    except duckdb.Error as error:
        raise EnvironmentFault(
            f"the tables are on S3, and DuckDB {duckdb.__version__} has no httpfs extension here to read them",
            "Either install both with: pip install 'cc-pipeline[s3]' (DuckDB 1.5.5 has httpfs as a package, 2.0 has "
            "none yet), or set CC_PIPELINE_PUBLISH=copy and publish again: the file then holds the rows.",
        ) from error


def _find_packaged_extension() -> Path | None:
    """The extension of the installed package that fits this DuckDB; another version's cannot be loaded."""
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
        if path.is_file():
            return path
    return None


def _make_secret(connection: duckdb.DuckDBPyConnection, lake: S3LakeLocation) -> None:
    from cc_pipeline.stores.s3 import find_credentials  # noqa: PLC0415  # takes a while, and few need it

    # DuckDB's own chain is another extension (aws), and would look in other places than the rest of the pipeline
    credentials = find_credentials(lake.root).get_frozen_credentials()
    values = {
        "KEY_ID": credentials.access_key,
        "SECRET": credentials.secret_key,
        "REGION": lake.region,
        "SCOPE": lake.root,
    }
    if credentials.token:
        values["SESSION_TOKEN"] = credentials.token
    flags = ""
    if lake.endpoint:
        values["ENDPOINT"] = redact_address(lake.endpoint).partition("://")[2].rstrip("/")
        flags = f", URL_STYLE 'path', USE_SSL {str(scheme_of(lake.endpoint) == 'https').lower()}"
    options = ", ".join(f"{name} ?" for name in values)
    try:
        connection.execute(f"CREATE TEMPORARY SECRET lake (TYPE s3, {options}{flags})", list(values.values()))
    except duckdb.Error as error:
        # DuckDB's message may hold the credentials
        raise EnvironmentFault(
            f"DuckDB rejected the credentials for {lake.root} ({type(error).__name__})",
            "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and CC_PIPELINE_LAKE_ENDPOINT.",
        ) from None


@contextmanager
def open_home_publication(settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    """The home's published file, read-only. If its views name files that are in the settings' lake now, it is a copy
    whose views name these.

    Raises ``EnvironmentFault`` if there is no file, or its tables exist nowhere, and as ``open_published`` does.
    """
    path = settings.published_path
    if not path.exists():
        if settings.publish == "none":
            raise EnvironmentFault(
                f"{path} does not exist, because this home publishes nothing (CC_PIPELINE_PUBLISH=none)",
                option(
                    home="FOLDER",
                    sentence="Use a home of this lake that publishes: {}. Or set CC_PIPELINE_PUBLISH=views, then "
                    "repeat an earlier run of this home.",
                ),
            )
        raise EnvironmentFault(
            f"{path} does not exist yet",
            advise(
                "run",
                "TARGET",
                crawl="newest",
                sentence=f"A run writes this file: {{}}. For another home: {option(home='FOLDER')}.",
            ),
        )
    lake = get_s3_location(settings)
    with open_published(path, lake) as connection:
        location = None if lake is not None else _find_named_location(connection)
        if location is None or not _has_moved(path, *location, settings.lake):
            yield connection
            return
    with tempfile.TemporaryDirectory(prefix="cc-pipeline-") as folder:
        copy = Path(folder) / path.name
        with disk_trouble(copy):
            shutil.copyfile(path, copy)
        _rename_files(copy, location[0], settings.lake)
        with open_published(copy, None) as connection:
            yield connection


def _has_moved(path: Path, root: str, file: str, lake: str) -> bool:
    """Whether views of ``path`` name a ``file`` below ``root`` that is below the folder ``lake`` now. Raises
    ``EnvironmentFault`` if it is in neither."""
    # a file whose lake is still in its place may have been copied elsewhere
    if root != lake and Path(lake + file).exists():
        return True
    if not Path(root + file).exists():
        raise EnvironmentFault(
            f"{path} refers to tables in {root}, which exist neither there nor in {lake}",
            "Name the folder they are in now (CC_PIPELINE_LAKE, or CC_PIPELINE_HOME for the whole home), or repeat an "
            "earlier run, which publishes again.",
        )
    return False


@contextmanager
def open_bounded(settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same for long queries: DuckDB uses a gigabyte of memory at most, and the home's scratch folder beyond
    that."""
    with open_home_publication(settings) as connection:
        # a folder of this name is deleted if the process is killed
        process_folder = settings.home / "scratch" / this_process()
        process_folder.mkdir(parents=True, exist_ok=True)
        try:
            with tempfile.TemporaryDirectory(dir=process_folder, prefix="asking-") as spill:
                connection.execute(f"SET temp_directory = {quote_literal(spill)}")
                connection.execute(f"SET memory_limit = '{_MEMORY}'")
                yield connection
        finally:
            with suppress(OSError):
                process_folder.rmdir()  # others of this process may use it


@contextmanager
def open_for_queries(
    settings: Settings,
    open_file: Callable[[Settings], AbstractContextManager[duckdb.DuckDBPyConnection]] = open_home_publication,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The home's cc.duckdb for queries of users, which read the files of its tables and no others, for the length of
    the block. DuckDB's errors inside it become faults.

    Raises ``EnvironmentFault`` if nothing was published or a file cannot be read, ``UserInputError`` for a statement
    that DuckDB refuses.
    """
    with translate_errors(settings.published_path), open_file(settings) as connection:
        location = _find_named_location(connection)
        restrict_reads(connection, [f"{location[0] if location else settings.lake}/tables/"])
        yield connection


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turns DuckDB's errors inside the block, on the file ``path``, into faults."""
    try:
        yield
    except duckdb.HTTPException as error:
        raise EnvironmentFault(
            f"the tables of {path} cannot be read from S3: {error}",
            "Check the AWS credentials, CC_PIPELINE_LAKE_ENDPOINT and the network.",
        ) from error
    except duckdb.IOException as error:
        if disk_is_full(error):
            raise EnvironmentFault(f"the disk is full: {error}", "Free some space, then repeat the command.") from error
        raise EnvironmentFault(
            f"{path}, or a table file that it refers to, cannot be read: {error}",
            "If another program has the file open for writing, close that program. Otherwise repeat an earlier "
            "run: its publication restores missing files of the tables.",
        ) from error
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.CatalogException as error:
        raise UserInputError(
            f"DuckDB says: {error}\nSHOW TABLES lists the tables, DESCRIBE TABLE the columns of one"
        ) from None
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None


def _find_named_location(connection: duckdb.DuckDBPyConnection) -> tuple[str, str] | None:
    """The root of the lake that views name, and one file below it; ``None`` if no view names a file in a folder."""
    views = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, '/tables/')"
    for (table,) in connection.execute(views).fetchall():
        query = "SELECT regexp_extract(sql, ?, ['root', 'file']) FROM duckdb_views() WHERE schema_name = 'lake' AND "
        row = connection.execute(query + "view_name = ?", [_VIEW_FILE_PATTERN.format(table=table), table]).fetchone()
        if row and row[0]["file"]:
            root, file = (row[0][part].replace("''", "'") for part in ("root", "file"))
            return None if scheme_of(root) else (root, file)
    return None


def _rename_files(path: Path, root: str, lake: str) -> None:
    """Makes the views of a published file name files below ``lake`` instead of ``root``."""
    before, after = (quote_literal(f"{lake_root}/tables/").removesuffix("'") for lake_root in (root, lake))
    with connect(path) as connection:
        naming = "SELECT sql FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, ?)"
        for (sql,) in connection.execute(naming, [before]).fetchall():
            connection.execute(sql.replace(before, after).replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
