"""Fingerprints and quality figures: the compiled ones against plain Python, known values, and what they are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.signals import plain, quality
from cc_pipeline.documents.signals import quality as fingerprints
from cc_pipeline.documents.signals.quality import fingerprint

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
