"""What a page may take is a matter of its bytes, and every text of it has its bound."""

from __future__ import annotations

import multiprocessing
import random
import resource

import pytest

from cc_pipeline.documents.page import Limits, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline_tests.documents.pages import page

_PIECES = (
    *("<p>word word</p>", "<ul><li>a<ul><li>b</ul></ul>", "<b>x</b> ", "<a href=/x>y</a> ", "a<br>", "<i>*</i>`_"),
    *("<table><tr><td>a<td colspan=999 rowspan=999>b</table>", "<pre>\n\n\n</pre>", "<blockquote>a</blockquote>"),
    *(
        "long text, of many words. ",
        "<h2>x</h2>",
        "<img alt=a src=b>",
        "<dl><dt>a<dd>b</dl>",
        "字字。",
        "<code>`</code>",
    ),
)
_BYTES = 1_000_000
#: What the smallest elements take in trees, tables and pieces of text, measured at 276 at most; what is taken once.
_TIMES, _ONCE = 400, 64 << 20


def _taken(seed: int) -> tuple[int, int, list[int]]:
    """Bytes of a page, of the memory that it took at most, and characters of its texts."""
    dice = random.Random(seed)
    some = "".join(dice.choices(dice.sample(_PIECES, 4), k=dice.randint(1, 40)))
    body = "<body>" + some * (_BYTES // len(some.encode()))
    options = ParseOptions(limits=Limits(text_chars=200_000), markdown=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = parse_page(page(body), options).text or {}
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    names = ("text", "main_content", "main_content_markdown")
    return len(body.encode()), most * 1024, [len(text.get(name) or "") for name in names]


@pytest.mark.bomb
def test_memory_is_bounded_by_the_bytes_of_a_page() -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["cc_pipeline_tests.documents.test_memory"])
    with processes.Pool(2, maxtasksperchild=1) as pool:
        for seed, (size, most, texts) in enumerate(pool.map(_taken, range(4), chunksize=1)):
            assert most <= _TIMES * size + _ONCE, seed
            assert max(texts) <= 200_000, seed
