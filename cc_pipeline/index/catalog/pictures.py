"""Pictures of a catalog: which keys each row group spans, and how much of each crawl is harvested."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from cc_pipeline.index.catalog.schemas import KEY_COLUMN

_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
#: Blue and orange stay apart for colour-blind eyes.
_SORTED, _OVERLAPPING = "#1f77b4", "#ff7f0e"
_MOST_FILES: Final = 60
_TICKS: Final = 9


def plot_key_ranges(row_groups: pa.Table, *, title: str = "") -> bytes:
    """A PNG with one line for each file (at most ``_MOST_FILES``) and one bar for each row group: where its keys begin
    and end, in the order of all keys shown. A line's first row group is its topmost: those of a sorted file go down
    like stairs, overlapping ones (orange) lie above each other.
    """
    known = row_groups.filter(pc.and_(pc.is_valid(row_groups[_LOW]), pc.is_valid(row_groups[_HIGH])))
    paths = _spread(pc.unique(known["path"]).to_pylist(), _MOST_FILES)
    known = known.filter(pc.is_in(known["path"], value_set=pa.array(paths, pa.string())))
    known = known.sort_by([("path", "ascending"), ("row_group", "ascending")])
    low, high, owner = known[_LOW].to_pylist(), known[_HIGH].to_pylist(), known["path"].to_pylist()
    keys = sorted({*low, *high})
    rank = {key: number for number, key in enumerate(keys)}
    line = {path: number for number, path in enumerate(sorted(paths))}
    size = Counter(owner)
    bars: dict[str, list[list[tuple[float, float]]]] = {_SORTED: [], _OVERLAPPING: []}
    last: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for path, first, end in zip(owner, low, high, strict=True):
        overlapping = rank[first] < last.get(path, -1)
        last[path] = max(last.get(path, -1), rank[end])
        height = line[path] - 0.36 + 0.72 * (seen[path] + 0.5) / size[path]
        seen[path] += 1
        bar = [(float(rank[first]), height), (max(rank[end], rank[first] + 0.4), height)]
        bars[_OVERLAPPING if overlapping else _SORTED].append(bar)
    width = max(0.5, min(3.0, 9.0 / max(size.values(), default=1)))
    figure, axes = _figure(max(2.5, 1.2 + 0.2 * len(paths)))
    for colour, segments in bars.items():
        axes.add_collection(LineCollection(segments, colors=colour, linewidths=width))
    axes.set_xlim(-1, max(1, len(keys)))
    axes.set_ylim(len(paths) - 0.3, -0.7)
    axes.set_yticks(range(len(paths)), [path.rsplit("/", 1)[-1][:10] for path in sorted(paths)], fontsize=6)
    if keys:
        ticks = np.unique(np.linspace(0, len(keys) - 1, min(_TICKS, len(keys))).astype(int))
        axes.set_xticks(ticks, [_label(keys[tick]) for tick in ticks], rotation=25, ha="right", fontsize=7)
    unknown = len(row_groups) - len(known)
    axes.set_xlabel(f"{KEY_COLUMN}, in its order" + (f"  ({unknown} row groups not shown)" if unknown else ""))
    axes.set_title(title or "Keys of each row group", fontsize=10)
    return _png(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    # No pyplot: its global state is not for threads.
    figure = Figure(figsize=(9, min(height, 14)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _spread(paths: Sequence[str], count: int) -> list[str]:
    ordered = sorted(paths)
    if len(ordered) <= count:
        return ordered
    return [ordered[int(index)] for index in np.linspace(0, len(ordered) - 1, count)]


def _label(key: bytes) -> str:
    text = key.decode("utf-8", "replace").split(")", 1)[0]
    return text if len(text) <= 24 else text[:23] + "…"
