"""``make bench-news``: how fast a WARC file is indexed, beside warcio's plain iteration of the same file.

A file like those of CC-NEWS, with a request before each response, is indexed as ``build-index`` does it: in ranges,
sorted, written as Parquet. warcio reads record after record and does nothing with them. Rates are of CPU seconds, the
best of some rounds, because other work may share the machine.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from benchmarks.report import Report, sized
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.indexing.from_archives import build_index
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace

MONTH = "CC-NEWS-2026-05"
KEY = "crawl-data/CC-NEWS/2026/05/CC-NEWS-20260501003412-08100.warc.gz"
_REQUEST = b"GET /1 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: CCBot/2.0\r\nAccept: text/html,*/*;q=0.8\r\n\r\n"
_HEAD = (
    b"WARC/1.0\r\nWARC-Type: request\r\nWARC-Target-URI: http://www.example.com/1\r\nWARC-Date: 2026-05-01T00:34:12Z"
    b"\r\nWARC-Record-ID: <urn:uuid:1d2e13db-8be7-48fd-b00b-c7f4be61c5a7>\r\nContent-Type: application/http; "
    b"msgtype=request\r\nContent-Length: "
)


WORDS = [
    f"{first}{second}"
    for first in ("br", "cl", "st", "pr", "m", "n", "")
    for second in ("ot", "ane", "ing", "ulo", "e")
]


def pages(count: int, mean: int = 70_000, seed: int = 1) -> list[bytes]:
    """Gzip members of ``count`` responses with HTML of about ``mean`` bytes, compressible like real pages."""
    chance = random.Random(seed)
    members = []
    fields = [("Content-Type", "text/html; charset=utf-8"), ("X-Crawler-Content-Encoding", "gzip")]
    fields += [(f"X-Header-{number}", "value " * 4) for number in range(9)]
    for number in range(count):
        size = int(chance.expovariate(1 / mean)) + 500
        words = chance.choices(WORDS, k=size // 9)
        body = "".join(f'<p class="c{place % 17}">{word} {place:x}</p>' for place, word in enumerate(words))
        stream = io.BytesIO()
        http = StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
        writer = WARCWriter(stream)
        payload = io.BytesIO(body.encode()[:size])
        url = f"http://www.example.com/{number}"
        writer.write_record(writer.create_warc_record(url, "response", payload=payload, http_headers=http))
        members.append(stream.getvalue())
    return members


def month(root: Path, responses: int) -> Path:
    """A bucket with a month of one file."""
    asked = gzip.compress(_HEAD + str(len(_REQUEST)).encode() + b"\r\n\r\n" + _REQUEST + b"\r\n\r\n")
    path = root / KEY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(asked + member for member in pages(responses)))
    (root / path_list_key(MONTH, "warc")).write_bytes(gzip.compress(KEY.encode() + b"\n"))
    return path


def _indexed(root: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        open_workspace(load_settings({}, source=str(root), home=home)) as workspace,
    ):
        report = build_index(workspace, MONTH, agreed=True)
        assert report.written == 1, report


def _iterated(path: Path, reader: Callable[..., object]) -> None:
    with path.open("rb") as stream:
        for _ in reader(stream):
            pass


def _rate(work: Callable[[], None], records: int, rounds: int) -> float:
    best = 0.0
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = max(best, records / (time.process_time() - begun))
    return best


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/news.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=sized(40, 3_000))
    parser.add_argument("--rounds", type=int, default=sized(1, 4))
    given = parser.parse_args()
    report = Report("news")
    with tempfile.TemporaryDirectory() as folder:
        path = month(Path(folder) / "bucket", given.responses)
        records, megabytes = 2 * given.responses, path.stat().st_size / 1e6
        ours = _rate(lambda: _indexed(Path(folder) / "bucket"), records, given.rounds)
        plain = _rate(lambda: _iterated(path, ArchiveIterator), records, given.rounds)
        report.figure("indexed", ours=ours, rival=plain, goal=0.5, unit="records/s")
        fast = _rate(lambda: _iterated(path, FastIterator), records, given.rounds)
        report.figure("indexed_beside_fastwarc", ours=ours, rival=fast, unit="records/s")
        report.figure("bytes_indexed", ours=ours * megabytes / records, unit="MB/s of WARC")
    report.write()


if __name__ == "__main__":
    main()
