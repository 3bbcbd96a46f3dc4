"""HTTP heads and codings of the body that are not as RFC 9110 and 9112 want them."""

from __future__ import annotations

import zlib

from cc_pipeline_tests.archive.builders import member
from cc_pipeline_tests.conformance.responses import URL, Has, answer, case

_HTML = b"<title>Harbour</title><p>The ferry leaves at noon.</p>"
_SITEMAP = b"<urlset><url><loc>https://www.example.com/a</loc></url></urlset>"


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _head(*lines: bytes, end: bytes = b"\r\n", body: bytes = _HTML) -> bytes:
    return end.join(lines) + end * 2 + body


CASES = (
    case(
        "iipc/jwarc#50",
        "a space in a field's name",
        _head(b"HTTP/1.1 200 OK", b"Power by: Auto", b"Content-Type: text/html"),
        title="Harbour",
    ),
    case(
        "chfoo/warcat#19",
        "lines end with LF, no reason, an address without scheme",
        _head(b"HTTP/1.1 302 ", b"nnCoection: close", b"Location: //cdn.example/x.js?tag=a-20", end=b"\n", body=b""),
        url="http://www.example.com/s/link?tag=a-20&o=1",
        status=302,
        redirect_to="http://cdn.example/x.js?tag=a-20",
    ),
    case(
        "tornadoweb/tornado#1940",
        "a status line that ends behind the number",
        _head(b"HTTP/1.1 200", b"Content-Type: text/html"),
        status=200,
        title="Harbour",
    ),
    case(
        "dotnet/corefx#27727",
        "a field over two lines",
        _head(
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/html;",
            b"\tcharset=windows-1251",
            body="<title>Порт</title>".encode("cp1251"),
        ),
        charset="windows-1251",
        title="Порт",
    ),
    case(
        "civetweb/civetweb#318",
        "a line without a colon",
        _head(b"HTTP/1.1 200 OK", b"X-Cache MISS", b"Content-Type: text/html"),
        title="Harbour",
    ),
    case(
        "nodejs/http-parser#105",
        "no status line at all: it is no HTTP, and never a page",
        _HTML,
        failure="NoData",
        title=None,
    ),
    case(
        "webrecorder/cdxj-indexer#21",
        "lines of a server's log in place of a response",
        b"19/Sep/2017:03:35:35 +0000|v1|192.0.2.4|www.example.com|200|17922|GET / HTTP/1.1||\n" * 40,
        failure="NoData",
    ),
    case(
        "RFC 9110 15.2",
        "interim responses before the final one",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" + answer(_HTML),
        status=200,
        title="Harbour",
    ),
    case(
        "internetarchive/warctools#14",
        "the length of the body as it was compressed",
        answer(_HTML, "text/html", "Content-Length: 31", "X-Crawler-Content-Encoding: gzip"),
        title="Harbour",
    ),
    case(
        "xroche/httrack#515",
        "called gzip, and plain",
        answer(_HTML, "text/html", "Content-Encoding: gzip"),
        title="Harbour",
    ),
    case(
        "apify/crawlee#373",
        "called deflate, without the zlib header",
        answer(_raw_deflate(_HTML), "text/html", "Content-Encoding: deflate"),
        title="Harbour",
    ),
    case(
        "xroche/httrack#515",
        "gzip that breaks off keeps what stands before",
        answer(member(_HTML + b"<p>tail " * 9000)[:-40], "text/html", "Content-Encoding: gzip"),
        title="Harbour",
    ),
    case(
        "bda-research/node-crawler#70",
        "gzip within gzip",
        answer(member(member(_SITEMAP)), "application/xml", "Content-Encoding: gzip"),
        url="https://www.example.com/sitemap.xml.gz",
        locs=["https://www.example.com/a"],
    ),
    case(
        "scrapy/scrapy#951",
        "a compressed file as application/octet-stream, compressed again on the way",
        answer(member(member(_SITEMAP)), "application/octet-stream", "Content-Encoding: gzip"),
        url="https://www.example.com/sitemap.xml.gz",
        fields=[("WARC-Identified-Payload-Type", "application/gzip")],
        locs=["https://www.example.com/a"],
    ),
    case(
        "RFC 9112 7.1",
        "chunks that the archive kept",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1b\r\n<title>Harbour</title><p>Th\r\n1c\r\ne ferry leaves at noon.</p> \r\n0\r\n\r\n",
        title="Harbour",
        text=Has("The ferry leaves at noon."),
    ),
    case(
        "psf/requests#5258",
        "raw bytes in Location",
        "HTTP/1.1 301 Moved\r\nLocation: /größe/中文\r\n\r\n".encode(),
        status=301,
        redirect_to="https://www.example.com/gr%C3%B6%C3%9Fe/%E4%B8%AD%E6%96%87",
    ),
    case(
        "scrapy/scrapy#2321",
        "bytes of Latin-1 in Location",
        "HTTP/1.1 301 Moved\r\nLocation: /café\r\n\r\n".encode("latin-1"),
        redirect_to="https://www.example.com/caf%E9",
    ),
    case(
        "Norconex/crawler#199",
        "capitals in the scheme and the host of Location",
        b"HTTP/1.1 302 Found\r\nLocation: HTTPS://Other.EXAMPLE/A\r\n\r\n",
        redirect_to="https://other.example/A",
    ),
    case(
        "sagebind/isahc#315",
        "spaces and a back slash in Location",
        b"HTTP/1.1 302 Found\r\nLocation:   /a b\\c  \r\n\r\n",
        redirect_to="https://www.example.com/a%20b/c",
    ),
    case(
        "RFC 9110 10.2.2",
        "a Location of a query alone",
        b"HTTP/1.1 302 Found\r\nLocation: ?page=2\r\n\r\n",
        redirect_to=f"{URL}?page=2",
    ),
    case(
        "webrecorder/pywb#584",
        "called chunked, and no chunks",
        answer(_HTML, "text/html", "Transfer-Encoding: chunked"),
        title="Harbour",
    ),
    case(
        "ukwa/webarchive-discovery#218",
        "chunks with extensions, zeros before their size, and a trailer",
        answer(
            b'5;a="b"\r\n<titl\r\n00011\r\ne>Harbour</title>\r\n0\r\nX: y\r\n\r\n',
            "text/html",
            "Transfer-Encoding: chunked",
        ),
        title="Harbour",
    ),
)
