"""What lets somebody in at a place: from its address, the environment or netrc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import urlsplit

from cc_pipeline.addresses import NO_ACCESS, Access, host_of, scheme_of, split_access
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings.environment import text_in
from cc_pipeline.settings.places import DEFAULT_COLLINFO, WEB, is_public, normalise_root
from cc_pipeline.settings.values import Settings


def own_access(texts: Sequence[str]) -> dict[str, Access]:
    """The places that ``texts`` name, in their order, and the credentials in each address.

    Raises ``UserInputError`` for what is no place."""
    found: dict[str, Access] = {}
    for text in texts:
        found.setdefault(normalise_root(text), split_access(text)[1])
    return found


def let_in(settings: Settings, env: Mapping[str, str], own: Mapping[str, Access], collinfo: Access) -> Settings:
    """The settings with credentials: those of the addresses (``own``, by place), or what else is given for their hosts.

    What the environment gives is for the source, and sent to none of its mirrors.
    """
    source = own.get(settings.source, NO_ACCESS)
    if not source and _may_ask(settings, settings.source):
        source = _access_in(env) or _access_by_host(env, settings.source)
    mirrors = tuple(
        own.get(mirror) or (_access_by_host(env, mirror) if _may_ask(settings, mirror) else NO_ACCESS)
        for mirror in settings.mirrors
    )
    if scheme_of(settings.collinfo) in WEB and not collinfo and settings.collinfo != DEFAULT_COLLINFO:
        same = _origin(settings.collinfo) == _origin(settings.source)
        collinfo = source if same else _access_by_host(env, settings.collinfo)
    return replace(settings, source_access=source, collinfo_access=collinfo, mirror_access=mirrors)


def _may_ask(settings: Settings, place: str) -> bool:
    """Whether a place may want credentials that do not stand in its address."""
    return scheme_of(place) in WEB and not is_public(place, settings.s3_endpoint)


def _access_in(env: Mapping[str, str]) -> Access:
    query = (text_in(env, "SOURCE_QUERY") or "").removeprefix("?")
    return Access(text_in(env, "SOURCE_USER") or "", text_in(env, "SOURCE_PASSWORD") or "", query)


def _access_by_host(env: Mapping[str, str], address: str) -> Access:
    """What netrc has for exactly this host; its ``default`` is for no host in particular, so it is sent to none."""
    path = env.get("NETRC") or (f"{env['HOME']}/.netrc" if env.get("HOME") else "")
    if not path or not Path(path).is_file():
        return NO_ACCESS
    try:
        found = netrc(path).hosts.get(host_of(address))
    except (OSError, UnicodeDecodeError, NetrcParseError) as error:
        # the parser's own words may hold a password that stands at the wrong place
        line = f" at line {error.lineno}" if isinstance(error, NetrcParseError) else ""
        raise EnvironmentFault(
            f"{path} cannot be read{line}", "Mend it, or name another file (/dev/null for none) in NETRC."
        ) from None
    return Access(found[0], found[2] or "") if found else NO_ACCESS


def _origin(address: str) -> tuple[str, str]:
    return scheme_of(address), urlsplit(address).netloc.lower()
