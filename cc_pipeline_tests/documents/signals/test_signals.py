"""Fingerprints and quality figures: the compiled ones against plain Python, known values, and what they are for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.schemas import QUALITY
from cc_pipeline.documents.signals import plain, quality
from cc_pipeline.documents.signals import quality as fingerprints
from cc_pipeline.documents.signals.quality import Quality, fingerprint, likeness

compiled = pytest.mark.skipif(not fingerprints.COMPILED, reason="the compiled signals are not built")
#: Few words, so that runs repeat; and anything at all.
TEXTS = st.one_of(
    st.lists(st.sampled_from(["a", "bb", "c1", "-", "\u4e2d\u6587", "\u00e9"]), max_size=60).map(" ".join), st.text()
)


@compiled
@given(TEXTS)
def test_compiled_and_plain_agree(text: str) -> None:
    assert fingerprints._minhash(text) == plain.minhash(text)
    assert quality._repetition(text) == plain.repetition(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3),
        ("It is 3.5 of example.com", 0),
        ("He said \u201cgo.\u201d (She went.) So", 2),
        ("\u4e00\u3002\u4e8c\uff01x", 2),
        ("Wait\u2026 no", 0),
        ("a.\u00a0b", 1),
    ],
)
def test_sentences_end_at_marks(text: str, count: int) -> None:
    found = quality.quality(text)
    assert found is not None and found.sentences == count


def test_values_do_not_change() -> None:
    """Stored sketches are compared with later ones: these are the algorithm, whatever computes them."""
    found = fingerprint("The quick brown fox jumps over the lazy dog, \u4e2d\u6587 twice.")
    assert found.content_minhash is not None
    assert (found.content_simhash, found.content_minhash[:3], found.content_minhash[-1]) == (
        1680556598888537513,
        [338441315, 210932468, 624787565],
        170991285,
    )
    assert plain.words_of("it's 3\u4e2d\u6587x \u00c9t\u00e9") == [
        "it",
        "s",
        "3",
        "\u4e2d",
        "\u6587",
        "x",
        "\u00c9t\u00e9",
    ]


def test_case_and_white_space_do_not_matter_and_no_word_is_nothing() -> None:
    assert fingerprint("One  two\nTHREE four five six") == fingerprint("one two three four five six")
    assert fingerprint(None) == fingerprint("") == fingerprint(" -- ") == (None, None)
    assert fingerprint("word").content_minhash is not None


def test_likeness_estimates_the_share_of_runs_in_common() -> None:
    words = [f"w{random.Random(7).random()}{number}" for number in range(1000)]
    one, other = fingerprint(" ".join(words[:800])), fingerprint(" ".join(words[200:]))
    assert one.content_minhash is not None
    assert other.content_minhash is not None
    # 596 runs of 996 are in both
    assert likeness(one.content_minhash, other.content_minhash) == pytest.approx(0.6, abs=0.19)
    assert likeness(one.content_minhash, one.content_minhash) == 1


def test_quality_of_a_known_text() -> None:
    found = quality.quality("- The cat and the dog #1 {x}\nSee more...\nSee more...\nJavaScript is off! Lorem ipsum.\n")
    assert found is not None
    figures = {
        name: value for name, value in found._asdict().items() if value and name not in ("top_2gram", "characters")
    }
    assert figures == {
        "lines": 4,
        "words": 17,
        "mean_word_length": 4,
        "symbols_per_word": 3 / 17,
        "bullet_lines": 1 / 4,
        "ellipsis_lines": 2 / 4,
        "alphabetic_words": 15 / 17,
        "stop_words": 2,
        "duplicate_lines": 1 / 4,
        "duplicate_line_characters": pytest.approx(11 / 81),
        "sentences": 4,
        "punctuated_lines": 3 / 4,
        "short_lines": 2 / 4,
        "javascript_lines": 1,
        "curly_brackets": 2,
        "lorem_ipsum": 1,
    }
    assert quality.quality(None) is quality.quality(" \n") is None


def test_repeated_runs_are_shares_of_the_words_characters() -> None:
    found = quality.quality("one two three four five " * 3)
    assert found is not None
    # 'three four' and 'four five' are the longest pairs: 9 of 57 characters, three times each
    assert found.top_2gram == pytest.approx(27 / 57)
    assert found.duplicate_5grams == pytest.approx(38 / 57)
    assert found.duplicate_10grams == pytest.approx(38 / 57)
    assert quality.quality("one two three four five " * 2).duplicate_10grams == 0
    assert quality.quality("a " * 50)._asdict()["top_4gram"] == 1


def test_the_column_has_the_fields() -> None:
    assert tuple(field.name for field in QUALITY) == Quality._fields
