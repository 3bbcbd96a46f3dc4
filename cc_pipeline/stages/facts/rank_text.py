"""The text of a web graph's ranks as rows: ``#harmonicc_pos #harmonicc_val #pr_pos #pr_val #host_rev``, one node a
line, in the order of rank.

Columns are found by their names in the first line. A block of lines is taken apart at once by Arrow; what Arrow does
not read (other numbers, other hosts than plain ones) is looked at line by line.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cc_pipeline.commoncrawl.web_graph import graph_key
from cc_pipeline.errors import DataFault, DataKind

KEY: Final = "surt_host_name"
_NAME: Final = "host_rev"
POSITIONS: Final = ("harmonicc_pos", "pr_pos")
SCORES: Final = ("harmonicc_val", "pr_val")
#: How many hosts a domain has; at the level of domains alone.
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

#: Bytes of text that are inflated at a time, of a block that is taken apart, and of a line at most.
_PIECE: Final = 1 << 20
_BLOCK: Final = 8 << 20
_LONGEST_LINE: Final = 1 << 16
#: How often a text may be larger than its gzip: real ones are five times as large.
_LARGEST: Final = 100
#: Reversed hosts that need no more than other commas: plain labels, the last of which (the first here) is no number.
_PLAIN: Final = r"^[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+$"
_WWW_KEPT: Final = (r"\.www[0-9]*$", "")
# one pattern: what the other leaves must not be taken for a name of its own
_WWW_STRIPPED: Final = (r"^([^.]+)\.www$|\.www[0-9]+$", r"\1")
_MOST_INT: Final = 2**63


@dataclass(slots=True)
class Tally:
    """What was read: lines of nodes, and those that are none (``example`` is one of them)."""

    rows: int = 0
    skipped: int = 0
    example: str = ""

    def skip(self, line: str) -> None:
        """Counts a line that says no rank of a host."""
        self.skipped += 1
        self.example = self.example or line[:200]


def inflated_stream(pieces: Iterable[bytes], source: str) -> Iterator[bytes]:
    """The text in gzip data of any number of members, a megabyte at a time. Raises ``DataFault``."""
    engine = zlib.decompressobj(wbits=31)
    read = given = 0
    begun = False
    for piece in pieces:
        read += len(piece)
        rest = piece
        while rest:
            if engine.eof:
                if not rest.strip(b"\0"):
                    break  # padding behind the last member
                engine, begun = zlib.decompressobj(wbits=31), False
            try:
                text = engine.decompress(rest, _PIECE)
            except zlib.error as fault:
                raise DataFault(
                    DataKind.GZIP_CORRUPT, source, read - len(rest), f"is no gzip data ({fault})"
                ) from fault
            begun = True
            rest = engine.unused_data if engine.eof else engine.unconsumed_tail
            given += len(text)
            if given > _LARGEST * read + _BLOCK:
                raise DataFault(DataKind.TOO_LARGE, source, read, f"inflates to more than {_LARGEST} times its size")
            if text:
                yield text
    if not engine.eof or not begun:
        raise DataFault(DataKind.GZIP_TRUNCATED, source, read, "its gzip data ends too early")


def rank_rows(text: Iterable[bytes], source: str, tally: Tally, *, www_kept: bool) -> Iterator[pa.RecordBatch]:
    """Rows of ``SCHEMA`` in the order of the lines, under SURT host keys, several of one key among them.

    Lines that say no rank of a host are counted in ``tally`` and left out. Raises ``DataFault`` for text that has no
    header of ranks, and for lines without an end.
    """
    names: list[str] | None = None
    for block in _whole_lines(text, source):
        lines = block
        if names is None:
            line, _, lines = block.partition(b"\n")
            names = _header(line, source)
        if lines.strip():
            yield _rows(lines, names, tally, www_kept)
    if names is None:
        raise DataFault(DataKind.TRUNCATED, source, 0, "is empty")


def _whole_lines(text: Iterable[bytes], source: str) -> Iterator[bytes]:
    held: list[bytes] = []
    size = at = 0
    for piece in text:
        held.append(piece)
        size += len(piece)
        if size < _BLOCK:
            continue
        block = b"".join(held)
        end = block.rfind(b"\n") + 1
        if len(block) - end > _LONGEST_LINE:
            raise DataFault(DataKind.MALFORMED, source, at + end, f"has a line of more than {_LONGEST_LINE:,} bytes")
        if end:
            yield block[:end]
        at += end
        held, size = [block[end:]], len(block) - end
    if size:
        yield b"".join(held)


def _header(line: bytes, source: str) -> list[str]:
    text = line.decode("ascii", "replace").strip()
    names = [name.strip().removeprefix("#") for name in text.split("\t")]
    if not text.startswith("#") or _NAME not in names or not set(names) & {*POSITIONS, *SCORES}:
        raise DataFault(
            DataKind.MALFORMED, source, 0, f"begins with no header of ranks (#harmonicc_pos … #host_rev): {text[:80]!r}"
        )
    if len(set(names)) != len(names):
        raise DataFault(DataKind.MALFORMED, source, 0, f"names a column twice: {text[:80]!r}")
    return names


def _rows(block: bytes, names: list[str], tally: Tally, www_kept: bool) -> pa.RecordBatch:
    def odd(row: csv.InvalidRow) -> str:
        tally.skip(row.text or "")
        return "skip"

    table = csv.read_csv(
        io.BytesIO(block),
        csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False),
        csv.ParseOptions(
            delimiter="\t", quote_char=False, double_quote=False, newlines_in_values=False, invalid_row_handler=odd
        ),
        csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=False, null_values=[]),
    )
    rows = table.num_rows
    columns = {KEY: _keys(_column(table, _NAME), www_kept)}
    good = pc.is_valid(columns[KEY])
    for field in list(SCHEMA)[1:]:
        if field.name in names:
            columns[field.name], read = _numbers(_column(table, field.name), field.type)
            good = pc.and_(good, read)
        else:
            columns[field.name] = pa.nulls(rows, field.type)
    found = pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
    tally.rows += rows
    if not pc.all(good, min_count=0).as_py():
        bad = table.filter(pc.invert(good))
        shown = b"\t".join(bad.slice(0, 1).to_pylist()[0].values()).decode("utf-8", "replace")
        tally.skip(shown)
        tally.skipped += bad.num_rows - 1
        tally.rows -= bad.num_rows
        found = found.filter(good)
    return found


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table.column(name).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary())


def _keys(names: pa.Array, www_kept: bool) -> pa.Array:
    """SURT host keys of nodes' names, null for what names no host."""
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    plain = pc.match_substring_regex(texts, _PLAIN)
    keys = pc.replace_substring_regex(texts, *(_WWW_KEPT if www_kept else _WWW_STRIPPED))
    keys = pc.replace_substring(keys, ".", ",")
    if pc.all(plain, min_count=0).as_py():
        return keys
    odd = pc.invert(plain)
    looked_at = [graph_key(name, www_kept) for name in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(keys, odd, pa.array(looked_at, pa.string()))


def _numbers(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Numbers as Java writes them, null for none (``NaN``, nothing), and whether each could be read."""
    try:
        values = texts.cast(pa.string()).cast(kind)
        if pa.types.is_floating(kind):
            values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
        return values, pa.repeat(True, len(texts))
    except pa.ArrowInvalid:
        read = [_number(text, whole=pa.types.is_integer(kind)) for text in texts.to_pylist()]
        return pa.array([value for value, _ in read], kind), pa.array([is_read for _, is_read in read], pa.bool_())


def _number(text: bytes, *, whole: bool) -> tuple[float | int | None, bool]:
    if not text.strip():
        return None, True
    try:
        value = float(text)
        if not math.isfinite(value):
            return None, True
        if not whole:
            return value, True
        number = int(text) if text.strip().lstrip(b"+-").isdigit() else int(value)
        return (number, True) if abs(number) < _MOST_INT and number == value else (None, False)
    except ValueError:
        return None, False
