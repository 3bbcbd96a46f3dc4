"""The weights of ``cc_pipeline/documents/html/content.py``: fitted on gold articles, and cross-validated.

    python -m benchmarks.article_weights            # cross-validated F1, then the weights to put into the module
    python -m benchmarks.article_weights --folds 5

A block counts as the article's by the share of its four-word runs that the gold text has. Logistic regression with a
ridge, a page's blocks weighted by their words, every page alike. In cross-validation each page is judged by weights
that were fitted without it: that is the figure to believe, since the module's weights have seen every page here.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cc_pipeline.documents.html import content as article
from cc_pipeline_tests.documents.gold import gold_articles, mean_f1

_WORD = re.compile(r"\w+")
_RUN = 4
_RIDGE = 1.0
_STEPS = 12
_MOST_WORDS = 40
_SEED = 1

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Page:
    """A gold page's blocks, what they look like, how much of each is the article's, and what each weighs."""

    minimal: str
    features: Array
    truth: Array
    weight: Array
    gold: str


def pages(every: int = 1) -> list[Page]:
    """The gold pages with any block, or each so many-th of them."""
    found = []
    for _, markup, gold in gold_articles()[::every]:
        minimal = article.minimal_markup(markup)
        blocks = article.blocks_of(minimal)
        words = _WORD.findall(gold)
        runs, whole = set(_runs(words)), f" {' '.join(words)} "
        counts = [len(_WORD.findall(block.text)) for block in blocks]
        truth = np.array([_share(_WORD.findall(block.text), runs, whole) for block in blocks])
        weight = np.minimum(counts, _MOST_WORDS) / (sum(counts) + 1) * 100
        if blocks:
            found.append(Page(minimal, article.weighed(blocks), truth, weight, gold))
    return found


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)]


def _share(words: list[str], runs: set[tuple[str, ...]], whole: str) -> float:
    mine = _runs(words)
    if mine:
        return sum(run in runs for run in mine) / len(mine)
    return float(bool(words) and f" {' '.join(words)} " in whole)


def fitted(some: list[Page]) -> Array:
    """Newton's method on the ridge-penalised likelihood."""
    features = np.vstack([page.features for page in some])
    truth = np.concatenate([page.truth for page in some])
    weight = np.concatenate([page.weight for page in some])
    found = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-np.clip(features @ found, -30, 30)))
        slope = features.T @ (weight * (likely - truth)) + _RIDGE * found
        curve = (features * (weight * likely * (1 - likely))[:, None]).T @ features + _RIDGE * np.eye(len(found))
        found -= np.linalg.solve(curve, slope)
    return found


def cross_validated(every: list[Page], folds: int) -> tuple[float, float, float]:
    """F1, precision and recall where no page was among those its weights were fitted on."""
    order = np.random.default_rng(_SEED).permutation(len(every))
    texts = []
    for fold in range(folds):
        held = set(order[fold::folds].tolist())
        weights = fitted([page for at, page in enumerate(every) if at not in held])
        texts += [(article.article_of(every[at].minimal, weights), every[at].gold) for at in held]
    return mean_f1(texts)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--folds", type=int, default=10)
    every = pages()
    score, precision, recall = cross_validated(every, arguments.parse_args().folds)
    print(f"cross-validated F1 {score:.4f}, precision {precision:.4f}, recall {recall:.4f}, {len(every)} articles")
    for name, weight in zip(article.WEIGHTS, fitted(every), strict=True):
        print(f'    "{name}": {weight:.2f},')


if __name__ == "__main__":
    main()
