"""One target of any number of captures: a bucket made in seconds, and what an extraction of it needs.

One archive file of small pages stands in the bucket under many names, so that each capture has a place of its own and
the bucket has hardly any bytes. A program of its own (``python -m benchmarks.large_target make|run …``), because memory
is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.testing.mini_crawl.indexes import published_schema, writer_options
from cc_pipeline.testing.mini_crawl.records import Exchange, response_record
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, gzip_member, sha1_base32

CRAWL = "CC-MAIN-2024-22"
TARGET = "large.example"
#: Records of the one archive file, and rows of a row group and of an index file.
_EACH = 2_000
_GROUP_ROWS = 250_000
_PART_ROWS = 500_000
_SEGMENT = "1715971057216.39"
_LASTS = timedelta(days=10)


def make(bucket: Path, captures: int) -> None:
    """A bucket in which ``TARGET`` has ``captures`` captures (a multiple of 2,000) in one crawl."""
    spec = CrawlSpec(CRAWL, row_group_rows=_GROUP_ROWS, page_rows=20_000)
    _make_crawl(bucket, spec, captures // _EACH)
    times = {"from": f"{spec.start:%Y-%m-%dT%H:%M:%S}", "to": f"{spec.start + _LASTS:%Y-%m-%dT%H:%M:%S}"}
    about = [{"id": CRAWL, "name": CRAWL, "timegate": "", "cdx-api": "", **times}]
    (bucket / "collinfo.json").write_text(json.dumps(about))


def _make_crawl(bucket: Path, spec: CrawlSpec, copies: int) -> None:
    first = bucket / _archive(spec, 0)
    rows = _records(first, spec)
    for number in range(1, copies):
        os.link(first, bucket / _archive(spec, number))
    schema = published_schema(spec)
    template = pa.Table.from_pylist(rows, schema=schema).sort_by("url_surtkey")
    paths = [_archive(spec, number) for number in range(copies)]
    named = pa.array(paths)
    # each copy of a page was fetched at another second
    later = pa.array([number * 1_000 for number in range(copies)], pa.duration("ms"))
    keys = []
    # a page's captures of all files stand together, as in a sorted index
    pages = max(1, _PART_ROWS // copies)
    for part, start in enumerate(range(0, _EACH, pages)):
        chosen = template.slice(start, pages)
        table = chosen.take(pa.array([row for row in range(chosen.num_rows) for _ in range(copies)]))
        times = pc.add(table["fetch_time"], pa.chunked_array([later] * chosen.num_rows))
        for name, values in {"warc_filename": pa.chunked_array([named] * chosen.num_rows), "fetch_time": times}.items():
            place = schema.get_field_index(name)
            table = table.set_column(place, schema.field(place), values)
        key = f"{spec.table}/subset=warc/part-{part:05d}-{uuid.UUID(int=1)}.c000.gz.parquet"
        (bucket / key).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, bucket / key, row_group_size=_GROUP_ROWS, **writer_options(spec, schema))
        keys.append(key)
    for name, listed in {"cc-index-table": keys, "warc": paths}.items():
        data = gzip_member("".join(f"{key}\n" for key in listed).encode())
        (bucket / "crawl-data" / spec.id / f"{name}.paths.gz").write_bytes(data)


def _archive(spec: CrawlSpec, number: int) -> str:
    name = f"CC-MAIN-{spec.start:%Y%m%d%H%M%S}-{spec.start + _LASTS:%Y%m%d%H%M%S}-{number:05d}.warc.gz"
    return f"crawl-data/{spec.id}/segments/{_SEGMENT}/warc/{name}"


def _records(path: Path, spec: CrawlSpec) -> list[dict[str, object]]:
    """Writes the archive file; its index rows, but for the name of the file."""
    fetched = spec.start
    rows = []
    path.parent.mkdir(parents=True)
    with path.open("xb") as out:
        for number in range(_EACH):
            url = f"https://www.{TARGET}/section-{number % 40:02d}/a-page-with-a-name-{number:05d}.html"
            text = (
                f"<p>Page {number} says <a href='/section-{number % 7:02d}/'>what</a> its number {number * 7} is.</p>"
            )
            body = f"<html><head><title>Page {number}</title></head><body>{text * 3}</body></html>".encode()
            exchange = Exchange(
                url=url, kind="html", fetched=fetched, status=200, status_line="HTTP/1.1 200 OK",
                headers=(("Content-Type", "text/html; charset=UTF-8"), ("Server", "nginx")), body=body, encoding=None,
                chunked=False, wire_length=len(body), server_ip="192.0.2.1", mime="text/html",
                mime_detected="text/html", charset="UTF-8", languages="eng", truncated=None, redirect=None,
                record_type="response", fetch_milliseconds=10, title=f"Page {number}",
            )  # fmt: skip
            ids = [uuid.UUID(int=number * 3 + each) for each in range(3)]
            member = gzip_member(response_record(spec, exchange, *ids))
            offset, length = out.tell(), len(member)
            out.write(member)
            rows.append(
                {
                    **host_columns(url), "url": url, "url_surtkey": surt_key(url), "fetch_time": fetched,
                    "fetch_status": 200, "content_digest": sha1_base32(body), "content_mime_type": "text/html",
                    "content_mime_detected": "text/html", "content_charset": "UTF-8", "content_languages": "eng",
                    "warc_filename": "", "warc_record_offset": offset, "warc_record_length": length,
                    "warc_segment": _SEGMENT,
                }
            )  # fmt: skip
    return rows


class Watch:
    """Samples the memory of this process and its children: anonymous pages, and all resident ones, at the peak."""

    def __init__(self) -> None:
        self.peak = {"own": 0, "own_anonymous": 0, "children": 0, "together": 0}
        self._ended = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            own, anonymous = _resident(os.getpid())
            children = sum(_resident(child)[0] for child in _children(os.getpid()))
            now = {"own": own, "own_anonymous": anonymous, "children": children, "together": own + children}
            self.peak = {name: max(value, now[name]) for name, value in self.peak.items()}

    def taken(self) -> dict[str, float]:
        """The peaks since the last call, in MB."""
        found, self.peak = self.peak, dict.fromkeys(self.peak, 0)
        return {f"{name}_mb": round(value / 1024, 1) for name, value in found.items()}


def _resident(process: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
            found = dict(line.split(":", 1) for line in status if line.startswith(("VmRSS", "RssAnon")))
    except OSError:
        return 0, 0
    values = {name: int(text.split()[0]) for name, text in found.items()}
    return values.get("VmRSS", 0), values.get("RssAnon", 0)


def _children(process: int) -> list[int]:
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as listed:
            mine = [int(child) for child in listed.read().split()]
    except OSError:
        return []
    return mine + [below for child in mine for below in _children(child)]


def run(source: str, home: Path, steps: list[str]) -> dict[str, dict[str, float]]:
    """Seconds and peaks of each of ``steps`` over the target, in this process."""
    # imported here: the making of a bucket needs none of it
    from cc_pipeline.commoncrawl.target_text import parse_target
    from cc_pipeline.extraction.fetch import fetch_captures
    from cc_pipeline.extraction.locate import locate_captures
    from cc_pipeline.extraction.parse import parse_records
    from cc_pipeline.harvesting.crawl_index import commit_manifest, commit_row_groups, harvest_footers
    from cc_pipeline.settings import load_settings
    from cc_pipeline.workspace.workspace import Workspace

    workspace = Workspace(load_settings({}, source=source, home=str(home)))

    def harvest() -> None:
        commit_manifest(workspace, CRAWL)
        harvest_footers(workspace, CRAWL)
        commit_row_groups(workspace, [CRAWL])
        workspace.register_targets([parse_target(TARGET)])

    does = {
        "harvest": harvest,
        "locate": lambda: locate_captures(workspace, CRAWL, [TARGET]),
        "fetch": lambda: fetch_captures(workspace, CRAWL, [TARGET]),
        "parse": lambda: parse_records(workspace, CRAWL, [TARGET]),
    }
    watch = Watch()
    found: dict[str, dict[str, float]] = {}
    try:
        for step in steps:
            started, used = time.perf_counter(), time.process_time()
            does[step]()
            seconds = {"s": round(time.perf_counter() - started, 2), "cpu_s": round(time.process_time() - used, 2)}
            found[step] = {**seconds, **watch.taken()}
            print(step, found[step], file=sys.stderr, flush=True)
    finally:
        workspace.close()
    return found


STEPS = ["harvest", "locate", "fetch", "parse"]


def main() -> None:
    """Makes a bucket, or runs the steps over it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["make", "run"])
    parser.add_argument("bucket")
    parser.add_argument("--captures", type=int, default=10_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--steps", nargs="*", default=STEPS)
    given = parser.parse_args()
    if given.step == "make":
        make(Path(given.bucket), given.captures)
    else:
        json.dump(run(given.bucket, given.home, given.steps), sys.stdout)


if __name__ == "__main__":
    main()
