"""The scope of a check: the partitions of a run, the changes since the last evaluation, or everything.

A check stores a note with the version of ``slices`` that it has seen and the wrong partitions. The next evaluation
examines the slices that were committed since, and the wrong ones: the others are unchanged. This module is light:
modules of checks are loaded with the definitions of a home.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.progress import list_first

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake
    from cc_pipeline.lake.slice import Slice

#: The most partitions that a message names.
MAX_SHOWN_KEYS: Final = 5
#: The most wrong partitions in a note; with more, the next evaluation examines everything.
_MAX_NOTED_KEYS: Final = 500
_SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "warn", "error")
#: Labels of the texts of a note. A partition that was amber or red is examined again.
SEEN_LABEL: Final = "examined slices"
_WRONG_LABELS: Final[Mapping[Severity, str]] = {"error": "red partitions", "warn": "amber partitions"}
_NOT_SEEN: Final = "not examined as a whole yet"
#: Between two entries of a text. No crawl or slug has it.
_JOINT: Final = ", "
#: Longest time from the time in a row of ``slices`` until readers see the row, which is after many tries to commit it
#: in a busy lake; and difference of two clocks.
_MARGIN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Scope:
    """The ``slices`` to examine (``None``: all)."""

    slices: Collection[Slice] | None = None
    memo: dict[object, Any] = field(default_factory=dict)

    @property
    def crawls(self) -> set[str] | None:
        """The crawls to examine, ``None`` for all."""
        return None if self.slices is None else {slice_.crawl for slice_ in self.slices}


@dataclass(frozen=True, slots=True)
class Seen:
    """The version of ``slices`` at an evaluation, and when that began."""

    version: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Note:
    """The note of an evaluation for the next one: what was ``seen`` (``None``: not everything was examined yet), the
    wrong partitions, and the severity."""

    seen: Seen | None = None
    wrong: tuple[str, ...] = ()
    severity: Severity = "ok"

    def to_texts(self) -> dict[str, str]:
        """Returns the note as texts by label, which a person reads in the UI: ``41, 2026-11-28T23:06:47+00:00``, and
        the wrong partitions by the colour of the check."""
        seen_text = _NOT_SEEN if self.seen is None else f"{self.seen.version}{_JOINT}{self.seen.at.isoformat()}"
        texts = {SEEN_LABEL: seen_text}
        if self.wrong:
            texts[_WRONG_LABELS[self.severity]] = _JOINT.join(self.wrong)
        return texts


def read_note(texts: Mapping[str, str]) -> Note | None:
    """Reads a note from its texts; ``None`` for other texts."""
    if SEEN_LABEL not in texts:
        return None
    version, _, time = texts[SEEN_LABEL].partition(_JOINT)
    seen = Seen(int(version), datetime.fromisoformat(time)) if time else None
    for severity, label in _WRONG_LABELS.items():
        if label in texts:
            return Note(seen, tuple(texts[label].split(_JOINT)), severity)
    return Note(seen)


def see(lake: Lake) -> Seen:
    """Returns what an evaluation that begins now sees: it examines later commits next time."""
    return Seen(lake.version("slices"), datetime.now(UTC))


def changed_since(lake: Lake, seen: Seen, stages: Sequence[str]) -> set[Slice]:
    """Returns the slices that ``stages`` (their labels) committed since, and those of the hour before."""
    from cc_pipeline.lake.slice import Slice  # noqa: PLC0415  # heavy, as the next one is
    from cc_pipeline.lake.slices import current_rows  # noqa: PLC0415

    if lake.version("slices") == seen.version:
        return set()
    rows = current_rows(lake, None, ["committed_at"])
    keys = zip(*(rows[name].to_pylist() for name in ("crawl", "target", "stage", "committed_at")), strict=True)
    since = seen.at - _MARGIN
    return {Slice(crawl, target) for crawl, target, stage, at in keys if stage in stages and at >= since}


def key_of(slice_: Slice) -> str:
    """Returns the key of the partition that a slice belongs to, as Dagster writes it."""
    return f"{slice_.crawl}|{whole_slug(slice_.target)}" if slice_.target else slice_.crawl


def carry_over_note(
    verdict: CheckResult, scope: Scope, previous_note: Note | None, seen: Seen | None
) -> tuple[CheckResult, Note]:
    """Returns ``verdict`` with the earlier problems of other partitions, and the note for the next evaluation. ``seen``
    is ``None`` if only a run's partitions were examined, so that changes since the last evaluation are still to be
    examined."""
    # a passing check has nothing to examine again, whatever it names
    wrong_keys = set() if verdict.passed else set(verdict.wrong)
    checked_keys = None if scope.slices is None else {*map(key_of, scope.slices)}
    unchecked_keys = (
        []
        if checked_keys is None or previous_note is None
        else [key for key in previous_note.wrong if key not in checked_keys]
    )
    severity = verdict.severity
    if unchecked_keys and previous_note is not None:
        severity = max(severity, previous_note.severity, key=_SEVERITIES.index)
        remark = (
            f"not checked this time, and wrong before: {abbreviate_keys(unchecked_keys)}; an earlier execution of this "
            "check has the reason"
        )
        verdict = replace(verdict, severity=severity, message=f"{verdict.message}\n{remark}")
    wrong = sorted({*wrong_keys, *unchecked_keys})
    if seen is None and previous_note is not None:
        seen = previous_note.seen
    if len(wrong) > _MAX_NOTED_KEYS:
        seen = None
    return verdict, Note(seen, tuple(wrong[:_MAX_NOTED_KEYS]), severity)


def join_results(name: str, verdicts: Sequence[CheckResult]) -> CheckResult:
    """Joins several results into one, the worst first. The metrics are kept only for a single result."""
    if not verdicts:
        return CheckResult(name, "ok", "nothing to check")
    ordered = sorted(verdicts, key=lambda verdict: -_SEVERITIES.index(verdict.severity))
    lines = [*dict.fromkeys(verdict.message for verdict in ordered)]
    remainder = [f"and {len(lines) - 20:,} more"] if len(lines) > 20 else []
    return CheckResult(
        name,
        ordered[0].severity,
        "\n".join(lines[:20] + remainder),
        verdicts[0].metrics if len(verdicts) == 1 else {},
        tuple(key for verdict in ordered for key in verdict.wrong),
    )


def abbreviate_keys(keys: Collection[str]) -> str:
    """Returns the first of ``keys``, and how many more there are."""
    return list_first(sorted(keys), MAX_SHOWN_KEYS)


Severity = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: ``ok``, ``warn`` or ``error``, with ``metrics`` for display.

    ``wrong`` are the keys of partitions with a problem; they are examined again until they are right. ``advice`` says
    what to do, if ``message`` does not.
    """

    name: str
    severity: Severity
    message: str
    metrics: Mapping[str, int | float | str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    advice: str = ""

    @property
    def passed(self) -> bool:
        return self.severity == "ok"
