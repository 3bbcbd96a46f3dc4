"""Flags, the environment and the home each say something; one reading of all of them gives checked settings, and texts
that another process reads the same."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cc_pipeline.addresses import Access, scheme_of, split_access
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import UserInputError
from cc_pipeline.home import HomeNote, NoteUnreadable, read_note
from cc_pipeline.settings.access import let_in, own_access
from cc_pipeline.settings.environment import PREFIX, number_in, text_in, words_in, yes_in
from cc_pipeline.settings.places import (
    DEFAULT_COLLINFO,
    DEFAULT_SOURCE,
    WEB,
    check_endpoint,
    normalise_root,
    read_buckets,
    split_places,
)
from cc_pipeline.settings.values import Settings

EXTRACTORS = ("fast", "auto", "quality")
DIGEST_POLICIES = ("record", "fail")
PUBLISH = ("views", "copy", "none")
ENGINES = ("local", "spark")
#: A host's name or address in brackets, perhaps with a port; ``*`` stands for a part of a label.
_HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9._*-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?")
#: Characters that DuckDB takes for patterns, or that the Delta library refuses, even in quotes.
_NOT_IN_PATHS = frozenset("*?[]{}|^%\\\n")

#: How the variable of a setting is read, by the type of its field.
_READERS: Final[dict[str, Callable[[Mapping[str, str], str], Any]]] = {
    "str": text_in,
    "str | None": text_in,
    "bool": yes_in,
    "int": partial(number_in, kind=int),
    "int | None": partial(number_in, kind=int),
    "float": partial(number_in, kind=float),
    "float | None": partial(number_in, kind=float),
    "tuple[str, ...]": words_in,
}
#: The settings that are read so: all but places, and what lets somebody in there.
_PLACES: Final = frozenset({"source", "home", "lake", "collinfo", "mirrors"})
FROM_ENVIRONMENT: Final = [one for one in fields(Settings) if one.name not in _PLACES and one.type in _READERS]
#: Days of history that a home needs: schedules ask what failed in the last seven.
_LEAST_HISTORY: Final = 8
#: What belongs to one machine, what nobody else is to see, and what the text of the source says.
_KEPT: Final = frozenset({"home", "budget", "webhook", "mirrors", "mirror_access"})


def checked(settings: Settings) -> Settings:
    for name, value, allowed in (
        ("EXTRACTOR", settings.extractor, EXTRACTORS),
        ("DIGEST_POLICY", settings.digest_policy, DIGEST_POLICIES),
        ("PUBLISH", settings.publish, PUBLISH),
        ("ENGINE", settings.engine, ENGINES),
    ):
        if value not in allowed:
            raise UserInputError(f"{PREFIX}{name} is {value!r}; choose one of {', '.join(allowed)}")
    for subset in settings.subsets:
        if subset not in SUBSETS:
            raise UserInputError(f"{PREFIX}SUBSETS names {subset!r}; choose from {', '.join(SUBSETS)}")
    if not settings.subsets:
        raise UserInputError(f"{PREFIX}SUBSETS is empty; choose from {', '.join(SUBSETS)}")
    for name, number in (("RATE", settings.rate), ("CONCURRENCY", settings.concurrency)):
        if number is not None and not 0 < number < math.inf:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {number}")
    if settings.wait is not None and not settings.wait >= 0:
        raise UserInputError(f"{PREFIX}WAIT must be a number of seconds, 0 or more, or inf, not {settings.wait:g}")
    for name, share in (
        ("MAX_UNSETTLED", settings.max_unsettled),
        ("MAX_LOST", settings.max_lost),
        ("MAX_INDEX_GAPS", settings.max_index_gaps),
    ):
        if not 0 <= share <= 1:
            raise UserInputError(f"{PREFIX}{name} must be a share from 0 to 1, not {share:g}")
    for name, count in (
        ("BACKFILL_PER_TICK", settings.backfill_per_tick),
        ("PARTITIONS_PER_RUN", settings.partitions_per_run),
        ("HOSTS", settings.hosts),
    ):
        if count < 1:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {count}")
    for name, amount in (("BACKFILL_HOURS", settings.backfill_hours), ("PUBLISH_EVERY", settings.publish_every)):
        if not 0 < amount < math.inf:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {amount:g}")
    if settings.history_days < _LEAST_HISTORY:
        why = "schedules go by what failed in the last week"
        raise UserInputError(f"{PREFIX}HISTORY_DAYS must be {_LEAST_HISTORY} or more: {why}")
    if not all(_HOST_PATTERN.fullmatch(host) for host in settings.redirects):
        # what stands there is not repeated: it may hold a password
        raise UserInputError(f"{PREFIX}REDIRECTS takes names of hosts, such as *.aws.cdn.example, and no addresses")
    if settings.webhook and scheme_of(settings.webhook) not in WEB:
        raise UserInputError(f"{PREFIX}WEBHOOK is no http:// or https:// address")
    for name, endpoint in (("S3_ENDPOINT", settings.s3_endpoint), ("LAKE_ENDPOINT", settings.lake_endpoint)):
        if endpoint:
            check_endpoint(name, endpoint)
    read_buckets(settings.s3_places)
    for name, place in (("HOME", str(settings.home)), ("LAKE", settings.lake)):
        odd = sorted(_NOT_IN_PATHS & set(place))
        if odd and "://" not in place:
            raise UserInputError(
                f"{PREFIX}{name} is {place!r}; tables cannot be stored under a path that has {' '.join(odd)} in it, "
                "choose another"
            )
    return settings


def as_texts(settings: Settings) -> dict[str, str]:
    """What each variable says (by its name without the prefix) so that ``load_settings`` reads the same values.

    Without the home, which is a place of this machine, and without whatever lets somebody in: who needs that has it
    from the environment or a role of its own. An unset value is an empty text, so that none is read in its place.
    """
    values = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in _KEPT}
    values["source"] = settings.source_text
    return {name.upper(): _text(value) for name, value in values.items() if not isinstance(value, Access)}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, with ``overrides`` (``None`` values are ignored) on top.

    What rows depend on (``home.CHOICES``) belongs to the home once it was used: the environment does not change it.
    Without an explicit source the places the home remembers are used, else Common Crawl's public address. Credentials
    come from the address, from ``CC_PIPELINE_SOURCE_USER``, ``_PASSWORD`` and ``_QUERY`` for the one host that these
    are for, or from netrc, in this order. Raises ``UserInputError`` naming the variable for values that cannot be used,
    ``EnvironmentFault`` for a netrc file that cannot be read, and where nothing says whose tables the home holds.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in overrides.items() if value is not None}
    home = Path(given.pop("home", None) or text_in(env, "HOME") or "data").expanduser().resolve()
    said = text_in(env, "SOURCE")
    named = given.pop("source", None) or said
    note = _note_of(home)
    noted = note.places if note is not None else ()
    texts = split_places(str(named)) if named else noted or (DEFAULT_SOURCE,)
    own = own_access(texts)
    source, *mirrors = own
    lake = given.pop("lake", None) or text_in(env, "LAKE") or str(home / "lake")
    collinfo = given.pop("collinfo", None) or text_in(env, "COLLINFO")
    settings = Settings(source, home, normalise_root(str(lake)), "", mirrors=tuple(mirrors))
    read: dict[str, Any] = {one.name: _READERS[str(one.type)](env, one.name.upper()) for one in FROM_ENVIRONMENT}
    read |= note.chosen if note is not None else {}
    settings = replace(settings, **{name: value for name, value in read.items() if value is not None})
    settings = checked(replace(settings, **given))
    if settings.budget:
        settings = replace(settings, budget=str(Path(settings.budget).expanduser().resolve()))
    elif any(map(settings.is_public_place, settings.sources)):
        settings = replace(settings, budget=_users_budget(env))
    collinfo = str(collinfo or (DEFAULT_COLLINFO if settings.is_common_crawl else f"{source}/collinfo.json"))
    address, list_access = split_access(collinfo)
    return let_in(replace(settings, collinfo=address), env, own, list_access, (*noted, *split_places(said or "")))


def _users_budget(environ: Mapping[str, str]) -> str | None:
    """The file by which all homes of a user on this machine share what they send to Common Crawl, which counts the
    requests of an address; ``None`` where the user has no folder that can be written to. Homes of users may lie on
    several machines' common disk, so the file has the machine's name."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    try:
        # a relative one is to be ignored (XDG Base Directory Specification 0.8), and homes would not share it
        folder = (state if state.is_absolute() else Path.home() / ".local" / "state") / "cc_pipeline"
    except RuntimeError:
        return None
    machine = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())
    file = folder / f"budget-{machine}.sqlite"
    # what HOME says may be another user's, and so may the file: then nobody tells what is there, or may write to it
    nearest = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    needed = [nearest, *([file] if os.path.exists(file) else [])]
    return str(file) if all(os.access(path, os.W_OK) for path in needed) else None


def _note_of(home: Path) -> HomeNote | None:
    """The note of a home. One of somebody else is private, and what is published there can be read all the same."""
    try:
        return read_note(home)
    except NoteUnreadable:
        return None


def owners(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Who the assets belong to, as ``CC_PIPELINE_OWNERS`` names them."""
    return words_in(os.environ if environ is None else environ, "OWNERS") or ("team:cc-pipeline",)


def in_environment(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What the variable of a setting says, ``None`` where it says nothing; whatever the home has chosen."""
    return text_in(os.environ if environ is None else environ, name.upper())
