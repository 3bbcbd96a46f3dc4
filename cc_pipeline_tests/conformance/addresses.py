"""Addresses of a page: what its references mean, its base, its canonical address, where it sends its reader."""

from __future__ import annotations

from cc_pipeline_tests.conformance.responses import URL, answer, case

_SITE = "https://www.example.com"


def _page(head: str, body: str = "<p>One.") -> bytes:
    return answer(f"<!DOCTYPE html><head><title>A</title>{head}</head><body>{body}")


def _link(href: str) -> str:
    return f'<a href="{href}">x</a>'


CASES = (
    case(
        "Norconex/crawler#312",
        "a base relative to the page",
        _page('<base href="myself.html">', _link("?param=value")),
        links=[f"{_SITE}/dir/myself.html?param=value"],
    ),
    case(
        "internetarchive/heritrix3#208",
        "a base from the root",
        _page('<base href="/forum/">', _link("fa/89652/0/")),
        links=[f"{_SITE}/forum/fa/89652/0/"],
    ),
    case(
        "jaimeiniesta/metainspector#240",
        "a base of the root alone",
        _page('<base href="/">', _link("second.html")),
        links=[f"{_SITE}/second.html"],
    ),
    case(
        "jaimeiniesta/metainspector#240",
        "an empty base is none: it is the page",
        _page('<base href="">', _link("second.html")),
        links=[f"{_SITE}/dir/second.html"],
    ),
    case(
        "karust/openserp#42",
        "the base counts for the canonical address too",
        _page('<base href="/"><link rel="canonical" href="de/canonical.html">'),
        canonical=f"{_SITE}/de/canonical.html",
    ),
    case(
        "dondai44423/donsetch#269",
        "a base that is a script",
        _page('<base href="javascript:void(0)">', _link("p")),
        links=[f"{_SITE}/dir/p"],
        flags=["base_unusable"],
    ),
    case(
        "plasmate-labs/plasmate#456",
        "of several bases the first with an address counts",
        _page('<base target="_top"><base href="/one/"><base href="/two/">', _link("p")),
        links=[f"{_SITE}/one/p"],
    ),
    case(
        "adbar/courlan#143", "an empty reference is the page itself: no link", _page("", "<a href=''>x</a>"), links=[]
    ),
    case(
        "codelibs/fess#956", "a reference of a query alone", _page("", _link("?year=2016")), links=[f"{URL}?year=2016"]
    ),
    case(
        "Norconex/crawler#188",
        "a reference from the root",
        _page("", _link("/en/detail/x.html")),
        url=f"{_SITE}/en/articles.html?tx[a]=1",
        links=[f"{_SITE}/en/detail/x.html"],
    ),
    case(
        "cubiclesoft/ultimate-web-scraper#31",
        "spaces within a reference stay, as %20",
        _page("", _link(" some folder/a.jpg ")),
        links=[f"{_SITE}/dir/some%20folder/a.jpg"],
    ),
    case(
        "whatwg/url#419",
        "line ends and tabs within a reference go",
        _page("", _link("/a\n\tb\rc")),
        links=[f"{_SITE}/abc"],
    ),
    case(
        "ukwa/webarchive-discovery#169",
        "an escaped back slash stays escaped, a bare one is a slash",
        _page("", _link("/nb%5Cnb.nsf/a") + _link("\\x\\y")),
        links=[f"{_SITE}/nb%5Cnb.nsf/a", f"{_SITE}/x/y"],
    ),
    case(
        "mediacloud/metadata-lib#72",
        "the default port goes, another stays",
        _page("", _link("http://A.example:80/x") + _link("https://a.example:442/x")),
        links=["http://a.example/x", "https://a.example:442/x"],
    ),
    case(
        "URL 4.4",
        "dots, scheme-relative and international hosts",
        _page("", _link("../b/./c") + _link("//Bücher.example") + _link("http:d")),
        links=[f"{_SITE}/b/c", "https://xn--bcher-kva.example/", "http://d/"],
    ),
    case(
        "HTML 2.4.2",
        "a query in the page's charset",
        answer('<a href="/s?q=größe&p=grö">x</a>'.encode("latin-1"), "text/html; charset=iso-8859-1"),
        links=[f"{_SITE}/s?q=gr%F6%DFe&p=gr%F6"],
    ),
    case(
        "Norconex/crawler#646",
        "canonical is the second of three in one Link",
        answer(
            "<title>A</title>",
            "text/html",
            'Link: <https://a.example/logo.png>; rel="image_src",<https://a.example/page>; rel="canonical",'
            '<https://a.example/node/1>; rel="shortlink"',
        ),
        canonical="https://a.example/page",
    ),
    case(
        "Norconex/crawler#112",
        "a relative canonical address",
        _page('<link rel="canonical" href="/eu/57_de"/>'),
        canonical=f"{_SITE}/eu/57_de",
    ),
    case(
        "codelibs/fess#1440",
        "two canonical addresses, the same",
        _page('<link rel="canonical" href="/r"><link rel="canonical" href="/r">'),
        canonical=f"{_SITE}/r",
    ),
    case(
        "Norconex/crawler#164",
        "a canonical address in references",
        _page('<link rel="canonical" href="https&#x3a;&#x2f;&#x2f;test&#x2e;example&#x2f;web">'),
        canonical="https://test.example/web",
    ),
    case(
        "HTML 4.6.7",
        "rel has several words, in capitals",
        _page('<link rel="Shortlink CANONICAL" href="/c">'),
        canonical=f"{_SITE}/c",
    ),
    case(
        "apache/stormcrawler#1020",
        "a refresh in single quotes",
        _page("""<meta http-equiv="refresh" content="0;url='http://other.example/'">"""),
        refresh="http://other.example/",
    ),
    case(
        "scrapy/w3lib#32",
        "a line end before a refresh's address",
        _page('<meta http-equiv="refresh" content="0; URL=\n http://other.example/index.php">'),
        refresh="http://other.example/index.php",
    ),
    case(
        "scrapy/scrapy#23",
        "a refresh in quotes that are references",
        _page("<meta http-equiv='refresh' content='3; url=&#39;http://other.example/o&#39;'>"),
        refresh="http://other.example/o",
    ),
    case(
        "JustinBeckwith/linkinator#889",
        "a refresh whose quote nothing ends",
        _page("""<meta http-equiv="refresh" content="0; URL='/target?a;b">"""),
        refresh=f"{_SITE}/target?a;b",
    ),
    case(
        "whatwg/html#246",
        "a refresh without a semicolon",
        _page('<meta http-equiv="refresh" content="0 url=/t">'),
        refresh=f"{_SITE}/t",
    ),
    case(
        "whatwg/html#246",
        "no sign between time and address is none",
        _page('<meta http-equiv="refresh" content="0url=/t">'),
        refresh=None,
    ),
    case(
        "simplecrawler/simplecrawler#281",
        "no space, lower case",
        _page('<meta http-equiv=refresh content="1;url=https://a.example/5.2">'),
        refresh="https://a.example/5.2",
    ),
    case(
        "internetarchive/heritrix3#243",
        "commas in addresses, between them, and in brackets",
        _page("", '<img srcset="/a,b,,c 2x, /d,, /e (x,y),/f">'),
        pictures=[f"{_SITE}/a,b,,c", f"{_SITE}/d", f"{_SITE}/e", f"{_SITE}/f"],
    ),
    case(
        "ArchiveTeam/wpull#381",
        "commas in brackets of an address",
        _page("", '<img srcset="https://t0.example/h(100,100):o()/a.jpg 97w,https://t0.example/b.jpg 225w">'),
        pictures=["https://t0.example/h(100,100):o()/a.jpg", "https://t0.example/b.jpg"],
    ),
    case(
        "internetarchive/heritrix3#241",
        "data in a srcset",
        _page("", '<img srcset="data:image/gif;base64,R0lG 1x, /x.jpg 2x">'),
        pictures=["data:image/gif;base64,R0lG", f"{_SITE}/x.jpg"],
    ),
    case(
        "linkchecker/linkchecker#631",
        "one address with a comma and no descriptor",
        _page("", '<img srcset="/1920x1080/?text=A%20comma,%20this">'),
        pictures=[f"{_SITE}/1920x1080/?text=A%20comma,%20this"],
    ),
    case(
        "Codepoints/Codepoints.net#54",
        "languages of a page by its query, and the one for all others",
        _page('<link rel=alternate hreflang=de href="?lang=de"><link rel=alternate hreflang=x-default href="?">'),
        languages=[("de", f"{URL}?lang=de"), ("x-default", f"{URL}?")],
    ),
)
