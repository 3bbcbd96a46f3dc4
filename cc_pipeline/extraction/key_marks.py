"""Targets whose keys were once taken for others, and that are located once more for it.

Earlier versions of this program knew one rule for the keys of all crawls, and dropped one ``www`` label. The version
that a slice of such a target was located as has a mark if its keys were those of its crawl's index
(``commoncrawl.crawls.key_rule``). Versions of the targets themselves stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from cc_pipeline.commoncrawl.crawls import key_rule
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, part_from
from cc_pipeline.commoncrawl.surt import KeyRule
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.blocked import split_blocks
from cc_pipeline.lake.slice import Slice

#: Stands between the version of a definition and which keys were looked up.
_MARK: Final = "+keys2"
#: Slugs of targets whose keys may have escapes, or whose slug need not tell their hosts.
_NOT_A_HOST: Final = re.compile(r"(?:url|prefix|rev)_|set-")
_SEVERAL_WWW: Final = re.compile(r"www[0-9]*\.(?:w|\W|\Z)")
_ESCAPE: Final = re.compile(r"%(?:25)*[89A-Fa-f]")


def key_marks(slices: Iterable[Slice], read: Callable[[Sequence[str]], Mapping[str, str]]) -> dict[Slice, str]:
    """The mark of each of ``slices`` that needs one; ``read`` gives the definitions of slugs, as they are written."""
    slices = [s for s in slices if _NOT_A_HOST.match(s.defined) or _SEVERAL_WWW.search(s.defined)]
    if not slices:
        return {}
    targets: dict[str, Target] = {}
    for slug, text in read(list(dict.fromkeys(slice_.defined for slice_ in slices))).items():
        if _ESCAPE.search(text) or _SEVERAL_WWW.search(text):
            targets[slug] = part_from(slug, text) if SEPARATOR in slug else parse_target(text)
    several = {slug for slug, target in targets.items() if target.has_several_www()}
    by_rule = {slug: target.ranges_by(KeyRule.BEFORE_2025) != target.ranges for slug, target in targets.items()}
    return {
        slice_: _MARK
        for slice_ in slices
        if slice_.defined in several or (by_rule.get(slice_.defined) and key_rule(slice_.crawl) is KeyRule.BEFORE_2025)
    }


def with_mark(version: str, mark: str) -> str:
    """``version`` (perhaps with that of blocks) with a mark of :func:`key_marks`."""
    definition, blocks = split_blocks(version)
    return f"{definition}{mark}{blocks}"


def has_mark(version: str) -> bool:
    """Whether ``version`` has one."""
    return _MARK in version


def without_mark(version: str) -> str:
    """``version`` without a mark."""
    return version.replace(_MARK, "", 1)
