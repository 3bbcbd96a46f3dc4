"""Feeds that are not well formed, and references in them."""

from __future__ import annotations

from cc_pipeline_tests.conformance.responses import answer, case

_SITE = "https://www.example.com"


def _rss(items: str, before: str = "") -> bytes:
    return answer(
        f"<?xml version='1.0'?>{before}<rss version='2.0'><channel><title>N</title>{items}</channel></rss>",
        "application/rss+xml",
    )


def _title(text: str) -> bytes:
    return _rss(f"<item><title>{text}</title></item><item><title>Next</title></item>")


def _atom(entry: str, attributes: str = "", *headers: str) -> bytes:
    feed = f"<feed xmlns='http://www.w3.org/2005/Atom' {attributes}><title>N</title>{entry}</feed>"
    return answer(feed, "application/atom+xml", *headers)


_BASED = "<entry xml:base='When/201x/'><title>T</title><link href='Texas'/><id>1</id></entry>"
#: Parameters whose names begin as references without a semicolon do.
_QUERY = "id=5&order=desc&lang=en&copy=1&region=eu&sect=2&para=3&times=4&not=5&num=6"

CASES = (
    case(
        "brief-rss/brief#184",
        "a reference of HTML",
        _title("The Clown&rsquo;s Joke"),
        item_titles=["The Clown’s Joke", "Next"],
    ),
    case("RssBandit/RssBandit#1168", "a dash as a reference", _title("a &mdash; b"), item_titles=["a — b", "Next"]),
    case(
        "martinrotter/rssguard#1770",
        "a soft hyphen as a reference",
        _title("co&shy;de"),
        item_titles=["co\xadde", "Next"],
    ),
    case(
        "miniflux/v2#122",
        "a bare ampersand",
        _title("filters & fc-rDNS"),
        item_titles=["filters & fc-rDNS", "Next"],
        flags=["feed_malformed"],
    ),
    case("miniflux/v2#546", "a control character", _title("back\x08space"), item_titles=["backspace", "Next"]),
    case(
        "miniflux/picoFeed#138",
        "an entity that the document declares",
        _rss("<item><title>a&nbsp;b</title></item>", "<!DOCTYPE rss [<!ENTITY nbsp '&#160;'>]>"),
        item_titles=["a\xa0b"],
    ),
    case("rbren/rss-parser#134", "a reference that nothing ends", _title("Q&A=1"), item_titles=["Q&A=1", "Next"]),
    *(
        case(report, f"bare ampersands in {where}", block, **{name: [f"https://shop.example/view?{_QUERY}"]})
        for report, where, name, block in (
            (
                "wp-e-commerce/WP-e-Commerce#169",
                "an RSS link",
                "item_links",
                _rss(f"<item><link>https://shop.example/view?{_QUERY}</link></item>"),
            ),
            (
                "feedbin/support#590",
                "an Atom link",
                "item_links",
                _atom(f"<entry><link href='https://shop.example/view?{_QUERY}'/></entry>"),
            ),
            (
                "crawler-commons/crawler-commons#24",
                "a sitemap",
                "locs",
                answer(f"<urlset><url><loc>https://shop.example/view?{_QUERY}</loc></url></urlset>", "application/xml"),
            ),
        )
    ),
    case(
        "feedbin/support#216",
        "a base within the feed's address",
        _atom(_BASED),
        url=f"{_SITE}/ongoing/ongoing.atom",
        item_links=[f"{_SITE}/ongoing/When/201x/Texas"],
    ),
    case(
        "rometools/rome#38",
        "a base on top of a base",
        _atom(_BASED, "xml:base='http://other.example/ongoing/'"),
        item_links=["http://other.example/ongoing/When/201x/Texas"],
    ),
    *(
        case(
            "RFC 9110 8.7",
            f"Content-Location is the base of a feed without one: {base!r}",
            _atom("<entry><link href='x'/></entry>", base, "Content-Location: /c/"),
            item_links=[right],
        )
        for base, right in (("", f"{_SITE}/c/x"), ("xml:base='http://a.example/'", "http://a.example/x"))
    ),
    case(
        "davorg-cpan/xml-feed#45",
        "references from the root of the base",
        _atom("<entry><link href='/recent/x.php'/></entry>", "xml:base='http://quake.example/'"),
        item_links=["http://quake.example/recent/x.php"],
    ),
    case(
        "ocaml/platform-blog#128",
        "nothing but relative references",
        _atom("<entry><link href='opam-2-6-0/'/></entry>"),
        url=f"{_SITE}/blog/feed.xml",
        item_links=[f"{_SITE}/blog/opam-2-6-0/"],
    ),
    case(
        "nt1m/livemarks#211",
        "a relative reference in RSS",
        _rss("<item><link>/category/test/</link></item>"),
        item_links=[f"{_SITE}/category/test/"],
    ),
    case(
        "simplepie/simplepie#744",
        "a fragment in content is of the entry's base",
        _atom(
            "<entry xml:base='/releases/15-3/'><content type='html'>&lt;a href='#rce'&gt;x&lt;/a&gt;</content></entry>"
        ),
        item_content=["<a href='#rce'>x</a>"],
        links=[],
    ),
    case(
        "brief-rss/brief#184",
        "a link with spaces and letters beyond ASCII is what a browser asks for",
        _rss("<item><link>\n HTTP://Shop.example/größe a </link></item>"),
        item_links=["http://shop.example/gr%C3%B6%C3%9Fe%20a"],
    ),
    case(
        "RFC 4287 4.1.3",
        "a text that could be base64",
        _atom("<entry><title>Test</title><summary>abcdefgh</summary></entry>"),
        item_titles=["Test"],
    ),
    *(
        case(
            report,
            about,
            answer(
                f"<rss xmlns:dc='http://purl.org/dc/elements/1.1/'><channel><item>{author}</item></channel></rss>",
                "application/rss+xml",
            ),
            item_authors=[names],
        )
        for report, about, author, names in (
            (
                "jangernert/FeedReader#853",
                "an address and a name",
                "<author>a@b.example</author><dc:creator>Jane Doe</dc:creator>",
                [None, "Jane Doe"],
            ),
            (
                "FreshRSS/FreshRSS#1968",
                "two",
                "<dc:creator>A B</dc:creator><dc:creator>C D</dc:creator>",
                ["A B", "C D"],
            ),
            ("rssboard.org", "a name behind an address", "<author>a@b.example (Jane Doe)</author>", ["Jane Doe"]),
        )
    ),
)
