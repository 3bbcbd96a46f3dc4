"""What is known to be peculiar about single crawls. Informative: no reader may rely on a list being complete."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal


def _weeks(*weeks: str) -> frozenset[str]:
    return frozenset(f"CC-MAIN-{week}" for week in weeks)


# fmt: off
#: No row group has minimum and maximum of ``url_surtkey`` in the fields of today; seen in all 300 ``warc`` files of
#: each by a survey of the footers in 2022.
WITHOUT_KEY_STATISTICS: Final = _weeks(
    "2017-43", "2017-47", "2017-51", "2018-05", "2018-09", "2018-13", "2018-17", "2018-22", "2018-26", "2018-30",
    "2018-34", "2018-39", "2018-43",
)

#: One to four row groups lack them (very long keys), by the same survey.
WITH_GAPS_IN_KEY_STATISTICS: Final = _weeks(
    "2019-18", "2020-10", "2020-16", "2020-24", "2020-34", "2020-40", "2020-50", "2021-10", "2021-17", "2021-21",
    "2021-25", "2021-39", "2021-43",
)
# fmt: on

#: Payload digests that can be wrong: an extra CRLF stands between HTTP header and payload.
WITH_DOUBTFUL_DIGESTS: Final = frozenset({"CC-MAIN-2018-34"})

#: First crawls with a property of the columnar index, by week.
FIRST_WITH: Final = {
    "content_charset": "2018-39",
    "content_languages": "2018-39",
    "content_truncated": "2019-47",
    "fetch_redirect": "2019-47",
    "int64_fetch_time": "2020-05",
    "url_host_name_reversed": "2021-49",
    "page_index": "2021-49",
    "sorted_parts": "2022-27",
}

_WEEKLY_ID = re.compile(r"CC-[A-Z]+-(\d{4}-\d{2})(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Quirks:
    """``key_statistics`` tells whether row groups have minimum and maximum keys; ``digest_policy`` is ``trust``, or
    ``doubt`` where a mismatch says nothing about the bytes; ``notes`` are sentences for a person."""

    key_statistics: Literal["none", "gaps", "all", "unknown"]
    digest_policy: Literal["trust", "doubt"]
    notes: tuple[str, ...]


def quirks_of(crawl_id: str) -> Quirks:
    """What is known about ``crawl_id``. An unknown crawl has no quirks."""
    notes: list[str] = []
    statistics: Literal["none", "gaps", "all", "unknown"] = "unknown"
    if crawl_id in WITHOUT_KEY_STATISTICS:
        statistics = "none"
        notes.append("its index has no key statistics, so every row group may match until the catalog has repaired it")
    elif crawl_id in WITH_GAPS_IN_KEY_STATISTICS:
        statistics = "gaps"
        notes.append("a few row groups of its index have no key statistics")
    elif "CC-MAIN-2017-01" <= crawl_id <= "CC-MAIN-2022-05" and _WEEKLY_ID.fullmatch(crawl_id):
        statistics = "all"
    if crawl_id in WITH_DOUBTFUL_DIGESTS:
        notes.append("its WARC records have an extra CRLF, so payload digests can be wrong")
    return Quirks(statistics, "doubt" if crawl_id in WITH_DOUBTFUL_DIGESTS else "trust", tuple(notes))


def has(crawl_id: str, feature: str) -> bool | None:
    """Whether the index of ``crawl_id`` is expected to have a ``FIRST_WITH`` property; ``None`` if its id does not
    tell its week."""
    weekly = _WEEKLY_ID.fullmatch(crawl_id)
    return weekly[1] >= FIRST_WITH[feature] if weekly else None
