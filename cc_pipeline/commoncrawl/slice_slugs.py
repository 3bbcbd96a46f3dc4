"""The slices of a target in a crawl: the parts of a large set, and subsets of the crawl, each under a slug of its own.

A part holds the members that a hash puts there, so a member that comes or goes changes one part, and nothing of the
others is done again. A part's slug is the set's, ``~``, the number of parts and its own. What a subset other than
``warc`` has is a slice beside that of ``warc``, so that asking for one takes nothing from another: its slug ends with
``~`` and the subset, as in ``example.org~robotstxt`` or ``set-press~16-0003~robotstxt``. No slug of a target has a
``~``, and no other character of a slug is above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from cc_pipeline.commoncrawl.crawls import SUBSETS, has_subsets
from cc_pipeline.commoncrawl.target import GIVEN_KIND, WHERE_SLUG, Target
from cc_pipeline.commoncrawl.target_text import parse_target

#: Between a set's slug and the rest of a part's.
SEPARATOR: Final = "~"
#: Members up to which a set has so many parts: about a hundred in each at most.
_CLASSES: Final = ((64, 1), (1_600, 16), (12_800, 128), (102_400, 1_024))
_MOST_PARTS: Final = 8_192
#: Members a part may grow or shrink to on average before a set that is divided otherwise is divided anew.
_MOST_IN_ONE, _FEWEST_IN_ONE = 256, 2
#: The subset whose slices have the plain slugs.
PLAIN: Final = "warc"
_OTHERS: Final = frozenset(SUBSETS) - {PLAIN}


def part_count(members: int, before: int | None = None) -> int:
    """Into how many parts a set of ``members`` is divided, 1 for "not at all".

    One that has ``before`` parts keeps them as long as they are neither much too full nor nearly empty, so that a set
    which gains and loses members about a bound is not divided anew each time.
    """
    if before is not None and _FEWEST_IN_ONE * (before - 1) < members <= _MOST_IN_ONE * before:
        return before
    return next((parts for most, parts in _CLASSES if members <= most), _MOST_PARTS)


def part_slugs(slug: str, parts: int) -> list[str]:
    """The slugs of all parts of a set, in order; of a set that is not divided its own."""
    return [slug] if parts == 1 else [f"{slug}{SEPARATOR}{parts}-{number:04}" for number in range(parts)]


def whole_slug(slug: str) -> str:
    """The slug of the target that a slice belongs to, whatever its part and its subset."""
    return slug.partition(SEPARATOR)[0]


def with_subset(slug: str, subset: str) -> str:
    """The slug of what ``subset`` has of a target or a part."""
    return slug if subset == PLAIN else f"{slug}{SEPARATOR}{subset}"


def is_given(slug: str) -> bool:
    """Whether a slice is of captures that somebody named one by one."""
    return slug.startswith(f"{GIVEN_KIND}_")


def subset_of(slug: str) -> str:
    """The subset that a slice is of."""
    last = slug.rpartition(SEPARATOR)[2]
    return last if last in _OTHERS and SEPARATOR in slug else PLAIN


def defined_slug(slug: str) -> str:
    """The slug of a slice without its subset: that of the target or part which has a definition."""
    return slug if subset_of(slug) == PLAIN else slug.rpartition(SEPARATOR)[0]


def given_slug(slug: str) -> str:
    """The slug of the slice of captures given one by one that a slice of them with a condition is a part of."""
    return with_subset(defined_slug(slug).partition(WHERE_SLUG)[0], subset_of(slug))


def subsets_in(crawl: str, asked: Iterable[str]) -> tuple[str, ...]:
    """Those of the ``asked`` subsets that slices of ``crawl`` can be of; crawls that know no subsets have ``warc``."""
    return tuple(dict.fromkeys(asked)) if has_subsets(crawl) else (PLAIN,)


def divided(target: Target, parts: int) -> list[Target]:
    """The parts of a set, in the order of ``part_slugs``; a set that is not divided is its only part.

    Members that can share captures because one lies under the other's domain are in the same part, so that the set's
    captures are there once.
    """
    if parts == 1:
        return [target]
    domains = {
        member.place.host
        for member in target.members
        if member.kind == "domain" and member.place is not None and member.place.port is None
    }
    shares: list[list[Target]] = [[] for _ in range(parts)]
    for member in target.members:
        digest = hashlib.sha256(_neighbourhood(member, domains).encode("utf-8", "surrogatepass")).digest()
        shares[int.from_bytes(digest[:8], "big") % parts].append(member)
    return [
        Target("set", target.value, slug, tuple(sorted(share, key=lambda member: member.written)), where=target.where)
        for slug, share in zip(part_slugs(target.slug, parts), shares, strict=True)
    ]


def part_from(slug: str, definition: str) -> Target:
    """The part ``slug`` again, from its ``written`` definition. Raises ``UserInputError``."""
    definition, _, where = definition.partition(" where ")
    head, _, listed = definition.partition(" = ")
    members = tuple(map(parse_target, listed.split(", ") if listed else ()))
    return Target("set", head.removeprefix("set:"), slug, members, where=where)


def _neighbourhood(member: Target, domains: set[str]) -> str:
    """What decides about a member's part: the topmost of ``domains`` that its host lies under, or the host."""
    host = _host(member)
    if host is None:
        return member.slug
    topmost = above = host
    while above:
        if above in domains:
            topmost = above
        above = above.partition(".")[2]
    # pages of a www host may be asked for by the URL without it
    return topmost.removeprefix("www.")


def _host(member: Target) -> str | None:
    if member.place is not None:
        return member.place.host if member.kind in ("domain", "host") else None
    if member.kind not in ("url", "prefix"):
        return None
    return member.value.partition("://")[2].partition("/")[0].partition(":")[0]
