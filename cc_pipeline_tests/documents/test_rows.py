"""Rows as Arrow record batches that Delta and DuckDB read back as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.documents.schemas import SCHEMAS
from cc_pipeline_tests.documents.feeds.test_feeds import ATOM, RSS
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_parse_page import HTML


@pytest.fixture(scope="module")
def batches() -> dict[str, pa.RecordBatch]:
    pages = [
        parse_page(page(HTML)),
        failed_page(page(), "Missing", "not_found: gone"),
        parse_page(page("<p>no links")),
        parse_page(page(RSS, mime="application/rss+xml", url="https://example.com/feed")),
        parse_page(page(ATOM, mime="application/atom+xml")),
        parse_page(page("<a href='/last'>last</a>")),
    ]
    return to_record_batches(pages)


def test_every_capture_has_one_metadata_row_and_batches_fit_their_schema(batches: dict[str, pa.RecordBatch]) -> None:
    assert {name: batch.schema for name, batch in batches.items()} == SCHEMAS
    assert batches["page_metadata"].num_rows == 6
    assert batches["page_text"].num_rows == 5
    for name, batch in batches.items():
        batch.validate(full=True)
        assert batch.schema.names[: len(KEY_NAMES)] == list(KEY_NAMES), name


def test_half_surrogates_become_replacement_characters() -> None:
    odd = parse_page(page('<script type="application/ld+json">{"@type": "\\ud800", "a": "\\udfff"}</script>'))
    text = to_record_batches([odd])["page_text"].to_pylist()[0]
    assert text["json_ld_types"] == ["\ufffd"]
    odd.metadata["http_headers"]["x"] = "a\ud800b"
    assert ("x", "a\ufffdb") in to_record_batches([odd])["page_metadata"].to_pylist()[0]["http_headers"]
