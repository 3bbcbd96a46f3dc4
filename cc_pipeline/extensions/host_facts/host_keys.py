"""Host keys: the common key for joining all data that is published by host, whatever form its hosts have.

The key is the IA's SURT of the host (``surt.py``), as in the host index: ``www.example.com`` and ``example.com`` are
both ``com,example``. Three forms are parsed: a plain host, a reversed host (``com.example.www``, as in the web graph)
and the SURT key itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from cc_pipeline.commoncrawl.domains import is_ip, registered_domain
from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet, merge_ranges, prefix_range, reverse_dots
from cc_pipeline.commoncrawl.matching import host_of, port_of
from cc_pipeline.commoncrawl.surt import (
    canonical_host,
    has_several_www,
    reverse_labels,
    split_authority,
    surt_host,
    surt_key,
)
from cc_pipeline.commoncrawl.target import GIVEN_KIND, MAY_BECOME_WWW, Target, exact_range
from cc_pipeline.errors import UserInputError

#: How a column writes hosts: ``com,example``, ``com.example.www``, ``www.example.com``.
HostForm = Literal["surt_host", "reversed_host", "host"]
#: Treatment of a leading ``www.``: ``folded`` into the host without it, ``kept``, or ``stripped``.
WwwRule = Literal["folded", "kept", "stripped"]

_WWW: Final = re.compile(r"www[0-9]*\.")
_DEFAULT_PORTS: Final = (80, 443)
_SURT_END: Final = ")/"
_EVERYTHING: Final = KeyRange(b"", None)


@dataclass(frozen=True, slots=True)
class HostKey:
    """The key of a host for joins.

    ``surt`` is the SURT host key, with ``:port`` unless it is the default port. ``domain`` is the registered domain;
    ``None`` for an IP address, and for a key such as ``com``, the key of ``www.com``. ``www`` is whether the host began
    with ``www.`` (or ``www2.`` …); ``None`` if its form has lost that.
    """

    surt: str
    domain: str | None
    www: bool | None

    @property
    def host(self) -> str:
        """The host without ``www``, with its port."""
        return host_of_surt(self.surt)


@lru_cache(maxsize=65536)
def host_key(text: str, form: HostForm = "host", scheme: str = "http") -> HostKey | None:
    """The key of a host in ``form``, perhaps with a port; ``None`` for text that names no host.

    ``scheme`` gives the default port: 80, or 443 for ``https``. Never raises.
    """
    if not text or text.isspace():
        return None
    if form == "surt_host":
        return HostKey(text, registered_domain(_without_port(host_of_surt(text))), None)
    if form == "reversed_host":
        text = _restore_order(text)
    host, port = (text, "") if is_ip(text) else split_authority(text)
    name = canonical_host(host)
    if not name:
        return None
    url_host = f"[{name}]" if ":" in name else name
    key = surt_key(f"{scheme}://{url_host}{':' if port else ''}{port}/").removesuffix(_SURT_END)
    if has_several_www(name):
        key = host_index_key(name) + "".join(key.partition(":")[1:])
    return HostKey(key, registered_domain(name), _WWW.match(name) is not None)


def host_index_key(host: str) -> str:
    """The key of a ``host`` (no port) in Common Crawl's host index. The index is built with the Python package
    ``surt``, which drops only the first ``www`` label; keys of URLs drop all.
    """
    name = canonical_host(host)
    return reverse_labels(name.partition(".")[2]) if has_several_www(name) else surt_host(host)


def host_of_surt(key: str) -> str:
    """The host of a key: ``example.com:8443`` of ``com,example:8443``. An IPv6 address is its own key."""
    if is_ip(key):
        return key
    labels, colon, port = key.partition(":")
    return ".".join(reversed(labels.split(","))) + colon + port


def _restore_order(text: str) -> str:
    """A reversed host, perhaps with a port, in normal order."""
    if is_ip(text) and ":" in text:
        return text
    labels, colon, port = text.partition(":")
    return reverse_dots(labels) + colon + port


def _without_port(host: str) -> str:
    return host if is_ip(host) else host.partition(":")[0]


@dataclass(frozen=True, slots=True)
class _Span:
    """Hosts of a target: the host ``key`` (SURT), with ``with_subdomains`` also its subdomains, at one ``port`` or at
    all ports. With ``is_label_prefix``, the key is a prefix that may end within a label."""

    key: str
    with_subdomains: bool = False
    port: int | None = None
    is_label_prefix: bool = False


class HostRanges:
    """The hosts of some targets as ranges of keys in any of the forms. The host of a URL or prefix is included."""

    def __init__(self, *targets: Target) -> None:
        self._spans = tuple(dict.fromkeys(span for target in targets for span in _spans_of(target)))
        self._surt = RangeSet(key_range for span in self._spans for key_range in _surt_ranges(span))

    def ranges_in(self, form: HostForm, www: WwwRule = "folded") -> tuple[KeyRange, ...]:
        """Ranges of keys of a column that may belong to these hosts; ``contains`` decides.

        Plain hosts are not sorted by domain: their range may contain all keys.
        """
        if form == "surt_host":
            return tuple(self._surt)
        ranges_of_span = _reversed_ranges if form == "reversed_host" else _plain_ranges
        return merge_ranges(key_range for span in self._spans for key_range in ranges_of_span(span, www))

    def contains(self, key: str) -> bool:
        """Whether the host with this SURT key is included."""
        return self._surt.holds(key.encode("utf-8", "surrogateescape"))

    def endings(self) -> frozenset[str] | None:
        """The last labels of these hosts; ``None`` if they are not known, as for IP addresses."""
        last_labels = set()
        for span in self._spans:
            last, comma, _ = span.key.partition(",")
            if is_ip(host_of_surt(span.key)) or (span.is_label_prefix and not comma):
                return None
            last_labels.add(last)
        return frozenset(last_labels)

    def names(self) -> tuple[str, ...] | None:
        """The plain names (without port) of these hosts, or of hosts above them; ``None`` if they are not known."""
        if any(span.is_label_prefix for span in self._spans):
            return None
        return tuple(dict.fromkeys(host_of_surt(span.key) for span in self._spans))

    @property
    def surt(self) -> tuple[KeyRange, ...]:
        """The ranges of SURT host keys, sorted and disjoint. They are exact: no other host has such a key."""
        return tuple(self._surt)


def _spans_of(target: Target) -> Iterable[_Span]:
    if target.kind == "set":
        for member in target.members:
            yield from _spans_of(member)
    elif target.kind in ("url", "prefix"):
        port = port_of(target.value)
        yield _Span(host_index_key(host_of(target.value)), port=port)
    elif target.kind == "rev":
        name, slash, _ = target.value.partition("/")
        if slash:
            yield _Span(host_index_key(reverse_dots(name)))
            return
        yield _Span(name.replace(".", ","), is_label_prefix=True)
        parent, dot, last = name.rpartition(".")
        if dot and MAY_BECOME_WWW.fullmatch(last):
            yield _Span(parent.replace(".", ","))
    elif target.kind == GIVEN_KIND:
        raise UserInputError(
            f"{target.written} is a list of captures, not of hosts: only a condition (where …) can select from it"
        )
    else:
        place = target.place
        assert place is not None, "all other kinds have a host"
        yield _Span(host_index_key(place.host), port=place.port)
        if target.kind != "host" and not place.is_ip:
            yield _Span(reverse_labels(place.host), with_subdomains=True, port=place.port)


def _surt_ranges(span: _Span) -> Iterable[KeyRange]:
    if span.is_label_prefix:
        yield prefix_range(span.key.encode())
        return
    if span.port is None:
        yield exact_range(span.key)
        if not is_ip(span.key):
            yield prefix_range(f"{span.key}:".encode())
    else:
        yield exact_range(f"{span.key}:{span.port}")
        if span.port in _DEFAULT_PORTS:
            yield exact_range(span.key)
    if span.with_subdomains:
        # Subdomains at one port are not adjacent, so the range has those of every port, as in a host index.
        yield prefix_range(f"{span.key},".encode())


def _reversed_ranges(span: _Span, www: WwwRule) -> Iterable[KeyRange]:
    name = span.key if is_ip(span.key) else span.key.replace(",", ".")
    if span.is_label_prefix:
        yield prefix_range(name.encode())
        return
    yield exact_range(name)
    yield prefix_range(f"{name}:".encode())
    if span.with_subdomains:
        yield prefix_range(f"{name}.".encode())
    elif www != "folded":
        # where `www` is stripped, `www2` is not
        yield prefix_range(f"{name}.www".encode())


def _plain_ranges(span: _Span, www: WwwRule) -> Iterable[KeyRange]:
    if span.with_subdomains or span.is_label_prefix:
        yield _EVERYTHING
        return
    name = host_of_surt(span.key)
    yield exact_range(name)
    yield prefix_range(f"{name}:".encode())
    if www != "folded":
        yield exact_range(f"www.{name}")
        yield prefix_range(f"www.{name}:".encode())
        yield KeyRange(b"www0", b"www:")
