"""The 2012 text_simhash against its definition written down plainly, and against values of the original code."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.document2012 import simhash
from cc_pipeline.documents.document2012.simhash import POLYNOMIAL, simhash_plainly, text_simhash
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.sanitised import run_sanitised


@cache
def fingerprint(data: bytes) -> int:
    """The definition: the rest of a division by the polynomial, bit by bit."""
    value = POLYNOMIAL
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return value


def plainly(text: str) -> int:
    """The definition: set of 4-unit runs, one vote per bit and fingerprint."""
    data = text.encode("utf-16-be", "surrogatepass")
    runs = {data[at : at + 8] for at in range(0, len(data) - 7, 2)}
    prints = [fingerprint(run) for run in runs]
    ones = [sum(each >> bit & 1 for each in prints) for bit in range(64)]
    value = sum(1 << bit for bit, count in enumerate(ones) if 2 * count > len(prints))
    return value - (1 << 64) if value >> 63 else value


@given(
    st.one_of(
        st.text(max_size=300),
        st.text(alphabet="ab ", max_size=600),
        st.text(alphabet="abcdefgh éü", min_size=60, max_size=600),
        st.lists(st.sampled_from(["plain words here ", "€", "日本", "𝄞", "naïve "]), max_size=60).map("".join),
    )
)
def test_equals_the_definition(text: str) -> None:
    assert text_simhash(text) == simhash_plainly(text) == plainly(text)


def test_the_compiled_one_was_built() -> None:
    """Every machine that runs the tests has a compiler, so that both are under test."""
    assert simhash.COMPILED


@needs_corpus
def test_every_value_of_the_original_code() -> None:
    golden = json.loads(gzip.decompress((CORPUS / "simhash" / "golden_2012.json.gz").read_bytes()))
    assert len(golden) >= 50
    for each in golden:
        assert text_simhash(each["text"]) == simhash_plainly(each["text"]) == int(each["simhash"])
        assert fingerprint(each["text"].encode("utf-8", "surrogatepass")) & (1 << 64) - 1 == int(
            each["fp64_of_utf8"]
        ) & ((1 << 64) - 1)


#: Texts of all kinds of characters, most of them with what the tables ask for only now and then, by both ways to ask.
FUZZ = """
import random, sys
from importlib.util import module_from_spec, spec_from_file_location
from cc_pipeline.documents.document2012.simhash import simhash_plainly
spec = spec_from_file_location("_simhash", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
rng = random.Random(3)
letters, octets = "abcdefghijklmnopqrstuvwxyz <>/=", "".join(map(chr, range(256)))
alphabets = ["ab", letters, "abc\\x00", "abé€", "€日本", "ab𝄞€\\x00", octets]
for turn in range(3_000):
    sizes = rng.choices((1, 3, 8, 40, 1024, 1027), k=rng.randrange(5))
    text = "".join("".join(rng.choices(rng.choice(alphabets), k=size)) for size in sizes)
    assert module.text_simhash(text) == simhash_plainly(text), (turn, text)
"""


@pytest.mark.bomb
def test_no_byte_out_of_bounds_is_touched(tmp_path: Path) -> None:
    run_sanitised(Path(simhash.__file__).with_name("_simhash.c"), FUZZ, tmp_path)
