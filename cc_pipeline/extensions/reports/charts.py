"""Computes the layout of a chart in pixels. The report's template draws it, and a test can read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

#: Maximum width of a chart in pixels, and width of a column if there are few.
_WIDTH: Final = 960
_COLUMN_PIXELS: Final = 132
_HEIGHT: Final = 210
_LEFT_MARGIN, _RIGHT_MARGIN, _TOP_MARGIN, _BOTTOM_MARGIN = 52, 8, 22, 26
#: Maximum width of a column in pixels, maximum labels of the axis, and maximum columns with printed values.
_MAX_COLUMN_WIDTH: Final = 64
_MAX_AXIS_LABELS: Final = 12
_HALF_LABEL: Final = 32
_MAX_LABELED_COLUMNS: Final = 16


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its label, the text for a pointer over it, and its pieces from the axis outward.

    A piece is (class, amount); negative amounts are below the axis.
    """

    label: str
    told: str
    pieces: Sequence[tuple[str, float]]
    figure: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A text at a position."""

    x: float
    y: float
    words: str


@dataclass(frozen=True, slots=True)
class DrawnColumn:
    """A column as drawn: rectangles are (class, x, y, width, height); label and figure are optional."""

    told: str
    rectangles: Sequence[tuple[str, float, float, float, float]]
    label: Text | None
    figure: Text | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as drawn: lines of the scale are (class, y, text on their left)."""

    unit: str
    width: float
    height: float
    left: float
    right: float
    lines: Sequence[tuple[str, float, Text]]
    bars: Sequence[DrawnColumn]


def draw_chart(columns: Sequence[Column], unit: str, *, percent: bool = False) -> Chart:
    """Stacked columns side by side, with a scale; ``unit`` is read to users of screen readers."""
    width = min(_WIDTH, _LEFT_MARGIN + _RIGHT_MARGIN + _COLUMN_PIXELS * len(columns))
    max_height = max([sum(max(0.0, amount) for _, amount in column.pieces) for column in columns] or [0])
    max_depth = max([sum(max(0.0, -amount) for _, amount in column.pieces) for column in columns] or [0])
    step = 50.0 if percent else _scale_step(max(max_height, max_depth, 1))
    bottom = -step * -(-max_depth // step)
    top = 100.0 if percent else step * -(-max_height // step) or step

    def y(value: float) -> float:
        return round(_TOP_MARGIN + (_HEIGHT - _TOP_MARGIN - _BOTTOM_MARGIN) * (top - value) / (top - bottom), 2)

    lines = []
    for number in range(round((top - bottom) / step) + 1):
        value = bottom + number * step
        text = Text(_LEFT_MARGIN - 8, y(value) + 4, f"{abs(value):,.0f}" + ("%" if percent else ""))
        lines.append(("grid" if value else "axis", y(value), text))
    column_width = (width - _LEFT_MARGIN - _RIGHT_MARGIN) / max(1, len(columns))
    label_interval = -(-len(columns) // _MAX_AXIS_LABELS)
    bars = []
    for position, column in enumerate(columns):
        middle = _LEFT_MARGIN + column_width * (position + 0.5)
        rectangles, end = _stack_pieces(column, middle, min(_MAX_COLUMN_WIDTH, column_width * 0.72), y)
        # Half a label must fit between the last column and the edge.
        label = Text(round(min(middle, width - _HALF_LABEL), 2), _HEIGHT - 8, column.label)
        value_text = Text(round(middle, 2), end - 6, column.figure)
        bars.append(
            DrawnColumn(
                column.told,
                rectangles,
                None if position % label_interval else label,
                value_text if column.figure and len(columns) <= _MAX_LABELED_COLUMNS else None,
            )
        )
    return Chart(unit, width, _HEIGHT, _LEFT_MARGIN, width - _RIGHT_MARGIN, lines, bars)


def _stack_pieces(
    column: Column, middle: float, width: float, y: Callable[[float], float]
) -> tuple[list[tuple[str, float, float, float, float]], float]:
    """The rectangles of a column, and the position of its upper end."""
    upper_end = lower_end = 0.0
    drawn = []
    for name, amount in column.pieces:
        start = upper_end if amount > 0 else lower_end
        end = start + amount
        upper_end, lower_end = (end, lower_end) if amount > 0 else (upper_end, end)
        high, low = y(max(start, end)), y(min(start, end))
        if amount:
            drawn.append((name, round(middle - width / 2, 2), high, round(width, 2), round(max(low - high, 0.6), 2)))
    return drawn, y(upper_end)


def _scale_step(max_value: float) -> float:
    """The distance of scale lines up to ``max_value``, a round number: two to five lines."""
    power = 1.0
    while power * 10 <= max_value:
        power *= 10
    return next((step for factor in (0.5, 1, 2, 2.5) if max_value / (step := max(1.0, power * factor)) <= 4), power * 5)
