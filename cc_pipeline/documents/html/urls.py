"""Absolute URLs for links, and the host and registered domain they point to.

They are what browsers would open (the WHATWG URL Standard, by ada): hosts in ASCII, characters escaped, as in the index
of a crawl.
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

_AUTHORITY = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#]*)")
_NOISE = re.compile(r"[\t\r\n]")
_TRIM = "".join(map(chr, range(0x21)))
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
#: Schemes with queries in the page's charset; others have UTF-8.
_QUERY_SCHEMES = ("http:", "https:", "ftp:", "file:")
#: A reference that the encoder wrote: no query has a "#". Bytes between ISO-2022-JP's escapes are no reference.
_UNENCODABLE = re.compile(rb"\x1b\$B[^\x1b]*|&#(\d+);")
#: Characters, besides letters and digits, that stay in a query or that ada escapes.
_UNESCAPED = " !\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


#: An absolute URL and its host; ``None`` if there is none.
Resolved = tuple[str | None, str | None]


#: The errors of ada for text that is no URL, or no text.
_NO_URL = (ValueError, TypeError)


def browser_resolver(base: str, charset: str = "UTF-8") -> Callable[[str], Resolved]:
    """Returns a function from an attribute's value to the URL that a browser would open and that URL's host.
    ``charset`` is the page's, by the standard's name: browsers write queries in it."""
    page_url = _parsed(base)
    parse = can_ada.parse if page_url is None else page_url.__add__
    by_charset = charset in QUERY_ENCODINGS

    def resolve(value: str) -> Resolved:
        try:
            parsed_url = parse(value)
            if by_charset and not value.isascii() and "?" in value and parsed_url.protocol in _QUERY_SCHEMES:
                parsed_url = parse(_with_query(value, charset))
        except _NO_URL:
            return None, None
        return parsed_url.href, _bare(parsed_url.hostname)

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


def host_of(url: str) -> str | None:
    """Returns the host of an absolute URL with an authority: ASCII, lower case, without user, port or brackets."""
    authority = _AUTHORITY.match(url)
    if authority is None:
        return None
    host = authority.group(1).rpartition("@")[2]
    return _bare(host if host.startswith("[") else host.partition(":")[0])


@lru_cache(maxsize=65_536)
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
    return registry_list(host).privatesuffix(host, accept_unknown=True) or host
