"""Sitemaps as sites send them."""

from __future__ import annotations

from cc_pipeline_tests.archive.builders import member
from cc_pipeline_tests.conformance.responses import Has, answer, case

_LOC = "https://www.example.com/1"
_NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def _map(body: str, content_type: str = "application/xml") -> bytes:
    return answer(body, content_type)


def _urls(attributes: str, loc: str = _LOC, prefix: str = "") -> str:
    return f"<{prefix}urlset {attributes}><{prefix}url><{prefix}loc>{loc}</{prefix}loc></{prefix}url></{prefix}urlset>"


CASES = (
    *tuple(
        case(report, about, block, locs=[_LOC], kind="sitemap")
        for report, about, block in (
            (
                "crawler-commons/crawler-commons#174",
                "names with a prefix",
                _map(_urls(f"xmlns:sit='{_NAMESPACE}'", prefix="sit:")),
            ),
            (
                "crawler-commons/crawler-commons#210",
                "a namespace of before",
                _map(_urls("xmlns='http://www.google.com/schemas/sitemap/0.84'")),
            ),
            (
                "crawler-commons/crawler-commons#210",
                "a namespace without a scheme",
                _map(_urls("xmlns='//www.sitemaps.org/schemas/sitemap/0.9'")),
            ),
            ("GateNLP/ultimate-sitemap-parser#87", "no namespace", _map(_urls(""))),
            (
                "spatie/crawler#511",
                "a second namespace",
                _map(_urls(f"xmlns='{_NAMESPACE}' xmlns:image='http://www.google.com/schemas/sitemap-image/1.1'")),
            ),
            (
                "crawler-commons/crawler-commons#144",
                "white space before the declaration",
                _map("\n  <?xml version='1.0' encoding='UTF-8'?>" + _urls("")),
            ),
            (
                "nuxt-modules/sitemap#637",
                "a byte order mark before the declaration",
                _map("\ufeff<?xml version='1.0' encoding='UTF-8'?>" + _urls("")),
            ),
            (
                "webrecorder/browsertrix-crawler#578",
                "an address as character data",
                _map(_urls("", f"<![CDATA[{_LOC}]]>")),
            ),
            ("fljoly/xsitemap#4", "white space around an address", _map(_urls("", f"\n  {_LOC}\n"))),
            (
                "kobelobster/googlesitemapparser#12",
                "an index under text/xml",
                _map(
                    f"<sitemapindex xmlns='{_NAMESPACE}'><sitemap><loc>{_LOC}</loc></sitemap></sitemapindex>",
                    "text/xml",
                ),
            ),
            (
                "simplecrawler/simplecrawler#488",
                "a compressed file",
                answer(member(_urls("").encode()), "application/x-gzip"),
            ),
            (
                "crawler-commons/crawler-commons#144",
                "under text/html",
                _map("<?xml version='1.0'?>" + _urls(f"xmlns='{_NAMESPACE}'"), "text/html"),
            ),
        )
    ),
    case(
        "GateNLP/ultimate-sitemap-parser#6",
        "called compressed, and plain",
        answer("<?xml version='1.0'?>" + _urls(""), "application/xml", "Content-Encoding: gzip"),
        locs=[_LOC],
    ),
    case(
        "crawler-commons/crawler-commons#143",
        "a compressed list of addresses",
        answer(member(b"https://a.example/1\nhttps://a.example/2\n"), "text/plain", "Content-Encoding: gzip"),
        kind="text",
        text=Has("https://a.example/2"),
    ),
    case(
        "sitemaps.org",
        "a host in capitals, spaces and letters beyond ASCII",
        _map(_urls("", "HTTPS://Shop.EXAMPLE/größe a")),
        locs=["https://shop.example/gr%C3%B6%C3%9Fe%20a"],
    ),
)
