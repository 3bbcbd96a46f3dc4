"""Texts in scripts without spaces between words, or other spaces than English, through ``dataset`` by its default
rules."""

from __future__ import annotations

import gzip
import html
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.extensions.policies.dataset import FilterResult, Recipe, build_datasheet, filter_pages
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.gold import PAGES, gold_articles
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.extensions.policies.test_presets import PROSE

#: Pages of the corpus in such scripts, by their language; one of the gold articles is Korean too.
REAL = {
    "zho": (
        *("readability/gmw/source.html", "readability_more/pixnet/source.html.gz"),
        *("readability_more/qq/source.html.gz", "readability_more/youth/source.html.gz"),
        "newspaper/html/chinese_article.html",
    ),
    "jpn": ("newspaper/html/japanese_article2.html",),
}


def sieved(markups: Iterable[str], recipe: Recipe, scratch: Path) -> FilterResult:
    """What becomes of pages, as the command does it."""
    parsed = [
        parse_page(replace(page(markup), url=f"https://example.com/{at}", warc_record_offset=at))
        for at, markup in enumerate(markups)
    ]
    texts = pa.Table.from_batches([to_record_batches([each])["page_text"] for each in parsed])
    with duckdb.connect() as connection:
        connection.register("texts", texts)
        # the published column is a list
        languages = "string_split(content_languages, ',') AS content_languages"
        return filter_pages(connection, f"SELECT * REPLACE ({languages}) FROM texts", recipe, scratch)


def in_page(text: str) -> str:
    paragraphs = "".join(f"<p>{html.escape(line)}</p>" for line in text.split("\n"))
    return f"<body><article><h1>{text[:12]}</h1>{paragraphs}</article></body>"


@pytest.mark.parametrize("language", PROSE)
def test_prose_of_our_own_is_left_and_what_is_none_is_taken(language: str, tmp_path: Path) -> None:
    first = PROSE[language].split("\n")[0]
    found = sieved([in_page(PROSE[language]), in_page("\n".join([first] * 9))], Recipe(languages=(language,)), tmp_path)
    took = {step.name: step.removed for step in found.steps if step.removed}
    assert (found.kept_pages, found.by_language) == (1, {language: 1}), took
    assert took == {"gopher: duplicate_lines": 1}
    # and the sheet says which rules nobody has numbers for
    sheet, told = build_datasheet(found, Recipe(languages=(language,)))
    assert "gopher: stop_words" in told["not_applied"][language]
    assert f"| {language} | " in sheet


@needs_corpus
def test_real_articles_are_left(tmp_path: Path) -> None:
    files = [PAGES / name for names in REAL.values() for name in names]
    data = [gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files]
    markups = [each.decode("utf-8", "replace") for each in data]
    markups += [markup for url, markup, _ in gold_articles() if "entermedia.co.kr" in url]
    found = sieved(markups, Recipe(languages=("zho", "jpn", "kor", "tha")), tmp_path)
    assert {step.name: step.removed for step in found.steps if step.removed} == {}
    assert found.by_language == {"zho": 5, "jpn": 1, "kor": 1}


def test_a_page_without_figures_counts_for_no_rule(tmp_path: Path) -> None:
    found = sieved(["<body>", in_page(PROSE["zho"])], Recipe(), tmp_path)
    taken = {step.name: step.removed_alone for step in found.steps if step.removed_alone}
    assert taken == {"main_text": 1}
