"""Parsing real pages: speed against BeautifulSoup, main content against gold articles, charsets against detectors.

    python -m benchmarks.bench_documents
    python -m benchmarks.bench_documents --repeats 3

Needs the shared corpus (``CC_PIPELINE_CORPUS``, see cc_pipeline_tests/corpus.py) and, as rivals, whichever of
beautifulsoup4, feedparser, chardet, faust-cchardet and charset-normalizer are installed. Speeds are pages per second
of processor time of one process; ours and the rival take turns over the same pages.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from statistics import mean, median
from typing import Any
from unittest.mock import patch
from urllib.parse import urljoin, urlsplit

from publicsuffixlist import PublicSuffixList

from benchmarks.content_model import bench_unseen
from benchmarks.documents_odd_pages import bench_odd_pages, resiliparse_main, trafilatura_main
from benchmarks.documents_structure import bench_structure
from benchmarks.report import Report, sized, spread
from cc_pipeline.documents import parse
from cc_pipeline.documents.about import page as about
from cc_pipeline.documents.about.statements import Facts
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.charset import decode
from cc_pipeline.documents.document2012.simhash import text_simhash
from cc_pipeline.documents.feeds.rows import parse_feed
from cc_pipeline.documents.html import content, tree
from cc_pipeline.documents.html.content import extract, main_content
from cc_pipeline.documents.page import Limits, PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.documents.signals.quality import fingerprint, quality
from cc_pipeline.records.pages import page_of
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.documents.gold import gold_articles, mean_f1
from cc_pipeline_tests.documents.news import htmldate_day, news_pages, same_names, trafilatura_author
from cc_pipeline_tests.documents.pages import identity
from cc_pipeline_tests.documents.unlabelled import unlabelled_documents
from cc_pipeline_tests.records.planned import real_captures
from cc_pipeline_tests.world import ARC, NEW, OLD

#: Metadata, links and full text; the rest is measured by itself and in ``whole_row``.
METADATA_LINKS_TEXT = ParseOptions(main_content=False, language=False, text_simhash=False)
RIVAL_EVERY = 3
#: Of so many pages one is taken.
_EVERY = sized(12, 1)
BATCH = 16


def _gold() -> list[tuple[str, str, str]]:
    return gold_articles()[::_EVERY]


def _bucket_pages() -> list[PageInput]:
    """The pages of the corpus' bucket: articles, lists, forms, feeds and errors, as a crawl has them."""
    pages: list[PageInput | ParsedPage] = []
    for crawl in (NEW, OLD, ARC):
        for row in real_captures(CORPUS, crawl).to_pylist()[::_EVERY]:
            with open(CORPUS / "realcrawl" / "bucket" / row["warc_filename"], "rb") as file:
                file.seek(row["warc_record_offset"])
                member = file.read(row["warc_record_length"])
            stored = {"outcome": "fetched", "stored_file": row["warc_filename"], "stored_offset": 0}
            pages.append(page_of((row | stored, member)))
    return [page for page in pages if isinstance(page, PageInput)]


@dataclass(frozen=True, slots=True)
class Timed:
    """Rates of some repeats, things per second of processor time."""

    rates: list[float]

    @property
    def rate(self) -> float:
        return median(self.rates)


def timed(work: Callable[[Any], object], things: Sequence[Any], repeats: int) -> Timed:
    """Does ``work`` on all things, ``repeats`` times."""
    return Timed([_rate(work, things) for _ in range(repeats)])


def in_turns(
    ours: Callable[[Any], object], rival: Callable[[Any], object], things: Sequence[Any], repeats: int
) -> tuple[Timed, Timed]:
    """Both on the same things, one after the other each time, so that what else the machine does weighs on both."""
    pairs = [(_rate(ours, things), _rate(rival, things)) for _ in range(repeats)]
    return Timed([pair[0] for pair in pairs]), Timed([pair[1] for pair in pairs])


def _rate(work: Callable[[Any], object], things: Sequence[Any]) -> float:
    gc.collect()  # what the one before left lying about is not to be cleared away on this one's time
    started = time.process_time()
    for thing in things:
        work(thing)
    return len(things) / max(time.process_time() - started, 1e-9)


def bench_pages(report: Report, pages: Sequence[PageInput], repeats: int) -> None:
    """What every page pays for."""
    some = pages[::RIVAL_EVERY]
    ours, rival = in_turns(lambda page: parse_page(page, METADATA_LINKS_TEXT), bs4_page, some, repeats)
    note = f"BeautifulSoup with lxml, {len(some)} pages; ours {spread(ours.rates)}, rival {spread(rival.rates)}"
    report.figure("metadata_links_text", ours.rate, rival.rate, 20, unit="pages/s", goal_on="ratio", note=note)
    every = timed(lambda page: parse_page(page, METADATA_LINKS_TEXT), pages, repeats)
    size = mean(len(page.payload) for page in pages)
    note = f"{len(pages)} pages of {size / 1000:.0f} KB mean; best {max(every.rates):.0f}"
    report.figure("metadata_links_text_rate", every.rate, None, 500, unit="pages/s", note=note)
    texts = [decode(page.payload, "utf-8").text for page in pages]
    hashed = timed(text_simhash, texts, repeats)
    report.figure("text_simhash", hashed.rate, unit="pages/s", note="the 2012 value, over the whole decoded page")
    whole = timed(parse_page, pages, repeats)
    note = "with main content, language, text_simhash"
    report.figure("whole_row", whole.rate, unit="pages/s", note=f"{note}; {spread(whole.rates)}")
    parsed = [parse_page(page, METADATA_LINKS_TEXT) for page in pages]
    batches = [parsed[at : at + BATCH] for at in range(0, len(parsed), BATCH)]
    arrow = timed(to_record_batches, batches, repeats)
    report.figure(
        "rows_to_arrow", arrow.rate * len(pages) / len(batches), unit="pages/s", note=f"{BATCH} pages a batch"
    )


def bench_bucket(report: Report, repeats: int) -> None:
    """The same of all pages that a crawl has, of which few are articles."""
    parsed = ((page, parse_page(page, METADATA_LINKS_TEXT)) for page in _bucket_pages())
    pages = [page for page, rows in parsed if rows.metadata.get("parsed_as") == "html"][::RIVAL_EVERY]
    ours, rival = in_turns(lambda page: parse_page(page, METADATA_LINKS_TEXT), bs4_page, pages, repeats)
    note = f"the bucket's pages of HTML, {len(pages)}; ours {spread(ours.rates)}, rival {spread(rival.rates)}"
    report.figure("metadata_links_text_bucket", ours.rate, rival.rate, 20, unit="pages/s", goal_on="ratio", note=note)


def bench_main_content(report: Report, repeats: int) -> None:
    """Quality on gold articles and speed on the same pages."""
    pages = [page for _, page, _ in _gold()]
    for name, extract_main, goal in (("ours", main_content, 0.9746), ("trafilatura", trafilatura_main, None)):
        score, precision, recall = mean_f1([(extract_main(page) or "", truth) for _, page, truth in _gold()])
        note = f"precision {precision:.3f}, recall {recall:.3f}, {len(pages)} articles"
        report.figure(f"main_content_{name}_f1", score, None, goal, note=note)
        rate = timed(extract_main, pages, repeats)
        report.figure(f"main_content_{name}_rate", rate.rate, unit="pages/s", note=spread(rate.rates))

    bare, ours = in_turns(resiliparse_main, main_content, pages, repeats)
    report.figure("main_content_model_price", 1000 / ours.rate - 1000 / bare.rate, unit="ms", note="beside resiliparse")


def bench_signals(report: Report, repeats: int) -> None:
    """What the columns over the main text cost."""
    texts = [main_content(page) for _, page, _ in _gold()]
    size = mean(len(text or "") for text in texts)
    for name, work in (("fingerprint", fingerprint), ("quality", quality)):
        rate = timed(work, texts, repeats)
        report.figure(f"{name}_price", 1000 / rate.rate, unit="ms", note=f"a text of {size:.0f} characters, {name}")
    pages = [page for _, page, _ in _gold()]
    plain, marked = in_turns(
        partial(_extract, with_markdown=False), partial(_extract, with_markdown=True), pages, repeats
    )
    report.figure("markdown_price", 1000 / marked.rate - 1000 / plain.rate, unit="ms", note="from the tree")


def _extract(markup: str, *, with_markdown: bool) -> object:
    document = tree.parse_html(markup, "", Limits(), links=False, with_tables=True)
    return extract(document, markup, with_markdown=with_markdown)


def bench_charset(report: Report, repeats: int) -> None:
    """Unlabelled documents decoded to the right text: ours and every detector that is here."""
    documents = unlabelled_documents()[::_EVERY]

    def right(decoder: Callable[[bytes], str | None]) -> int:
        return sum((decoder(data) or "").lstrip("\ufeff") == text for data, text in documents)

    ours = right(lambda data: decode(data, markup=False).text)
    counts = {name: right(decoder) for name, decoder in charset_rivals().items()}
    best = max(counts.values(), default=None)
    note = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) + f"; {len(documents)} documents"
    report.figure("charset_right", ours, best, 1, unit="documents", goal_on="ratio", note=note)
    rate = timed(lambda pair: decode(pair[0], markup=False), documents, repeats)
    report.figure("charset_rate", rate.rate, unit="documents/s")


def bench_feeds(report: Report, repeats: int) -> None:
    """Real-sized feeds made of the corpus' items, ours against feedparser."""
    files = sorted((CORPUS / "feeds").glob("*/**/*.xml"))
    feeds = [
        data for data in (path.read_bytes() for path in files[:: 4 * _EVERY]) if b"<item" in data or b"<entry" in data
    ]
    ours, rival = in_turns(lambda data: parse_feed(decode(data).text, Limits()), feedparser_feed, feeds, repeats)
    report.figure("feeds", ours.rate, rival.rate, unit="feeds/s", note=f"feedparser; {len(feeds)} small feeds")


def bench_machine(report: Report, pages: Sequence[PageInput], rounds: int) -> None:
    """All cores against one, with whole rows, processes and Arrow streams included; by the clock."""
    cores = len(os.sched_getaffinity(0))
    work = [list(pages[at : at + BATCH]) for _ in range(rounds) for at in range(0, len(pages) - BATCH + 1, BATCH)]
    rates: dict[int, list[float]] = {}
    for workers in (1, cores, 1, cores):
        started = time.perf_counter()
        parts = parse_batches(work, ParseOptions(), workers, identity)
        rows = sum(each["page_metadata"].num_rows for each in parts)
        rates.setdefault(workers, []).append(rows / (time.perf_counter() - started))
    one, all_cores = max(rates[1]), max(rates[cores])
    note = f"{cores} cores; load {os.getloadavg()[0]:.1f}, other work on the machine counts against it"
    report.figure("whole_machine", all_cores, one, 1.75, unit="pages/s", goal_on="ratio", note=note)


def html_page(url: str, markup: str) -> PageInput:
    """A page as a server of today sends it."""
    return PageInput(
        crawl="CC-MAIN-2024-22",
        subset="warc",
        url=url,
        payload=markup.encode(),
        http_status=200,
        http_status_line="HTTP/1.1 200 OK",
        http_headers=(("Content-Type", "text/html; charset=utf-8"),),
    )


def found_and_agreed(report: Report) -> None:
    """Dates and authors of news pages beside htmldate's and trafilatura's."""
    news = news_pages()[:: sized(40, 1)]
    rows = [parse_page(html_page(url, markup), METADATA_LINKS_TEXT).metadata for url, markup in news]
    days = [htmldate_day(url, markup) for url, markup in news]
    both = [(row["published_day"], day) for row, day in zip(rows, days, strict=True) if row["published"] and day]
    same = sum(ours == theirs for ours, theirs in both)
    near = sum(abs(ours - theirs).days <= 1 for ours, theirs in both)
    found, theirs = sum(bool(row["published"]) for row in rows), sum(map(bool, days))
    note = f"stated; htmldate also guesses; {len(news)} news pages; {_sources(rows, 'published_from')}"
    report.figure("published_found", found, theirs, unit="dates", note=note)
    note = f"within a day of htmldate's, {same} of {len(both)} on the same"
    report.figure("published_agreement", near / len(both), None, 0.98, note=note)
    names = [trafilatura_author(url, markup) for url, markup in news]
    named = [(row["author"], name) for row, name in zip(rows, names, strict=True) if row["author"] and name]
    found, theirs = sum(bool(row["author"]) for row in rows), sum(map(bool, names))
    note = f"trafilatura; {_sources(rows, 'author_from')}"
    report.figure("author_found", found, theirs, 1, unit="authors", goal_on="ratio", note=note)
    agreed = sum(same_names(*pair) for pair in named)
    note = f"{agreed} of {len(named)}; where they differ it mostly has the magazine's name"
    report.figure("author_agreement", agreed / len(named), None, 0.95, note=note)


def _sources(rows: Sequence[Any], column: str) -> str:
    counts = Counter(row[column] for row in rows if row[column])
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


#: Where each part of a row is called, by the name it is shown under.
_PARTS: tuple[tuple[str, object, str], ...] = (
    ("body", parse, "uncoded"),
    ("md5", hashlib, "md5"),
    ("charset", parse, "decode"),
    ("bounds", tree, "bounded"),
    ("lexbor", tree, "build_tree"),
    ("walk", tree, "walk"),
    ("json_ld", about, "json_ld"),
    ("facts", about, "Facts"),
    ("facts", Facts, "structured"),
    ("dates", about, "published"),
    ("dates", about, "modified"),
    ("json_ld", about, "Nodes"),
    ("author", about, "author"),
    ("robots_relations", about, "robots"),
    ("robots_relations", about, "relations"),
    ("trees", content, "likelihoods"),
    ("kept", content, "content_of"),
    ("language", parse, "detect_languages"),
    ("text_simhash", parse, "text_simhash"),
    ("signals", parse, "main_text_signals"),
)


def price_of_parts(report: Report, pages: Sequence[PageInput], repeats: int) -> None:
    """What each part of a row costs a page, in milliseconds of processor time, without the parts within it."""
    spent: dict[str, float] = defaultdict(float)
    open_parts = [0.0]

    def clocked(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed_work(*args: Any, **kwargs: Any) -> Any:
            open_parts.append(0.0)
            started = time.process_time()
            try:
                return work(*args, **kwargs)
            finally:
                whole = time.process_time() - started
                spent[name] += whole - open_parts.pop()
                open_parts[-1] += whole

        return timed_work

    for page in pages:
        parse_page(page)
    with ExitStack() as stack:
        for name, place, called in _PARTS:
            stack.enter_context(patch.object(place, called, clocked(name, getattr(place, called))))
        gc.collect()
        started = time.process_time()
        for _ in range(repeats):
            for page in pages:
                parse_page(page)
        spent["rest"] = time.process_time() - started - open_parts[0]
    for name, seconds in sorted(spent.items(), key=lambda each: -each[1]):
        share = f"{seconds / sum(spent.values()):.0%} of a row"
        cost = seconds * 1000 / len(pages) / repeats
        report.figure(f"part_{name}", cost, unit="ms/page", higher_is_better=False, note=share)


_LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src", "script": "src", "link": "href", "img": "src"}


def bs4_page(page: PageInput) -> tuple[Any, ...]:
    """What ``parse_page`` gives for metadata, links and text, by BeautifulSoup: the payload's digest, title, meta tags,
    OpenGraph, JSON-LD and canonical URL, links with all attributes, text, absolute URL, host and registered domain,
    and the full text."""
    soup = importlib.import_module("bs4").BeautifulSoup(page.payload, "lxml", from_encoding="utf-8")
    digest = hashlib.md5(page.payload, usedforsecurity=False).hexdigest()
    title = soup.title.get_text() if soup.title else None
    tags = [dict(tag.attrs) for tag in soup.find_all("meta")]
    graph = {tag["property"]: tag.get("content") for tag in tags if tag.get("property", "").startswith("og:")}
    documents = [_json(tag.get_text()) for tag in soup.find_all("script", type="application/ld+json")]
    canonical = soup.find("link", rel="canonical")
    links = []
    domains: dict[str | None, str | None] = {None: None}
    for tag in soup.find_all(list(_LINKS)):
        href = tag.get(_LINKS[tag.name])
        if href and not href.startswith("#"):
            try:
                url = urljoin(page.url, href)
                host = urlsplit(url).hostname
            except ValueError:
                url = host = None
            if host not in domains:
                domains[host] = _suffixes().privatesuffix(host)
            links.append((tag.name, href, url, host, domains[host], tag.get_text(" ", strip=True), dict(tag.attrs)))
    for tag in soup(["script", "style", "noscript"]):
        tag.decompose()
    return digest, title, tags, graph, documents, canonical, links, soup.get_text(" ", strip=True)


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def feedparser_feed(data: bytes) -> object:
    """A feed by feedparser."""
    return importlib.import_module("feedparser").parse(data)


#: By module: what finds the encoding of some bytes.
_DETECTORS: dict[str, Callable[[Any, bytes], str | None]] = {
    "resiliparse.parse.encoding": lambda module, data: module.detect_encoding(
        data, html5_compatible=False, max_len=len(data)
    ),
    "chardet": lambda module, data: module.detect(data)["encoding"],
    "cchardet": lambda module, data: module.detect(data)["encoding"],
    "charset_normalizer": lambda module, data: getattr(module.from_bytes(data).best(), "encoding", None),
}


def charset_rivals() -> dict[str, Callable[[bytes], str | None]]:
    """Detectors that are installed, as decoders."""
    found: dict[str, Callable[[bytes], str | None]] = {}
    for name, detect in _DETECTORS.items():
        with suppress(ImportError):
            found[name.partition(".")[0]] = partial(_by, detect, importlib.import_module(name))
    return found


def _by(detect: Callable[[Any, bytes], str | None], module: Any, data: bytes) -> str | None:
    return _decoded(data, detect(module, data))


def _decoded(data: bytes, name: str | None) -> str | None:
    try:
        return data.decode(name, "replace") if name else None
    except (LookupError, UnicodeError):
        return None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--repeats", type=int, default=sized(1, 5))
    arguments.add_argument(
        "--rounds", type=int, default=sized(1, 6), help="times the pages are parsed for whole_machine"
    )
    asked = arguments.parse_args()
    if not CORPUS.is_dir():
        raise SystemExit("The corpus is not beside this checkout; CC_PIPELINE_CORPUS says where it is.")
    pages = [html_page(url if url.startswith("http") else f"http://{url}", markup) for url, markup, _ in _gold()]
    report = Report("documents", {"pages": len(pages), "repeats": asked.repeats})
    bench_pages(report, pages, asked.repeats)
    bench_bucket(report, asked.repeats)
    found_and_agreed(report)
    price_of_parts(report, pages, asked.repeats)
    bench_main_content(report, max(1, asked.repeats // 2))
    bench_signals(report, asked.repeats)
    bench_structure(report)
    if find_spec("lightgbm"):
        bench_unseen(report)
    else:
        print("structure_…_unseen: not measured, lightgbm is not installed", flush=True)
    bench_odd_pages(report)
    bench_charset(report, asked.repeats)
    bench_feeds(report, asked.repeats)
    bench_machine(report, pages, asked.rounds)
    report.write()


if __name__ == "__main__":
    main()
