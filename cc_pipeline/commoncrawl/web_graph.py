"""Releases of Common Crawl's web graph: what their names say, where their ranks lie, and what hosts are called in them.

A release spans a few crawls and is named by their months: ``cc-main-2026-may-jun-jul``, and over New Year
``cc-main-2025-26-nov-dec-jan``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final, Literal, get_args

from cc_pipeline.commoncrawl.host_keys import host_key
from cc_pipeline.errors import UserInputError

Level = Literal["host", "domain"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

_SPELLED: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: number for number, name in enumerate(_SPELLED, 1)}
_NAME: Final = re.compile(r"cc-main-(\d{4})(?:-(\d{2}))?((?:-(?:" + "|".join(_MONTHS) + r")){2,4})")
_WEEKLY: Final = re.compile(r"CC-MAIN-(\d{4})-(\d{2})")
#: Up to this month a leading ``www.`` was taken off hosts, in releases that end later it is kept.
_LAST_STRIPPED: Final = (2025, 12)
_BARE_WWW: Final = ".www"


@dataclass(frozen=True, slots=True)
class Release:
    """A release; ``first`` and ``last`` are its first and last month, as (year, month)."""

    name: str
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def www_kept(self) -> bool:
        """Whether ``www.example.com`` and ``example.com`` are two hosts in it."""
        return self.last > _LAST_STRIPPED

    def spans(self, crawl: str) -> bool:
        """Whether the crawl is of one of its months; ``False`` for crawls that are not named by a week."""
        found = _WEEKLY.fullmatch(crawl)
        if found is None:
            return False
        try:
            monday = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        except ValueError:
            return False
        return self.first <= (monday.year, monday.month) <= self.last

    def ranks_key(self, level: Level) -> str:
        """The key of its ranks in the bucket."""
        return f"projects/hyperlinkgraph/{self.name}/{level}/{self.name}-{level}-ranks.txt.gz"


def parse_release(name: str) -> Release:
    """The release of that name. Raises ``UserInputError`` for text that names none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise UserInputError(
            f"{name[:80]!r} is no release of the web graph; they are named by their months: cc-main-2026-may-jun-jul, "
            "and cc-main-2025-26-nov-dec-jan over New Year"
        )
    months = [_MONTHS[month] for month in found[3].split("-")[1:]]
    year = int(found[1])
    last = year // 100 * 100 + int(found[2]) if found[2] else year + (months[-1] < months[0])
    return Release(name, (year, months[0]), (last, months[-1]))


@lru_cache(maxsize=65536)
def graph_key(name: str, www_kept: bool) -> str | None:
    """The SURT host key of a node's name (``com.example.www``); ``None`` for text that names no host.

    Where ``www.`` was taken off once, a ``www`` that is left stands for a host below ``www``: it is no other name of
    the host without it.
    """
    lost = not www_kept and name.endswith(_BARE_WWW) and name.count(".") >= 2
    found = host_key(name + _BARE_WWW if lost else name, "reversed_host")
    return None if found is None else found.surt
