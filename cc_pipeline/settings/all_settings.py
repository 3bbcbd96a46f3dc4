"""The settings of a run and of a process: all declarations of the core."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cc_pipeline import SOFTWARE
from cc_pipeline.addresses import NO_ACCESS, Access, scheme_of
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.extension import extensions
from cc_pipeline.settings.declaration import has_minimum, is_above_zero, is_choice, is_share, setting
from cc_pipeline.settings.source_addresses import (
    DEFAULT_REGION,
    MINI_CRAWL_MARK,
    WEB,
    endpoint_problem,
    is_public,
)

PUBLISH: Final = ("views", "copy", "none")
#: A host's name or address in brackets, perhaps with a port; ``*`` stands for a part of a label.
_HOST_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9._*-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?")
#: Characters that DuckDB treats as patterns, or that the Delta library refuses, even in quotes.
_NOT_IN_PATHS: Final = frozenset("*?[]{}|^%\\\n")
#: Minimum days of history: schedules read the failures of the last seven.
_MIN_HISTORY_DAYS: Final = 8
_T = TypeVar("_T")


def _engine(name: str) -> str | None:
    engines = ("local", *(engine for extension in extensions() for engine in extension.engines()))
    return is_choice(*engines)(name)


def _storable(place: object) -> str | None:
    text = str(place)
    bad_characters = sorted(_NOT_IN_PATHS & set(text))
    if not bad_characters or "://" in text:
        return None
    return (
        f"is {text!r}; tables cannot be stored under a path with the characters {' '.join(bad_characters)}: choose "
        "another path"
    )


def _subsets(names: tuple[str, ...]) -> str | None:
    unknown_subsets = [name for name in names if name not in SUBSETS]
    if unknown_subsets or not names:
        return f"{f'names {unknown_subsets[0]!r}' if unknown_subsets else 'is empty'}; choose from {', '.join(SUBSETS)}"
    return None


def _seconds(wait: float) -> str | None:
    return None if wait >= 0 else f"must be a number of seconds, 0 or more, or inf, not {wait:g}"


def _host_names(hosts: tuple[str, ...]) -> str | None:
    # the value is not repeated: it may contain a password
    has_invalid = not all(_HOST_PATTERN.fullmatch(host) for host in hosts)
    return "must be host names, such as *.aws.cdn.example, and no URLs" if has_invalid else None


def _web_address(address: str) -> str | None:
    return None if scheme_of(address) in WEB else "must be an http:// or https:// address"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run. A field that is a ``setting`` is the variable ``CC_PIPELINE_<NAME>``, which its help and
    docs/settings.md explain.

    ``source``, ``home``, ``lake`` and ``collinfo`` contain no credentials: those for the source and for the list of
    crawls are in ``source_access`` and ``collinfo_access``. ``rate`` and ``concurrency`` apply per host and to all
    processes of the home; ``None`` means the source's own default. ``wait`` in seconds may be ``math.inf``; ``None``
    means the time of a run without a terminal. ``budget`` is ``None`` for the home's own file. The process sends
    one of ``rate_shares`` even shares of the rate: several workers of one run have more than one. ``refetch`` requests
    lost captures again; no variable sets it, since schedules would do so for ever. ``of_extensions`` are the settings
    of extensions; :meth:`settings_of` returns them by type.
    """

    source: str = setting(
        help="root of a Common Crawl bucket: a folder, `https://…`, `s3://commoncrawl`, or any other bucket",
        default_text="the home's own, else `https://data.commoncrawl.org`",
        has_own_reader=True,
    )
    home: Path = setting(
        help="folder of all local state. A home keeps its source and refuses another one "
        "([moving a source](deployment.md#moving-a-source)). The demo's home is `demo` in this folder",
        default_text="`data`",
        has_own_reader=True,
        is_of_this_machine=True,
        check=_storable,
    )
    lake: str = setting(
        help="root of the tables and stored records; may be `s3://bucket/prefix`",
        default_text="`<home>/lake`",
        has_own_reader=True,
        check=_storable,
    )
    collinfo: str = setting(
        help="address or path of the list of crawls. Common Crawl's own list is read once a day, and "
        "is optional ([faults.md](faults.md#no-index-server))",
        default_text="Common Crawl's own list, or `<source>/collinfo.json` for other sources",
        has_own_reader=True,
    )
    redirects: tuple[str, ...] = setting(
        (),
        help="hosts that a web source may redirect to ([redirects](deployment.md#redirects))",
        default_text="Hugging Face's own hosts for a source there, else none",
        check=_host_names,
    )
    lake_endpoint: str | None = setting(None, help="S3 endpoint of the lake, if it is not AWS", check=endpoint_problem)
    publish: str = setting(
        "views",
        help="content of `cc.duckdb`: `views`, or a `copy` of the rows ([a lake on "
        "S3](#a-lake-on-s3)). `none`: another home of the lake publishes",
        check=is_choice(*PUBLISH),
    )
    contact: str = setting("", help="your mail address or web page, sent in the User-Agent. Please set it")
    subsets: tuple[str, ...] = setting(
        ("warc",),
        help="subsets to fetch, comma-separated: `warc`, `crawldiagnostics` (redirects, 404s …), `robotstxt`",
        check=_subsets,
    )
    # higher rooms know the kinds of index: a workspace refuses others
    index: str = setting(
        "auto", help="index that lookups search: `auto`, or [a kind of index](finding.md#which-index-is-used)"
    )
    crawls: tuple[str, ...] = setting(
        ("newest",),
        help="crawls that automation harvests and extracts watched targets from: `newest`, `all`, or crawl ids",
    )
    rate: float | None = setting(
        None,
        help="maximum requests per second to each host of the source, from all processes that share "
        "`CC_PIPELINE_BUDGET`. More than 5 to data.commoncrawl.org need `CC_PIPELINE_CONTACT`",
        default_text="[by source](faults.md#limits)",
        check=is_above_zero,
    )
    concurrency: int | None = setting(
        None,
        help="maximum requests in flight to each host of the source, from all processes that share "
        "`CC_PIPELINE_BUDGET`. More than 4 to data.commoncrawl.org need `CC_PIPELINE_CONTACT`",
        default_text="[by source](faults.md#limits)",
        check=is_above_zero,
    )
    budget: str | None = setting(
        None,
        help="file of the request budget. Homes of one machine that name the same file share its "
        "rate, also those of several users or containers. The file must be on a local disk, and "
        "writable for all of them",
        default_text="for Common Crawl a file of the user (`~/.local/state/cc_pipeline`, or in "
        "`XDG_STATE_HOME`), else `budget.sqlite` in the home",
        is_of_this_machine=True,
    )
    wait: float | None = setting(
        None,
        help="seconds to wait for a source that refuses: 0 for none, `inf` for no limit",
        default_text="7 days at a terminal, else 6 minutes",
        check=_seconds,
    )
    max_bytes: int = setting(
        20_000_000_000,
        help="maximum bytes of all fetches of one command, or of one scheduled run; `run --yes` ignores the limit",
        default_text="20 GB",
    )
    max_requests: int = setting(
        200_000,
        help="maximum requests of all fetches of one command, or of one scheduled run; `run --yes` ignores the limit",
    )
    max_index_gaps: float = setting(
        0.0,
        help="maximum share (0 to 1) of a subset's index files that may be gaps (files that could not "
        "be read); `--allow-gaps` means 1",
        check=is_share,
    )
    max_pending: float = setting(
        0.01,
        help="maximum share of a partition's captures (of at least 100) that may be pending; above it "
        "a run ends with status 3",
        check=is_share,
    )
    max_lost: float = setting(
        0.05,
        help="maximum share of a command's captures that a source may lack. Above it the source counts as ill: nothing "
        "counts towards a loss, and the command ends with status 3 ([faults.md](faults.md#what-counts-as-lost))",
        check=is_share,
    )
    accept_removals: bool = setting(
        False, help="remove captures that the index no longer lists (`run --accept-removals`)"
    )
    markdown: bool = setting(False, help="whether `page_text.main_content_markdown` is filled", decides_rows=True)
    workers: int = setting(0, help="number of processes that parse", default_text="one per core")
    engine: str = setting(
        "local",
        help="engine that fetches records and parses pages: `local`, or one that an "
        "[extension](extensions.md) adds. `run --engine`, and the tag `cc_pipeline/engine` of a "
        "run in the UI, override it",
        check=_engine,
    )
    publish_every: float = setting(
        10.0, help="maximum minutes that `cc.duckdb` may be behind while runs are in flight", check=is_above_zero
    )
    history_days: int = setting(
        90,
        help="days that Dagster's runs are kept; failed runs are kept twice as long. 8 or more "
        "([dagster.md](dagster.md#history-has-an-end))",
        check=has_minimum(_MIN_HISTORY_DAYS, "schedules go by what failed in the last week"),
    )
    webhook: str = setting(
        "",
        help="`http(s)://` address that receives one JSON document for each failed run (its reason, "
        "and the first ten failed partitions with theirs). "
        "Redirects are not followed. The address is never shown",
        check=_web_address,
        is_secret=True,
    )
    ui_hosts: tuple[str, ...] = setting(
        (),
        help="host names by which browsers reach the UI, comma-separated (`ui.example.org`, "
        "`ui.example.org:8443`). `localhost` and the UI's own address are always valid. Requests "
        "to other names are refused ([SECURITY.md](SECURITY.md#the-ui))",
    )
    s3_endpoint: str | None = setting(
        None,
        help="endpoint of `s3://` sources, if it is not AWS. Credentials come from the usual AWS chain",
        check=endpoint_problem,
    )
    s3_region: str = setting(DEFAULT_REGION, help="region of `s3://` sources")
    s3_anonymous: bool = setting(False, help="`yes`: requests to `s3://` sources are unsigned")
    rate_shares: int = 1
    refetch: bool = False
    source_access: Access = NO_ACCESS
    collinfo_access: Access = NO_ACCESS
    of_extensions: tuple[object, ...] = ()

    def settings_of(self, kind: type[_T]) -> _T:
        """Returns the settings of an extension, by the dataclass that declares them."""
        [values] = [values for values in self.of_extensions if isinstance(values, kind)]
        return values

    @property
    def published_path(self) -> Path:
        """The DuckDB file that analysts open."""
        return self.home / "cc.duckdb"

    @property
    def watch_list_path(self) -> Path:
        """The watch list: one target per line."""
        return self.home / "domains.txt"

    @property
    def dagster_home(self) -> Path:
        """The Dagster instance."""
        return self.home / "dagster"

    @property
    def budget_path(self) -> Path:
        """The file of the request budget: the shared one if ``budget`` is set, else that of this home."""
        return Path(self.budget) if self.budget else self.home / "budget.sqlite"

    @property
    def footers_path(self) -> Path:
        """Raw footers, stored so that they can be decoded again without requests."""
        return self.home / "footers"

    @property
    def cache_path(self) -> Path:
        """The folder of small cached files (collinfo, path lists)."""
        return self.home / "cache"

    @property
    def has_separate_lake(self) -> bool:
        """Whether the lake lies outside the home, so that other homes may use it too."""
        return bool(scheme_of(self.lake)) or not Path(self.lake).is_relative_to(self.home)

    @property
    def is_public(self) -> bool:
        """Whether the source is Common Crawl's own bucket."""
        return self.is_public_place(self.source)

    @property
    def is_mini_crawl(self) -> bool:
        """Whether the source is a folder that the mini crawl generated: no page in it is real."""
        return not scheme_of(self.source) and (Path(self.source) / MINI_CRAWL_MARK).is_file()

    def is_public_place(self, place: str) -> bool:
        """Whether a place is Common Crawl's own bucket."""
        return is_public(place, self.s3_endpoint)

    @property
    def user_agent(self) -> str:
        """The User-Agent of every request: the project and, where given, a contact."""
        contact = f"; +{self.contact}" if self.contact else ""
        return f"{SOFTWARE} (archive research{contact})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Variables that are no settings of a run: credentials for the source."""

    source_user: str = setting("", help="user name of the [credentials](#credentials) for an `http(s)://` source")
    source_password: str = setting("", help="password of that user", is_secret=True)
    source_query: str = setting("", help="credentials that are sent as the query of each request", is_secret=True)
