"""Which partition keys mean something in a home, and which target a person means by a few words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from cc_pipeline.automation import watch_list
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR
from cc_pipeline.commoncrawl.target_text import set_slug, slug_meant
from cc_pipeline.errors import UserInputError
from cc_pipeline.harvesting.crawls import found_by_name
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, HARVEST, LIST, LOCATE, PARSE
from cc_pipeline.upkeep.purge_plan import begun
from cc_pipeline.workspace.workspace import Workspace

#: Targets that a message names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Domains and crawls that mean something. ``unjudged`` says why that is not known of crawls (empty: it is)."""

    domains: frozenset[str]
    crawls: frozenset[str]
    unjudged: str = ""


def known_keys(workspace: Workspace) -> KnownKeys:
    """Targets that are defined, on the watch list or in any slice; crawls that are listed or of which anything is here.

    Raises ``UserInputError`` for a watch list with a wrong line, ``EnvironmentFault`` when the lake cannot be read.
    """
    lake = workspace.lake
    slices = {slice_ for stage in (LOCATE, FETCH, PARSE) for slice_ in stage.here(lake)}
    crawl_list = workspace.crawl_list
    crawl_ids, note = (
        {*(crawl.id for crawl in crawl_list.crawls), *found_by_name(workspace.settings)},
        crawl_list.note or "",
    )
    harvested_crawls = {lake_slice.crawl for stage in (LIST, HARVEST) for lake_slice in stage.here(lake)}
    domains = {*defined(lake), *(lake_slice.whole.target for lake_slice in slices)}
    domains |= {target.slug for target in watch_list.read(workspace.settings.watch_list_path)}
    crawls = {*crawl_ids, *harvested_crawls, *(lake_slice.crawl for lake_slice in slices)}
    return KnownKeys(frozenset(domains), frozenset(crawls), note)


def defined(lake: Lake) -> list[str]:
    """The slugs of all targets that are written down, sets and not their parts. Raises ``EnvironmentFault``."""
    slugs = lake.read("targets", columns=["slug"]).column("slug").to_pylist()
    return sorted(slug for slug in slugs if SEPARATOR not in slug)


def which_target(text: str, known_slugs: Collection[str]) -> str:
    """The slug of the target that a person means: by its slug, its definition, or the name of a set.

    Raises ``UserInputError`` for what is none of ``known_slugs``, naming those that look like it.
    """
    word = text.strip()
    for slug in (word, word.lower(), set_slug(word.lower())):
        if slug in known_slugs:
            return slug
    trouble = ""
    try:
        slug = slug_meant(word)
        if slug in known_slugs:
            return slug
    except UserInputError as error:
        trouble = str(error)
    near = get_close_matches(word.lower(), sorted(known_slugs), _NAMED, 0.7)
    hint = f"Did you mean {' or '.join(near)}?" if near else "See: cc-pipeline targets list"
    reason = f" ({trouble})" if trouble and not near else ""
    raise UserInputError(f"no target here is called {word!r}{reason}. {hint}")


def purges_begun(workspace: Workspace) -> Mapping[str, str]:
    """The definitions of targets whose purge has begun and not ended, by slug. Raises ``EnvironmentFault``."""
    return {note.slug: note.definition for note in begun(workspace.place)}
