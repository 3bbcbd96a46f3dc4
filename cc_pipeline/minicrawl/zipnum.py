"""The ZipNum index of a generated crawl: CDXJ lines in gzip members, and cluster.idx over the members.

Source: pywb's description of ZipNum and real lines of cluster.idx and of the shards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cc_pipeline.minicrawl.columnar import extra_value
from cc_pipeline.minicrawl.members import MemberFile
from cc_pipeline.minicrawl.spec import CrawlSpec
from cc_pipeline.minicrawl.truth import Capture


def cdxj_line(crawl: CrawlSpec, capture: Capture) -> str:
    """One line without its line feed: key, 14-digit time, and the JSON keys that this crawl's index has."""
    fields: list[tuple[str, str | None]] = [
        ("url", capture.url),
        ("mime", capture.content_mime_type),
        ("mime-detected", capture.content_mime_detected),
        ("status", str(capture.fetch_status)),
        ("digest", capture.content_digest),
        ("length", str(capture.warc_record_length)),
        ("offset", str(capture.warc_record_offset)),
        ("filename", capture.warc_filename),
        ("charset", capture.content_charset),
        ("languages", capture.content_languages),
        ("truncated", capture.content_truncated),
        ("redirect", capture.fetch_redirect),
        *((name.replace("_", "-"), extra_value(capture, name)) for name in crawl.extra_columns),
    ]
    document = json.dumps({name: value for name, value in fields if value is not None}, ensure_ascii=False)
    return f"{capture.url_surtkey} {capture.fetch_time:%Y%m%d%H%M%S} {document}"


def write_zipnum(root: Path, crawl: CrawlSpec, captures: Sequence[Capture]) -> list[str]:
    """Writes shards, cluster.idx and metadata.yaml; gives their keys in the order of cc-index.paths.gz."""
    lines = sorted(cdxj_line(crawl, capture).encode() for capture in captures)
    folder = f"cc-index/collections/{crawl.id}"
    cluster: list[str] = []
    keys: list[str] = []
    for shard in range(crawl.zipnum_shards):
        low, high = (len(lines) * bound // crawl.zipnum_shards for bound in (shard, shard + 1))
        name = f"cdx-{shard:05d}.gz"
        keys.append(f"{folder}/indexes/{name}")
        with MemberFile(root / keys[-1]) as out:
            for start in range(low, high, crawl.zipnum_lines):
                block = lines[start : min(start + crawl.zipnum_lines, high)]
                offset, length = out.append(b"".join(line + b"\n" for line in block))
                key, moment, _ = block[0].split(b" ", 2)
                cluster.append(f"{key.decode()} {moment.decode()}\t{name}\t{offset}\t{length}\t{len(cluster) + 1}\n")
    for name, text in (
        ("indexes/cluster.idx", "".join(cluster)),
        ("metadata.yaml", f"title: {crawl.id}\ndescription: Index of a generated crawl\n"),
    ):
        keys.append(f"{folder}/{name}")
        (root / keys[-1]).write_text(text, encoding="utf-8", newline="\n")
    return keys
