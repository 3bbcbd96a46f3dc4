"""The one interface behind which Parquet, the prefixed B-tree and ZipNum find captures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from cc_pipeline.commoncrawl.targets import Target


@dataclass(frozen=True, slots=True)
class LookupPrice:
    """What a look-up will read, said before the look-up. ``bytes`` and ``requests`` are upper bounds.

    ``likely_bytes`` is what it will probably come to for a small target, where the bound is far above that.
    """

    files: int
    row_groups: int
    requests: int
    bytes: int
    notes: tuple[str, ...] = ()
    likely_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Captures per target slug (``CAPTURE_SCHEMA``; every asked slug is present), and what it cost."""

    captures: Mapping[str, pa.Table]
    requests: int
    bytes: int
    seconds: float
    notes: tuple[str, ...] = field(default=())


class Locator(Protocol):
    """Finds the captures of targets in one crawl.

    ``subsets`` are names of ``SUBSETS``. A locator that cannot tell subsets apart (the 2012 B-tree) serves
    ``warc`` only. Faults raise (``DataFault``, ``EnvironmentFault``): an answer is complete or an error.
    """

    name: str

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupPrice: ...

    def locate(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupResult: ...
