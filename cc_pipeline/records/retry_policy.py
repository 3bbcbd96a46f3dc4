"""The retry policy of a fetch: how often a failing file, or a failing source, is asked again.

A file that has given no good record yet may cost only a few requests beyond its ranges, so that a deleted file or a
proxy that answers every request costs about as much as planned. After its first good record, each failing range of a
file may be tried as often as the transport allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.records.range_plan import PlannedRange
from cc_pipeline.transport.faults import FaultKind, RangeFault, range_fault

#: Requests beyond one per range that a file may cost before its first good record: these, and one for five ranges.
_EXTRA: Final = 3
_RANGES_AN_EXTRA: Final = 5
#: One of these is reserved for the end, to find out whether the file answers by then.
_FOR_THE_END: Final = 1
#: Tries of one range beyond the first, before the file's first good record; and all tries after it.
_UNPROVEN_TRIES: Final = 2
MAX_TRIES: Final = 6
#: Failed ranges, or bad records, after which the remaining ranges of a file wait.
_SUSPECT_AFTER: Final = 3
#: If more ETags of one file than these were seen, each once, ETags are ignored.
_RANDOM: Final = 3
#: ETags stored per file; a source may send a new one with each answer.
_ETAGS: Final = 32
#: Files that must have failed one after the other before the source itself counts as failing.
_FILES: Final = 3

#: Kinds that may be about a single record of the range. For all other kinds the whole range is requested again.
BY_RECORD: Final = frozenset(
    {
        FaultKind.RANGE_NOT_SATISFIABLE,
        FaultKind.SHORT_BODY,
        FaultKind.LONG_BODY,
        FaultKind.EMPTY_BODY,
        FaultKind.WHOLE_OBJECT,
        FaultKind.ERROR_DOCUMENT,
        FaultKind.WRONG_RANGE,
        FaultKind.CHANGED_OBJECT,
    }
)


@dataclass(slots=True)
class FileState:
    """The state of one file of the plan. ``extra`` requests may still be sent beyond one per range.

    ``etags`` counts the ETags of its answers."""

    extra: int
    good: bool = False
    failed: int = 0
    bad: int = 0
    identical_rereads: int = 0
    changed_rereads: int = 0
    not_found_count: int = 0
    etags: Counter[str] = field(default_factory=Counter)

    @property
    def is_suspect(self) -> bool:
        """Whether the remaining ranges wait: the file seems to be missing, or several failed and none was good."""
        return not self.good and (
            bool(self.not_found_count) or self.failed >= _SUSPECT_AFTER or self.bad >= _SUSPECT_AFTER
        )

    @property
    def is_unrequested(self) -> bool:
        """Whether nothing is known about the file yet."""
        return not (self.good or self.failed or self.bad)

    @property
    def is_missing(self) -> bool:
        """Whether the source said "not found" at least twice, and never gave anything else."""
        return not self.good and self.not_found_count >= 2 and self.failed == self.not_found_count and not self.bad

    @property
    def damaged(self) -> bool:
        """Whether the file has no good record, and bad bytes were the same when they were read again."""
        return not self.good and self.identical_rereads > 0 and not self.changed_rereads


class FetchRetryPolicy:
    """The state of every file of a plan, and of the source as a whole.

    ``any_good``: the source has given a good record, ``gave_good_record`` before this fetch. ``only_not_found``: every
    range since the last good record was of a file that was not found. ``is_refused``: the source refused a range.

    After ``give_up_after`` ranges in a row without an answer, of at least three files (or of all, if there are fewer),
    the source fails and not the data. ``files`` is the total number of files if the plan comes in parts
    (:meth:`add_ranges`).
    """

    def __init__(self, give_up_after: int, files: int = 0, *, gave_good_record: bool = False) -> None:
        self.files: dict[str, FileState] = {}
        self._files_in_all = files
        self.any_good = gave_good_record
        self.last: RangeFault | None = None
        self._give_up_after = give_up_after
        self._silent = 0
        self._silent_files: set[str] = set()
        self.only_not_found = True
        self.is_refused = False

    def add_ranges(self, ranges: Sequence[PlannedRange]) -> None:
        """Adds the next part of the plan. The state of the source and of its files stays."""
        for key, count in Counter(planned.key for planned in ranges).items():
            state = self.files.setdefault(key, FileState(_EXTRA))
            state.extra += count // _RANGES_AN_EXTRA

    def tries(self, key: str) -> int:
        """Grants tries for a range of ``key``; :meth:`give_back` returns the ones not needed."""
        state = self.files[key]
        if state.good:
            return MAX_TRIES
        extra_tries = max(0, min(_UNPROVEN_TRIES, state.extra - _FOR_THE_END))
        state.extra -= extra_tries
        return 1 + extra_tries

    def give_back(self, key: str, granted_tries: int, tries: int) -> None:
        """Returns the granted tries that were not needed."""
        self.files[key].extra += max(0, granted_tries - max(1, tries))

    def spend(self, key: str) -> bool:
        """Takes one of the extra requests of a file without a good record; ``False`` if none is left."""
        state = self.files[key]
        if state.good:
            return True
        if state.extra <= 0:
            return False
        state.extra -= 1
        return True

    def is_same_object(self, key: str, etag: str | None) -> bool:
        """Whether an answer's ETag is the one that most answers about ``key`` had.

        An answer without an ETag is no evidence of a changed object. Neither are ETags that are new each time, nor a
        second ETag that comes repeatedly while no record is bad: servers behind one name may each have their own.
        """
        if etag is None:
            return True
        state = self.files[key]
        etag_counts = state.etags
        if len(etag_counts) >= _ETAGS and etag not in etag_counts:
            return max(etag_counts.values()) == 1
        etag_counts[etag] += 1
        max_other_count = max((count for other_etag, count in etag_counts.items() if other_etag != etag), default=0)
        comes_again = etag_counts[etag] > 1 and max_other_count > 1 and not state.bad
        is_random = len(etag_counts) > _RANDOM and etag_counts[etag] == max_other_count == 1
        return etag_counts[etag] > max_other_count or comes_again or is_random

    def good(self, key: str) -> None:
        """Notes a good record from ``key``."""
        self.files[key].good = self.any_good = True
        self._silent = 0
        self._silent_files.clear()
        self.only_not_found = True

    def bad(self, key: str) -> None:
        """Notes a record of ``key`` that differs from the index, when it is seen for the first time."""
        self.files[key].bad += 1

    def failed(self, fault: RangeFault) -> None:
        """Notes a range that could not be read."""
        state = self.files[fault.key]
        state.failed += 1
        state.not_found_count += fault.kind is FaultKind.NOT_FOUND
        self.last = fault
        self.is_refused = self.is_refused or fault.kind is FaultKind.REFUSED
        # after a first good record, "not found" is an answer
        if fault.kind is not FaultKind.NOT_FOUND or not self.any_good:
            self._silent += 1
            self._silent_files.add(fault.key)
            self.only_not_found = self.only_not_found and fault.kind is FaultKind.NOT_FOUND

    def report_refusal(self) -> None:
        """Notes that the source refuses, perhaps in another process with the same plan."""
        self.is_refused, self.only_not_found = True, False
        if self.last is None or self.last.kind is not FaultKind.REFUSED:
            detail = "the source refuses the requests of another worker"
            self.last = range_fault(FaultKind.REFUSED, "", None, None, detail, 0)

    @property
    def is_refused_now(self) -> bool:
        """Whether the source refused the last request."""
        return self.last is not None and self.last.kind is FaultKind.REFUSED

    @property
    def should_stop(self) -> bool:
        """Whether the source fails, so that no more requests should be sent now."""
        if self.is_refused_now:
            return True
        if self.only_not_found and self.any_good:
            return False
        return self._silent >= self._give_up_after and len(self._silent_files) >= min(
            _FILES, max(self._files_in_all, len(self.files))
        )

    def skip_reason(self) -> tuple[str, str]:
        """Returns the reason and detail for planned ranges that were not requested."""
        if self.last is None:
            return FaultKind.NOT_FOUND.value, "not requested: no other range of its file could be verified"
        return (
            self.last.kind.value,
            f"not requested: other requests of this run failed, the last with: {self.last.detail}",
        )
