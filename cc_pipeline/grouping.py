"""Groups items in their order, so that what is held at a time stays within limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def group_within(
    items: Iterable[_T], limits: tuple[int, ...], sizes_of: Callable[[_T], tuple[int, ...]]
) -> Iterator[list[_T]]:
    """Groups ``items``: none of the sums of their sizes is above its limit. An item with a size above its limit comes
    alone, or behind items without that size.

    ``sizes_of`` gives the sizes of an item, one for each of ``limits``.
    """
    group: list[_T] = []
    sums = (0,) * len(limits)
    for item in items:
        sizes = sizes_of(item)
        if any(total and total + size > limit for total, size, limit in zip(sums, sizes, limits, strict=True)):
            yield group
            group, sums = [], (0,) * len(limits)
        group.append(item)
        sums = tuple(total + size for total, size in zip(sums, sizes, strict=True))
    if group:
        yield group
