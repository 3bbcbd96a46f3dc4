"""One command of cc-pipeline in this process, with what it called counted: ``python main_trace.py OUT ARGUMENT …``.

Writes JSON to OUT. Only this process is counted, in all its threads: pages are parsed in others. Slow, so that
processor time is measured in a run of its own (``bench_main``).

With ``MAIN_TRACE_CALLERS=1`` the JSON also has who called each counted function, and how often: that shows which
question is asked twice.
"""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

import cc_pipeline

_OURS = str(Path(cc_pipeline.__file__).parent)
#: Code of a function: of a module and of a class it has no fast locals.
_FUNCTION = 0x1
#: Functions whose calls are counted: the end of a file's path, and the qualified name.
_TABLE, _LAKE = "deltalake/table.py", "lake/lake.py"
_COUNTED = {
    "delta_openings": [(_TABLE, "DeltaTable.__init__"), (_TABLE, "DeltaTable.update_incremental")],
    "delta_commits": [("writer/writer.py", "write_deltalake"), (_TABLE, "DeltaTable.create_write_transaction")],
    "log_looks": [(_LAKE, "Lake.open"), (_LAKE, "Lake.has_moved")],
    "lake_reads": [(_LAKE, "Lake.read")],
    "slice_states": [("lake/slices.py", "read_slice_rows"), ("lake/slices.py", "current_rows")],
    "dagster_events": [("event_log/sqlite/sqlite_event_log.py", "SqliteEventLogStorage.store_event")],
    "dagster_runs": [("core/execution/api.py", "execute_run_iterator")],
    "states_read": [("extraction/slice_state.py", "read_slice_states")],
    "plans_made": [("extraction/plan.py", "plan")],
    "targets_expanded": [("extraction/slice_selection.py", "expand_targets")],
    "block_lists_read": [("extraction/blocklist.py", "read_blocklist")],
    "requests": [
        ("transport/client.py", "Transport._count"),
        ("transport/client.py", "Transport.head"),
        ("transport/retrying.py", "RetryingSender._send"),
    ],
}
#: The calls that tell what a command does, as ``run_picture`` draws them.
STORY = {
    "look at what is here, plan": [("extraction/crawl_plan.py", "plan_crawl")],
    "state": [("extraction/slice_state.py", "read_slice_states")],
    "plan": [("extraction/plan.py", "plan"), ("extraction/crawl_plan.py", "replan_with_new_indexes")],
    "crawls": [("harvesting/crawls.py", "commit_crawls")],
    "list": [("harvesting/crawl_index.py", "commit_manifest")],
    "footers": [("harvesting/crawl_index.py", "harvest_footers")],
    "catalog": [("harvesting/crawl_index.py", "commit_row_groups")],
    "locate": [("extraction/locate.py", "locate_captures")],
    "look up": [("index/lookup.py", "look_up")],
    "fetch": [("extraction/fetch.py", "fetch_captures")],
    "fetch, verify, store": [("records/fetch.py", "fetch_records")],
    "parse": [("extraction/parse.py", "parse_records")],
    "parse pages": [("documents/batch/pool.py", "parse_batches")],
    "checks": [
        ("defs/checks/check_runs.py", "check_made_partitions"),
        ("defs/checks/check_runs.py", "check_publication"),
    ],
    "publish": [("publish/publish.py", "publish_warehouse")],
    "report": [("extraction/crawl_plan.py", "compare_plans")],
    "commit": [(_LAKE, "Lake.replace_slices")],
    "request": _COUNTED["requests"],
}
#: The function after which all pages are there.
_PAGES_DONE = ("extraction/parse.py", "parse_records")
#: Lines of a function's body up to which it counts as short.
_SHORT = 5


class Trace:
    """Counts calls by code object, and statements that SQLite is sent, by its file."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._codes: dict[int, CodeType] = {}
        self._names: dict[int, str] = {}
        self._requests_by_pages = 0
        self._is_told_callers = os.environ.get("MAIN_TRACE_CALLERS") == "1"
        self.callers: dict[str, Counter[str]] = {}
        self._told: dict[int, str] = {}
        #: The calls of the story in their order: the room that calls, the room that is called, what for.
        self.story: list[tuple[str, str, str]] = []
        self.statements: Counter[str] = Counter()

    def begin(self) -> None:
        """From here on everything counts."""
        connect = sqlite3.dbapi2.connect

        def traced(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(database, *arguments, **options)
            connection.set_trace_callback(self._statement)
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = traced
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            key = id(code)
            self._calls[key] += 1
            if key not in self._codes:
                self._codes[key] = code  # kept, so that no other gets its number
                self._names[key] = _called(code, _COUNTED)
                self._told[key] = _called(code, STORY)
            if self._told[key] and not (self._names[key] == "requests" and _is_of_lake(frame)):
                self.story.append((_room_before(frame), _room(frame), _words(self._told[key], frame)))
            if self._names[key] == "requests" and _is_of_lake(frame):
                self._calls[key] -= 1
            elif self._is_told_callers and self._names[key]:
                self.callers.setdefault(self._names[key], Counter())[_path_to(frame)] += 1
        elif event == "return" and _is(frame.f_code, _PAGES_DONE):
            self._requests_by_pages = self._count_of("requests")

    def _count_of(self, name: str) -> int:
        return sum(calls for key, calls in self._calls.items() if self._names[key] == name)

    def _statement(self, text: str) -> None:
        self.statements[text.split(maxsplit=1)[0].upper()] += 1

    def found(self) -> dict[str, Any]:
        """What was counted: functions of ours and their modules (names), calls of some, statements, libraries."""
        sys.setprofile(None)
        codes = [(code, self._calls[key]) for key, code in self._codes.items()]
        ours = {
            _qualified(code)
            for code, _ in codes
            if code.co_filename.startswith(_OURS) and code.co_flags & _FUNCTION and not code.co_name.startswith("<")
        }
        counts = {name: self._count_of(name) for name in _COUNTED}
        lengths = [length for code, _ in codes if _qualified(code) in ours and (length := body_lines(code))]
        return {
            "requests_after_pages": counts["requests"] - self._requests_by_pages,
            "body_median": round(median(lengths)),
            "body_p90": sorted(lengths)[len(lengths) * 9 // 10],
            "short_percent": round(100 * sum(length <= _SHORT for length in lengths) / len(lengths)),
            "story": self.story,
            "callers": {name: dict(own.most_common()) for name, own in self.callers.items()},
            "functions": sorted(ours),
            "modules": sorted({name.partition(":")[0] for name in ours}),
            "loaded": sorted(name for name in sys.modules if name.startswith("cc_pipeline")),
            "libraries": sorted({name.partition(".")[0] for name in sys.modules}),
            "statements": dict(self.statements.most_common()),
            "calls": sum(calls for _, calls in codes),
            **counts,
        }


def _qualified(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(_OURS)[1:-3]}:{code.co_qualname}"


def _is(code: CodeType, place: tuple[str, str]) -> bool:
    return code.co_qualname == place[1] and code.co_filename.endswith(place[0])


def _called(code: CodeType, named: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The name that calls of a function have; empty where they have none."""
    return next((name for name, places in named.items() if any(_is(code, place) for place in places)), "")


def _room(frame: FrameType) -> str:
    """The room of a function of ours; empty for others."""
    name = frame.f_code.co_filename
    return name.removeprefix(_OURS)[1:].partition("/")[0].removesuffix(".py") if name.startswith(_OURS) else ""


def _room_before(frame: FrameType) -> str:
    """The last other room that led to a call; the same one where there is none."""
    own, caller = _room(frame), frame.f_back
    while caller is not None:
        if (room := _room(caller)) and room != own:
            return room
        caller = caller.f_back
    return own


def _words(told: str, frame: FrameType) -> str:
    """What a call is for; of a commit, to which table."""
    return f"commit {frame.f_locals['table']}" if told == "commit" else told


def _is_of_lake(frame: FrameType) -> bool:
    """Whether a request is to the lake's own place, which is no bucket: those to the source are counted."""
    source = getattr(frame.f_locals.get("self"), "source", "")
    return bool(source) and "--source" in sys.argv and source != sys.argv[sys.argv.index("--source") + 1]


def _path_to(frame: FrameType) -> str:
    """The functions of ours that lead to a call, the innermost first."""
    found: list[str] = []
    caller = frame.f_back
    while caller is not None and len(found) < 6:
        if caller.f_code.co_filename.startswith(_OURS) and not caller.f_code.co_name.startswith("<"):
            found.append(_qualified(caller.f_code))
        caller = caller.f_back
    return " < ".join(found)


@cache
def _bodies(file: str) -> dict[int, int]:
    """Lines of the body of each function in a file, without its docstring, by the line where the function begins."""
    found: dict[int, int] = {}
    for node in ast.walk(ast.parse(Path(file).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            first = min((one.lineno for one in (*node.decorator_list, node)), default=node.lineno)
            found[first] = body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]
    return found


def body_lines(code: CodeType) -> int:
    """Lines of the body of a function of ours, without its docstring; 0 where it has none."""
    return _bodies(code.co_filename).get(code.co_firstlineno, 0)


def main() -> None:
    """Runs the command and writes what it called, however it ends."""
    out, *arguments = sys.argv[1:]
    sys.argv = ["cc-pipeline", *arguments]
    trace = Trace()
    trace.begin()
    try:
        from cc_pipeline.cli import main as command

        command()
    finally:
        Path(out).write_text(json.dumps(trace.found()), "utf-8")


if __name__ == "__main__":
    main()
