"""``make bench-facts``: what it costs to ask the host index about one domain, beside DuckDB over the same files.

A host index is generated in two layouts: all shards sorted, and as published, with ``.com`` shards in no order that
hold stray hosts of other domains. A server on this machine counts requests and bytes. Ours is asked in a fresh home
(path list, footers, pages), then about other domains with footers at hand, then again from what was kept. DuckDB asks
with the same ranges of keys, once downloading the files whole and once through ranges, where its httpfs is installed
(``make httpfs``); else it reads the local files, and their sizes count. Numbers are medians over some domains.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Report, sized, spread
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.hostfacts.datasets import ready_made
from cc_pipeline.hostfacts.host_facts import facts_of_hosts
from cc_pipeline.hostfacts.host_keys import HostRanges
from cc_pipeline.minicrawl.spec import gzip_member
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.minicrawl.keyed import HOST_INDEX_LIST

CRAWL = "CC-MAIN-2025-18"
DATASET = ready_made()["host-index"]
#: Row groups of the published files are not known; Spark ends a page after so many rows.
ROW_GROUP_ROWS, PAGE_ROWS = 50_000, 20_000
OTHERS = ("de", "fr", "net", "org", "ru", "uk,co")
#: Of the hosts of other domains, one in so many is a stray in a ``.com`` shard.
STRAYS = 500
GOAL_BYTES, GOAL_CACHED_MS = 20.0, 50.0
#: The rival, in a process of its own: SQL from standard input; its seconds and rows to standard output.
RIVAL = """
import json, sys, time
import duckdb
asked = json.load(sys.stdin)
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")
if asked["httpfs"]:
    con.execute(f"LOAD '{asked['httpfs']}'")
    con.execute("SET enable_external_file_cache = false")
    con.execute(f"SET force_download = {asked['whole']}")
begun = time.perf_counter()
rows = len(con.execute(asked["sql"]).fetchall())
print(json.dumps([time.perf_counter() - begun, rows]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one question took, as the server counted it."""

    requests: int
    bytes: int
    seconds: float
    rows: int


def names(ending: str, count: int, draw: random.Random) -> list[str]:
    """SURT keys of hosts below one ending, sorted."""
    parts = [a + b + c for a in "bcdfgklmnprstvz" for b in "aeiou" for c in ("", "n", "r", "s", "t")]
    found: set[str] = set()
    while len(found) < count:
        domain = f"{ending},{''.join(draw.choices(parts, k=draw.randrange(2, 6)))}"
        found.add(domain)
        found.update(
            f"{domain},{label}" for label in draw.sample(("blog", "cdn", "m", "news", "shop"), draw.randrange(3))
        )
    return sorted(found)[:count]


def table(keys: Sequence[str], seed: int) -> pa.Table:
    """Rows of the host index: small counts, scores, and the rest of the published columns."""
    draw = np.random.default_rng(seed)
    count = len(keys)
    split = [key.split(",") for key in keys]
    depth = [3 if labels[0] == "uk" else 2 for labels in split]
    columns: dict[str, pa.Array] = {DATASET.key: pa.array(keys)}
    assert DATASET.columns is not None
    for name, kind in DATASET.columns.items():
        if name == "url_host_tld":
            columns[name] = pa.array([labels[0] for labels in split])
        elif name == "url_host_registered_domain":
            columns[name] = pa.array([".".join(reversed(s[:d])) for s, d in zip(split, depth, strict=True)])
        elif kind == pa.float64():
            columns[name] = pa.array(np.round(draw.lognormal(0, 2, count), 6))
        elif name.startswith("warc_record_length"):
            columns[name] = pa.array(draw.integers(500, 200_000, count).astype(np.int64))
        else:
            columns[name] = pa.array(
                (draw.pareto(1.0, count) * draw.integers(0, 2, count)).astype(np.int64) % 1_000_000
            )
    return pa.table(columns)


def write_index(root: Path, shards: int, rows: int, *, is_sorted: bool) -> tuple[list[str], list[str]]:
    """A host index of ``shards`` files of ``rows``, half of them of ``.com``; its keys, and domains to ask for: of
    ``.com`` and others in turn."""
    draw = random.Random(20120601)
    half = shards // 2
    com = names("com", half * rows, draw)
    other = sorted(key for ending in OTHERS for key in names(ending, -(-(shards - half) * rows // len(OTHERS)), draw))
    asked = [
        ".".join(reversed(key.split(",")))
        for pair in zip(draw.sample(com, 40), draw.sample(other, 40), strict=True)
        for key in pair
        if key.count(",") == (2 if key.startswith("uk") else 1)
    ]
    if not is_sorted:
        com, other = com + other[::STRAYS], [key for place, key in enumerate(other) if place % STRAYS]
        draw.shuffle(com)
    paths = []
    for number in range(shards):
        mine = com if number < half else other
        place, parts = (number, half) if number < half else (number - half, shards - half)
        keys = mine[len(mine) * place // parts : len(mine) * (place + 1) // parts]
        paths.append(f"projects/host-index-testing/v2/crawl={CRAWL}/part-{number:05d}-c000.zstd.parquet")
        path = root / paths[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table(keys, number),
            path,
            row_group_size=ROW_GROUP_ROWS,
            max_rows_per_page=PAGE_ROWS,
            compression="zstd",
            write_page_index=True,
            store_schema=False,
        )
    (root / HOST_INDEX_LIST).write_bytes(gzip_member("".join(f"{path}\n" for path in paths).encode()))
    return paths, asked


def ask_ours(server: FaultServerProcess, home: Path, domains: Sequence[str]) -> list[Cost]:
    """Each domain in turn, by one process that keeps what it read in ``home``."""
    found = []
    with open_workspace(
        load_settings({}, source=server.url, home=str(home), rate=1000.0, max_bytes=10**10)
    ) as workspace:
        for domain in domains:
            before = len(server.hits())
            begun = time.perf_counter()
            facts = facts_of_hosts(workspace, CRAWL, parse_target(domain), [DATASET])
            seconds = time.perf_counter() - begun
            found.append(_cost(server, before, seconds, facts.table.num_rows))
    return found


def ask_duckdb(
    server: FaultServerProcess, root: Path, paths: Sequence[str], domain: str, *, whole: bool, extension: Path | None
) -> Cost:
    """The same by DuckDB: bytes that the server gave, or, without httpfs, the sizes of the files."""
    ranges = [
        f"({DATASET.key} >= '{each.start.decode()}'"
        + (f" AND {DATASET.key} < '{each.end.decode()}')" if each.end else ")")
        for each in HostRanges(parse_target(domain)).surt
        if b"\0" not in each.start + (each.end or b"")
    ]
    same = f"{DATASET.key} = '{','.join(reversed(domain.split('.')))}'"
    where = " OR ".join([same, *ranges])
    files = [server.url + path if extension else str(root / path) for path in paths]
    assert DATASET.columns is not None
    sql = (
        f"SELECT {', '.join([DATASET.key, *DATASET.columns])} FROM read_parquet({files!r}, hive_partitioning = false) "
        f"WHERE {where}"
    )
    before = len(server.hits())
    environment = {**os.environ, "PYTHONPATH": str(Path(sys.prefix) / "httpfs")} if extension else dict(os.environ)
    said = subprocess.run(
        [sys.executable, "-c", RIVAL],
        input=json.dumps({"sql": sql, "httpfs": str(extension) if extension else "", "whole": str(whole).lower()}),
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    seconds, rows = json.loads(said.stdout)
    if extension:
        return _cost(server, before, seconds, rows)
    return Cost(0, sum((root / path).stat().st_size for path in paths), seconds, rows)


def _cost(server: FaultServerProcess, before: int, seconds: float, rows: int) -> Cost:
    hits = server.hits()[before:]
    return Cost(len(hits), sum(hit.body_bytes for hit in hits if hit.method == "GET"), seconds, rows)


def measure(
    report: Report, folder: Path, given: argparse.Namespace, *, is_sorted: bool, extension: Path | None
) -> None:
    """All figures of one layout."""
    layout = "sorted" if is_sorted else "as_published"
    root = folder / layout / "bucket"
    paths, asked = write_index(root, given.shards, given.rows, is_sorted=is_sorted)
    kinds = {"": asked} if is_sorted else {"_com": [d for d in asked if d.endswith(".com")]}
    if not is_sorted:
        kinds["_other"] = [d for d in asked if not d.endswith(".com")]
    with FaultServerProcess(root, log=folder / layout / "log") as server:
        for kind, every in kinds.items():
            domains = every[: given.domains]
            fresh = [ask_ours(server, folder / layout / f"home{kind}{n}", [d])[0] for n, d in enumerate(domains[:3])]
            home = folder / layout / f"home{kind}0"
            cold = ask_ours(server, home, domains)[1:]
            kept = ask_ours(server, home, domains)
            whole = [
                ask_duckdb(server, root, paths, d, whole=True, extension=extension) for d in domains[: given.rivals]
            ]
            ranged = [
                ask_duckdb(server, root, paths, d, whole=False, extension=extension) for d in domains[: given.rivals]
            ]
            assert (
                [one.rows for one in kept[: given.rivals]]
                == [one.rows for one in whole]
                == [one.rows for one in ranged]
            )
            assert not any(one.requests for one in kept)
            name = f"{layout}{kind}"
            goal = GOAL_BYTES if is_sorted else None
            note = "DuckDB downloads the files whole" if extension else "no httpfs here: the files' sizes"
            _figures(report, f"{name}_fresh_home", fresh, whole, goal, note)
            _figures(report, f"{name}_cold", cold, whole, goal, note)
            if extension:
                _figures(report, f"{name}_cold_beside_ranges", cold, ranged, None, "DuckDB reads ranges")
            milliseconds = [one.seconds * 1000 for one in kept]
            report.figure(
                f"{name}_from_cache",
                ours=median(milliseconds),
                goal=GOAL_CACHED_MS,
                higher_is_better=False,
                unit="ms",
                note=spread(milliseconds),
            )


def _figures(
    report: Report, name: str, ours: Sequence[Cost], rival: Sequence[Cost], goal: float | None, note: str
) -> None:
    for what, unit in (("bytes", "B"), ("requests", ""), ("seconds", "s")):
        values = [float(getattr(one, what)) for one in ours]
        report.figure(
            f"{name}_{what}",
            ours=median(values),
            rival=median(float(getattr(one, what)) for one in rival),
            goal=goal if what == "bytes" else None,
            higher_is_better=False,
            unit=unit,
            note=f"{note}; {spread(values)}",
        )


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/facts.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=sized(2, 8))
    parser.add_argument("--rows", type=int, default=sized(2_000, 300_000))
    parser.add_argument("--domains", type=int, default=sized(2, 10))
    parser.add_argument(
        "--rivals", type=int, default=sized(1, 2), help="Domains that DuckDB is asked about, each in each way."
    )
    given = parser.parse_args()
    beside = Path(sys.prefix) / "httpfs"
    extension = next(beside.glob("duckdb_extension_httpfs/extensions/*/httpfs.duckdb_extension"), None)
    report = Report(
        "facts",
        {**vars(given), "row_group_rows": ROW_GROUP_ROWS, "page_rows": PAGE_ROWS, "httpfs": extension is not None},
    )
    with tempfile.TemporaryDirectory() as folder:
        for is_sorted in (True, False):
            measure(report, Path(folder), given, is_sorted=is_sorted, extension=extension)
    report.write()


if __name__ == "__main__":
    main()
