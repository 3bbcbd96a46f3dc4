"""What ``export`` and ``dataset`` share: the published file, and the targets and crawls a person named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, remembered_source

#: Targets that are named as having brought a domain's pages.
_NAMED = 3

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


def refuse_unknown(connection: DuckDBPyConnection, settings: Settings, targets: Sequence[Target]) -> None:
    """Raises ``UserInputError`` for a target that nobody ran here: a file of none of its rows would look like an
    answer. It says what may have been meant, and which targets brought pages of a domain."""
    slugs = [target.slug for target in targets]
    asked = (
        "SELECT slug FROM main.targets WHERE list_contains($1, slug) UNION "
        "SELECT target FROM main.lookups WHERE list_contains($1, target)"
    )
    known = {slug for (slug,) in connection.execute(asked, [slugs]).fetchall()} if slugs else set()
    for target in targets:
        if target.slug not in known:
            named = f"set:{target.value}" if target.kind == "set" else target.definition
            raise UserInputError(f"{named} was not run in this home{_instead(connection, settings, target, named)}")


def _instead(connection: DuckDBPyConnection, settings: Settings, target: Target, named: str) -> str:
    from cc_pipeline.cli.guesses import known_names, meant
    from cc_pipeline.keys import CAPTURE

    run = f"Run it first: cc-pipeline run --crawl newest --domain {named}"
    if target.place is None:
        return f". {run}"
    asked = (
        "SELECT DISTINCT if(t.kind = 'set', replace(slug, 'set-', 'set:'), definition) FROM main.captures c "
        f"JOIN main.capture_targets USING ({', '.join(CAPTURE)}) JOIN main.targets t ON slug = capture_targets.target "
        f"WHERE c.domain = ? ORDER BY ALL LIMIT {_NAMED}"
    )
    others = [name for (name,) in connection.execute(asked, [target.place.host]).fetchall()]
    if others:
        return f"; its pages came with {', '.join(others)}: name that, or run it by itself"
    guess = meant(target.place.host, known_names(settings))
    return (f"; did you mean {guess}? " if guess else ". ") + run


def crawl_ids(texts: Sequence[str]) -> list[str]:
    """Crawl ids as a person may write them. Raises ``UserInputError`` for text that cannot be one."""
    from cc_pipeline.commoncrawl.crawls import validate_crawl_id

    return [validate_crawl_id(text) for text in texts]


def told_source(settings: Settings) -> str | None:
    """The source that the home's rows came from, without credentials."""
    return remembered_source(settings.home)
