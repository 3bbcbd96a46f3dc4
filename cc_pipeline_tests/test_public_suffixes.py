"""A list of one top-level domain answers as the library's whole list does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from publicsuffixlist import PSLFILE, PublicSuffixList

from cc_pipeline.public_suffixes import full_list, registry_list

RULES = [
    line.partition(" ")[0]
    for line in Path(PSLFILE).read_text("utf-8").split("\n")
    if line and not line.startswith(("//", " "))
]
LISTS = [
    (registry_list, PublicSuffixList(accept_unknown=False, only_icann=True)),
    (full_list, PublicSuffixList(accept_unknown=False)),
]


def _assert_equal_answers(host: str) -> None:
    for part_for, whole in LISTS:
        part = part_for(host)
        for accept_unknown in (False, True):
            answers = [
                (known.publicsuffix(host, accept_unknown), known.privatesuffix(host, accept_unknown))
                for known in (part, whole)
            ]
            assert answers[0] == answers[1], (host, part_for.__name__, accept_unknown)


def _hosts_of(rule: str) -> Iterator[str]:
    name = rule.removeprefix("!").removeprefix("*.")
    yield from (rule, name, f"www.{name}", f"a.b.c.{name}", f"{name}.", name.upper(), name.partition(".")[2])
    if not name.isascii():
        ascii_name = name.encode("idna").decode("ascii")
        yield from (ascii_name, f"www.{ascii_name}", f"a.b.c.{ascii_name}", f"www.{ascii_name.upper()}")


def test_hosts_of_every_rule_have_equal_answers() -> None:
    assert any(rule.startswith("!") for rule in RULES) and any(rule.startswith("*.") for rule in RULES)
    for rule in RULES:
        for host in _hosts_of(rule):
            _assert_equal_answers(host)


_LABELS = st.one_of(
    st.sampled_from(sorted({label for rule in RULES for label in rule.split(".")})),
    st.sampled_from(["", "xn--", "xn--zz", "www", "ｃｏｍ", "ΟΣ", "İ", "*", "!", "\x85"]),
    st.text(max_size=5),
)


@given(st.lists(_LABELS, max_size=6))
def test_any_host_has_equal_answers(labels: list[str]) -> None:
    _assert_equal_answers(".".join(labels))


@pytest.mark.parametrize("part_for", [registry_list, full_list])
def test_unknown_top_level_domains_share_one_list(part_for: object) -> None:
    assert callable(part_for)
    assert part_for("a.nosuchdomain") is part_for("b.othersuchdomain")
