"""One frozen settings object, built at the front doors (definitions, command line) and passed in.

No other room reads the environment. Every setting is an environment variable ``CC_PIPELINE_<NAME>`` and, where it
makes sense, a flag of the command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cc_pipeline import SOFTWARE
from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.home import LAYOUT, HomeNote, read_note, refuse_newer, write_note

DEFAULT_SOURCE = "https://data.commoncrawl.org"
DEFAULT_COLLINFO = "https://index.commoncrawl.org/collinfo.json"
LOCATORS = ("auto", "parquet", "btree", "zipnum")
EXTRACTORS = ("fast", "quality")
PREFIX = "CC_PIPELINE_"
#: Patterns to DuckDB, or refused by the Delta library, even in quotes.
_NOT_IN_PATHS = frozenset("*?[]{}|^%\\\n")
_PUBLIC_HOST = "data.commoncrawl.org"
_PUBLIC_BUCKET = "commoncrawl"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run can be told.

    ``source`` is the root of a Common Crawl bucket (absolute folder, ``http(s)://`` or ``s3://``), ``home`` the
    absolute folder of all local state, ``lake`` the root of the tables and stored records (``home/lake`` or an
    ``s3://`` address), ``collinfo`` an address or path. ``rate`` is requests per second and ``concurrency``
    requests in flight, both per host and machine; ``None`` means the source's own default. ``max_bytes`` and
    ``max_requests`` are the budget gate of one partition. ``crawls`` is what the sensor runs: ``newest``,
    ``all``, or crawl ids; ``backfill_per_tick`` is how many partitions the schedule asks for at once.
    """

    source: str
    home: Path
    lake: str
    collinfo: str
    contact: str = ""
    subsets: tuple[str, ...] = ("warc",)
    via: str = "auto"
    extractor: str = "fast"
    digest_policy: str = "record"
    crawls: tuple[str, ...] = ("newest",)
    backfill_per_tick: int = 50
    rate: float | None = None
    concurrency: int | None = None
    max_bytes: int = 20_000_000_000
    max_requests: int = 200_000
    workers: int = 0
    s3_endpoint: str | None = None
    s3_region: str = "us-east-1"
    s3_anonymous: bool = False
    lake_endpoint: str | None = None

    @property
    def catalog_path(self) -> Path:
        """The row-group catalog."""
        return self.home / "catalog.duckdb"

    @property
    def published_path(self) -> Path:
        """The DuckDB file analysts open."""
        return self.home / "cc.duckdb"

    @property
    def watch_list_path(self) -> Path:
        """The watch list: one target a line."""
        return self.home / "domains.txt"

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

    Without an explicit source the one the home remembers is used, else Common Crawl's public address. Raises
    ``UserInputError`` naming the variable for values that cannot be used.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in overrides.items() if value is not None}
    home = Path(given.pop("home", None) or _text(env, "HOME") or "data").expanduser().resolve()
    source_text = given.pop("source", None) or _text(env, "SOURCE") or remembered_source(home) or DEFAULT_SOURCE
    source = normalise_root(str(source_text))
    lake = given.pop("lake", None) or _text(env, "LAKE") or str(home / "lake")
    collinfo = (
        given.pop("collinfo", None)
        or _text(env, "COLLINFO")
        or _default_collinfo(source, given.get("s3_endpoint") or _text(env, "S3_ENDPOINT"))
    )
    settings = Settings(source=source, home=home, lake=normalise_root(str(lake)), collinfo=str(collinfo))
    from_env: dict[str, Any] = {
        "contact": _text(env, "CONTACT"),
        "subsets": _words(env, "SUBSETS"),
        "via": _text(env, "VIA"),
        "extractor": _text(env, "EXTRACTOR"),
        "digest_policy": _text(env, "DIGEST_POLICY"),
        "crawls": _words(env, "CRAWLS"),
        "backfill_per_tick": _number(env, "BACKFILL_PER_TICK", int),
        "rate": _number(env, "RATE", float),
        "concurrency": _number(env, "CONCURRENCY", int),
        "max_bytes": _number(env, "MAX_BYTES", int),
        "max_requests": _number(env, "MAX_REQUESTS", int),
        "workers": _number(env, "WORKERS", int),
        "s3_endpoint": _text(env, "S3_ENDPOINT"),
        "s3_region": _text(env, "S3_REGION"),
        "s3_anonymous": (_text(env, "S3_ANONYMOUS") or "").lower() in ("1", "true", "yes") or None,
        "lake_endpoint": _text(env, "LAKE_ENDPOINT"),
    }
    settings = replace(settings, **{key: value for key, value in from_env.items() if value is not None})
    settings = replace(settings, **given)
    return _checked(settings)


def _checked(settings: Settings) -> Settings:
    for name, value, allowed in (
        ("VIA", settings.via, LOCATORS),
        ("EXTRACTOR", settings.extractor, EXTRACTORS),
        ("DIGEST_POLICY", settings.digest_policy, ("record", "fail")),
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
    if settings.backfill_per_tick < 1:
        raise UserInputError(f"{PREFIX}BACKFILL_PER_TICK must be a number above 0, not {settings.backfill_per_tick}")
    for name, place in (("HOME", str(settings.home)), ("LAKE", settings.lake)):
        odd = sorted(_NOT_IN_PATHS & set(place))
        if odd and "://" not in place:
            raise UserInputError(
                f"{PREFIX}{name} is {place!r}; tables cannot be stored under a path that has {' '.join(odd)} in it, "
                "choose another"
            )
    return settings


def normalise_root(text: str) -> str:
    """An absolute folder, or an ``http(s)://``/``s3://`` address without its last slash."""
    parts = urlsplit(text)
    if parts.scheme in ("http", "https", "s3"):
        if not parts.netloc:
            raise UserInputError(f"{text!r} names no host or bucket")
        return text.rstrip("/")
    if parts.scheme == "file":
        return str(Path(parts.path).resolve())
    if "://" in text:
        raise UserInputError(f"{text!r}: use a folder, http://, https:// or s3://")
    return str(Path(text).expanduser().resolve())


def remembered_source(home: Path) -> str | None:
    """The source this home was first used with, or ``None``."""
    note = read_note(home)
    return None if note is None else note.source


def claim_home(settings: Settings) -> None:
    """Makes the home's folders and writes down its source; refuses a home of another source or a newer layout.

    Raises ``UserInputError`` for another source; ``EnvironmentFault`` for a newer layout, and when the folder cannot
    be written.
    """
    note = read_note(settings.home)
    if note is not None and note.source != settings.source:
        raise UserInputError(
            f"{settings.home} holds tables of {note.source}, not of {settings.source}. "
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
        write_note(settings.home, HomeNote(settings.source, LAYOUT))


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


def _number(env: Mapping[str, str], name: str, kind: type[int] | type[float]) -> int | float | None:
    text = _text(env, name)
    if text is None:
        return None
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        raise UserInputError(f"{PREFIX}{name} is {text!r}, which is not a number") from None
