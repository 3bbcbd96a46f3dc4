"""The table in docs/faults.md that ``make bench-faults`` makes: written from results, and read again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from cc_pipeline_tests.faultmatrix import TIMES, Cell, Result

#: Where the table stands in docs/faults.md.
BEGIN: Final = "<!-- made by make bench-faults -->"
END: Final = "<!-- end of what make bench-faults made -->"
_HEAD: Final = ("place", "fault", "of", "once", "one run", "the next run too", "requests", "all here after")
_PLACES_SHOWN: Final = {"folder": "folder", "http": "HTTP", "s3": "S3"}


def table(results: Sequence[Result]) -> list[str]:
    """The Markdown lines of ``results``; places, and kinds, that do the same in a scope share a line."""
    rows: dict[tuple[str, str], dict[tuple[str, ...], list[Result]]] = {}
    by_row: dict[tuple[str, str, str], dict[str, Result]] = {}
    for result in results:
        cell = result.cell
        by_row.setdefault((cell.kind, cell.scope, cell.place), {})[cell.time] = result
    for (kind, scope, _), by_time in by_row.items():
        rows.setdefault((kind, scope), {}).setdefault(shown_row(by_time), []).extend(by_time.values())
    kinds: dict[tuple[str, ...], list[str]] = {}
    for (kind, scope), same in rows.items():
        for shown, runs in same.items():
            places = ", ".join(dict.fromkeys(_PLACES_SHOWN[run.cell.place] for run in runs))
            most = max((run.first for run in runs), key=lambda run: run.requests / (run.bound or 1))
            asked = "–" if most.bound is None else f"{most.requests} of {most.bound}"
            kinds.setdefault((places, scope, *shown[:3], asked, shown[3]), []).append(f"`{kind}`")
    lines = [f"| {' | '.join((places, ' '.join(told), *rest))} |" for (places, *rest), told in kinds.items()]
    return [f"| {' | '.join(_HEAD)} |", "|---" * len(_HEAD) + "|", *lines]


def shown_row(by_time: dict[str, Result]) -> tuple[str, ...]:
    """What the table says of a place, kind and scope: of each time, and what brought the last capture."""
    runs = {time: result.second if time == "lasting" else result.first for time, result in by_time.items()}
    told = [runs[time].told() if time in runs else "–" for time in TIMES]
    return (*told, ", ".join(dict.fromkeys(by_time[time].ends_with for time in by_time if time != "once")))


def read_table(page: str) -> dict[Cell, str]:
    """What the table in ``page`` tells of each cell."""
    found = {}
    names = {shown: place for place, shown in _PLACES_SHOWN.items()}
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines():
        parts = [part.strip() for part in line.strip("|").split(" | ")]
        if len(parts) != len(_HEAD) or parts[0] == _HEAD[0]:
            continue
        for place, kind in product(parts[0].split(", "), parts[1].split()):
            for time, told in zip(TIMES, parts[3:6], strict=True):
                if told != "–":
                    found[Cell(names[place], kind.strip("`"), parts[2], time)] = told
    return found
