"""The likelihood that a block of a page is content: boosted trees in two stages. The second stage also reads the first
stage's likelihoods of the neighbours and ancestors of a block."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cc_pipeline import compiled
from cc_pipeline.documents.html.features import (
    NUMBERS,
    FeatureTable,
    features,
    holders,
    side_by_side,
    take_neighbours,
    units_of,
    windows,
)
from cc_pipeline.documents.html.tables import Tables

#: A page of more blocks is no article, and all of it is kept: a block takes some two kilobytes of memory.
MAX_BLOCKS = 20_000
_WINDOWS = np.array([2, 5, 10])
#: A node of a tree: the next node is ``left`` if the feature is at most ``value``, else ``right``. A leaf has no
#: feature (-1); its ``value`` is added up. The same in ``_model.c``.
NODE = np.dtype([("feature", "i2"), ("left", "i2"), ("right", "i2"), ("value", "f4")], align=True)


class Trees(NamedTuple):
    """All nodes of a stage, and the root of each tree among them."""

    roots: NDArray[np.int32]
    nodes: NDArray[np.void]


def read_trees(file: IO[bytes]) -> Trees:
    """Reads the next trees of a file."""
    return Trees(np.load(file).astype(np.int32), np.load(file).astype(NODE))


@lru_cache(maxsize=1)
def fitted() -> tuple[Trees, Trees]:
    """Returns the two stages that ``benchmarks/content_model.py`` fitted."""
    with files(__package__).joinpath("model.trees").open("rb") as file:
        return read_trees(file), read_trees(file)


def scored(rows: FeatureTable, trees: Trees) -> NDArray[np.float32]:
    """Returns the likelihoods of rows by the trees of a stage."""
    nodes, total, row_indices = trees.nodes, np.zeros(len(rows)), np.arange(len(rows))
    for root in trees.roots.tolist():
        positions = np.full(len(rows), root)
        while (inner := nodes["feature"][positions] >= 0).any():
            node = nodes[positions]
            low = rows[row_indices, node["feature"]] <= node["value"]
            positions = np.where(inner, np.where(low, node["left"], node["right"]), positions)
        total += nodes["value"][positions]
    return np.asarray(1 / (1 + np.exp(-total)), np.float32)


def second_features(tables: Tables, rows: FeatureTable, likely: NDArray[np.float32]) -> FeatureTable:
    """Returns the features of the second stage: the first stage's likelihoods of the block, of its neighbours and of
    its ancestors, and all features of the first stage."""
    block, element = tables.blocks, tables.elements
    count = len(likely)
    index = np.arange(count)
    weights = block.chars.astype(np.float64)
    weighed = np.concatenate(([0.0], np.cumsum(likely * weights)))
    size = np.concatenate(([0.0], np.cumsum(weights)))

    def mean(low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray((weighed[high] - weighed[low]) / np.maximum(size[high] - size[low], 1))

    chain = holders(tables)
    columns: list[NDArray[Any]] = [likely, *take_neighbours(likely), mean(element.first[chain], element.last[chain]).T]
    unit = units_of(tables)
    columns.append(np.where(unit < 0, -1, mean(element.first[unit], element.last[unit])))
    _, group = np.unique(tables.path[block.element], return_inverse=True)
    of_group = np.bincount(group, likely * weights) / np.maximum(np.bincount(group, weights), 1)
    columns.append(of_group[group])
    columns += [mean(*windows(count, _WINDOWS)), mean(index[:1], index), mean(index + 1, np.array(count))]
    sure = likely * weights > 0.5 * weights
    sure_sums = np.concatenate(([0.0], np.cumsum(weights * sure)))
    columns += [
        sure_sums[:-1] / max(sure_sums[-1], 1),
        np.full(count, sure_sums[-1] / max(size[-1], 1)),
        np.full(count, np.log1p(sure_sums[-1])),
    ]
    order = np.flatnonzero(sure)
    begins, ends = (order[0], order[-1]) if len(order) else (0, count)
    columns += [index - begins, index - ends]
    return side_by_side([*columns, rows])


def likelihoods(tables: Tables, title: str = "", stages: tuple[Trees, Trees] | None = None) -> NDArray[np.float32]:
    """Returns for each block its likelihood of being content."""
    count = len(tables.blocks.chars)
    if not 0 < count <= MAX_BLOCKS:
        return np.ones(count, np.float32)
    return (likelihoods_compiled if COMPILED else likelihoods_plainly)(tables, title, *(stages or fitted()))[0]


def likelihoods_plainly(
    tables: Tables, title: str, first: Trees, second: Trees
) -> tuple[NDArray[np.float32], FeatureTable]:
    """Returns the likelihoods of one block or more, and the rows of the second stage."""
    rows = features(tables, title)
    wider = second_features(tables, rows, scored(rows, first))
    return scored(wider, second), wider


def likelihoods_compiled(
    tables: Tables, title: str, first: Trees, second: Trees
) -> tuple[NDArray[np.float32], FeatureTable]:
    """Does the same in one compiled pass, in less time."""
    stages = (first.nodes, first.roots, second.nodes, second.roots)
    likely, rows = _likelihoods(tables.text, tables.elements, tables.blocks, tables.path, title.strip(), *stages)
    return np.frombuffer(likely, np.float32), np.frombuffer(rows, np.float32).reshape(len(likely) // 4, -1)


_set_up, _likelihoods = compiled("documents.html._model", "set_up"), compiled("documents.html._model", "likelihoods")
#: Whether the compiled function is in use.
COMPILED = _set_up is not None and _likelihoods is not None
if COMPILED:
    _set_up(*NUMBERS)
