"""Which way a question takes, as a table; and what is said of it."""

from __future__ import annotations

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.index_choice import (
    HARVEST,
    ZIPNUM,
    choose_cheapest,
    estimate_harvest,
    estimate_zipnum,
)

ONE = [parse_target("example.org")]
HUNDREDS = [parse_target("set:many = " + ", ".join(f"example{n}.org" for n in range(300)))]


@pytest.mark.parametrize(
    ("targets", "files", "kind"),
    [
        (ONE, 300, ZIPNUM),
        # a crawl of few index files is harvested for a single target
        (ONE, 1, HARVEST),
        # a read of the columnar index costs more than one of ZipNum, so many targets alone are no reason to harvest
        (HUNDREDS, 300, ZIPNUM),
        # hundreds of megabytes of whole lines are
        ([parse_target("tld:museum")], 300, HARVEST),
        ([parse_target("suffix:gov.uk")], 300, HARVEST),
        ([parse_target("tld:museum"), *ONE], 300, HARVEST),
    ],
)
def test_the_cheapest_way(targets: list, files: int, kind: str) -> None:
    ways = (estimate_zipnum(targets), estimate_harvest(targets, files))
    assert choose_cheapest(ways).kind == kind


def test_many_targets_share_a_cluster() -> None:
    assert 2 < estimate_zipnum(ONE).requests <= 10
    assert estimate_zipnum(HUNDREDS).requests < 300 * estimate_zipnum(ONE).requests


@pytest.mark.parametrize(
    ("wide", "text"),
    [
        (True, "rev:uk.co."),
        (True, "rev:com.a"),
        (False, "rev:com.nytimes"),
        (False, "rev:uk.co.bbc/news"),
        (False, "rev:com.x/"),
    ],
)
def test_a_reversed_name_is_as_wide_as_what_begins_so(wide: bool, text: str) -> None:
    same = [parse_target("tld:com" if wide else "example.com")]
    asked = [parse_target(text)]
    assert estimate_zipnum(asked) == estimate_zipnum(same)
    assert estimate_harvest(asked, 300) == estimate_harvest(same, 300)
