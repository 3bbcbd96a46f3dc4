"""What is known to be peculiar about single crawls. Informative: no reader may rely on a list being complete."""

from __future__ import annotations

import re
from typing import Final


def _weeks(*weeks: str) -> frozenset[str]:
    return frozenset(f"CC-MAIN-{week}" for week in weeks)


# fmt: off
#: No row group has minimum and maximum of ``url_surtkey`` in the fields of today; seen in all 300 ``warc`` files of
#: each by a survey of the footers in 2022.
WITHOUT_KEY_STATISTICS: Final = _weeks(
    "2017-43", "2017-47", "2017-51", "2018-05", "2018-09", "2018-13", "2018-17", "2018-22", "2018-26", "2018-30",
    "2018-34", "2018-39", "2018-43",
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


def has(crawl_id: str, feature: str) -> bool | None:
    """Whether the index of ``crawl_id`` is expected to have a ``FIRST_WITH`` property; ``None`` if its id does not
    tell its week."""
    weekly = _WEEKLY_ID.fullmatch(crawl_id)
    return weekly[1] >= FIRST_WITH[feature] if weekly else None
