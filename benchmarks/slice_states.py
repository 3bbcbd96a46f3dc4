"""Figures for decision 0018: one appended row of a Delta table ``slices`` commits a slice.

    python -m benchmarks.slice_states [swap | s3 | compactions | texts | states | replaced] ...

A prototype beside the product: it has the commit rules of that page in their shortest form, and no more.
"""

from __future__ import annotations

import asyncio
import heapq
import multiprocessing as mp
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

SHORT = os.environ.get("SHORT") == "1"
#: A refused commit is compared again by us, never rebased by the library.
COMPARED = CommitProperties(max_commit_retries=0)
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
TABLE_STATE = pa.struct([("generation", pa.int64()), ("rows", pa.int64()), ("content", pa.string())])
SLICES = pa.schema(
    [
        ("crawl", pa.string()),
        ("target", pa.string()),
        ("subset", pa.string()),
        ("stage", pa.string()),
        ("seq", pa.int64()),
        ("epoch", pa.int64()),
        ("planned_from", pa.int64()),
        ("input", pa.map_(pa.string(), pa.string())),
        ("tables", pa.map_(pa.string(), TABLE_STATE)),
        ("note", pa.string()),
        ("committed_at", pa.timestamp("us", "UTC")),
        ("run_id", pa.string()),
    ]
)
Row = dict[str, object]
Options = Mapping[str, str] | None


def slice_row(target: str, stage: str, seq: int, crawl: str = "CC-MAIN-2024-22", **values: object) -> Row:
    generation = random.getrandbits(63)
    row: Row = {
        "crawl": crawl, "target": target, "subset": "warc", "stage": stage, "seq": seq, "epoch": 1, "planned_from": 0,
        "input": {"definition": "af56" * 4, "index": "parquet", "content": "6b30" * 8},
        "tables": {stage: {"generation": generation, "rows": 44, "content": "3c5f" * 8}},
        "note": '{"located_by":"parquet"}', "committed_at": datetime.now(UTC), "run_id": uuid4().hex,
    }  # fmt: skip
    return row | values


def create(root: str, schema: pa.Schema, options: Options = None) -> None:
    DeltaTable.create(root, schema, storage_options=dict(options or {}))


def store_file(root: str, rows: pa.Table, options: Options, name: str | None = None) -> AddAction:
    """Writes one Parquet file below ``root``, which no commit names yet."""
    name = name or f"part-{uuid4()}.parquet"
    if "://" in root:
        s3 = filesystem_of(options)
        path = f"{root.removeprefix('s3://')}/{name}"
        pq.write_table(rows, path, filesystem=s3, compression="zstd")
        size = s3.get_file_info(path).size
    else:
        pq.write_table(rows, f"{root}/{name}", compression="zstd")
        with open(f"{root}/{name}", "rb") as file:
            os.fsync(file.fileno())
        size = os.path.getsize(f"{root}/{name}")
    return AddAction(name, size, {}, int(time.time() * 1000), True, f'{{"numRecords":{rows.num_rows}}}')


def filesystem_of(options: Options) -> pa.fs.FileSystem:
    if options is None:
        return fs.LocalFileSystem()
    return fs.S3FileSystem(
        access_key=options["AWS_ACCESS_KEY_ID"], secret_key=options["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=os.environ["DATA_ENDPOINT"].removeprefix("http://"), scheme="http", region="us-east-1",
    )  # fmt: skip


def dataset_of(handle: DeltaTable, options: Options = None) -> ds.Dataset:
    schema = pa.schema(handle.schema().to_arrow())
    paths = [uri.removeprefix("s3://").removeprefix("file://") for uri in handle.file_uris()]
    return ds.dataset(paths, schema=schema, format="parquet", filesystem=filesystem_of(options))


def current_rows(handle: DeltaTable, options: Options, targets: Sequence[str]) -> dict[tuple[str, str], Row]:
    """The row with the highest seq of each slice and stage."""
    rows = dataset_of(handle, options).to_table(filter=ds.field("target").isin(list(targets)))
    current: dict[tuple[str, str], Row] = {}
    for row in rows.to_pylist():
        key = (row["target"], row["stage"])
        if key not in current or row["seq"] > current[key]["seq"]:
            current[key] = row
    return current


def swap(
    root: str,
    options: Options,
    target: str,
    stage: str,
    make: Callable[[dict[tuple[str, str], Row]], Row],
) -> tuple[int, bool]:
    """Commits one row by compare-and-swap. Returns the refusals, and whether a lost answer was met.

    The row is written once. A refused commit opens the table again; if the slice's current row is ours, it was
    committed; if it is no longer the one planned from, the caller plans again.
    """
    refusals = 0
    while True:
        handle = DeltaTable(root, storage_options=dict(options or {}))
        state = current_rows(handle, options, [target])
        row = make(state)
        file = store_file(root, pa.Table.from_pylist([row], SLICES), options)
        while True:
            try:
                handle.create_write_transaction([file], "append", SLICES, commit_properties=COMPARED,
                                                post_commithook_properties=NO_HOOKS)  # fmt: skip
                return refusals, False
            except (CommitFailedError, DeltaError, OSError):
                refusals += 1
                handle = DeltaTable(root, storage_options=dict(options or {}))
                now = current_rows(handle, options, [target])
                if now.get((target, stage), {}).get("run_id") == row["run_id"]:
                    return refusals, True
                if now != state:
                    break


def _write(root: str, options: Options, seed: int, commits: int, answers: mp.Queue[tuple[int, int]]) -> None:
    choices = random.Random(seed)
    total = lost = 0
    for _ in range(commits):
        target, stage = choices.choice("abc"), choices.choice(("located", "fetched"))

        def make(state: dict[tuple[str, str], Row], target: str = target, stage: str = stage) -> Row:
            before = state.get((target, stage))
            tables = (before or {"tables": [(stage, {"generation": 0})]})["tables"]
            planned_from = dict(tables)[stage]["generation"]
            return slice_row(target, stage, (before or {"seq": 0})["seq"] + 1, planned_from=planned_from)

        refused, was_lost = swap(root, options, target, stage, make)
        total, lost = total + refused, lost + was_lost
    answers.put((total, lost))


def check_chains(root: str, options: Options, expected: int) -> str:
    """Each slice's rows must be a chain without a fork: seq 1 to n, each made from the one before."""
    handle = DeltaTable(root, storage_options=dict(options or {}))
    rows = dataset_of(handle, options).to_table().to_pylist()
    chains: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        chain = chains.setdefault((row["target"], row["stage"]), {})
        if row["seq"] in chain:
            return f"WRONG: two rows {row['seq']} of {row['target']} {row['stage']}"
        chain[row["seq"]] = row
    for key, chain in chains.items():
        for seq in range(2, len(chain) + 1):
            if chain[seq]["planned_from"] != dict(chain[seq - 1]["tables"])[key[1]]["generation"]:
                return f"WRONG: row {seq} of {key} was not made from the one before"
    return "no update lost" if len(rows) == expected else f"WRONG: {len(rows)} rows of {expected}"


def run_writers(root: str, options: Options, writers: int, commits: int) -> str:
    create(root, SLICES, options)
    answers: mp.Queue[tuple[int, int]] = mp.Queue()
    start = time.perf_counter()
    processes = [mp.Process(target=_write, args=(root, options, seed, commits, answers)) for seed in range(writers)]
    for process in processes:
        process.start()
    given = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    seconds = time.perf_counter() - start
    verdict = check_chains(root, options, writers * commits)
    return (
        f"{writers} writers, {writers * commits} commits of 6 stages: {seconds:.1f} s, "
        f"{sum(refused for refused, _ in given)} refused, {sum(lost for _, lost in given)} lost answers; {verdict}"
    )


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="slice-states-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_swap() -> None:
    with scratch() as folder:
        print("swap, folder:", run_writers(str(folder / "slices"), None, 4, 5 if SHORT else 25))


def measure_s3() -> None:
    """The same on SeaweedFS, and through a proxy that cuts every fifth answer to a log entry that was stored."""
    from cc_pipeline_tests.weedserver import CREDENTIALS, weed_server

    with scratch() as folder, weed_server(folder, "lake") as server:
        options = CREDENTIALS | {
            "AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            "conditional_put": "etag",
        }  # fmt: skip
        os.environ["DATA_ENDPOINT"] = server.endpoint  # only the log goes through the proxy
        print("swap, S3:", run_writers("s3://lake/slices", options, 4, 3 if SHORT else 15))
        with proxy(server.endpoint) as endpoint:
            told = run_writers("s3://lake/lossy", options | {"AWS_ENDPOINT_URL": endpoint}, 4, 3 if SHORT else 15)
        print("swap, S3 with lost answers:", told)


@contextmanager
def proxy(target: str) -> Iterator[str]:
    """Passes requests on; the answer of every fifth stored log entry is cut."""
    from cc_pipeline_tests.ports import free_ports

    port = free_ports(1)[0]
    process = mp.Process(target=_serve, args=(target, port), daemon=True)
    process.start()
    time.sleep(2)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.join()


def _serve(target: str, port: int) -> None:
    import aiohttp
    from aiohttp import web

    stored = 0

    async def pass_on(request: web.Request) -> web.StreamResponse:
        nonlocal stored
        body = await request.read()
        async with session.request(
            request.method, target + request.raw_path, headers=request.headers, data=body, skip_auto_headers=["Host"]
        ) as answer:
            content = await answer.read()
            if request.method == "PUT" and "_delta_log" in request.raw_path and answer.status == 200:
                stored += 1
                if stored % 5 == 0:
                    assert request.transport is not None
                    request.transport.abort()
            skipped = ("Transfer-Encoding", "Content-Encoding", "Content-Length")
            headers = {name: value for name, value in answer.headers.items() if name not in skipped}
            if request.method == "HEAD" and "Content-Length" in answer.headers:
                headers["Content-Length"] = answer.headers["Content-Length"]
            return web.Response(status=answer.status, body=content or None, headers=headers)

    async def main() -> None:
        nonlocal session
        session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    session: aiohttp.ClientSession
    asyncio.run(main())


def measure_compactions() -> None:
    """Two compactions of the same files, with and without the library's retries; and one beside an append."""
    rows = pa.schema([("target", pa.string()), ("generation", pa.int64())])
    for name, properties in (("no retries", COMPARED), ("the library's retries", None)):
        for data_change in (False, True):
            with scratch() as folder:
                root = str(folder / "t")
                create(root, rows)
                for number in range(8):
                    commit(
                        root, [store_file(root, pa.table({"target": ["a"], "generation": [number]}, rows), None)], rows
                    )
                handles = [DeltaTable(root), DeltaTable(root)]
                merged = [compaction_of(root, handle, rows, data_change) for handle in handles]
                outcomes = []
                for handle, actions in zip(handles, merged, strict=True):
                    try:
                        handle.create_write_transaction(actions, "append", rows, commit_properties=properties)
                        outcomes.append("committed")
                    except (CommitFailedError, DeltaError) as error:
                        outcomes.append(type(error).__name__)
                count = dataset_of(DeltaTable(root)).count_rows()
                print(f"two compactions, {name}, data_change={data_change}: {outcomes}, {count} rows of 8")
    with scratch() as folder:
        root = str(folder / "t")
        create(root, rows)
        for number in range(8):
            commit(root, [store_file(root, pa.table({"target": ["a"], "generation": [number]}, rows), None)], rows)
        old = DeltaTable(root)
        actions = compaction_of(root, old, rows, False)
        commit(root, [store_file(root, pa.table({"target": ["b"], "generation": [9]}, rows), None)], rows)
        try:
            old.create_write_transaction(actions, "append", rows, commit_properties=COMPARED)
            first = "committed"
        except (CommitFailedError, DeltaError) as error:
            first = type(error).__name__
        now = DeltaTable(root)
        live = {Path(uri).name for uri in now.file_uris()}
        all_live = all(action.path in live for action in actions if isinstance(action, RemoveAction))
        if all_live:
            now.create_write_transaction(actions, "append", rows, commit_properties=COMPARED)
        count = dataset_of(DeltaTable(root)).count_rows()
        print(f"a compaction beside an append: {first}, then the same files again: {count} rows of 9")


def commit(root: str, actions: Sequence[AddAction | RemoveAction], schema: pa.Schema) -> None:
    DeltaTable(root).create_write_transaction(list(actions), "append", schema, post_commithook_properties=NO_HOOKS)


def compaction_of(
    root: str, handle: DeltaTable, schema: pa.Schema, data_change: bool
) -> list[AddAction | RemoveAction]:
    merged = dataset_of(handle).to_table()
    file = store_file(root, merged, None)
    added = AddAction(file.path, file.size, {}, file.modification_time, data_change, file.stats)
    removed = [
        RemoveAction(Path(uri).name, data_change, int(time.time() * 1000))
        for uri in handle.file_uris()
    ]  # fmt: skip
    return [added, *removed]


TEXTS = pa.schema([("target", pa.string()), ("url", pa.string()), ("text", pa.string()), ("generation", pa.int64())])


def write_texts(paths: Sequence[str], pages: int) -> None:
    words = [uuid4().hex for _ in range(5_000)]
    choices = random.Random(7)
    for path in paths:
        rows = [
            {"target": f"site{choices.randrange(50):03}.org", "url": f"https://x/{page}",
             "text": " ".join(choices.choices(words, k=choices.choice((200, 1_000, 4_000)))),
             "generation": choices.randrange(10)}
            for page in range(pages)
        ]  # fmt: skip
        rows.sort(key=lambda row: (row["target"], row["generation"], row["url"]))
        pq.write_table(
            pa.Table.from_pylist(rows, TEXTS), path, compression="zstd", row_group_size=512, write_batch_size=16
        )


def measure_texts() -> None:
    """Compaction of wide texts, of which three tenths are dead: sorted by DuckDB in 400 MB, and merged run by run."""
    pages = 2_000 if SHORT else 40_000
    with scratch() as folder:
        paths = [str(folder / f"{number}.parquet") for number in range(20)]
        in_child(lambda: write_texts(paths, pages // 20))
        stored = sum(os.path.getsize(path) for path in paths)

        def sort() -> None:
            with duckdb.connect() as connection:
                connection.execute(
                    f"SET temp_directory = '{folder}/spill'; SET memory_limit = '400MB'; SET threads = 2"
                )
                connection.execute("CREATE TABLE published AS SELECT range AS generation FROM range(7)")
                connection.execute(
                    f"COPY (SELECT * FROM read_parquet({paths}) SEMI JOIN published USING (generation) "
                    f"ORDER BY target, url) TO '{folder}/sorted.parquet' (COMPRESSION zstd, ROW_GROUP_SIZE 2048)"
                )

        def merge() -> None:
            merge_runs(paths, frozenset(range(7)), TEXTS, folder / "merged.parquet")

        print("compaction by DuckDB's sort in 400 MB: " + told(in_child(sort)))
        seconds, peak = in_child(merge)
        live = pq.ParquetFile(folder / "merged.parquet").metadata.num_rows
        print(
            f"compaction of {stored / 1e6:.0f} MB of stored texts in 20 files, merged run by run: "
            f"{seconds:.1f} s, peak {peak:.0f} MB, {live:,} of {pages:,} rows live"
        )


def merge_runs(paths: Sequence[str], live: frozenset[int], schema: pa.Schema, out: Path) -> None:
    """Merges sorted files without sorting: the rows of a generation lie side by side in one file."""
    runs = heapq.merge(*(live_runs(path, live) for path in paths), key=lambda run: run[0])
    with pq.ParquetWriter(out, schema, compression="zstd", write_batch_size=16) as writer:
        waiting: list[pa.RecordBatch] = []
        for _, rows in runs:
            waiting.append(rows)
            if sum(batch.nbytes for batch in waiting) > 16 << 20:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))


def live_runs(path: str, live: frozenset[int]) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """The rows of a file, cut where the target or the generation changes; those of dead generations are left out."""
    for batch in pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False).iter_batches(
        batch_size=16, use_threads=False
    ):
        keys = list(zip(batch.column("target").to_pylist(), batch.column("generation").to_pylist(), strict=True))
        first = 0
        for key, group in groupby(keys):
            count = sum(1 for _ in group)
            if key[1] in live:
                yield key, batch.slice(first, count)
            first += count


def in_child(work: Callable[[], object]) -> tuple[float, float]:
    """Wall seconds, and the peak of memory in MB, of work in a process of its own."""
    reader, writer = os.pipe()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            work()
            os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 64)
    os.waitpid(child, 0)
    os.close(reader)
    return time.perf_counter() - start, float(told or 0) / 1024


def _write_states(folder: Path, slices: int, history: int) -> list[str]:
    """``slices`` x three stages x ``history`` rows of ``slices``, in sorted files as merges leave them."""
    paths = []
    per_file = 1_000_000
    total = slices * 3 * history
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '4GB'; SET threads = 2")
        for number, first in enumerate(range(0, total, per_file)):
            path = folder / f"states-{number}.parquet"
            connection.execute(
                f"""COPY (SELECT printf('CC-MAIN-2024-%02d', slice % 128) AS crawl, printf('site%07d.org', slice // 128)
                    AS target, 'warc' AS subset, ['fetched', 'located', 'parsed'][stage + 1] AS stage, seq, 1 AS epoch,
                    MAP {{'definition': md5((slice // 128)::VARCHAR), 'index': 'parquet',
                          'content': md5(((slice * 3 + stage) * 64 + seq)::VARCHAR)}} AS input,
                    MAP {{'captures': {{'generation': (hash((slice * 3 + stage) * 64 + seq) >> 1)::BIGINT,
                          'rows': 44::BIGINT, 'content': md5(((slice * 3 + stage) * 64 + seq)::VARCHAR)}}}} AS tables,
                    '{{"located_by":"parquet"}}' AS note, now()::TIMESTAMPTZ AS committed_at,
                    md5((slice % 1000)::VARCHAR) AS run_id
                  FROM (SELECT range // {3 * history} AS slice, (range // {history}) % 3 AS stage,
                               range % {history} + 1 AS seq
                        FROM range({first}, {min(first + per_file, total)}))
                  ) TO '{path}' (COMPRESSION zstd, ROW_GROUP_SIZE 16384)"""
            )
            paths.append(str(path))
    return paths


def measure_states() -> None:
    """Reads of ten million rows of ``slices``: of one slice, of one target, of all; and with 100 small files beside."""
    slices, history = (3_000, 11) if SHORT else (300_000, 11)
    with scratch() as folder:
        paths = _write_states(folder, slices, history)
        small = []
        for number in range(100):
            rows = [slice_row(f"site{number:07}.org", stage, history + 1) for stage in ("located", "fetched", "parsed")]
            path = folder / f"small-{number}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, SLICES), path, compression="zstd")
            small.append(str(path))
        size = sum(os.path.getsize(path) for path in paths)
        print(
            f"{slices * 3 * history:,} rows of slices in {len(paths)} files: {size / slices / 3 / history:.0f} B a row"
        )
        questions = {
            "one target of one crawl": "WHERE target = 'site0000042.org' AND crawl = 'CC-MAIN-2024-05'",
            "one target of all crawls": "WHERE target = 'site0000042.org'",
        }
        for name, condition in questions.items():
            for label, files in (("merged", paths), ("and 100 unmerged files", paths + small)):

                def ask(files: Sequence[str] = files, condition: str = condition) -> None:
                    _ask(
                        files,
                        f"""SELECT * FROM read_parquet($files, union_by_name := true) {condition}
                                    QUALIFY seq = max(seq) OVER (PARTITION BY crawl, target, subset, stage)""",
                    )

                print(f"state of {name}, {label}: " + told(in_child(ask)))

        def generations() -> None:
            _ask(
                paths + small,
                """SELECT crawl, target, subset, stage, arg_max(tables, seq) AS tables
                                   FROM read_parquet($files, union_by_name := true) WHERE epoch = 1 GROUP BY ALL""",
                f"'{folder}/current.parquet'",
            )

        print("current generations of all slices: " + told(in_child(generations)))
        by_file = {
            "merged, file after file": paths,
        }
        for name, files in by_file.items():

            def stream(files: Sequence[str] = files) -> None:
                for file in files:  # a sorted run keeps a slice's rows together: a file after the other is enough
                    _ask(
                        [file],
                        """SELECT crawl, target, subset, stage, arg_max(tables, seq) FROM read_parquet($files)
                                    GROUP BY ALL""",
                        f"'{folder}/one.parquet'",
                    )

            print(f"current generations, {name}: " + told(in_child(stream)))


def _ask(files: Sequence[str], query: str, out: str | None = None) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET memory_limit = '2GB'; SET enable_progress_bar = false")
        query = query.replace("$files", str(list(files)))
        if out is None:
            connection.execute(query).fetchall()
        else:
            connection.execute(f"COPY ({query}) TO {out} (FORMAT parquet, COMPRESSION zstd)")


def told(measured: tuple[float, float]) -> str:
    seconds, peak = measured
    return f"{seconds * 1000:.0f} ms, peak {peak:.0f} MB"


def measure_replaced() -> None:
    """A slice of 200,000 rows that is replaced: its rows are appended under a new generation, and one row commits."""
    rows = 2_000 if SHORT else 200_000
    with scratch() as folder:
        root, states = str(folder / "captures"), str(folder / "slices")
        table = pa.table(
            {
                "target": ["example.com"] * rows,
                "url": [f"https://example.com/{number % 977}/{number}" for number in range(rows)],
                "urlkey": [f"com,example)/{number:09}" for number in range(rows)],
                "digest": [uuid4().hex for _ in range(rows)],
                "offset": list(range(rows)),
                "generation": [7] * rows,
            }
        )
        create(root, table.schema)
        create(states, SLICES)
        for attempt in range(3):
            start = time.perf_counter()
            shuffled = table.sort_by([("urlkey", "ascending")])
            commit(root, [store_file(root, shuffled, None)], table.schema)
            swap(
                states,
                None,
                "example.com",
                "located",
                lambda state: slice_row("example.com", "located", len(state) + 1),
            )
            print(
                f"a slice of {rows:,} rows appended and committed, attempt {attempt + 1}: "
                f"{time.perf_counter() - start:.2f} s"
            )


MEASURES = {
    "swap": measure_swap,
    "s3": measure_s3,
    "compactions": measure_compactions,
    "texts": measure_texts,
    "states": measure_states,
    "replaced": measure_replaced,
}


if __name__ == "__main__":
    mp.set_start_method("spawn")  # deltalake's runtime does not survive a fork
    for asked in sys.argv[1:] or MEASURES:
        MEASURES[asked]()
