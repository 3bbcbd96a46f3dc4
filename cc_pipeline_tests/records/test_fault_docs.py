"""docs/faults.md against the code: the same kinds, and the same figures for each."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cc_pipeline.errors import DataKind
from cc_pipeline.extraction import fetch_counts, loss_policy
from cc_pipeline.records import capture_states as turns
from cc_pipeline.records import retry_policy
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.settings import Settings
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, handling_of
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline_tests.records.reasons import REASONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text("utf-8")
FAULTS = {kind.value: kind for kind in FaultKind}


def rows(title: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    lines = PAGE.split(f"# {title}\n", 1)[1].partition("\n#")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def attempts(kind: FaultKind) -> int:
    """How often the retry policy lets a range of this kind be requested."""
    return 0 if kind is FaultKind.REFUSED else 1 + handling_of(kind).retry_now


def test_every_reason_has_one_row_that_says_what_the_code_does() -> None:
    told = {row[0].strip("`"): row[2:] for row in rows("Every kind, and what is done about it")}
    assert list(told) == list(dict.fromkeys(told))
    assert set(told) == REASONS
    assert set(FAULTS) <= REASONS
    for name, (family, tries, again, settled) in told.items():
        kind = FAULTS.get(name)
        if kind is not None:
            assert family == ("environment" if kind in ENVIRONMENT_KINDS else "data"), name
            assert int(tries) == attempts(kind), name
            assert again == ("record" if kind in retry_policy.BY_RECORD else "range"), name
            assert (settled == "never") is (kind not in ("not_found", "range_not_satisfiable")), name
        elif name == "bad_plan":
            assert (family, tries, settled) == ("plan", "0", "at once")
        else:
            assert (family, tries, again) == ("bytes", str(RecordOptions().tries), "record"), name
            assert settled == "same bytes twice", name


def test_kinds_of_bytes_are_on_the_page() -> None:
    kinds = {kind.value for kind in DataKind}
    of_records = {row[0].strip("`") for row in rows("Every kind, and what is done about it")}
    of_files = {row[0].strip("`") for row in rows("What is wrong with bytes")}
    assert of_files <= kinds <= of_files | of_records


def test_the_figures_are_those_of_the_code() -> None:
    state = retry_policy.FileState(0)
    waits = next(number for number in range(10) if retry_policy.FileState(0, failed=number).is_suspect)
    assert not state.is_suspect
    hour = timedelta(hours=1)
    assert [row[1] for row in rows("What a fetch does")] == [
        str(figure)
        for figure in (
            retry_policy.MAX_TRIES,
            1 + retry_policy._UNPROVEN_TRIES,
            retry_policy._EXTRA,
            retry_policy._RANGES_AN_EXTRA,
            waits,
            RecordOptions().tries,
            RecordOptions().give_up_after,
            retry_policy._FILES,
            f"{turns._SAMPLE_FILES} each",
            Settings.__dataclass_fields__["max_pending"].default,
            loss_policy.MIN_CAPTURES,
            Settings.__dataclass_fields__["max_lost"].default,
            loss_policy.MANY_LOSSES,
            f"{loss_policy.MAX_MISMATCH_SHARE:g}",
            fetch_counts.MAX_ROUNDS,
            loss_policy._FIRST_DELAY // timedelta(minutes=1),
            loss_policy._MAX_DELAY // hour,
            loss_policy.MAX_RECHECKED_FILES,
            loss_policy.RECHECK_DELAY // hour,
            loss_policy._MAX_RECHECK_DELAY.days,
        )
    ]
    assert RetryPolicy().attempts == retry_policy.MAX_TRIES
