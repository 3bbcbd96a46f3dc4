"""Hadoop SequenceFiles: every compression, and what damage costs."""

from __future__ import annotations

import struct
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive.sequencefile import (
    TEXT,
    Compression,
    SequencePair,
    decode_vint,
    iter_pairs,
)
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline_tests.archive.sequencefile_writer import (
    encode_text,
    encode_vint,
    write_header,
    write_sequencefile,
)
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

ROWS = [(f"http://example.com/{number}", "tëxt \U0001f600\n" * (number % 50)) for number in range(400)]
FORMS: list[tuple[Compression, str]] = [(how, codec) for how in get_args(Compression) for codec in ("default", "gzip")]
SYNC = bytes(range(16))


def written(rows: list[tuple[str, str]], how: Compression, codec: str, block_bytes: int = 3000) -> bytes:
    return write_sequencefile(rows, how, codec, block_bytes=block_bytes)


def rows_of(data: bytes, limit: int = 1 << 22) -> tuple[list[tuple[Any, Any]], list[DataFault]]:
    found = list(iter_pairs(data, "s", limit))
    rows = [(one.key, one.value) for one in found if isinstance(one, SequencePair)]
    return rows, [one for one in found if isinstance(one, DataFault)]


@pytest.mark.parametrize(("how", "codec"), FORMS)
@given(rows=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=200)), max_size=30), block=st.integers(1, 500))
def test_round_trip(how: Compression, codec: str, rows: list[tuple[str, str]], block: int) -> None:
    assert rows_of(written(rows, how, codec, block)) == (rows, [])


@pytest.mark.parametrize(("how", "codec"), FORMS)
def test_damage_costs_what_lies_before_the_next_marker(how: Compression, codec: str) -> None:
    data = bytearray(written(ROWS, how, codec))
    middle = len(data) // 2
    data[middle : middle + 9] = b"\xff" * 9
    rows, faults = rows_of(bytes(data))
    assert 1 <= len(faults) <= 2
    lost = len(ROWS) - len(rows)
    assert 0 < lost < 120
    first = next(place for place, row in enumerate(ROWS) if row not in rows)
    assert rows[:first] == ROWS[:first]
    assert rows[-100:] == ROWS[-100:]


def custom(version: int) -> bytes:
    key, value = encode_text("a"), encode_text("b")
    header = bytearray(write_header("none", None, SYNC))
    header[3] = version
    if version < 6:
        del header[-20:-16]
    return bytes(header) + struct.pack(">ii", len(key) + len(value), len(key)) + key + value


@pytest.mark.parametrize("version", [0, 3, 7, 255])
def test_other_versions_are_refused(version: int) -> None:
    rows, (fault,) = rows_of(custom(version))
    assert rows == []
    assert str(version) in fault.reason


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_variable_length_numbers(number: int) -> None:
    data = encode_vint(number)
    assert decode_vint(b"x" + data + b"y", 1) == (number, 1 + len(data))
    with pytest.raises(ValueError, match="number"):
        decode_vint(data[:-1], 0)


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (-112, "90"),
        (128, "8f80"),
        (-113, "8770"),
        (300, "8e012c"),
        (-(1 << 63), "807fffffffffffffff"),
    ],
)
def test_variable_length_numbers_as_hadoop_writes_them(number: int, data: str) -> None:
    assert encode_vint(number).hex() == data


@pytest.mark.parametrize("codec", ["default", "gzip"])
def test_the_bound_holds_for_blocks_and_records(codec: str) -> None:
    for how in ("record", "block"):
        data = written([("a", "b" * 100_000)], how, codec)
        assert rows_of(data, limit=50_000)[0] == []
        assert rows_of(data, limit=200_000)[0] == [("a", "b" * 100_000)]


@pytest.mark.parametrize(
    ("key_class", "codec", "part"),
    [
        ("org.apache.hadoop.io.BytesWritable", None, "only org.apache.hadoop.io.Text is read"),
        (TEXT, "org.apache.hadoop.io.compress.SnappyCodec", "unknown codec"),
    ],
)
def test_other_classes_and_codecs_are_one_fault(key_class: str, codec: str | None, part: str) -> None:
    header = write_header("none" if codec is None else "block", codec, SYNC, key_class=key_class)
    [fault] = iter_pairs(header + bytes(100), "s")
    assert isinstance(fault, DataFault) and fault.kind is DataKind.UNSUPPORTED and part in fault.reason


@needs_corpus
def test_real_files() -> None:
    folder = CORPUS / "sequencefile"
    strings = [
        (one.key, one.value)
        for one in iter_pairs(folder / "tensorflow-io" / "string.seq", "s")
        if isinstance(one, SequencePair)
    ]
    assert strings == [(f"{number:03}", f"VALUE{number:03}") for number in range(1, 26)]
    for path in (path for path in folder.rglob("*") if path.is_file()):
        assert [*iter_pairs(path, path.name)], path
