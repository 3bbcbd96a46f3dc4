"""The slices of a target in a crawl: the parts of a large set, and subsets of the crawl, each with its own slug.

A hash assigns the members to the parts, so a member that is added or removed changes one part, and the others are not
processed again. A part's slug is the set's, ``~``, the number of parts and its own. Each subset other than ``warc`` is
a separate slice, so that a request for one does not affect another: its slug ends with ``~`` and the subset, as in
``example.org~robotstxt`` or ``set-press~16-0003~robotstxt``. No slug of a target has a ``~``, and no other character of
a slug sorts after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from cc_pipeline.commoncrawl.crawls import SUBSETS, has_subsets
from cc_pipeline.commoncrawl.target import GIVEN_KIND, WHERE_SLUG, Target
from cc_pipeline.commoncrawl.target_text import parse_target

#: Separates a set's slug from the rest of a part's slug.
SEPARATOR: Final = "~"
#: Maximum members of a set, and its number of parts: about a hundred members in each at most.
_CLASSES: Final = ((64, 1), (1_600, 16), (12_800, 128), (102_400, 1_024))
_MAX_PARTS: Final = 8_192
#: The average members of a part above and below which a divided set is divided again.
_MAX_PART_MEMBERS, _MIN_PART_MEMBERS = 256, 2
#: The subset whose slices have the plain slugs.
PLAIN: Final = "warc"
_SUFFIXED_SUBSETS: Final = frozenset(SUBSETS) - {PLAIN}


def part_count(members: int, previous_parts: int | None = None) -> int:
    """Returns the number of parts of a set of ``members``, 1 for an undivided set.

    A set of ``previous_parts`` parts keeps them unless they are much too full or nearly empty, so that a set whose size
    varies around a bound is not divided again each time.
    """
    if (
        previous_parts is not None
        and _MIN_PART_MEMBERS * (previous_parts - 1) < members <= _MAX_PART_MEMBERS * previous_parts
    ):
        return previous_parts
    return next((parts for max_members, parts in _CLASSES if members <= max_members), _MAX_PARTS)


def part_slugs(slug: str, parts: int) -> list[str]:
    """Returns the slugs of all parts of a set, in order; for an undivided set its own."""
    return [slug] if parts == 1 else [f"{slug}{SEPARATOR}{parts}-{number:04}" for number in range(parts)]


def whole_slug(slug: str) -> str:
    """Returns the slug of the target of a slice, without part and subset."""
    return slug.partition(SEPARATOR)[0]


def with_subset(slug: str, subset: str) -> str:
    """Returns the slug of a target or a part in ``subset``."""
    return slug if subset == PLAIN else f"{slug}{SEPARATOR}{subset}"


def is_named_captures(slug: str) -> bool:
    """Whether a slice has named captures, which a user listed one by one."""
    return slug.startswith(f"{GIVEN_KIND}_")


def subset_of(slug: str) -> str:
    """Returns the subset of a slice."""
    last = slug.rpartition(SEPARATOR)[2]
    return last if last in _SUFFIXED_SUBSETS and SEPARATOR in slug else PLAIN


def defined_slug(slug: str) -> str:
    """Returns the slug of a slice without its subset: the slug of the target or part that has a definition."""
    return slug if subset_of(slug) == PLAIN else slug.rpartition(SEPARATOR)[0]


def named_captures_slug(slug: str) -> str:
    """Returns the slug of the named captures to which a slice of them with a condition belongs."""
    return with_subset(defined_slug(slug).partition(WHERE_SLUG)[0], subset_of(slug))


def subsets_in(crawl: str, subsets: Iterable[str]) -> tuple[str, ...]:
    """Returns those of ``subsets`` that slices of ``crawl`` can have; crawls without subsets have ``warc``."""
    return tuple(dict.fromkeys(subsets)) if has_subsets(crawl) else (PLAIN,)


def divided(target: Target, parts: int) -> list[Target]:
    """Divides a set into parts, in the order of ``part_slugs``; an undivided set is its only part.

    Members that can share captures because one is under the other's domain are in the same part, so that each capture
    of the set is in one part.
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
    """Restores the part ``slug`` from its ``written`` definition. Raises ``UserInputError``."""
    definition, _, where = definition.partition(" where ")
    head, _, member_texts = definition.partition(" = ")
    members = tuple(map(parse_target, member_texts.split(", ") if member_texts else ()))
    return Target("set", head.removeprefix("set:"), slug, members, where=where)


def _neighbourhood(member: Target, domains: set[str]) -> str:
    """Returns the text that determines a member's part: the topmost of ``domains`` above its host, or the host."""
    host = _host(member)
    if host is None:
        return member.slug
    topmost = parent = host
    while parent:
        if parent in domains:
            topmost = parent
        parent = parent.partition(".")[2]
    # pages of a www host may be requested by the URL without it
    return topmost.removeprefix("www.")


def _host(member: Target) -> str | None:
    if member.place is not None:
        return member.place.host if member.kind in ("domain", "host") else None
    if member.kind not in ("url", "prefix"):
        return None
    return member.value.partition("://")[2].partition("/")[0].partition(":")[0]
