"""Absolute URLs for links, and the host and registered domain they point to.

Resolution follows the WHATWG URL Standard for what occurs in pages (tabs and newlines dropped, backslashes as
slashes, dot segments, spaces as ``%20``) and leaves every other character as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from publicsuffixlist import PublicSuffixList

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_NOISE = re.compile(r"[\t\r\n]")
_TRIM = "".join(map(chr, range(0x21)))
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_HIERARCHICAL = ("http:", "https:", "ftp:", "ws:", "wss:")

Resolver = Callable[[str], str | None]


def resolver(base: str) -> Resolver:
    """A function from an attribute's value to the absolute URL it means, ``None`` where there is none."""
    found = _SCHEME.match(base)
    scheme = found.group(0).lower() if found else ""
    rest = base[found.end() :] if found else base
    if scheme not in _HIERARCHICAL or not rest.startswith("//"):
        return _absolute_only
    authority_end = _first_of(rest, "/?#", 2)
    origin = scheme + rest[:authority_end]
    path = rest[authority_end : _first_of(rest, "?#", authority_end)] or "/"
    page = origin + path
    query = rest[authority_end : _first_of(rest, "#", authority_end)]
    folder = origin + path[: path.rfind("/") + 1]
    whole = origin + (query if query.startswith("/") else "/" + query)

    def resolve(value: str) -> str | None:
        value = _clean(value)
        if not value:
            return whole
        first = value[0]
        if first == "/" or first == "\\":
            if value[1:2] in ("/", "\\"):
                return _finish(scheme + "//" + value[2:])
            return _finish(origin + value)
        if first == "#":
            return whole + value
        if first == "?":
            return page + value
        if absolute := _SCHEME.match(value):
            named = absolute.group(0).lower()
            if named in _HIERARCHICAL:
                tail = value[absolute.end() :]
                if tail[:2] in ("//", "\\\\", "/\\", "\\/"):
                    return _finish(named + "//" + tail[2:])
                return _finish(folder + tail) if named == scheme and tail[:1] not in ("/", "\\") else None
            return value
        return _finish(folder + value)

    return resolve


def _absolute_only(value: str) -> str | None:
    value = _clean(value)
    return value if _SCHEME.match(value) else None


def _clean(value: str) -> str:
    value = value.strip(_TRIM)
    if "\n" in value or "\t" in value or "\r" in value:
        value = _NOISE.sub("", value)
    return value.replace(" ", "%20") if " " in value else value


def _first_of(text: str, stops: str, start: int) -> int:
    return min((at for at in (text.find(stop, start) for stop in stops) if at >= 0), default=len(text))


def _finish(url: str) -> str:
    """Backslashes and dot segments of the path put right; scheme, query and fragment untouched."""
    if "\\" not in url and "/." not in url:
        return url
    end = _first_of(url, "?#", 0)
    head, tail = url[:end].replace("\\", "/"), url[end:]
    start = head.find("/", head.find("//") + 2)
    if start < 0 or "/." not in head[start:]:
        return head + tail
    kept: list[str] = []
    segments = head[start + 1 :].split("/")
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return head[: start + 1] + "/".join(kept) + tail


def host_of(url: str) -> str | None:
    """The host of an absolute URL with an authority, in lower case, without user, port or brackets."""
    start = url.find("://")
    if start < 0:
        return None
    start += 3
    return _host(url[start : _first_of(url, "/?#", start)])


@lru_cache(maxsize=65_536)
def _host(authority: str) -> str | None:
    host = authority.rpartition("@")[2]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return host.rstrip(".").lower() or None


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(only_icann=True)


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str | None:
    """The registered domain of a host; the host itself where it is an IP address or no public suffix fits."""
    if ":" in host or _IPV4.fullmatch(host):
        return host
    try:
        return _suffixes().privatesuffix(host) or host
    except (UnicodeError, ValueError):
        return host
