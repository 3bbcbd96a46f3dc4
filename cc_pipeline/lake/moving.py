"""A published file whose lake lies elsewhere than its views say: its home was moved, renamed or copied.

DuckDB takes a relative path from the folder of the process, not of the file, so views name files by absolute paths. A
file of views is therefore written anew for the place where the lake is now: the same versions, and no row is read.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from cc_pipeline.addresses import scheme_of
from cc_pipeline.atomic import written_whole
from cc_pipeline.errors import EnvironmentFault, disk_is_full
from cc_pipeline.lake.reading import open_published, quoted, s3_place
from cc_pipeline.locks import locked
from cc_pipeline.settings import Settings

#: Another process may be publishing, which would settle it too.
_PATIENCE: Final = 60.0
#: The first file that a view of the schema ``lake`` names, as root and the rest; the tables lie in ``<root>/tables``.
_NAMED: Final = r"'((?:[^']|'')*)(/tables/{table}/(?:[^']|'')*)'"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where views look for the lake: its root, and one file below it that they name."""

    root: str
    file: str


@contextmanager
def open_settled(settings: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    """The home's published file, read-only, wherever the home was when it was published.

    Raises ``EnvironmentFault`` where there is none, and as :func:`settled` and ``open_published`` do.
    """
    path = settings.published_path
    if not path.exists():
        raise EnvironmentFault(
            f"{path} does not exist yet",
            "Publish it first: cc-pipeline run --crawl … --domain …, or name another home: --home FOLDER.",
        )
    with settled(path, settings.lake) as file, open_published(file, s3_place(settings)) as connection:
        yield connection


@contextmanager
def settled(path: Path, lake: str) -> Iterator[Path]:
    """The file to open instead of ``path`` for the length of the block: ``path`` itself, as a rule.

    Where its views name files that now lie in the folder ``lake``, it is written anew first; in a folder that cannot be
    written, a copy for this block alone. Raises ``EnvironmentFault`` where the files are neither there nor where the
    views say; ``duckdb.Error`` where ``path`` cannot be opened.
    """
    place = None if scheme_of(lake) else _named_place(path)
    if place is None or place.root == lake:
        yield path
        return
    if not Path(lake + place.file).exists():
        if not Path(place.root + place.file).exists():
            raise EnvironmentFault(
                f"{path} shows the tables of {place.root}, which are not there any more, and not in {lake}",
                "Name the folder they are in now (CC_PIPELINE_LAKE, or --home for the whole home), or publish again: "
                "cc-pipeline run --crawl … --domain …",
            )
        # the file was handed on, and its lake is where it was
        yield path
        return
    with _written_anew(path, place.root, lake) as anew:
        yield anew


def _named_place(path: Path) -> _Place | None:
    """``None`` where no view names a file in a folder."""
    with duckdb.connect(str(path), read_only=True) as connection:
        views = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, '/tables/')"
        for (table,) in connection.execute(views).fetchall():
            asked = (
                "SELECT regexp_extract(sql, ?, ['root', 'file']) FROM duckdb_views() WHERE schema_name = 'lake' AND "
            )
            found = connection.execute(asked + "view_name = ?", [_NAMED.format(table=table), table]).fetchone()
            if found and found[0]["file"]:
                root, file = (found[0][part].replace("''", "'") for part in ("root", "file"))
                return None if scheme_of(root) else _Place(root, file)
    return None


@contextmanager
def _written_anew(path: Path, root: str, lake: str) -> Iterator[Path]:
    try:
        with locked(path.with_name("publish.lock"), _PATIENCE):
            place = _named_place(path)  # another process may have done it
            if place is not None and place.root == root:
                with written_whole(path) as beside:
                    _rewrite(path, beside, root, lake)
    except OSError as error:
        if disk_is_full(error):
            raise EnvironmentFault(f"{path} cannot be written: the disk is full", "Free some space.") from error
        with tempfile.TemporaryDirectory(prefix="cc-pipeline-") as folder:
            copy = Path(folder) / path.name
            _rewrite(path, copy, root, lake)
            yield copy
        return
    yield path


def _rewrite(path: Path, to: Path, root: str, lake: str) -> None:
    """Copies a published file; its views then name the files below ``lake`` that they named below ``root``."""
    shutil.copyfile(path, to)
    before, after = (quoted(f"{place}/tables/").removesuffix("'") for place in (root, lake))
    with duckdb.connect(str(to)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        said = connection.execute(
            "SELECT 'VIEW', view_name, NULL, comment FROM duckdb_views() WHERE schema_name = 'lake' UNION ALL "
            "SELECT 'COLUMN', table_name, column_name, comment FROM duckdb_columns() WHERE schema_name = 'lake'"
        ).fetchall()
        naming = "SELECT sql FROM duckdb_views() WHERE schema_name = 'lake' AND contains(sql, ?)"
        views = connection.execute(naming, [before]).fetchall()
        for (sql,) in views:
            connection.execute(sql.replace(before, after).replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
        for kind, view, column, comment in said:
            if comment is not None:
                name = f'lake."{view}"' + (f'."{column}"' if column else "")
                connection.execute(f"COMMENT ON {kind} {name} IS {quoted(comment)}")
        connection.execute("CHECKPOINT")
