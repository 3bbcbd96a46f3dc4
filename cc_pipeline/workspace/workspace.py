"""The workspace of a run: the lake, the transports, the stored records and the list of crawls, made from settings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cc_pipeline.addresses import NO_ACCESS, Access, scheme_of
from cc_pipeline.commoncrawl.crawls import LOCAL, SUBSETS, index_is_built
from cc_pipeline.commoncrawl.slice_slugs import with_subset
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import disk_trouble
from cc_pipeline.home import note_choices
from cc_pipeline.index.locators import refuse_unknown_kind
from cc_pipeline.index.zipnum.cluster_cache import Clusters
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.lake import Lake
from cc_pipeline.processes import this_process
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.settings import CHOICES, Settings
from cc_pipeline.stores.answer import S3Options, Timeouts
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.host_file import rate_in_force
from cc_pipeline.transport.limits import (
    OWN_BUCKET_RATE,
    SourceLimits,
    chosen_limits,
    default_limits,
    refuse_nameless,
    shared_among,
)
from cc_pipeline.transport.named_files import NamedPlaces
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline.workspace.claim import agree_on_choices, claim_home, claim_lake
from cc_pipeline.workspace.crawl_list import CrawlList, read_crawl_list
from cc_pipeline.workspace.tables import all_tables

if TYPE_CHECKING:
    from cc_pipeline.lake.slice import Slice
    from cc_pipeline.records.range_plan import FetchEstimate

_T = TypeVar("_T")

#: Few retries for a list of crawls on a host of its own: a person waits, and can work without it.
_LIST_RETRY = RetryPolicy(attempts=2, longest=2.0)
_LIST_TIMEOUTS = Timeouts(connect=5.0, silence=8.0, window=15.0)
#: Maximum concurrent requests to the lake.
_LAKE_CONCURRENCY = 32


@dataclass(frozen=True)
class Workspace:
    """One home, one source and one lake, open for as long as a run lasts.

    Raises ``UserInputError`` if the settings name an unknown kind of index.

    A workspace is cheap to make: it opens each thing when it is first used, and keeps it. So a run has one transport
    to each place and reads the list of crawls once. The creator of a workspace closes it (:func:`open_workspace` does
    both). ``one_command``: the costs of all its fetches are added up for the cost limit.
    ``opener`` opens transports to the source instead of :func:`open_transport`.
    """

    settings: Settings
    one_command: bool = False
    opener: Callable[..., Transport] | None = None

    def __post_init__(self) -> None:
        refuse_unknown_kind(self.settings.index)

    @cached_property
    def lake(self) -> Lake:
        """The tables. First use claims home and lake for their source.

        Raises ``UnknownLayout`` for a home or lake of another layout; ``UserInputError`` for one of another source.
        """
        self.claim()
        return open_lake(self.settings)

    def claim(self) -> None:
        """Claims the home, and a lake outside it, for the source; raises as :attr:`lake`."""
        claim_home(self.settings)
        if self.settings.has_separate_lake:
            claim_lake(self.place, self.settings.source)

    def choose(self, *, overwrite: bool = False) -> None:
        """Notes the settings that rows are made with, in the home and a lake outside it; ``overwrite`` replaces noted
        ones.

        Raises ``UserInputError`` if other homes make the rows of that lake with other settings.
        """
        choices = {name: getattr(self.settings, name) for name in CHOICES}
        if self.settings.has_separate_lake:
            agree_on_choices(self.place, choices, overwrite=overwrite)
        note_choices(self.settings.home, choices, overwrite=overwrite)
        claim_home(self.settings)

    @cached_property
    def transport(self) -> Transport:
        """The transport to the source, within the machine's request budget. Its ``stats`` only grow: stages compute
        differences."""
        settings = self.settings
        return self._open(settings, settings.source, settings.source_access)

    @property
    def _open(self) -> Callable[..., Transport]:
        return self.opener or open_transport

    @cached_property
    def place(self) -> Transport:
        """The transport to the lake, for stored records and exports."""
        settings = self.settings
        own_rate = default_limits(settings.lake, settings.lake_endpoint).rate and OWN_BUCKET_RATE
        return Transport(
            settings.lake,
            SourceOptions(
                rate=own_rate,
                pauses=False,
                concurrency=_LAKE_CONCURRENCY,
                s3=S3Options(settings.lake_endpoint, settings.s3_region),
            ),
        )

    def index_place(self, crawl: str) -> Transport:
        """Returns the transport to the columnar index of ``crawl``: the source, or the lake if it was built here."""
        return self.place if index_is_built(crawl) else self.transport

    @cached_property
    def index_choices(self) -> dict[str, str]:
        """Crawls that are searched through ZipNum without a harvest, each with the reason. Commands decide that by the
        cost; the UI, schedules and sensors always harvest, so they have none."""
        return {}

    @cached_property
    def fetch_estimates(self) -> dict[Slice, FetchEstimate]:
        """The cost estimates of fetches that were made with this workspace (``extraction/cost_limit.py``)."""
        return {}

    def command_value(self, make: Callable[[], _T]) -> _T:
        """Returns the value that ``make`` made at its first call, for as long as this workspace is open.

        So higher rooms can sum values over a whole command, without being known here.
        """
        if make not in self._command_values:
            self._command_values[make] = make()
        return cast("_T", self._command_values[make])

    @cached_property
    def _command_values(self) -> dict[Callable[[], Any], Any]:
        return {}

    @cached_property
    def clusters(self) -> Clusters:
        """The ZipNum indexes that the run has opened, with the home's cache of them."""
        return Clusters(self.settings.cache_path / "zipnum")

    def archives(self, crawl: str) -> Transport | NamedPlaces:
        """Returns the reader of records of ``crawl`` by file and location: the source, or the places of the files of a
        collection."""
        return self._named_places if crawl.startswith(LOCAL) else self.transport

    def address_of(self, filename: str) -> str:
        """Returns the address of an archive file of any crawl, for people."""
        return self._named_places.url(filename)

    @cached_property
    def _named_places(self) -> NamedPlaces:
        return NamedPlaces(self.transport, lambda root: self._open(self.settings, root, NO_ACCESS))

    @cached_property
    def storage(self) -> RecordStorage:
        """The stored records of the lake."""
        return RecordStorage(self.place, spool=self.settings.home / "spool")

    @cached_property
    def crawl_list(self) -> CrawlList:
        """The list of crawls, read once; if it cannot be read, a copy with a note on its age."""
        return read_crawl_list(self.settings, self._download_crawl_list)

    @cached_property
    def _list_transport(self) -> Transport:
        """The transport to the list of crawls. Common Crawl publishes it on a host of its own, with fewer retries;
        elsewhere it is in the source."""
        settings = self.settings
        root, access = settings.collinfo.rpartition("/")[0], settings.collinfo_access
        if (root, access) == (settings.source, settings.source_access):
            return self.transport
        return self._open(replace(settings, wait=0.0), root, access, _LIST_RETRY, _LIST_TIMEOUTS)

    def _download_crawl_list(self) -> bytes:
        name = self.settings.collinfo.rpartition("/")[2]
        return self._list_transport.read_all(name).data

    def close(self) -> None:
        """Closes all connections. A workspace that is used again opens them again."""
        with ExitStack() as closing:
            for opened in self.__dict__.values():
                if isinstance(opened, Transport | NamedPlaces):
                    closing.callback(opened.close)

    @property
    def scratch(self) -> Path:
        """A folder for temporary files of this process."""
        path = self.settings.home / "scratch" / this_process()
        with disk_trouble(path):
            path.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def scratch_folder(self, purpose: str) -> Iterator[Path]:
        """Yields a new folder in ``scratch``, which is deleted at the end of the block. Raises ``EnvironmentFault``."""
        folder = self.scratch / f"{purpose}-{time.monotonic_ns()}"
        with disk_trouble(folder):
            folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def register_targets(self, targets: Sequence[Target]) -> None:
        """Stores the definitions of ``targets``, so that slugs are enough afterwards."""
        if targets:
            definitions.register(self.lake, targets)

    def targets(self, slugs: Sequence[str]) -> dict[str, Target]:
        """Returns the targets of partition keys; see :func:`cc_pipeline.lake.target_definitions.read_targets`."""
        return definitions.read_targets(self.lake, slugs)

    def parts(self, slugs: Sequence[str]) -> dict[str, list[str]]:
        """Returns the slugs of the parts of each of ``slugs``; a large set has many
        (:func:`cc_pipeline.lake.target_definitions.find_part_slugs`)."""
        return definitions.find_part_slugs(self.lake, slugs)

    def rows_of(self, slugs: Sequence[str]) -> dict[str, list[str]]:
        """Returns the slugs that rows of each of ``slugs`` can have: those of its parts, in every subset."""
        return {
            slug: [with_subset(part, subset) for subset in SUBSETS for part in parts]
            for slug, parts in self.parts(slugs).items()
        }


@contextmanager
def open_workspace(settings: Settings, *, one_command: bool = False) -> Iterator[Workspace]:
    """Yields a workspace, which is closed at the end of the block."""
    workspace = Workspace(settings, one_command)
    try:
        yield workspace
    finally:
        workspace.close()


def open_transport(
    settings: Settings,
    root: str,
    access: Access,
    retry: RetryPolicy | None = None,
    timeouts: Timeouts | None = None,
) -> Transport:
    """Opens a transport to ``root`` with the user agent, request budget and credentials of the settings. Raises
    ``UserInputError`` for a rate that needs a contact."""
    refuse_nameless(root, settings.s3_endpoint, settings.rate, settings.concurrency, settings.contact)
    return Transport(
        root,
        SourceOptions(
            redirects=settings.redirects,
            user_agent=settings.user_agent,
            concurrency=settings.concurrency,
            rate=settings.rate,
            hosts=settings.rate_shares,
            budget_path=settings.budget_path,
            retry=retry or RetryPolicy(),
            wait=settings.wait,
            timeouts=timeouts or Timeouts(),
            s3=S3Options(settings.s3_endpoint, settings.s3_region, settings.s3_anonymous),
        ),
        access=access,
    )


def open_lake(settings: Settings) -> Lake:
    """Opens the tables of the settings' lake. It does not claim the home."""
    return Lake(settings.lake, all_tables(), lake_options(settings))


def lake_options(settings: Settings) -> dict[str, str] | None:
    """Returns Delta's storage options for a lake on S3; ``None`` for a folder. Credentials come from the usual
    chain."""
    if scheme_of(settings.lake) != "s3":
        return None
    options = {"AWS_REGION": settings.s3_region, "conditional_put": "etag"}
    if settings.lake_endpoint:
        options |= {"AWS_ENDPOINT_URL": settings.lake_endpoint, "AWS_ALLOW_HTTP": "true"}
    return options


def limits_of(settings: Settings) -> SourceLimits:
    """Returns the limits of the request budget for this host at the source, before the source has refused any."""
    defaults = default_limits(settings.source, settings.s3_endpoint)
    limits = chosen_limits(defaults, settings.rate, settings.concurrency)
    return shared_among(limits, settings.rate_shares)


def rate_now(workspace: Workspace) -> float | None:
    """Returns the current requests per second to the source (``None``: no limit), to estimate times."""
    settings = workspace.settings
    return rate_in_force(settings.budget_path, workspace.transport.host, limits_of(settings))
