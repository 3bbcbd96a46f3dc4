"""What handing on costs: rows a second and memory to Parquet and JSON lines, and near copies among texts.

    python -m benchmarks.bench_export           100,000 pages, 100,000 texts: a few minutes
    FULL=1 python -m benchmarks.bench_export    1,000,000 pages

Goals: half of the rival's rows a second at least, since ours makes columns readable in bounded memory; a bound
of memory; and nine of ten planted near copies found, where sketches take no longer than rensa's.

Pages are those of a mini crawl, again and again, each with words of its own. The rival of an export is DuckDB's own
``COPY`` of the same view, without bounds or columns made readable; the rival of near copies is rensa, where it is
installed (``pip install rensa``). Each measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from deltalake import WriterProperties, write_deltalake

from benchmarks.report import Report, sized
from cc_pipeline.delivery import table_files
from cc_pipeline.delivery.files import scratch_beside, whole_file
from cc_pipeline.delivery.near_duplicates import near_duplicates
from cc_pipeline.documents.signals.quality import fingerprint
from cc_pipeline.lake.layout import FILE_BYTES
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import DEMO
from cc_pipeline_tests.peak import own_peak

_TEXTS = sized(300, 100_000)
_THRESHOLD = 0.8
_BATCH = 2_048
#: What an export may need, however many rows it has.
_MOST_MB = {"parquet": 500, "jsonl": 500}


def build(folder: Path, pages: int) -> Path:
    """A published file that shows ``pages`` rows of ``page_text`` and their captures; the rows lie in Parquet files."""
    from cc_pipeline_tests.world import (  # what is measured does not load it
        extract,
        harvest,
        publish,
        workspace_of,
    )

    bucket, home = folder / "bucket", folder / "home"
    ensure(bucket, DEMO)
    workspace = workspace_of(bucket, home)
    harvest(workspace)
    extract(workspace, "example.com", "example.org")
    publish(workspace)
    workspace.close()
    rows, path = folder / "rows", folder / "cc.duckdb"
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        connection.execute("SET memory_limit = '1GB'; SET preserve_insertion_order = false")
        [(count,)] = connection.execute("SELECT count(*) FROM page_text WHERE main_content IS NOT NULL").fetchall()
        times = -(-pages // count)
        # two kilobytes that no other page has, or files would be a thousandth of real ones
        own = "list_aggregate(list_transform(range(60), lambda i: md5((n * 60 + i)::VARCHAR)), 'string_agg', ' ')"
        pages_of = connection.sql(
            "SELECT * REPLACE (url || '?n=' || n AS url, warc_record_offset + n AS warc_record_offset, "
            f"main_content || {own} AS main_content, text || {own} AS text) "
            f"FROM page_text, range({times}) AS numbers(n) WHERE main_content IS NOT NULL LIMIT {pages}"
        )
        # as the lake writes them: DuckDB makes pages of 100 MB, which no reader holds in less
        batches = pages_of.to_arrow_reader(_BATCH)
        write_deltalake(
            rows, batches, writer_properties=WriterProperties(compression="ZSTD"), target_file_size=FILE_BYTES
        )
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW page_text AS FROM read_parquet('{rows}/*.parquet')")
        connection.execute(
            "CREATE VIEW capture_targets AS SELECT crawl, warc_filename, warc_record_offset, 'example.com' AS target "
            "FROM page_text"
        )
    return path


def ours(published: Path, format: str, out: Path) -> dict[str, Any]:
    """Hands the table on as ``cc-pipeline export`` does; rows and peak."""
    with duckdb.connect(str(published), read_only=True) as connection, scratch_beside(out) as scratch:
        table_files.bound_memory(connection, scratch)
        [selection] = table_files.select_tables(connection, ["page_text"], [], [])
        with whole_file(out) as path:
            return {"rows": table_files.write_table(connection, selection, format, path).rows}


def rival(published: Path, format: str, out: Path) -> dict[str, Any]:
    """DuckDB's own ``COPY`` of the same view."""
    kind = {"parquet": "FORMAT parquet, COMPRESSION zstd", "jsonl": "FORMAT json"}[format]
    with duckdb.connect(str(published), read_only=True) as connection:
        [(rows,)] = connection.execute(f"COPY page_text TO '{out}' ({kind})").fetchall()
    return {"rows": rows}


def texts(count: int) -> tuple[list[str], list[tuple[int, int]]]:
    """``count`` texts of 80 to 400 words, and (copy, original) of those that have 0.8 and more runs in common."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(30_000)]
    pool = rng.choices(words, [1 / (place + 10) for place in range(len(words))], k=2_000_000)
    found: list[list[str]] = []
    copies: list[tuple[int, int]] = []
    for number in range(count):
        if number < count * 4 // 5:
            length = rng.randint(80, 400)
            start = rng.randrange(len(pool) - length)
            text = pool[start : start + length]
            rng.shuffle(text)
        else:
            source = rng.randrange(count * 4 // 5)
            text = list(found[source])
            share = rng.choice([0.003, 0.01, 0.02])
            text = [rng.choice(words) if rng.random() < share else word for word in text]
            one, other = _runs(text), _runs(found[source])
            if len(one & other) >= _THRESHOLD * len(one | other):
                copies.append((number, source))
        found.append(text)
    return [" ".join(text) for text in found], copies


def near_ours(count: int, folder: Path) -> dict[str, Any]:
    """Sketches (both fingerprints) and near copies as ``cc-pipeline dataset`` finds them."""
    given, copies = texts(count)
    started = time.process_time()
    sketches = np.array([fingerprint(text).content_minhash for text in given], np.int64).astype(np.uint32)
    sketched = time.process_time()
    dropped = set(near_duplicates([sketches], _THRESHOLD, folder)[:, 0].tolist())
    return _near(copies, dropped, sketched - started, time.process_time() - sketched)


def near_rival(count: int) -> dict[str, Any]:
    """The same with rensa: as many functions, bands, and the same order."""
    import rensa  # optional

    given, copies = texts(count)
    started = time.process_time()
    sketches = []
    for text in given:
        words = text.split()
        sketch = rensa.RMinHash(num_perm=64, seed=42)
        sketch.update([" ".join(words[at : at + 5]) for at in range(len(words) - 4)])
        sketches.append(sketch)
    sketched = time.process_time()
    index = rensa.RMinHashLSH(threshold=_THRESHOLD, num_perm=64, num_bands=16)
    dropped: set[int] = set()
    for number, sketch in enumerate(sketches):
        if any(sketches[other].jaccard(sketch) >= _THRESHOLD for other in index.query(sketch)):
            dropped.add(number)
        else:
            index.insert(number, sketch)
    return _near(copies, dropped, sketched - started, time.process_time() - sketched)


def _near(copies: list[tuple[int, int]], dropped: set[int], sketch: float, find: float) -> dict[str, Any]:
    recall = sum(copy in dropped for copy, _ in copies) / len(copies)
    return {"sketch": sketch, "find": find, "recall": recall, "dropped": len(dropped)}


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


def _apart(*arguments: object) -> dict[str, Any]:
    """Runs one measurement in a process of its own; what it says, its seconds and its peak in MB."""
    command = [sys.executable, "-m", "benchmarks.bench_export", *map(str, arguments)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _one(arguments: list[str]) -> None:
    started, used = time.monotonic(), time.process_time()
    match arguments:
        case ["ours", published, format, out]:
            told = ours(Path(published), format, Path(out))
        case ["rival", published, format, out]:
            told = rival(Path(published), format, Path(out))
        case ["near_ours", count, folder]:
            told = near_ours(int(count), Path(folder))
        case _:
            told = near_rival(int(arguments[1]))
    told |= {"seconds": time.monotonic() - started, "user": time.process_time() - used, "mb": own_peak() / 1024}
    print(json.dumps(told))


def main() -> None:
    """Both parts, as figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, default=sized(200, 100_000, 1_000_000))
    given = parser.parse_args()
    if given.one:
        _one(given.one)
        return
    report = Report("export")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        published = build(folder, given.pages)
        for format in ("parquet", "jsonl"):
            out = folder / f"out.{format}"
            mine = _apart("ours", published, format, out)
            size = out.stat().st_size / 1e6
            out.unlink()
            other = _apart("rival", published, format, out)
            out.unlink()
            assert mine["rows"] == other["rows"] == given.pages
            note = (
                f"{given.pages:,} pages, {size:,.0f} MB; processor time {mine['user']:.1f} s and {other['user']:.1f} s"
            )
            report.figure(
                f"export_{format}",
                ours=mine["rows"] / mine["seconds"],
                rival=other["rows"] / other["seconds"],
                goal=0.5,
                unit="rows/s",
                note=note,
            )
            report.figure(
                f"export_{format}_memory", mine["mb"], other["mb"], _MOST_MB[format], unit="MB", higher_is_better=False,
                goal_on="value",
            )  # fmt: skip
        near = _apart("near_ours", _TEXTS, folder)
        against = _apart("near_rival", _TEXTS) if find_spec("rensa") else None
        for part in ("sketch", "find"):
            report.figure(
                f"near_{part}",
                ours=near[part],
                rival=against[part] if against else None,
                goal=1 if against and part == "sketch" else None,
                unit="s",
                higher_is_better=False,
                note=f"{_TEXTS:,} texts" + ("; in a home the parser has made the sketches" if part == "sketch" else ""),
            )
        report.figure("near_recall", near["recall"], against["recall"] if against else None, 0.9, goal_on="value")
    report.write()


if __name__ == "__main__":
    main()
