"""The presets of ``dataset`` beside datatrove's own filters: for each preset and rule, on how many English texts both
give the same verdict.

    python -m benchmarks.dataset_rules            # needs datatrove, nltk and spacy, wherever they are installed
    python -m benchmarks.dataset_rules --write    # and writes the verdicts that the tests hold ours against

Texts are generated (prose with every kind of blemish), and with the corpus beside the checkout its English main
contents, by two extractors. One comparison lets datatrove split words as ours does: verdicts must be equal there. The
other leaves it spaCy's words.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from cc_pipeline.documents.html.content import Extractor, main_content
from cc_pipeline.documents.html.text import detect_languages
from cc_pipeline.documents.signals.presets import PRESETS, failed, split_words
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.documents.gold import gold_pages
from cc_pipeline_tests.documents.signals.blemished import VERDICTS
from cc_pipeline_tests.documents.signals.blemished import texts as generated_texts


def datatrove_filters() -> dict[str, list[Any]]:
    """Datatrove's filters by the name of our preset. Raises ``ImportError`` where it is not installed."""
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    return {
        "gopher": [GopherQualityFilter(), GopherRepetitionFilter()],
        "fineweb": [FineWebQualityFilter()],
        "c4": [C4QualityFilter()],
        "c4-tfds": [C4QualityFilter(min_num_sentences=3, min_words_per_line=5)],
    }


def verdict(filters: Iterable[Any], text: str) -> str:
    """The first reason of datatrove's filters, empty where they keep the text."""
    from datatrove.data import Document

    for each in filters:
        found = each.filter(Document(text=text, id="0"))
        if found is not True:
            return str(found[1])
    return ""


def same_words(words: Callable[[str], list[str]]) -> None:
    """Lets datatrove's filters split words as ``words`` does."""
    from datatrove.pipeline.filters import fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter

    for module in (fineweb_quality_filter, gopher_quality_filter, gopher_repetition_filter):
        module.split_into_words = lambda text, language: words(text)


def compared(texts: list[str]) -> tuple[dict[str, list[str]], dict[str, Counter[str]]]:
    """Datatrove's reasons for each text by preset, and where ours keeps or drops otherwise, by reasons."""
    filters = datatrove_filters()
    theirs = {preset: [verdict(filters[preset], text) for text in texts] for preset in PRESETS}
    differing: dict[str, Counter[str]] = {preset: Counter() for preset in PRESETS}
    for preset in PRESETS:
        for text, reason in zip(texts, theirs[preset], strict=True):
            ours = sorted(failed(text, "eng", [preset]))
            if bool(ours) != bool(reason):
                differing[preset][reason or ", ".join(ours)] += 1
    return theirs, differing


def real_texts() -> list[str]:
    """The English main contents of the corpus's labelled pages."""
    extractors: tuple[Extractor, ...] = ("fast", "quality")
    found = [main_content(page.markup, each) or "" for page in gold_pages() for each in extractors]
    return [text for text in found if (detect_languages(text).codes or "").startswith("eng")]


def _dropped(verdicts: dict[str, list[str]]) -> dict[str, str]:
    """The numbers of the texts that each preset drops."""
    return {preset: " ".join(str(at) for at, why in enumerate(each) if why) for preset, each in verdicts.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--write", action="store_true")
    asked = arguments.parse_args()
    if not find_spec("datatrove"):
        raise SystemExit("datatrove is not installed: there is nothing to compare with")
    made, real = generated_texts(), real_texts() if CORPUS.is_dir() else []
    for name, texts in (("generated", made), ("real", real)):
        if not texts:
            continue
        theirs, differing = compared(texts)
        if name == "generated":
            spacy = theirs
        for preset in PRESETS:
            agreed = 1 - differing[preset].total() / len(texts)
            kept = sum(not reason for reason in theirs[preset])
            print(f"{name} {preset}: {agreed:.4f} of {len(texts)} alike, {kept} kept; {dict(differing[preset])}")
    same_words(split_words)
    for name, texts in (("generated", made), ("real", real)):
        if texts:
            theirs, differing = compared(texts)
            print(name, "same words:", {preset: dict(each) for preset, each in differing.items()})
            if name == "generated":
                alike = theirs
    if asked.write:
        tables = {"same words": alike, "spaCy's words": spacy}
        VERDICTS.write_text(
            json.dumps({name: _dropped(each) for name, each in tables.items()}, indent=0) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
