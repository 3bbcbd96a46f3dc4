"""Opening a published file: read-only, and with what DuckDB needs where its views read files on S3.

DuckDB reads S3 by its extension ``httpfs``, which is no part of its wheel. It is taken from a Python package or from
where DuckDB keeps installed ones, and never fetched from the internet. The credentials live as long as the connection:
no file holds them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from cc_pipeline.addresses import scheme_of, shown
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings import Settings

#: The package that holds the extension, a folder for each version of DuckDB.
_PACKAGE = "duckdb_extension_httpfs"


@dataclass(frozen=True, slots=True)
class S3Place:
    """A lake on S3: its root (``s3://bucket/prefix``), region, and endpoint if it is not AWS."""

    root: str
    region: str
    endpoint: str | None


def s3_place(settings: Settings) -> S3Place | None:
    """The settings' lake, or ``None`` where it is a folder."""
    if scheme_of(settings.lake) != "s3":
        return None
    return S3Place(settings.lake, settings.s3_region, settings.lake_endpoint)


@contextmanager
def open_published(path: Path, lake: S3Place | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """``path`` read-only, times in UTC, for the length of the block; ``lake`` is what its views read, if on S3.

    Raises ``duckdb.Error`` when the file cannot be opened; ``EnvironmentFault`` without the extension or credentials,
    for a file that needs them. One that holds the rows itself needs neither.
    """
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if lake is not None and _reads_files(connection):
            let_read(connection, lake)
        yield connection


def let_read(connection: duckdb.DuckDBPyConnection, lake: S3Place) -> None:
    """Lets ``connection`` read the files of ``lake``, as long as it is open.

    Raises ``EnvironmentFault`` where there is no ``httpfs`` for this DuckDB, and where there are no credentials.
    """
    connection.execute("SET autoinstall_known_extensions = false")
    packaged = _packaged_extension()
    try:
        connection.execute(f"LOAD {quoted(str(packaged))}" if packaged else "LOAD httpfs")
    except duckdb.Error as error:
        raise EnvironmentFault(
            f"the tables are on S3, and DuckDB {duckdb.__version__} has no httpfs extension here to read them",
            "Either install both with: pip install 'cc-pipeline[s3]' (DuckDB 1.5.5 has httpfs as a package, 2.0 has "
            "none yet), or set CC_PIPELINE_PUBLISH=copy and publish again: the file then holds the rows.",
        ) from error
    _make_secret(connection, lake)


def _packaged_extension() -> Path | None:
    """The extension of the installed package that fits this DuckDB; another version's cannot be loaded."""
    found = importlib.util.find_spec(_PACKAGE)
    for folder in found.submodule_search_locations or () if found else ():
        path = Path(folder) / "extensions" / f"v{duckdb.__version__}" / "httpfs.duckdb_extension"
        if path.is_file():
            return path
    return None


def _make_secret(connection: duckdb.DuckDBPyConnection, lake: S3Place) -> None:
    from cc_pipeline.stores.s3 import S3Options, find_credentials  # noqa: PLC0415  # takes a while, and few need it

    # DuckDB's own chain is another extension (aws), and would look in other places than the rest of the pipeline
    found = find_credentials(S3Options(), lake.root).get_frozen_credentials()
    values = {"KEY_ID": found.access_key, "SECRET": found.secret_key, "REGION": lake.region, "SCOPE": lake.root}
    if found.token:
        values["SESSION_TOKEN"] = found.token
    flags = ""
    if lake.endpoint:
        values["ENDPOINT"] = shown(lake.endpoint).partition("://")[2].rstrip("/")
        flags = f", URL_STYLE 'path', USE_SSL {str(scheme_of(lake.endpoint) == 'https').lower()}"
    named = ", ".join(f"{name} ?" for name in values)
    try:
        connection.execute(f"CREATE TEMPORARY SECRET lake (TYPE s3, {named}{flags})", list(values.values()))
    except duckdb.Error as error:
        # its own words may hold what was to be kept
        raise EnvironmentFault(
            f"DuckDB does not take the credentials for {lake.root} ({type(error).__name__})",
            "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and CC_PIPELINE_LAKE_ENDPOINT.",
        ) from None


def _reads_files(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether any view names a file on S3; a copy has tables instead."""
    asked = "SELECT count(*) FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, ?)"
    found = connection.execute(asked, ["'s3://"]).fetchone()
    return bool(found and found[0])


def quoted(value: str) -> str:
    """``value`` as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def unended(query: str) -> str:
    """The text of one statement without its semicolon, and what stands behind it. It may end in a comment: put a line
    break before whatever follows it."""
    while (last := last_token(query)) is not None and query[last] == ";":
        query = query[:last]
    return query


def last_token(text: str) -> int | None:
    """Where the last token of SQL begins that is no comment; ``None`` where there is none."""
    # offsets count bytes
    data = text.encode()
    starts = [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    return len(data[: starts[-1]].decode()) if starts else None
