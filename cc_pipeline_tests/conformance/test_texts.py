"""Keys, lines of indexes and dates after reports."""

from __future__ import annotations

import pytest

from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.dates import parse_date
from cc_pipeline.errors import DataFault
from cc_pipeline.index.zipnum.locator import capture_of
from cc_pipeline_tests.conformance.dates import DATES
from cc_pipeline_tests.conformance.index_lines import LINES, Line
from cc_pipeline_tests.conformance.url_keys import KEYS


def test_keys() -> None:
    assert [(each.url, surt_key(each.url)) for each in KEYS] == [(each.url, each.key) for each in KEYS]


def test_dates() -> None:
    assert [(each.text, parse_date(each.text)) for each in DATES] == [(each.text, each.moment) for each in DATES]


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.report} {line.about}")
def test_lines_of_an_index(line: Line) -> None:
    if line.columns is None:
        with pytest.raises(DataFault) as fault:
            capture_of(line.line, "cdx-00000.gz", 4711)
        assert (fault.value.source, fault.value.offset) == ("cdx-00000.gz", 4711)
        assert fault.value.reason
    else:
        capture = capture_of(line.line, "cdx-00000.gz", 4711)
        assert {name: capture[name] for name in line.columns} == line.columns
