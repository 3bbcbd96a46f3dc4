"""Media types that say nothing, or another thing than the bytes."""

from __future__ import annotations

from cc_pipeline_tests.conformance.responses import answer, case, resource

_HTML = "<!DOCTYPE html><title>Harbour</title><p>The ferry leaves at noon."
_FOUND = [("WARC-Identified-Payload-Type", "text/html")]
_FEED = "<rss version='2.0'><channel><title>News</title><item><title>One</title></item></channel></rss>"

CASES = (
    *(
        case(report, repr(value), answer(_HTML, value), fields=_FOUND, title="Harbour", type_from="archive")
        for report, value in (
            ("HtmlUnit/htmlunit#1104", "*/*"),
            ("apify/crawlee#498", ";charset=utf-8"),
            ("bda-research/node-crawler#193", "utf-8"),
            ("postmodern/spidr#32", "None"),
            ("MIME Sniffing 7", "unknown/unknown"),
            ("MIME Sniffing 7", "application/unknown"),
        )
    ),
    *(
        case(
            "MIME Sniffing 7",
            f"{value!r}, and no crawler looked",
            answer(_HTML, value),
            title="Harbour",
            type_from="bytes",
        )
        for value in (None, "", "*/*", "unknown/unknown", "text", "text/", "None")
    ),
    *(
        case(report, value, answer(_HTML, value), fields=_FOUND, title="Harbour", flags=["type_mismatch"])
        for report, value in (
            ("postmodern/spidr#32", "application/x-httpd-php"),
            ("MIME Sniffing 7", "application/octet-stream"),
            ("MIME Sniffing 7", "text/plain"),
        )
    ),
    case(
        "RFC 9110 8.3.1",
        "a type in capitals, with parameters in quotes",
        answer("<title>\u0434</title>".encode("cp1251"), 'Text/HTML; Charset="WINDOWS-1251"'),
        title="\u0434",
    ),
    case(
        "adbar/trafilatura#75",
        "XHTML under its own type",
        answer(
            "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><title>X</title></html>",
            "application/xhtml+xml",
        ),
        title="X",
        kind="html",
    ),
    case(
        "kurtmckee/feedparser#75",
        "a feed as HTML",
        answer(_FEED, "text/html"),
        kind="feed",
        item_titles=["One"],
    ),
    case("miniflux/v2#122", "a feed as plain text", answer(_FEED, "text/plain"), kind="feed", item_titles=["One"]),
    case(
        "bcomnes/jsonfeed-to-atom#5",
        "a JSON Feed as JSON",
        answer(
            '{"version":"https://jsonfeed.org/version/1.1","title":"N","items":[{"id":"1","title":"One","url":"/1"}]}',
            "application/json",
        ),
        kind="feed",
        item_titles=["One"],
        item_links=["https://www.example.com/1"],
    ),
    case(
        "plone/volto#6562",
        "a sitemap that is not compressed, as application/x-gzip",
        answer(
            "<?xml version='1.0'?><urlset><url><loc>https://a.example/1</loc></url></urlset>",
            "application/x-gzip; charset=utf-8",
        ),
        fields=[("WARC-Identified-Payload-Type", "application/xml")],
        url="https://www.example.com/sitemap.xml.gz",
        locs=["https://a.example/1"],
    ),
    case(
        "Fetch 2.2.2",
        "two types: the last counts, as in browsers",
        answer(_HTML, "text/plain", "Content-Type: text/html"),
        title="Harbour",
        kind="html",
    ),
    case(
        "Fetch 2.2.2",
        "a charset stays where the type is said again without one",
        answer("<title>\u0434</title>".encode("cp1251"), "text/html; charset=windows-1251", "Content-Type: text/html"),
        title="\u0434",
    ),
    case(
        "Fetch 2.2.2",
        "a type that says nothing behind one that does",
        answer(_HTML, "text/html", "Content-Type: */*"),
        title="Harbour",
        type_from="header",
    ),
    case(
        "MIME Sniffing 4.4",
        "a feed as a file of bytes",
        answer(_FEED, "application/octet-stream"),
        kind="feed",
        item_titles=["One"],
        type_from="bytes",
    ),
    *(
        resource(report, "a page without an HTTP header", _HTML.encode(), content_type, title="Harbour", failure=None)
        for report, content_type in (
            ("ukwa/webarchive-discovery#270", "text/html"),
            ("netarchivesuite/solrwayback#192", "text/html; charset=utf-8"),
            ("allenai/dolma#248", "application/xhtml+xml"),
        )
    ),
    resource(
        "arquivo/pwa-technologies#651",
        "its charset is the record's",
        "<title>Água</title>".encode("latin-1"),
        "text/html; charset=iso-8859-1",
        title="Água",
    ),
    resource(
        "netarchivesuite/solrwayback#193",
        "a feed without an HTTP header",
        _FEED.encode(),
        "text/xml",
        item_titles=["One"],
    ),
    resource(
        "arquivo/pwa-technologies#1332",
        "a picture of a page is no page",
        b"\x89PNG\r\n\x1a\n" * 9,
        "image/png",
        title=None,
        kind=None,
    ),
)
