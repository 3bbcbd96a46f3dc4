"""Draws the keys of each row group of a catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.progress import format_count
from cc_pipeline.terminal import escape_controls

_T = TypeVar("_T")
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
#: Blue and orange stay apart for colour-blind eyes.
_SORTED, _OVERLAPPING = "#1f77b4", "#ff7f0e"
_MAX_FILES: Final = 60
_TICKS: Final = 9
#: Pixels: the total width, the margins around the bars, and the height of a file's line.
_WIDTH, _LEFT_MARGIN, _RIGHT_MARGIN, _TOP_MARGIN, _BOTTOM_MARGIN, _LINE = 960, 90, 24, 36, 90, 22
_SVG: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
    'font-family="sans-serif" font-size="11" fill="#333"><rect width="100%" height="100%" fill="#fff"/>{parts}</svg>'
)


def plot_key_ranges(row_groups: pa.Table, *, title: str = "Keys of each row group") -> str:
    """Returns an SVG with one line for each file (at most ``_MAX_FILES``) and one bar for each row group: from its
    first to its last key, in the order of all keys shown. The first row group of a line is on top: those of a sorted
    file go down like stairs, overlapping ones (orange) lie above each other.
    """
    bounded_groups = row_groups.filter(pc.and_(pc.is_valid(row_groups[_LOW]), pc.is_valid(row_groups[_HIGH])))
    paths = _spread(sorted(pc.unique(bounded_groups["path"]).to_pylist()), _MAX_FILES)
    bounded_groups = bounded_groups.filter(pc.is_in(bounded_groups["path"], value_set=pa.array(paths, pa.string())))
    bounded_groups = bounded_groups.sort_by([("path", "ascending"), ("row_group", "ascending")])
    keys = sorted({*bounded_groups[_LOW].to_pylist(), *bounded_groups[_HIGH].to_pylist()})
    floor = _TOP_MARGIN + _LINE * max(1, len(paths))
    unbounded_count = len(row_groups) - len(bounded_groups)
    axis = f"{KEY_COLUMN}, in its order" + (
        f" ({format_count(unbounded_count, 'row group')} not shown)" if unbounded_count else ""
    )
    parts = [
        _text(_WIDTH / 2, 20, title, "middle", 'font-size="14"'),
        f'<path d="M{_LEFT_MARGIN} {_TOP_MARGIN}V{floor}H{_WIDTH - _RIGHT_MARGIN}" fill="none" stroke="#999"/>',
        *(
            _text(_LEFT_MARGIN - 6, _TOP_MARGIN + _LINE * (line + 0.65), path.rsplit("/", 1)[-1][:10], "end")
            for line, path in enumerate(paths)
        ),
        *_bars(bounded_groups, paths, keys),
        *_ticks(keys, floor),
        _text(_WIDTH / 2, floor + _BOTTOM_MARGIN - 12, axis, "middle"),
    ]
    return _SVG.format(width=_WIDTH, height=floor + _BOTTOM_MARGIN, parts="".join(parts))


def _bars(bounded_groups: pa.Table, paths: Sequence[str], keys: Sequence[bytes]) -> list[str]:
    """Returns one SVG path per colour, with a bar for each row group."""
    rank = {key: number for number, key in enumerate(keys)}
    line = {path: number for number, path in enumerate(paths)}
    owners = bounded_groups["path"].to_pylist()
    size = Counter(owners)
    drawn: dict[str, list[str]] = {_SORTED: [], _OVERLAPPING: []}
    last: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for path, low, high in zip(
        owners, bounded_groups[_LOW].to_pylist(), bounded_groups[_HIGH].to_pylist(), strict=True
    ):
        colour = _OVERLAPPING if rank[low] < last.get(path, -1) else _SORTED
        last[path] = max(last.get(path, -1), rank[high])
        start, end = _x(rank[low], keys), _x(rank[high], keys)
        height = _TOP_MARGIN + _LINE * (line[path] + 0.14 + 0.72 * (seen[path] + 0.5) / size[path])
        seen[path] += 1
        drawn[colour].append(f"M{start:.0f} {height:.1f}h{max(1, end - start):.0f}")
    width = max(1.2, min(4.0, 0.7 * _LINE / max(size.values(), default=1)))
    paths_by_colour = {colour: "".join(bars) for colour, bars in drawn.items() if bars}
    return [
        f'<path d="{bars}" stroke="{colour}" stroke-width="{width:.1f}"/>' for colour, bars in paths_by_colour.items()
    ]


def _ticks(keys: Sequence[bytes], floor: float) -> list[str]:
    parts = []
    for key in _spread(keys, _TICKS):
        tick_x = _x(keys.index(key), keys)
        parts.append(f'<path d="M{tick_x:.0f} {floor}v4" stroke="#999"/>')
        parts.append(
            _text(tick_x, floor + 16, _label(key), "end", f'transform="rotate(-25 {tick_x:.0f} {floor + 16})"')
        )
    return parts


def _x(rank: int, keys: Sequence[bytes]) -> float:
    return _LEFT_MARGIN + (_WIDTH - _LEFT_MARGIN - _RIGHT_MARGIN) * rank / max(1, len(keys) - 1)


def _text(x: float, y: float, words: str, anchor: str, attributes: str = "") -> str:
    escaped = escape(escape_controls(words, one_line=True))
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" {attributes}>{escaped}</text>'


def _spread(ordered: Sequence[_T], count: int) -> Sequence[_T]:
    """Returns at most ``count`` elements, from the first to the last at even distances."""
    if len(ordered) <= count:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (count - 1))] for place in range(count)]


def _label(key: bytes) -> str:
    text = key.decode("utf-8", "replace").split(")", 1)[0]
    return text if len(text) <= 24 else text[:23] + "…"
