"""What ``export`` and ``dataset`` share: the published file, and the targets and crawls a person named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline.settings import Settings, remembered_source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.commoncrawl.target import Target


@contextmanager
def published(settings: Settings) -> Iterator[DuckDBPyConnection]:
    """The published file, read-only. Raises ``EnvironmentFault`` where there is none."""
    from cc_pipeline.lake.moving import open_settled

    with open_settled(settings) as connection:
        yield connection


def chosen_targets(texts: Sequence[str]) -> list[Target]:
    """The targets that ``texts`` mean, lists (``@FILE``, ``-``) by their lines; of a set its name is enough: its
    members are in the home."""
    from cc_pipeline.cli.options import lines_meant
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.commoncrawl.target_text import parse_target, set_slug, set_slug_in

    found: dict[str, Target] = {}
    for text in lines_meant(texts):
        named = set_slug_in(text)
        target = Target("set", named.removeprefix(set_slug("")), named) if named else parse_target(text, Path.cwd())
        found[target.slug] = target
    return list(found.values())


def crawl_ids(texts: Sequence[str]) -> list[str]:
    """Crawl ids as a person may write them. Raises ``UserInputError`` for text that cannot be one."""
    from cc_pipeline.commoncrawl.crawls import validate_crawl_id

    return [validate_crawl_id(text) for text in texts]


def told_source(settings: Settings) -> str | None:
    """The source that the home's rows came from, without credentials."""
    return remembered_source(settings.home)
