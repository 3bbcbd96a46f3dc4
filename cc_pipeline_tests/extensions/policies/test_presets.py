"""Presets against datatrove's verdicts, and languages that were not thought of when their rules were written."""

from __future__ import annotations

import gzip
import json

import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline.extensions.policies.dataset_filters import (
    PRESETS,
    failed_rules,
    split_words,
    unapplied_rules,
)
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.gold import PAGES, gold_articles
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.extensions.policies.blemished import VERDICTS, texts

#: Pages of the corpus by their language; one of the gold articles is Korean.
REAL = {
    "readability/gmw/source.html": "zho",
    "readability_more/pixnet/source.html.gz": "zho",
    "readability_more/qq/source.html.gz": "zho",
    "readability_more/youth/source.html.gz": "zho",
    "newspaper/html/chinese_article.html": "zho",
    "newspaper/html/japanese_article2.html": "jpn",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_verdicts_are_datatroves(preset: str) -> None:
    verdicts = json.loads(VERDICTS.read_text("utf-8"))
    ours = {at for at, text in enumerate(texts()) if failed_rules(text, "eng", [preset])}
    alike, spacy = ({int(at) for at in each[preset].split()} for each in verdicts.values())
    assert ours == alike, "datatrove on our words"
    assert len(ours ^ spacy) <= 0.02 * len(texts()), "datatrove on spaCy's"
    assert 0 < len(ours) < len(texts())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("नगर परिषद ने, मंगलवार।", ["नगर", "परिषद", "ने", ",", "मंगलवार", "।"]),
        ("মিল হাজার।", ["মিল", "হাজার", "।"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("قَالَ، «نَعَم»", ["قَالَ", "،", "«", "نَعَم", "»"]),
        ("می\u200cخواهم cafe\u0301s", ["می\u200cخواهم", "cafe\u0301s"]),
    ],
)
def test_signs_written_with_letters_part_no_word(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@needs_corpus
def test_real_articles_of_unspaced_scripts_pass() -> None:
    files = {name: (PAGES / name).read_bytes() for name in REAL}
    pages = {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in files.items()}
    articles = [(REAL[name], data.decode("utf-8", "replace")) for name, data in pages.items()]
    articles += [("kor", markup) for url, markup, _ in gold_articles() if "entermedia.co.kr" in url]
    assert len(articles) == 7
    for language, markup in articles:
        text = parse_page(page(markup)).text
        assert text is not None and text["content_languages"].startswith(language)
        assert failed_rules(text["main_content"], language, ["gopher", "c4"]) == set()


def test_rules_of_english_stay_with_english() -> None:
    assert unapplied_rules(["gopher", "c4"], "eng") == []
    assert unapplied_rules(["gopher"], "deu") == ["gopher: stop_words"]
    assert len(unapplied_rules(["gopher"], "zho")) == 11


def test_words_are_split_as_in_the_filters_of_others() -> None:
    said = split_words("Don't stop at 10:30, Mr. O'Brien's well-known (old) mill... it's 3,000 m! 河边 x")
    assert (
        " ".join(said) == "Do n't stop at 10:30 , Mr. O'Brien 's well - known ( old ) mill ... it 's 3,000 m ! 河 边 x"
    )
