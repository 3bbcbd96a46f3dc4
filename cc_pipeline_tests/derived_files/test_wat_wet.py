"""WAT and WET: both layouts, strings for numbers, and what is no such record."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.derived_files import json_text
from cc_pipeline.derived_files.document import read_metadata_json
from cc_pipeline.derived_files.pages import wat_pages, wet_pages
from cc_pipeline.derived_files.wat import WatLink, WatRecord, WetRecord, iter_wat, iter_wet
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.errors import DataFault
from cc_pipeline.workspace.source_files import SourceFile
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

WARCINFO = builders.warc(b"software: x\r\n", [("WARC-Type", "warcinfo"), ("WARC-Date", "2024-05-31T01:16:45Z")])
PAGE = PageInput("CC-MAIN-2012", "warc", "http://example.com/a", b"", source_kind="sequencefile")
WARC_HEADER = {
    "WARC-Type": "response",
    "WARC-Date": "2024-05-18T01:58:10Z",
    "WARC-Target-URI": "http://example.com/a",
    "WARC-Protocol": ["h2", "tls/1.3"],
}
RESPONSE = {
    "Response-Message": {"Version": "HTTP/1.1", "Status": "200", "Reason": "OK"},
    "Headers": {"Content-Type": "text/html", "Set-Cookie": ["a=1", "b=2"]},
    "Entity-Length": "4096",
    "Entity-Digest": "sha1:ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "HTML-Metadata": {
        "Head": {
            "Title": "T",
            "Base": "http://example.com/base/",
            "Metas": [{"name": "description", "content": "D"}, "odd"],
            "Link": [{"path": "LINK@/href", "url": "/f.ico", "rel": "icon"}],
            "Scripts": [{"path": "SCRIPT@/src", "url": "/s.js"}],
        },
        "Links": [{"path": "A@/href", "url": "/b", "text": "B"}, {"path": "STYLE/#text", "href": "/c.css"}, 7],
    },
}
TODAY = {
    "Container": {
        "Filename": "x.warc.gz",
        "Compressed": True,
        "Offset": "80610308",
        "Gzip-Metadata": {"Deflate-Length": "423", "Inflated-CRC": "-1106529533"},
    },
    "Envelope": {
        "Payload-Metadata": {
            "Actual-Content-Type": "application/http; msgtype=response",
            "Actual-Content-Length": "5000",
            "HTTP-Response-Metadata": RESPONSE,
        },
        "WARC-Header-Metadata": WARC_HEADER,
    },
}
IN_2015 = {
    "Container": {"Filename": "x.warc.gz", "Offset": 80610308, "Gzip-Metadata": {"Deflate-Length": 423}},
    "Envelope": {
        "Actual-Content-Length": 5000,
        "WARC-Header-Metadata": WARC_HEADER,
        "Payload-Metadata": {
            "Actual-Content-Type": "application/http; msgtype=response",
            "HTTP-Response-Metadata": {**RESPONSE, "Entity-Trailing-Slop-Bytes": "0"},
        },
    },
}


def wat(document: Any) -> list[WatRecord | DataFault]:
    block = document if isinstance(document, bytes) else json.dumps(document).encode()
    fields = [("WARC-Type", "metadata"), ("WARC-Date", "2024-05-31T01:17:49Z"), ("Content-Type", "application/json")]
    return list(iter_wat(builders.members([WARCINFO, builders.warc(block, fields)]), "x.wat.gz"))


@pytest.mark.parametrize("document", [TODAY, IN_2015])
def test_both_layouts_say_the_same(document: Any) -> None:
    (record,) = wat(document)
    assert isinstance(record, WatRecord)
    assert (record.warc_filename, record.warc_offset, record.warc_length) == ("x.warc.gz", 80610308, 423)
    assert (record.record_type, record.url) == ("response", "http://example.com/a")
    assert record.fetch_time == datetime(2024, 5, 18, 1, 58, 10, tzinfo=UTC)
    assert record.record_headers[-2:] == (("WARC-Protocol", "h2"), ("WARC-Protocol", "tls/1.3"))
    assert record.entity_length == 4096
    assert record.payload_digest == "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    assert (record.http_status, record.http_reason, record.http_version) == (200, "OK", "HTTP/1.1")
    assert record.http_headers == (("Content-Type", "text/html"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    html = record.html
    assert (html.title, html.base) == ("T", "http://example.com/base/")
    assert html.metas == ((("name", "description"), ("content", "D")),)
    assert html.head_links == (
        WatLink("LINK@/href", "/f.ico", (("path", "LINK@/href"), ("url", "/f.ico"), ("rel", "icon"))),
    )
    assert [link.url for link in html.scripts] == ["/s.js"]
    assert [(link.path, link.url) for link in html.links] == [("A@/href", "/b"), ("STYLE/#text", "/c.css")]


@pytest.mark.parametrize(
    "document", [b"", b"no json", b"[]", b"{}", b'{"Envelope": 7}', b"[" * 100_000, b'{"Envelope": {"a": "\xff"}}']
)
def test_what_is_no_wat_record_is_a_fault(document: bytes) -> None:
    (fault,) = wat(document)
    assert isinstance(fault, DataFault)
    assert fault.offset == len(builders.member(WARCINFO))


@pytest.mark.parametrize("read", [wat, lambda text: [read_metadata_json(text.decode(), PAGE)]])
def test_json_longer_than_the_bound_is_not_read(
    read: Callable[[bytes], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'{"disposition": "SUCCESS", "Envelope": {}}'
    monkeypatch.setattr(json_text, "MAX_JSON", len(text))
    assert isinstance(read(text)[0], WatRecord | ParsedPage)
    try:
        [fault] = read(text + b" ")
    except DataFault as raised:
        fault = raised
    assert isinstance(fault, DataFault)
    assert "longer than the bound" in fault.reason


def names_in_wat() -> set[str]:
    names: set[str] = set()
    stack: list[Any] = [TODAY]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            names |= set(one)
            stack += one.values()
        elif isinstance(one, list):
            stack += one
    return names


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(names_in_wat())), inner, max_size=6)
        ),
    )
)
def test_any_json_gives_a_record_or_a_fault(document: Any) -> None:
    (found,) = wat(
        {"Envelope": {"Payload-Metadata": document, "WARC-Header-Metadata": document}, "Container": document}
    )
    assert isinstance(found, WatRecord | DataFault)


def wet(text: bytes, **more: str) -> bytes:
    fields = [
        ("WARC-Type", "conversion"), ("WARC-Target-URI", "http://example.com/a"), ("WARC-Date", "2024-05-18T01:58:10Z"),
        ("WARC-Refers-To", "<urn:uuid:1>"), ("Content-Type", "text/plain"),
        *((name.replace("_", "-"), value) for name, value in more.items()),
    ]  # fmt: skip
    return builders.warc(text, fields)


def test_wet_records() -> None:
    text = "Ménü 文字\n".encode()
    data = builders.members([WARCINFO, wet(text, WARC_Identified_Content_Language="spa,eng"), wet(b"\xff")])
    first, second = list(iter_wet(data, "x.wet.gz"))
    assert isinstance(first, WetRecord)
    assert isinstance(second, WetRecord)
    assert (first.url, first.text, first.languages) == ("http://example.com/a", "Ménü 文字\n", ("spa", "eng"))
    assert (first.digest, first.flags) == (builders.sha1(text), ())
    assert first.offset == len(builders.member(WARCINFO))
    assert (second.text, second.languages) == ("\N{REPLACEMENT CHARACTER}", ())


def test_other_records_are_faults() -> None:
    data = builders.members([WARCINFO, builders.response(b"x"), wet(b"text")])
    fault, record = list(iter_wet(data, "x.wet.gz"))
    assert isinstance(fault, DataFault)
    assert isinstance(record, WetRecord)
    assert [type(found) for found in iter_wat(data, "x.wat.gz")] == [DataFault, DataFault]


@needs_corpus
def test_real_files() -> None:
    folder = CORPUS / "cc_warc_wat_wet"
    (request,) = list(iter_wat(folder / "whirlwind" / "whirlwind.warc.wat.gz", "w"))
    assert isinstance(request, WatRecord)
    assert (request.warc_offset, request.warc_length) == (80610308, 423)
    (page,) = list(iter_wat(folder / "fluo_wat" / "wat.warc", "w"))
    assert isinstance(page, WatRecord)
    assert (page.http_status, page.warc_offset) == (200, 195779)
    assert (len(page.html.links), len(page.html.scripts), len(page.html.metas)) == (10, 8, 17)
    for name in ("whirlwind.warc.wet", "whirlwind.warc.wet.gz"):
        (text,) = list(iter_wet(folder / "whirlwind" / name, "w"))
        assert isinstance(text, WetRecord)
        assert text.text.startswith("Escopete - Biquipedia, a enciclopedia libre\nIr al contenido\n")
        assert (text.languages, text.flags) == (("spa",), ())


@needs_corpus
def test_real_files_give_a_page_for_every_good_record() -> None:
    folder = CORPUS / "cc_warc_wat_wet"
    [page] = wat_pages(SourceFile("wat", "w", "CC-MAIN-2015-18"), folder / "fluo_wat" / "wat.warc")
    assert isinstance(page, ParsedPage)
    assert (page.metadata["http_result"], page.keys["warc_record_offset"]) == (200, 195779)
    assert page.metadata["content"]["title"]
    assert len(page.links) > 20
    for name, texts, faults in (
        ("cc_scala_tools_wet/fragment3.wet.gz", 5, 0),
        ("cc_scala_tools_wet/corrupt_starts_with_conversion.wet.gz", 5, 0),
        ("cc_scala_tools_wet/corrupt_warcconversion_1.wet.gz", 4, 1),
        ("cc_scala_tools_wet/fragment1_incomplete_last.wet.gz", 1, 1),
        ("crate_wet/example.wet.gz", 2, 0),
        ("whirlwind/whirlwind.warc.wet.gz", 1, 0),
    ):
        found = list(wet_pages(SourceFile("wet", "w", "CC-MAIN-2016-50"), folder / name))
        assert sum(isinstance(one, DataFault) for one in found) == faults, name
        assert len(found) == texts + faults, name
