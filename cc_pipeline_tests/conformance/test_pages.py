"""Every response after a report, through every reader."""

from __future__ import annotations

import pytest

from cc_pipeline_tests.conformance import about_pages, addresses, charsets, contents, feeds, heads, sitemaps, types
from cc_pipeline_tests.conformance.responses import BARE_READERS, READERS, Case, differences

CASES = {
    module.__name__.rpartition(".")[2]: module.CASES
    for module in (heads, types, charsets, addresses, about_pages, contents, feeds, sitemaps)
}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{kind} {case}") for kind in CASES for case in CASES[kind]])
def test_rows_are_right(case: Case) -> None:
    is_bare = not case.response.fields and case.response.record[0] == "response"
    readers = READERS | BARE_READERS if is_bare else READERS
    wrong = {name: differences(read(case.response), case.expected) for name, read in readers.items()}
    assert not {name: found for name, found in wrong.items() if found}
