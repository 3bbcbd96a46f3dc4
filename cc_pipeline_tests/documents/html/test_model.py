"""The compiled pass over a page's blocks sees and says what numpy does, and follows no number out of its tables."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cc_pipeline.documents.html import model
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline_tests.documents.html.test_walk import TOKENS
from cc_pipeline_tests.documents.pages import read, tables_of

#: What an article has, beside what is odd.
PARTS = (
    "<p>" + "Prose of an article, with words enough to count as such. " * 3,
    *("<h2>A heading</h2>", "<aside class=related>", "</aside>", "<div class=comments>", "<article>", "</article>"),
    *("<ul><li>An item<li>Another</ul>", "<a href=/>A link to another page</a>", "<table><tr><td>a<td>b</table>"),
    "<p>Words of the title, and more",
)
TITLE = " Words of the title, and more of it "


def assert_same(seen: Tables, title: str) -> None:
    likely, rows = model.likelihoods_compiled(seen, title, *model.fitted())
    expected, expected_rows = model.likelihoods_plainly(seen, title, *model.fitted())
    assert rows.shape == expected_rows.shape
    # logarithms of numpy and of the C library may differ in the last bit
    assert np.allclose(rows, expected_rows, rtol=1e-6, atol=1e-6)
    assert np.allclose(likely, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_the_compiled_pass_does_what_numpy_does(seed: int) -> None:
    assert model.COMPILED, "every machine that runs the tests has a compiler"
    chance = random.Random(seed)
    for _ in range(60):
        seen = read("".join(chance.choices(TOKENS + 3 * PARTS, k=chance.randint(1, 80)))).tables
        if seen is not None and len(seen.blocks.chars):
            assert_same(seen, chance.choice((TITLE, "", "\u6f22\u5b57")))


def test_an_element_of_a_block_that_comes_to_nothing_holds_none() -> None:
    seen = tables_of("<p>text<pre> <b> </b></pre>")
    assert seen.elements.last.max() == len(seen.blocks.chars) == 1
    assert_same(seen, "")


def test_tables_and_trees_that_do_not_fit_are_refused() -> None:
    seen = tables_of("<p>One<ul><li>two<li>three</ul>" * 3)
    chance = random.Random(0)
    first, second = model.fitted()
    refused = 0
    for _ in range(2_000):
        elements, blocks = (
            seen.elements._make(map(np.copy, seen.elements)),
            seen.blocks._make(map(np.copy, seen.blocks)),
        )
        column = chance.choice((*elements, *blocks))
        column[chance.randrange(len(column))] = chance.choice((-(2**31), -2, -1, 0, 1, 7, 255, 256, 2**31 - 1))
        try:
            model.likelihoods_compiled(seen._replace(elements=elements, blocks=blocks), "", first, second)
        except ValueError:
            refused += 1
    assert refused > 100
    for field, value in (("feature", 9_999), ("left", 0), ("right", 32_767)):
        nodes = first.nodes.copy()
        nodes[field][0] = value
        with pytest.raises(ValueError, match="trees"):
            model.likelihoods_compiled(seen, "", first._replace(nodes=nodes), second)
    for broken in (seen._replace(path=seen.path[1:]), seen._replace(text=seen.text[1:])):
        with pytest.raises(ValueError, match="tables"):
            model.likelihoods_compiled(broken, "", first, second)
