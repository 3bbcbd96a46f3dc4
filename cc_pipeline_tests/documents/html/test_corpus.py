"""Real pages: main content of gold articles, what Readability expects, what extruct finds, and no crash on any."""

from __future__ import annotations

import gzip
import html
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import html as oracle

from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.documents.html.content import main_content
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.gold import f1, gold_articles
from cc_pipeline_tests.documents.pages import page

HTML = CORPUS / "html_text_metadata"
FAST = ParseOptions(main_content=False, language=False, text_simhash=False)


@needs_corpus
def test_main_content_of_gold_articles() -> None:
    score, precision, recall = f1(main_content)
    assert len(gold_articles()) > 80
    assert score >= 0.9746, (precision, recall)


def _tidy(value: str | None) -> str | None:
    return " ".join(html.unescape(value).split()) if value else None


@needs_corpus
def test_what_readability_expects_of_metadata() -> None:
    found: Counter[tuple[str, bool]] = Counter()
    wrong = []
    for folder in sorted((HTML / "readability").iterdir()):
        if not (folder / "expected-metadata.json").exists():
            continue
        expected = json.loads((folder / "expected-metadata.json").read_text(encoding="utf-8"))
        source = (folder / "source.html").read_bytes()
        text = parse_page(page(source, url="http://fakehost/test/page.html"), FAST).text
        assert text is not None
        for theirs, ours in (
            ("title", "title"),
            ("excerpt", "description"),
            ("siteName", "site_name"),
            ("lang", "html_lang"),
        ):
            wanted = _tidy(expected.get(theirs))
            # where a page has no description, Readability takes its first paragraph; we leave it out
            if theirs == "excerpt" and text[ours] is None:
                continue
            same = _tidy(text[ours]) == wanted
            found[theirs, same] += 1
            if not same:
                wrong.append((folder.name, theirs, wanted, text[ours]))
    assert sum(found.values()) > 110
    assert len(wrong) <= 2, wrong
    assert found["siteName", False] == found["lang", False] == found["excerpt", False] == 0


@needs_corpus
def test_json_ld_and_open_graph_as_extruct_finds_them() -> None:
    compared = 0
    for expected, source in _extruct_pairs():
        text = parse_page(page(source.read_bytes()), FAST).text
        assert text is not None
        wanted = json.loads(expected.read_text(encoding="utf-8"))
        objects = [each for document in text["json_ld"] or () for each in _objects(json.loads(document))]
        assert objects == wanted, source.name
        compared += 1
    assert compared >= 2


def _objects(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _extruct_pairs() -> Iterator[tuple[Path, Path]]:
    for expected in sorted((HTML / "extruct").glob("**/*.jsonld")):
        if (source := expected.with_suffix(".html")).exists():
            yield expected, source


@needs_corpus
def test_links_are_those_lxml_finds() -> None:
    """An independent parser: every link element with a value, in order, with the same attributes."""
    same = total = 0
    for _, markup, _ in gold_articles()[:40]:
        links = parse_page(page(markup), FAST).links
        ours = [(link.type, link.href) for link in links]
        tree = oracle.fromstring(markup.encode("utf-8"), parser=oracle.HTMLParser(encoding="utf-8"))
        names = {
            "a": "href",
            "area": "href",
            "link": "href",
            "img": "src",
            "script": "src",
            "iframe": "src",
            "frame": "src",
        }
        theirs = [
            (element.tag, value)
            for element in tree.iter(*names)
            if (value := element.get(names[element.tag])) and not value.startswith("#")
        ]
        total += len(theirs)
        same += sum((Counter(ours) & Counter(theirs)).values())
    assert total > 5_000
    assert same / total > 0.99


@needs_corpus
@pytest.mark.matrix
@pytest.mark.parametrize("folder", ["feeds", "charset", "html_text_metadata"])
@pytest.mark.parametrize("mime", ["text/html", "application/xml"])
def test_no_file_breaks_a_parser(folder: str, mime: str) -> None:
    parsed = []
    for path in sorted((CORPUS / folder).glob("**/*")):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            parsed.append(parse_page(page(data, mime=mime), FAST))
    assert len(parsed) > 50
    for each in parsed:
        assert each.metadata["disposition"] == "SUCCESS"
        assert json.loads(metadata_json(each.metadata, each.links))["disposition"] == "SUCCESS"
    assert to_record_batches(parsed)["page_metadata"].num_rows == len(parsed)
