"""What a fetch has learned of its source: which files gave nothing, and whether to send any more requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from cc_pipeline.transport.faults import FaultKind, RangeFault, handling_of

#: Failed requests after which a file that gave no good record is left alone.
_MAX_FAILURES: Final = 3
#: Files, one after the other, without an answer before the source itself counts as failing.
_SILENT_FILES: Final = 3


class SourceState:
    """The state of a source and its files in one fetch, over all of its groups.

    ``gave_good_record``: now, or (as given) before this fetch. ``is_refused``: it refused a range, here or at another
    worker. After ``give_up_after`` ranges in a row without an answer, of at least three files (or of all, if there are
    fewer), the source fails and not the data. ``files`` is the number of all files, if the plan comes in parts.
    """

    def __init__(self, give_up_after: int, files: int = 0, *, gave_good_record: bool = False) -> None:
        self.gave_good_record, self.is_refused = gave_good_record, False
        self._give_up_after, self._file_count = give_up_after, files
        self._files: set[str] = set()
        self._good_files: set[str] = set()
        self._missing_answers: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._last_fault: RangeFault | None = None
        self._silent_ranges = 0
        self._silent_files: set[str] = set()

    def add_files(self, keys: Iterable[str]) -> None:
        """Adds files of which records will be requested."""
        self._files.update(keys)

    def note_good_record(self, key: str) -> None:
        """Notes a good record of a file."""
        self._good_files.add(key)
        self.gave_good_record = True
        self._silent_ranges = 0
        self._silent_files.clear()

    def note_fault(self, fault: RangeFault) -> None:
        """Notes a range that could not be read. A missing object is an answer."""
        handling = handling_of(fault.kind)
        self._last_fault = fault
        self.is_refused = self.is_refused or handling.pauses_host
        self._missing_answers[fault.key] += fault.kind is FaultKind.NOT_FOUND
        if not handling.counts:
            self._silent_ranges += 1
            self._silent_files.add(fault.key)

    def note_failure(self, key: str) -> None:
        """Notes a record of a file that was requested alone in vain."""
        self._failures[key] += 1

    def is_file_missing(self, key: str) -> bool:
        """Whether the source does not have the file."""
        return self._missing_answers[key] >= _MAX_FAILURES and key not in self._good_files

    def is_file_abandoned(self, key: str) -> bool:
        """Whether no more records of the file are requested alone."""
        is_failing = self._failures[key] >= _MAX_FAILURES and key not in self._good_files
        return is_failing or self.is_file_missing(key)

    @property
    def has_ended(self) -> bool:
        """Whether no more requests are sent: the source refuses, or gives nothing."""
        needed_files = min(_SILENT_FILES, max(self._file_count, len(self._files)))
        is_silent = self._silent_ranges >= self._give_up_after and len(self._silent_files) >= needed_files
        return self.is_refused or is_silent

    def skip_reason(self) -> tuple[str, str]:
        """Returns the reason and detail of captures that were not requested."""
        if self._last_fault is None:
            return FaultKind.REFUSED.value, "not requested: the source refuses requests of another worker"
        fault = self._last_fault
        return fault.kind.value, f"not requested: other requests failed, the last with: {fault.detail}"
