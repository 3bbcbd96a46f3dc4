"""One command of cc-pipeline in this process, with what it called counted: ``python main_trace.py OUT ARGUMENT …``.

Writes JSON to OUT. Only this process is counted, in all its threads: pages are parsed in others. Slow, so that
processor time is measured in a run of its own (``bench_main``).
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections import Counter
from pathlib import Path
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
    "lake_opens": [(_LAKE, "Lake.open")],
    "lake_reads": [(_LAKE, "Lake.read")],
    "digest_questions": [(_LAKE, "Lake.digests")],
    "log_readings": [("lake/digests/log.py", "TransactionLog.at")],
    "dagster_events": [("event_log/sqlite/sqlite_event_log.py", "SqliteEventLogStorage.store_event")],
}


class Trace:
    """Counts calls by code object, and statements that SQLite is sent, by its file."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()
        self._codes: dict[int, CodeType] = {}
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

    def _statement(self, text: str) -> None:
        self.statements[text.split(maxsplit=1)[0].upper()] += 1

    def found(self) -> dict[str, Any]:
        """What was counted: functions of ours and their modules (names), calls of some, statements, libraries."""
        sys.setprofile(None)
        codes = [(code, self._calls[key]) for key, code in self._codes.items()]
        ours = {
            f"{code.co_filename.removeprefix(_OURS)[1:-3]}:{code.co_qualname}"
            for code, _ in codes
            if code.co_filename.startswith(_OURS) and code.co_flags & _FUNCTION and not code.co_name.startswith("<")
        }
        counts = {
            name: sum(
                calls
                for code, calls in codes
                if any(code.co_filename.endswith(file) and code.co_qualname == qualified for file, qualified in places)
            )
            for name, places in _COUNTED.items()
        }
        return {
            "functions": sorted(ours),
            "modules": sorted({name.partition(":")[0] for name in ours}),
            "loaded": sorted(name for name in sys.modules if name.startswith("cc_pipeline")),
            "libraries": sorted({name.partition(".")[0] for name in sys.modules}),
            "statements": dict(self.statements.most_common()),
            "calls": sum(calls for _, calls in codes),
            **counts,
        }


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
