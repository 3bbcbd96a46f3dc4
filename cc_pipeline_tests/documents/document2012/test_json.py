"""The 2012 documents: real ones read into the tables and written again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.document2012 import reading
from cc_pipeline.documents.document2012.json import metadata_object
from cc_pipeline.documents.document2012.reading import read_metadata_json
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.feeds.test_feeds import ATOM, RSS
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.documents.test_parse_page import HTML


def _context(url: str) -> PageInput:
    return PageInput(
        "CC-MAIN-2012",
        "warc",
        url,
        b"",
        source_kind="sequencefile",
        source_file="parse-output/segment/1/metadata-00000",
    )


def _real_rows() -> list[tuple[str, str]]:
    rows = []
    for path in sorted((CORPUS / "legacy_cc_metadata").glob("**/*.tsv")):
        rows += [tuple(line.split("\t", 1)) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return rows


def with_bugs(document: dict[str, Any]) -> dict[str, Any]:
    """The document as the writer of 2012 wrote it. Of its bugs only the first is in the documents of the corpus.

    - A link's attribute called type overwrote the tag, which has the same key.
    - Links with another protocol than http, https, ftp, file, jar, mailto and gopher are missing.
    - Of a repeated header only the last value is there; cookies, content-encoding and hop-by-hop headers are missing.
    - ``content_len`` is the size of the body, whatever the server declared; an unknown ``server_ip`` is 0.0.0.0.
    - ``updated`` of RSS is lastBuildDate, even if pubDate is later. Truncated RSS has no content and no ``parsed_as``.
    - Dates of Atom entries are on the feed. Missing titles and descriptions of feeds and items are empty texts.
    """
    for link in document.get("content", {}).get("links", ()):
        if "type_attribute" in link:
            link["type"] = link.pop("type_attribute")
    return document


@needs_corpus
def test_real_rows_are_written_again_key_for_key() -> None:
    rows = _real_rows()
    assert len(rows) >= 50
    parsed = [read_metadata_json(text, _context(url)) for url, text in rows]
    documents = [json.loads(text) for _, text in rows]
    assert [with_bugs(metadata_object(each.metadata, each.links)) for each in parsed] == documents
    # and after a stay in the table
    table = to_record_batches(parsed)["page_metadata"].to_pylist()
    assert [with_bugs(metadata_object(row)) for row in table] == documents


@needs_corpus
def test_real_rows_fill_keys_and_links() -> None:
    parsed = [read_metadata_json(text, _context(url)) for url, text in _real_rows()]
    batches = to_record_batches(parsed)
    first = batches["page_metadata"].to_pylist()[0]
    assert first["parser"] == "commoncrawl-2012"
    assert first["source_kind"] == "sequencefile"
    assert first["warc_filename"] == "parse-output/segment/1341690147253/1341708194671_0.arc.gz"
    assert (first["warc_record_offset"], first["warc_record_length"], first["fetch_status"]) == (156, 9775, 200)
    kinds = Counter(row["type"] for row in batches["page_links"].to_pylist())
    assert kinds["a"] > 2000
    # link and script tags whose type attribute took the tag's place are known again
    assert kinds["link"] > 100
    assert kinds["script"] > 100
    assert kinds[None] < 0.01 * kinds.total()


def _own() -> dict[str, ParsedPage]:
    return {
        "html": parse_page(page(HTML)),
        "rss": parse_page(page(RSS, mime="text/xml")),
        "atom": parse_page(page(ATOM, mime="text/xml")),
    }


@pytest.mark.parametrize("kind", ["html", "rss", "atom"])
def test_documents_of_ours_read_and_written_again(kind: str) -> None:
    parsed = _own()[kind]
    document = metadata_object(parsed.metadata, parsed.links)
    again = read_metadata_json(json.dumps(document), _context("https://www.example.com/"))
    assert metadata_object(again.metadata, again.links) == document
    assert to_record_batches([again])["feed_items"].num_rows == len(parsed.feed_items)


def test_a_document_longer_than_the_bound_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"disposition": "SUCCESS"}'
    monkeypatch.setattr(reading, "MAX_DOCUMENT", len(text))
    assert read_metadata_json(text, page()).metadata["disposition"] == "SUCCESS"
    with pytest.raises(DataFault, match="longer than the bound"):
        read_metadata_json(text + " ", page())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 9999,
        '{"disposition": "SUCCESS", "http_result": "x"}',
        '{"disposition": "SUCCESS", "http_headers": {"a": 1}}',
        '{"disposition": "SUCCESS", "attempt_time": 1e300}',
        '{"disposition": "SUCCESS", "content": 7}',
        '{"disposition": "SUCCESS", "content": {"type": "rss-feed", "items": [3]}}',
        '{"disposition": "SUCCESS", "content": {"type": "html-doc", "title": {}}}',
        '{"disposition": "SUCCESS", "content": {"type": "html-doc", "links": [{"href": 3}]}}',
    ],
)
def test_what_is_no_document_is_a_fault(text: str) -> None:
    with pytest.raises(DataFault):
        read_metadata_json(text, _context("http://a/"))


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["content", "http_headers", "archiveInfo", "redirect_from", "attempt_time", "x"]), _json
    )
)
def test_odd_documents_are_rows_or_faults(document: dict[str, Any]) -> None:
    try:
        parsed = read_metadata_json(json.dumps({**document, "disposition": "SUCCESS"}), _context("http://a/"))
    except DataFault:
        return
    assert metadata_object(parsed.metadata, parsed.links)["disposition"] == "SUCCESS"
    assert to_record_batches([parsed])["page_metadata"].num_rows == 1
