"""An index of targets: finds the targets of a capture among thousands, by dictionaries. A lookup must not compare each
target with each row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cc_pipeline.commoncrawl.domains import is_ip, plain_host
from cc_pipeline.commoncrawl.key_ranges import host_prefixes
from cc_pipeline.commoncrawl.surt import resolved_parts, split_authority, surt_key

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target


_DEFAULT_PORTS = {"http": 80, "https": 443}

_prefix_parts = lru_cache(maxsize=4096)(resolved_parts)
#: Hosts with a cached result: rows of an index are sorted by host.
_REMEMBERED: Final = 65_536
#: Numbers of targets by their port restriction.
_Ports = dict[int | None, list[int]]


def host_of(url: str) -> str:
    """Returns the host as written in ``url``, without port and login; empty if there is none."""
    return split_authority(_authority(url))[0]


def port_of(url: str) -> int | None:
    """Returns the port of a fetch of ``url``; ``None`` if it cannot be determined."""
    written = split_authority(_authority(url))[1]
    if not written:
        return _DEFAULT_PORTS.get(url.partition(":")[0].lower())
    return int(written) if written.isascii() and written.isdigit() and len(written) <= 5 else None


def reversed_url(url: str, host: str | None = None) -> str:
    """Returns ``com.nytimes.www/a?b``: reversed host, path and query as in the 2012 index, without port and scheme."""
    name = plain_host(host if host else host_of(url))
    path_and_query = url.partition("#")[0].partition("://")[2]
    cut = min(
        (position for position in (path_and_query.find("/"), path_and_query.find("?")) if position >= 0),
        default=len(path_and_query),
    )
    tail = path_and_query[cut:]
    labels = name if ":" in name else ".".join(reversed(name.split(".")))
    return labels + (tail if tail.startswith("/") else "/" + tail)


def _authority(url: str) -> str:
    authority = url.partition("://")[2]
    for mark in "/?#":
        authority = authority.partition(mark)[0]
    return authority


def starts_with(url: str, prefix: str) -> bool:
    """Whether the URL starts with the prefix, both in the form of ``resolved_parts``."""
    url_parts, prefix_parts = resolved_parts(url), _prefix_parts(prefix)
    if url_parts is None or prefix_parts is None or url_parts[0] != prefix_parts[0]:
        return False
    if prefix_parts[2] is None:
        return url_parts[1].startswith(prefix_parts[1])
    return url_parts[1] == prefix_parts[1] and (url_parts[2] or "").startswith(prefix_parts[2])


def spellings(url: str, is_complete: bool) -> tuple[str, ...]:
    """Returns the possible keys of ``url`` in a B-tree as prefixes, complete up to the port if ``is_complete``."""
    authority, _, tail = url.partition("://")[2].partition("/")
    host, _ = split_authority(authority)
    label, _, parent_host = host.partition(".")
    www_variant = parent_host if label == "www" or (label[:3] == "www" and label[3:].isdigit()) else f"www.{host}"
    typed = "/" + tail
    canonical = surt_key(url).partition(")")[2] if is_complete else typed
    tails = [typed, typed.lower(), canonical]
    if is_complete:
        tails = [spelling for tail in tails for spelling in _with_and_without_slash(tail)]
    prefixes = []
    for name in (host,) if is_ip(host) else (host, www_variant):
        head = host_prefixes(name)[0].removesuffix("/") if name else ""
        prefixes += [head + tail for tail in tails if head]
    return tuple(dict.fromkeys(prefixes))


def _with_and_without_slash(tail: str) -> tuple[str, ...]:
    path, mark, query = tail.partition("?")
    bare = path.rstrip("/")
    query = mark + query
    ways = (path, bare + "/", *([bare] if bare else []))
    return tuple(dict.fromkeys(f"{way}{query}:" for way in ways))


class PrefixIndex:
    """Numbers by prefixes; a prefix may begin with another one."""

    def __init__(self, numbers: Mapping[str, list[int]]) -> None:
        self._prefixes = sorted(numbers)
        self._numbers = [numbers[prefix] for prefix in self._prefixes]
        #: For each prefix the index of the longest other prefix that it begins with; -1 for none.
        self._shorter: list[int] = []
        place = -1
        for prefix in self._prefixes:
            while place >= 0 and not prefix.startswith(self._prefixes[place]):
                place = self._shorter[place]
            self._shorter.append(place)
            place = len(self._shorter) - 1

    def find_numbers(self, text: str) -> list[int]:
        """Returns the numbers of the prefixes that ``text`` begins with, each once."""
        numbers: list[int] = []
        # the prefix that sorts just before the text begins with every prefix of the text
        place = bisect_right(self._prefixes, text) - 1
        while place >= 0:
            if numbers or text.startswith(self._prefixes[place]):
                numbers += self._numbers[place]
            place = self._shorter[place]
        return numbers


class MemberIndex:
    """Targets (no sets) by their deciding part: the host and its parents, a key, an authority, a reverse.

    A search costs the logarithm of their number, plus its results."""

    def __init__(self, members: Sequence[Target]) -> None:
        self._domain_members: dict[str, _Ports] = {}
        self._host_members: dict[str, _Ports] = {}
        self._keys: dict[bytes, list[int]] = {}
        paths: dict[str, dict[str, list[int]]] = {}
        reverses: dict[str, list[int]] = {}
        self._whatever: list[int] = []
        for number, member in enumerate(members):
            if member.place is not None:
                is_host_only = member.kind == "host" or member.place.is_ip
                by_port = (self._host_members if is_host_only else self._domain_members).setdefault(
                    member.place.host, {}
                )
                by_port.setdefault(member.place.port, []).append(number)
            elif member.kind == "url":
                self._keys.setdefault(member.ranges[0].start, []).append(number)
            elif member.kind == "captures":
                self._whatever.append(number)
            elif member.kind == "rev":
                reverses.setdefault(member.value, []).append(number)
            else:
                parts = resolved_parts(member.value)
                assert parts is not None, "a prefix has a host"
                authority, path, query = parts
                prefix = path if query is None else f"{path}?{query}"
                paths.setdefault(authority, {}).setdefault(prefix, []).append(number)
        self._paths = {authority: PrefixIndex(prefixes) for authority, prefixes in paths.items()}
        self._reverses = PrefixIndex(reverses) if reverses else None
        self._ports_by_host: dict[str, tuple[_Ports, ...]] = {}

    def find_members(self, url: str, host: str | None = None) -> list[int]:
        """Returns the numbers of the members that match a capture of ``url``; ``host`` as in ``Target.matches``."""
        written = host if host else host_of(url)
        by_host = self._ports_by_host.get(written)
        if by_host is None:
            if len(self._ports_by_host) >= _REMEMBERED:
                self._ports_by_host.clear()
            by_host = self._ports_by_host[written] = self._find_ports(plain_host(written))
        numbers: list[int] = []
        for ports in by_host:
            numbers += ports.get(None, ())
            if len(ports) > (None in ports) and (port := port_of(url)) is not None:
                numbers += ports.get(port, ())
        if self._keys:
            numbers += self._keys.get(surt_key(url).encode("ascii"), ())
        if self._paths and (parts := resolved_parts(url)) is not None and parts[0] in self._paths:
            numbers += self._paths[parts[0]].find_numbers(f"{parts[1]}?{parts[2] or ''}")
        if self._reverses is not None:
            numbers += self._reverses.find_numbers(reversed_url(url, host))
        return numbers + self._whatever

    def _find_ports(self, name: str) -> tuple[_Ports, ...]:
        places = [self._host_members.get(name), self._domain_members.get(name)]
        parent = name
        while "." in parent:
            parent = parent.partition(".")[2]
            places.append(self._domain_members.get(parent))
        return tuple(place for place in places if place)
