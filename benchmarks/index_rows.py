"""Rows of a columnar index made by the million: no archive behind them, no Python loop over rows.

All keys are under ``com,`` and sorted, as in one part of a real index; text is built column by column with numpy and
Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.minicrawl.indexes import published_schema
from cc_pipeline.minicrawl.spec import CrawlSpec

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
