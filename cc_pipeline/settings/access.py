"""Credentials for places: from the address, the environment or netrc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import urlsplit

from cc_pipeline.addresses import NO_ACCESS, Access, host_of, scheme_of
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings.all_settings import ProcessSettings, Settings
from cc_pipeline.settings.declaration import read_declared
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.source_addresses import DEFAULT_COLLINFO, WEB, normalise_root


def add_credentials(
    settings: Settings, env: Mapping[str, str], source: Access, collinfo: Access, known_sources: Iterable[str]
) -> Settings:
    """Returns the settings with credentials: those of the addresses of ``source`` and ``collinfo``, else those for
    their hosts.

    Credentials of the environment are sent to the host of the source only. ``known_sources`` are sources of this home
    or the environment that the settings may not have. Raises ``UserInputError`` if these have several hosts.
    """
    access = _AccessByHost(env, settings, known_sources)
    source = source or access.access_for(settings.source)
    if scheme_of(settings.collinfo) in WEB and not collinfo and settings.collinfo != DEFAULT_COLLINFO:
        is_same_origin = _origin(settings.source) == _origin(settings.collinfo)
        collinfo = source if is_same_origin else access.access_for(settings.collinfo)
    return replace(settings, source_access=source, collinfo_access=collinfo)


class _AccessByHost:
    """Credentials that are not part of an address, each for one host."""

    def __init__(self, env: Mapping[str, str], settings: Settings, known_sources: Iterable[str]) -> None:
        self._env = env
        self._settings = settings
        self._known_sources = known_sources
        process_settings = read_declared(ProcessSettings, env)
        self._access = Access(
            process_settings.source_user,
            process_settings.source_password,
            process_settings.source_query.removeprefix("?"),
        )

    def access_for(self, place: str) -> Access:
        """Returns the credentials for a place; none for Common Crawl's own bucket, which needs none."""
        if scheme_of(place) not in WEB or self._settings.is_public_place(place):
            return NO_ACCESS
        return self._access if self._access and self._applies_to(place) else _access_by_host(self._env, place)

    def _applies_to(self, place: str) -> bool:
        """Whether the environment's credentials are for this place. Raises ``UserInputError`` if that is ambiguous."""
        known_sources = {self._settings.source, *map(normalise_root, self._known_sources)}
        if len(set(map(_origin, known_sources))) > 1:
            raise UserInputError(
                f"{PREFIX}SOURCE_USER, _PASSWORD or _QUERY is set, but there are several hosts: "
                f"{', '.join(sorted(known_sources))}. Write the credentials into the address of the source, or into "
                "netrc"
            )
        return _origin(place) == _origin(self._settings.source)


def _access_by_host(env: Mapping[str, str], address: str) -> Access:
    """Returns the credentials that netrc has for exactly this host. Its ``default`` is never used."""
    path = env.get("NETRC") or (f"{env['HOME']}/.netrc" if env.get("HOME") else "")
    if not path or not Path(path).is_file():
        return NO_ACCESS
    try:
        login = netrc(path).hosts.get(host_of(address))
    except (OSError, UnicodeDecodeError, NetrcParseError) as error:
        # the parser's message may contain a misplaced password
        line = f" at line {error.lineno}" if isinstance(error, NetrcParseError) else ""
        raise EnvironmentFault(
            f"the netrc file {path} (passwords by host) cannot be read{line}",
            "Correct the file, or set NETRC to another file (/dev/null for none).",
        ) from None
    return Access(login[0], login[2] or "") if login else NO_ACCESS


def _origin(address: str) -> tuple[str, str, int | None]:
    """Returns scheme, host and port of a web address; any other place is its own origin."""
    scheme = scheme_of(address)
    if scheme not in WEB:
        return "", address, None
    return scheme, host_of(address), urlsplit(address).port or (443 if scheme == "https" else 80)
