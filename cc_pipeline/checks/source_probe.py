"""Sends a source some ten requests as a run would, and checks each answer as a run does.

The requests count in the request budget of the home. All other files are written to a temporary home, which is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cc_pipeline.addresses import Access, host_of, scheme_of
from cc_pipeline.checks.finding import Finding, describe_fault
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.commoncrawl.paths import cluster_key, path_list_key
from cc_pipeline.commoncrawl.surt import KeyRule, surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import CcPipelineError, DataFault, DataKind, UserInputError
from cc_pipeline.extraction.nearest_capture import Nearest, fetch_record
from cc_pipeline.harvesting.listed_files import parse_index_list
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.stores.answer import Timeouts
from cc_pipeline.stores.opening import is_loopback
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import Workspace, open_transport

#: The most requests per second to each host.
RATE: Final = 1.0
_SUBSETS: Final = ("warc",)
#: A refused request is repeated once.
_RETRY: Final = RetryPolicy(attempts=2)
#: A new crawl is listed before its index is published.
_NEWEST_CRAWLS: Final = 3


class _StepSkipped(Exception):
    """A step cannot be run, since an earlier step found nothing. The message has the reason."""


@dataclass(slots=True)
class _LiveProbe:
    """The state of a probe. Transports are opened with the settings ``request_settings``; ``workspace`` is of a
    temporary home. The other fields are results of steps, for later steps."""

    request_settings: Settings
    workspace: Workspace = field(init=False)
    transports: list[Transport] = field(default_factory=list)
    crawls: tuple[str, ...] = ()
    crawl: str = ""
    index_file: str = ""

    def open(
        self,
        settings: Settings,
        root: str,
        access: Access,
        retry: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
    ) -> Transport:
        transport = open_transport(self.request_settings, root, access, _RETRY, timeouts)
        self.transports.append(transport)
        return transport


def probe_source(settings: Settings) -> Iterator[Finding]:
    """Yields a finding for each step. Raises ``UserInputError`` for a folder."""
    if scheme_of(settings.source) in ("", "file"):
        raise UserInputError(f"{settings.source} is a folder: --live tests only sources at an http(s) or s3 address")
    request_settings = replace(settings, rate=find_rate(settings), concurrency=1, wait=0.0)
    probe = _LiveProbe(request_settings)
    with TemporaryDirectory(prefix="cc-pipeline-live-") as folder:
        probe_settings = replace(request_settings, home=Path(folder), lake=str(Path(folder) / "lake"), subsets=_SUBSETS)
        probe.workspace = Workspace(probe_settings, opener=probe.open)
        try:
            yield from (_finding(probe, topic, step) for topic, step in _STEPS.items())
        finally:
            for transport in probe.transports:
                transport.close()


def find_rate(settings: Settings) -> float | None:
    """Returns the requests per second: ``RATE``, or a lower rate of the settings. This machine has no other limit."""
    if is_loopback(host_of(settings.source)):
        return settings.rate
    return min(RATE, settings.rate or RATE)


def _finding(probe: _LiveProbe, topic: str, step: Callable[[_LiveProbe], str]) -> Finding:
    try:
        return Finding("ok", topic, step(probe))
    except _StepSkipped as skipped:
        return Finding("note", topic, f"not tested: {skipped}")
    except CcPipelineError as fault:
        return describe_fault(topic, fault)


def _list_crawls(probe: _LiveProbe) -> str:
    crawl_list = probe.workspace.crawl_list
    if crawl_list.fault is not None:
        raise crawl_list.fault
    probe.crawls = tuple(crawl.id for crawl in crawl_list.crawls if crawl.era == "columnar")
    return f"{format_count(len(crawl_list.crawls), 'crawl', 'are')} listed, the newest is {crawl_list.crawls[0].id}"


def _list_index_files(probe: _LiveProbe) -> str:
    if not probe.crawls:
        raise _StepSkipped("the list of crawls could not be read, or has no crawl with a columnar index")
    for crawl in probe.crawls[:_NEWEST_CRAWLS]:
        key = path_list_key(crawl, "cc-index-table")
        if probe.workspace.transport.exists(key):
            index_files, _ = parse_index_list(probe.workspace.transport.read_all(key).data, key=key, crawl=crawl)
            files = [file.path for file in index_files if file.subset in _SUBSETS]
            if not files:
                raise DataFault(DataKind.MISMATCH, key, None, "the path list names no index file of captures")
            probe.crawl, probe.index_file = crawl, files[len(files) // 2]
            return f"{crawl} lists {format_count(len(index_files), 'index file')}"
    crawls = ", ".join(probe.crawls[:_NEWEST_CRAWLS])
    raise DataFault(DataKind.MISMATCH, crawls, None, "none of these crawls has a path list of index files")


def _read_footer(probe: _LiveProbe) -> str:
    if not probe.index_file:
        raise _StepSkipped("no index file is known")
    store = FooterStore(probe.workspace.settings.footers_path)
    harvest = harvest_crawl(probe.crawl, [probe.index_file], probe.workspace.transport, store, tries=1)
    for path, reason in harvest.failed:
        raise DataFault(DataKind.MISMATCH, path, None, reason)
    tables = crawl_tables(probe.crawl, [probe.index_file], store)
    [file] = tables.index_files.to_pylist()
    groups = len(tables.row_groups)
    unbounded = tables.row_groups[f"{KEY_COLUMN}_min"].null_count
    bounds = f" ({unbounded} without key bounds, which cc-pipeline index repair computes)" if unbounded else ""
    etag = "an ETag" if file["etag"] else "no ETag, so a replacement cannot be noticed"
    return f"an index file of {file['file_size']:,} bytes has {groups} row groups{bounds}, and {etag}"


def _look_up_page(probe: _LiveProbe) -> str:
    """Looks up a page that the first lines of ``cluster.idx`` list, and fetches its record."""
    if not probe.crawl:
        raise _StepSkipped("no crawl with an index is known")
    transport, clusters, key = probe.workspace.transport, probe.workspace.clusters, cluster_key(probe.crawl)
    cluster_index = clusters.find(transport, probe.crawl)
    if cluster_index is None:
        raise DataFault(DataKind.MISMATCH, key, None, "the source has no such file")
    list(cluster_index.cluster.members([KeyRange(b"", b"!")]))
    keys = [key for span in cluster_index.cluster.learnt for key in (span.last, span.first)]
    page = next((page for key in keys if (page := _parse_page(key)) is not None), None)
    if page is None:
        raise DataFault(DataKind.MISMATCH, key, None, "no line of the file names a page to look up")
    located = ZipNumLocator(transport, probe.crawl, cluster_index.cluster, clusters.members).locate(
        probe.crawl, _SUBSETS, [page]
    )
    rows = located.captures[page.slug].to_pylist()
    if not rows:
        raise DataFault(
            DataKind.MISMATCH, key, None, f"the file lists {page.definition} but has no capture of that page"
        )
    record = fetch_record(probe.workspace, rows[0])
    if not isinstance(record, Nearest):
        raise DataFault(DataKind.MISMATCH, rows[0]["warc_filename"], rows[0]["warc_record_offset"], record)
    if record.digest_check == "mismatch":
        reason = "the digest of its payload differs from the index"
        raise DataFault(DataKind.MISMATCH, rows[0]["warc_filename"], rows[0]["warc_record_offset"], reason)
    return f"{page.definition} was looked up and its record fetched; its digest: {record.digest_check}"


def _parse_page(key: bytes) -> Target | None:
    """Returns the page that has this key by every rule, or ``None`` if no page is certain."""
    text = key.decode("ascii", "replace")
    host, _, path = text.partition(")")
    labels, colon, port = host.partition(":")
    url = f"http://{'.'.join(reversed(labels.split(',')))}{colon}{port}{path or '/'}"
    return parse_target(f"url:{url}") if {surt_key(url, rule) for rule in KeyRule} == {text} else None


def _request_missing_object(probe: _LiveProbe) -> str:
    key = f"crawl-data/{probe.crawl or 'CC-MAIN-2024-22'}/there-is-no-such-key"
    if probe.workspace.transport.exists(key):
        raise DataFault(DataKind.MISMATCH, key, None, "the source claims to have this object, which does not exist")
    return "a missing object is answered with 404"


#: The order matters: later steps use the results of earlier ones.
_STEPS: Final[Mapping[str, Callable[[_LiveProbe], str]]] = {
    "crawls": _list_crawls,
    "index": _list_index_files,
    "footer": _read_footer,
    "record": _look_up_page,
    "missing": _request_missing_object,
}
