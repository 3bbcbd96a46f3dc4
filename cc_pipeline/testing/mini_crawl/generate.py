"""Generates a complete bucket: archives, indexes, path lists and the truth about them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.index.btree.locator import CRAWL_2012, URL_INDEX_2012
from cc_pipeline.settings.source_addresses import MINI_CRAWL_MARK
from cc_pipeline.testing.mini_crawl.archives import arc_file_key, segment_id, warc_file_key, write_archives
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline.testing.mini_crawl.indexes import write_columnar, write_zipnum
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec, gzip_member
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.testing.mini_crawl.visits import plan_visits, segment_start

#: Called with a crawl id, the captures written so far and the total number of captures.
Progress = Callable[[str, int, int], None]

VALID_SEGMENTS_KEY = "parse-output/valid_segments.txt"

_MARK = b"A mini crawl: cc_pipeline generated this bucket, and no page in it is real.\n"

#: Names of path lists by subset.
_PATH_LISTS = {"warc": "warc", "crawldiagnostics": "non200responses", "robotstxt": "robotstxt"}


def generate(root: Path, spec: MiniCrawlSpec, progress: Progress | None = None) -> MiniCrawlTruth:
    """Writes the bucket of ``spec`` into the folder ``root``, which must be new or empty.

    The same ``spec`` gives the same bytes on every machine with the same zlib and pyarrow. Raises ``UserInputError``
    if ``root`` is not empty.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserInputError(f"{root} is not an empty folder: a mini crawl is generated into a new one")
    root.mkdir(parents=True, exist_ok=True)
    captures: list[Capture] = []
    for crawl in spec.crawls:
        if crawl.has_data:
            captures += _crawl(root, spec, crawl, progress)
    _write(root / "collinfo.json", _collinfo(spec))
    _write(root / MINI_CRAWL_MARK, _MARK)
    return MiniCrawlTruth(spec.seed, tuple(crawl.id for crawl in spec.crawls), tuple(captures))


def truth_path(root: Path) -> Path:
    """Returns the path of the truth about the bucket at ``root``, in the same folder: ``ensure`` writes it."""
    return root.with_name(root.name + ".truth.json.gz")


def ensure(root: Path, spec: MiniCrawlSpec, progress: Progress | None = None) -> MiniCrawlTruth:
    """Generates the bucket unless it exists, and never leaves a partial one.

    The bucket is generated in another folder and moved to ``root`` when it is complete; the truth is in
    ``truth_path(root)``. Raises ``UserInputError`` if ``root`` has content that this function did not make from the
    same ``spec``.
    """
    saved, mark = truth_path(root), root.with_name(root.name + ".spec")
    digest = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode()).hexdigest()
    if root.exists() and any(root.iterdir()):
        if not (saved.is_file() and mark.is_file() and mark.read_text() == digest):
            raise UserInputError(
                f"{root} is not a mini crawl of this specification: remove it or choose another folder"
            )
        try:
            return MiniCrawlTruth.load(saved)
        except DataFault as fault:
            raise UserInputError(f"{root} cannot be used again ({fault}): remove it") from fault
    _remove_abandoned(root)
    building = root.with_name(f"{root.name}.building-{os.getpid()}")
    try:
        truth = generate(building, spec, progress)
        truth.save(saved)
        mark.write_text(digest)
        if root.exists():
            root.rmdir()
        building.rename(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return truth


def _remove_abandoned(root: Path) -> None:
    """Removes the partial buckets of killed processes for ``root``."""
    for abandoned in root.parent.glob(f"{root.name}.building-*"):
        try:
            os.kill(int(abandoned.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(abandoned, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


def _crawl(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, progress: Progress | None) -> list[Capture]:
    total = len(plan_visits(spec, crawl)) if progress is not None else 0
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(crawl.id, done, total)

    captures = write_archives(root, spec, crawl, step)
    captures.sort(
        key=lambda capture: (
            capture.subset,
            capture.url_surtkey.encode(),
            capture.fetch_time,
            capture.warc_filename,
            capture.warc_record_offset,
        )
    )
    if crawl.format == "arc":
        _arc_indexes(root, spec, crawl, captures)
    elif crawl.is_supplemental:
        # it is in no list, it has only its table
        write_columnar(root, spec, crawl, captures)
    else:
        _path_lists(root, spec, crawl, captures)
    return captures


def _path_lists(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, captures: Sequence[Capture]) -> None:
    segments = range(crawl.segments)
    path_lists = {
        "segment": [f"crawl-data/{crawl.id}/segments/{segment_id(spec, crawl, number)}/" for number in segments],
        "cc-index-table": write_columnar(root, spec, crawl, captures),
        "cc-index": write_zipnum(root, spec, crawl, captures),
    }
    for subset in SUBSETS:
        path_lists[_PATH_LISTS[subset]] = [
            warc_file_key(spec, crawl, segment, subset, file)
            for segment in segments
            for file in range(crawl.files_per_segment)
        ]
    for name, keys in path_lists.items():
        text = "".join(key + "\n" for key in keys)
        _write(root / "crawl-data" / crawl.id / f"{name}.paths.gz", gzip_member(text.encode()))


def _arc_indexes(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, captures: Sequence[Capture]) -> None:
    if crawl.cdx:
        write_zipnum(root, spec, crawl, captures)
    if crawl.id != CRAWL_2012:
        return
    segments = "".join(segment_id(spec, crawl, number) + "\n" for number in range(crawl.segments))
    _write(root / VALID_SEGMENTS_KEY, segments.encode())
    files: dict[str, tuple[int, int, int]] = {}
    for segment in range(crawl.segments):
        for file in range(crawl.files_per_segment):
            key = arc_file_key(spec, crawl, segment, file)
            created_ms = int(key.rpartition("/")[2].partition("_")[0])
            files[key] = (int(segment_id(spec, crawl, segment)), created_ms, file)
    items = sorted(
        (
            (capture.btree_key or "").encode("ascii"),
            pack_pointer(*files[capture.warc_filename], capture.warc_record_offset, capture.warc_record_length),
        )
        for capture in captures
    )
    path = root / URL_INDEX_2012
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        write_btree(items, out, spec.btree_block_size)


def _collinfo(spec: MiniCrawlSpec) -> bytes:
    entries = [
        {
            "id": crawl.id,
            "name": f"{crawl.start:%B %Y} Index",
            "timegate": f"https://index.commoncrawl.org/{crawl.id}/",
            "cdx-api": f"https://index.commoncrawl.org/{crawl.id}-index",
            "from": f"{crawl.start:%Y-%m-%dT%H:%M:%S}",
            "to": f"{segment_start(crawl, crawl.segments) + timedelta(days=1):%Y-%m-%dT%H:%M:%S}",
        }
        for crawl in spec.crawls
        if not crawl.is_supplemental
    ]
    return json.dumps(entries, indent=1).encode() + b"\n"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
