"""The method of the user's document: three asynchronous requests a file, fastparquet, sqlitedict.

Runs in an environment of its own (aiohttp, fastparquet, sqlitedict). Reads addresses from standard input, one a
line, and prints a JSON object with the files read, the rows made of them, the failures and the seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import aiohttp
from fastparquet.cencoding import from_buffer
from sqlitedict import SqliteDict

BATCH = 1000
RETRIES = 3


async def footer_of(url: str, session: aiohttp.ClientSession) -> bytes:
    """HEAD for the length, the last 8 bytes for the footer's length, then the footer."""
    async with session.head(url) as response:
        length = int(response.headers["Content-Length"])
    async with session.get(url, headers={"Range": f"bytes={length - 8}-{length}"}) as response:
        end = await response.content.read()
    if end[-4:] != b"PAR1":
        raise ValueError(f"{url} does not look like a Parquet file: {end[-4:]!r}")
    size = int.from_bytes(end[:4], byteorder="little")
    async with session.get(url, headers={"Range": f"bytes={length - 8 - size}-{length - 8}"}) as response:
        return await response.content.read()


async def footers_of(urls: list[str]) -> list[bytes | BaseException]:
    """All footers of a batch, as many under way as the first argument says, exceptions among them."""
    connector = aiohttp.TCPConnector(limit=int(sys.argv[1]))
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:
        return await asyncio.gather(*[footer_of(url, session) for url in urls], return_exceptions=True)


def key_bounds(url: str, footer: bytes) -> list[dict[str, object]]:
    """One row for each row group, with the key's smallest and largest value."""
    metadata = from_buffer(footer, "FileMetaData")
    rows = []
    for number, group in enumerate(metadata.row_groups):
        row = {"path": url, "row_group": number, "num_rows": group.num_rows, "byte_size": group.total_byte_size}
        for column in group.columns:
            if column.meta_data.path_in_schema == ["url_surtkey"]:
                row["min"] = column.meta_data.statistics.min_value
                row["max"] = column.meta_data.statistics.max_value
        rows.append(row)
    return rows


def main() -> None:
    urls = sys.stdin.read().split()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteDict(str(Path(folder) / "metadata.sqlite"))
        retries: dict[str, int] = defaultdict(int)
        jobs = list(urls)
        started = time.perf_counter()
        while jobs:
            batch, jobs = jobs[:BATCH], jobs[BATCH:]
            for job, footer in zip(batch, asyncio.run(footers_of(batch)), strict=True):
                if isinstance(footer, BaseException):
                    retries[job] += 1
                    if retries[job] < RETRIES:
                        jobs.append(job)
                else:
                    store[job] = footer
            store.commit()
        fetched = time.perf_counter() - started
        rows = [row for url, footer in store.items() for row in key_bounds(url, footer)]
        seconds = time.perf_counter() - started
        found = {"files": len(store), "rows": len(rows), "fetch_seconds": fetched, "seconds": seconds}
        print(json.dumps(found | {"failed": len(urls) - len(store)}))
        store.close()


if __name__ == "__main__":
    main()
