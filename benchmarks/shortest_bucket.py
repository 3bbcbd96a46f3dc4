"""A bucket with as many index files and as large a ``cluster.idx`` as a real crawl has, around a mini crawl.

The captures are the mini crawl's. The other index files hold a few rows of other hosts; the other lines of
``cluster.idx`` name members that are not there, but for those which a look-up of the mini crawl's domains reads.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.index_files import write_file
from benchmarks.report import sized
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.paths import cluster_key, parse_path_list, path_list_key
from cc_pipeline.minicrawl.generate import generate
from cc_pipeline.minicrawl.spec import CrawlSpec, MemberFile, MiniCrawlSpec, gzip_member
from cc_pipeline.minicrawl.truth import MiniCrawlTruth

#: The newest first; what is known of one guides in the other.
CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2024-18")
#: Top-level domains with their shares of a crawl's lines, roughly.
_TOPS = {
    top: int(share)
    for share, tops in (line.split(": ") for line in (
        "517: com", "66: org", "55: de", "48: ru", "42: net", "30: uk,co", "25: fr", "24: it", "22: jp,co", "20: nl",
        "18: pl", "16: cz", "17: br,com", "15: es", "14: edu au,com",
        "9: ca eu se ch at be gr info in cn ro hu ua,com io us tv",
    ))
    for top in tops.split()
}  # fmt: skip
#: Names are made of these.
_SYLLABLES = re.findall(
    "[a-z]+",
    "al an ar ba be bi blog bo ca ce co com con da de di do e en er es eu fa fi for ga ge go hi ho i in ka ko la le "
    "li lo ma me mi mo my na ne net news no o on op or pa pe pi po pro ra re ri ro sa se shop si so sta ta te the ti "
    "to tra tu un us va ve vi vo we web win wo xy you za",
)
_DOMAINS = sized(5_000, 250_000)
_LINES_A_MEMBER, _LINES_A_SHARD = 3000, 3334


PROGRAM = Path(sys.executable).with_name("cc-pipeline")


def environment_of(**settings: object) -> dict[str, str]:
    """This process's variables with these settings of the pipeline, and no others. What is learnt of hosts stays beside
    the home."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    if "HOME" in settings:
        plain["XDG_STATE_HOME"] = f"{settings['HOME']}-state"
    return plain | {f"CC_PIPELINE_{name}": str(value) for name, value in settings.items()}


def generate_bucket(root: Path, *, lines: int, files: int, seed: int = 1) -> MiniCrawlTruth:
    """Writes a bucket of two crawls, each with ``files`` index files in all (shared evenly between three subsets) and
    ``lines`` lines of ``cluster.idx`` besides those of its captures. Says what the captures are."""
    spec = MiniCrawlSpec(seed=seed, pages=600, sites=12, crawls=tuple(CrawlSpec(crawl, parts=1) for crawl in CRAWLS))
    truth = generate(root, spec)
    fillers = [root.with_name(f"filler-{number}.parquet") for number in range(8)]
    for number, path in enumerate(fillers):
        write_file(path, seed=number, row_groups=2)
    for number, crawl in enumerate(CRAWLS):
        _add_index_files(root, crawl, files, fillers)
        _add_lines(root, crawl, lines, seed + number)
    for path in fillers:
        path.unlink()
    return truth


def _add_index_files(root: Path, crawl: str, files: int, fillers: Sequence[Path]) -> None:
    listing = root / path_list_key(crawl, "cc-index-table")
    keys = list(parse_path_list(listing.read_bytes()))
    for subset in SUBSETS:
        there = [key for key in keys if f"/subset={subset}/" in key]
        for number in range(1, files // len(SUBSETS) - len(there) + 1):
            keys.append(there[0].replace("part-00000", f"part-{number:05d}"))
            os.link(fillers[number % len(fillers)], root / keys[-1])
    listing.write_bytes(gzip_member("".join(f"{key}\n" for key in sorted(keys)).encode()))


def _add_lines(root: Path, crawl: str, lines: int, seed: int) -> None:
    path = root / cluster_key(crawl)
    shards = sorted(path.parent.glob("cdx-*.gz"))
    own = sorted(line for shard in shards for line in gzip.decompress(shard.read_bytes()).splitlines(keepends=True))
    for shard in shards:
        shard.unlink()
    others = list(_keys(lines, seed))
    places = [(bisect_left(others, line.partition(b" ")[0]), line) for line in own]
    written = 0
    with path.open("wb") as cluster, MemberFile(path.with_name("cdx-00000.gz")) as shard:

        def put(key: bytes, name: str, offset: int, length: int) -> None:
            nonlocal written
            written += 1
            cluster.write(b"%s 20240518010203\t%s\t%d\t%d\t%d\n" % (key, name.encode(), offset, length, written))

        start = 0
        for place, group in groupby(places, key=lambda pair: pair[0]):
            for number in range(start, max(start, place - 1)):
                put(others[number], *_nowhere(number))
            if place > start:
                # a look-up reads the member before the first line too: it may hold the begin
                key = others[place - 1]
                said = b'{"url": "https://nowhere.example/", "filename": "a/segments/1.2/warc/f.warc.gz", '
                said += b'"offset": "0", "length": "1"}'
                put(key, "cdx-00000.gz", *shard.append(b"%s 20240518010203 %s\n" % (key, said)))
            run = [line for _, line in group]
            for first in range(0, len(run), _LINES_A_MEMBER):
                block = run[first : first + _LINES_A_MEMBER]
                put(block[0].partition(b" ")[0], "cdx-00000.gz", *shard.append(b"".join(block)))
            start = place
        for number in range(start, len(others)):
            put(others[number], *_nowhere(number))


def _nowhere(number: int) -> tuple[str, int, int]:
    return f"cdx-{1 + number // _LINES_A_SHARD:05d}.gz", number % _LINES_A_SHARD * 201_337, 201_337


def _keys(count: int, seed: int) -> Iterator[bytes]:
    """Sorted keys of the same hosts for each ``seed``, of which some are missing and others have more lines."""
    hosts = _hosts()
    chance = np.random.default_rng(100 + seed)
    weights = np.random.default_rng(5).pareto(0.8, len(hosts)).clip(0.02, 3000) * chance.lognormal(0, 0.5, len(hosts))
    weights *= chance.random(len(hosts)) < 0.85
    for host, some in zip(hosts, chance.multinomial(count, weights / weights.sum()), strict=True):
        yield from (b"%s)/%08d/a-page-of-this-site-0%d" % (host, number * 37, number % 7) for number in range(some))


def _hosts() -> list[bytes]:
    chance = np.random.default_rng(7)
    shares = np.array(list(_TOPS.values()), float)
    tops = chance.choice(list(_TOPS), _DOMAINS, p=shares / shares.sum())
    odds = np.random.default_rng(8).pareto(1.0, len(_SYLLABLES)) + 0.2
    parts = chance.choice(_SYLLABLES, (_DOMAINS, 4), p=odds / odds.sum())
    lengths = chance.integers(2, 5, _DOMAINS)
    return sorted({f"{top},{''.join(p[:n])}".encode() for top, p, n in zip(tops, parts.tolist(), lengths, strict=True)})
