"""Options that several commands share, and the settings that flags stand for."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from cc_pipeline.index.locators import AUTO, KINDS, refuse_unknown_kind

_NO_LIMIT = 1 << 62
Source = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Root of a Common Crawl bucket: a folder, https:// or s3://; several are separated by a "
        "comma and a space.",
    ),
]
Home = Annotated[str | None, typer.Option("--home", help="Folder of all local state (default: data).")]
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
Subsets = Annotated[
    list[str] | None, typer.Option("--subset", help="warc (default), crawldiagnostics, robotstxt; may be repeated.")
]


def _check_index_kind(via: str | None) -> str | None:
    if via is not None:
        refuse_unknown_kind(via)
    return via


Via = Annotated[
    str | None,
    typer.Option("--index", callback=_check_index_kind, help=f"Index to search: {', '.join((AUTO, *KINDS))}."),
]
AllowGaps = Annotated[
    bool,
    typer.Option(
        "--allow-gaps",
        help="Accept gaps: index files that could not be read. Their captures are missing, and the result is marked "
        "incomplete.",
    ),
]
AcceptRemovals = Annotated[
    bool,
    typer.Option(
        "--accept-removals", help="Remove captures that the index no longer lists, with their records and pages."
    ),
]
Wait = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Whether to wait for a source that refuses (default: 7 days at a terminal, else 6 minutes).",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Do not ask: fetch above CC_PIPELINE_MAX_BYTES and _MAX_REQUESTS, parse again after a changed setting.",
    ),
]


def cost_limit(yes: bool) -> int | None:
    """Returns the limit of a fetch (bytes or requests) for ``--yes``; ``None`` keeps that of the environment."""
    return _NO_LIMIT if yes else None


def wait_seconds(wait: bool | None) -> float | None:
    """Returns how many seconds a command waits for a source that refuses; ``None`` keeps the setting. Without a flag or
    a variable, a command at a terminal waits a week."""
    from cc_pipeline.settings.reading import environment_value
    from cc_pipeline.transport.rate_limiter import WAIT_ATTENDED

    if wait is not None:
        return math.inf if wait else 0.0
    attended = sys.stdin.isatty() and sys.stderr.isatty() and environment_value("wait") is None
    return WAIT_ATTENDED if attended else None


def index_gap_limit(allow_gaps: bool) -> float | None:
    """Returns the setting ``max_index_gaps`` for the flag; ``None`` keeps that of the environment."""
    return 1.0 if allow_gaps else None


Creator = Annotated[
    str, typer.Option("--creator", help="Creator of the export: the name of a person or an organization.")
]
Address = Annotated[str, typer.Option("--url", help="Address at which the export will be described or found.")]
