"""The datasets of a home: those that this program contains, and those that the user added."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import duckdb
import yaml

from cc_pipeline.addresses import scheme_of
from cc_pipeline.atomic import write_whole
from cc_pipeline.duck import connect
from cc_pipeline.errors import CcPipelineError, UserInputError, describe_unknown_name, disk_trouble
from cc_pipeline.extensions.host_facts.annotations import SourceTable, read_join
from cc_pipeline.extensions.host_facts.dataset_files import delete_files, delete_unused
from cc_pipeline.extensions.host_facts.datasets import (
    Dataset,
    parse_dataset,
    read_definition,
    read_yaml,
    shipped_datasets,
)
from cc_pipeline.extensions.host_facts.folders import datasets_path
from cc_pipeline.extensions.host_facts.ranks import is_name_of_ranks, ranks_datasets
from cc_pipeline.lake.quoting import quote_name
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import fetch_object, open_named

#: Maximum bytes of a table on the web that is fetched for a join.
_MAX_FETCHED_BYTES: Final = 256 << 20
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,58}[a-z0-9])?")
_OPTIONS: Final = ("header", "columns", "delim", "sep", "quote", "skip", "nullstr", "all_varchar")


@dataclass(frozen=True, slots=True)
class RegisteredDataset:
    """A dataset, and its file in the home (``None`` for a dataset that this program contains)."""

    dataset: Dataset
    file: Path | None = None

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self.dataset.name

    def columns(self) -> dict[str, Any] | None:
        """The columns of its answers, with their declared types; ``None`` if only the files of the
        dataset have them.
        """
        dataset = self.dataset
        if dataset.action == "label":
            return {dataset.label: None}
        if dataset.action == "filter":
            return {}
        return (
            None if dataset.columns is None else {dataset.prefix + name: kind for name, kind in dataset.columns.items()}
        )


def known_datasets(settings: Settings) -> dict[str, RegisteredDataset]:
    """All datasets by name, including converted ranks. Raises ``UserInputError`` for an invalid file of the home, and
    names it.
    """
    datasets = {name: RegisteredDataset(dataset) for name, dataset in shipped_datasets().items()}
    datasets |= {name: RegisteredDataset(ranks_) for name, ranks_ in ranks_datasets(settings).items()}
    folder = datasets_path(settings)
    for file in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
        added = _read(read_definition(file), file)
        datasets[added.name] = added
    return datasets


def add_dataset(settings: Settings, file: Path, name: str | None = None) -> RegisteredDataset:
    """Stores the dataset or annotation that a YAML file defines in the home, and replaces one of the same name.

    A table that is not Parquet is converted, in the home. Raises ``UserInputError`` that names file and field, and
    ``EnvironmentFault`` if a table cannot be fetched.
    """
    text = read_definition(file)
    joined = read_join(read_yaml(text, str(file)), file)
    if joined is None:
        registered = _read(text, file)
        if name not in (None, registered.name):
            raise UserInputError(f"{file} names itself {registered.name}; change the field name there")
    else:
        name = name or re.sub(r"[^a-z0-9]+", "-", file.stem.lower().removeprefix("join_")).strip("-")
        registered = _read(_to_yaml({"name": _check_name(name), **joined.definition}), file)
    if registered.name in shipped_datasets() or is_name_of_ranks(registered.name):
        raise UserInputError(
            f"{file}: the name {registered.name} is taken by a dataset of this program; choose another name"
        )
    if joined is not None:
        described = {"name": registered.name, **joined.definition}
        if joined.source_table is not None:
            table_file = _as_parquet(settings, joined.source_table, registered.name, registered.dataset.key)
            described["where"] |= {"root": str(table_file.parent), "files": [table_file.name]}
        text = _to_yaml(described)
    if root := registered.dataset.root:
        open_named(settings, root).close()  # an invalid root is refused now, and not at the first lookup
    place = datasets_path(settings) / f"{registered.name}.yaml"
    with disk_trouble(place):
        write_whole(place, text, durable=True)
    stored = _read(text, place)
    _delete_tables(settings, registered.name, kept_names=stored.dataset.files)
    delete_files(settings, registered.name, current_place=stored.dataset.place)
    return stored


def remove_dataset(settings: Settings, name: str) -> None:
    """Deletes an added dataset, and the stored data of its files. Raises ``UserInputError`` for another name."""
    file = datasets_path(settings) / f"{_check_name(name)}.yaml"
    if not file.is_file():
        if name in shipped_datasets() or is_name_of_ranks(name):
            raise UserInputError(f"{name} is a dataset of cc_pipeline itself and cannot be removed")
        added = [definition_file.stem for definition_file in sorted(datasets_path(settings).glob("*.yaml"))]
        if added:
            raise UserInputError(describe_unknown_name("dataset", name, added) + " that was added to this home")
        raise UserInputError(f"there is no dataset {name}: no dataset was added to this home")
    with disk_trouble(file):
        file.unlink()
    _delete_tables(settings, name)
    delete_files(settings, name)


def sweep_datasets(settings: Settings) -> int:
    """Deletes the stored data of datasets that this home no longer has. Returns the number of these datasets. Deletes
    nothing if a dataset's definition cannot be read, since the data may belong to it.
    """
    try:
        datasets = known_datasets(settings)
    except CcPipelineError:
        return 0
    return delete_unused(settings, {(registered.name, registered.dataset.place) for registered in datasets.values()})


def _delete_tables(settings: Settings, name: str, kept_names: Sequence[str] = ()) -> None:
    """Deletes converted tables of a dataset."""
    for table in datasets_path(settings).glob(f"{name}.????????.parquet"):
        if table.name not in kept_names:
            table.unlink(missing_ok=True)


def _to_yaml(described: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(described), sort_keys=False, allow_unicode=True)


def _read(text: str, file: Path) -> RegisteredDataset:
    return RegisteredDataset(parse_dataset(text, str(file)), file)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UserInputError(f"{name[:60]!r} is no name of a dataset: letters, digits, - and _, in lower case")
    return name


def _as_parquet(settings: Settings, table: SourceTable, name: str, key: str) -> Path:
    """Converts a csv or json table to a Parquet file of the home, sorted by its key. The file name contains a digest of
    its content, so that stored data of another table is never used for it.
    """
    options = _check_options(table)
    folder = datasets_path(settings)
    # DuckDB detects compression by the file's name.
    packed = ".gz" if urlsplit(table.where).path.endswith(".gz") else ""
    fetched, new_file = (folder / f".{name}.{os.getpid()}.{suffix}" for suffix in (f"fetched{packed}", "part"))
    with disk_trouble(new_file):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if scheme_of(table.where):
                fetched.write_bytes(fetch_object(settings, table.where, _MAX_FETCHED_BYTES))
            _convert(str(fetched if scheme_of(table.where) else table.where), table, options, key, new_file)
            with new_file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()[:8]
            return new_file.replace(folder / f"{name}.{digest}.parquet")
        finally:
            fetched.unlink(missing_ok=True)
            new_file.unlink(missing_ok=True)


def _check_options(table: SourceTable) -> Mapping[str, Any]:
    allowed_options = _OPTIONS if table.format == "csv" else ("columns",)
    for name, value in table.options.items():
        fits = isinstance(value, dict) if name == "columns" else isinstance(value, bool | int | str)
        if name not in allowed_options or not fits:
            raise UserInputError(
                f"the option {name} of {table.where} is not known; known are: {', '.join(allowed_options)}"
            )
    return table.options


def _convert(source: str, table: SourceTable, options: Mapping[str, Any], key: str, out: Path) -> None:
    """Writes the Parquet file. Every name is quoted and every value is a literal, so that no text of the file becomes
    SQL.
    """
    reader = "read_csv" if table.format == "csv" else "read_json"
    option_texts = "".join(f", {name} = {_literal(value)}" for name, value in options.items())
    columns = ", ".join(quote_name(column) for column in table.columns)
    try:
        with connect(memory_limit="1GB", threads="1") as session:
            session.execute("SET temp_directory = ?", [str(out.parent)])
            session.execute(
                f"COPY (SELECT {columns} FROM {reader}({_literal(source)}{option_texts}) "
                f"WHERE {quote_name(key)} IS NOT NULL ORDER BY {quote_name(key)}) "
                f"TO {_literal(str(out))} (FORMAT parquet, ROW_GROUP_SIZE 100000)"
            )
    except duckdb.Error as error:
        raise UserInputError(f"{table.where} cannot be read as {table.format}: {str(error).splitlines()[0]}") from error


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(str(name))}: {_literal(str(kind))}" for name, kind in value.items()) + "}"
    return "'" + str(value).replace("'", "''") + "'"
