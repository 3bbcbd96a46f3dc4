"""An index of targets: which of thousands a capture belongs to, by dictionaries. A look-up must not ask each target
about each row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cc_pipeline.commoncrawl.domains import is_ip, plain_host
from cc_pipeline.commoncrawl.key_ranges import host_prefixes
from cc_pipeline.commoncrawl.surt import resolved_parts, split_authority, surt_key

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target


_DEFAULT_PORTS = {"http": 80, "https": 443}

_prefix_parts = lru_cache(maxsize=4096)(resolved_parts)
#: Hosts whose answer is remembered: rows of an index come host by host.
_REMEMBERED: Final = 65_536
#: The number of a target, and the port it is restricted to.
_OfHost = tuple[tuple[int, int | None], ...]


def host_of(url: str) -> str:
    """The host as written in ``url``, without port and login; empty where there is none."""
    return split_authority(_authority(url))[0]


def port_of(url: str) -> int | None:
    """The port a fetch of ``url`` goes to; ``None`` where it cannot be told."""
    written = split_authority(_authority(url))[1]
    if not written:
        return _DEFAULT_PORTS.get(url.partition(":")[0].lower())
    return int(written) if written.isascii() and written.isdigit() and len(written) <= 5 else None


def reversed_url(url: str, host: str | None = None) -> str:
    """``com.nytimes.www/a?b``: reversed host, path and query as the 2012 index has them, without port and scheme."""
    name = plain_host(host if host else host_of(url))
    rest = url.partition("#")[0].partition("://")[2]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    tail = rest[cut:]
    labels = name if ":" in name else ".".join(reversed(name.split(".")))
    return labels + (tail if tail.startswith("/") else "/" + tail)


def _authority(url: str) -> str:
    rest = url.partition("://")[2]
    for mark in "/?#":
        rest = rest.partition(mark)[0]
    return rest


def starts_with(url: str, prefix: str) -> bool:
    """Whether the URL starts so, both brought to the common form of ``resolved_parts``."""
    found, wanted = resolved_parts(url), _prefix_parts(prefix)
    if found is None or wanted is None or found[0] != wanted[0]:
        return False
    if wanted[2] is None:
        return found[1].startswith(wanted[1])
    return found[1] == wanted[1] and (found[2] or "").startswith(wanted[2])


def spellings(url: str, whole: bool) -> tuple[str, ...]:
    """Ways in which pages of ``url`` may stand in a B-tree: key prefixes, complete up to the port if ``whole``."""
    authority, _, tail = url.partition("://")[2].partition("/")
    host, _ = split_authority(authority)
    label, _, above = host.partition(".")
    other = above if label == "www" or (label[:3] == "www" and label[3:].isdigit()) else f"www.{host}"
    typed = "/" + tail
    canonical = surt_key(url).partition(")")[2] if whole else typed
    tails = [typed, typed.lower(), canonical]
    if whole:
        tails = [spelling for tail in tails for spelling in _with_and_without_slash(tail)]
    found = []
    for name in (host,) if is_ip(host) else (host, other):
        head = host_prefixes(name)[0].removesuffix("/") if name else ""
        found += [head + tail for tail in tails if head]
    return tuple(dict.fromkeys(found))


def _with_and_without_slash(tail: str) -> tuple[str, ...]:
    path, mark, query = tail.partition("?")
    bare = path.rstrip("/")
    query = mark + query
    ways = (path, bare + "/", *([bare] if bare else []))
    return tuple(dict.fromkeys(f"{way}{query}:" for way in ways))


class MemberIndex:
    """Targets (no sets) by what decides about them: the host and those above it, a key, an authority, a reverse."""

    def __init__(self, members: Sequence[Target]) -> None:
        self._members = members
        self._under: dict[str, list[tuple[int, int | None]]] = {}
        self._alone: dict[str, list[tuple[int, int | None]]] = {}
        self._keys: dict[bytes, list[int]] = {}
        self._authorities: dict[str, list[int]] = {}
        self._reverses: dict[str, list[int]] = {}
        self._whatever: list[int] = []
        for number, member in enumerate(members):
            self._add(number, member)
        self._lengths = sorted({len(value) for value in self._reverses})
        self._known: dict[str, _OfHost] = {}

    def of(self, url: str, host: str | None = None) -> list[int]:
        """Numbers of the members that a capture of ``url`` is of, as their ``matches`` says; ``host`` as there."""
        written = host if host else host_of(url)
        by_host = self._known.get(written)
        if by_host is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            by_host = self._known[written] = self._of_host(plain_host(written))
        found = [number for number, port in by_host if port is None or port == port_of(url)]
        if self._keys:
            found += self._keys.get(surt_key(url).encode("ascii"), ())
        if self._authorities and (parts := resolved_parts(url)) is not None:
            near = self._authorities.get(parts[0], ())
            found += [number for number in near if self._members[number].matches(url, host)]
        if self._reverses:
            text = reversed_url(url, host)
            for length in self._lengths:
                found += self._reverses.get(text[:length], ())
        return found + self._whatever

    def _add(self, number: int, member: Target) -> None:
        if member.place is not None:
            alone = member.kind == "host" or member.place.is_ip
            by_host = self._alone if alone else self._under
            by_host.setdefault(member.place.host, []).append((number, member.place.port))
        elif member.kind == "url":
            self._keys.setdefault(member.ranges[0].start, []).append(number)
        elif member.kind == "captures":
            self._whatever.append(number)
        elif member.kind == "rev":
            self._reverses.setdefault(member.value, []).append(number)
        else:
            parts = resolved_parts(member.value)
            assert parts is not None, "a prefix has a host"
            self._authorities.setdefault(parts[0], []).append(number)

    def _of_host(self, name: str) -> _OfHost:
        found = [*self._alone.get(name, ()), *self._under.get(name, ())]
        above = name
        while "." in above:
            above = above.partition(".")[2]
            found += self._under.get(above, ())
        return tuple(found)
