"""Converts targets to those whose robots.txt files are needed: the hosts of the targets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from cc_pipeline.commoncrawl.crawls import has_subsets
from cc_pipeline.commoncrawl.key_ranges import reverse_dots
from cc_pipeline.commoncrawl.target import WHERE_SLUG, Target
from cc_pipeline.commoncrawl.target_text import parse_target, set_slug

#: The subset robotstxt begins with this crawl.
FIRST_CRAWL: Final = "CC-MAIN-2016-36"
#: Maximum characters of a set's name, and the suffix of the name of a set of hosts.
_MAX_NAME_CHARACTERS: Final = 60
_SET_SUFFIX: Final = "-robotstxt-hosts"
_NAME_SEPARATOR = re.compile(r"[^a-z0-9_-]+")


def policy_targets(targets: Iterable[Target]) -> list[Target]:
    """Targets for the robots.txt captures of the hosts of ``targets``: the same targets without their conditions, the
    host of a page or prefix, and for a set with such members the set of their hosts, under a name of its own.
    """
    return list({target.slug: target for target in map(_host_target, targets)}.values())


def crawls_with_robots(crawls: Sequence[str]) -> list[str]:
    """The ``crawls`` with robots.txt captures in a subset of their own."""
    return [crawl for crawl in crawls if has_subsets(crawl) and not "CC-MAIN-" <= crawl < FIRST_CRAWL]


def _host_target(target: Target) -> Target:
    if target.where:
        target = replace(target, where="", slug=target.slug.partition(WHERE_SLUG)[0])
    if target.kind == "set":
        members = {member.slug: member for member in map(_host_target, target.members)}
        if [*members.values()] == [*target.members]:
            return target
        name = _NAME_SEPARATOR.sub("-", target.value)
        if len(name) > _MAX_NAME_CHARACTERS - len(_SET_SUFFIX):
            mark = hashlib.sha256(target.value.encode()).hexdigest()[:8]
            name = f"{name[: _MAX_NAME_CHARACTERS - len(_SET_SUFFIX) - 9]}-{mark}"
        name = name.strip("-_") + _SET_SUFFIX
        return Target("set", name, set_slug(name), tuple(sorted(members.values(), key=lambda member: member.written)))
    if target.kind in ("url", "prefix"):
        return parse_target("host:" + target.value.partition("://")[2].partition("/")[0])
    if target.kind == "rev" and "/" in target.value:
        return parse_target("host:" + reverse_dots(target.value.partition("/")[0]))
    return target
