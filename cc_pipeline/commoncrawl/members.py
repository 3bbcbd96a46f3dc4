"""Which of many targets a capture is of: a question to dictionaries, whatever their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cc_pipeline.commoncrawl.domains import plain_host
from cc_pipeline.commoncrawl.surt import resolved_parts, surt_key
from cc_pipeline.commoncrawl.url_parts import host_of, port_of, reversed_url

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target

#: Hosts whose answer is remembered: rows of an index come host by host.
_REMEMBERED: Final = 65_536
#: The number of a target, and the port it is restricted to.
_OfHost = tuple[tuple[int, int | None], ...]


class MemberIndex:
    """Targets (no sets) by what decides about them: the host and those above it, a key, an authority, a reverse."""

    def __init__(self, members: Sequence[Target]) -> None:
        self._members = members
        self._under: dict[str, list[tuple[int, int | None]]] = {}
        self._alone: dict[str, list[tuple[int, int | None]]] = {}
        self._keys: dict[bytes, list[int]] = {}
        self._authorities: dict[str, list[int]] = {}
        self._reverses: dict[str, list[int]] = {}
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
        return found

    def _add(self, number: int, member: Target) -> None:
        if member.place is not None:
            alone = member.kind == "host" or member.place.is_ip
            by_host = self._alone if alone else self._under
            by_host.setdefault(member.place.host, []).append((number, member.place.port))
        elif member.kind == "url":
            self._keys.setdefault(member.ranges[0].start, []).append(number)
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
