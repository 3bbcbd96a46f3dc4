"""The scope of a check: the partitions of a run, the changes since the last evaluation, or everything.

A check stores a note with the versions it has seen and the wrong partitions. The next evaluation reads from the tables'
logs what was committed since, and examines these partitions and the wrong ones: the others are unchanged. That reads no
rows. This module is light: modules of checks are loaded with the definitions of a home.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.progress import list_first

if TYPE_CHECKING:
    from cc_pipeline.lake.digests.log import UnknownDigests
    from cc_pipeline.lake.lake import Lake
    from cc_pipeline.lake.slice import Slice, Stage

#: The most partitions that a message names.
MAX_SHOWN_KEYS: Final = 5
#: The most wrong partitions in a note; with more, the next evaluation examines everything.
_MAX_NOTED_KEYS: Final = 500
_SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "warn", "error")
#: Labels of the texts of a note. A partition that was amber or red is examined again.
VERSIONS_LABEL: Final = "table versions"
_WRONG_LABELS: Final[Mapping[Severity, str]] = {"error": "red partitions", "warn": "amber partitions"}
_NO_VERSIONS: Final = "not examined as a whole yet"
#: Between two entries of a text. No table, crawl or slug has it.
_JOINT: Final = ", "


@dataclass(frozen=True, slots=True)
class Scope:
    """The ``slices`` to examine (``None``: all). ``in_run``: a run has just made them. Then a check uses only data of
    the home, and sends no request to the source."""

    slices: Collection[Slice] | None = None
    in_run: bool = False
    memo: dict[object, Any] = field(default_factory=dict)

    @property
    def crawls(self) -> set[str] | None:
        """The crawls to examine, ``None`` for all."""
        return None if self.slices is None else {slice_.crawl for slice_ in self.slices}


@dataclass(frozen=True, slots=True)
class Note:
    """The note of an evaluation for the next one: versions of tables, the wrong partitions, and the severity."""

    versions: Mapping[str, int] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    severity: Severity = "ok"

    def to_texts(self) -> dict[str, str]:
        """Returns the note as texts by label, which a person reads in the UI: ``captures 3, records 5``, and the wrong
        partitions by the colour of the check."""
        versions_text = _JOINT.join(f"{table} {version}" for table, version in self.versions.items())
        texts = {VERSIONS_LABEL: versions_text or _NO_VERSIONS}
        if self.wrong:
            texts[_WRONG_LABELS[self.severity]] = _JOINT.join(self.wrong)
        return texts


def read_note(texts: Mapping[str, str]) -> Note | None:
    """Reads a note from its texts; ``None`` for other texts."""
    if VERSIONS_LABEL not in texts:
        return None
    versions_text = texts[VERSIONS_LABEL]
    pairs = [] if versions_text == _NO_VERSIONS else [text.rsplit(" ", 1) for text in versions_text.split(_JOINT)]
    versions = {table: int(version) for table, version in pairs}
    for severity, label in _WRONG_LABELS.items():
        if label in texts:
            return Note(versions, tuple(texts[label].split(_JOINT)), severity)
    return Note(versions)


def versions_of(lake: Lake, tables: Iterable[str]) -> dict[str, int]:
    """Returns the current versions of ``tables``. Read them before the evaluation: later commits are examined next
    time."""
    return {table: lake.version(table) for table in tables}


def changed_since(
    lake: Lake, note: Note, now: Mapping[str, int], stages: Sequence[Stage]
) -> set[Slice] | UnknownDigests:
    """Returns the slices of ``stages`` that were committed since ``note``, and slices whose rows were, whatever the
    digests; ``UNKNOWN_DIGESTS`` if the logs do not tell."""
    from cc_pipeline.lake import row_counts  # noqa: PLC0415  # heavy, as the next two are
    from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS  # noqa: PLC0415
    from cc_pipeline.lake.slice import Slice  # noqa: PLC0415

    slices: set[Slice] = set()
    for table, version in now.items():
        names = lake.changed_since(table, note.versions[table], version) if table in note.versions else UNKNOWN_DIGESTS
        if names is UNKNOWN_DIGESTS:
            return UNKNOWN_DIGESTS
        slices.update(
            slice_ for stage in stages for slice_ in map(stage.parse_digest_name, names) if slice_ is not None
        )
        keys = (row_counts.parse_count_name(lake.specs[table], name) for name in names)
        slices.update(Slice(*key) for key in keys if key)
    return slices


def key_of(slice_: Slice) -> str:
    """Returns the key of the partition that a slice belongs to, as Dagster writes it."""
    return f"{slice_.crawl}|{whole_slug(slice_.target)}" if slice_.target else slice_.crawl


def carry_over_note(
    verdict: CheckResult, scope: Scope, previous_note: Note | None, now: Mapping[str, int]
) -> tuple[CheckResult, Note]:
    """Returns ``verdict`` with the earlier problems of other partitions, and the note for the next evaluation. ``now``
    has the versions of the tables; it is empty if only a run's partitions were examined, so that changes since the last
    evaluation are still to be examined."""
    # a passing check has nothing to examine again, whatever it names
    wrong_keys = set() if verdict.passed else set(verdict.wrong)
    checked_keys = None if scope.slices is None else {*map(key_of, scope.slices)} if verdict.was_evaluated else set()
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
    versions = now or (previous_note.versions if previous_note is not None else {})
    if len(wrong) > _MAX_NOTED_KEYS:
        versions = {}
    return verdict, Note(versions, tuple(wrong[:_MAX_NOTED_KEYS]), severity)


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
    what to do, if ``message`` does not. Without ``was_evaluated`` nothing was examined, so earlier problems remain.
    """

    name: str
    severity: Severity
    message: str
    metrics: Mapping[str, int | float | str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    advice: str = ""
    was_evaluated: bool = True

    @property
    def passed(self) -> bool:
        return self.severity == "ok"
