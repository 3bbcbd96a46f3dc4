"""Registered domains, and the host columns of the columnar index for rows that come without them.

Behaviour follows ``HostName`` and ``WarcUri`` of commoncrawl/cc-index-table: nothing but the name for an IP address,
no suffix and no domain where the public suffix list has no rule, "registry" for the list's ICANN section and
"private" for the whole list. The list is the one of the package ``publicsuffixlist``; each crawl was made with the
list of its day, so suffixes of old crawls can differ from what is computed here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from publicsuffixlist import PublicSuffixList

from cc_pipeline.commoncrawl.hostnames import is_ip, plain_host
from cc_pipeline.commoncrawl.surt import split_authority

_PARTS: Final = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")

#: The columns ``host_columns`` gives, in the index's order.
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
    """``example.co.uk`` of ``www.example.co.uk``; ``None`` for an IP address, a public suffix, an unknown suffix."""
    return _registered(plain_host(host))


def is_icann_suffix(host: str) -> bool:
    """Whether ``host`` (ASCII) is a suffix under which a registry sells names, such as ``co.uk``."""
    return "." in host and _registry_list().publicsuffix(host) == host


def host_columns(url: str) -> dict[str, str | int | None]:
    """The columns of ``HOST_COLUMNS`` for ``url`` as the index has them; never raises.

    ``url_port`` is ``None`` unless the URL has one, ``url_path`` is empty without a path, ``url_query`` is ``None``
    without a question mark; the fragment is in neither.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not rest.startswith("//"):
        # dns:www.example.com and the like
        values = _of_host(plain_host(rest)) if scheme == "dns" else _of_host("")
        return dict(zip(HOST_COLUMNS, (*values, scheme if colon else "", None, "", None), strict=True))
    rest = rest.lstrip("/").partition("#")[0]
    before_query, mark, query = rest.partition("?")
    authority, slash, path = before_query.partition("/")
    host, port = split_authority(authority)
    name = plain_host(host)
    values = _of_host(f"[{name}]" if ":" in name else name)
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else None
    tail = (scheme.lower(), number, slash + path, query if mark else None)
    return dict(zip(HOST_COLUMNS, (*values, *tail), strict=True))


@lru_cache(maxsize=65536)
def _of_host(name: str) -> HostValues:
    """The eleven columns that depend on the host alone."""
    if not name or is_ip(name.strip("[]")):
        return (name, *([None] * 10))
    reversed_labels = name.split(".")[::-1]
    labels: list[str | None] = [*reversed_labels, None, None, None, None][:5]
    everything = _whole_list()
    return (
        name,
        *labels,
        _registry_list().publicsuffix(name),
        _registered(name),
        everything.publicsuffix(name),
        everything.privatesuffix(name),
        ".".join(reversed_labels),
    )


@lru_cache(maxsize=65536)
def _registered(name: str) -> str | None:
    """Of the two lists it takes one: each is some 30 ms to read, and a look-up may need no more than this."""
    if not name or is_ip(name.strip("[]")):
        return None
    found: str | None = _registry_list().privatesuffix(name)
    return found


@lru_cache(maxsize=1)
def _registry_list() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False, only_icann=True)


@lru_cache(maxsize=1)
def _whole_list() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False)
