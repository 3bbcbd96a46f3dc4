"""The homes whose published rows are frozen, made with the command line as a person uses it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.extensions.host_facts.rank_text import parse_release
from cc_pipeline.pagefiles.sequencefile import SequenceFileWriter
from cc_pipeline.settings.places import MINI_CRAWL_MARK
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.extensions.host_facts.graph import GraphSpec, write_graph
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedSpec, plain_hosts, write_keyed
from cc_pipeline_tests.pagefiles.written_whole import DOCUMENT
from cc_pipeline_tests.world import ARC, NEW, OLD

CRAWLS: Final = (NEW, OLD, ARC)
SUBSETS: Final = ("warc", "crawldiagnostics", "robotstxt")
#: Pages of the larger mini crawl.
PAGES: Final = 800
_RELEASE: Final = "cc-main-2024-apr-may-jun"


def make_demo(folder: Path) -> Path:
    """The home of ``cc-pipeline demo``, through Dagster. Returns its bucket."""
    _run(folder, "demo", source=None)
    return folder / "home" / "minicrawl"


def make_real(folder: Path) -> Path:
    """All registered domains of the real pages in the corpus, all subsets."""
    bucket = CORPUS / "realcrawl" / "bucket"
    with gzip.open(CORPUS / "realcrawl" / "expected.json.gz") as file:
        expected = json.load(file)
    hosts = {row["url_host_name"] for crawl in (NEW, OLD) for row in expected[crawl]}
    hosts |= {urlsplit(row[2]).hostname or "" for row in expected[ARC]}
    _run_targets(folder, bucket, sorted({registered_domain(host) or host for host in hosts if host}))
    return bucket


def make_large(folder: Path) -> Path:
    """A larger mini crawl: all subsets, robots.txt that change, data by host with ranks, and a SequenceFile."""
    bucket = folder / "bucket"
    spec = spec_for(PAGES, crawls=CRAWLS)
    spec = replace(spec, crawls=tuple(replace(crawl, policies=True) for crawl in spec.crawls))
    truth = ensure(bucket, spec)
    facts = KeyedSpec((NEW, OLD))
    write_keyed(bucket, facts, truth.captures)
    hosts = dict.fromkeys(host for crawl in facts.crawls for host in plain_hosts(facts, crawl))
    write_graph(bucket, GraphSpec(parse_release(_RELEASE), tuple(hosts)))
    pairs = [("http://www.example.com/a", json.dumps(DOCUMENT)), ("http://www.example.com/b", "no document")]
    # below the bucket, so that its name in the rows is the same everywhere
    with (bucket / "metadata-00000").open("wb") as stream, SequenceFileWriter(stream, seed="oracle") as writer:
        for key, value in pairs:
            writer.append(key, value)
    domains = truth.domains()
    _run_targets(folder, bucket, domains)
    for crawl in (NEW, OLD):
        found = [domain for domain in domains if truth.of(crawl, domain=domain)]
        _run(folder, "policies", *found, "--crawl", crawl, "--yes", "--format", "csv", source=bucket)
    _run(folder, "facts", "ranks", _RELEASE, "--yes", source=bucket)
    _run(folder, "facts", "show", *domains[:5], "--crawl", NEW, "--keep", "--format", "csv", source=bucket)
    _run(folder, "files", "add", "metadata-00000", "--kind", "sequencefile", source=bucket)
    return bucket


#: By name: makes ``FOLDER/home`` and what it reads, and returns the root of its source.
HOMES: Final[Mapping[str, Callable[[Path], Path]]] = {"demo": make_demo, "realcrawl": make_real, "large": make_large}


def published_file(folder: Path) -> Path:
    """The published file of the home in ``folder``."""
    return folder / "home" / "cc.duckdb"


def digest_source(bucket: Path) -> str:
    """A digest of the names and bytes of all files of a source that rows are made from."""
    digest = hashlib.sha256()
    for path in sorted(one for one in bucket.rglob("*") if one.is_file() and one.name != MINI_CRAWL_MARK):
        digest.update(f"{path.relative_to(bucket)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def list_writers() -> dict[str, str]:
    """The libraries that the bytes of a generated source depend on, with their versions."""
    return {"pyarrow": pa.__version__, "zlib": zlib.ZLIB_RUNTIME_VERSION}


def _run_targets(folder: Path, bucket: Path, targets: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "targets.txt"
    listed.write_text("\n".join(targets) + "\n", "utf-8")
    crawls = [word for crawl in CRAWLS for word in ("--crawl", crawl)]
    subsets = [word for subset in SUBSETS for word in ("--subset", subset)]
    _run(folder, "run", *crawls, f"@{listed}", *subsets, "--yes", source=bucket)


def _run(folder: Path, *arguments: str, source: Path | None) -> None:
    place = [] if source is None else ["--source", str(source)]
    command = [str(Path(sys.executable).with_name("cc-pipeline")), *arguments, *place, "--home", str(folder / "home")]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
