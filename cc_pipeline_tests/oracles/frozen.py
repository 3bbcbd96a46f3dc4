"""Frozen digests of published rows: where they are kept, and what a published file differs in.

Those of the core's tables are in this folder, those of an extension's in the folder ``oracles`` beside its tests.

``python -m cc_pipeline_tests.oracles.frozen`` makes all homes and writes their digests anew; with names of homes, only
theirs. ``--keep FOLDER`` keeps the homes, to compare their rows with those of another commit (``published.py``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cc_pipeline_tests.oracles.additions import find_additions, owners_of_tables
from cc_pipeline_tests.oracles.homes import HOMES, published_file
from cc_pipeline_tests.oracles.published import TableDigest, read_digests, read_new_rows
from cc_pipeline_tests.oracles.sources import list_writers

#: The folder of all tests.
FOLDER = Path(__file__).parents[1]
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """The digests of a home's published tables, the digest of its source, and the libraries that wrote the source."""

    tables: Mapping[str, TableDigest]
    source: str
    writers: Mapping[str, str]


def read_frozen(name: str, folder: Path = FOLDER) -> FrozenRows:
    """The frozen rows of a home: of the core's tables, and of the tables of extensions whose tests are here. Raises
    ``FileNotFoundError``."""
    noted = json.loads(_own_file(name, folder).read_text("utf-8"))
    tables = dict(noted["tables"])
    for extension in find_additions():
        if (path := _file_of(extension, name, folder)).exists():
            tables |= json.loads(path.read_text("utf-8"))["tables"]
    read = {table: TableDigest.from_json(digest) for table, digest in tables.items()}
    return FrozenRows(read, noted["source"], noted["writers"])


def write_frozen(name: str, rows: FrozenRows, folder: Path = FOLDER) -> None:
    """Writes the frozen rows of a home, those of each extension's tables beside its tests."""
    owners, own = owners_of_tables(), _own_file(name, folder)
    noted: dict[Path, dict[str, object]] = {own: {}}
    for table, digest in rows.tables.items():
        path = _file_of(owners[table], name, folder) if table in owners else own
        noted.setdefault(path, {})[table] = digest.to_json()
    for path, tables in noted.items():
        about = {"source": rows.source, "writers": dict(rows.writers)} if path == own else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about | {"tables": tables}, indent=1) + "\n", "utf-8")


def _own_file(name: str, folder: Path) -> Path:
    """Where the core's tables of a home are kept: with who makes the home."""
    makers = [extension for extension, addition in find_additions().items() if name in addition.homes]
    return _file_of(makers[0], name, folder) if makers else folder / "oracles" / f"{name}.json"


def _file_of(extension: str, name: str, folder: Path) -> Path:
    return folder / "extensions" / extension / "oracles" / f"{name}.json"


def list_changes(published: Path, frozen: Mapping[str, TableDigest]) -> list[str]:
    """A line for each table that is not as it was frozen: its rows, the columns that differ, and some new rows."""
    current = read_digests(published)
    lines = [f"{table}: gone; it had {frozen[table].rows:,} rows" for table in frozen.keys() - current.keys()]
    lines += [f"{table}: new, with {current[table].rows:,} rows" for table in current.keys() - frozen.keys()]
    for table in current.keys() & frozen.keys():
        if current[table] != frozen[table]:
            lines.append(f"{table}: {'; '.join(_describe(published, table, frozen[table], current[table]))}")
    return sorted(lines)


def _describe(published: Path, table: str, frozen: TableDigest, current: TableDigest) -> Iterator[str]:
    if current.rows != frozen.rows:
        yield f"{current.rows:,} rows instead of {frozen.rows:,}"
    if gone := [name for name in frozen.columns if name not in current.columns]:
        yield f"without the columns {', '.join(gone)}"
    if new := [name for name in current.columns if name not in frozen.columns]:
        yield f"with the new columns {', '.join(new)}"
    shared = frozen.columns.keys() & current.columns.keys()
    changed = [name for name in current.columns if name in shared and frozen.columns[name] != current.columns[name]]
    if changed:
        yield f"other values in {', '.join(changed)}"
    if not gone and not new and not changed and current.digest != frozen.digest:
        yield "the same values in each column, in other rows"
    for row in read_new_rows(published, table, frozen):
        shown = ", ".join(f"{name}={row[name]!r}" for name in (changed or row))
        yield f"new row {_key_of(row)}: {shown[:_SHOWN_CHARACTERS]}"


def _key_of(row: Mapping[str, object]) -> str:
    names = ("crawl", "target", "slug", "url", "path", "warc_filename", "warc_record_offset")
    return " ".join(str(row[name]) for name in names if row.get(name) is not None)


def main() -> None:
    """Writes the digests of the homes that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(HOMES))
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder in which the homes are kept")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="oracles-") as temporary:
        for name in arguments.names or HOMES:
            folder = (arguments.keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            source = HOMES[name](folder)
            rows = FrozenRows(read_digests(published_file(folder)), source, list_writers())
            write_frozen(name, rows)
            print(f"{name}: {len(rows.tables)} tables, {sum(digest.rows for digest in rows.tables.values()):,} rows")


if __name__ == "__main__":
    main()
