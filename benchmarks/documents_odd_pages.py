"""Pages that are no articles: what each extractor keeps of them.

Four kinds are generated (a forum's thread, a shop's list, a link list, a home page), each in some templates, so that
it is known which texts are content and which are furniture. Besides, real pages of the corpus that are no gold
articles:
nobody marked them, so the share of the visible text that is kept is all that can be said.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean

import trafilatura
from resiliparse.extract.html2text import extract_plain_text

from benchmarks.report import Report, sized
from cc_pipeline.documents.html.content import main_content
from cc_pipeline_tests.corpus import CORPUS

Extract = Callable[[str], str | None]
_PAGES = sized(1, 24)
_WORDS = ("river", "bridge", "winter", "letter", "garden", "signal", "market", "engine", "copper", "window", "harbour")


def resiliparse_main(markup: str) -> str:
    """Main content by resiliparse alone."""
    return extract_plain_text(markup, main_content=True, alt_texts=False, comments=False, post_meta=False)


def trafilatura_main(markup: str) -> str:
    """Main content by trafilatura alone."""
    text = trafilatura.extract(markup, fast=True, include_comments=False, include_tables=True, deduplicate=False)
    return (text or "").strip()


@dataclass(frozen=True, slots=True)
class OddPage:
    """A page, the texts of its content, and those of its furniture."""

    markup: str
    content: tuple[str, ...]
    furniture: tuple[str, ...]


def _phrase(chance: random.Random, least: int, most: int) -> str:
    """Words that occur nowhere else: each has a number of its own."""
    return " ".join(f"{chance.choice(_WORDS)}{chance.randrange(10**9)}" for _ in range(chance.randint(least, most)))


def _thread(chance: random.Random) -> tuple[list[str], str]:
    posts = [_phrase(chance, 5, 60) for _ in range(chance.randint(3, 15))]
    outer, inner = chance.choice((("div", "p"), ("li", "div"), ("article", "p"), ("tr", "td")))
    rows = "".join(
        f"<{outer} class='post'><{inner} class='user'><a href='/u/{n}'>user{n}</a> joined 2011</{inner}>"
        f"<{inner} class='body'>{post}.</{inner}></{outer}>"
        for n, post in enumerate(posts)
    )
    holder = {"li": "ol", "tr": "table"}.get(outer, "div")
    return posts, f"<h1>Thread</h1><{holder}>{rows}</{holder}>"


def _shop(chance: random.Random) -> tuple[list[str], str]:
    goods = [_phrase(chance, 3, 9) for _ in range(chance.randint(8, 40))]
    outer, inner = chance.choice((("div", "span"), ("li", "div"), ("section", "p")))
    rows = "".join(
        f"<{outer} class='product'><a href='/p/{n}'><img src='/{n}.jpg'></a><{inner}>{good}</{inner}>"
        f"<{inner} class='price'>{n}.99 EUR</{inner}><button>Buy</button></{outer}>"
        for n, good in enumerate(goods)
    )
    return goods, f"<h1>Goods</h1>{f'<ul>{rows}</ul>' if outer == 'li' else f'<div class=grid>{rows}</div>'}"


def _list(chance: random.Random) -> tuple[list[str], str]:
    entries = [_phrase(chance, 4, 12) for _ in range(chance.randint(10, 60))]
    kind = chance.choice(("ul", "dl", "table"))
    if kind == "ul":
        rows = "".join(f"<li><a href='/{n}'>{entry}</a></li>" for n, entry in enumerate(entries))
    elif kind == "dl":
        rows = "".join(f"<dt>No {n}</dt><dd>{entry}</dd>" for n, entry in enumerate(entries))
    else:
        rows = "".join(f"<tr><td>{n}</td><td><a href='/{n}'>{entry}</a></td></tr>" for n, entry in enumerate(entries))
    return entries, f"<h1>Entries</h1><{kind}>{rows}</{kind}>"


def _home(chance: random.Random) -> tuple[list[str], str]:
    teasers = [(_phrase(chance, 4, 9), _phrase(chance, 10, 30)) for _ in range(chance.randint(4, 20))]
    rows = "".join(
        f"<div class='teaser'><h2><a href='/a/{n}'>{head}</a></h2><p>{text}.</p><a href='/a/{n}'>More</a></div>"
        for n, (head, text) in enumerate(teasers)
    )
    return [text for teaser in teasers for text in teaser], f"<h1>Welcome</h1>{rows}"


KINDS = {"forum": _thread, "shop": _shop, "list": _list, "home": _home}


def odd_pages(kind: str) -> list[OddPage]:
    """Generated pages of a kind, always the same."""
    found = []
    for number in range(_PAGES):
        chance = random.Random(f"{kind} {number}")
        content, body = KINDS[kind](chance)
        menu = [_phrase(chance, 1, 3) for _ in range(chance.randint(5, 15))]
        aside, footer = _phrase(chance, 5, 25), _phrase(chance, 8, 20)
        links = "".join(f"<li><a href='/m/{n}'>{each}</a></li>" for n, each in enumerate(menu))
        main = chance.choice(("main", "div id='content'", "div class='page'"))
        markup = (
            f"<html><head><title>{kind}</title></head><body><{chance.choice(('nav', 'header', 'div class=menu'))}>"
            f"<ul>{links}</ul></div></nav></header><{main}>{body}</{main.split()[0]}>"
            f"<{(side := chance.choice(('aside', 'div')))} class='sidebar'><p>{aside}</p></{side}>"
            f"<footer><p>{footer}</p></footer></body></html>"
        )
        found.append(OddPage(markup, tuple(content), (*menu, aside, footer)))
    return found


def _words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in text.split()}


def kept(extract: Extract, pages: Sequence[OddPage]) -> tuple[float, float]:
    """The mean share of content's words that is kept, and of furniture's."""
    shares = []
    for page in pages:
        found = {word.rstrip(".") for word in (extract(page.markup) or "").split()}
        content, furniture = _words(page.content), _words(page.furniture)
        shares.append((len(found & content) / len(content), len(found & furniture) / len(furniture)))
    return mean(share for share, _ in shares), mean(share for _, share in shares)


EXTRACTORS: dict[str, Extract] = {
    "ours": main_content,
    "trafilatura": trafilatura_main,
    "resiliparse": resiliparse_main,
}


def real_pages() -> Iterator[str]:
    """Pages of the corpus that come from no news site: structured data's examples, and captures that have no gold."""
    for path in sorted((CORPUS / "html_text_metadata" / "extruct").glob("**/*.html")):
        yield path.read_text(encoding="utf-8", errors="replace")
    for path in sorted((CORPUS / "html_text_metadata" / "html-text").glob("**/*.html*")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield data.decode("utf-8", errors="replace")
    yield from _captures()


def _captures() -> Iterator[str]:
    real = CORPUS / "realcrawl"
    expected = json.loads(gzip.decompress((real / "expected.json.gz").read_bytes()))
    for row in expected["CC-MAIN-2024-22"]:
        if row["url"] in expected["gold_texts"] or row["content_mime_detected"] != "text/html":
            continue
        with (real / "bucket" / row["warc_filename"]).open("rb") as file:
            file.seek(row["warc_record_offset"])
            record = gzip.decompress(file.read(row["warc_record_length"]))
        body = record.split(b"\r\n\r\n", 2)[2]
        if row["fetch_status"] == 200 and b"<body" in body.lower():
            yield body.decode("utf-8", errors="replace")


def bench_odd_pages(report: Report) -> None:
    """What is kept of pages that are no articles."""
    for kind in KINDS:
        pages = odd_pages(kind)
        for name, extract in EXTRACTORS.items():
            content, furniture = kept(extract, pages)
            note = f"of the content, and {furniture:.2f} of the furniture; {len(pages)} generated pages"
            report.figure(f"{kind}_kept_{name}", content, note=note)
    visible = ((page, set(extract_plain_text(page).split())) for page in real_pages())
    pages = list(islice(((page, seen) for page, seen in visible if seen), sized(3, None)))
    for name, extract in EXTRACTORS.items():
        shares = [len(seen & set((extract(page) or "").split())) / len(seen) for page, seen in pages]
        empty = sum(share == 0 for share in shares)
        report.figure(
            f"real_kept_{name}", mean(shares), note=f"of the visible words; nothing of {empty} of {len(pages)} pages"
        )
