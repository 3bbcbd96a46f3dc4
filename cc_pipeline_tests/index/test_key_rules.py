"""Every kind of lookup, in crawls with keys of either rule, of URLs with every kind of escape: against all rows there
are, whose keys another program makes."""

from __future__ import annotations

import codecs
import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from urllib.parse import unquote_to_bytes

import pytest

from cc_pipeline.commoncrawl.crawls import key_rule
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.commoncrawl.surt import KeyRule
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.testing.mini_crawl.indexes import write_columnar, write_zipnum
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec, gzip_member
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.lookup_world import World, harvest_world

LAST_BEFORE, FIRST_AFTER = "CC-MAIN-2024-51", "CC-MAIN-2025-05"
#: Escapes by kind: an Arabic site of Windows-1256, one of KOI8-R, text that begins as UTF-8 and ends as something else.
TAILS = {
    "not UTF-8": "/tags/%C3%CE%CA%C7.htm",
    "not UTF-8, lower": "/tags/%c3%ce%ca%c7.htm",
    "not UTF-8, in a query": "/list?tag=%E4%EE%F8&a=%c3%a9&%E4=1",
    "escaped twice": "/tags/%25C3%25CE",
    "escaped three times": "/a/%2525E9",
    "UTF-8": "/caf%C3%A9",
    "UTF-8, lower": "/caf%c3%a9/",
    "UTF-8, escaped twice": "/caf%25C3%25A9",
    "half a character": "/caf%C3",
    "half a character, then more": "/caf%C3%BA%C3",
    "both": "/x/%E2%82%AC%E2%82",
    "no escape": "/a%zz%",
    "an escaped percent": "/100%25",
    "plain": "/Plain?b=2&a=1",
}
HOSTS = (
    "forum.example.com", "www.example.com", "www.www2.example.com", "www.www.com", "www1355.com", "a.www.example.com",
    "b\u00fccher.example.de", "xn--bcher-kva.example.de", "пример.example.org",
)  # fmt: skip


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    bad = error.object[error.start : error.end]
    return "".join(f"%{byte:02X}" for byte in bad), error.end


codecs.register_error("as escapes", _as_escapes)


def resolved(text: str) -> str:
    """Escapes resolved again and again; those of bytes that are no UTF-8 stay, as Common Crawl's key maker does it."""
    while True:
        runs = re.sub("(?:%[0-9A-Fa-f]{2})+", lambda run: unquote_to_bytes(run[0]).decode("utf-8", "as escapes"), text)
        if runs == text:
            return text
        text = runs


def escaped(text: str, *, before: bool) -> str:
    again = "%" if before else "%(?![0-9A-F]{2})"
    text = re.sub(again, "%25", text)
    return re.sub("[^!-~]|#", lambda one: "".join(f"%{byte:02X}" for byte in one[0].encode()), text).lower()


@cache
def oracle_parts(url: str, *, before: bool) -> tuple[str, str, str]:
    """Host, path and query that keys are made of, by a program that has nothing in common with ours but the rules."""
    _, _, host, *rest = re.split("([/]{2}|(?<=[^/:])/)", url, maxsplit=2)
    path, _, query = f"/{rest[-1]}".partition("?")
    name = re.sub("^(www[0-9]*[.])+", "", host.encode("idna").decode().lower())
    return name, escaped(resolved(path), before=before), escaped(resolved(query), before=before)


def oracle_key(url: str, *, before: bool) -> str:
    name, path, query = oracle_parts(url, before=before)
    ordered = "&".join(sorted(query.split("&"), key=lambda one: (one.split("=", 1)[0], "=" in one, one)))
    bare = path[:-1] if path.endswith("/") and path != "/" else path
    return f"{','.join(reversed(name.split('.')))}){bare}{'?' if query else ''}{ordered}"


def is_meant(kind: str, value: str, url: str) -> bool:
    """Whether a capture is of a target, by the URLs alone."""
    host, wanted = (text.partition("://")[2].partition("/")[0].encode("idna").decode() for text in (url, value))
    if kind == "url":
        return oracle_key(url, before=False) == oracle_key(value, before=False)
    if kind == "prefix":
        one, other = (oracle_parts(text, before=False) for text in (url, value))
        if other[2]:
            return one[:2] == other[:2] and one[2].startswith(other[2])
        return one[0] == other[0] and one[1].startswith(other[1])
    if kind == "host":
        return host == wanted
    if kind == "domain":
        return host == wanted or host.endswith(f".{wanted}")
    return ".".join(reversed(host.split("."))).startswith(".".join(reversed(wanted.split("."))))


def all_urls() -> list[str]:
    return [f"http{'s' * (number % 2)}://{host}{tail}" for host in HOSTS for number, tail in enumerate(TAILS.values())]


def _captures(crawl: str) -> list[Capture]:
    before = crawl == LAST_BEFORE
    template = Capture(
        crawl, "warc", "warc", "html", "example.com", "", "", datetime(2024, 12, 1, tzinfo=UTC), 200, None, "A" * 32,
        "text/html", "text/html", None, None, None, f"crawl-data/{crawl}/segments/1.2/warc/f.warc.gz", 0, 100, "1.2",
        None, "A" * 32, 9, None, None,
    )  # fmt: skip
    return [
        replace(template, url=url, url_surtkey=oracle_key(url, before=before), warc_record_offset=100 * number)
        for number, url in enumerate(all_urls())
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("keys")
    root = home / "bucket"
    specs = [CrawlSpec(id, parts=3, row_group_rows=9, zipnum_lines=6) for id in (LAST_BEFORE, FIRST_AFTER)]
    spec = MiniCrawlSpec(crawls=tuple(specs))
    captures = [capture for crawl in specs for capture in _captures(crawl.id)]
    for crawl in specs:
        own = [capture for capture in captures if capture.crawl == crawl.id]
        lists = {
            "cc-index-table": write_columnar(root, spec, crawl, own),
            "cc-index": write_zipnum(root, spec, crawl, own),
        }
        for name, keys in lists.items():
            file = root / path_list_key(crawl.id, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip_member("".join(f"{key}\n" for key in keys).encode()))
    truth = MiniCrawlTruth(0, (LAST_BEFORE, FIRST_AFTER), tuple(captures))
    return harvest_world(root, home, truth, [LAST_BEFORE, FIRST_AFTER])


def _questions() -> list[tuple[str, str]]:
    """Kinds of targets, and what each is of, as a URL."""
    of_pages = [(kind, url) for url in all_urls() for kind in ("url", "prefix")]
    cut = [
        ("prefix", f"http://{host}{tail[:-length]}")
        for host in HOSTS[:3]
        for tail in TAILS.values()
        for length in (3, 6)
    ]
    whole = [
        (kind, f"http://{name}/")
        for name in (*HOSTS, "example.com", "com", "www.example.com")
        for kind in ("host", "domain", "rev")
    ]
    return of_pages + cut + whole


def _text(kind: str, value: str) -> str:
    name = value.partition("://")[2].rstrip("/")
    if kind == "rev":
        return "rev:" + ".".join(reversed(name.encode("idna").decode().split(".")))
    return f"{kind}:{value if kind in ('url', 'prefix') else name}"


@pytest.mark.parametrize(
    ("crawl", "via"),
    [
        (LAST_BEFORE, "zipnum"),
        pytest.param(LAST_BEFORE, "parquet", marks=pytest.mark.matrix),
        pytest.param(FIRST_AFTER, "zipnum", marks=pytest.mark.matrix),
        pytest.param(FIRST_AFTER, "parquet", marks=pytest.mark.matrix),
    ],
)
def test_every_look_up_finds_what_the_rows_say(world: World, crawl: str, via: str) -> None:
    questions = [
        (kind, value)
        for kind, value in _questions()
        if (kind, value) not in {("host", "http://com/"), ("domain", "http://com/")}
    ]
    targets = {}
    for kind, value in questions:
        target = parse_target(_text(kind, value))
        targets.setdefault(target.slug, (target, kind, target.value if kind in ("url", "prefix") else value))
    with Transport(str(world.root)) as transport:
        sources = IndexSources(transport, catalog=world.catalog, footers=world.home / "footers")
        answers = look_up(crawl, ["warc"], [target for target, _, _ in targets.values()], sources, via=via).captures
        alone = {
            slug: look_up(crawl, ["warc"], [target], sources, via=via).captures[slug]
            for slug, (target, _, _) in [*targets.items()][::40]
        }
    rows = [capture for capture in world.truth.captures if capture.crawl == crawl]
    assert len(targets) > 200
    for slug, (_, kind, value) in targets.items():
        expected = {capture.warc_record_offset for capture in rows if is_meant(kind, value, capture.url)}
        for answer in (answers, alone):
            if slug in answer:
                found = answer[slug]["warc_record_offset"].to_pylist()
                assert sorted(found) == sorted(expected), (kind, value)
        assert expected or kind != "url"


def test_the_rule_is_that_of_the_index() -> None:
    assert [key_rule(crawl) for crawl in ("CC-MAIN-2013-20", LAST_BEFORE, FIRST_AFTER, "CC-MAIN-2026-34")] == [
        KeyRule.UNTIL_2024, KeyRule.UNTIL_2024, KeyRule.TODAY, KeyRule.TODAY,
    ]  # fmt: skip
    assert key_rule("CC-MAIN-2012", "zipnum") is KeyRule.UNTIL_2024
    # indexes that are built here, and rows of trees, have keys of today
    for crawl, index in (("CC-NEWS-2017-05", "parquet"), ("LOCAL-mine", "parquet"), ("CC-MAIN-2012", "btree")):
        assert key_rule(crawl, index) is KeyRule.TODAY
