"""What of an article's structure is in its main content: lists, cells, code, headings and quotes by kind of page, ours
and the rivals on the same pages.

The pages are the gold articles, those of which Readability's authors wrote down what to keep, and generated ones, where
definitions and ruby are too. F1 is that of the gold articles' own benchmark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.documents_odd_pages import EXTRACTORS
from benchmarks.gold_pages import GoldPage, gold_pages
from benchmarks.layouts import layout_pages
from benchmarks.report import Report, sized
from cc_pipeline_tests.documents.gold import mean_f1

_EACH = sized(1, 14)

#: Of pages that the trees were not fitted on.
_GOALS = {
    "structure_article_unseen": 0.962,
    "structure_article_trafilatura": 0.9634,
    "structure_readability_unseen": 0.965,
}

#: A page and what was found to be its main content.
Answer = tuple[GoldPage, str]


def pages() -> list[GoldPage]:
    """All that are labelled."""
    return [*gold_pages()[:: sized(30, 1)], *layout_pages(_EACH)]


def kept_by_name(answers: Iterable[Answer]) -> dict[str, tuple[float, int]]:
    """For each name of elements the share that was kept, and how many there are."""
    kept: dict[str, list[bool]] = defaultdict(list)
    for page, found in answers:
        for name, is_kept in page.kept(found):
            kept[name].append(is_kept)
    return {name: (sum(each) / len(each), len(each)) for name, each in sorted(kept.items())}


def by_kind(answers: Sequence[Answer]) -> Iterator[tuple[str, list[Answer]]]:
    """Parts of the answers: each kind of page, ``generated`` for all that are."""
    kinds = dict.fromkeys((page.kind, page.generated) for page, _ in answers)
    for kind, generated in kinds:
        part = [each for each in answers if (each[0].kind, each[0].generated) == (kind, generated)]
        yield f"generated_{kind}" if generated else kind, part
    yield "generated", [each for each in answers if each[0].generated]


def add_figures(report: Report, name: str, answers: Sequence[Answer]) -> None:
    """F1 and shares of elements kept, a line a kind of page."""
    for kind, part in by_kind(answers):
        score, precision, recall = mean_f1([(found, page.text) for page, found in part])
        shares = ", ".join(f"{each} {share:.2f} of {count}" for each, (share, count) in kept_by_name(part).items())
        note = f"precision {precision:.3f}, recall {recall:.3f}, {len(part)} pages; kept: {shares}"
        figure = f"structure_{kind}_{name}"
        report.figure(figure, score, None, _GOALS.get(figure), unit="F1", note=note)


def bench_structure(report: Report) -> None:
    """Every extractor on all labelled pages; the trees of ours have seen them."""
    every = pages()
    for name, extract in EXTRACTORS.items():
        add_figures(report, name, [(page, extract(page.markup) or "") for page in every])
