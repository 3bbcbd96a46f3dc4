"""Options that several commands share, and the settings that they stand for."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Final

import typer

from cc_pipeline.cli.command import SharedOption
from cc_pipeline.index.locators import AUTO, KINDS, refuse_unknown_kind

_NO_LIMIT = 1 << 62
_CRAWL = typer.Option(
    "--crawl",
    "-c",
    help="newest, all, a year, a range (2018..2024, 2012..), or an id (CC-MAIN-2024-22); may be repeated.",
)
Crawls = Annotated[list[str], _CRAWL]
MaybeCrawls = Annotated[list[str] | None, _CRAWL]
_TARGET = typer.Argument(
    metavar="TARGET…",
    help="Domains or other targets (host:, url:, prefix:, tld:, suffix:, rev:, set:), @FILE with "
    "one per line, or - for standard input.",
)
Targets = Annotated[list[str], _TARGET]
MaybeTargets = Annotated[list[str] | None, _TARGET]
Creator = Annotated[
    str, typer.Option("--creator", help="Creator of the export: the name of a person or an organization.")
]
Address = Annotated[str, typer.Option("--url", help="Address at which the export will be described or found.")]
#: Of every command with rows.
FORMAT: Final = SharedOption(
    "row_format",
    Annotated[str, typer.Option("--format", help="table, json (a line for each row) or csv.")],
    default="table",
)
HOME: Final = SharedOption(
    "home",
    Annotated[str | None, typer.Option("--home", help="Folder of all local state (default: data).")],
    lambda folder: {"home": folder},
)
SOURCE: Final = SharedOption(
    "source",
    Annotated[
        str | None,
        typer.Option(
            "--source",
            help="Root of a Common Crawl bucket: a folder, https:// or s3://; several are separated by a "
            "comma and a space.",
        ),
    ],
    lambda root: {"source": root},
)
SUBSET: Final = SharedOption(
    "subset",
    Annotated[
        list[str] | None, typer.Option("--subset", help="warc (default), crawldiagnostics, robotstxt; may be repeated.")
    ],
    lambda subsets: {"subsets": tuple(subsets) if subsets else None},
)


def _check_index_kind(kind: str | None) -> str | None:
    if kind is not None:
        refuse_unknown_kind(kind)
    return kind


INDEX: Final = SharedOption(
    "index",
    Annotated[
        str | None,
        typer.Option("--index", callback=_check_index_kind, help=f"Index to search: {', '.join((AUTO, *KINDS))}."),
    ],
    lambda kind: {"index": kind},
)
ALLOW_GAPS: Final = SharedOption(
    "allow_gaps",
    Annotated[
        bool,
        typer.Option(
            "--allow-gaps",
            help="Accept gaps: index files that could not be read. Their captures are missing, and the result is "
            "marked incomplete.",
        ),
    ],
    lambda is_allowed: {"max_index_gaps": 1.0 if is_allowed else None},
    default=False,
)


def _wait_seconds(wait: bool | None) -> float | None:
    """Returns how many seconds a command waits for a source that refuses; ``None`` keeps the setting. Without a flag or
    a variable, a command at a terminal waits a week."""
    from cc_pipeline.settings.reading import environment_value
    from cc_pipeline.transport.rate_limiter import WAIT_ATTENDED

    if wait is not None:
        return math.inf if wait else 0.0
    attended = sys.stdin.isatty() and sys.stderr.isatty() and environment_value("wait") is None
    return WAIT_ATTENDED if attended else None


WAIT: Final = SharedOption(
    "wait",
    Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Whether to wait for a source that refuses (default: 7 days at a terminal, else 6 minutes).",
        ),
    ],
    lambda wait: {"wait": _wait_seconds(wait)},
)


def _lift_cost_limits(yes: bool) -> dict[str, Any]:
    return {"max_bytes": _NO_LIMIT, "max_requests": _NO_LIMIT} if yes else {}


YES: Final = SharedOption(
    "yes",
    Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Do not ask: fetch above CC_PIPELINE_MAX_BYTES and _MAX_REQUESTS, parse again after a changed "
            "setting.",
        ),
    ],
    _lift_cost_limits,
    default=False,
)
#: Of commands that read a home, and of those that also ask its source.
LOCAL: Final = (HOME,)
REMOTE: Final = (SOURCE, HOME)
