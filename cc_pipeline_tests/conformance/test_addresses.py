"""One rule for every reference, a browser's: wherever it stands, its row has the same text, so that they join."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape, quoteattr

import can_ada
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.index.archive_rows import BUILT_SCHEMA, Tally, index_rows
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.conformance.responses import READERS, URL, Response, answer, observe

_ATOM = "<feed xmlns='http://www.w3.org/2005/Atom'><entry><link href={}/></entry></feed>"


_ATOM_CONTENT = "<feed xmlns='http://www.w3.org/2005/Atom'><entry><content type='html'>{}</content></entry></feed>"
_REDIRECT = BUILT_SCHEMA.get_field_index("fetch_redirect")


def _by_place(href: str) -> dict[str, object]:
    """What the rows say of a reference that stands at each place there is for one."""
    moved = Response(f"HTTP/1.1 301 Moved\r\nLocation: {href}\r\n\r\n".encode())
    text, quoted, in_json = escape(href), quoteattr(href), json.dumps(href)
    html, rss, xml = "text/html; charset=utf-8", "application/rss+xml", "application/xml"
    item = f'{{"version":"https://jsonfeed.org/version/1.1","items":[{{"id":"1","url":{in_json}}}]}}'
    pages = {
        "a link": ("links", f"<a href={quoted}>x</a>", html),
        "a canonical link": ("canonical", f"<link rel=canonical href={quoted}>", html),
        "RSS": ("item_links", f"<rss><channel><item><link>{text}</link></item></channel></rss>", rss),
        "Atom": ("item_links", _ATOM.format(quoted), "application/atom+xml"),
        "markup in a feed": ("links", _ATOM_CONTENT.format(escape(f"<a href={quoted}>x</a>")), "application/atom+xml"),
        "JSON Feed": ("item_links", item, "application/feed+json"),
        "a sitemap": ("locs", f"<urlset><url><loc>{text}</loc></url></urlset>", xml),
    }
    read = READERS["a stored member"]
    found = {place: observe(read(Response(answer(body, kind))))[name] for place, (name, body, kind) in pages.items()}
    [indexed] = index_rows(builders.member(moved.as_warc()), "crawl/x.warc.gz", None, Tally())
    assert not isinstance(indexed, DataFault)
    found |= {"Location": observe(read(moved))["redirect_to"], "an index of one's own": indexed[_REDIRECT]}
    return found


_PARTS = [
    "http:", "HTTPS://", "//", "Other.EXAMPLE", "Bücher.example", ":80", ":8x", "/", "..", ".", "a b", "größe", "中",
    "%zz", "%C3", "?q=é&x=1", "&lang=en", "\\", "#frag", "@", "'", '"', "<", "|", "[", "]", "~", "^",
]  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.sampled_from(_PARTS), min_size=1, max_size=6).map("".join))
def test_a_reference_means_the_same_everywhere(href: str) -> None:
    assume(not href.startswith("#"))  # within the page
    try:
        right = (can_ada.parse(URL) + href).href
    except ValueError:
        assume(False)
    found = _by_place(href)
    assert found == {place: [right] if isinstance(found[place], list) else right for place in found}


def test_what_is_no_reference_stays_as_written_or_is_none() -> None:
    found = _by_place("http://[bad/x")
    assert found.pop("a link") == found.pop("a sitemap") == [None]
    assert found.pop("markup in a feed") == [None]
    assert found == {
        "a canonical link": None,
        "RSS": ["http://[bad/x"],
        "Atom": ["http://[bad/x"],
        "JSON Feed": ["http://[bad/x"],
        "Location": None,
        "an index of one's own": "http://[bad/x",
    }
