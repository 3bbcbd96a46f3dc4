"""What two indexes of a crawl name, as one answer: in the ARC years each has captures that the other lacks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.index.locator import UNION, Locator, LookupPrice, LookupResult

_PLACE = ("warc_filename", "warc_record_offset")


class UnionLocator:
    """Asks ``tree`` and ``zipnum`` for the same captures. One that both name is there once, as ``zipnum`` has it: with
    time, status and type. A fault of either raises, since half of an answer is none."""

    name = UNION

    def __init__(self, tree: Locator, zipnum: Locator) -> None:
        self._tree = tree
        self._zipnum = zipnum

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupPrice:
        """What both will read."""
        one, other = (index.price(crawl, subsets, targets) for index in (self._tree, self._zipnum))
        return LookupPrice(
            one.files + other.files,
            one.row_groups + other.row_groups,
            one.requests + other.requests,
            one.bytes + other.bytes,
            (*one.notes, *other.notes),
        )

    def locate(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupResult:
        """Every capture of every target, per slug. Raises ``DataFault`` and ``EnvironmentFault``."""
        more, less = (index.locate(crawl, subsets, targets) for index in (self._zipnum, self._tree))
        return LookupResult(
            {slug: united(found, less.captures[slug]) for slug, found in more.captures.items()},
            more.requests + less.requests,
            more.bytes + less.bytes,
            more.seconds + less.seconds,
            (*more.notes, *less.notes),
        )


def united(first: pa.Table, second: pa.Table) -> pa.Table:
    """The captures of ``first``, then those of ``second`` at other places; none is there twice."""
    captures = pa.concat_tables([first, second])
    seen: set[tuple[str, int]] = set()
    new = []
    for place in zip(*(captures[name].to_pylist() for name in _PLACE), strict=True):
        new.append(place not in seen)
        seen.add(place)
    return captures.filter(pa.array(new, pa.bool_()))
