"""The definition of a dataset: a small YAML file with its location, its key, and the columns to use.

Each field is validated here, and an error names the file and the field. docs/extensions/host_facts.md documents the
fields for users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_args

import pyarrow as pa
import yaml

from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.host_keys import HostForm, WwwRule
from cc_pipeline.extensions.host_facts.shards import TYPES
from cc_pipeline.lake.digests.digest import compute_input_digest

#: A dataset's file has a few lines; nothing larger is one.
_MAX_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,58}[a-z0-9])?")
_COLUMN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,118}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_]{0,30}")

URL_KEY: Final = "url_key"
DOMAINS: Final = "domains"
FORMS: Final = (*get_args(HostForm), URL_KEY)
#: How several rows of one host (with and without ``www``) are merged; ``first`` prefers the host without ``www``.
FOLDS: Final = ("first", "min", "max", "sum", "any")
ACTIONS: Final = ("join", "filter", "label")
#: Columns that every answer has.
OWN_COLUMNS: Final = ("crawl", "target", "surt_host_name", "host", "domain", "url_surtkey", "fetch_time")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset of Parquet files with a row for each host, or for each capture of a URL.

    ``paths`` is the key of a path list (``{crawl}`` in it is replaced by the crawl), or ``files`` are the keys of the
    files; both are in ``root`` (empty: the source). With ``by_crawl``, a file belongs to the crawl of the ``crawl=`` in
    its path, otherwise every file holds for all crawls. ``key`` is the column of hosts in ``form`` with ``www``, or of
    SURT keys of URLs (``url_key``), then with ``time`` as the column of times. ``ending`` is an optional small column
    with the last label of each host.

    With ``of_domains``, its hosts are registered domains, and a row holds for every host of the domain. ``columns`` are
    the columns to use with their types (``None``: the widest type in the files); without ``columns``, all are used.
    ``prefix`` goes before their names. ``inner`` drops hosts that the dataset lacks. ``action`` is ``join`` (its
    columns), ``filter`` (only its hosts) or ``label`` (one boolean column). ``fold`` tells how several rows of one host
    are merged. ``written_in`` is the file of the definition.
    """

    name: str
    key: str
    form: str
    paths: str = ""
    files: tuple[str, ...] = ()
    root: str = ""
    by_crawl: bool = True
    www: str = "folded"
    time: str = ""
    ending: str = ""
    of_domains: bool = False
    columns: Mapping[str, pa.DataType | None] | None = None
    prefix: str = ""
    inner: bool = False
    action: str = "join"
    fold: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    written_in: str = ""

    @property
    def by_url(self) -> bool:
        """Whether rows are about captures of URLs, and not about hosts."""
        return self.form == URL_KEY

    @property
    def place(self) -> str:
        """A digest of the location and the key. It identifies the stored footers and path list of the dataset."""
        return compute_input_digest(
            {"root": self.root, "paths": self.paths, "files": list(self.files), "key": self.key}
        )

    @property
    def version(self) -> str:
        """A digest of the whole definition. Another version may give other columns or rows."""
        column_types = None if self.columns is None else [(name, str(kind)) for name, kind in self.columns.items()]
        definition = [
            self.place,
            self.by_crawl,
            self.form,
            self.www,
            self.time,
            column_types,
            self.prefix,
            self.inner,
            self.action,
        ]
        digested = {"dataset": definition, "fold": sorted(self.fold.items()), "name": self.name}
        # The field is only part of the digest if it is set, so that other datasets keep their digest.
        return compute_input_digest(digested | ({"of": DOMAINS} if self.of_domains else {}))

    @property
    def label(self) -> str:
        """The name of the one column of the action ``label``."""
        return self.prefix + self.name.replace("-", "_")


def shipped_datasets() -> dict[str, Dataset]:
    """The datasets that this program contains, by name."""
    folder = files("cc_pipeline.extensions.host_facts").joinpath("ready")
    texts = {
        definition_file.name: definition_file.read_text("utf-8")
        for definition_file in folder.iterdir()
        if definition_file.name.endswith(".yaml")
    }
    datasets = [parse_dataset(texts[name], name) for name in sorted(texts)]
    return {dataset.name: dataset for dataset in datasets}


def read_definition(file: Path) -> str:
    """The text of a small YAML file that the user named. Raises ``UserInputError``."""
    try:
        with file.open("rb") as handle:
            data = handle.read(_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(f"{file} cannot be read: {error}") from error
    if len(data) > _MAX_BYTES:
        raise UserInputError(f"{file} is larger than {_MAX_BYTES:,} bytes; a dataset is described in a few lines")
    return text


def parse_dataset(text: str, name: str) -> Dataset:
    """The dataset that the YAML ``text`` of the file ``name`` defines. Raises ``UserInputError`` with
    file and field.
    """
    return _Reader(name).dataset(read_yaml(text, name))


class _Loader(yaml.SafeLoader):
    """YAML in which ``no`` and ``yes`` are words, because columns may have these names. Only true and false are
    booleans.

    Aliases are refused: a few lines of them can expand to more text than fits in memory.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(problem="aliases are not read here", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|false", re.IGNORECASE), list("tTfF"))


def read_yaml(text: str, name: str) -> object:
    """Parses the YAML ``text`` of the file ``name`` into plain values. Raises ``UserInputError``."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserInputError(f"{name} is no YAML: {' '.join(str(error).split())}") from error


_FIELDS: Final = ("name", "title", "where", "key", "columns", "prefix", "join", "action", "fold")
_WHERE: Final = ("paths", "files", "root", "crawl")
_KEY: Final = ("column", "form", "of", "www", "time", "ending")


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name

    def dataset(self, document: object) -> Dataset:
        top = self.mapping(document, "", _FIELDS)
        where = self.mapping(top.get("where"), "where", _WHERE)
        key = self.mapping(top.get("key"), "key", _KEY)
        form = self.choice(key.get("form"), "key.form", FORMS)
        paths, file_keys = self.text(where.get("paths", ""), "where.paths"), where.get("files", [])
        names = [self.text(file_key, "where.files") for file_key in self.sequence(file_keys, "where.files")]
        if bool(paths) == bool(names):
            raise self.field_error(
                "where", "needs either paths (the key of a path list) or files (keys of Parquet files)"
            )
        crawl = self.choice(where.get("crawl", "partition"), "where.crawl", ("partition", "none"))
        www = self.choice(key.get("www", "folded"), "key.www", get_args(WwwRule))
        if (form == "surt_host") != (www == "folded") and form != URL_KEY:
            raise self.field_error(
                "key.www",
                f"is {www}, but keys of the form {form} have www kept or stripped"
                if form != ("surt_host")
                else "must be folded: SURT keys have no www",
            )
        time = self.text(key.get("time", ""), "key.time")
        if (form == URL_KEY) != bool(time):
            raise self.field_error("key.time", f"names the column of fetch times, for the form {URL_KEY} and no other")
        of_domains = self.choice(key.get("of", "hosts"), "key.of", ("hosts", DOMAINS)) == DOMAINS
        if of_domains and form == URL_KEY:
            raise self.field_error("key.of", f"is {DOMAINS}, but keys of the form {URL_KEY} are of captures")
        columns = self.columns(top.get("columns", "all"))
        fold = self.mapping(top.get("fold", {}), "fold", None)
        for column, aggregate in fold.items():
            self.choice(aggregate, f"fold.{column}", FOLDS)
            if columns is not None and column not in columns:
                raise self.field_error(f"fold.{column}", "is none of the columns")
        return Dataset(
            name=self.pattern(top.get("name"), "name", _NAME, "letters, digits, - and _, in lower case"),
            key=self.required(key.get("column"), "key.column"),
            form=form,
            paths=paths,
            files=tuple(names),
            root=self.text(where.get("root", ""), "where.root"),
            by_crawl=crawl == "partition",
            www=www,
            time=time,
            ending=self.text(key.get("ending", ""), "key.ending"),
            of_domains=of_domains,
            columns=columns,
            prefix=self.pattern(top.get("prefix", ""), "prefix", _PREFIX, "letters, digits and _"),
            inner=self.choice(top.get("join", "outer"), "join", ("outer", "inner")) == "inner",
            action=self.choice(top.get("action", "join"), "action", ACTIONS),
            fold=fold,
            title=self.text(top.get("title", ""), "title"),
            written_in=self.name,
        )

    def columns(self, field_value: object) -> dict[str, pa.DataType | None] | None:
        if field_value == "all":
            return None
        if isinstance(field_value, list):
            field_value = dict.fromkeys([self.text(column_name, "columns") for column_name in field_value])
        if not isinstance(field_value, dict) or not field_value:
            raise self.field_error("columns", "is neither all, nor a list of names, nor names with their types")
        kinds_by_column: dict[str, pa.DataType | None] = {}
        for name, kind in field_value.items():
            column = self.pattern(name, "columns", _COLUMN, "a name of at most 120 letters")
            kinds_by_column[column] = (
                None if kind is None else TYPES[self.choice(kind, f"columns.{column}", tuple(TYPES))]
            )
        return kinds_by_column

    def field_error(self, field: str, reason: str) -> UserInputError:
        return UserInputError(f"{self.name}: {f'field {field} ' if field else ''}{reason}")

    def mapping(self, field_value: object, field: str, allowed_fields: tuple[str, ...] | None) -> dict[str, Any]:
        if not isinstance(field_value, dict):
            raise self.field_error(field, "must be a list of names with values" if field else "is no list of fields")
        for name in field_value:
            if not isinstance(name, str) or (allowed_fields is not None and name not in allowed_fields):
                full_name = f"{field}.{name}" if field else str(name)
                raise self.field_error(
                    full_name[:80], f"is not known; known are: {', '.join(allowed_fields or ('names',))}"
                )
        return field_value

    def sequence(self, field_value: object, field: str) -> list[object]:
        if not isinstance(field_value, list):
            raise self.field_error(field, "must be a list")
        return field_value

    def text(self, field_value: object, field: str) -> str:
        if not isinstance(field_value, str) or any(ord(letter) < 32 for letter in field_value):
            raise self.field_error(
                field, f"must be text on one line (in quotes, if need be), not {str(field_value)[:60]!r}"
            )
        return field_value

    def required(self, field_value: object, field: str) -> str:
        if field_value is None or field_value == "":
            raise self.field_error(field, "is missing")
        return self.text(field_value, field)

    def pattern(self, field_value: object, field: str, pattern: re.Pattern[str], description: str) -> str:
        text = self.text("" if field_value is None else field_value, field)
        if not pattern.fullmatch(text):
            raise self.field_error(field, f"must be {description}, not {text[:60]!r}")
        return text

    def choice(self, field_value: object, field: str, choices: tuple[str, ...]) -> str:
        if field_value not in choices or not isinstance(field_value, str):
            raise self.field_error(field, f"must be one of {', '.join(choices)}, not {str(field_value)[:60]!r}")
        return field_value
