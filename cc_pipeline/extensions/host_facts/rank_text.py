"""Parses the text of a web graph's ranks: ``#harmonicc_pos #harmonicc_val #pr_pos #pr_val #host_rev``, one node a line,
in the order of rank.

Columns are found by their names in the first line. Arrow parses a block of lines at once; lines that it cannot parse
(unusual numbers, unusual hosts) are parsed one by one.
"""

from __future__ import annotations

import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.extensions.host_facts.host_keys import host_key

Level = Literal["host", "domain"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_RELEASE_NAME: Final = re.compile(r"cc-main-(\d{4})(?:-(\d{2}))?((?:-(?:" + "|".join(_MONTHS) + r")){2,4})")
_WEEKLY: Final = re.compile(r"CC-MAIN-(\d{4})-(\d{2})")
#: Releases that end up to this month have stripped a leading ``www.`` from hosts; later ones keep it.
_LAST_STRIPPED: Final = (2025, 12)
_BARE_WWW: Final = ".www"

KEY: Final = "surt_host_name"
_NAME: Final = "host_rev"
POSITIONS: Final = ("harmonicc_pos", "pr_pos")
SCORES: Final = ("harmonicc_val", "pr_val")
#: The number of hosts of a domain, in ranks of domains only.
HOSTS: Final = "n_hosts"
SCHEMA: Final = pa.schema(
    [
        pa.field(KEY, pa.string()),
        pa.field("harmonicc_pos", pa.int64()),
        pa.field("harmonicc_val", pa.float64()),
        pa.field("pr_pos", pa.int64()),
        pa.field("pr_val", pa.float64()),
        pa.field(HOSTS, pa.int64()),
    ]
)
#: Bytes of text that are inflated at a time, bytes of a block to parse, and maximum bytes of a line.
_PIECE_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 8 << 20
_MAX_LINE_BYTES: Final = 1 << 16
#: Maximum ratio of a text to its gzip data; real ones are five times as large.
_MAX_INFLATION: Final = 100
#: Reversed hosts that only need commas for points: plain labels, of which the last (here the first) is no number.
_PLAIN: Final = r"^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+$"
_WWW_KEPT: Final = (r"\.www[0-9]*$", "")
# One pattern: the result of one replacement must not match the other.
_WWW_STRIPPED: Final = (r"^([^.]+)\.www$|\.www[0-9]+$", r"\1")
_MAX_INT: Final = 2**63


@dataclass(frozen=True, slots=True)
class Release:
    """A release; ``first`` and ``last`` are its first and last month, as (year, month)."""

    name: str
    first: tuple[int, int]
    last: tuple[int, int]

    @property
    def www_kept(self) -> bool:
        """Whether ``www.example.com`` and ``example.com`` are two hosts in this release."""
        return self.last > _LAST_STRIPPED

    def spans(self, crawl: str) -> bool:
        """Whether the crawl is from a month of the release; ``False`` for crawls that are not named by a week."""
        match = _WEEKLY.fullmatch(crawl)
        if match is None:
            return False
        try:
            monday = date.fromisocalendar(int(match[1]), int(match[2]), 1)
        except ValueError:
            return False
        return self.first <= (monday.year, monday.month) <= self.last

    def ranks_key(self, level: Level) -> str:
        """The key of its ranks in the bucket."""
        return f"projects/hyperlinkgraph/{self.name}/{level}/{self.name}-{level}-ranks.txt.gz"


def parse_release(name: str) -> Release:
    """The release of this name. Raises ``UserInputError`` for another text."""
    match = _RELEASE_NAME.fullmatch(name)
    if match is None:
        raise UserInputError(
            f"{name[:80]!r} is no release of the web graph; they are named by their months: cc-main-2026-may-jun-jul, "
            "and cc-main-2025-26-nov-dec-jan over New Year"
        )
    months = [_MONTHS[month] for month in match[3].split("-")[1:]]
    year = int(match[1])
    last = year // 100 * 100 + int(match[2]) if match[2] else year + (months[-1] < months[0])
    return Release(name, (year, months[0]), (last, months[-1]))


@lru_cache(maxsize=65536)
def graph_key(name: str, www_kept: bool) -> str | None:
    """The SURT host key of a node's name (``com.example.www``); ``None`` for text that names no host.

    If the release stripped one ``www.``, a remaining ``www`` is a host below ``www``, and not another name of the host
    without it.
    """
    is_www_stripped = not www_kept and name.endswith(_BARE_WWW) and name.count(".") >= 2
    key = host_key(name + _BARE_WWW if is_www_stripped else name, "reversed_host")
    return None if key is None else key.surt


@dataclass(slots=True)
class Tally:
    """Counts of the lines of nodes, and of invalid lines (``example`` is one of them)."""

    rows: int = 0
    skipped: int = 0
    example: str = ""

    def skip(self, line: str) -> None:
        """Counts a line without a rank of a host."""
        self.skipped += 1
        self.example = self.example or line[:200]


def inflate_stream(pieces: Iterable[bytes], source: str) -> Iterator[bytes]:
    """Inflates gzip data of any number of members, a megabyte at a time. Raises ``DataFault``."""
    engine = zlib.decompressobj(wbits=31)
    read = inflated_bytes = 0
    has_data = False
    for piece in pieces:
        read += len(piece)
        remaining = piece
        while remaining:
            if engine.eof:
                if not remaining.strip(b"\0"):
                    break  # padding behind the last member
                engine, has_data = zlib.decompressobj(wbits=31), False
            try:
                text = engine.decompress(remaining, _PIECE_BYTES)
            except zlib.error as fault:
                raise DataFault(
                    DataKind.GZIP_CORRUPT, source, read - len(remaining), f"is no gzip data ({fault})"
                ) from fault
            has_data = True
            remaining = engine.unused_data if engine.eof else engine.unconsumed_tail
            inflated_bytes += len(text)
            if inflated_bytes > _MAX_INFLATION * read + _BLOCK_BYTES:
                raise DataFault(
                    DataKind.TOO_LARGE, source, read, f"inflates to more than {_MAX_INFLATION} times its size"
                )
            if text:
                yield text
    if not engine.eof or not has_data:
        raise DataFault(DataKind.GZIP_TRUNCATED, source, read, "its gzip data ends too early")


def read_rank_rows(text: Iterable[bytes], source: str, tally: Tally, *, www_kept: bool) -> Iterator[pa.RecordBatch]:
    """Yields rows of ``SCHEMA`` in the order of the lines, with SURT host keys; several rows may have the same key.

    Lines without a rank of a host are counted in ``tally`` and left out. Raises ``DataFault`` for text without a header
    of ranks, and for lines without an end.
    """
    names: list[str] | None = None
    for block in _split_at_lines(text, source):
        lines = block
        if names is None:
            line, _, lines = block.partition(b"\n")
            names = _header(line, source)
        if lines.strip():
            yield _parse_block(lines, names, tally, www_kept)
    if names is None:
        raise DataFault(DataKind.TRUNCATED, source, 0, "is empty")


def _split_at_lines(text: Iterable[bytes], source: str) -> Iterator[bytes]:
    pieces: list[bytes] = []
    size = offset = 0
    for piece in text:
        pieces.append(piece)
        size += len(piece)
        if size < _BLOCK_BYTES:
            continue
        block = b"".join(pieces)
        end = block.rfind(b"\n") + 1
        if len(block) - end > _MAX_LINE_BYTES:
            raise DataFault(
                DataKind.MALFORMED, source, offset + end, f"has a line of more than {_MAX_LINE_BYTES:,} bytes"
            )
        if end:
            yield block[:end]
        offset += end
        pieces, size = [block[end:]], len(block) - end
    if size:
        yield b"".join(pieces)


def _header(line: bytes, source: str) -> list[str]:
    text = line.decode("ascii", "replace").strip()
    names = [name.strip().removeprefix("#") for name in text.split("\t")]
    if not text.startswith("#") or _NAME not in names or not set(names) & {*POSITIONS, *SCORES}:
        raise DataFault(
            DataKind.MALFORMED,
            source,
            0,
            f"does not begin with a header of ranks (#harmonicc_pos … #host_rev): {text[:80]!r}",
        )
    if len(set(names)) != len(names):
        raise DataFault(DataKind.MALFORMED, source, 0, f"names a column twice: {text[:80]!r}")
    return names


def _parse_block(block: bytes, names: list[str], tally: Tally, www_kept: bool) -> pa.RecordBatch:
    def skip_invalid_row(row: csv.InvalidRow) -> str:
        tally.skip(row.text or "")
        return "skip"

    table = csv.read_csv(
        io.BytesIO(block),
        csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
        csv.ParseOptions(
            delimiter="\t",
            quote_char=False,
            double_quote=False,
            newlines_in_values=False,
            invalid_row_handler=skip_invalid_row,
        ),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False, null_values=[]),
    )
    rows = table.num_rows
    columns = {KEY: _host_keys(_column(table, _NAME), www_kept)}
    is_valid_row = pc.is_valid(columns[KEY])
    for field in list(SCHEMA)[1:]:
        if field.name in names:
            columns[field.name], read = _numbers(_column(table, field.name), field.type)
            is_valid_row = pc.and_(is_valid_row, read)
        else:
            columns[field.name] = pa.nulls(rows, field.type)
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
    tally.rows += rows
    if not pc.all(is_valid_row, min_count=0).as_py():
        invalid_rows = table.filter(pc.invert(is_valid_row))
        first_bad_line = b"\t".join(invalid_rows.slice(0, 1).to_pylist()[0].values()).decode("utf-8", "replace")
        tally.skip(first_bad_line)
        tally.skipped += invalid_rows.num_rows - 1
        tally.rows -= invalid_rows.num_rows
        batch = batch.filter(is_valid_row)
    return batch


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table.column(name).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary())


def _host_keys(names: pa.Array, www_kept: bool) -> pa.Array:
    """SURT host keys of nodes' names, null for names of no host."""
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    is_plain = pc.match_substring_regex(texts, _PLAIN)
    keys = pc.replace_substring_regex(texts, *(_WWW_KEPT if www_kept else _WWW_STRIPPED))
    keys = pc.replace_substring(keys, ".", ",")
    if pc.all(is_plain, min_count=0).as_py():
        return keys
    needs_parsing = pc.invert(is_plain)
    parsed_keys = [graph_key(name, www_kept) for name in texts.filter(needs_parsing).to_pylist()]
    return pc.replace_with_mask(keys, needs_parsing, pa.array(parsed_keys, pa.string()))


def _numbers(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Parses numbers as Java writes them, null for ``NaN`` or empty text. Returns them, and whether each could be
    parsed.
    """
    try:
        values = texts.cast(pa.string()).cast(kind)
        if pa.types.is_floating(kind):
            values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
        return values, pa.repeat(True, len(texts))
    except pa.ArrowInvalid:
        parsed = [_number(text, is_integer=pa.types.is_integer(kind)) for text in texts.to_pylist()]
        return pa.array([value for value, _ in parsed], kind), pa.array([is_read for _, is_read in parsed], pa.bool_())


def _number(text: bytes, *, is_integer: bool) -> tuple[float | int | None, bool]:
    if not text.strip():
        return None, True
    try:
        value = float(text)
        if not math.isfinite(value):
            return None, True
        if not is_integer:
            return value, True
        number = int(text) if text.strip().lstrip(b"+-").isdigit() else int(value)
        return (number, True) if abs(number) < _MAX_INT and number == value else (None, False)
    except ValueError:
        return None, False
