"""docs/faults.md against the code: the same kinds, and the same figures for each."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from cc_pipeline.extraction import fetch, loss_policy
from cc_pipeline.records import source_state
from cc_pipeline.records.ask_counts import ASK_INTERVAL, ASKS_UNTIL_LOST, BAD_PLAN
from cc_pipeline.records.orders import RecordOptions
from cc_pipeline.settings import Settings
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, handling_of
from cc_pipeline_tests.records.reasons import REASONS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "faults.md").read_text("utf-8")
FAULTS = {kind.value: kind for kind in FaultKind}


def rows(title: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    lines = PAGE.split(f"# {title}\n", 1)[1].partition("\n#")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_every_reason_has_one_row_that_says_what_the_code_does() -> None:
    told = {row[0].strip("`"): row[2:] for row in rows("Every kind, and what is done about it")}
    assert list(told) == list(dict.fromkeys(told))
    assert set(told) == REASONS
    assert set(FAULTS) <= REASONS
    for name, (family, tries, counts) in told.items():
        kind, handling = FAULTS.get(name), handling_of(name)
        if kind is not None:
            assert family == ("environment" if kind in ENVIRONMENT_KINDS else "data"), name
        else:
            assert family == ("plan" if name == BAD_PLAN else "bytes"), name
        assert int(tries) == handling.retry_now, name
        assert counts.startswith("no") is not handling.counts, name
        assert ("pause" in counts) is handling.pauses_host, name


def test_the_figures_are_those_of_the_code() -> None:
    hour = timedelta(hours=1)
    assert [row[1] for row in rows("What a fetch does")] == [
        str(figure)
        for figure in (
            source_state._MAX_FAILURES,
            RecordOptions().give_up_after,
            source_state._SILENT_FILES,
            ASKS_UNTIL_LOST,
            ASK_INTERVAL // hour,
            fetch._PROOF_AGE // hour,
            Settings.__dataclass_fields__["max_pending"].default,
            loss_policy.MIN_CAPTURES,
            Settings.__dataclass_fields__["max_lost"].default,
            loss_policy.MANY_LOSSES,
            loss_policy._FIRST_DELAY // timedelta(minutes=1),
            loss_policy._MAX_DELAY.days,
        )
    ]
