"""Host names in the index's form, their registered domains, and the index's host columns."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

import idna

from cc_pipeline.commoncrawl.surt import canonical_host, split_authority
from cc_pipeline.errors import UserInputError
from cc_pipeline.public_suffixes import full_list, registry_list

_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_MAX_HOST = 253
_MAX_PORT = 65535
_QUOTED_CHARS = 80
#: Endings to suggest in place of an unknown one, the most common first.
_ENDINGS = ("com", "org", "net", "edu", "gov", "info", "de", "uk", "fr", "nl", "ru", "jp", "br", "it", "pl", "au", "ca")
_MIN_SIMILARITY = 0.85
_MIN_ENDING_SIMILARITY = 0.6
#: The most names of a list that are compared with the known ones.
_MAX_GUESSES = 5


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host in ASCII and lower case (IPv6 without brackets), and the port if one was given."""

    host: str
    port: int | None = None

    @property
    def is_ip(self) -> bool:
        return is_ip(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def read_host_port(text: str) -> HostPort:
    """Reads the host and port in ``text`` (``Example.COM.``, ``münchen.de``, ``1.2.3.4:8080``, ``[2001:db8::1]``).

    Raises ``UserInputError`` with a reason for anything that cannot be a host.
    """
    if not text:
        raise UserInputError("The name is empty. Write a domain such as example.com")
    if _is_ipv6(text):
        return HostPort(ipaddress.IPv6Address(text).compressed)
    if "@" in text:
        raise UserInputError(f"{quote(text)} has a user name in it; write the host only, after the @")
    raw, port_text = split_authority(text)
    return HostPort(read_host(raw, text), _read_port(port_text, text) if port_text else None)


def read_host(raw: str, typed: str | None = None) -> str:
    """Returns ``raw`` as an ASCII host name. Errors quote ``typed``. Raises ``UserInputError`` for no host name."""
    quoted = quote(typed or raw)
    if _is_ipv6(raw):
        return ipaddress.IPv6Address(raw).compressed
    host = raw.lower().removesuffix(".")
    for separator in "\u3002\uff0e\uff61":  # dots of other scripts
        host = host.replace(separator, ".")
    if not host.isascii():
        host = _to_ascii(host, quoted)
    if len(host) > _MAX_HOST:
        raise UserInputError(f"{quoted} is {len(host)} characters long; host names have at most {_MAX_HOST}")
    for label in host.split("."):
        if not label:
            raise UserInputError(f"{quoted} is not a host name: it has an empty part between dots")
        if not _LABEL.fullmatch(label):
            raise UserInputError(f"{quoted} is not a host name: {_label_reason(label)}")
    if host.rsplit(".", 1)[-1].isdigit() and not _is_ipv4(host):
        raise UserInputError(
            f"{quoted} is neither a host name nor a complete IP address; write an address with four numbers, as in "
            "1.2.3.4"
        )
    return host


@lru_cache(maxsize=4096)
def is_ip(host: str) -> bool:
    """Whether a host (as ``read_host`` gives it) is an IP address."""
    return _is_ipv4(host) or _is_ipv6(host)


def quote(text: str) -> str:
    """Quotes ``text`` for an error message, shortened, with control characters visible."""
    return repr(text if len(text) <= _QUOTED_CHARS else text[: _QUOTED_CHARS - 1] + "…")


@lru_cache(maxsize=65536)
def plain_host(host: str) -> str:
    """Returns a host of an index row in the form of targets; older crawls kept raw IDN, escapes and closing dots, and
    an IPv6 address may be written in any way."""
    name = canonical_host(host)
    return ipaddress.IPv6Address(name).compressed if _is_ipv6(name) else name


def spellings_of_host(host: str) -> tuple[str, ...]:
    """Returns the spellings of a host by crawlers: an IPv6 address (compressed) also with all its groups, with all
    their digits, and with the dots of a mapped IPv4 address."""
    if not _is_ipv6(host):
        return (host,)
    address = ipaddress.IPv6Address(host)
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    mapped = () if address.ipv4_mapped is None else (f"::ffff:{address.ipv4_mapped}",)
    return tuple(dict.fromkeys((host, groups, address.exploded, *mapped)))


def _to_ascii(host: str, quoted: str) -> str:
    try:
        return idna.encode(host, uts46=True).decode("ascii").lower()
    except idna.IDNAError as refused:
        # Names with symbols (☃.com) were registered under the older rules and are still crawled.
        try:
            return host.encode("idna").decode("ascii").lower()
        except UnicodeError:
            raise UserInputError(f"{quoted} is not a valid international domain name: {refused}") from refused


def _label_reason(label: str) -> str:
    if len(label) > 63:
        return "one part is longer than 63 characters"
    invalid_characters = sorted(set(re.sub(r"[a-z0-9_-]", "", label)))
    return "it has " + " ".join("a space" if character == " " else repr(character) for character in invalid_characters)


def _read_port(text: str, typed: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 1 <= int(text) <= _MAX_PORT:
        raise UserInputError(f"{quote(typed)} has no valid port; ports are numbers from 1 to {_MAX_PORT}")
    return int(text)


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _is_ipv6(host: str) -> bool:
    if ":" not in host:
        return False
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


_PARTS: Final = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")

#: The columns of ``host_columns``, in the index's order.
HOST_COLUMNS: Final = (
    "url_host_name",
    *(f"url_host_{part}" for part in _PARTS),
    "url_host_registry_suffix",
    "url_host_registered_domain",
    "url_host_private_suffix",
    "url_host_private_domain",
    "url_host_name_reversed",
    "url_protocol",
    "url_port",
    "url_path",
    "url_query",
)

HostValues = tuple[str | None, ...]


def registered_domain(host: str) -> str | None:
    """Returns ``example.co.uk`` for ``www.example.co.uk``; ``None`` for an IP address, a public or unknown suffix."""
    return _registered(plain_host(host))


#: Reserved top-level domains, which are no typos (RFC 2606, RFC 6762, RFC 7686).
_RESERVED: Final = frozenset({"example", "test", "invalid", "localhost", "local", "internal", "onion", "arpa"})


def has_known_suffix(host: str) -> bool:
    """Whether ``host`` (ASCII) ends in a suffix of a known registry, or a reserved one; newer ones may be unknown."""
    return is_ip(host) or host.rpartition(".")[2] in _RESERVED or registry_list(host).publicsuffix(host) is not None


def suggest_names(names: Sequence[str], known: Collection[str]) -> list[str]:
    """Returns ``names``, the first few as ``suggest_name`` gives them."""
    return [*(suggest_name(name, known) for name in names[:_MAX_GUESSES]), *names[_MAX_GUESSES:]]


def suggest_name(name: str, known: Collection[str]) -> str:
    """Returns ``name`` with the name that it may be a mistyping of, as in ``exmaple.com (did you mean example.com?)``;
    without one alone."""
    closest = find_closest_name(name, known)
    return f"{name} (did you mean {closest}?)" if closest else name


def find_closest_name(host: str, known: Collection[str]) -> str | None:
    """Returns the name of ``known`` most like ``host``, else ``host`` with a common ending like its own unknown one.
    ``None`` if there is neither, or if ``host`` is one of ``known``."""
    if host in known:
        return None
    if near := get_close_matches(host, known, 1, _MIN_SIMILARITY):
        return near[0]
    stem, _, ending = host.rpartition(".")
    endings = [] if has_known_suffix(host) else get_close_matches(ending, _ENDINGS, 1, _MIN_ENDING_SIMILARITY)
    return f"{stem}.{endings[0]}" if stem and endings else None


def is_icann_suffix(host: str) -> bool:
    """Whether ``host`` (ASCII) is a suffix under which a registry sells names, such as ``co.uk``."""
    return "." in host and registry_list(host).publicsuffix(host) == host


def host_columns(url: str) -> dict[str, str | int | None]:
    """Returns the columns of ``HOST_COLUMNS`` for ``url`` as in the index; never raises.

    ``url_port`` is ``None`` unless the URL has one, ``url_path`` is empty without a path, ``url_query`` is ``None``
    without a question mark; the fragment is in neither.
    """
    scheme, colon, address = url.partition(":")
    if not colon or not address.startswith("//"):
        # dns:www.example.com and the like
        values = _compute_host_columns(plain_host(address)) if scheme == "dns" else _compute_host_columns("")
        return dict(zip(HOST_COLUMNS, (*values, scheme if colon else "", None, "", None), strict=True))
    address = address.lstrip("/").partition("#")[0]
    before_query, mark, query = address.partition("?")
    authority, slash, path = before_query.partition("/")
    host, port = split_authority(authority)
    name = plain_host(host)
    values = _compute_host_columns(f"[{name}]" if ":" in name else name)
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else None
    tail = (scheme.lower(), number, slash + path, query if mark else None)
    return dict(zip(HOST_COLUMNS, (*values, *tail), strict=True))


@lru_cache(maxsize=65536)
def _compute_host_columns(name: str) -> HostValues:
    """Returns the eleven columns that depend only on the host."""
    if not name or is_ip(name.strip("[]")):
        return (name, *([None] * 10))
    reversed_labels = name.split(".")[::-1]
    labels: list[str | None] = [*reversed_labels, None, None, None, None][:5]
    everything = full_list(name)
    return (
        name,
        *labels,
        registry_list(name).publicsuffix(name),
        _registered(name),
        everything.publicsuffix(name),
        everything.privatesuffix(name),
        ".".join(reversed_labels),
    )


@lru_cache(maxsize=65536)
def _registered(name: str) -> str | None:
    if not name or is_ip(name.strip("[]")):
        return None
    domain: str | None = registry_list(name).privatesuffix(name)
    return domain
