"""Index files without a crawl behind them: one of real size, for lookups, and many with real footers, for harvests.

Rows are made by the million without a loop over them: all keys are under ``com,`` and sorted, as in one part of a real
index; text is built column by column with numpy and Arrow.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline.errors import UserInputError
from cc_pipeline.testing.mini_crawl import spec as seeded
from cc_pipeline.testing.mini_crawl.indexes import published_schema, writer_options
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec

CRAWL = "CC-MAIN-2024-22"
FOLDER = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc"
#: Rows made at a time.
_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class IndexFile:
    """What ``generate_index_file`` wrote. ``first_row`` is the number of the domain's first row in the file."""

    path: Path
    rows: int
    row_groups: int
    domain: str
    domain_rows: int
    first_row: int


def generate_index_file(
    path: Path,
    rows: int = 3_400_000,
    row_group_rows: int = 1_700_000,
    *,
    domain_name: str = "example",
    domain_rows: int = 850,
    domain_at: float = 0.6,
    crawl: str = "CC-MAIN-2024-22",
    columns: Sequence[str] | None = None,
    page_bytes: int = 1 << 20,
    page_rows: int = 20_000,
    compression_level: int = 6,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> IndexFile:
    """Writes one Parquet file as Common Crawl publishes it, sorted by ``url_surtkey``, all keys under ``com,``.

    The domain ``<domain_name>.com`` (lower-case letters from ``b`` on) has exactly ``domain_rows`` rows, in one
    stretch that starts at the share ``domain_at`` of the file, with ``<domain_name>-foo.com`` and
    ``<domain_name>x.com`` right behind it. ``columns`` keeps only some columns (default: all). ``page_bytes`` and
    ``page_rows`` bound a page before compression, as parquet-mr does. ``progress`` is told rows written and rows in
    all. Raises ``UserInputError`` for a domain that does not fit.
    """
    spec = CrawlSpec(crawl)
    hosts, first_row = _hosts_around(seed, domain_name, domain_rows, rows, domain_at)
    schema = _narrowed(published_schema(spec), columns)
    options = writer_options(spec, schema) | {
        "compression_level": compression_level,
        "data_page_size": page_bytes,
        "max_rows_per_page": page_rows,
        "write_batch_size": 1024,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    begins = range(0, rows, row_group_rows)
    with pq.ParquetWriter(path, schema, **options) as writer:
        for begin in begins:
            end = min(begin + row_group_rows, rows)
            chunks = [
                index_rows(_chunk_generator(seed, start), spec, hosts, start, min(start + _CHUNK, end)).select(
                    schema.names
                )
                for start in range(begin, end, _CHUNK)
            ]
            writer.write_table(pa.concat_tables(chunks), row_group_size=row_group_rows)
            if progress is not None:
                progress(end, rows)
    return IndexFile(path, rows, len(begins), f"{domain_name}.com", domain_rows, first_row)


def _chunk_generator(seed: int, start: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seeded.drawn_number(seed, "rows", start)))


def _narrowed(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise UserInputError(f"the columnar index has no column {unknown[0]!r}")
    return pa.schema([field for field in schema if field.name in set(columns)])


def _hosts_around(seed: int, name: str, domain_rows: int, rows: int, at: float) -> tuple[Hosts, int]:
    """Hosts before the domain, the domain's own, its look-alikes, and hosts behind; and the domain's first row."""
    fits = name.isascii() and name.isalpha() and name.islower() and "b" <= name[0] <= "y"
    if not fits or domain_rows < 1 or not 0 <= at <= 1:
        raise UserInputError(f"{name}.com with {domain_rows} rows at {at} does not fit the file")
    neighbours = [(f"{name}-foo", "", 20), (f"{name}x", "", 20)]
    others = rows - domain_rows - sum(size for _, _, size in neighbours)
    if others < 0:
        raise UserInputError(f"{domain_rows} rows of {name}.com do not fit {rows} rows")
    before = int(others * at)
    on_subdomain = domain_rows // 5
    own = [(name, "", domain_rows - on_subdomain), (name, "blog", on_subdomain)]
    rng = np.random.Generator(np.random.PCG64(seeded.drawn_number(seed, "hosts")))
    hosts = joined_hosts(
        [
            some_hosts(rng, before, "a", chr(ord(name[0]) - 1)),
            named_hosts([host for host in own + neighbours if host[2]]),
            some_hosts(rng, others - before, chr(ord(name[0]) + 1), "z"),
        ]
    )
    return hosts, before


def write_files(root: Path, count: int, distinct: int = 64, row_groups: int = 16) -> list[str]:
    """Makes ``count`` index files under ``root`` and gives their keys; files that are there are kept.

    Each has a footer of real size (some 60 KB). At most ``distinct`` files differ; the others are links to them.
    """
    keys = [f"{FOLDER}/part-{n:05d}-3f9c2d6a-1111-4222-8333-944455566677.c000.gz.parquet" for n in range(count)]
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    for number, key in enumerate(keys):
        path = root / key
        if not path.exists() and number < distinct:
            write_file(path, number, row_groups)
        elif not path.exists():
            try:
                os.link(root / keys[number % distinct], path)
            except OSError:
                shutil.copyfile(root / keys[number % distinct], path)
    return keys


def write_file(path: Path, seed: int, row_groups: int, rows: int = 4) -> None:
    """One index file with ``row_groups`` groups of ``rows`` rows, sorted by key."""
    spec = CrawlSpec(CRAWL)
    rng = np.random.Generator(np.random.PCG64(seeded.drawn_number(1, "file", CRAWL, seed)))
    first = "abcdefghijklmnopqrstuvwxyz"[seed % 26]
    table = index_rows(rng, spec, some_hosts(rng, row_groups * rows, first, first), 0, row_groups * rows)
    schema = published_schema(spec)
    with pq.ParquetWriter(path, schema, **writer_options(spec, schema)) as writer:
        for start in range(0, row_groups * rows, rows):
            writer.write_table(table.slice(start, rows))


Integers = npt.NDArray[np.int64]

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)
_BASE32 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", dtype=np.uint8)
_DIGITS = np.frombuffer(b"0123456789", dtype=np.uint8)
_NAME_LETTERS = 8
_SUBDOMAINS = ("", "", "", "blog", "shop", "m", "de")
_CHARSETS = ("UTF-8", "UTF-8", "UTF-8", "UTF-8", "windows-1252", "ISO-8859-1", "windows-1251", None)
_LANGUAGES = ("eng", "eng", "eng", "deu", "rus", "fra,eng", "spa", "zho,eng", "jpn", None)
_MIMES = ("text/html", "text/html", "text/html", "application/xhtml+xml", "application/pdf")
_ENDINGS = ("", ".html", ".html", ".php?id=17", "?page=2&sort=asc")

_WORDS: tuple[str, ...] = tuple(
    first + second + third
    for first in ("ba", "do", "fi", "gru", "ka", "le", "mo", "ne")
    for second in ("lan", "rit", "so", "ter", "vi", "zo", "mba", "cke")
    for third in ("n", "ster", "ly", "ing", "a", "more", "tion", "d")
)


@dataclass(frozen=True, slots=True)
class Hosts:
    """A run of hosts in key order: name and subdomain (empty for ``www``), and how many rows each has."""

    names: pa.Array
    subdomains: pa.Array
    sizes: Integers

    @property
    def rows(self) -> int:
        return int(self.sizes.sum())


def some_hosts(rng: np.random.Generator, rows: int, first: str, last: str) -> Hosts:
    """Hosts with ``rows`` rows together, their names from letter ``first`` to letter ``last``; few are large."""
    if rows == 0:
        return named_hosts([])
    sizes = np.minimum(1 + (rng.pareto(1.1, rows // 8 + 1) * 6).astype(np.int64), 20_000)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), rows)) + 1]
    sizes[-1] += rows - sizes.sum()
    low = (ord(first) - ord("a")) * 26 ** (_NAME_LETTERS - 1)
    high = (ord(last) - ord("a") + 1) * 26 ** (_NAME_LETTERS - 1)
    numbers = np.unique(rng.integers(low, high, len(sizes) + len(sizes) // 50 + 64))
    chosen = np.sort(rng.permutation(numbers)[: len(sizes)])
    subdomains = pa.array(_SUBDOMAINS).take(pa.array(rng.integers(0, len(_SUBDOMAINS), len(sizes))))
    return Hosts(_written(chosen, 26, _NAME_LETTERS, _LETTERS), subdomains, sizes)


def named_hosts(hosts: list[tuple[str, str, int]]) -> Hosts:
    """Hosts given as (name, subdomain, rows), in key order."""
    names, subdomains, sizes = zip(*hosts, strict=True) if hosts else ((), (), ())
    return Hosts(pa.array(names, pa.string()), pa.array(subdomains, pa.string()), np.array(sizes, dtype=np.int64))


def joined_hosts(parts: list[Hosts]) -> Hosts:
    """Several runs of hosts, one behind the other."""
    return Hosts(
        pa.concat_arrays([part.names for part in parts]),
        pa.concat_arrays([part.subdomains for part in parts]),
        np.concatenate([part.sizes for part in parts]),
    )


def index_rows(rng: np.random.Generator, crawl: CrawlSpec, hosts: Hosts, start: int, stop: int) -> pa.Table:
    """Rows ``start`` to ``stop`` (exclusive) of the sorted index of ``hosts``, in the published schema of ``crawl``."""
    ends = np.cumsum(hosts.sizes)
    rows = np.arange(start, stop)
    owner = np.searchsorted(ends, rows, side="right")
    page = rows - (ends - hosts.sizes)[owner]
    first, last = int(owner[0]), int(owner[-1]) + 1
    local = pa.array(owner - first)
    columns = {
        name: value.take(local) if isinstance(value, pa.Array) else value
        for name, value in _host_columns(hosts, first, last).items()
    }
    scheme, surt_host = columns["url_protocol"], columns.pop("surt_host")
    ending = _picked(rng, _ENDINGS, len(rows))
    slug = (_picked(rng, _WORDS, len(rows)), _picked(rng, _WORDS, len(rows)))
    serial = _written(rng.integers(0, 100_000, len(rows)), 10, 5, _DIGITS)
    path = pc.binary_join_element_wise(columns.pop("section"), _written(page, 10, 6, _DIGITS), *slug, serial, "-")
    path = _glued("/", path, pc.replace_substring_regex(ending, r"\?.*", ""))
    query = pc.if_else(pc.match_substring(ending, "?"), pc.replace_substring_regex(ending, r".*\?", ""), None)
    columns |= {
        "url_surtkey": _glued(surt_host, path, pc.if_else(pc.is_null(query), "", _glued("?", query))),
        "url": _glued(scheme, "://", columns["url_host_name"], path, pc.coalesce(_glued("?", query), pa.scalar(""))),
        "url_path": path,
        "url_query": query,
    }
    columns |= _capture_columns(rng, crawl, len(rows))
    schema = published_schema(crawl)
    return pa.table([_column(columns.get(field.name), field, len(rows)) for field in schema], schema=schema)


def _host_columns(hosts: Hosts, first: int, last: int) -> dict[str, Any]:
    names, subdomains = hosts.names[first:last], hosts.subdomains[first:last]
    label = pc.if_else(pc.equal(subdomains, ""), "www", subdomains)
    order = np.arange(first, last) * 7
    return {
        "url_host_name": _glued(label, ".", names, ".com"),
        "url_host_tld": "com",
        "url_host_2nd_last_part": names,
        "url_host_3rd_last_part": label,
        "url_host_registry_suffix": "com",
        "url_host_registered_domain": _glued(names, ".com"),
        "url_host_private_suffix": "com",
        "url_host_private_domain": _glued(names, ".com"),
        "url_host_name_reversed": _glued("com.", names, ".", label),
        "url_protocol": pc.if_else(pa.array(order % 5 == 0), "http", "https"),
        "surt_host": _glued("com,", names, pc.if_else(pc.equal(subdomains, ""), "", _glued(",", subdomains)), ")"),
        "section": pa.array(_WORDS).take(pa.array(order % len(_WORDS))),
    }


def _capture_columns(rng: np.random.Generator, crawl: CrawlSpec, rows: int) -> dict[str, Any]:
    begin = int(crawl.start.timestamp() * 1000)
    files = rng.integers(0, 100 * 900, rows)
    segments = [f"{begin // 1000 + 9000 * number}{number:03d}.{number % 90 + 10}" for number in range(100)]
    segment = pa.array(segments).take(pa.array(files // 900))
    number = _written(files % 900, 10, 5, _DIGITS)
    name = f"CC-MAIN-{crawl.start:%Y%m%d%H%M%S}-{crawl.start:%Y%m%d}235959-"
    mime = _picked(rng, _MIMES, rows)
    fetched = begin + rng.integers(0, 13 * 86_400, rows) * 1000
    return {
        "fetch_time": pa.array(fetched).cast(pa.timestamp("ms", tz="UTC")),
        "fetch_status": 200,
        "content_digest": _characters(_BASE32[rng.integers(0, 32, (rows, 32), dtype=np.uint8)]),
        "content_mime_type": mime,
        "content_mime_detected": mime,
        "content_charset": _picked(rng, _CHARSETS, rows),
        "content_languages": _picked(rng, _LANGUAGES, rows),
        "content_truncated": pc.if_else(pa.array(rng.integers(0, 60, rows) == 0), "length", None),
        "warc_filename": _glued(f"crawl-data/{crawl.id}/segments/", segment, "/warc/", name, number, ".warc.gz"),
        "warc_record_offset": pa.array(rng.integers(900, 1_200_000_000, rows), pa.int32()),
        "warc_record_length": pa.array(500 + rng.lognormal(9.2, 0.9, rows).astype(np.int64) % 1_049_000, pa.int32()),
        "warc_segment": segment,
    }


def _column(value: Any, field: pa.Field, rows: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value.cast(field.type)
    return pa.repeat(pa.scalar(value, field.type), rows)


def _glued(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _picked(rng: np.random.Generator, choices: tuple[str | None, ...], rows: int) -> pa.Array:
    return pa.array(choices, pa.string()).take(pa.array(rng.integers(0, len(choices), rows)))


def _written(numbers: Integers, base: int, width: int, alphabet: npt.NDArray[np.uint8]) -> pa.Array:
    """Whole numbers in a fixed width, so that text order is number order."""
    places = base ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return _characters(alphabet[(numbers[:, None] // places) % base])


def _characters(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix).tobytes())
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * width, width, dtype=np.int32).tobytes())
    return pa.StringArray.from_buffers(rows, offsets, data)
