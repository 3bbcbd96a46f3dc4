"""SURT keys: the sort keys of URLs in Common Crawl's indexes.

``http://www.Example.com/b/?z=1&a=2`` becomes ``com,example)/b?a=2&z=1``: host labels reversed, leading ``www`` labels
(and ``www2``, ``www17`` ...), user information and the scheme's own port dropped, percent-escapes resolved and written
again, everything lower-cased, dot segments and repeated slashes resolved, well-known session ids removed, query
parameters sorted. The rules were derived from real index rows (Common Crawl writes the keys with
``WaybackURLKeyMaker`` of webarchive-commons) and from descriptions of that program; none of its code was taken. The
Python package ``surt`` gives the same keys, but it drops only the first ``www`` label.

One rule changed (ia-web-commons#6, iipc/webarchive-commons#102): see :class:`KeyRule`, and ``key_rule`` of
``commoncrawl/crawls.py`` for the rule of each index.

Keys are ASCII text, so they sort the same as text and as bytes.
"""

from __future__ import annotations

import re
from enum import Enum

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_HEX = frozenset("0123456789abcdefABCDEF")
_CHARACTER = {f"{number:02x}": chr(number) for number in range(256)}

#: Bytes that a key must escape: controls, the space, ``#``, ``%`` and everything from 0x7F on.
_UNSAFE = re.compile(r"[^!-\"$&-~]")
_UNSAFE_EXCEPT_ESCAPES = re.compile(r"[^!-~]")

#: A character of well-formed UTF-8 (Unicode 15, table 3-7) of two bytes or more, as latin-1 text of its bytes.
_CHARACTER_OF_UTF8 = (
    r"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
_BEYOND_ASCII = re.compile(rf"({_CHARACTER_OF_UTF8})|[\x80-\xff]")
#: The beginning of such a character at the end of a text.
_PARTIAL_CHARACTER = re.compile(
    r"(?:[\xc2-\xdf]|\xe0[\xa0-\xbf]?|[\xe1-\xec\xee\xef][\x80-\xbf]?|\xed[\x80-\x9f]?"
    r"|\xf0(?:[\x90-\xbf][\x80-\xbf]?)?|[\xf1-\xf3][\x80-\xbf]{0,2}|\xf4(?:[\x80-\x8f][\x80-\xbf]?)?)\Z"
)


class KeyRule(Enum):
    """The form of the escape of a byte outside UTF-8 text, such as ``%E4`` of a URL in Latin-1.

    ``TODAY``: ``%e4``, in indexes since CC-MAIN-2025-05. ``UNTIL_2024``: ``%25e4``, in all earlier ones.
    """

    TODAY = "today"
    UNTIL_2024 = "before 2025"


def unescape_fully(text: str) -> str:
    """Resolves ``%XX`` repeatedly until the text does not change (``%2525`` gives ``%``).

    Each character of ``text`` is one byte (decoded as latin-1), as in the result. The time is linear in the length,
    however often the text was escaped.
    """
    for _ in range(4):
        if "%" not in text:
            return text
        resolved = _ESCAPE.sub(_resolve, text)
        if resolved == text:
            return text
        text = resolved
    return _unescape_with_stack(text)


def escape(text: str, keep: str = "", rule: KeyRule = KeyRule.TODAY) -> str:
    """Writes unsafe bytes of latin-1 text as lower-case ``%xx``; ``keep="%#"`` leaves these two unchanged."""
    unsafe = _UNSAFE_EXCEPT_ESCAPES if keep == "%#" else _UNSAFE
    if rule is KeyRule.UNTIL_2024 and not text.isascii():
        # The remaining escapes are escaped again, with all other percent signs.
        text = _BEYOND_ASCII.sub(lambda match: match[0] if match[1] else _write(match), text)
    return unsafe.sub(_write, text)


def _resolve(match: re.Match[str]) -> str:
    return _CHARACTER[match[1].lower()]


def _write(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in match[0].encode("latin-1", "replace"))


def _unescape_with_stack(text: str) -> str:
    # Two escapes never share a character, so any order of resolving gives the same text: one pass is enough.
    stack: list[str] = []
    for character in text:
        stack.append(character)
        while len(stack) >= 3 and stack[-3] == "%" and stack[-2] in _HEX and stack[-1] in _HEX:
            pair = (stack[-2] + stack[-1]).lower()
            del stack[-3:]
            stack.append(_CHARACTER[pair])
    return "".join(stack)


# Ordinary URLs: a host of two or more plain labels, the last of which starts with a letter (so no IPv4 address in
# any notation), no userinfo, nothing to unescape or escape.
_ORDINARY = re.compile(
    r"https?://([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.[A-Za-z][A-Za-z0-9_-]*)(?::([0-9]{1,5}))?"
    r'(/[!"$&->@-~]*)?(?:\?([!"$&-~]*))?(?:#.*)?'
)

# A character with a missing byte has at most three.
_LAST_ESCAPES = re.compile(r"(?:%[89a-f][0-9a-f]){1,3}\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_WWW = re.compile(r"^(?:www[0-9]*\.)+")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BLANK = " \t\r\n\f\v"
_DROPPED = {9: None, 10: None, 13: None}  # tabs and line ends, anywhere in a URL
_MAX_IDN_HOST = 512  # longer than any host name can be; keeps the IDNA codec away from hostile input

# ASP.NET puts session ids into a path segment of their own, before the page.
_PATH_SESSIONS = (
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)", re.DOTALL),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)", re.DOTALL),
)
# In a query the last occurrence of each kind is removed, together with the ampersand after it.
_QUERY_SESSIONS = tuple(
    re.compile(rf"(.*){pair}(?:&(.*))?", re.DOTALL)
    for pair in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]{1,4096}&cftoken=[^&]+",
    )
)


def surt_key(url: str | bytes, rule: KeyRule = KeyRule.TODAY) -> str:
    """Returns the key of ``url`` in indexes that follow ``rule``; a ``url`` with raw non-ASCII bytes is given as bytes.

    Never raises. Text that is no hierarchical URL (``dns:``, ``mailto:``, ``filedesc:`` ...) is its own key, and the
    key of an empty text is ``-``.
    """
    if isinstance(url, bytes):
        url = url.decode("latin-1")
        if not url.isascii():
            return _careful_key(url, rule)
    parts = _ordinary_parts(url)
    if parts is None:
        return _careful_key(url if url.isascii() else _as_byte_text(url), rule)
    authority, path, query = parts
    if "(" in path:
        return _careful_key(url, rule)
    if path[-1] == "/" and path != "/":
        path = path[:-1]
    query = _sorted_query(query) if query else ""
    return f"{authority}){path}?{query}" if query else f"{authority}){path}"


def surt_host(host: str) -> str:
    """Returns ``host`` (no port) as in a key before ``)``: ``www.example.com`` gives ``com,example``."""
    return reverse_labels(_WWW.sub("", canonical_host(host)))


def reverse_labels(host: str) -> str:
    """Returns all labels of a host in reverse, comma-separated: ``www.example.com`` gives ``com,example,www``."""
    return ",".join(reversed(host.split(".")))


def canonical_host(host: str) -> str:
    """Returns the host name for a key, with ``www``: lower case, unescaped, IDNA as ASCII, IPv4 dotted, no empty
    labels, IPv6 without brackets."""
    return _host_of_bytes((host if host.isascii() else _as_byte_text(host)).strip("[]"))


def split_authority(authority: str) -> tuple[str, str]:
    """Splits ``[user[:password]@]host[:port]`` into host and port text, as written; an IPv6 host without brackets."""
    place = authority.rpartition("@")[2]
    if place.startswith("["):
        host, bracket, port_text = place[1:].partition("]")
        if bracket and (not port_text or port_text[0] == ":"):
            return host, port_text[1:]
    host, _, port = place.partition(":")
    return host, port


def find_partial_character(path: str) -> str:
    """Returns the escapes at the end of a resolved ``path`` (of today's rule) that may begin a character of UTF-8, or
    an empty text. A longer path has this character, and its key the same escapes; or it has bytes that are no text."""
    end = _LAST_ESCAPES.search(path[-9:])
    partial = _PARTIAL_CHARACTER.search(unescape_fully(end[0])) if end else None
    return end[0][len(end[0]) - 3 * len(partial[0]) :] if end and partial else ""


def resolved_parts(url: str, rule: KeyRule = KeyRule.TODAY) -> tuple[str, str, str | None] | None:
    """Returns the key's part before ``)``, the resolved path with its closing slash, the query in its own order.

    This is a key before session ids and the closing slash are removed and parameters sorted, so that URL prefixes can
    be compared. ``None`` for text without a host.
    """
    parts = _ordinary_parts(url)
    if parts is not None:
        return parts
    return _parts((url if url.isascii() else _as_byte_text(url)).strip(_BLANK).translate(_DROPPED), rule)


def _ordinary_parts(url: str) -> tuple[str, str, str | None] | None:
    """Returns ``resolved_parts`` of an ordinary URL; ``None`` for others."""
    match = _ORDINARY.fullmatch(url)
    if match is None:
        return None
    host, port, path, query = match.groups()
    if path is None:
        path = "/"
    elif path != "/":
        if "//" in path or "/." in path:
            return None
        path = path.lower()
    labels = host.lower().split(".")
    labels.reverse()
    while len(labels) > 1 and labels[-1][:3] == "www" and (labels[-1] == "www" or labels[-1][3:].isdigit()):
        labels.pop()
    authority = ",".join(labels)
    if port is not None and (number := int(port)) not in (0, 443 if url[4] == "s" else 80):
        authority = f"{authority}:{number}"
    return authority, path, query.lower() if query else query


def _careful_key(url: str, rule: KeyRule) -> str:
    """Returns the key of any URL, given as ASCII or as latin-1 text of its bytes."""
    text = url.strip(_BLANK).translate(_DROPPED)
    if not text:
        return "-"
    if text.startswith(("filedesc", "warcinfo")):
        return text if text.isascii() else escape(text, keep="%#")
    parts = _parts(text, rule)
    if parts is None:
        return escape(text, keep="%#")
    authority, path, query = parts
    if ".aspx" in path:
        for pattern in _PATH_SESSIONS:
            match = pattern.fullmatch(path)
            if match:
                path = match[1] + match[2]
    if path.endswith("/") and len(path) > 1:
        path = path[:-1]
    query = _sorted_query(query) if query else ""
    return f"{authority}){path}?{query}" if query else f"{authority}){path}"


def _parts(text: str, rule: KeyRule) -> tuple[str, str, str | None] | None:
    scheme, address = _split_scheme(text)
    if address is None:
        return None
    address = address.partition("#")[0]
    cut = re.search(r"[/?]", address)
    authority, tail = (address[: cut.start()], address[cut.start() :]) if cut else (address, "")
    raw_host, port = split_authority(authority)
    host = _host_of_bytes(raw_host, rule)
    if not host:
        return None
    key = reverse_labels(_WWW.sub("", host)) + _port_suffix(scheme, port)
    path, mark, query = tail.partition("?")
    return key, _resolved_path(path, rule), escape(unescape_fully(query), rule=rule).lower() if mark else None


def _split_scheme(text: str) -> tuple[str, str | None]:
    """Returns the scheme and the text after ``//``; ``None`` for text without a host."""
    match = _SCHEME.match(text)
    if match is None:
        return "http", text.lstrip("/")
    scheme = match[1].lower()
    address = text[match.end() :]
    if scheme in _DEFAULT_PORTS:
        return scheme, address.lstrip("/")
    if address.startswith("//"):
        return scheme, address[2:]
    return scheme, None


def _port_suffix(scheme: str, port: str) -> str:
    if port.isascii() and port.isdigit() and len(port) <= 5:
        number = int(port)
        return "" if number in (0, _DEFAULT_PORTS.get(scheme)) else f":{number}"
    return f":{escape(port.lower())}" if port else ""


def _resolved_path(path: str, rule: KeyRule) -> str:
    """Resolves dot segments and repeated slashes, rewrites escapes, in lower case; a closing slash stays."""
    raw = unescape_fully(path.removeprefix("/")).split("/")
    segments: list[str] = []
    for segment in raw:
        if segment == ".." and segments:
            segments.pop()  # also an empty segment: ``/a//../b`` is ``/a/b``
        elif segment != ".":
            segments.append(segment)  # also a first ``..``, which has nothing to climb out of
    filled_segments = [segment for segment in segments if segment]
    closing = "/" if filled_segments and raw[-1] in ("", ".", "..") and filled_segments[-1] != ".." else ""
    return escape("/" + "/".join(filled_segments) + closing, rule=rule).lower()


def _sorted_query(query: str) -> str:
    """Removes session ids and sorts parameters by name and then value; ``query`` is lower-case."""
    if "sid=" in query or "sessionid" in query or "cftoken=" in query:
        for pattern in _QUERY_SESSIONS:
            match = pattern.fullmatch(query)
            if match:
                query = match[1] + (match[2] or "")
    return _sorted_parameters(query)


def _sorted_parameters(query: str) -> str:
    if "&" not in query:
        return query
    return "&".join(sorted(query.split("&"), key=lambda parameter: parameter.partition("=")))


def _host_of_bytes(raw: str, rule: KeyRule = KeyRule.TODAY) -> str:
    host = unescape_fully(raw)
    if not host.isascii():
        host = _idna_ascii(host)
    host = host.replace("..", ".").strip(".")
    return _dotted_ipv4(host) or escape(host, rule=rule).lower()


def _dotted_ipv4(host: str) -> str | None:
    """Returns the dotted form of an IPv4 address in another notation: one number, octal parts, omitted parts."""
    if not host.isascii() or not host.replace(".", "").isdigit():
        return None
    parts = host.split(".")
    if len(parts) == 1:
        if len(host) > 20:
            return None
        number = int(host) % 2**32
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    if len(parts) > 4 or "" in parts:
        return None
    octets: list[int] = []
    for part in parts:
        octal = part[0] == "0" and len(part) > 1
        if len(part) > 4 or (octal and not set(part) <= set("01234567")):
            return None
        octets.append(int(part, 8 if octal else 10))
    if max(octets) > 255:
        return None
    octets[-1:-1] = [0] * (4 - len(octets))
    return ".".join(map(str, octets))


def _idna_ascii(host: str) -> str:
    """Returns the IDNA 2003 form of a host given as latin-1 text of its UTF-8 bytes; unchanged if there is none."""
    if len(host) > _MAX_IDN_HOST:
        return host
    try:
        return host.encode("latin-1").decode("utf-8").encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _as_byte_text(url: str) -> str:
    """Returns the UTF-8 bytes of ``url`` as latin-1 text; undecodable bytes in ``surrogateescape`` are restored."""
    try:
        return url.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError:
        return url.encode("utf-8", "surrogatepass").decode("latin-1")
