"""The crawls of Common Crawl that were known when this version was released: what is left when no list can be read.

They are Common Crawl's own, so they say nothing of another bucket. A later crawl is found by its name alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, Crawl, age

#: The last day on which this list was compared with what is published.
KNOWN_ON: Final = datetime(2026, 11, 21, tzinfo=UTC)

_WEEKS: Final = """
2013 20 48
2014 10 15 23 35 41 42 49 52
2015 06 11 14 18 22 27 32 35 40 48
2016 07 18 22 26 30 36 40 44 50
2017 04 09 13 17 22 26 30 34 39 43 47 51
2018 05 09 13 17 22 26 30 34 39 43 47 51
2019 04 09 13 18 22 26 30 35 39 43 47 51
2020 05 10 16 24 29 34 40 45 50
2021 04 10 17 21 25 31 39 43 49
2022 05 21 27 33 40 49
2023 06 14 23 40 50
2024 10 18 22 26 30 33 38 42 46 51
2025 05 08 13 18 21 26 30 33 38 43 47 51
2026 04 08 12 17 21 25 30 34 39 43
"""


def crawl_of(crawl_id: str) -> Crawl:
    """A crawl of which nothing but its id is known."""
    return Crawl(crawl_id, crawl_id, None, None, None)


def known_at_release() -> tuple[Crawl, ...]:
    """All crawls that were published on ``KNOWN_ON``, newest first, with what their ids tell of them."""
    years = [line.split() for line in _WEEKS.split("\n") if line]
    ids = [*ARC_CRAWLS, *(f"CC-MAIN-{year}-{week}" for year, *weeks in years for week in weeks)]
    return tuple(sorted((crawl_of(one) for one in ids), key=age, reverse=True))
