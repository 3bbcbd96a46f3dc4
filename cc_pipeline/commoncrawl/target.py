"""Targets: kind, slug, the captures they match, and the key ranges that can hold them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cc_pipeline.commoncrawl.domains import HostPort, plain_host, spellings_of_host
from cc_pipeline.commoncrawl.key_ranges import (
    KeyRange,
    domain_prefixes,
    host_prefixes,
    merge_ranges,
    prefix_range,
    reverse_dots,
)
from cc_pipeline.commoncrawl.matching import MemberIndex, host_of, port_of, reversed_url, spellings, starts_with
from cc_pipeline.commoncrawl.surt import (
    KeyRule,
    find_partial_character,
    resolved_parts,
    reverse_labels,
    surt_host,
    surt_key,
)

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.conditions import Condition

#: The last, possibly incomplete label of a reversed prefix, if it may become a ``www`` label.
MAY_BECOME_WWW = re.compile(r"|w|ww|www[0-9]*")
_PORTS_LEFT_OUT = (80, 443)
#: The kind of a target of named captures, which a user listed one by one: a URL does not decide whether it belongs.
GIVEN_KIND: Final = "captures"


def exact_range(key: str) -> KeyRange:
    """Returns the range of exactly this key."""
    start = key.encode("ascii")
    return KeyRange(start, start + b"\0")


def _ranges_of(target: Target, rule: KeyRule) -> tuple[KeyRange, ...]:
    value, place = target.value, target.place
    if target.kind == GIVEN_KIND:
        return (KeyRange(b"", None),)
    if target.kind == "set":
        return merge_ranges(key_range for member in target.members for key_range in member.ranges_by(rule))
    if target.kind == "url":
        return (exact_range(surt_key(value, rule)),)
    if target.kind == "prefix":
        return _prefix_ranges(value, rule)
    if target.kind == "rev":
        name, slash, _ = value.partition("/")
        # A path after it makes the host complete; the path is compared as written, and keys do not have it as written.
        return host_ranges(HostPort(reverse_dots(name))) if slash else reversed_prefix_ranges(name)
    assert place is not None, "all other kinds have a host"
    return host_ranges(place) if target.kind == "host" else domain_ranges(place)


def _prefix_ranges(value: str, rule: KeyRule) -> tuple[KeyRange, ...]:
    parts = resolved_parts(value, rule)
    assert parts is not None, "it has a host"
    authority, path, query = parts
    ranges = path_prefix_ranges(authority, path, query)
    today = resolved_parts(value)
    if rule is KeyRule.TODAY or today is None or query is not None or not (partial := find_partial_character(today[1])):
        return ranges
    # only the bytes after them show whether the last bytes are part of a character
    complete_path = path.removesuffix(partial.replace("%", "%25"))
    return merge_ranges([*ranges, *path_prefix_ranges(authority, complete_path + partial, None)])


def host_ranges(place: HostPort) -> tuple[KeyRange, ...]:
    """Returns the keys of one host in all spellings of crawlers. Without a port: of every port."""
    spellings = spellings_of_host(place.host)
    return merge_ranges(keys for spelling in spellings for keys in _host_key_ranges(surt_host(spelling), place.port))


def domain_ranges(place: HostPort) -> tuple[KeyRange, ...]:
    """Returns the keys of a domain and of all hosts under it; an IP address has none under it.

    ``com,example)`` … ``com,example-`` holds ``com,example)`` and ``com,example,``; ports come later, after
    ``com,example-foo)``, at ``com,example:``. A domain that itself begins with ``www`` has its own pages one label up.
    """
    if place.is_ip:
        return host_ranges(place)
    key = reverse_labels(place.host)
    if place.port is None and surt_host(place.host) == key:
        # the fast path of most domains, with the same result as below
        plain = key.encode("ascii")
        return (KeyRange(plain + b")", plain + b"-"), KeyRange(plain + b":", plain + b";"))
    first = "," if place.port and place.port not in _PORTS_LEFT_OUT else ")"
    subdomains = KeyRange(f"{key}{first}".encode("ascii"), f"{key}-".encode("ascii"))
    return merge_ranges([subdomains, *_host_key_ranges(key, place.port), *host_ranges(place)])


def reversed_prefix_ranges(host_prefix: str) -> tuple[KeyRange, ...]:
    """Returns the keys of all hosts whose dotted reverse (``com.nytimes.blogs``) starts with ``host_prefix``."""
    ranges = [prefix_range(host_prefix.replace(".", ",").encode("ascii"))]
    parent, dot, last = host_prefix.rpartition(".")
    if dot and MAY_BECOME_WWW.fullmatch(last):
        ranges += _host_key_ranges(surt_host(reverse_dots(parent)), None)
    return merge_ranges(ranges)


def path_prefix_ranges(authority: str, path: str, query: str | None) -> tuple[KeyRange, ...]:
    """Returns the keys of URLs whose resolved path and query start so; ``authority`` is a key up to before ``)``.

    A query is sorted in the key, so it does not narrow the range. A session id in parentheses is removed from keys, so
    the path counts only up to a parenthesis. A key has no closing slash: ``/blog/`` itself is found at ``/blog``.
    """
    host = authority + ")"
    stable_path = path.partition("(")[0]
    without_slash = stable_path[:-1] if stable_path.endswith("/") and len(stable_path) > 1 else stable_path
    if query is not None and stable_path == path:
        return merge_ranges(
            [exact_range(host + without_slash), prefix_range(f"{host}{without_slash}?".encode("ascii"))]
        )
    ranges = [prefix_range((host + stable_path).encode("ascii"))]
    if without_slash != stable_path:
        ranges += [exact_range(host + without_slash), prefix_range(f"{host}{without_slash}?".encode("ascii"))]
    return merge_ranges(ranges)


def _host_key_ranges(host_key: str, port: int | None) -> list[KeyRange]:
    at_default = prefix_range(f"{host_key})".encode("ascii"))
    if port is None:
        return [at_default, prefix_range(f"{host_key}:".encode("ascii"))]
    at_port = prefix_range(f"{host_key}:{port})".encode("ascii"))
    return [at_default, at_port] if port in _PORTS_LEFT_OUT else [at_port]


#: Separates the slug of a target from the hash of the condition on its captures. A slug without a condition cannot have
#: it: only names of sets and of named captures have two ``_`` in a row, and their slugs have no dot.
WHERE_SLUG = "__where."

#: The number of members in a description of a set.
_DESCRIBED = 20

#: Part of ``Target.version``: increased when the meaning of a kind changes.
RULES = 1

_SENTENCES = {
    "domain": "{value} and all hosts under it",
    "host": "the host {value} alone",
    "url": "the page {value}, whatever its scheme, www, case and parameter order",
    "prefix": "all URLs that start with {value}, whatever their scheme, www and case",
    "tld": "all hosts under the top-level domain .{value}",
    "suffix": "{value} and all hosts under it",
    "rev": "all URLs whose reversed host and path start with {value}",
    GIVEN_KIND: "the captures that were added as {value}",
}


def by_subsets(targets: Iterable[Target], default: Sequence[str]) -> dict[tuple[str, ...], list[Target]]:
    """Groups the targets by the subsets of a crawl that each requests."""
    targets_by_subsets: dict[tuple[str, ...], list[Target]] = {}
    for target in targets:
        targets_by_subsets.setdefault(target.subsets(default), []).append(target)
    return targets_by_subsets


def version_of(definition: str) -> str:
    """Returns a short hash of a definition and of the rules of this module."""
    return hashlib.sha256(f"{RULES}\n{definition}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to look up.

    ``kind`` is one of domain, host, url, prefix, tld, suffix, rev, set, captures; ``value`` its definition without the
    kind, in normal form; ``slug`` its partition key. ``members`` are the targets of a set, ``place`` the host and port
    of the kinds that have one, ``file`` the name of the file with a set's members (empty: they are in its definition),
    ``where`` the condition on its captures, in normal form. ``name`` is the name of a set as written, if that has
    capital letters.
    """

    kind: str
    value: str
    slug: str
    members: tuple[Target, ...] = ()
    place: HostPort | None = None
    file: str = ""
    where: str = ""
    name: str = ""
    _ranges: tuple[KeyRange, ...] | None = field(default=None, init=False, compare=False, repr=False)
    _version: str = field(default="", init=False, compare=False, repr=False)
    _index: MemberIndex | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def definition(self) -> str:
        """The text that ``parse_target`` reads as this target; a line of the watch list."""
        return self._with_condition(f"set:{self.name or self.value} = @{self.file}") if self.file else self.written

    @property
    def written(self) -> str:
        """The same with the members of a set written out, even those of a file."""
        if self.kind == "domain":
            written = self.value
        elif self.kind == "set" and self.slug.startswith("set-"):
            written = f"set:{self.name or self.value} = " + ", ".join([member.written for member in self.members])
        elif self.kind == "set":
            written = "rev:" + ", ".join(member.value for member in self.members)
        else:
            written = f"{self.kind}:{self.value}"
        return self._with_condition(written)

    def _with_condition(self, written: str) -> str:
        return f"{written} where {self.where}" if self.where else written

    @property
    def condition(self) -> Condition | None:
        """The condition on its captures; ``None``: all captures."""
        from cc_pipeline.commoncrawl.conditions import parse_condition  # noqa: PLC0415  # needs Arrow

        return parse_condition(self.where) if self.where else None

    def subsets(self, default: Sequence[str]) -> tuple[str, ...]:
        """Returns the subsets of a crawl that its condition names, else the ``default``."""
        return (self.condition.subsets if self.condition else ()) or tuple(default)

    def where_too(self, where: str) -> Target:
        """Returns the target with one more condition: another target, with another slug. Raises ``UserInputError``."""
        from cc_pipeline.commoncrawl.conditions import join_conditions, parse_condition  # noqa: PLC0415

        text = parse_condition(join_conditions(self.where, where)).text
        slug = self.slug.partition(WHERE_SLUG)[0]
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return replace(self, slug=f"{slug}{WHERE_SLUG}{digest}", where=text)

    @property
    def version(self) -> str:
        """``version_of`` the text in ``written``; a set's slug stays when its members change. The version of named
        captures is in the lake, with the captures (``lake/target_definitions.py``)."""
        if not self._version:
            object.__setattr__(self, "_version", version_of(self.written))
        return self._version

    @property
    def ranges(self) -> tuple[KeyRange, ...]:
        """The ranges of its possible SURT keys (sorted, disjoint); ``matches`` decides about a capture in them."""
        # computed on first use: most members of a large set are never looked up
        if self._ranges is None:
            object.__setattr__(self, "_ranges", _ranges_of(self, KeyRule.TODAY))
        assert self._ranges is not None
        return self._ranges

    def ranges_by(self, rule: KeyRule) -> tuple[KeyRange, ...]:
        """Returns the same for an index that follows ``rule``; ``ranges`` are those of today's rule."""
        if rule is KeyRule.TODAY or (self.kind != "set" and "%" not in self.value and self.value.isascii()):
            return self.ranges
        return _ranges_of(self, rule)

    def describe(self) -> str:
        """Returns one sentence for the user."""
        return f"{self._described()}; only where {self.where}" if self.where else self._described()

    def _described(self) -> str:
        if self.kind == "set":
            descriptions = "; ".join(member.describe() for member in self.members[:_DESCRIBED])
            omitted = len(self.members) - _DESCRIBED
            return f"{len(self.members)} targets: {descriptions}" + (f"; and {omitted:,} more" if omitted > 0 else "")
        sentence = _SENTENCES[self.kind].format(value=self.value)
        return f"the IP address {self.value}" if self.place and self.place.is_ip else sentence

    def matches(self, url: str, host: str | None = None) -> bool:
        """Whether a capture of ``url`` belongs here. ``host`` is its ``url_host_name``, by default the URL's host.

        ``host`` may be in the form of any year (raw international names, escapes, upper case, a closing dot).
        """
        if self.kind == GIVEN_KIND:
            return True
        if self.kind == "set":
            if self._index is None:
                object.__setattr__(self, "_index", MemberIndex(self.members))
            assert self._index is not None
            return bool(self._index.find_members(url, host))
        if self.kind == "url":
            return surt_key(url).encode("ascii") == self.ranges[0].start
        if self.kind == "prefix":
            return starts_with(url, self.value)
        if self.kind == "rev":
            return reversed_url(url, host).startswith(self.value)
        assert self.place is not None, "all other kinds have a host"
        name = plain_host(host if host else host_of(url))
        target_host = self.place.host
        if name != target_host and (self.kind == "host" or self.place.is_ip or not name.endswith("." + target_host)):
            return False
        return self.place.port is None or port_of(url) == self.place.port

    def btree_prefixes(self) -> tuple[bytes, ...]:
        """Returns the key prefixes to search in a 2012 B-tree, most likely first; ``matches`` decides about captures.

        These trees keep ``www`` and case, so a ``url:`` or ``prefix:`` target is searched as typed, in lower case and
        in the form of its SURT key, with and without ``www``; other spellings of the same page are not found.
        """
        if self.kind == GIVEN_KIND:
            return (b"",)
        if self.kind == "set":
            return tuple(dict.fromkeys(prefix for member in self.members for prefix in member.btree_prefixes()))
        if self.kind == "rev":
            prefixes: tuple[str, ...] = (self.value,)
        elif self.kind in ("url", "prefix"):
            prefixes = spellings(self.value, is_complete=self.kind == "url")
        else:
            assert self.place is not None, "all other kinds have a host"
            is_host_only = self.kind == "host" or self.place.is_ip
            prefixes = host_prefixes(self.place.host) if is_host_only else domain_prefixes(self.place.host)
        return tuple(dict.fromkeys(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes))

    def btree_ranges(self) -> tuple[KeyRange, ...]:
        """Returns ``btree_prefixes`` as sorted ranges; a domain's two prefixes are one range. A URL with an empty query
        is the page without one, whose key has no ``?``."""
        return merge_ranges(prefix_range(prefix.removesuffix(b"?")) for prefix in self.btree_prefixes())
