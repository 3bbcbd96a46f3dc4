"""Charts as SVG within a page: no script, no file beside it, colours by class, so that they follow the page's theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

#: Pixels of a chart at most, and for each column where there are few.
_WIDTH: Final = 960
_EACH: Final = 132
_HEIGHT: Final = 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 22, 26
#: Pixels of the widest column, labels along the axis, and columns up to which each says its figure.
_WIDEST: Final = 64
_LABELS: Final = 12
_HALF: Final = 32
_WITH_FIGURES: Final = 16


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what stands below it, what a pointer is told, and its pieces from the axis on.

    A piece is (class, amount); negative amounts hang below the axis.
    """

    label: str
    told: str
    pieces: Sequence[tuple[str, float]]
    figure: str = ""


def columns(given: Sequence[Column], *, unit: str, percent: bool = False) -> Markup:
    """Stacked columns side by side, with a scale; ``unit`` is read to those who cannot see it."""
    width = min(_WIDTH, _LEFT + _RIGHT + _EACH * len(given))
    above = max([sum(max(0.0, amount) for _, amount in column.pieces) for column in given] or [0])
    below = max([sum(max(0.0, -amount) for _, amount in column.pieces) for column in given] or [0])
    top, step = (100.0, 50.0) if percent else _scale(max(above, below, 1))
    bottom = 0.0 if not below else -step * -(-below // step)
    top = 100.0 if percent else step * -(-above // step) or step
    room = _HEIGHT - _TOP - _BOTTOM

    def y(value: float) -> float:
        return round(_TOP + room * (top - value) / (top - bottom), 2)

    lines, value = [], bottom
    while value <= top + step / 1000:
        text = f"{abs(value):,.0f}" + ("%" if percent else "")
        lines.append(
            Markup(
                '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="scale" x="{}" y="{}">{}</text>'
            ).format(
                "axis" if not value else "grid",
                _LEFT,
                width - _RIGHT,
                y(value),
                y(value),
                _LEFT - 8,
                y(value) + 4,
                text,
            )
        )
        value += step
    each = (width - _LEFT - _RIGHT) / max(1, len(given))
    wide = min(_WIDEST, each * 0.72)
    every = -(-len(given) // _LABELS)
    bars = [
        _column(column, _LEFT + each * (place + 0.5), wide, width, y, place % every == 0, len(given) <= _WITH_FIGURES)
        for place, column in enumerate(given)
    ]
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" style="max-width:{}px" role="img" aria-label="{}">{}{}</svg>'
    ).format(width, _HEIGHT, width, unit, Markup("").join(lines), Markup("").join(bars))


def _column(
    column: Column, middle: float, wide: float, width: float, y: Callable[[float], float], labelled: bool, figures: bool
) -> Markup:
    up = down = 0.0
    drawn = []
    for name, amount in column.pieces:
        if not amount:
            continue
        start = up if amount > 0 else down
        end = start + amount
        up, down = (end, down) if amount > 0 else (up, end)
        high, low = y(max(start, end)), y(min(start, end))
        drawn.append(
            Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                name, round(middle - wide / 2, 2), high, round(wide, 2), round(max(low - high, 0.6), 2)
            )
        )
    if labelled:
        # half a label fits between the last column and the edge
        at = round(min(middle, width - _HALF), 2)
        drawn.append(Markup('<text class="label" x="{}" y="{}">{}</text>').format(at, _HEIGHT - 8, column.label))
    if figures and column.figure:
        drawn.append(
            Markup('<text class="figure" x="{}" y="{}">{}</text>').format(round(middle, 2), y(up) - 6, column.figure)
        )
    return Markup("<g><title>{}</title>{}</g>").format(column.told, Markup("").join(drawn))


def _scale(most: float) -> tuple[float, float]:
    """A round top for amounts up to ``most``, and the distance of its lines: two to five of them."""
    power = 1.0
    while power * 10 <= most:
        power *= 10
    for factor in (0.5, 1, 2, 2.5, 5):
        step = max(1.0, power * factor)
        if most / step <= 4:
            return step * -(-most // step), step
    return power * 10, power * 5


def share(parts: Sequence[tuple[str, float, str]]) -> Markup:
    """A bar of (class, amount, what it is), as wide as its place."""
    total = sum(amount for _, amount, _ in parts) or 1
    pieces = [
        Markup('<i class="{}" style="flex:{:.5f}" title="{}"></i>').format(name, amount / total, told)
        for name, amount, told in parts
        if amount
    ]
    return Markup('<span class="share">{}</span>').format(Markup("").join(pieces))


def legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """What the colours mean: (class, words)."""
    items = [Markup('<span><i class="{}"></i>{}</span>').format(name, words) for name, words in entries]
    return Markup('<p class="legend">{}</p>').format(Markup("").join(items))
