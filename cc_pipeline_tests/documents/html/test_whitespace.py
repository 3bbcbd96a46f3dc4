"""White space collapsed: the compiled one does what Python's own words do."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.html import whitespace
from cc_pipeline.documents.html.whitespace import collapsed, collapsed_plainly

SPACES = "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))


@given(
    st.one_of(
        st.text(),
        st.text(alphabet=" \t\n\x1cab\x85\xa0é", max_size=400),
        st.text(alphabet=" \u3000\u2003a日", max_size=400),
        st.text(alphabet=" \u3000a𝄞", max_size=400),
    )
)
def test_is_what_split_and_join_give(text: str) -> None:
    assert collapsed(text) == collapsed_plainly(text)


@pytest.mark.parametrize("wide", ["a", "é", "日", "𝄞"])
def test_every_space_there_is(wide: str) -> None:
    assert collapsed(wide.join(SPACES) + SPACES) == collapsed_plainly(wide.join(SPACES) + SPACES)


def test_what_goes_makes_the_text_no_wider() -> None:
    text = collapsed("a\u3000b")
    assert text == "a b"
    assert sys.getsizeof(text) == sys.getsizeof("a b")


def test_the_compiled_one_was_built() -> None:
    """Every machine that runs the tests has a compiler, so that both are under test."""
    assert whitespace.COMPILED


@pytest.mark.parametrize("wrong", [b"bytes", None, 3])
def test_only_texts_are_taken(wrong: object) -> None:
    with pytest.raises((TypeError, AttributeError)):
        collapsed(wrong)
