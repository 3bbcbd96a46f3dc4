"""Ranges of keys: indexes are sorted by key, so a target is a few sorted, disjoint ranges, searched by bisection. Also
the keys of the 2012 B-tree, which differ from SURT keys."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from cc_pipeline.commoncrawl.surt import canonical_host

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/*([^/?#]*)([^#]*)", re.DOTALL)
_SCHEME_AT_END = re.compile(r"(.*):([a-z][a-z0-9+.-]*)", re.DOTALL)
_PORT_AT_END = re.compile(r"(.*):([0-9]{1,5})", re.DOTALL)
_REAL_HOST = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}|(?:[A-Za-z]{2,}|[xX][nN]--[A-Za-z0-9-]+)(?:\.[A-Za-z0-9_-]+)+")


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """All keys ``k`` with ``start <= k < end``; ``end`` is ``None`` for "to the end of the index".

    Keys are bytes because every index of Common Crawl is sorted bytewise, whatever the reader's locale.
    """

    start: bytes
    end: bytes | None

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)


def prefix_range(prefix: bytes) -> KeyRange:
    """Returns the range of all keys that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    end = trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
    return KeyRange(prefix, end)


def reverse_dots(host: str) -> str:
    """Returns ``www.example.com`` as ``com.example.www``; its own inverse."""
    return ".".join(reversed(host.split(".")))


def btree_key(url: str) -> bytes:
    """Returns the key of ``url`` in a B-tree index. A URL without a path gets ``/``; one without a scheme is ``http``.

    A host name is written in lower case and ASCII, as in the published index, so that it can be found. A closing dot
    stays, and comes first: ``.com.example/``.

    Never raises; bytes are UTF-8 with ``surrogateescape``, and a NUL, which ends keys, is written ``%00``.
    """
    match = _PARTS.fullmatch(url.partition("#")[0]) if "://" in url or url[:5].lower() == "http:" else None
    if match is None:
        match = _PARTS.fullmatch("http://" + url.partition("#")[0].lstrip("/"))
    assert match is not None, "the pattern accepts everything after http://"
    scheme, authority, tail = match.groups()
    host, colon, port_or_login = authority.partition(":")
    if not tail.startswith("/"):
        tail = "/" + tail
    plain = host.lower() if host.isascii() else canonical_host(host)
    reversed_host = reverse_dots(plain)
    if not _REAL_HOST.fullmatch(reversed_host):
        reversed_host = reverse_dots(host)
    key = f"{reversed_host}{tail}{colon if port_or_login else ''}{port_or_login}:{scheme.lower()}"
    return key.replace("\0", "%00").encode(
        "utf-8", "surrogatepass" if _has_unescapable_surrogates(key) else "surrogateescape"
    )


def url_of_btree_key(key: bytes) -> str:
    """Returns the URL of ``key``; its ``btree_key`` is ``key`` again.

    ``…/a:8080:http`` is read as port 8080, although a path may end like that; ``…/page:12:http`` is read as a path.
    Text with an ``@`` after the path is a login (``http://user:password@host/``) only if the key does not begin with a
    real host name.
    """
    text = key.decode("utf-8", "surrogateescape")
    match = _SCHEME_AT_END.fullmatch(text)
    body, scheme = (match[1], match[2]) if match else (text, "http")
    head = re.split(r"[/?]", body, maxsplit=1)[0]
    port_or_login = ""
    if not _REAL_HOST.fullmatch(head) and (login := _login_at_end(body)):
        body, port_or_login = body[: -len(login) - 1], login
    elif (port := _PORT_AT_END.fullmatch(body)) and _is_port(head, port[1], int(port[2])):
        body, port_or_login = port[1], port[2]
    tail = body[len(head) :]
    return f"{scheme}://{reverse_dots(head)}{':' + port_or_login if port_or_login else ''}{tail}"


def host_prefixes(host: str) -> tuple[str, ...]:
    """Returns the prefixes of the keys of exactly this host, with any port."""
    shown_host = f"[{host}]" if ":" in host else host
    key = btree_key(f"http://{shown_host}/").decode("utf-8", "surrogateescape")
    return (key[: key.index("/") + 1],)


def domain_prefixes(domain: str) -> tuple[str, ...]:
    """Returns the prefixes of the keys of a domain and of all hosts under it. ``.`` and ``/`` are neighbours in ASCII,
    so the two prefixes are one range of the index."""
    reversed_domain = reverse_dots(domain)
    return (reversed_domain + ".", reversed_domain + "/")


def _login_at_end(body: str) -> str:
    """Returns ``password@host`` in the last part of a path: after the first colon with an ``@`` before the next one."""
    end = max(body.rfind("/"), body.rfind("?")) + 1
    pieces = body[end:].split(":")
    for number, piece in enumerate(pieces[1:], start=1):
        if end and "@" in piece:
            return ":".join(pieces[number:])
    return ""


def _is_port(head: str, path: str, number: int) -> bool:
    if "/" not in path or not 1 <= number <= 65535:
        return False
    # Sites that name their page numbers (/view/page:12) outnumber names with ports below 80.
    return number >= 80 or head[:1].isdigit() or not path.rsplit("/", 1)[-1].isalpha()


def _has_unescapable_surrogates(text: str) -> bool:
    return not text.isascii() and any(
        "\ud800" <= character <= "\udfff" and not "\udc80" <= character <= "\udcff" for character in text
    )


def merge_ranges(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Returns the keys of ``ranges`` as the fewest ranges, sorted; overlapping and touching ranges are joined."""
    merged: list[KeyRange] = []
    for item in sorted(ranges, key=lambda key_range: key_range.start):
        if item.end is not None and item.end <= item.start:
            continue
        if merged and (merged[-1].end is None or item.start <= merged[-1].end):
            last = merged[-1]
            end = None if last.end is None or item.end is None else max(last.end, item.end)
            merged[-1] = KeyRange(last.start, end)
        else:
            merged.append(item)
    return tuple(merged)


class RangeSet(Sequence[KeyRange]):
    """A set of keys, as the fewest ranges. A search in two hundred thousand of them takes a microsecond."""

    __slots__ = ("_ranges", "_starts")

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        self._ranges = merge_ranges(ranges)
        self._starts = [key_range.start for key_range in self._ranges]

    def __len__(self) -> int:
        return len(self._ranges)

    @overload
    def __getitem__(self, place: int) -> KeyRange: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[KeyRange]: ...

    def __getitem__(self, place: int | slice) -> KeyRange | Sequence[KeyRange]:
        return self._ranges[place]

    def touches(self, start: bytes, end: bytes | None) -> bool:
        """Whether any range has a key from ``start`` to before ``end`` (``None``: to the end of all keys)."""
        next_index = bisect_right(self._starts, start)
        if next_index:
            previous_end = self._ranges[next_index - 1].end
            if previous_end is None or previous_end > start:
                return True
        return next_index < len(self._starts) and (end is None or self._starts[next_index] < end)

    def near(self, low: bytes | None, high: bytes | None) -> tuple[KeyRange, ...]:
        """Returns the ranges that may have keys of a block from ``low`` to ``high`` (inclusive; ``None``: unknown)."""
        first, stop = self._span(low, high)
        return self._ranges[first:stop]

    def meets(self, low: bytes | None, high: bytes | None) -> bool:
        """Whether any range may have a key of a block from ``low`` to ``high``."""
        first, stop = self._span(low, high)
        return first < stop

    def _span(self, low: bytes | None, high: bytes | None) -> tuple[int, int]:
        first = 0
        if low is not None:
            first = max(0, bisect_right(self._starts, low) - 1)
            if first < len(self._ranges):
                end = self._ranges[first].end
                if end is not None and end <= low:
                    first += 1
        stop = len(self._ranges) if high is None else bisect_right(self._starts, high)
        return first, stop


def common_ranges(first: Iterable[KeyRange], second: RangeSet) -> tuple[KeyRange, ...]:
    """Returns the ranges of the common keys."""
    return merge_ranges(
        KeyRange(
            max(keys.start, near.start), min((end for end in (keys.end, near.end) if end is not None), default=None)
        )
        for keys in first
        for near in second.near(keys.start, keys.end)
    )


def range_set(ranges: Sequence[KeyRange]) -> RangeSet:
    """Returns ``ranges`` as a ``RangeSet``; the same object if it is one."""
    return ranges if isinstance(ranges, RangeSet) else RangeSet(ranges)
