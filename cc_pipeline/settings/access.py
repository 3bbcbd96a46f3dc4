"""What lets somebody in at a place: from its address, the environment or netrc."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.addresses import NO_ACCESS, Access, host_of, scheme_of, split_access
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import read_declared
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.places import BETWEEN_PLACES, DEFAULT_COLLINFO, WEB, normalise_root

#: A host's name or address in brackets, perhaps with a port.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


def own_access(texts: Sequence[str]) -> dict[str, Access]:
    """The places that ``texts`` name, in their order, and the credentials in each address.

    Raises ``UserInputError`` for what is no place."""
    found: dict[str, Access] = {}
    for text in texts:
        found.setdefault(normalise_root(text), split_access(text)[1])
    return found


def let_in(
    settings: Settings, env: Mapping[str, str], own: Mapping[str, Access], collinfo: Access, others: Iterable[str]
) -> Settings:
    """The settings with credentials: those of the addresses (``own``, by place), or what else is given for their hosts.

    What the environment gives is sent to the one host that it is for. Without its name that is the only one there is:
    ``others`` are places that this home, or the environment, knows beside those of the settings. Raises
    ``UserInputError`` where there are more.
    """
    access = _AccessByHost(env, settings, others)
    places = {place: own.get(place) or access.of(place) for place in settings.sources}
    if scheme_of(settings.collinfo) in WEB and not collinfo and settings.collinfo != DEFAULT_COLLINFO:
        same = [one for one in places if _origin(one) == _origin(settings.collinfo)]
        collinfo = places[same[0]] if same else access.of(settings.collinfo)
    source, *mirrors = places.values()
    return replace(settings, source_access=source, collinfo_access=collinfo, mirror_access=tuple(mirrors))


class _AccessByHost:
    """Credentials that do not stand in an address, each for one host."""

    def __init__(self, env: Mapping[str, str], settings: Settings, others: Iterable[str]) -> None:
        self._env = env
        self._settings = settings
        self._others = others
        said = read_declared(ProcessSettings, env)
        self._given = Access(said.source_user, said.source_password, said.source_query.removeprefix("?"))
        self._host = said.source_host
        if self._host and not (_HOST.fullmatch(self._host) and host_of(f"https://{self._host}")):
            # what stands there is not repeated: it may hold a password
            raise UserInputError(f"{PREFIX}SOURCE_HOST takes the name of one host, perhaps with a port, and no address")

    def of(self, place: str) -> Access:
        """What lets somebody in at a place; nothing for Common Crawl's own, which want none."""
        if scheme_of(place) not in WEB or self._settings.is_public_place(place):
            return NO_ACCESS
        return self._given if self._given and self._is_for(place) else _access_by_host(self._env, place)

    def _is_for(self, place: str) -> bool:
        """Whether what the environment gives is for this place. Raises ``UserInputError`` where it does not say so."""
        if self._host:
            return _origin(f"{scheme_of(place)}://{self._host}") == _origin(place)
        known = {*self._settings.sources, *map(normalise_root, self._others)}
        if len(set(map(_origin, known))) > 1:
            raise UserInputError(
                f"{PREFIX}SOURCE_USER, _PASSWORD or _QUERY is set, and there are several places: "
                f"{BETWEEN_PLACES.join(sorted(known))}. Name the host that it is for in {PREFIX}SOURCE_HOST"
            )
        return _origin(place) == _origin(self._settings.source)


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


def _origin(address: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a web address; any other place is its own."""
    scheme = scheme_of(address)
    if scheme not in WEB:
        return "", address, None
    return scheme, host_of(address), urlsplit(address).port or (443 if scheme == "https" else 80)
