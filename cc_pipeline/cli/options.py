"""Options that many commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.errors import UserInputError

#: What stands for standard input where a file could be named.
STANDARD_INPUT = "-"
_NO_LIMIT = 1 << 62
Source = Annotated[
    str | None,
    typer.Option("--source", help="Root of a Common Crawl bucket: a folder, https:// or s3://.", show_default=False),
]
Home = Annotated[
    str | None, typer.Option("--home", help="Folder of all local state (default: data).", show_default=False)
]
Crawls = Annotated[
    list[str], typer.Option("--crawl", "-c", help="A crawl id, e.g. CC-MAIN-2024-22; may be repeated. 'newest' works.")
]
Targets = Annotated[
    list[str],
    typer.Option(
        "--domain",
        "-d",
        help="A domain or another target (host:, url:, prefix:, tld:, suffix:, rev:, set:); may be repeated.",
    ),
]
Subsets = Annotated[
    list[str] | None,
    typer.Option("--subset", help="warc (default), crawldiagnostics, robotstxt; may be repeated.", show_default=False),
]
Via = Annotated[
    str | None, typer.Option("--via", help="Index to search: auto, parquet, btree or zipnum.", show_default=False)
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps", help="Go without index files that cannot be read. What they hold is missing, and marked so."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Fetch whatever it costs: above CC_PIPELINE_MAX_BYTES and _MAX_REQUESTS too.")
]


def at_any_price(yes: bool) -> int | None:
    """The limit of a fetch (bytes or requests) that the flag means; ``None`` leaves it to the environment."""
    return _NO_LIMIT if yes else None


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
