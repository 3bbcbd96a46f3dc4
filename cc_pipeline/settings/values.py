"""The settings as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cc_pipeline import SOFTWARE
from cc_pipeline.addresses import NO_ACCESS, Access, host_of, scheme_of
from cc_pipeline.settings.places import (
    BETWEEN_PLACES,
    DEFAULT_REGION,
    MINI_CRAWL_MARK,
    OFFICIAL_MIRROR,
    WEB,
    BucketSettings,
    is_mirror,
    is_public,
    may_be_mirrored,
    read_buckets,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a run.

    ``source`` is the root of a Common Crawl bucket (absolute folder, ``http(s)://`` or ``s3://``), ``home`` the
    absolute folder of all local state, ``lake`` the root of the tables and stored records (``home/lake`` or an
    ``s3://`` address), ``collinfo`` an address or path. All four can be shown: what lets somebody in at the source and
    at the list of crawls is kept apart, in ``source_access`` and ``collinfo_access``. ``mirrors`` are further places
    with the same objects, in the order in which they are asked for what the source does not give, ``mirror_access``
    what lets somebody in there; ``redirects`` are hosts that a web place may redirect to. ``s3_endpoint``,
    ``s3_region`` and ``s3_anonymous`` say how buckets are reached that ``s3_places`` does not name (``places.py``).
    ``rate`` is requests per second and ``concurrency`` requests in flight, both per host and for all processes of the
    home; ``None`` means the source's own default. ``wait`` is how many seconds a source that refuses is waited for (0:
    not at all, ``math.inf``: for ever); ``None`` means as long as a run that nobody watches waits.
    ``max_bytes`` and ``max_requests`` are the most that the fetches of one command may cost. ``max_unsettled`` is the
    share of a partition's captures that may fail to come without failing its run, ``max_lost`` the share of a
    command's captures that the source may have lost before that is doubted, ``accept_losses`` the numbers of losses
    that a person accepts, ``max_index_gaps`` the share of a
    subset's index files (0 to 1) that may be unread without an error. ``record_mirror`` says whether Common Crawl's
    mirror is asked for records too (``record_mirror_for``). ``crawls`` is what the sensor harvests:
    ``newest``, ``all``, or crawl ids. ``backfill_per_tick`` is how many partitions one tick of the schedule asks for at
    most, ``backfill_hours`` how much work it lets wait, ``partitions_per_run`` how many one run takes at most.
    ``publish_every`` are the minutes that ``cc.duckdb`` may be behind while runs go on. ``history_days`` is how long
    Dagster's runs are kept, failed ones twice as long. ``column_events`` says whether a run's first record of each
    table has its columns and what they are made of, for OpenLineage. ``webhook`` is where failures are told.
    ``ui_hosts`` are names (``host`` or ``host:port``) by which the UI is reached, beside those of this machine itself.
    ``publish`` says what ``cc.duckdb`` holds: ``views`` over the lake's files, or a ``copy`` of their rows; ``none``
    where another home publishes. ``engine`` is where records are fetched and pages parsed: in ``local`` processes or on
    ``spark``; ``spark_master`` is the cluster's address, and ``spark_workers`` how many of its processes may fetch at
    the same time at most. ``budget`` is the file by which homes of one machine share what they send; ``None``: this
    home's own. ``hosts`` is how many hosts share the source's budget: each sends its even share, or, with ``leases``,
    what all of them lease from one PostgreSQL.
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
    engine: str = "local"
    spark_master: str = ""
    spark_workers: int = 0
    hosts: int = 1
    budget: str | None = None
    leases: bool = False
    crawls: tuple[str, ...] = ("newest",)
    backfill_per_tick: int = 2_000
    backfill_hours: float = 1.0
    partitions_per_run: int = 200
    publish_every: float = 10.0
    column_events: bool = False
    history_days: int = 90
    webhook: str = field(default="", repr=False)
    ui_hosts: tuple[str, ...] = ()
    rate: float | None = None
    wait: float | None = None
    concurrency: int | None = None
    max_bytes: int = 20_000_000_000
    max_requests: int = 200_000
    max_unsettled: float = 0.01
    max_lost: float = 0.05
    accept_losses: tuple[str, ...] = ()
    max_index_gaps: float = 0.0
    workers: int = 0
    s3_endpoint: str | None = None
    s3_region: str = DEFAULT_REGION
    s3_anonymous: bool = False
    s3_places: tuple[str, ...] = ()
    lake_endpoint: str | None = None
    source_access: Access = NO_ACCESS
    collinfo_access: Access = NO_ACCESS
    mirrors: tuple[str, ...] = ()
    mirror_access: tuple[Access, ...] = ()
    redirects: tuple[str, ...] = ()
    record_mirror: bool = False

    @property
    def official_mirror(self) -> str | None:
        """The mirror that shares requests for records with the source: where the setting is on, and the source is
        Common Crawl's own host alone. Records only, because the index knows their digests."""
        is_front = self.is_public and scheme_of(self.source) in WEB and not self.mirrors
        return OFFICIAL_MIRROR if self.record_mirror and is_front else None

    def record_mirror_for(self, crawl: str) -> str | None:
        """The same for one crawl; ``None`` also for a crawl that the mirror does not have."""
        return self.official_mirror if may_be_mirrored(crawl) else None

    @property
    def sources(self) -> tuple[str, ...]:
        """All places with the objects, in order of preference."""
        return (self.source, *self.mirrors)

    @property
    def further_places(self) -> tuple[tuple[str, Access], ...]:
        """The mirrors, each with what lets somebody in there alone."""
        access = (*self.mirror_access, *([NO_ACCESS] * len(self.mirrors)))
        return tuple(zip(self.mirrors, access, strict=False))

    @property
    def s3_buckets(self) -> Mapping[str, BucketSettings]:
        """How the buckets are reached that have settings of their own."""
        return read_buckets(self.s3_places)

    def s3_at(self, place: str) -> BucketSettings:
        """How a bucket is reached: as its own settings say, which stand for all of it, else like all others."""
        others = BucketSettings(self.s3_endpoint, self.s3_region, self.s3_anonymous)
        return self.s3_buckets.get(host_of(place), others)

    @property
    def source_text(self) -> str:
        """All places as ``CC_PIPELINE_SOURCE`` has them, without what lets somebody in."""
        return BETWEEN_PLACES.join(self.sources)

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
        """The file of the request budget: of all homes that share it where ``budget`` names one, else this home's."""
        return Path(self.budget) if self.budget else self.home / "budget.sqlite"

    @property
    def footers_path(self) -> Path:
        """Raw footers, kept so that decoding again needs no network."""
        return self.home / "footers"

    @property
    def keyed_path(self) -> Path:
        """Path lists and footers of datasets published by host or URL key."""
        return self.home / "keyed"

    @property
    def datasets_path(self) -> Path:
        """Datasets that a person added: a YAML file each."""
        return self.home / "datasets"

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
        return self.is_public_place(self.source)

    @property
    def is_common_crawl(self) -> bool:
        """Whether the source is Common Crawl's data: its own bucket or a mirror of it."""
        return any(self.is_public_place(place) or is_mirror(place) for place in self.sources)

    @property
    def is_mini_crawl(self) -> bool:
        """Whether the source is a folder that the mini crawl generated: no page in it is real."""
        return not scheme_of(self.source) and (Path(self.source) / MINI_CRAWL_MARK).is_file()

    def is_public_place(self, place: str) -> bool:
        """Whether a place is Common Crawl's own bucket."""
        return is_public(place, self.s3_at(place).endpoint)

    @property
    def user_agent(self) -> str:
        """The User-Agent of every request: the project and, where given, a contact."""
        contact = f"; +{self.contact}" if self.contact else ""
        return f"{SOFTWARE} (archive research{contact})"
