"""Options that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
