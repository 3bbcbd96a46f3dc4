"""The public suffix list, one top-level domain at a time: parsing all of its rules takes 70 ms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from publicsuffixlist import PSLFILE, PublicSuffixList

_REGISTRIES_BEGIN: Final = "// ===BEGIN ICANN DOMAINS===\n"
_REGISTRIES_END: Final = "// ===END ICANN DOMAINS===\n"


def registry_list(host: str) -> PublicSuffixList:
    """Returns a list that answers for ``host`` as the list of all registries (the section "ICANN") does.

    It knows no rule of other top-level domains, and accepts no unknown ones unless its methods are told to.
    """
    return _parse_rules(_top_level_domain(host, only_registries=True), only_registries=True)


def full_list(host: str) -> PublicSuffixList:
    """Returns a list that answers for ``host`` as the whole list does, with the suffixes of companies."""
    return _parse_rules(_top_level_domain(host, only_registries=False), only_registries=False)


def _top_level_domain(host: str, *, only_registries: bool) -> str | None:
    """Returns the last label of ``host``, empty if the list has no rule for it. ``None`` means that any rule may
    apply: rules in other scripts are in the list as text, and match in ASCII too."""
    label = host.removesuffix(".").rpartition(".")[2].lower()
    if not label.isascii() or label.startswith("xn--"):
        return None
    return label if label in _read_rules(only_registries) else ""


@cache
def _parse_rules(top_level_domain: str | None, *, only_registries: bool) -> PublicSuffixList:
    rules = _read_rules(only_registries)
    if top_level_domain is None:
        return PublicSuffixList((line for lines in rules.values() for line in lines), accept_unknown=False)
    return PublicSuffixList(rules.get(top_level_domain, ()), accept_unknown=False)


@cache
def _read_rules(only_registries: bool) -> Mapping[str, Sequence[str]]:
    """Returns the lines with rules by the last label of their rule."""
    text = Path(PSLFILE).read_text("utf-8")
    if only_registries:
        text = text.partition(_REGISTRIES_BEGIN)[2].partition(_REGISTRIES_END)[0]
    rules: defaultdict[str, list[str]] = defaultdict(list)
    for line in text.split("\n"):
        rule = line.partition(" ")[0]
        if rule and not rule.startswith("//"):
            rules[rule.rpartition(".")[2].lower()].append(rule)
    return dict(rules)
