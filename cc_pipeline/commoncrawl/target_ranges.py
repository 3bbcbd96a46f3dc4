"""From what a target names to the stretches of an index that can hold it.

A range is never too small; it may be too large, because keys have lost ``www`` and default ports, so whoever reads
a range asks ``Target.matches`` about each capture found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cc_pipeline.commoncrawl.hostnames import Place
from cc_pipeline.commoncrawl.keyrange import KeyRange, prefix_range
from cc_pipeline.commoncrawl.surt import reverse_labels, surt_host

_WWW_LABEL = re.compile(r"www[0-9]*")
# A last, perhaps unfinished label of a reversed prefix that a ``www`` label may continue.
_MAY_BECOME_WWW = re.compile(r"|w|ww|www[0-9]*")
_DEFAULT_PORTS = (80, 443)


def merge_ranges(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """The same keys as ``ranges`` in the fewest ranges, sorted; overlapping and touching ones become one."""
    merged: list[KeyRange] = []
    for item in sorted(ranges, key=lambda one: (one.start, one.end is None, one.end or b"")):
        if item.end is not None and item.end <= item.start:
            continue
        if merged and (merged[-1].end is None or item.start <= merged[-1].end):
            last = merged[-1]
            end = None if last.end is None or item.end is None else max(last.end, item.end)
            merged[-1] = KeyRange(last.start, end)
        else:
            merged.append(item)
    return tuple(merged)


def exact_range(key: str) -> KeyRange:
    """Just this key."""
    start = key.encode("ascii")
    return KeyRange(start, start + b"\0")


def host_ranges(place: Place) -> tuple[KeyRange, ...]:
    """Keys of one host. Without a port: of every port."""
    return merge_ranges(_of_key(surt_host(place.host), place.port))


def domain_ranges(place: Place) -> tuple[KeyRange, ...]:
    """Keys of a domain and of all hosts under it; an IP address has none under it.

    ``com,example)`` … ``com,example-`` holds ``com,example)`` and ``com,example,``; ports are further on, behind
    ``com,example-foo)``, at ``com,example:``. A domain that itself begins with ``www`` has its own pages one label up.
    """
    if place.is_ip:
        return host_ranges(place)
    key = reverse_labels(place.host)
    first = "," if place.port and place.port not in _DEFAULT_PORTS else ")"
    below = KeyRange(f"{key}{first}".encode("ascii"), f"{key}-".encode("ascii"))
    return merge_ranges([below, *_of_key(key, place.port), *host_ranges(place)])


def reversed_prefix_ranges(host_prefix: str) -> tuple[KeyRange, ...]:
    """Keys of all hosts whose dotted reverse (``com.nytimes.blogs``) starts with ``host_prefix``."""
    ranges = [prefix_range(host_prefix.replace(".", ",").encode("ascii"))]
    above, dot, last = host_prefix.rpartition(".")
    if dot and _MAY_BECOME_WWW.fullmatch(last):
        ranges += _of_key(above.replace(".", ","), None)
    return merge_ranges(ranges)


def path_prefix_ranges(authority: str, path: str, query: str | None) -> tuple[KeyRange, ...]:
    """Keys of URLs whose resolved path and query start so; ``authority`` is a key up to before ``)``.

    A query is sorted in the key, so it narrows nothing. A session id in parentheses is cut out of keys, so nothing
    from a parenthesis on can be relied on. A key has no closing slash: ``/blog/`` itself is found at ``/blog``.
    """
    host = authority + ")"
    whole = path.partition("(")[0]
    without_slash = whole[:-1] if whole.endswith("/") and len(whole) > 1 else whole
    if query is not None and whole == path:
        return merge_ranges(
            [exact_range(host + without_slash), prefix_range(f"{host}{without_slash}?".encode("ascii"))]
        )
    ranges = [prefix_range((host + whole).encode("ascii"))]
    if without_slash != whole:
        ranges += [exact_range(host + without_slash), prefix_range(f"{host}{without_slash}?".encode("ascii"))]
    return merge_ranges(ranges)


def _of_key(host_key: str, port: int | None) -> list[KeyRange]:
    at_default = prefix_range(f"{host_key})".encode("ascii"))
    if port is None:
        return [at_default, prefix_range(f"{host_key}:".encode("ascii"))]
    at_port = prefix_range(f"{host_key}:{port})".encode("ascii"))
    return [at_default, at_port] if port in _DEFAULT_PORTS else [at_port]
