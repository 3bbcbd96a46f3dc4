"""``make bench-faults``: every kind of fault, of some, a file or all, for one answer, a run or longer, at every place.

    python -m benchmarks.bench_faults                        all cells, some ten minutes
    SHORT=1 python -m benchmarks.bench_faults                one cell in each of two places
    python -m benchmarks.bench_faults --places folder http
    python -m benchmarks.bench_faults --docs                 and its table into faultmatrix.md

Each cell is a home that meets the fault, runs again, runs at the sound source and replays what was settled. There is
no rival: the goals are those of docs/faults.md.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from benchmarks.report import SHORT, Report, sized
from cc_pipeline_tests.faultmatrix import PLACES, Result, cells, place_at, run_cell
from cc_pipeline_tests.faulttable import BEGIN, END, table

DOCS = Path(__file__).resolve().parents[1] / "cc_pipeline_tests" / "faultmatrix.md"


def main() -> None:
    """Runs the cells, prints a line a figure, and writes ``benchmarks/results/faults.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES[: sized(2, len(PLACES))]))
    parser.add_argument("--docs", action="store_true", help="write the table into faultmatrix.md (needs all places)")
    given = parser.parse_args()
    if given.docs and (SHORT or set(given.places) != set(PLACES)):
        parser.error("--docs needs all places")
    report = Report("faults" if SHORT or len(given.places) == len(PLACES) else f"faults-{'-'.join(given.places)}")
    results: list[Result] = []
    for name in given.places:
        with tempfile.TemporaryDirectory() as folder, place_at(name, Path(folder)) as place:
            mine = []
            for cell in islice(cells([name]), sized(1, None)):
                mine.append(run_cell(place, cell))
                for wrong in mine[-1].wrongs():
                    print(f"# {wrong}", flush=True)
            report.setting[name] = {"captures": place.captures.num_rows, "ranges": len(place.ranges)}
        _figures(report, name, mine)
        results += mine
    report.setting["cells"] = [asdict(result) | {"ends_with": result.ends_with} for result in results]
    lines = table(results)
    print("\n".join(lines))
    if given.docs:
        head, _, rest = DOCS.read_text("utf-8").partition(BEGIN)
        DOCS.write_text("\n".join([head + BEGIN, *lines, END + rest.partition(END)[2]]), "utf-8")
    print(f"# written to {report.write()}")


def _figures(report: Report, place: str, results: list[Result]) -> None:
    wrong = sum(bool(result.wrongs()) for result in results)
    report.figure(f"{place}_cells", len(results))
    report.figure(f"{place}_cells_not_as_promised", wrong, goal=0, higher_is_better=False)
    passing = [result for result in results if result.cell.time != "lasting"]
    open_still = sum(bool(result.second.unsettled) for result in passing)
    note = f"of {len(passing)} passing ones, after running again"
    report.figure(f"{place}_cells_with_something_open", open_still, goal=0, higher_is_better=False, note=note)
    lost = sum(result.ends_with == "nothing" for result in results)
    report.figure(f"{place}_cells_with_something_lost", lost, goal=0, higher_is_better=False, note="at the end of all")
    runs = [result.first for result in results if result.first.bound]
    if runs:
        worst = max(runs, key=lambda run: run.requests / (run.bound or 1))
        note = f"{worst.requests} of at most {worst.bound}"
        share = worst.requests / (worst.bound or 1)
        report.figure(f"{place}_requests_of_the_bound", share, goal=1, higher_is_better=False, note=note)


if __name__ == "__main__":
    main()
