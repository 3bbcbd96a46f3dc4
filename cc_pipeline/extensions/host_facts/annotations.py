"""YAML files of cc-index-annotations: a join becomes a dataset, an action becomes a filter with columns and an order.

The fields are those of cc-index-annotations. Text that it would insert into SQL unchanged is parsed and quoted here.
docs/extensions/host_facts.md lists the differences.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import scheme_of
from cc_pipeline.commoncrawl.expressions import Filter, parse_filter
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.host_facts.datasets import DOMAINS
from cc_pipeline.extensions.host_facts.host_keys import host_key

_PLACES: Final = ("local", "web_prefix", "s3_prefix", "source")
_JOIN_FIELDS: Final = ("table", "limits", "right_columns", "join_columns", "join_type", "prefix")
_ACTION_FIELDS: Final = ("sql", "columns", "where", "limits", "argv")
_MAX_FILES: Final = 100_000
#: The columns of the left side that a join can use, and the key of a dataset for each.
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "surt_host_name": {"form": "surt_host"},
    "url_host_name": {"form": "host", "www": "kept"},
    "url_host_registered_domain": {"form": "host", "of": DOMAINS, "www": "kept"},
    "url_surtkey": {"form": "url_key"},
}
_SQL: Final = re.compile(
    r"SELECT \{columns\} FROM joined WHERE \{where\}(?: ORDER BY (?P<order>[\w\", ]+?))?"
    r"(?: LIMIT (?P<limit>\d{1,9}))?;?",
    re.IGNORECASE,
)
_ORDER_TERM: Final = re.compile(r'"?(?P<name>\w+)"?(?: (?P<way>ASC|DESC))?', re.IGNORECASE)
_PLAIN_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{(\w*)\}|'")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table that must be converted to Parquet first: its location ``where``, its ``format`` (``csv`` or ``json``),
    DuckDB's ``options`` for reading it, and the required columns.
    """

    where: str
    format: str
    options: Mapping[str, Any]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinDefinition:
    """A join file: ``definition`` is the definition of a dataset (without a name), ``source_table`` a table that must
    be converted to become the dataset's file."""

    definition: dict[str, Any]
    source_table: SourceTable | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """An action file after its arguments were inserted: the filter, the columns (empty: all), the order (a column, and
    whether it is descending), and the maximum number of rows.
    """

    where: Filter
    columns: tuple[str, ...]
    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None


def read_join(document: object, file: Path) -> JoinDefinition | None:
    """The dataset of a join file's content; ``None`` for a file of another kind. Relative paths in it start at
    ``file``'s folder, or at the working folder.

    Raises ``UserInputError`` that names the file and the field.
    """
    return _Join(document, file).read() if isinstance(document, dict) and "table" in document else None


class _Join:
    def __init__(self, document: Mapping[str, Any], file: Path) -> None:
        self.document = document
        self.file = file

    def field_error(self, field: str, reason: str) -> UserInputError:
        return UserInputError(f"{self.file}: field {field} {reason}")

    def read(self) -> JoinDefinition:
        for name in self.document:
            if name not in _JOIN_FIELDS:
                raise self.field_error(str(name)[:60], f"is not known; known are: {', '.join(_JOIN_FIELDS)}")
        key, right, by_crawl, time = self._key()
        columns = self._names(self.document.get("right_columns"), "right_columns")
        kind = str(self.document.get("join_type", "OUTER")).upper()
        if kind not in ("OUTER", "INNER"):
            raise self.field_error("join_type", "is neither OUTER nor INNER")
        where, unpacked = self._where((right, *columns))
        described: dict[str, Any] = {
            "where": where | {"crawl": "partition" if by_crawl else "none"},
            "key": {"column": right, **_KEYS[key]} | ({"time": time} if time else {}),
            "columns": columns,
            "prefix": self.document.get("prefix") or "",
            "join": kind.lower(),
        }
        return JoinDefinition(described, unpacked)

    def _key(self) -> tuple[str, str, bool, str]:
        """Returns the key column of the left side, its name on the right side, whether the crawl is part of the key,
        and the column of times.
        """
        join_columns = self.document.get("join_columns")
        if isinstance(join_columns, dict):
            sides = [self._names(join_columns.get(side), f"join_columns.{side}") for side in ("left", "right")]
            if len(sides[0]) != len(sides[1]) or set(join_columns) != {"left", "right"}:
                raise self.field_error("join_columns", "must have as many columns left as right")
            pairs = dict(zip(*sides, strict=True))
        else:
            pairs = {name: name for name in self._names(join_columns, "join_columns")}
        by_crawl = pairs.pop("crawl", None)
        if by_crawl not in (None, "crawl"):
            raise self.field_error(
                "join_columns", "pairs crawl with another column; here the crawl is in the files' paths"
            )
        time = pairs.pop("fetch_time", "")
        [key] = [name for name in pairs if name in _KEYS][:1] or [""]
        if len(pairs) != 1 or not key or (key == "url_surtkey") != bool(time):
            key_names = ", ".join(_KEYS)
            raise self.field_error(
                "join_columns", f"must be one of {key_names} (url_surtkey with fetch_time), perhaps with crawl"
            )
        return key, pairs[key], by_crawl is not None, time

    def _where(self, columns: Sequence[str]) -> tuple[dict[str, Any], SourceTable | None]:
        table = self.document.get("table")
        if not isinstance(table, dict) or len(location_fields := [name for name in _PLACES if name in table]) != 1:
            raise self.field_error("table", f"must have exactly one of {', '.join(_PLACES)}")
        if unknown_fields := set(table) - {*_PLACES, "paths"}:
            raise self.field_error("table", f"has unknown fields: {', '.join(map(str, unknown_fields))}")
        place = table[location_fields[0]]
        if location_fields[0] == "source":
            return self._source(place)
        if not isinstance(place, str) or not place:
            raise self.field_error(f"table.{location_fields[0]}", "must be text")
        if "paths" in table:
            files = self._read_path_list(self._resolve_path(table["paths"], "table.paths"))
        elif location_fields[0] == "local":
            root = self._resolve_path(place, "table.local")
            files = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.parquet"))]
        else:
            raise self.field_error("table.paths", "is missing: a place on the web cannot be listed")
        root_text = (
            str(self._resolve_path(place, "table.local")) if location_fields[0] == "local" else place.rstrip("/")
        )
        return {"root": root_text, "files": self._apply_limits(files)}, None

    def _source(self, source: object) -> tuple[dict[str, Any], SourceTable | None]:
        field = "table.source"
        if not isinstance(source, dict) or ("url" in source) == ("urls" in source):
            raise self.field_error(field, "must have either url or urls")
        if unknown_fields := set(source) - {"url", "urls", "format", "options"}:
            raise self.field_error(field, f"has unknown fields: {', '.join(map(str, unknown_fields))}")
        urls = [source["url"]] if "url" in source else self._names(source["urls"], f"{field}.urls")
        places = [url if scheme_of(url) else str(self._resolve_path(url, f"{field}.url")) for url in urls]
        kind = str(source.get("format") or _format_of(places[0]))
        if kind == "parquet":
            roots = {place.rpartition("/")[0] for place in places}
            if len(roots) != 1 or any(sign in place for place in places for sign in "*?["):
                raise self.field_error(field, "must name Parquet files of one folder, each by its name")
            return {"root": roots.pop(), "files": [place.rpartition("/")[2] for place in places]}, None
        if kind not in ("csv", "json") or len(places) != 1:
            raise self.field_error(field, "must be Parquet files, or one csv or json file")
        options = source.get("options") or {}
        if not isinstance(options, dict):
            raise self.field_error(f"{field}.options", "must be names with values")
        columns = (self._key()[1], *self._names(self.document.get("right_columns"), "right_columns"))
        return {"files": ["-"]}, SourceTable(places[0], kind, options, tuple(dict.fromkeys(columns)))

    def _read_path_list(self, path: Path) -> list[str]:
        try:
            with (
                gzip.open(path, "rt", encoding="utf-8")
                if path.suffix == ".gz"
                else path.open(encoding="utf-8") as lines
            ):
                paths = [line.strip() for _, line in zip(range(_MAX_FILES + 1), lines, strict=False)]
        except (OSError, UnicodeDecodeError, EOFError) as error:
            raise self.field_error("table.paths", f"names {path}, which cannot be read: {error}") from error
        return [line for line in paths if line]

    def _apply_limits(self, files: list[str]) -> list[str]:
        limits = self.document.get("limits") or {}
        if not isinstance(limits, dict) or set(limits) - {"grep", "count"}:
            raise self.field_error("limits", "may have grep and count")
        grep_texts, count = limits.get("grep"), limits.get("count")
        if grep_texts is not None:
            texts = self._names(grep_texts, "limits.grep")
            files = [path for path in files if any(text in path for text in texts)]
        if count is not None:
            if not isinstance(count, int) or count < 1:
                raise self.field_error("limits.count", "must be a number of files")
            files = files[:count]
        if not files or len(files) > _MAX_FILES:
            raise self.field_error("table", f"comes to {len(files):,} files; 1 to {_MAX_FILES:,} can be joined")
        return files

    def _resolve_path(self, path_text: object, field: str) -> Path:
        if not isinstance(path_text, str) or not path_text:
            raise self.field_error(field, "must be text")
        nearby_path = (self.file.parent / path_text).resolve()
        return nearby_path if nearby_path.exists() or not Path(path_text).exists() else Path(path_text).resolve()

    def _names(self, names_or_text: object, field: str) -> list[str]:
        names = [names_or_text] if isinstance(names_or_text, str) else names_or_text
        if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            raise self.field_error(field, "must be a list of names")
        return names


def _format_of(place: str) -> str:
    name = urlsplit(place).path if scheme_of(place) else place
    if name.endswith((".csv", ".tsv", ".csv.gz")):
        return "csv"
    return "json" if name.endswith((".json", ".jsonl", ".ndjson")) else "parquet"


def read_action(document: object, file: str, arguments: Sequence[str] = ()) -> Action:
    """The action of an action file's content, with ``arguments`` inserted. An argument inside quotes is escaped.

    Raises ``UserInputError`` that names the file and the field, for SQL that is not a filter with an order, and for an
    argument outside quotes that is not a number.
    """
    if not isinstance(document, dict):
        raise UserInputError(f'{file} must be a YAML mapping, one "name: value" per line')
    for name in document:
        if name not in _ACTION_FIELDS:
            raise UserInputError(f"{file}: field {str(name)[:60]} is not known; known are: {', '.join(_ACTION_FIELDS)}")
    for name in ("sql", "columns", "where"):
        if not isinstance(document.get(name), str):
            raise UserInputError(f"{file}: field {name} must be text")
    for name in ("limits", "argv"):
        if not isinstance(document.get(name) or {}, dict):
            raise UserInputError(f"{file}: field {name} must be names with values")
    form = _SQL.fullmatch(" ".join(document["sql"].split()))
    if form is None:
        raise UserInputError(
            f"{file}: field sql must be SELECT {{columns}} FROM joined WHERE {{where}}, perhaps "
            "with ORDER BY columns and LIMIT. For other questions: cc-pipeline sql"
        )
    columns = (
        []
        if document["columns"].strip() == "*"
        else [name.strip().strip('"') for name in document["columns"].split(",")]
    )
    if not all(re.fullmatch(r"\w+", name) for name in columns):
        raise UserInputError(f"{file}: field columns must be * or names of columns with commas between them")
    order = []
    for part in (form["order"] or "").split(",") if form["order"] else []:
        order_term = _ORDER_TERM.fullmatch(part.strip())
        if order_term is None:
            raise UserInputError(f"{file}: field sql is ordered by {part.strip()!r}, which is no column")
        order.append((order_term["name"], (order_term["way"] or "").upper() == "DESC"))
    count = (document.get("limits") or {}).get("count", form["limit"])
    if count is not None and not re.fullmatch(r"\d{1,9}", str(count)):
        raise UserInputError(f"{file}: field limits.count must be a number of rows")
    text = _fill_placeholders(document["where"], file, _placeholder_values(document, file, arguments))
    return Action(parse_filter(text), tuple(columns), tuple(order), None if count is None else int(count))


def _placeholder_values(document: Mapping[str, Any], file: str, arguments: Sequence[str]) -> dict[str, str]:
    """The text of each placeholder. ``and_tld`` is a condition that this program generates."""
    values = {f"arg{number}": text for number, text in enumerate(arguments, 1)}
    values |= {"and_tld": "", **({"argv": arguments[0]} if arguments else {})}
    if (document.get("argv") or {}).get("surt_host_name"):
        if not arguments:
            raise UserInputError(f"{file}: needs an argument, a host such as commoncrawl.org")
        host = arguments[0].strip()
        key = host_key(host.lstrip("."))
        if key is None:
            raise UserInputError(
                f"{file}: the action needs a host such as commoncrawl.org, but its argument is {host[:80]!r}"
            )
        values["argv"] = key.surt + ("," if host.startswith(".") else "")
        values["and_tld"] = f" AND url_host_tld = '{_escape_quotes(key.surt.split(',')[0])}'"
    return values


def _fill_placeholders(text: str, file: str, values: Mapping[str, str]) -> str:
    is_in_quotes = False

    def fill(match: re.Match[str]) -> str:
        nonlocal is_in_quotes
        token = match[0]
        if token == "'":
            is_in_quotes = not is_in_quotes
            return token
        if token in ("{{", "}}"):
            return token[0]
        name = match[1]
        if name not in values:
            raise UserInputError(f"{file}: field where has {{{name}}}, for which no argument was given")
        value = values[name]
        if is_in_quotes:
            return _escape_quotes(value)
        if name != "and_tld" and not _PLAIN_NUMBER.fullmatch(value):
            raise UserInputError(f"{file}: field where has {{{name}}} outside quotes: only a number can stand there")
        return value

    return _PLACEHOLDER.sub(fill, text)


def _escape_quotes(value: str) -> str:
    return value.replace("'", "''")
