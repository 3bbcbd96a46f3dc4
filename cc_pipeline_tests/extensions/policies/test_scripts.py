"""Texts in scripts without spaces between words, or other spaces than English, through ``dataset`` by its default
rules."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa

from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.extensions.policies.dataset import FilterResult, Recipe, filter_pages
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.gold import gold_pages
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.extensions.policies.test_presets import PROSE

#: Sites of gold pages, and pages of newspaper's.
REAL = {"gmw": "zho", "pixnet": "zho", "qq": "zho", "youth": "zho", "entermedia.co.kr": "kor"}
NEWSPAPER = {"chinese_article": "zho", "japanese_article2": "jpn"}


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


@needs_corpus
def test_real_articles_are_left(tmp_path: Path) -> None:
    real = [(REAL[each.site], each.markup) for each in gold_pages() if each.site in REAL]
    folder = CORPUS / "html_text_metadata" / "newspaper" / "html"
    real += [(language, (folder / f"{name}.html").read_text("utf-8")) for name, language in NEWSPAPER.items()]
    found = sieved([markup for _, markup in real], Recipe(languages=("zho", "jpn", "kor", "tha")), tmp_path)
    assert {step.name: step.removed for step in found.steps if step.removed} == {}
    assert found.by_language == {"zho": 5, "jpn": 1, "kor": 1}


def test_a_page_without_figures_counts_for_no_rule(tmp_path: Path) -> None:
    found = sieved(["<body>", in_page(PROSE["zho"])], Recipe(), tmp_path)
    assert {step.name: step.removed for step in found.steps if step.removed} == {"main_text": 1}
