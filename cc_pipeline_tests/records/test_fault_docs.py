"""docs/faults.md against the code: the same kinds, and the same figures for each."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.records.ask_counts import BAD_PLAN
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
