"""Digests decide whether work has to be done again, not times: of inputs, and of the content of rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.grouping import group_within

_DIGEST_HEX = 15  # 60 bits

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Positions: TypeAlias = npt.NDArray[np.int64]

#: As many bits as a digest has.
_DIGEST_MASK: Final = (1 << 60) - 1
#: Longer texts are hashed one by one, shorter ones all together, word by word.
_LONG_TEXT: Final = 1_024
#: Words of eight bytes that are hashed together: bounds memory.
_WORDS_AT_ONCE: Final = 1 << 18
#: Rows, and their bytes, that are hashed together: a column costs some hundred microseconds a time, however few.
_ROWS_AT_ONCE: Final = 4_096
_BYTES_AT_ONCE: Final = 8 << 20
#: Odd numbers and shifts of the finalizer of SplitMix64, which spreads each bit over all others.
_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS: Final = tuple(np.uint64(bits) for bits in (30, 27, 31))


def compute_input_digest(parts: Mapping[str, object]) -> str:
    """A short hexadecimal digest of ``parts`` (JSON-like values; order of keys does not matter)."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_HEX]


def digest_to_int(digest: str) -> int:
    """The number of a digest, of 60 bits."""
    return int(digest, 16)


def digest_from_int(value: int) -> str:
    """The inverse of :func:`digest_to_int`."""
    return f"{value:0{_DIGEST_HEX}x}"


def hash_rows(batch: pa.RecordBatch, excluded: Collection[str]) -> _Hashes:
    """Hashes each row: the same number for rows with the same values in all columns ``excluded`` those."""
    column_names = [name for name in batch.schema.names if name not in excluded]
    return mix_bits(_hash_fields(column_names, [batch.column(name) for name in column_names], batch.num_rows))


def compute_content_digests(
    batches: Iterable[pa.RecordBatch], column: str, excluded: Collection[str]
) -> dict[str, str]:
    """The content digest of the rows of each value of the text column ``column``, in hexadecimal. Columns in
    ``excluded`` do not count, nor does ``column`` itself."""
    sums: dict[str, int] = {}
    groups = group_within(batches, (_ROWS_AT_ONCE, _BYTES_AT_ONCE), lambda batch: (batch.num_rows, batch.nbytes))
    for batch in map(_join_batches, groups):
        rows = hash_rows(batch, (column, *excluded))
        slices = batch.column(column).dictionary_encode()
        slice_sums = np.zeros(len(slices.dictionary), np.uint64)
        np.add.at(slice_sums, slices.indices.to_numpy(), rows)
        for name, number in zip(slices.dictionary.to_pylist(), slice_sums.tolist(), strict=True):
            sums[name] = (sums.get(name, 0) + number) & _DIGEST_MASK
    return {name: digest_from_int(number) for name, number in sums.items()}


def _join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


#: The number of no rows.
NOTHING: Final = digest_from_int(0)


def combine_digests(digests: Iterable[str]) -> str:
    """The content digest of the rows of several slices, from the digests of each."""
    return digest_from_int(sum(map(digest_to_int, digests)) & _DIGEST_MASK)


def _hash_fields(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> _Hashes:
    """One hash a row from its named values, whatever the order of names."""
    hashes = np.zeros(rows, np.uint64)
    for name, column in zip(names, columns, strict=True):
        if column.null_count < len(column):
            numbers = mix_bits(_hash_values(column) ^ _hash_name(name))
            hashes += numbers if not column.null_count else np.where(_valid(column), numbers, 0)
    return hashes


def _hash_values(values: pa.Array) -> _Hashes:
    """One hash a value; any number for a null."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _hash_values(values.dictionary_decode())
    if pa.types.is_struct(kind):
        return _hash_fields([field.name for field in kind], values.flatten(), len(values))
    if pa.types.is_map(kind):
        ends = _ends(values.offsets)
        pairs = [items.slice(ends[0], ends[-1] - ends[0]) for items in (values.keys, values.items)]
        return _hash_lists(ends, _hash_fields(("key", "value"), pairs, len(pairs[0])))
    if pa.types.is_list(kind):
        ends = _ends(values.offsets)
        items = values.values.slice(ends[0], ends[-1] - ends[0])
        numbers = _hash_values(items)
        return _hash_lists(ends, numbers if not items.null_count else np.where(_valid(items), numbers, 0))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_text_runs(values)
    if pa.types.is_floating(kind):
        wide = values.cast(pa.float64()).fill_null(0)
        return np.asarray(wide.to_numpy(zero_copy_only=False) + 0.0).view(np.uint64)
    narrow = kind if not pa.types.is_date32(kind) else pa.int32()
    wide = (values.cast(narrow) if narrow is not kind else values).cast(pa.int64()).fill_null(0)
    return wide.to_numpy(zero_copy_only=False).view(np.uint64)


def _ends(offsets: pa.Array) -> _Positions:
    return np.asarray(offsets.to_numpy(zero_copy_only=False), np.int64)


def _hash_lists(ends: _Positions, items: _Hashes) -> _Hashes:
    """One hash a list from those of its items and their positions."""
    lengths = np.diff(ends)
    places = np.arange(ends[0], ends[-1]) - np.repeat(ends[:-1], lengths)
    numbers = mix_bits(items + mix_bits(places.astype(np.uint64)))
    return _sum_ranges(numbers, ends - ends[0]) + lengths.astype(np.uint64)


def _sum_ranges(numbers: _Hashes, ends: _Positions) -> _Hashes:
    """The sums of numbers between each two of ``ends``, modulo 2**64."""
    running_totals = np.zeros(len(numbers) + 1, np.uint64)
    np.cumsum(numbers, out=running_totals[1:])
    return running_totals[ends[1:]] - running_totals[ends[:-1]]


def _hash_text_runs(values: pa.Array) -> _Hashes:
    """Hashes equal neighbours once: the rows of a site, or of a page, have much in common."""
    runs = pc.run_end_encode(values)
    if len(runs.values) > len(values) // 2:
        return _hash_texts(values)
    return np.repeat(_hash_texts(runs.values), np.diff(runs.run_ends.to_numpy(), prepend=0))


def _hash_texts(values: pa.Array) -> _Hashes:
    _, places, data = values.buffers()
    ends = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    lengths = np.diff(ends)
    hashes = lengths.astype(np.uint64)
    if data is None or not len(data):
        return hashes
    raw = np.frombuffer(data, np.uint8)
    long = lengths > _LONG_TEXT
    for row in np.flatnonzero(long).tolist():
        digest = blake2b(raw[ends[row] : ends[row + 1]].data, digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    words = np.where(long, 0, (lengths + 7) // 8)
    for first, last in _split_windows(words):
        hashes[first:last] += _hash_short_texts(raw, ends[first:last], lengths[first:last], words[first:last])
    return hashes


def _split_windows(words: _Positions) -> Iterator[tuple[int, int]]:
    running_totals = np.cumsum(words)
    first = 0
    while first < len(words):
        words_before = int(running_totals[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(running_totals, words_before + _WORDS_AT_ONCE, "right")))
        yield first, last
        first = last


def _hash_short_texts(
    raw: npt.NDArray[np.uint8], starts: _Positions, lengths: _Positions, words: _Positions
) -> _Hashes:
    ends = np.zeros(len(words) + 1, np.int64)
    np.cumsum(words, out=ends[1:])
    if not ends[-1]:
        return np.zeros(len(words), np.uint64)
    places = np.arange(ends[-1]) - np.repeat(ends[:-1], words)
    nonempty = np.flatnonzero(words)
    begin, end = int(starts[nonempty[0]]), int((starts + lengths)[nonempty].max())
    # a last word reaches over the end of its text
    padded = np.zeros(end - begin + 8, np.uint8)
    padded[:-8] = raw[begin:end]
    at_each_byte = np.ndarray(end - begin + 1, "<u8", padded, strides=(1,))
    text_words = at_each_byte[np.repeat(starts - begin, words) + places * 8].astype(np.uint64)
    spare_bits = (words[nonempty] * 8 - lengths[nonempty]) * 8
    text_words[ends[1:][nonempty] - 1] &= np.uint64(0xFFFFFFFFFFFFFFFF) >> spare_bits.astype(np.uint64)
    return _sum_ranges(mix_bits(text_words ^ _hash_positions()[places]), ends)


def mix_bits(numbers: _Hashes) -> _Hashes:
    """Numbers mixed so that each of their bits changes all: the finalizer of SplitMix64 over a step more, so that 0 is
    no exception."""
    numbers = numbers + _STEP
    for shift, factor in zip(_SHIFTS, (_FIRST, _SECOND), strict=False):
        numbers ^= numbers >> shift
        numbers *= factor
    numbers ^= numbers >> _SHIFTS[-1]
    return numbers


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


@cache
def _hash_name(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


@cache
def _hash_positions() -> _Hashes:
    return mix_bits(np.arange(_LONG_TEXT // 8, dtype=np.uint64) * _STEP)
