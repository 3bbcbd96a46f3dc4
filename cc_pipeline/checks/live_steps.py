"""The steps of a look at a source: each asks one thing of it, as a run would, and finds what the next ones ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.checks.assumptions import Facts, OldMember
from cc_pipeline.commoncrawl.crawls import key_rule
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.commoncrawl.paths import IndexFile, cluster_key, path_list_key
from cc_pipeline.commoncrawl.surt import KeyRule, surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.documents.dates import parse_date
from cc_pipeline.documents.headers import header
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError
from cc_pipeline.extraction.locate import index_sources
from cc_pipeline.extraction.nearest import COLUMNS, Nearest, Row, fetched_record, moment_of, nearest_capture
from cc_pipeline.index.catalog.catalog import Catalog, write_catalog_rows
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.footers.harvest import HarvestPolicy, harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.locator import LookupResult, weight
from cc_pipeline.index.lookup import agree, look_up, price_lookup
from cc_pipeline.index.parquet.fetch import Piece
from cc_pipeline.index.zipnum.locator import ZipNumLocator, capture_of, inflate_member, split_records
from cc_pipeline.indexing.crawl_index import parse_index_list
from cc_pipeline.settings import Settings
from cc_pipeline.settings.places import may_be_mirrored
from cc_pipeline.stores.answer import S3Options, Timeouts
from cc_pipeline.stores.watched import Seen
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import Workspace, open_transport

SUBSETS: Final = ("warc",)
#: A refusal is something to be told: once more, and no oftener.
_RETRY: Final = RetryPolicy(attempts=2)
#: A new crawl is listed before its index is there.
_NEWEST: Final = 3
_RECORDS: Final = 3
#: Sites that are priced, of which the cheapest is looked up.
_SITES: Final = 8
_TAIL: Final = 4096
_ARC: Final = "CC-MAIN-2008-2009"
#: The crawl of the folder crawl-002, and one whose CDXJ lines and members are odd.
_PACIFIC: Final = "CC-MAIN-2009-2010"
_OLD: Final = "CC-MAIN-2015-06"
_NO_SUCH_KEY: Final = "crawl-data/{crawl}/there-is-no-such-key"


@dataclass(slots=True)
class Look:
    """A look under way: what is asked with, what was found so far, and the watch over it.

    ``asking`` are the settings of a person's own home, with the rate of a look; ``workspace`` is of a home for the look
    alone. ``bucket`` is an S3 place with the same objects, if there is one, ``mirror`` the official mirror, if the
    settings have it asked for records.
    """

    asking: Settings
    most: int
    bucket: str
    mirror: str | None = None
    workspace: Workspace = field(init=False)
    facts: Facts = field(default_factory=Facts)
    answers: list[tuple[str, Seen]] = field(default_factory=list)
    step: str = ""
    opened: list[Transport] = field(default_factory=list)
    forbidden: int = 0
    crawl: str = ""
    index_file: str = ""
    catalog: dict[str, list[str]] = field(default_factory=dict)
    target: Target | None = None
    found: list[LookupResult] = field(default_factory=list)
    records: list[Nearest] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """All that were sent, and those that redirects led to."""
        return sum(transport.stats.requests for transport in self.opened) - self.forbidden

    def allow(self) -> None:
        """Raises ``EnvironmentFault`` for a request too many. The transport has counted it already."""
        if self.requests > self.most:
            self.forbidden += 1
            raise EnvironmentFault(f"{self.most} requests were sent, which is all there may be", "Look at the answers")

    def saw(self, seen: Seen) -> None:
        self.answers.append((self.step, seen))

    def open(
        self,
        settings: Settings,
        root: str,
        access: Access,
        retry: RetryPolicy | None = None,
        timeouts: Timeouts | None = None,
        **_: object,
    ) -> Transport:
        """Opens transports for the workspace, with the budget of the machine's own home."""
        transport = open_transport(self.asking, root, access, _RETRY, timeouts, watch=self)
        self.opened.append(transport)
        return transport

    @property
    def rows(self) -> list[Row]:
        """The captures of the page, of whichever index has told them."""
        return [row for result in self.found for table in result.captures.values() for row in table.to_pylist()]


class Skipped(Exception):
    """A step that cannot be tried. The message says why."""


def _list(look: Look) -> str:
    listed = look.workspace.crawl_list
    if listed.fault is not None:
        raise listed.fault
    look.facts.crawls = listed.crawls
    return f"{len(listed.crawls)} crawls, newest {listed.crawls[0].id}"


def _path_list(look: Look) -> str:
    newest = [crawl.id for crawl in look.facts.crawls or () if crawl.era == "columnar"][:_NEWEST]
    if not newest:
        raise Skipped("no crawl is known")
    listed, notes = next((found for crawl in newest if (found := _listed(look, crawl))[0]), ([], ()))
    files = [file.path for file in listed if file.subset in SUBSETS]
    if not files:
        raise DataFault(DataKind.MISMATCH, ", ".join(newest), None, "no index file of captures is listed")
    look.index_file = files[len(files) // 2]
    return "; ".join((f"{len(listed)} index files of {look.crawl}", *notes))


def _listed(look: Look, crawl: str) -> tuple[list[IndexFile], tuple[str, ...]]:
    """The index files of a crawl, none where it has no list of them, and a note of lines that name none."""
    look.crawl = crawl
    key = path_list_key(crawl, "cc-index-table")
    try:
        return look.workspace.transport.read_parsed(key, partial(parse_index_list, key=key, crawl=crawl))
    except RangeFault as fault:
        if fault.kind is not FaultKind.NOT_FOUND:
            raise
        return [], ()


def _footer(look: Look) -> str:
    if not look.index_file:
        raise Skipped("no index file is known")
    store = FooterStore(look.workspace.settings.footers_path)
    done = harvest_crawl(look.crawl, [look.index_file], look.workspace.transport, store, HarvestPolicy(tries=1))
    for path, reason in done.failed:
        raise DataFault(DataKind.MISMATCH, path, None, reason)
    tables = crawl_tables(look.crawl, [look.index_file], store)
    lows, highs = (tables.row_groups[f"{KEY_COLUMN}_{end}"].to_pylist() for end in ("min", "max"))
    look.facts.bounds = list(zip(lows, highs, strict=True))
    # it is not the home's, so that ``get`` asks as in a home that nothing was harvested in
    look.catalog = write_catalog_rows(look.workspace.settings.home / "one-file", tables.packed())
    [file] = tables.index_files.to_pylist()
    name = look.index_file.rpartition("/")[2]
    return f"{name}: {file['file_size']:,} bytes, {len(lows)} row groups, a footer of {file['footer_bytes']:,} bytes"


def _parquet(look: Look) -> str:
    if look.facts.bounds is None:
        raise Skipped("no footer is known")
    # of the first row group, the file before may have a part of the captures
    lows = [low for low, _ in look.facts.bounds[1:] or look.facts.bounds]
    targets = [target for low in lows if low is not None and (target := _site(low)) is not None][:_SITES]
    if not targets:
        raise DataFault(DataKind.UNSUPPORTED, look.index_file, None, "no row group has a key that names a site")
    sources = replace(
        index_sources(look.workspace, look.crawl),
        catalog=partial(Catalog, look.catalog),
        columns=(*COLUMNS, "warc_record_id"),
    )
    prices = [weight(price_lookup(look.crawl, SUBSETS, [target], sources, via="parquet")) for target in targets]
    look.target = targets[prices.index(min(prices))]
    return _located(look, look_up(look.crawl, SUBSETS, [look.target], sources, via="parquet"), look.target)


def _located(look: Look, result: LookupResult, target: Target) -> str:
    captures = result.captures[target.slug].num_rows
    if not captures:
        raise DataFault(DataKind.MISMATCH, look.crawl, None, f"the index lists {target.definition} and has no capture")
    look.found.append(result)
    return f"{captures:,} captures of {target.definition}; {result.requests} requests, {result.bytes:,} bytes"


def _zipnum(look: Look) -> str:
    if not look.crawl:
        raise Skipped("no crawl is known")
    result, target = _through_zipnum(look, look.crawl, look.target)
    said = _located(look, result, target)
    look.facts.keys = _keys_of(look.crawl, result.captures[target.slug].to_pylist())
    if len(look.found) > 1:
        look.facts.same = agree(*look.found).agrees
        columnar, zipnum = map(_ids_of, look.found)
        pairs = [(columnar[place], zipnum[place]) for place in columnar.keys() & zipnum.keys()]
        look.facts.record_ids = [pair for pair in pairs if pair != (None, None)]
    return said


def _old(look: Look) -> str:
    """The first member of a ZipNum index of 2015, as a whole."""
    transport = look.workspace.transport
    found = look.workspace.clusters.find(transport, _OLD)
    if found is None:
        raise Skipped(f"{cluster_key(_OLD)} is not there")
    member = next(iter(found.cluster.members([KeyRange(b"", None)])))
    key = f"{found.cluster.key.rpartition('/')[0]}/{member.shard}"
    text = inflate_member(
        transport.read(key, member.offset, member.length).data, Piece(key, member.offset, member.length)
    )
    rows = [capture_of(line, key, member.offset) for line in split_records(text)]
    look.facts.old_keys = _keys_of(_OLD, rows)
    with_status = sum(row["fetch_status"] is not None for row in rows)
    ends = text.count(b"\n") + (not text.endswith(b"\n"))
    look.facts.old_member = OldMember(len(rows), with_status, text.endswith(b"\n"), ends < len(rows))
    return f"{len(rows):,} records in {member.length:,} bytes of {member.shard} of {_OLD}"


def _keys_of(crawl: str, rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The keys of rows, each with the one that is made of its URL."""
    rule = key_rule(crawl, "zipnum")
    return [(row["url_surtkey"], surt_key(row["url"], rule)) for row in rows]


def _ids_of(result: LookupResult) -> dict[tuple[str, int], bytes | None]:
    """The record ids of captures by their place."""
    rows = (row for table in result.captures.values() for row in table.to_pylist())
    return {(row["warc_filename"], row["warc_record_offset"]): row.get("warc_record_id") for row in rows}


def _through_zipnum(look: Look, crawl: str, target: Target | None) -> tuple[LookupResult, Target]:
    """A look-up of ``target``, or of whatever page the first lines of ``cluster.idx`` name last."""
    transport, clusters = look.workspace.transport, look.workspace.clusters
    found = clusters.find(transport, crawl)
    if found is None:
        raise DataFault(DataKind.MISMATCH, cluster_key(crawl), None, "there is no such object")
    if target is None:
        list(found.cluster.members([KeyRange(b"", b"!")]))
        keys = [key for span in found.cluster.learnt for key in (span.last, span.first)]
        target = next((page for key in keys if (page := _page(key)) is not None), None)
    if target is None:
        raise DataFault(
            DataKind.MISMATCH, cluster_key(crawl), None, "its lines name no key that a page can be told from"
        )
    locator = ZipNumLocator(transport, crawl, found.cluster, clusters.members)
    return locator.locate(crawl, SUBSETS, [target]), target


def _url(key: bytes) -> str | None:
    """An address that has this key by every rule, if it can be told."""
    text = key.decode("ascii", "replace")
    host, _, rest = text.partition(")")
    labels, colon, port = host.partition(":")
    url = f"http://{'.'.join(reversed(labels.split(',')))}{colon}{port}{rest or '/'}"
    return url if {surt_key(url, rule) for rule in KeyRule} == {text} else None


def _page(key: bytes) -> Target | None:
    url = _url(key)
    return None if url is None else parse_target(f"url:{url}")


def _site(key: bytes) -> Target | None:
    """The host of a key and all below it."""
    url = _url(key.partition(b")")[0] + b")/")
    try:
        return None if url is None else parse_target(url.removeprefix("http://").rstrip("/"))
    except UserInputError:
        return None  # a public suffix, say


def _records(look: Look) -> str:
    rows = {(row["warc_filename"], row["warc_record_offset"]): row for row in look.rows}
    if not rows:
        raise Skipped("no capture is known")
    return _fetched(look, list(rows.values())[:_RECORDS], look.facts.records)


def _fetched(look: Look, rows: Sequence[Row], into: list[tuple[bool, str]]) -> str:
    """Fetches and checks the records of ``rows``. Raises ``DataFault`` where one is no good, or another payload."""
    for row in rows:
        found = fetched_record(look.workspace, row)
        if isinstance(found, Nearest):
            look.records.append(found)
        into.append((True, found.digest_check) if isinstance(found, Nearest) else (False, found))
    wrong = [(row, said) for row, (good, said) in zip(rows, into, strict=True) if not good or said == "mismatch"]
    for row, said in wrong:
        why = f"{len(wrong)} of {len(rows)} records are no good: {said}"
        raise DataFault(DataKind.MISMATCH, row["warc_filename"], row["warc_record_offset"], why)
    return f"{len(rows)} records, digests: {', '.join(sorted({check for _, check in into}))}"


def _arc(look: Look) -> str:
    key = cluster_key(_ARC)
    there = look.workspace.transport.head(key)
    look.facts.arc = there is not None
    if there is None:
        return f"{key} is not there"
    result, target = _through_zipnum(look, _ARC, None)
    rows = result.captures[target.slug].to_pylist()
    if not rows:
        raise DataFault(DataKind.MISMATCH, key, None, f"it lists {target.definition} and has no capture")
    said = _fetched(look, rows[:1], look.facts.arc_records)
    return f"{there.size or 0:,} bytes of cluster.idx, {len(rows)} captures of {target.definition}; {said}"


def _pacific(look: Look) -> str:
    key = cluster_key(_PACIFIC)
    if look.workspace.transport.head(key) is None:
        raise Skipped(f"{key} is not there")
    result, target = _through_zipnum(look, _PACIFIC, None)
    rows = result.captures[target.slug].to_pylist()[:1]
    if not rows:
        raise DataFault(DataKind.MISMATCH, key, None, f"it lists {target.definition} and has no capture")
    record = fetched_record(look.workspace, rows[0])
    if not isinstance(record, Nearest):
        raise DataFault(DataKind.MISMATCH, rows[0]["warc_filename"], rows[0]["warc_record_offset"], record)
    served, written = parse_date(header(record.record.http_headers, "date")), record.record.fetch_time
    if served is None or written is None:
        raise Skipped("the record says no date")
    look.facts.pacific_hours.append((served - written).total_seconds() / 3600)
    return f"a record of {target.definition}, archived {written:%Y-%m-%dT%H:%M:%S}, served {served:%Y-%m-%dT%H:%M:%S}"


def _get(look: Look) -> str:
    if not look.records:
        raise Skipped("no record is known")
    row = look.records[0].row
    moment = moment_of(row)
    period = None if moment is None else (moment, moment)
    found = nearest_capture(look.workspace, parse_target(f"url:{row['url']}"), period, most_crawls=_NEWEST)
    return f"{found.row['url']} in {found.row['crawl']}, digest {found.digest_check}"


def _missing(look: Look) -> str:
    key = _NO_SUCH_KEY.format(crawl=look.crawl or "CC-MAIN-2024-22")
    if look.workspace.transport.head(key) is not None:
        raise DataFault(DataKind.MISMATCH, key, None, "it is there")
    return "404"


def _in_s3(look: Look) -> str:
    bucket = look.bucket
    if not bucket:
        raise Skipped("the source is not Common Crawl's own, or S3 itself")
    if not look.records:
        raise Skipped("no record is known to compare")
    from cc_pipeline.stores.s3 import find_credentials  # noqa: PLC0415

    asked, known = look.asking.s3_at(bucket), look.records[0]
    if not asked.anonymous:
        try:
            find_credentials(S3Options(asked.endpoint, asked.region, asked.anonymous, asked.profile), bucket)
        except EnvironmentFault:
            raise Skipped("no credentials") from None
    key, offset, length = (known.row[name] for name in PLACE)
    transport = look.open(look.asking, bucket, NO_ACCESS)
    there, here = (one.read(key, offset, length) for one in (transport, look.workspace.transport))
    tail = transport.read_suffix(cluster_key(look.crawl), _TAIL)
    look.facts.s3 = (there.data, there.total) == (here.data, here.total)
    same = "" if look.facts.s3 else "not "
    return f"the record and the length of its file are {same}the same; {tail.total:,} bytes of cluster.idx"


def _at_mirror(look: Look) -> str:
    if look.mirror is None:
        raise Skipped("CC_PIPELINE_RECORD_MIRROR is off, or the source is not Common Crawl's own host")
    row = next((one.row for one in look.records if may_be_mirrored(one.row["crawl"])), None)
    if row is None:
        raise Skipped("no record of a crawl that may be at the mirror is known")
    key, offset, length = (row[name] for name in PLACE)
    mirror = look.open(look.asking, look.mirror, NO_ACCESS)
    there, here = (one.read(key, offset, length) for one in (mirror, look.workspace.transport))
    look.facts.mirror = (there.data, there.total) == (here.data, here.total)
    same = "" if look.facts.mirror else "not "
    return f"a record of {row['crawl']} and the length of its file are {same}the same at {look.mirror}"


#: In this order: what a step finds, those behind it ask with.
STEPS: Final[Mapping[str, Callable[[Look], str]]] = {
    "list": _list,
    "path list": _path_list,
    "footer": _footer,
    "parquet": _parquet,
    "zipnum": _zipnum,
    "records": _records,
    "get --at": _get,
    "arc years": _arc,
    "crawl-002": _pacific,
    "2015": _old,
    "missing": _missing,
    "s3": _in_s3,
    "mirror": _at_mirror,
}
