"""Keys of URLs in Common Crawl's indexes. A key that a report calls wrong is still the one in the index."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """The key of a URL in the index."""

    report: str
    url: str
    key: str


KEYS = (
    Key("internetarchive/surt#28", "https://www1355544.com/", "com)/"),
    Key("commoncrawl/ia-web-commons#29", "https://www3288.com/a", "com)/a"),
    Key("internetarchive/surt#28", "https://www4.daily.co.jp/", "jp,co,daily)/"),
    Key("webrecorder/pywb#943", "https://www2.example.go.jp/b", "jp,go,example)/b"),
    Key("ukwa/webarchive-discovery#176", "http://www.example.com/foo.bar", "com,example)/foo.bar"),
    Key("edgi-govdata-archiving/web-monitoring-db#1209", "https://www.eia.gov", "gov,eia)/"),
    Key("edgi-govdata-archiving/web-monitoring-db#1209", "https://www.eia.example?x=1", "example,eia)/?x=1"),
    Key("oduwsdl/ipwb#368", "https://www.youtube.example/watch?v=aBcD", "example,youtube)/watch?v=abcd"),
    Key("mediacloud/metadata-lib#72", "http://do.ma.example:80/what/ever", "example,ma,do)/what/ever"),
    Key("mediacloud/metadata-lib#72", "https://do.ma.example:442/what", "example,ma,do:442)/what"),
    Key("mediacloud/metadata-lib#72", "http://10.2.3.4/hello/world.html", "4,3,2,10)/hello/world.html"),
    Key("webrecorder/specs#146", "http://example.com/a?b=2&a=1", "com,example)/a?a=1&b=2"),
    Key("equalitie/ouinet#28", "http://foo.example/foo%2dbar", "example,foo)/foo-bar"),
    Key("ukwa/ukwa-pywb#43", "http://example.org/index.html", "org,example)/index.html"),
    Key("whatwg/url#419", "http://example.org/a/../b/./c", "org,example)/b/c"),
    Key("URL 4.4", "http://bücher.example/größe", "example,xn--bcher-kva)/gr%c3%b6%c3%9fe"),
)
