"""The plan, as a table: what differs from what a slice was made from, and the reasons that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cc_pipeline.extraction.plan import (
    Index,
    Options,
    Plan,
    Price,
    Reason,
    ReasonKind,
    SlicePlan,
    SliceRequest,
    build_fetch_input,
    build_locate_input,
    build_parse_input,
    estimate_price,
    options_of,
    plan,
)
from cc_pipeline.extraction.slice_state import STAGES, Lookup, SliceState, parse_lookup
from cc_pipeline.index.locator import NAMED_CAPTURES, UNION
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, Stage
from cc_pipeline.lake.slices import SliceRow, TableState
from cc_pipeline.settings import load_settings

SLICE = Slice("CC-MAIN-2024-22", "example.org")
OPTIONS = Options(parser="41")
UNCHANGED = SliceRequest("d1")
INDEXES = {(SLICE.crawl, SLICE.subset): Index({"parquet": "p1", "zipnum": "z1"})}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOKUP: dict[str, Any] = {
    "located_by": "parquet", "index_version": "p1", "definition": "d1", "complete": True, "captures": 40,
    "fetch_requests": 6, "fetch_bytes": 900, "record_bytes": 800, "index_files": 3, "unread_files": 0, "unlisted": 0,
}  # fmt: skip
FETCHED: dict[str, Any] = {
    "planned": 40, "fetched": 38, "pending": 2, "lost": 0, "reason": "timeout", "example": None, "ask_pending": 0,
    "asks": 0, "lost_reason": None, "mismatched": 0, "stored_bytes": 700, "failed_runs": 0, "next_ask_at": None,
    "last_attempt_at": NOON.isoformat(), "stored_files": [],
}  # fmt: skip
K = ReasonKind


def made(stage: Stage, input_: Mapping[str, str], content: str, note: Mapping[str, Any]) -> SliceRow:
    return SliceRow(SLICE, stage.label, 0, 1, input_, {stage.main_table: TableState(1, 40, content)}, note)


CURRENT = {
    LOCATE: made(LOCATE, build_locate_input("d1", "parquet", "p1"), "c1", LOOKUP),
    FETCH: made(FETCH, build_fetch_input("c1"), "r1", FETCHED),
    PARSE: made(PARSE, build_parse_input("r1", OPTIONS), "g1", {}),
}


def state_of(rows: Mapping[Stage, SliceRow] = CURRENT, lost_records: int = 0) -> SliceState:
    return SliceState(0, {stage.label: row for stage, row in rows.items()}, lost_records)


def without(*stages: Stage) -> SliceState:
    return state_of({stage: row for stage, row in CURRENT.items() if stage not in stages})


def changed(stage: Stage, **values: Any) -> SliceState:
    return state_of(CURRENT | {stage: replace(CURRENT[stage], **values)})


def noted(**values: Any) -> SliceState:
    return changed(LOCATE, note=LOOKUP | values)


def reasons(
    state: SliceState,
    request: SliceRequest = UNCHANGED,
    indexes: Mapping[tuple[str, str], Index] = INDEXES,
    stages: tuple[Stage, ...] = STAGES,
    **options: Any,
) -> dict[Stage, Reason]:
    found = plan({SLICE: request}, {SLICE: state}, indexes, replace(OPTIONS, **options), stages)
    return {stage: reason for stage in STAGES for reason in found.reasons_for(stage).values()}


def index(gaps_allowed: bool = True, **versions: str) -> dict[tuple[str, str], Index]:
    return {(SLICE.crawl, SLICE.subset): Index(versions, gaps_allowed)}


INCOMPLETE = build_fetch_input("c1", complete=False)


@pytest.mark.parametrize(
    ("state", "given", "stage", "expected"),
    [
        (state_of(), {}, None, None),
        # locate
        (SliceState(), {}, LOCATE, Reason(K.NEW)),
        (changed(LOCATE, note={}), {}, LOCATE, Reason(K.NEW)),
        (changed(LOCATE, tables={}), {}, LOCATE, Reason(K.NEW)),
        (changed(LOCATE, input={}), {}, LOCATE, Reason(K.INCOMPLETE_ROWS)),
        (state_of(), {"request": SliceRequest("d2")}, LOCATE, Reason(K.DEFINITION)),
        (state_of(), {"request": SliceRequest("d2", is_set=True)}, LOCATE, Reason(K.MEMBERS)),
        (state_of(), {"request": SliceRequest("d1!b7")}, LOCATE, Reason(K.BLOCKED)),
        (noted(definition="d1!b7"), {}, LOCATE, Reason(K.BLOCKED)),
        (state_of(), {"request": SliceRequest("d2!b7")}, LOCATE, Reason(K.DEFINITION)),
        (state_of(), {"via": "zipnum"}, LOCATE, Reason(K.OTHER_INDEX)),
        (state_of(), {"via": "parquet"}, None, None),
        (noted(located_by=NAMED_CAPTURES), {"via": "zipnum"}, None, None),
        (state_of(), {"indexes": index(parquet="p2")}, LOCATE, Reason(K.INDEX)),
        (noted(complete=False), {"indexes": index(parquet="p2")}, LOCATE, Reason(K.GAP_FILLED)),
        (noted(complete=False), {}, None, None),
        (noted(complete=False), {"indexes": index(False, parquet="p2")}, LOCATE, Reason(K.GAPS_FORBIDDEN)),
        (noted(complete=False, unread_files=1), {}, LOCATE, Reason(K.GAPS_FORBIDDEN)),
        (noted(complete=False, unread_files=1), {"max_index_gaps": 0.5}, None, None),
        (state_of(), {"indexes": index(False, parquet="p1")}, None, None),
        (noted(unlisted=3), {}, None, None),
        (noted(unlisted=3), {"accepts_removals": True}, LOCATE, Reason(K.UNLISTED_CAPTURES, 3)),
        (state_of(), {"accepts_removals": True}, None, None),
        # fetch
        (without(FETCH, PARSE), {}, FETCH, Reason(K.NEW)),
        (changed(FETCH, input={}), {}, FETCH, Reason(K.INCOMPLETE_ROWS)),
        (changed(FETCH, input=build_fetch_input("c0")), {}, FETCH, Reason(K.CAPTURES)),
        (changed(FETCH, note={}), {}, FETCH, Reason(K.CAPTURES)),
        (changed(FETCH, input=INCOMPLETE), {}, FETCH, Reason(K.PENDING_CAPTURES, 2, NOON)),
        (state_of(lost_records=5), {}, FETCH, Reason(K.LOST_BYTES, 5)),
        (changed(FETCH, note=FETCHED | {"lost": 4}), {}, None, None),
        (changed(FETCH, note=FETCHED | {"lost": 4}), {"refetch": True}, FETCH, Reason(K.LOST_CAPTURES, 4)),
        (state_of(), {"refetch": True}, None, None),
        (state_of(lost_records=5), {"refetch": True}, FETCH, Reason(K.LOST_BYTES, 5)),
        # parse
        (without(PARSE), {}, PARSE, Reason(K.NEW)),
        (changed(PARSE, input={}), {}, PARSE, Reason(K.INCOMPLETE_ROWS)),
        (changed(PARSE, input=build_parse_input("r0", OPTIONS)), {}, PARSE, Reason(K.RECORDS)),
        (state_of(), {"parser": "42"}, PARSE, Reason(K.PARSER)),
        (state_of(), {"markdown": True}, PARSE, Reason(K.OPTIONS)),
        (state_of(), {"markdown": True, "parser": "42"}, PARSE, Reason(K.PARSER)),
        # a blocked site keeps its rows; one that was never located is located, and has no captures
        (state_of(lost_records=5), {"request": SliceRequest("d1!all")}, None, None),
        (SliceState(), {"request": SliceRequest("d1!all")}, LOCATE, Reason(K.NEW)),
        # some stages alone
        (state_of(), {"request": SliceRequest("d2"), "stages": (FETCH, PARSE)}, None, None),
        (without(LOCATE), {"stages": (FETCH,)}, FETCH, Reason(K.NEW)),
        (without(FETCH), {"stages": (PARSE,)}, PARSE, Reason(K.NEW)),
    ],
)  # fmt: skip
def test_a_stage_is_made_for_one_reason_and_those_after_it_follow(
    state: SliceState, given: dict[str, Any], stage: Stage | None, expected: Reason | None
) -> None:
    found = reasons(state, **given)
    first, *later = [*found.values()] or [None]
    assert ([*found][:1], first) == ([] if stage is None else [stage], expected)
    assert set(later) <= {Reason(K.AFTER_PREVIOUS_STAGE)}
    if stage is not None and len(later) == 2 - STAGES.index(stage):
        assert [*found] == [*STAGES[STAGES.index(stage) :]]


def test_every_reason_is_in_words_with_its_figures() -> None:
    assert {str(Reason(kind, 1, NOON)) for kind in K} >= {
        "1 capture is pending since 2026-03-01 12:00 UTC", "the bytes of 1 record are missing",
    }  # fmt: skip
    assert str(Reason(K.UNLISTED_CAPTURES, 2)) == "2 captures are no longer in the index, to be removed"


def test_versions_of_indexes_that_answered_together_are_compared_one_by_one() -> None:
    found = parse_lookup(LOOKUP | {"located_by": UNION, "index_version": "t1+z1"})

    def is_unchanged(lookup: Lookup = found, **versions: str) -> bool:
        return Index(versions).is_unchanged(lookup)

    assert is_unchanged() and is_unchanged(btree="t1") and is_unchanged(btree="t1", zipnum="z1", parquet="p1")
    assert not is_unchanged(btree="t2") and not is_unchanged(btree="t1", zipnum="z2")
    assert is_unchanged(replace(found, located_by="btree", index=""), btree="published"), "nobody noted it"
    assert is_unchanged(replace(found, index="t1"), btree="t1", zipnum="z1")
    assert Index({"btree": "t1", "parquet": "p"}).version_of(UNION, "z1") == "t1+z1"
    assert Index({"parquet": "p"}).version_of("parquet", "") == "p"


@pytest.mark.parametrize(
    ("state", "stage", "kind", "price"),
    [
        (state_of(), LOCATE, K.INDEX, Price(None, None, None, None)),
        (state_of(), PARSE, K.AFTER_PREVIOUS_STAGE, Price(None, None, None, None)),
        (state_of(), FETCH, K.CAPTURES, Price(6, 900, 0, 0)),
        (state_of(), FETCH, K.PENDING_CAPTURES, Price(4, 90, 0, 0)),
        (state_of(), FETCH, K.LOST_BYTES, Price(4, 90, 0, 0)),
        (noted(captures=0), FETCH, K.LOST_BYTES, Price(4, 900, 0, 0)),
        (noted(fetch_requests=3), FETCH, K.LOST_BYTES, Price(3, 90, 0, 0)),
        (changed(LOCATE, note={}), FETCH, K.NEW, Price(None, None, 0, 0)),
        (state_of(), PARSE, K.PARSER, Price(0, 0, 38, 700)),
        (changed(FETCH, note={}), PARSE, K.PARSER, Price(0, 0, None, None)),
    ],
)
def test_a_stage_costs_what_its_reason_needs(state: SliceState, stage: Stage, kind: ReasonKind, price: Price) -> None:
    assert estimate_price(state, stage, Reason(kind, 4)) == price


def test_one_lost_record_of_one_costs_all_of_it() -> None:
    assert estimate_price(noted(captures=1), FETCH, Reason(K.LOST_BYTES, 1)) == Price(1, 900, 0, 0)
    assert Reason(K.NEW) == Reason(K.NEW, 0, None)


def test_inputs_are_kept_as_these_words() -> None:
    """They are compared with those in the lake: other words make everything once more."""
    assert build_locate_input("d", "btree", "t") == {
        "version": "1", "definition": "d", "index": "btree", "index_version": "t"
    }  # fmt: skip
    assert [build_fetch_input("c", complete=complete) for complete in (True, False)] == [
        {"version": "1", "captures": "c", "state": state} for state in ("complete", "incomplete")
    ]
    assert build_parse_input("r", OPTIONS) == {"records": "r", "parser": "41", "markdown": "no"}
    assert Options() == Options("auto", markdown=False, accepts_removals=False)


def test_a_plan_lists_what_is_due_in_the_order_of_the_requests_and_leaves_out_kinds() -> None:
    other = Slice(SLICE.crawl, "a.example")
    states = {SLICE: state_of(lost_records=1), other: SliceState(), Slice(SLICE.crawl, "b.example"): state_of()}
    found = plan({slice_: SliceRequest("d1") for slice_ in states}, states, INDEXES, OPTIONS)
    assert [slice_plan.slice_ for slice_plan in found.slice_plans] == [SLICE, other]
    assert found.reasons_for(FETCH, excluded_kinds=(K.LOST_BYTES,)) == {other: Reason(K.AFTER_PREVIOUS_STAGE)}
    assert SlicePlan(SLICE, fetch=Reason(K.NEW)).first_reason == Reason(K.NEW)
    assert Plan().reasons_for(LOCATE) == {}


def test_options_are_those_of_the_settings_that_rows_depend_on() -> None:
    settings = load_settings({}, index="zipnum", markdown=True)
    options = options_of(settings)
    assert (options.via, options.accepts_removals) == ("zipnum", False)
    assert [build_parse_input("r", chosen)["markdown"] for chosen in (options, OPTIONS)] == ["yes", "no"]
    assert options_of(replace(settings, accept_removals=True)).accepts_removals
