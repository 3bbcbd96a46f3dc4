"""Opens lookups for commands: settings, targets and crawls from command-line arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cc_pipeline.api.lookups import LookupRequest, open_lookup
from cc_pipeline.api.user_input import read_targets
from cc_pipeline.cli.options import index_gap_limit, wait_seconds
from cc_pipeline.settings import load_settings


@contextmanager
def open_question(
    targets: Sequence[str],
    crawls: Sequence[str],
    *,
    source: str | None,
    home: str | None,
    subset: Sequence[str] | None = None,
    via: str | None = None,
    concurrency: int | None = None,
    allow_gaps: bool = False,
    wait: bool | None = None,
    where: str = "",
) -> Iterator[LookupRequest]:
    """Parses targets and opens the lookup, as :func:`open_lookup`.

    Raises ``UserInputError`` for text that is not a target, crawl or setting, and for a home of another source.
    """
    settings = load_settings(
        source=source,
        home=home,
        subsets=tuple(subset) if subset else None,
        index=via,
        concurrency=concurrency,
        max_index_gaps=index_gap_limit(allow_gaps),
        wait=wait_seconds(wait),
    )
    with open_lookup(settings, read_targets(targets, settings), crawls, where=where) as question:
        yield question
