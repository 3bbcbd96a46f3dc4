"""Purging one target of any number of captures, a tenth of which another target holds too.

``python -m benchmarks.large_purge HOME 1000000``: makes the lake without a source (one stored file of small records
stands there under many names), purges the target, and prints what it took and the peak of memory as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.large_target import CRAWL, Watch
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.slice import FETCH, LOCATE, PAGE_TABLES, PARSE, Slice
from cc_pipeline.minicrawl.seeded import gzip_member
from cc_pipeline.records.segments import segment_head
from cc_pipeline.settings import load_settings
from cc_pipeline.stages.keeping.purge import purge
from cc_pipeline.stages.keeping.purge_plan import SLICED, plan_purge
from cc_pipeline.stages.workspace import Workspace, open_workspace

GOES, STAYS = "large.example", "host:www.large.example"
#: Records of a stored file, and one in so many that another target holds too.
_EACH = 50_000
_SHARED = 10
_AT_ONCE = 10_000


def make(workspace: Workspace, captures: int) -> None:
    """Rows and stored files of ``captures`` captures (a multiple of 50,000)."""
    targets = [parse_target(text) for text in (GOES, STAYS)]
    workspace.register_targets(targets)
    folder = Path(workspace.settings.lake) / "records" / CRAWL
    folder.mkdir(parents=True)
    first = folder / f"{CRAWL}-{'0' * 32}-00000.warc.gz"
    places = []
    with first.open("wb") as out:
        out.write(segment_head("warc", first.name, {"isPartOf": CRAWL}))
        for number in range(_EACH):
            head = "WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 900\r\n\r\n"
            text = f"{head}{number:010}{os.urandom(445).hex()}\r\n\r\n"
            member = gzip_member(text.encode())
            places.append((out.tell(), len(member)))
            out.write(member)
    names = [first.name]
    for number in range(1, captures // _EACH):
        names.append(first.name.replace("-00000.", f"-{number:05}."))
        os.link(first, folder / names[-1])
    for target, step in ((targets[0], 1), (targets[1], _SHARED)):
        slice_ = Slice(CRAWL, target.slug)
        for stage in (LOCATE, FETCH, PARSE):
            digest = {stage.digest_name(slice_): stage.digest(of=target.slug)}
            for table in stage.tables:
                rows = _rows(workspace, table, target.slug, names, places, step)
                workspace.lake.commit_stream(table, lambda rows=rows: rows, [slice_.where], digest)


def _rows(
    workspace: Workspace, table: str, slug: str, names: list[str], places: list[tuple[int, int]], step: int
) -> Iterator[pa.RecordBatch]:
    schema = workspace.lake.specs[table].schema
    for name in names:
        for start in range(0, len(places), _AT_ONCE):
            some = range(start, start + _AT_ONCE, step)
            known = {
                "crawl": CRAWL, "target": slug, "subset": "warc", "url": "https://www.large.example/",
                "domain": "large.example", "archive_format": "warc", "outcome": "fetched", "attempts": 1,
                "located_by": "parquet", "source_kind": "records", "disposition": "SUCCESS", "parser": "none",
                "parser_version": "1", "stored_file": f"records/{CRAWL}/{name}", "warc_filename": f"crawl-data/{name}",
                "text": "what a page says " * 20 if table == "page_text" else None,
            }  # fmt: skip
            each = {
                "warc_record_offset": [places[number][0] for number in some],
                "stored_offset": [places[number][0] for number in some],
                "warc_record_length": [places[number][1] for number in some],
                "stored_length": [places[number][1] for number in some],
            }
            columns = [
                pa.array(each[field.name], field.type)
                if field.name in each
                else pa.repeat(pa.scalar(known[field.name], field.type), len(some))
                if known.get(field.name) is not None
                else _nothing(field, len(some))
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _nothing(field: pa.Field, rows: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(rows, field.type)
    if pa.types.is_string(field.type):
        return pa.repeat(pa.scalar("", field.type), rows)
    if pa.types.is_list(field.type):
        return pa.array([[]] * rows, field.type)
    return pa.repeat(pa.scalar(0).cast(field.type), rows)


def main() -> None:
    """Makes, purges, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("captures", type=int)
    given = parser.parse_args()
    settings = load_settings({}, source=str(given.home / "source"), home=str(given.home / "home"))
    if not given.home.exists():
        child = os.fork()
        if not child:
            with open_workspace(settings) as workspace:
                make(workspace, given.captures)
            os._exit(0)
        os.waitpid(child, 0)
    watch = Watch()
    with open_workspace(settings) as workspace:
        said: dict[str, object] = {"captures": given.captures, "libraries": watch.taken()}
        for name, work in (
            ("plan", lambda: plan_purge(workspace, GOES, GOES)),
            ("purge", lambda: purge(workspace, plan_purge(workspace, GOES, GOES))),
        ):
            began, spent = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
            work()
            seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - spent
            said[name] = {"wall_s": round(time.monotonic() - began, 1), "user_s": round(seconds, 1), **watch.taken()}
        left = {table: workspace.lake.read(table, columns=["target"]).num_rows for table in SLICED}
        said["rows left"] = {table: count for table, count in left.items() if table in ("records", *PAGE_TABLES)}
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
