"""What somebody may have meant by a name that nothing is known of: the nearest name that this home knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.settings import Settings

#: Endings that are tried in the place of one that does not exist, the commonest first.
_ENDINGS = ("com", "org", "net", "edu", "gov", "info", "de", "uk", "fr", "nl", "ru", "jp", "br", "it", "pl", "au", "ca")
#: Names of the home that are compared; each costs some microseconds.
_MOST_COMPARED = 20_000
_ALIKE = 0.85
_ENDINGS_ALIKE = 0.6


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

    from cc_pipeline.lake.moving import open_settled

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

    from cc_pipeline.lake.moving import open_settled
    from cc_pipeline.stages.automation import watch_list

    names: dict[str, None] = {}
    try:
        for target in watch_list.read(settings.watch_list_path):
            names.update(dict.fromkeys(one.value for one in (target.members or (target,))))
        with open_settled(settings) as connection:
            asked = (
                "SELECT slug FROM targets WHERE kind = 'domain' UNION SELECT DISTINCT domain FROM page_metadata LIMIT ?"
            )
            names.update((row[0], None) for row in connection.execute(asked, [_MOST_COMPARED]).fetchall())
    except (CcPipelineError, duckdb.Error):
        pass
    return tuple(name for name in names if name)[:_MOST_COMPARED]
