"""The table in faultmatrix.md: written from results, and read again.

``python -m cc_pipeline_tests.faulttable`` runs all cells of the matrix and writes it, in some ten minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

from cc_pipeline_tests.faultmatrix import PLACES, TIMES, Cell, Result, cells, place_at, run_cell

PAGE: Final = Path(__file__).with_name("faultmatrix.md")
#: Where the table stands there.
BEGIN: Final = "<!-- made by cc_pipeline_tests.faulttable -->"
END: Final = "<!-- end of the made table -->"
_HEAD: Final = ("place", "fault", "of", "once", "one run", "the next run too")
_PLACES_SHOWN: Final = {"folder": "folder", "http": "HTTP", "s3": "S3"}


def table(results: Sequence[Result]) -> list[str]:
    """The Markdown lines of ``results``; places, and kinds, that do the same in a scope share a line."""
    by_row: dict[tuple[str, str, str], dict[str, str]] = {}
    for result in results:
        cell = result.cell
        by_row.setdefault((cell.kind, cell.scope, _PLACES_SHOWN[cell.place]), {})[cell.time] = shown(result)
    places: dict[tuple[str, ...], list[str]] = {}
    for (kind, scope, place), by_time in by_row.items():
        places.setdefault((kind, scope, *(by_time.get(time, "–") for time in TIMES)), []).append(place)
    kinds: dict[tuple[str, ...], list[str]] = {}
    for (kind, *rest), same in places.items():
        kinds.setdefault((", ".join(same), *rest), []).append(f"`{kind}`")
    rows = [_HEAD, ("---",) * len(_HEAD), *((place, " ".join(same), *rest) for (place, *rest), same in kinds.items())]
    return [f"| {' | '.join(row)} |" for row in rows]


def shown(result: Result) -> str:
    """What the table says of a cell: how its first run ended, or its second where the fault lasts."""
    return (result.second if result.cell.time == "lasting" else result.first).told()


def read_table(page: str) -> dict[Cell, str]:
    """What the table in ``page`` tells of each cell."""
    found = {}
    names = {shown: place for place, shown in _PLACES_SHOWN.items()}
    for line in page.partition(BEGIN)[2].partition(END)[0].splitlines()[3:]:
        places, kinds, scope, *told = (part.strip() for part in line.strip("|").split(" | "))
        for place, kind, (time, what) in product(places.split(", "), kinds.split(), zip(TIMES, told, strict=True)):
            if what != "–":
                found[Cell(names[place], kind.strip("`"), scope, time)] = what
    return found


def main() -> None:
    """Runs every cell at every place, names what is not as promised, and writes the table."""
    results: list[Result] = []
    for name in PLACES:
        with tempfile.TemporaryDirectory() as folder, place_at(name, Path(folder)) as place:
            for cell in cells([name]):
                results.append(run_cell(place, cell))
                print(*results[-1].wrongs(), sep="\n", end="", flush=True)
    head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text("\n".join([head + BEGIN, *table(results), END + rest.partition(END)[2]]), "utf-8")


if __name__ == "__main__":
    main()
