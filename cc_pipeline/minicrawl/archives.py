"""Writes a crawl's WARC or ARC files and tells where every capture lies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from cc_pipeline.commoncrawl.btree_keys import btree_key
from cc_pipeline.commoncrawl.crawl_quirks import has
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.commoncrawl.paths import ArcFile, arc_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.index.btree.locator import segment_of
from cc_pipeline.minicrawl import seeded
from cc_pipeline.minicrawl.records import (
    Exchange,
    arc_record,
    file_description,
    metadata_record,
    request_record,
    response_record,
    warcinfo,
)
from cc_pipeline.minicrawl.responses import Servers
from cc_pipeline.minicrawl.seeded import MemberFile
from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.minicrawl.truth import Capture
from cc_pipeline.minicrawl.visits import SEGMENT_SPAN, Visit, plan_visits, segment_start

#: Folder of a segment by subset; every segment has one file of each kind per file number.


def segment_id(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int) -> str:
    """The folder of a segment: milliseconds, with a dot and a number in WARC crawls; a time in supplemental ones."""
    if crawl.is_supplemental:
        return f"{segment_start(crawl, segment):%Y%m%d%H%M%S}"
    milliseconds = int(segment_start(crawl, segment).timestamp()) * 1000
    drawn = seeded.number(spec.seed, "segment", crawl.id, segment)
    if crawl.format == "arc":
        return str(milliseconds + drawn % 1000)
    return f"{(milliseconds + drawn % 1000) // 1000}{drawn % 1000:03d}.{(drawn >> 16) % 90 + 10}"


def warc_file_key(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int, subset: str, file: int) -> str:
    """The key of a WARC file."""
    begin = segment_start(crawl, segment)
    prefix = crawl.id if crawl.is_supplemental else "CC-MAIN"
    name = f"{prefix}-{begin:%Y%m%d%H%M%S}-{begin + SEGMENT_SPAN:%Y%m%d%H%M%S}-{file:05d}.warc.gz"
    return f"{crawl.folder}/segments/{segment_id(spec, crawl, segment)}/{subset}/{name}"


def arc_file_key(spec: MiniCrawlSpec, crawl: CrawlSpec, segment: int, file: int) -> str:
    """The key of an ARC file; the milliseconds in its name are when it was made, months after the fetches."""
    made = int(segment_start(crawl, segment).timestamp() * 1000) + 18_000_000_000 + file * 61_007
    return arc_key(ArcFile(crawl.id, int(segment_id(spec, crawl, segment)), made, file))


def write_archives(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, step: Callable[[int], None]) -> list[Capture]:
    """Writes all archive files of one crawl under ``root``; ``step`` is called with each number of captures written."""
    write = _write_arc_file if crawl.format == "arc" else _write_warc_files
    servers = Servers(spec, crawl)
    captures: list[Capture] = []
    visits = {key: list(group) for key, group in groupby(plan_visits(spec, crawl), lambda v: (v.segment, v.file))}
    for segment in range(crawl.segments):
        for file in range(crawl.files_per_segment):
            for capture in write(root, spec, crawl, servers, segment, file, visits.get((segment, file), [])):
                captures.append(capture)
                step(1)
    return captures


def _write_warc_files(
    root: Path,
    spec: MiniCrawlSpec,
    crawl: CrawlSpec,
    servers: Servers,
    segment: int,
    file: int,
    visits: list[Visit],
) -> Iterator[Capture]:
    keys = {subset: warc_file_key(spec, crawl, segment, subset, file) for subset in SUBSETS}
    with (
        MemberFile(root / keys["warc"]) as pages,
        MemberFile(root / keys["crawldiagnostics"]) as diagnostics,
        MemberFile(root / keys["robotstxt"]) as robots,
    ):
        outputs = dict(zip(SUBSETS, (pages, diagnostics, robots), strict=True))
        info_ids: dict[str, uuid.UUID] = {}
        for subset, key in keys.items():
            info_ids[subset] = seeded.identifier(spec.seed, "warcinfo", key)
            name = key.rpartition("/")[2]
            outputs[subset].append(warcinfo(crawl, name, segment_start(crawl, segment), info_ids[subset]))
        for visit in visits:
            exchange = servers.answer(visit)
            out, info_id = outputs[exchange.subset], info_ids[exchange.subset]
            ids = _record_ids(spec, crawl, visit)
            out.append(request_record(exchange, info_id, ids["request"]))
            place = out.append(response_record(crawl, exchange, info_id, ids["request"], ids["response"]))
            out.append(metadata_record(crawl, exchange, info_id, ids["response"], ids["metadata"]))
            record_id = str(ids["response"]) if crawl.record_ids else None
            yield _warc_capture(crawl, exchange, keys[exchange.subset], place, record_id)


def _record_ids(spec: MiniCrawlSpec, crawl: CrawlSpec, visit: Visit) -> dict[str, uuid.UUID]:
    label = (crawl.id, visit.url, visit.repeat)
    if not crawl.record_ids:
        kinds = ("request", "response", "metadata")
        return {kind: seeded.identifier(spec.seed, "record", *label, kind) for kind in kinds}
    moment = int(visit.fetched.timestamp() * 1000)
    kinds = ("request", "response", "metadata")
    return {kind: seeded.ordered_identifier(moment, spec.seed, "record", *label, kind) for kind in kinds}


def _write_arc_file(
    root: Path,
    spec: MiniCrawlSpec,
    crawl: CrawlSpec,
    servers: Servers,
    segment: int,
    file: int,
    visits: list[Visit],
) -> Iterator[Capture]:
    key = arc_file_key(spec, crawl, segment, file)
    with MemberFile(root / key) as out:
        out.append(file_description(key.rpartition("/")[2], segment_start(crawl, segment)))
        for visit in visits:
            exchange = servers.answer(visit)
            place = out.append(arc_record(exchange))
            yield _arc_capture(crawl, exchange, key, place)


def _warc_capture(
    crawl: CrawlSpec, exchange: Exchange, key: str, place: tuple[int, int], record_id: str | None
) -> Capture:
    revisit = exchange.record_type == "revisit"
    digest = seeded.sha1_base32(exchange.body)
    languages_known = bool(has(crawl.id, "content_languages"))
    redirects_known = bool(has(crawl.id, "fetch_redirect"))
    return Capture(
        crawl=crawl.id,
        subset=exchange.subset,
        archive_format="warc",
        kind=exchange.kind,
        domain=_domain(exchange.url),
        url=exchange.url,
        url_surtkey=surt_key(exchange.url),
        fetch_time=exchange.fetched,
        fetch_status=exchange.status,
        fetch_redirect=exchange.redirect if redirects_known else None,
        content_digest=None if revisit and languages_known else digest,
        content_mime_type="warc/revisit" if revisit else exchange.mime or "unk",
        content_mime_detected=exchange.mime_detected,
        content_charset=exchange.charset if languages_known else None,
        content_languages=exchange.languages if languages_known else None,
        content_truncated=exchange.truncated if redirects_known else None,
        warc_filename=key,
        warc_record_offset=place[0],
        warc_record_length=place[1],
        warc_segment=key.partition("/segments/")[2].split("/")[0],
        warc_record_id=record_id,
        payload_digest=digest,
        payload_length=len(exchange.body),
        title=exchange.title,
        btree_key=None,
    )


def _arc_capture(crawl: CrawlSpec, exchange: Exchange, key: str, place: tuple[int, int]) -> Capture:
    body = exchange.body
    return Capture(
        crawl=crawl.id,
        subset="warc",
        archive_format="arc",
        kind=exchange.kind,
        domain=_domain(exchange.url),
        url=exchange.url,
        url_surtkey=surt_key(exchange.url),
        fetch_time=exchange.fetched,
        fetch_status=exchange.status,
        fetch_redirect=None,
        content_digest=None,
        content_mime_type=exchange.mime,
        content_mime_detected=None,
        content_charset=exchange.charset,
        content_languages=None,
        content_truncated="length" if exchange.truncated else None,
        warc_filename=key,
        warc_record_offset=place[0],
        warc_record_length=place[1],
        warc_segment=segment_of(key) or "",
        warc_record_id=None,
        payload_digest=seeded.sha1_base32(body),
        payload_length=len(body),
        title=exchange.title,
        btree_key=btree_key(exchange.url).decode("ascii"),
    )


def _domain(url: str) -> str:
    host = url.split("/", 3)[2].partition(":")[0]
    return registered_domain(host) or host
