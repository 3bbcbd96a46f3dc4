"""robots.txt as sites have it."""

from __future__ import annotations

from typing import NamedTuple


class Rules(NamedTuple):
    """``rules`` are (agent, ``allow`` or ``disallow``, path as written) of a file, in order."""

    report: str
    about: str
    body: bytes
    rules: tuple[tuple[str, str, str], ...]


_ALL = (("*", "disallow", "/"),)

ROBOTS = (
    Rules("LAW-Unimi/BUbiNG#17", "a byte order mark", b"\xef\xbb\xbfUser-agent: *\nDisallow: /", _ALL),
    Rules("scrapy/scrapy#6195", "half a byte order mark", b"\xef\xbbUser-agent: *\r\nDisallow: /\r\n", _ALL),
    Rules("seomoz/reppy#50", "capitals", b"USER-AGENT: *\nDISALLOW: /", _ALL),
    Rules(
        "seomoz/reppy#47", "rules before any agent", b"Disallow: /\nUser-agent: a\nAllow: /b", (("a", "allow", "/b"),)
    ),
    Rules(
        "rejifald/movar#434",
        "two agents of one group",
        b"User-agent: *\nUser-agent: Googlebot\nDisallow: /private",
        (("*", "disallow", "/private"), ("googlebot", "disallow", "/private")),
    ),
    Rules(
        "rejifald/movar#434",
        "signs that stand for others",
        b"User-agent: a\nDisallow: /*.json$",
        (("a", "disallow", "/*.json$"),),
    ),
    Rules(
        "janreges/siteone-crawler#64",
        "each agent has its own rules",
        b"User-agent: *\nAllow: /\n\nUser-agent: Mediapartners-Google\nDisallow: /\nCrawl-delay: 5",
        (("*", "allow", "/"), ("mediapartners-google", "disallow", "/")),
    ),
    Rules(
        "crawler-commons/crawler-commons#112",
        "a sitemap ends no group",
        b"User-agent: a\nSitemap: https://a.example/s.xml\nDisallow: /x",
        (("a", "disallow", "/x"),),
    ),
    Rules(
        "yasserg/crawler4j#78",
        "a comment, spaces, line ends of the Mac",
        b" User-agent : a # b\r Disallow : /c # d\r",
        (("a", "disallow", "/c"),),
    ),
    Rules(
        "saltybeagle/Spider#38",
        "an agent that ends with a star",
        b"User-agent: test*\nDisallow: /",
        (("test", "disallow", "/"),),
    ),
    Rules("RFC 9309 2.2.2", "an empty rule rules nothing", b"User-agent: *\nDisallow:", ()),
    Rules(
        "RFC 9309 2.2.1", "a version behind an agent", b"User-agent: Bot/2.0\nDisallow: /", (("bot", "disallow", "/"),)
    ),
)
