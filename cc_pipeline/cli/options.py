"""Options that many commands share, and what a person meant by their words: texts, files of them, names mistyped."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.errors import CcPipelineError, UserInputError
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target

#: Endings that are tried in the place of one that does not exist, the commonest first.
_ENDINGS = ("com", "org", "net", "edu", "gov", "info", "de", "uk", "fr", "nl", "ru", "jp", "br", "it", "pl", "au", "ca")
#: Names of the home that are compared; each costs some microseconds.
_MOST_COMPARED = 20_000
_ALIKE = 0.85
_ENDINGS_ALIKE = 0.6

#: Wrong lines that an error names.
_MOST_WRONG = 50
#: Targets without captures of which it is said what may have been meant.
_MOST_GUESSED = 5
#: What stands for standard input where a file could be named.
STANDARD_INPUT = "-"
_NO_LIMIT = 1 << 62
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Root of a Common Crawl bucket: a folder, https:// or s3://; several: a comma and a space between them.",
    ),
]
Home = Annotated[str | None, typer.Option("--home", help="Folder of all local state (default: data).")]
Crawls = Annotated[
    list[str], typer.Option("--crawl", "-c", help="A crawl id, e.g. CC-MAIN-2024-22; may be repeated. 'newest' works.")
]
_DOMAIN = typer.Option(
    "--domain",
    "-d",
    help="A domain or another target (host:, url:, prefix:, tld:, suffix:, rev:, set:), @FILE with one a line, or - "
    "for standard input; may be repeated.",
)
Targets = Annotated[list[str], _DOMAIN]
MaybeTargets = Annotated[list[str] | None, _DOMAIN]
Subsets = Annotated[
    list[str] | None, typer.Option("--subset", help="warc (default), crawldiagnostics, robotstxt; may be repeated.")
]
Via = Annotated[str | None, typer.Option("--via", help="Index to search: auto, parquet, btree or zipnum.")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="Where records are fetched and pages parsed: local, or spark (docs/scale.md)."),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps", help="Go without index files that cannot be read. What they hold is missing, and marked so."
    ),
]
AcceptLosses = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-losses", help="Captures that the source has lost, by the number that a run says of them. Repeatable."
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="Only hosts whose facts match, as in 'prank10 > 5 and fetch_200 > 100' (docs/facts.md).",
    ),
]
Wait = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Whether to wait for a source that refuses (default: at a terminal; elsewhere two minutes).",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Ask nothing: fetch whatever it costs (above CC_PIPELINE_MAX_BYTES and _MAX_REQUESTS), parse again "
        "what a changed setting asks for.",
    ),
]


def meant(host: str, known: Iterable[str]) -> str | None:
    """The name of ``known`` that is most like ``host``, else ``host`` with a common ending that its own is like."""
    from cc_pipeline.commoncrawl.domains import has_known_suffix

    near = get_close_matches(host, [name for name in known if name != host], 1, _ALIKE)
    if near:
        return near[0]
    stem, _, ending = host.rpartition(".")
    endings = [] if has_known_suffix(host) else get_close_matches(ending, _ENDINGS, 1, _ENDINGS_ALIKE)
    return f"{stem}.{endings[0]}" if stem and endings else None


def found_before(settings: Settings, slugs: Sequence[str]) -> frozenset[str]:
    """Those of the targets that this home has captures of in any crawl: no typos, and not to be forgotten."""
    import duckdb

    from cc_pipeline.lake.reading import open_settled

    if not slugs:
        return frozenset()
    try:
        with open_settled(settings) as connection:
            asked = "SELECT DISTINCT target FROM lookups WHERE captures > 0 AND target IN (SELECT unnest(?))"
            return frozenset(row[0] for row in connection.execute(asked, [list(slugs)]).fetchall())
    except (CcPipelineError, duckdb.Error):
        return frozenset()


@lru_cache(maxsize=1)
def known_names(settings: Settings) -> tuple[str, ...]:
    """Names of the home's watch list and targets, and domains it has pages of; what cannot be read is left out."""
    import duckdb

    from cc_pipeline.automation import watch_list
    from cc_pipeline.lake.reading import open_settled

    names: dict[str, None] = {}
    try:
        for target in watch_list.read(settings.watch_list_path):
            names.update(dict.fromkeys(one.value for one in (target.members or (target,))))
        with open_settled(settings) as connection:
            asked = (
                "SELECT slug FROM targets WHERE kind = 'domain' AND slug = definition UNION "
                "SELECT DISTINCT domain FROM page_metadata LIMIT ?"
            )
            names.update((row[0], None) for row in connection.execute(asked, [_MOST_COMPARED]).fetchall())
    except (CcPipelineError, duckdb.Error):
        pass
    return tuple(name for name in names if name)[:_MOST_COMPARED]


def guesses(settings: Settings, nowhere: Sequence[Target], beside: Sequence[str] = ()) -> Iterator[tuple[Target, str]]:
    """The first of the targets that were found ``nowhere`` with the known name that each may be a mistyping of, where
    there is one. ``beside`` are names that were found."""
    mistyped = {name for target in nowhere for name in (target.value, target.slug)}
    known = [name for name in (*beside, *known_names(settings)) if name not in mistyped]
    for target in nowhere[:_MOST_GUESSED]:
        if target.place is not None and (guess := meant(target.place.host, known)) is not None:
            yield target, guess


def read_targets(given: Sequence[str], settings: Settings, folder: Path | None = None) -> tuple[Target, ...]:
    """The targets that a person named, each once: as text, as ``@FILE``, or as ``-`` for standard input.

    A list has a target a line; comments and blank lines are skipped. ``folder`` is where the files of sets lie (for a
    list in a file: beside it), by default where the command runs. Raises ``UserInputError`` naming each wrong line with
    its number, for a set that two lines define differently, and for domains under a suffix that nobody sells; nothing
    was looked up or written then.
    """
    from cc_pipeline.commoncrawl.target_text import parse_target

    here = folder or Path.cwd()
    found: dict[str, Target] = {}
    wrong: list[str] = []
    for where, text, beside in _each_meant(given, here):
        try:
            target = parse_target(text, beside)
            other = found.setdefault(target.slug, target)
            if other.version != target.version:
                raise UserInputError(f"the set {target.value!r} is defined twice, with other members")
            if not text.lower().startswith("domain:"):
                _refuse_unknown_suffix(target, settings)
        except UserInputError as refused:
            wrong.append(f"{where}{refused}")
    if wrong:
        more = f"; and {len(wrong) - _MOST_WRONG:,} more" if len(wrong) > _MOST_WRONG else ""
        raise UserInputError("; ".join(wrong[:_MOST_WRONG]) + more)
    return tuple(found.values())


def lines_meant(given: Sequence[str]) -> list[str]:
    """What a person typed, with the lines of ``@FILE`` and ``-`` in their place; comments and blank lines left out."""
    return [text for _, text, _ in _each_meant(given, Path.cwd())]


def _each_meant(given: Sequence[str], here: Path) -> Iterator[tuple[str, str, Path]]:
    """Where each text stands (nothing for what was typed), the text, and the folder of its files."""
    from cc_pipeline.commoncrawl.target_text import content_lines

    for text in given:
        if text != STANDARD_INPUT and not text.startswith("@"):
            yield "", text, here
            continue
        place = "standard input" if text == STANDARD_INPUT else text[1:]
        beside = here if text == STANDARD_INPUT else Path(place).expanduser().absolute().parent
        number = 0
        for number, line in content_lines(text_meant(text)):
            yield f"{place}, line {number}: ", line, beside
        if not number:
            raise UserInputError(f"{place} names no target; write one a line")


def _refuse_unknown_suffix(target: Target, settings: Settings) -> None:
    """Raises ``UserInputError`` for a domain under a suffix that nobody sells, such as ``example.og``."""
    from cc_pipeline.commoncrawl.domains import has_known_suffix

    if target.kind != "domain" or target.place is None or has_known_suffix(target.place.host):
        return
    guess = meant(target.place.host, known_names(settings))
    asked = f"; did you mean {guess}?" if guess else "."
    ending = target.place.host.rpartition(".")[2]
    raise UserInputError(
        f"{target.value}: no registry is known for .{ending}{asked} If it is right, write domain:{target.value}"
    )


def at_any_price(yes: bool) -> int | None:
    """The limit of a fetch (bytes or requests) that the flag means; ``None`` leaves it to the environment."""
    return _NO_LIMIT if yes else None


def patience(wait: bool | None) -> float | None:
    """The seconds that the flag has a command wait for a source that refuses: without it, at a terminal until somebody
    stops it, unless the environment says otherwise; ``None`` leaves it to that."""
    from cc_pipeline.settings.reading import in_environment
    from cc_pipeline.transport.refusals import WAIT_ATTENDED

    if wait is not None:
        return math.inf if wait else 0.0
    attended = sys.stdin.isatty() and sys.stderr.isatty() and in_environment("wait") is None
    return WAIT_ATTENDED if attended else None


def most_gaps(allow_gaps: bool) -> float | None:
    """The setting ``max_index_gaps`` that the flag means; ``None`` leaves it to the environment."""
    return 1.0 if allow_gaps else None


def text_meant(given: str) -> str:
    """The text that ``given`` means: that of a file for ``@FILE``, of standard input for ``-``, else itself.

    Raises ``UserInputError`` where it cannot be read.
    """
    if given == STANDARD_INPUT:
        return _decoded(sys.stdin.buffer.read(), "standard input")
    if not given.startswith("@"):
        return given
    path = Path(given[1:]).expanduser()
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise UserInputError(f"{given} names a file that cannot be read: {error.strerror or error}") from None


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserInputError(f"{place}, line {line} is not UTF-8 text; save it as UTF-8") from None
