"""Absolute URLs for links, and the host and registered domain they point to.

``browser_resolver`` resolves as browsers do (the WHATWG URL Standard, by ada): hosts in ASCII, characters escaped, as
in a crawler's index. ``resolver`` gives the same address with characters as written, as the writer of 2012 did.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import quote_from_bytes

import can_ada
import endec

from cc_pipeline.documents.charset import QUERY_ENCODINGS
from cc_pipeline.public_suffixes import registry_list

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*:)(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(\?[^#]*)?")
_NOISE = re.compile(r"[\t\r\n]")
_TRIM = "".join(map(chr, range(0x21)))
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
#: Schemes with queries in the page's charset; others have UTF-8.
_QUERY_SCHEMES = ("http:", "https:", "ftp:", "file:")
#: A reference that the encoder wrote: no query has a "#". Bytes between ISO-2022-JP's escapes are no reference.
_UNENCODABLE = re.compile(rb"\x1b\$B[^\x1b]*|&#(\d+);")
#: Characters, besides letters and digits, that stay in a query or that ada escapes.
_UNESCAPED = " !\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_HIERARCHICAL = ("http:", "https:", "ftp:", "ws:", "wss:")


#: An absolute URL and its host; ``None`` if there is none.
Resolved = tuple[str | None, str | None]


#: The errors of ada for text that is no URL, or no text.
_NO_URL = (ValueError, TypeError)


def browser_resolver(base: str, charset: str = "UTF-8") -> Callable[[str], Resolved]:
    """Returns a function from an attribute's value to the URL that a browser would open and that URL's host.
    ``charset`` is the page's, by the standard's name: browsers write queries in it."""
    page_url = _parsed(base)
    parse = can_ada.parse if page_url is None else page_url.__add__
    hosts: dict[str, str | None] = {}
    by_charset = charset in QUERY_ENCODINGS

    def resolve(value: str) -> Resolved:
        try:
            parsed_url = parse(value)
            if by_charset and not value.isascii() and "?" in value and parsed_url.protocol in _QUERY_SCHEMES:
                parsed_url = parse(_with_query(value, charset))
        except _NO_URL:
            return None, None
        name = parsed_url.hostname
        if name not in hosts:
            hosts[name] = _bare(name)
        return parsed_url.href, hosts[name]

    return resolve


def resolve_reference(base: str, value: str) -> str:
    """Returns the URL that a browser would open for a reference; ``value`` unchanged if there is none, such as a
    relative reference to a ``base`` that is no URL."""
    return browser_resolver(base)(value)[0] or value


def resolve_header(base: str, value: str) -> str | None:
    """Returns the URL that a browser would open for an address in an HTTP header, such as ``Location``; ``None`` for no
    URL."""
    return browser_resolver(base)(escape_header(value))[0]


def escape_header(value: str) -> str:
    """Escapes the bytes beyond ASCII of an address in header text (its characters are the bytes as sent, Latin-1), as
    browsers do, whatever its charset."""
    if value.isascii():
        return value
    return "".join(f"%{ord(character):02X}" if "\x80" <= character <= "\xff" else character for character in value)


@lru_cache(maxsize=8)
def _parsed(base: str) -> can_ada.URL | None:
    """Parses a page's URL; cached, because its references are resolved one after the other."""
    try:
        return can_ada.parse(base)
    except _NO_URL:
        return None


def _with_query(value: str, charset: str) -> str:
    """Returns an address with its query in a charset's bytes, escaped by the URL Standard ("percent-encode after
    encoding"); characters that the charset lacks become numeric references, escaped too."""
    value, sign, fragment = _NOISE.sub("", value).strip(_TRIM).partition("#")
    address, mark, query = value.partition("?")
    data = endec.encode(query, charset, "xmlcharrefreplace")
    data = _UNENCODABLE.sub(lambda match: b"%%26%%23%b%%3B" % match[1] if match[1] else match[0], data)
    return f"{address}{mark}{quote_from_bytes(data, _UNESCAPED)}{sign}{fragment}"


def resolver(base: str) -> Callable[[str], Resolved]:
    """Returns a function from an attribute's value to its absolute URL and that URL's host."""
    scheme_match = _SCHEME.match(base)
    if (
        scheme_match is None
        or scheme_match.group(1).lower() not in _HIERARCHICAL
        or not scheme_match.group(2).startswith("//")
    ):
        return _absolute_only
    scheme = scheme_match.group(1).lower()
    parts = _PARTS.match(scheme_match.group(2)[2:])
    authority, path, query = parts.groups() if parts else ("", "", "")
    origin = f"{scheme}//{authority}"
    page = origin + (path or "/")
    page_with_query = page + (query or "")
    folder = page[: page.rfind("/") + 1]
    page_host = _host(authority)
    hosts: dict[str, str | None] = {}

    def resolve(value: str) -> Resolved:
        # the fast path of most links
        if "/." not in value and not (" " in value or "\n" in value or "\t" in value or "\r" in value or "\\" in value):
            if value[:1] == "/" and value[-1] > " ":
                if value[1:2] != "/":
                    return origin + value, page_host
                value = scheme + value
            if (value[:8] == "https://" or value[:7] == "http://") and value[-1] > " ":
                end = value.find("/", 8)
                site = value[:end] if end > 0 else value
                if site not in hosts:
                    hosts[site] = host_of(value)
                return value, hosts[site]
        value = _clean(value)
        first = value[:1]
        if first in ("/", "\\"):
            if value[1:2] in ("/", "\\"):
                return _finish_absolute(f"{scheme}//{value[2:]}")
            return _finish(origin + value), page_host
        if first in ("", "#"):
            return page_with_query + value, page_host
        if first == "?":
            return page + value, page_host
        if absolute := _SCHEME.match(value):
            target_scheme, tail = absolute.group(1).lower(), absolute.group(2)
            if target_scheme not in _HIERARCHICAL:
                return _finish_absolute(value)
            if tail[:1] in ("/", "\\") and tail[1:2] in ("/", "\\"):
                return _finish_absolute(f"{target_scheme}//{tail[2:]}")
            if target_scheme != scheme or tail[:1] in ("/", "\\"):
                return None, None
            value = tail
        return _finish(folder + value), page_host

    return resolve


def _finish_absolute(url: str) -> Resolved:
    url = _finish(url)
    return url, host_of(url)


def _absolute_only(value: str) -> Resolved:
    value = _clean(value)
    return (value, host_of(value)) if _SCHEME.match(value) else (None, None)


def _clean(value: str) -> str:
    value = value.strip(_TRIM)
    if not value.isprintable():
        value = _NOISE.sub("", value)
    return value.replace(" ", "%20") if " " in value else value


def _finish(url: str) -> str:
    """Normalizes backslashes and dot segments of the path; scheme, query and fragment stay unchanged."""
    if "\\" not in url and "/." not in url:
        return url
    end = min((position for position in (url.find("?"), url.find("#")) if position >= 0), default=len(url))
    head, tail = url[:end].replace("\\", "/"), url[end:]
    start = head.find("/", head.find("//") + 2)
    if start < 0 or "/." not in head[start:]:
        return head + tail
    path_parts: list[str] = []
    segments = head[start + 1 :].split("/")
    for segment in segments:
        if segment == "..":
            if path_parts:
                path_parts.pop()
        elif segment != ".":
            path_parts.append(segment)
    if segments[-1] in (".", ".."):
        path_parts.append("")
    return head[: start + 1] + "/".join(path_parts) + tail


def host_of(url: str) -> str | None:
    """Returns the host of an absolute URL with an authority: ASCII, lower case, without user, port or brackets."""
    authority = _AUTHORITY.match(url)
    return _host(authority.group(1)) if authority else None


@lru_cache(maxsize=65_536)
def _host(authority: str) -> str | None:
    host = authority.rpartition("@")[2]
    return _bare(host if host.startswith("[") else host.partition(":")[0])


def _bare(host: str) -> str | None:
    """Returns a host as in the index: ASCII, lower case, without brackets and final dot."""
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    if not host.isascii():
        try:
            host = can_ada.idna_encode(host).decode("ascii") or host
        except (*_NO_URL, UnicodeError):
            return host.rstrip(".").lower() or None
    return host.rstrip(".").lower() or None


@lru_cache(maxsize=65_536)
def shown_host(host: str) -> str | None:
    """Returns a host as browsers show it; ``None`` if that is its ASCII form."""
    if "xn--" not in host:
        return None
    try:
        display_host = can_ada.idna_decode(host.encode("ascii"))  # type: ignore[arg-type]  # its stubs say text
    except (*_NO_URL, UnicodeError):
        return None
    # browsers show only a form that they would read as this host
    return display_host if display_host != host and _bare(display_host) == host else None


@lru_cache(maxsize=65_536)
def domain_of(host: str) -> str | None:
    """Returns the registered domain of a host; the host itself if it is an IP address or no public suffix fits."""
    if ":" in host or _IPV4.fullmatch(host):
        return host
    try:
        return registry_list(host).privatesuffix(host, accept_unknown=True) or host
    except (UnicodeError, ValueError):
        return host
