"""Tells which targets a home has, and which one a person names."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, whole_slug
from cc_pipeline.commoncrawl.target_text import parse_slug, set_slug
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slices import read_purged
from cc_pipeline.workspace.workspace import Workspace

#: The most targets that a message suggests.
_MAX_HINTS: Final = 3


def read_defined_slugs(lake: Lake) -> list[str]:
    """Returns the slugs of all defined targets; sets count, their parts do not. Raises ``EnvironmentFault``."""
    slugs = lake.read("targets", columns=["slug"]).column("slug").to_pylist()
    return sorted(slug for slug in slugs if SEPARATOR not in slug)


def find_target(text: str, known_slugs: Collection[str]) -> str:
    """Returns the slug of the target that a person names by its slug, its definition, or the name of a set.

    Raises ``UserInputError`` if it is none of ``known_slugs``; the message has the most similar ones.
    """
    word = text.strip()
    for slug in (word, word.lower(), set_slug(word.lower())):
        if slug in known_slugs:
            return slug
    trouble = ""
    try:
        slug = parse_slug(word)
        if slug in known_slugs:
            return slug
    except UserInputError as error:
        trouble = str(error)
    near = get_close_matches(word.lower(), sorted(known_slugs), _MAX_HINTS, 0.7)
    hint = (
        f"Did you mean {' or '.join(near)}?"
        if near
        else f"To list its targets: {advise('sql', 'FROM targets')}, and {advise('targets list')} for the watch list"
    )
    reason = f" ({trouble})" if trouble and not near else ""
    raise UserInputError(f"this home has no target {word!r}{reason}. {hint}")


def find_unfinished_purges(workspace: Workspace) -> list[str]:
    """Returns the slugs of purged targets whose rows are not all deleted. Raises ``EnvironmentFault``."""
    return sorted({whole_slug(target) for target in read_purged(workspace.lake)["target"].to_pylist()})
