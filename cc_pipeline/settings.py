"""The settings: one frozen object, built where a command, a run or a tick begins, and passed on as a value.

No other room reads the environment. Every setting is an environment variable ``CC_PIPELINE_<NAME>`` and, where it
makes sense, a flag of the command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cc_pipeline import SOFTWARE
from cc_pipeline.addresses import NO_ACCESS, Access, host_of, scheme_of, shown, split_access
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import FIRST_LAYOUT, HomeNote, keep_private, read_note, refuse_newer, write_note

DEFAULT_SOURCE = "https://data.commoncrawl.org"
DEFAULT_COLLINFO = "https://index.commoncrawl.org/collinfo.json"
LOCATORS = ("auto", "parquet", "btree", "zipnum")
EXTRACTORS = ("fast", "auto", "quality")
PUBLISH = ("views", "copy")
PREFIX = "CC_PIPELINE_"
#: Characters that DuckDB takes for patterns, or that the Delta library refuses, even in quotes.
_NOT_IN_PATHS = frozenset("*?[]{}|^%\\\n")
_PUBLIC_HOST = "data.commoncrawl.org"
_PUBLIC_BUCKET = "commoncrawl"
_WEB = ("http", "https")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run.

    ``source`` is the root of a Common Crawl bucket (absolute folder, ``http(s)://`` or ``s3://``), ``home`` the
    absolute folder of all local state, ``lake`` the root of the tables and stored records (``home/lake`` or an
    ``s3://`` address), ``collinfo`` an address or path. All four can be shown: what lets somebody in at the source
    and at the list of crawls is kept apart, in ``source_access`` and ``collinfo_access``. ``rate`` is requests per
    second and ``concurrency`` requests in flight, both per host and machine; ``None`` means the source's own default.
    ``max_bytes`` and ``max_requests`` are the most that fetching one partition may cost. ``max_unsettled`` is the share
    of a partition's captures that may fail to come without failing its run, ``max_index_gaps`` the share of a subset's
    index files (0 to 1) that may be unread without an error. ``crawls`` is what the sensor harvests: ``newest``,
    ``all``, or crawl ids. ``page_indexes`` says whether a harvest keeps the page indexes of the wanted subsets' files
    too. ``backfill_per_tick`` is how many partitions one tick of the schedule asks for at most, ``backfill_hours`` how
    much work it lets wait, ``partitions_per_run`` how many one run takes at most. ``publish_every`` are the minutes
    that ``cc.duckdb`` may be behind while runs go on. ``webhook`` is where failures are told. ``publish`` says what
    ``cc.duckdb`` holds: ``views`` over the lake's files, or a ``copy`` of their rows.
    """

    source: str
    home: Path
    lake: str
    collinfo: str
    contact: str = ""
    subsets: tuple[str, ...] = ("warc",)
    via: str = "auto"
    extractor: str = "fast"
    markdown: bool = False
    digest_policy: str = "record"
    publish: str = "views"
    crawls: tuple[str, ...] = ("newest",)
    page_indexes: bool = False
    backfill_per_tick: int = 2_000
    backfill_hours: float = 1.0
    partitions_per_run: int = 200
    publish_every: float = 10.0
    webhook: str = field(default="", repr=False)
    rate: float | None = None
    concurrency: int | None = None
    max_bytes: int = 20_000_000_000
    max_requests: int = 200_000
    max_unsettled: float = 0.01
    max_index_gaps: float = 0.0
    workers: int = 0
    s3_endpoint: str | None = None
    s3_region: str = "us-east-1"
    s3_anonymous: bool = False
    lake_endpoint: str | None = None
    source_access: Access = NO_ACCESS
    collinfo_access: Access = NO_ACCESS

    @property
    def catalog_path(self) -> Path:
        """The folder of the row-group catalog."""
        return self.home / "catalog"

    @property
    def published_path(self) -> Path:
        """The DuckDB file analysts open."""
        return self.home / "cc.duckdb"

    @property
    def watch_list_path(self) -> Path:
        """The watch list: one target a line."""
        return self.home / "domains.txt"

    @property
    def watch_list_copy(self) -> Path:
        """The last watch list that could be read."""
        return self.cache_path / "domains.txt"

    @property
    def dagster_home(self) -> Path:
        """The Dagster instance."""
        return self.home / "dagster"

    @property
    def budget_path(self) -> Path:
        """The request budget all processes of this machine share."""
        return self.home / "budget.sqlite"

    @property
    def footers_path(self) -> Path:
        """Raw footers, kept so that decoding again needs no network."""
        return self.home / "footers"

    @property
    def cache_path(self) -> Path:
        """Small cached answers (collinfo, path lists)."""
        return self.home / "cache"

    @property
    def lake_is_apart(self) -> bool:
        """Whether the lake lies outside the home, so that other homes may use it too."""
        return bool(scheme_of(self.lake)) or not Path(self.lake).is_relative_to(self.home)

    @property
    def is_public(self) -> bool:
        """Whether the source is Common Crawl's own bucket."""
        return is_public(self.source, self.s3_endpoint)

    @property
    def user_agent(self) -> str:
        """The User-Agent of every request: the project and, where given, a contact."""
        contact = f"; +{self.contact}" if self.contact else ""
        return f"{SOFTWARE} (archive research{contact})"


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, with ``overrides`` (``None`` values are ignored) on top.

    What rows depend on (``home.CHOICES``) belongs to the home once it was used: the environment does not change it.
    Without an explicit source the one the home remembers is used, else Common Crawl's public address. Credentials
    come from the address, from ``CC_PIPELINE_SOURCE_USER``, ``_PASSWORD`` and ``_QUERY``, or from netrc, in this
    order. Raises ``UserInputError`` naming the variable for values that cannot be used, ``EnvironmentFault`` for a
    netrc file that cannot be read.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in overrides.items() if value is not None}
    home = Path(given.pop("home", None) or _text(env, "HOME") or "data").expanduser().resolve()
    source_text = given.pop("source", None) or _text(env, "SOURCE") or _noted_source(home) or DEFAULT_SOURCE
    source = normalise_root(str(source_text))
    lake = given.pop("lake", None) or _text(env, "LAKE") or str(home / "lake")
    collinfo = (
        given.pop("collinfo", None)
        or _text(env, "COLLINFO")
        or _default_collinfo(source, given.get("s3_endpoint") or _text(env, "S3_ENDPOINT"))
    )
    settings = Settings(source, home, normalise_root(str(lake)), split_access(str(collinfo))[0])
    from_env: dict[str, Any] = {
        "contact": _text(env, "CONTACT"),
        "subsets": _words(env, "SUBSETS"),
        "via": _text(env, "VIA"),
        "extractor": _text(env, "EXTRACTOR"),
        "markdown": _yes(env, "MARKDOWN"),
        "digest_policy": _text(env, "DIGEST_POLICY"),
        "publish": _text(env, "PUBLISH"),
        "crawls": _words(env, "CRAWLS"),
        "page_indexes": _yes(env, "PAGE_INDEXES"),
        "backfill_per_tick": _number(env, "BACKFILL_PER_TICK", int),
        "backfill_hours": _number(env, "BACKFILL_HOURS", float),
        "partitions_per_run": _number(env, "PARTITIONS_PER_RUN", int),
        "publish_every": _number(env, "PUBLISH_EVERY", float),
        "webhook": _text(env, "WEBHOOK"),
        "rate": _number(env, "RATE", float),
        "concurrency": _number(env, "CONCURRENCY", int),
        "max_bytes": _number(env, "MAX_BYTES", int),
        "max_requests": _number(env, "MAX_REQUESTS", int),
        "max_unsettled": _number(env, "MAX_UNSETTLED", float),
        "max_index_gaps": _number(env, "MAX_INDEX_GAPS", float),
        "workers": _number(env, "WORKERS", int),
        "s3_endpoint": _text(env, "S3_ENDPOINT"),
        "s3_region": _text(env, "S3_REGION"),
        "s3_anonymous": _yes(env, "S3_ANONYMOUS"),
        "lake_endpoint": _text(env, "LAKE_ENDPOINT"),
    }
    note = read_note(home)
    from_env |= note.chosen if note is not None else {}
    settings = replace(settings, **{key: value for key, value in from_env.items() if value is not None})
    settings = _checked(replace(settings, **given))
    return _let_in(settings, env, split_access(str(source_text))[1], split_access(str(collinfo))[1])


def owners(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Who the assets belong to, as ``CC_PIPELINE_OWNERS`` names them."""
    return _words(os.environ if environ is None else environ, "OWNERS") or ("team:cc-pipeline",)


def in_environment(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What the variable of a setting says, ``None`` where it says nothing; whatever the home has chosen."""
    return _text(os.environ if environ is None else environ, name.upper())


def _let_in(settings: Settings, env: Mapping[str, str], source: Access, collinfo: Access) -> Settings:
    """The settings with credentials: those of the addresses, or what else is given for their hosts."""
    web = scheme_of(settings.source) in _WEB
    if web and not source and not settings.is_public:
        source = _access_in(env) or _access_by_host(env, settings.source)
    if scheme_of(settings.collinfo) in _WEB and not collinfo and settings.collinfo != DEFAULT_COLLINFO:
        same = _origin(settings.collinfo) == _origin(settings.source)
        collinfo = source if same else _access_by_host(env, settings.collinfo)
    return replace(settings, source_access=source, collinfo_access=collinfo)


def _access_in(env: Mapping[str, str]) -> Access:
    query = (_text(env, "SOURCE_QUERY") or "").removeprefix("?")
    return Access(_text(env, "SOURCE_USER") or "", _text(env, "SOURCE_PASSWORD") or "", query)


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


def _checked(settings: Settings) -> Settings:
    for name, value, allowed in (
        ("VIA", settings.via, LOCATORS),
        ("EXTRACTOR", settings.extractor, EXTRACTORS),
        ("DIGEST_POLICY", settings.digest_policy, ("record", "fail")),
        ("PUBLISH", settings.publish, PUBLISH),
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
    if not 0 <= settings.max_unsettled <= 1:
        raise UserInputError(f"{PREFIX}MAX_UNSETTLED must be a share from 0 to 1, not {settings.max_unsettled:g}")
    if not 0 <= settings.max_index_gaps <= 1:
        raise UserInputError(f"{PREFIX}MAX_INDEX_GAPS must be a share between 0 and 1, not {settings.max_index_gaps}")
    for name, count in (
        ("BACKFILL_PER_TICK", settings.backfill_per_tick),
        ("PARTITIONS_PER_RUN", settings.partitions_per_run),
    ):
        if count < 1:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {count}")
    for name, amount in (("BACKFILL_HOURS", settings.backfill_hours), ("PUBLISH_EVERY", settings.publish_every)):
        if not 0 < amount < math.inf:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {amount:g}")
    if settings.webhook and scheme_of(settings.webhook) not in _WEB:
        raise UserInputError(f"{PREFIX}WEBHOOK is no http:// or https:// address")
    for name, endpoint in (("S3_ENDPOINT", settings.s3_endpoint), ("LAKE_ENDPOINT", settings.lake_endpoint)):
        if endpoint and split_access(endpoint)[1]:
            raise UserInputError(
                f"{PREFIX}{name} is {shown(endpoint)} with credentials in it; give it without, and log in with the AWS "
                "tools or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
    for name, place in (("HOME", str(settings.home)), ("LAKE", settings.lake)):
        odd = sorted(_NOT_IN_PATHS & set(place))
        if odd and "://" not in place:
            raise UserInputError(
                f"{PREFIX}{name} is {place!r}; tables cannot be stored under a path that has {' '.join(odd)} in it, "
                "choose another"
            )
    return settings


def normalise_root(text: str) -> str:
    """An absolute folder, or an ``http(s)://``/``s3://`` address without credentials and without its last slash.

    Raises ``UserInputError`` for anything else.
    """
    scheme = text.partition(":")[0].lower() if ":" in text else ""
    if scheme in (*_WEB, "s3"):
        place = split_access(text)[0]
        if not host_of(place):
            raise UserInputError(f"{shown(text)!r} names no host or bucket")
        return place.rstrip("/")
    if scheme == "file":
        return str(Path(urlsplit(text).path).resolve())
    if "://" in text:
        raise UserInputError(f"{shown(text)!r}: use a folder, http://, https:// or s3://")
    return str(Path(text).expanduser().resolve())


def remembered_source(home: Path) -> str | None:
    """The source this home was first used with, without credentials, or ``None``."""
    noted = _noted_source(home)
    return None if noted is None else shown(noted)


def _noted_source(home: Path) -> str | None:
    # homes of before may hold the credentials they were first used with, and go on working with them
    note = read_note(home)
    return None if note is None else note.source


def claim_home(settings: Settings) -> None:
    """Makes the home's folders and writes down its source; refuses a home of another source or a newer layout.

    Raises ``UserInputError`` for another source; ``EnvironmentFault`` for a newer layout, and when the folder cannot
    be written.
    """
    note = read_note(settings.home)
    known = remembered_source(settings.home)
    if known is not None and known != settings.source:
        raise UserInputError(
            f"{settings.home} holds tables of {known}, not of {settings.source}. "
            f"Set {PREFIX}HOME to another folder for the new source, or unset {PREFIX}SOURCE to go on with the old one"
        )
    if note is not None:
        refuse_newer(settings.home, note)
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        settings.dagster_home.mkdir(exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{settings.home} cannot be used as a home: {error.strerror or error}",
            f"Check the disk and its permissions, or set {PREFIX}HOME to another folder.",
        ) from error
    if note is None:
        write_note(settings.home, HomeNote(settings.source, FIRST_LAYOUT))
    else:
        keep_private(settings.home)


def is_public(source: str, s3_endpoint: str | None) -> bool:
    """Whether ``source`` is Common Crawl's own bucket: its host, or its bucket at AWS.

    A bucket of that name behind another endpoint is somebody else's.
    """
    if scheme_of(source) == "s3":
        return host_of(source) == _PUBLIC_BUCKET and (s3_endpoint is None or _is_aws(s3_endpoint))
    return host_of(source) == _PUBLIC_HOST


def _is_aws(endpoint: str) -> bool:
    # other names below amazonaws.com are machines and gateways that anybody may own
    labels = host_of(endpoint).split(".")
    return labels[0] == "s3" and labels[-2:] == ["amazonaws", "com"]


def _default_collinfo(source: str, s3_endpoint: str | None) -> str:
    return DEFAULT_COLLINFO if is_public(source, s3_endpoint) else f"{source}/collinfo.json"


def _text(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(PREFIX + name, "").strip()
    return value or None


def _words(env: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = _text(env, name)
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _yes(env: Mapping[str, str], name: str) -> bool | None:
    text = (_text(env, name) or "no").lower()
    if text not in ("1", "true", "yes", "0", "false", "no"):
        raise UserInputError(f"{PREFIX}{name} is {text!r}; choose yes or no")
    return text in ("1", "true", "yes") or None


def _number(env: Mapping[str, str], name: str, kind: type[int] | type[float]) -> int | float | None:
    text = _text(env, name)
    if text is None:
        return None
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        raise UserInputError(f"{PREFIX}{name} is {text!r}, which is not a number") from None
