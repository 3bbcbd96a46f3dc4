"""Draws which room calls which while a command runs, from the trace of one: the picture in docs/architecture.md.

    python -m benchmarks.bench_main fresh
    python -m benchmarks.run_picture

It takes the trace of the last run in a fresh home out of ``benchmarks/results/main.json``. Calls of one kind that
follow each other are one arrow, with how many they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

_ROOT = Path(__file__).parent.parent
_PICTURE = _ROOT / "docs" / "images" / "run.svg"
_TRACE = _ROOT / "benchmarks" / "results" / "main.json"
#: From the front doors to the ground; rooms that nothing of the story touches are not drawn.
_ROOMS = (
    "cli", "api", "defs", "checks", "maintenance", "publish", "extraction", "harvesting", "index", "records", 
    "documents", "workspace", "lake", "transport",
)  # fmt: skip
_LANE, _LINE, _TOP = 92, 19, 40
#: The room that calls, the room that is called, what for.
Call: TypeAlias = tuple[str, str, str]


def drawn(calls: Sequence[Call]) -> str:
    """The picture of calls in their order, as SVG."""
    lanes = [room for room in _ROOMS if any(room in call[:2] for call in calls)]
    centre = {room: _LANE * number + _LANE // 2 for number, room in enumerate(lanes)}
    steps = [(call, len([*same])) for call, same in groupby(calls)]
    width, height = _LANE * len(lanes), _TOP + _LINE * (len(steps) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        '<defs><marker id="end" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L6 3L0 6z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for room, x in centre.items():
        parts.append(f'<text x="{x}" y="18" text-anchor="middle" font-weight="bold">{room}</text>')
        parts.append(f'<line x1="{x}" y1="26" x2="{x}" y2="{height}" stroke="silver"/>')
    for number, ((source, target, words), count) in enumerate(steps):
        parts += _arrow(centre[source], centre[target], _TOP + _LINE * (number + 1), words, count)
    return "\n".join([*parts, "</svg>", ""])


def _arrow(start: int, end: int, y: int, words: str, count: int) -> list[str]:
    """One step: an arrow with its words above it; a dot where a room calls itself."""
    text = escape(words if count == 1 else f"{words} × {count}")
    if start == end:
        return [f'<circle cx="{start}" cy="{y - 3}" r="3"/>', f'<text x="{start + 6}" y="{y}">{text}</text>']
    x, anchor = (start + 4, "start") if start < end else (start - 4, "end")
    return [
        f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="black" marker-end="url(#end)"/>',
        f'<text x="{x}" y="{y - 3}" text-anchor="{anchor}">{text}</text>',
    ]


def main() -> None:
    """Draws the run in a fresh home that was traced last."""
    report = json.loads(_TRACE.read_text("utf-8"))
    story = [(source, target, words) for source, target, words in report["setting"]["trace_fresh"]["story"]]
    _PICTURE.write_text(drawn(story), "utf-8")


if __name__ == "__main__":
    main()
