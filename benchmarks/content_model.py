"""The trees of ``cc_pipeline/documents/html/model.py``: fitted on labelled pages, and cross-validated.

    pip install lightgbm                               # here only: nothing of the pipeline needs it
    python -m benchmarks.content_model                 # cross-validated F1 and structure
    python -m benchmarks.content_model --write         # fits on every page and writes model.trees

A block counts as content by the share of its four-word runs that the gold text has; one of fewer words where the gold
text has it beside the words before it or after it. A page's blocks are weighted by their words, every real page alike
and a generated one less. The second stage learns from what the first says of pages it was not fitted on. In
cross-validation all pages of a site are judged by trees that were fitted without it, in both stages: that is the
figure to believe, since the committed trees have seen every page here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.documents_structure import Answer, add_figures, pages
from benchmarks.gold_pages import GoldPage
from benchmarks.layouts import AROUND
from benchmarks.report import Report, sized
from cc_pipeline.documents.html import model
from cc_pipeline.documents.html.content import opinion
from cc_pipeline.documents.html.content_selection import content_of
from cc_pipeline.documents.html.features import FeatureTable, features
from cc_pipeline.documents.html.model import NODE, Trees, likelihoods, scored, second_features
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tree import parse_html
from cc_pipeline.documents.page import Limits

_WORD = re.compile(r"\w+")
_SITE = re.compile(r"(?:www\.|blog\.)?([^.]*)")
_RUN = 4
_MOST_WORDS = 40
_SEED = 1
#: What a generated page weighs beside a real one, and one whose article is outweighed: real ones are rare.
_WEIGHT, _OUTWEIGHED = 0.3, 0.1
_TREES, _LEAVES, _RATE = 110, 12, 0.07

Numbers = NDArray[np.float64]


@dataclass(slots=True)
class Example:
    """A labelled page as it is learned from."""

    page: GoldPage
    tables: Tables
    title: str
    rows: FeatureTable
    truth: Numbers
    weight: Numbers


def examples(pages: Sequence[GoldPage]) -> list[Example]:
    """Those with any block."""
    found = []
    limits = Limits()
    for page in pages:
        document = parse_html(page.markup, "", limits, links=False, with_tables=True)
        seen, name = document.tables, document.title or ""
        if seen is not None and len(seen.blocks.chars):
            truth, weight = labels(seen, page)
            found.append(Example(page, seen, name, features(seen, name), truth, weight))
    return found


def labels(seen: Tables, page: GoldPage) -> tuple[Numbers, Numbers]:
    """How much of each block is content, and what it weighs."""
    gold = _WORD.findall(page.text)
    runs, whole = {tuple(gold[at : at + _RUN]) for at in range(len(gold) - _RUN + 1)}, f" {' '.join(gold)} "
    blocks = [_WORD.findall(seen.text_of(at)) for at in range(len(seen.blocks.chars))]
    every = [word for words in blocks for word in words]
    truth, at = [], 0
    for words in blocks:
        end = at + len(words)
        if len(words) >= _RUN:
            mine = [tuple(every[start : start + _RUN]) for start in range(at, end - _RUN + 1)]
            truth.append(sum(run in runs for run in mine) / len(mine))
        else:
            beside = (every[max(at - _RUN, 0) : end], every[at : end + _RUN])
            truth.append(float(bool(words) and any(f" {' '.join(each)} " in whole for each in beside)))
        at = end
    counts = np.array([len(words) for words in blocks], np.float64)
    weight = np.minimum(counts + 0.5, _MOST_WORDS)
    beside_real = (_OUTWEIGHED if page.kind in AROUND else _WEIGHT) if page.generated else 1
    return np.array(truth), weight / weight.sum() * 100 * beside_real


def boosted(rows: FeatureTable, truth: Numbers, weight: Numbers) -> Trees:
    """Trees fitted on rows."""
    lightgbm = import_module("lightgbm")
    settings = {
        "objective": "cross_entropy", "num_leaves": _LEAVES, "learning_rate": _RATE, "min_data_in_leaf": 40,
        "feature_fraction": 0.2, "bagging_fraction": 0.7, "bagging_freq": 1, "lambda_l2": 3.0, "max_bin": 127,
        "min_sum_hessian_in_leaf": 3.0, "verbose": -1, "seed": _SEED, "num_threads": 2, "deterministic": True,
    }  # fmt: skip
    data = lightgbm.Dataset(rows, truth, weight=weight)
    return as_trees(lightgbm.train(settings, data, _TREES).dump_model())


def as_trees(dumped: dict[str, Any]) -> Trees:
    """LightGBM's trees as ``model.py`` reads them."""
    nodes: list[tuple[int, int, int, float]] = []
    roots = []

    def add(node: dict[str, Any]) -> int:
        at = len(nodes)
        nodes.append((-1, 0, 0, node.get("leaf_value", 0.0)))
        if "split_feature" in node:
            # a row's numbers are of single precision, and so is the threshold: rounded down, not over the next row's
            value = np.float32(node["threshold"])
            if value > node["threshold"]:
                value = np.nextafter(value, np.float32(-np.inf))
            nodes[at] = (node["split_feature"], add(node["left_child"]), add(node["right_child"]), float(value))
        return at

    roots = [add(tree["tree_structure"]) for tree in dumped["tree_info"]]
    return Trees(np.array(roots, np.int32), np.array(nodes, NODE))


def _first(some: Sequence[Example]) -> Trees:
    return boosted(
        np.concatenate([each.rows for each in some]),
        np.concatenate([each.truth for each in some]),
        np.concatenate([each.weight for each in some]),
    )


def folded(some: Sequence[Example], folds: int) -> list[list[int]]:
    """The places of examples in folds, all of a site in one: `www.bbc.com` and `bbc` are one too."""
    sites = [_SITE.match(each.page.site)[1] for each in some]  # type: ignore[index]  # it matches anything
    every = sorted(set(sites))
    order = np.random.default_rng(_SEED).permutation(len(every))
    fold = {every[at]: place % folds for place, at in enumerate(order.tolist())}
    return [[at for at, site in enumerate(sites) if fold[site] == number] for number in range(folds)]


def both_stages(some: Sequence[Example], folds: int) -> tuple[Trees, Trees]:
    """The first stage, fitted on all, and the second, on what first stages say of folds they have not seen."""
    likely: dict[int, NDArray[np.float32]] = {}
    for held in folded(some, folds):
        apart = set(held)
        trees = _first([each for at, each in enumerate(some) if at not in apart])
        likely |= {at: scored(some[at].rows, trees) for at in held}
    rows = [second_features(each.tables, each.rows, likely[at]) for at, each in enumerate(some)]
    second = boosted(
        np.concatenate(rows),
        np.concatenate([each.truth for each in some]),
        np.concatenate([each.weight for each in some]),
    )
    return _first(some), second


def unseen(some: Sequence[Example], folds: int, inner: int) -> list[tuple[Trees, Trees]]:
    """For each example the stages that were fitted without its site."""
    found: dict[int, tuple[Trees, Trees]] = {}
    for held in folded(some, folds):
        apart = set(held)
        stages = both_stages([each for at, each in enumerate(some) if at not in apart], inner)
        found |= dict.fromkeys(held, stages)
    return [found[at] for at in range(len(some))]


def answers(some: Sequence[Example], stages: Sequence[tuple[Trees, Trees]]) -> list[Answer]:
    """Each page with the main content that its stages find."""
    found = []
    for each, both in zip(some, stages, strict=True):
        likely = likelihoods(each.tables, each.title, both)
        found.append((each.page, content_of(each.tables, likely, opinion(each.page.markup)).text))
    return found


def bench_unseen(report: Report) -> None:
    """What trees find on pages of sites that they were not fitted on."""
    some = examples(pages())
    stages = unseen(some, folds=sized(2, 5), inner=sized(2, 4))
    add_figures(report, "unseen", answers(some, stages))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--write", action="store_true", help="fit on every page and write model.trees")
    if arguments.parse_args().write:
        stages = both_stages(examples(pages()), folds=5)
        with Path(model.__file__).with_name("model.trees").open("wb") as file:
            for trees in stages:
                # as model.read_trees takes them
                np.save(file, trees.roots)
                np.save(file, trees.nodes)
    else:
        bench_unseen(Report("content_model"))


if __name__ == "__main__":
    main()
