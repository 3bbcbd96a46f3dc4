"""Interprets user input: targets as text, in files or on standard input; targets and names that a home knows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline.advice import advise
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.commoncrawl.domains import suggest_name
from cc_pipeline.errors import CcPipelineError, UserInputError
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.commoncrawl.target import Target

#: The most wrong lines that an error names.
_MAX_WRONG_LINES = 50
#: Formats of commands that print rows.
ROW_FORMATS = ("table", "json", "csv")
#: The argument for standard input in place of a file.
STANDARD_INPUT = "-"


def names_with_captures(settings: Settings) -> list[str]:
    """Returns the definitions of the targets that this home has captures of in any crawl, without sets; none if its
    tables cannot be read."""
    import duckdb

    from cc_pipeline.lake.published_file import open_home_publication

    query = (
        "SELECT DISTINCT definition FROM main.targets JOIN main.lookups ON slug = target "
        "WHERE captures > 0 AND kind <> 'set' ORDER BY ALL"
    )
    try:
        with open_home_publication(settings) as connection:
            return [name for (name,) in connection.execute(query).fetchall()]
    except (CcPipelineError, duckdb.Error):
        return []


def read_targets(texts: Sequence[str], folder: Path | None = None) -> tuple[Target, ...]:
    """Returns the targets that a person named, each once: as text, as ``@FILE``, or as ``-`` for standard input.

    A list has one target per line; comments and blank lines are skipped. ``folder`` is the folder of the files of sets
    (for a list in a file: the folder of the list), by default the current one. Raises ``UserInputError`` with the
    number of each wrong line, for a set that two lines define differently, and for domains under an unknown suffix.
    Nothing was looked up or written then.
    """
    from cc_pipeline.commoncrawl.target_text import parse_target

    base_folder = folder or Path.cwd()
    targets: dict[str, Target] = {}
    wrong: list[str] = []
    for where, text, line_folder in _read_lines(texts, base_folder):
        try:
            target = parse_target(text, line_folder)
            first_target = targets.setdefault(target.slug, target)
            if first_target.version != target.version:
                raise UserInputError(f"the set {target.value!r} is given twice, with different members; rename one")
            if not text.lower().startswith("domain:"):
                _refuse_unknown_suffix(target)
        except UserInputError as refused:
            wrong.append(f"{where}{refused}")
    if wrong:
        remainder = f"; and {len(wrong) - _MAX_WRONG_LINES:,} more" if len(wrong) > _MAX_WRONG_LINES else ""
        raise UserInputError("; ".join(wrong[:_MAX_WRONG_LINES]) + remainder)
    return tuple(targets.values())


def expand_lists(texts: Sequence[str]) -> list[str]:
    """Returns the typed texts, with ``@FILE`` and ``-`` replaced by their lines, without comments and blank lines."""
    return [text for _, text, _ in _read_lines(texts, Path.cwd())]


def _read_lines(texts: Sequence[str], base_folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yields the origin of each text (empty for typed text), the text, and the folder of its files."""
    from cc_pipeline.commoncrawl.target_text import content_lines

    for text in texts:
        if not names_list(text):
            yield "", text, base_folder
            continue
        place = "standard input" if text == STANDARD_INPUT else text[1:]
        list_folder = base_folder if text == STANDARD_INPUT else Path(place).expanduser().absolute().parent
        number = 0
        for number, line in content_lines(read_text_argument(text)):
            yield f"{place}, line {number}: ", line, list_folder
        if not number:
            raise UserInputError(f"{place} names no target; write one a line")


def names_list(text: str) -> bool:
    """Whether ``text`` stands for the lines of a file or of standard input."""
    return text == STANDARD_INPUT or text.startswith("@")


def _refuse_unknown_suffix(target: Target) -> None:
    """Raises ``UserInputError`` for a domain whose top-level domain is unknown, such as ``example.og``."""
    from cc_pipeline.commoncrawl.domains import has_known_suffix

    if target.kind != "domain" or target.place is None or has_known_suffix(target.place.host):
        return
    ending = target.place.host.rpartition(".")[2]
    raise UserInputError(
        f"{suggest_name(target.value, ())}: .{ending} is no known top-level domain. If the name is right, write "
        f"domain:{target.value}"
    )


def read_text_argument(argument: str) -> str:
    """Returns the text of a file for ``@FILE``, of standard input for ``-``, else ``argument`` itself.

    Raises ``UserInputError`` if it cannot be read.
    """
    if argument == STANDARD_INPUT:
        return _decode(sys.stdin.buffer.read(), "standard input")
    if not argument.startswith("@"):
        return argument
    path = Path(argument[1:]).expanduser()
    try:
        return _decode(path.read_bytes(), str(path))
    except OSError as error:
        raise UserInputError(f"{argument} names a file that cannot be read: {error.strerror or error}") from None


def _decode(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserInputError(f"{place}, line {line} is not UTF-8 text; save it as UTF-8") from None


def resolve_home(
    connection: DuckDBPyConnection, settings: Settings, targets: Sequence[str], crawls: Sequence[str]
) -> tuple[list[Target], list[str]]:
    """Returns the targets and the ids of the crawls of this home that a person named; none of either means all.

    Crawls are ``newest``, ``all``, ids, years or ranges. Raises ``UserInputError`` for a target or a crawl that the
    published file does not have: a file without its rows would look like an answer.
    """
    chosen = chosen_targets(targets)
    _refuse_unknown(connection, settings, chosen, targets)
    query = "SELECT crawl FROM main.lookups UNION SELECT crawl FROM main.source_files"
    stored = [crawl for (crawl,) in connection.execute(query).fetchall()] if crawls else []
    return chosen, resolve_home_crawls(crawls, stored)


def resolve_home_crawls(texts: Sequence[str], stored: Iterable[str]) -> list[str]:
    """Returns the ids among ``stored``, those of this home, that ``texts`` name, newest first for each. Raises
    ``UserInputError`` for a text that names none of them."""
    from cc_pipeline.commoncrawl.crawls import age, crawl_of, select

    crawls = sorted(map(crawl_of, stored), key=age, reverse=True)
    return list(dict.fromkeys(crawl.id for text in texts for crawl in select(text, crawls, "this home")))


def chosen_targets(texts: Sequence[str]) -> list[Target]:
    """Returns the targets that ``texts`` name; lists (``@FILE``, ``-``) count by their lines. For a set its name is
    enough: its members are in the home."""
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.commoncrawl.target_text import parse_target, set_slug, set_slug_in

    targets: dict[str, Target] = {}
    for text in expand_lists(texts):
        slug = set_slug_in(text)
        target = Target("set", slug.removeprefix(set_slug("")), slug) if slug else parse_target(text, Path.cwd())
        targets[target.slug] = target
    return list(targets.values())


def _refuse_unknown(
    connection: DuckDBPyConnection, settings: Settings, targets: Sequence[Target], texts: Sequence[str]
) -> None:
    """Raises ``UserInputError`` for a target that was not run in this home, since a file without its rows would look
    like an answer. The message names a similar target that has captures.

    Missing targets of a list file among ``texts`` are only counted. If all are missing, it is an error.
    """
    from cc_pipeline.commoncrawl.target_text import to_run

    slugs = [target.slug for target in targets]
    query = (
        "SELECT slug FROM main.targets WHERE list_contains($1, slug) UNION "
        "SELECT target FROM main.lookups WHERE list_contains($1, target)"
    )
    known_slugs = {slug for (slug,) in connection.execute(query, [slugs]).fetchall()} if slugs else set()
    unknown_targets = [target for target in targets if target.slug not in known_slugs]
    singly = {target.slug for target in chosen_targets([text for text in texts if not names_list(text)])}
    refused = [target for target in unknown_targets if target.slug in singly] if known_slugs else unknown_targets
    refuse_unnamed_captures(settings, refused)
    for target in refused:
        label = f"set:{target.value}" if target.kind == "set" else target.definition
        raise UserInputError(
            f"the published tables do not have {suggest_name(label, names_with_captures(settings))}: it was not run in "
            "this home, or no crawl that it was run for has captures of it. To run it: "
            f"{advise('run', to_run(target.slug, label), crawl='newest')}"
        )
    if unknown_targets:
        get_reporter().notice(
            f"this home has no captures of {len(unknown_targets):,} of {len(targets):,} targets, such as "
            f"{unknown_targets[0].definition}: these were not run, or no crawl that was run has them"
        )


def refuse_unnamed_captures(settings: Settings, targets: Iterable[Target]) -> None:
    """Raises ``UserInputError`` for a target ``captures:NAME`` if nobody added captures under this name. Makes no
    home."""
    from cc_pipeline.commoncrawl.target import GIVEN_KIND
    from cc_pipeline.home import read_note
    from cc_pipeline.lake.target_definitions import plan_versions
    from cc_pipeline.workspace.workspace import open_lake, open_workspace

    if named_targets := [target for target in targets if target.kind == GIVEN_KIND]:
        with open_workspace(settings) as workspace:
            # the lake of a workspace claims the home
            lake = open_lake(settings) if read_note(settings.home) is None else workspace.lake
            plan_versions(lake, named_targets)


def check_format(output: str, allowed: Sequence[str] = ROW_FORMATS) -> str:
    """Returns ``output`` if it is one of ``allowed``. Raises ``UserInputError``."""
    if output not in allowed:
        raise UserInputError(f"there is no format {output!r}; choose one of {', '.join(allowed)}")
    return output
