"""What of a URL decides whose capture it is: its host, its port, its reverse, how it begins, how it may be spelled."""

from __future__ import annotations

from functools import lru_cache

from cc_pipeline.commoncrawl.btree_keys import host_prefixes
from cc_pipeline.commoncrawl.domains import is_ip, plain_host
from cc_pipeline.commoncrawl.surt import resolved_parts, split_authority, surt_key

_DEFAULT_PORTS = {"http": 80, "https": 443}


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


@lru_cache(maxsize=4096)
def _prefix_parts(value: str) -> tuple[str, str, str | None] | None:
    return resolved_parts(value)


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
