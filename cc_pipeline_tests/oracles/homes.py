"""The homes whose published rows are frozen, made with the command line as a person uses it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline_tests.archive.sequencefile_writer import write_sequencefile
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.extraction.written_whole import DOCUMENT
from cc_pipeline_tests.oracles.additions import find_additions
from cc_pipeline_tests.oracles.commands import run_command
from cc_pipeline_tests.oracles.sources import digest_source
from cc_pipeline_tests.world import ARC, NEW, OLD

CRAWLS: Final = (NEW, OLD, ARC)
SUBSETS: Final = ("warc", "crawldiagnostics", "robotstxt")
#: Pages of the larger mini crawl.
PAGES: Final = 800


def make_real(folder: Path) -> str:
    """All registered domains of the real pages in the corpus, all subsets. Returns the digest of its source."""
    bucket = CORPUS / "realcrawl" / "bucket"
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as file:
        expected = json.load(file)
    hosts = {row["url_host_name"] for crawl in (NEW, OLD) for row in expected[crawl]}
    hosts |= {urlsplit(row[2]).hostname or "" for row in expected[ARC]}
    _run_targets(folder, bucket, sorted({registered_domain(host) or host for host in hosts if host}))
    return digest_source(bucket)


def make_large(folder: Path) -> str:
    """A larger mini crawl: all subsets, robots.txt that change, a SequenceFile, and what the tests of extensions add.
    Returns the digest of its source, without what these add."""
    bucket = folder / "bucket"
    spec = spec_for(PAGES, crawls=CRAWLS)
    spec = replace(spec, crawls=tuple(replace(crawl, policies=True) for crawl in spec.crawls))
    truth = ensure(bucket, spec)
    pairs = [("http://www.example.com/a", json.dumps(DOCUMENT)), ("http://www.example.com/b", "no document")]
    # below the bucket, so that its name in the rows is the same everywhere
    (bucket / "metadata-00000").write_bytes(write_sequencefile(pairs, seed="oracle"))
    digest = digest_source(bucket)
    _run_targets(folder, bucket, truth.domains())
    for addition in find_additions().values():
        addition.fill(partial(run_command, folder, source=bucket), truth)
    run_command(folder, "files", "add", "metadata-00000", "--kind", "sequencefile", source=bucket)
    return digest


def published_file(folder: Path) -> Path:
    """The published file of the home in ``folder``."""
    return folder / "home" / "cc.duckdb"


def _run_targets(folder: Path, bucket: Path, targets: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "targets.txt"
    listed.write_text("\n".join(targets) + "\n", "utf-8")
    crawls = [word for crawl in CRAWLS for word in ("--crawl", crawl)]
    subsets = [word for subset in SUBSETS for word in ("--subset", subset)]
    run_command(folder, "run", *crawls, f"@{listed}", *subsets, "--yes", source=bucket)


#: By name: makes ``FOLDER/home`` and what it reads, and returns the digest of its source.
HOMES: Final[Mapping[str, Callable[[Path], str]]] = {"realcrawl": make_real, "large": make_large} | {
    name: make for addition in find_additions().values() for name, make in addition.homes.items()
}
