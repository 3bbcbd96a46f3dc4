"""Plans the stages of slices: a pure function of the requests and the slice states.

The input of a stage is the *content* of the one before it, so a change that changes no rows ends there:

    located from  the version of the target's definition, and the index that was asked
    fetched from  the content of the captures
    parsed from   the content of the records, the parser, and its options

The fields of an input are compared one by one, so a reason is read and not guessed. Nothing here reads a lake, a clock
or the network. A stage after a planned one has the reason ``AFTER_PREVIOUS_STAGE``: whether it is due is known once the
earlier one was made, and the plan is made again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.extraction.blocklist import differs_only_in_blocks, is_all_blocked
from cc_pipeline.extraction.slice_state import STAGES, Lookup, SliceState
from cc_pipeline.index.locator import NAME_SEPARATOR, NAMED_CAPTURES
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, Slice, Stage
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings

#: Raised when the same inputs would give other rows of ``captures``, or of ``records``.
_LOCATE_VERSION, _FETCH_VERSION = "1", "1"


class ReasonKind(Enum):
    """All reasons for which a stage of a slice is made, in words for a person; ``{n}`` and ``{since}`` are filled
    in."""

    NEW = "new"
    DEFINITION = "the target's definition changed"
    BLOCKED = "its sites on the blocklist changed"
    MEMBERS = "members of the set changed"
    INDEX = "the index changed"
    GAP_FILLED = "a gap in the index was filled"
    GAPS_FORBIDDEN = "its index lacks files, and the settings do not allow that"
    OTHER_INDEX = "another index was chosen"
    UNLISTED_CAPTURES = "{captures} no longer in the index, to be removed"
    CAPTURES = "its captures changed"
    PENDING_CAPTURES = "{captures} pending since {since}"
    LOST_CAPTURES = "{captures} lost, to be requested again"
    LOST_BYTES = "the bytes of {records} are missing"
    RECORDS = "its records changed"
    PARSER = "the parser is newer"
    OPTIONS = "the parser's options changed"
    INCOMPLETE_ROWS = "its rows are incomplete"
    AFTER_PREVIOUS_STAGE = "after the previous step"


#: Reasons that are about single captures of a slice, whose cost was agreed to before.
SINGLE_CAPTURES: Final = (ReasonKind.PENDING_CAPTURES, ReasonKind.LOST_CAPTURES, ReasonKind.LOST_BYTES)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, with a count and a time if they are part of it."""

    kind: ReasonKind
    n: int = 0
    since: datetime | None = None

    def __str__(self) -> str:
        since = "" if self.since is None else f"{self.since:%Y-%m-%d %H:%M} UTC"
        return self.kind.value.format(
            captures=format_count(self.n, "capture", "are"),
            records=format_count(self.n, "record"),
            since=since,
        )


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """The request of one slice: the version of its target's definition, and whether the target is a set."""

    version: str
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """The indexes by which a subset of a crawl can be located: their versions by kind (``parquet``, ``zipnum``,
    ``btree``), and whether the gaps of the columnar one are allowed."""

    versions: Mapping[str, str]
    gaps_allowed: bool = True

    def version_of(self, kinds: str, reported_version: str) -> str:
        """The version of an index, or of several ``kinds`` that answered together. ``reported_version`` is used if none
        is known here."""
        return NAME_SEPARATOR.join(self.versions.get(kind, reported_version) for kind in kinds.split(NAME_SEPARATOR))

    def is_unchanged(self, lookup: Lookup) -> bool:
        """Whether the index that located the slice is unchanged. An index that is no longer there, or has no known
        version, counts as unchanged."""
        noted_versions = zip(lookup.located_by.split(NAME_SEPARATOR), lookup.index.split(NAME_SEPARATOR), strict=False)
        return not lookup.index or all(self.versions.get(kind, version) == version for kind, version in noted_versions)


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that decide about rows: ``via`` names an index or ``auto``; the others as in the settings."""

    via: str = "auto"
    markdown: bool = False
    parser: str = PARSER_VERSION
    accepts_removals: bool = False
    refetch: bool = False
    max_index_gaps: float = 0.0


def options_of(settings: Settings) -> Options:
    """The options of these settings, with the current parser."""
    return Options(
        settings.index,
        settings.markdown,
        PARSER_VERSION,
        settings.accept_removals,
        settings.refetch,
        settings.max_index_gaps,
    )


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """The plan of one slice: the reason for which each stage is made; ``None``: the stage is up to date."""

    slice_: Slice
    locate: Reason | None = None
    fetch: Reason | None = None
    parse: Reason | None = None

    def reason_for(self, stage: Stage) -> Reason | None:
        """The reason for which one stage is made."""
        return {LOCATE.label: self.locate, FETCH.label: self.fetch, PARSE.label: self.parse}[stage.label]

    @property
    def first_reason(self) -> Reason | None:
        """The reason of the first stage that is made."""
        return self.locate or self.fetch or self.parse


@dataclass(frozen=True, slots=True)
class Price:
    """The estimated cost of a stage of one slice: requests and bytes of the source, pages to be parsed, and bytes of
    stored records to be read for them. ``None``: known once the stage before was made."""

    requests: int | None = 0
    bytes: int | None = 0
    pages: int | None = 0
    stored: int | None = 0


def estimate_price(slice_state: SliceState, stage: Stage, reason: Reason) -> Price:
    """The estimated cost of one stage of a slice in this state. The cost of a lookup depends on its neighbours
    (``extraction/index_choice.py``)."""
    if stage is LOCATE or reason.kind is ReasonKind.AFTER_PREVIOUS_STAGE:
        return Price(None, None, None, None)
    if stage is PARSE:
        fetch = slice_state.fetch
        return (
            Price(pages=None, stored=None) if fetch is None else Price(pages=fetch.fetched, stored=fetch.stored_bytes)
        )
    if slice_state.lookup is None:
        return Price(None, None)
    price = slice_state.lookup.price
    if reason.kind in SINGLE_CAPTURES:
        share = min(1.0, reason.n / max(1, slice_state.lookup.captures))
        return Price(min(reason.n, price.requests), int(price.bytes * share))
    return Price(price.requests, price.bytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of slices with a stage that is due, in the order of the requests."""

    slice_plans: tuple[SlicePlan, ...] = ()

    def reasons_for(self, stage: Stage, *, excluded_kinds: Collection[ReasonKind] = ()) -> dict[Slice, Reason]:
        """The slices whose ``stage`` is due, with the reason, without those whose reason is one of
        ``excluded_kinds``."""
        return {
            slice_plan.slice_: reason
            for slice_plan in self.slice_plans
            if (reason := slice_plan.reason_for(stage)) is not None and reason.kind not in excluded_kinds
        }


def plan(
    requests: Mapping[Slice, SliceRequest],
    slice_states: Mapping[Slice, SliceState],
    indexes: Mapping[tuple[str, str], Index],
    options: Options,
    stages: Sequence[Stage] = STAGES,
) -> Plan:
    """Plans the requested slices, from their states, up to the ``stages`` given.

    ``indexes`` are by crawl and subset. A slice whose earlier stage is lacking and not among ``stages`` is planned no
    further: whoever wants records of a slice that was never located reports that.
    """

    slice_plans = (
        _plan_slice(
            slice_,
            request,
            slice_states[slice_],
            indexes.get((slice_.crawl, slice_.subset), _NO_INDEX),
            options,
            stages,
        )
        for slice_, request in requests.items()
    )
    return Plan(tuple(slice_plan for slice_plan in slice_plans if slice_plan.first_reason is not None))


_NO_INDEX: Final = Index({})


def _plan_slice(
    slice_: Slice,
    request: SliceRequest,
    slice_state: SliceState,
    index: Index,
    options: Options,
    stages: Sequence[Stage],
) -> SlicePlan:
    rules: list[tuple[Stage, Callable[[], Reason | None]]] = [
        (LOCATE, lambda: _find_locate_reason(request, slice_state, index, options)),
        (FETCH, lambda: _find_fetch_reason(slice_state, options)),
        (PARSE, lambda: _find_parse_reason(slice_state, options)),
    ]
    # a blocked site keeps its rows, so no stage may run
    is_blocked = is_all_blocked(request.version) and slice_state.located is not None and slice_state.lookup is not None
    reasons: dict[str, Reason | None] = {}
    for stage, rule in rules:
        if stage in stages:
            reasons[stage.label] = (
                Reason(ReasonKind.AFTER_PREVIOUS_STAGE) if any(reasons.values()) else None if is_blocked else rule()
            )
    return SlicePlan(slice_, reasons.get(LOCATE.label), reasons.get(FETCH.label), reasons.get(PARSE.label))


def build_locate_input(definition: str, kind: str, index: str) -> dict[str, str]:
    """The input of a located slice: the version of its target's ``definition``, and the kind and version of the
    index."""
    return {"version": _LOCATE_VERSION, "definition": definition, "index": kind, "index_version": index}


def build_fetch_input(captures: str, *, complete: bool = True) -> dict[str, str]:
    """The input of a fetched slice: the content digest of its captures, and whether nothing is pending."""
    return {"version": _FETCH_VERSION, "captures": captures, "state": "complete" if complete else "incomplete"}


def build_parse_input(records: str, options: Options) -> dict[str, str]:
    """The input of a parsed slice: the content digest of its records, the parser and its option."""
    return {
        "records": records,
        "parser": options.parser,
        "markdown": "yes" if options.markdown else "no",
    }


def _find_locate_reason(
    request: SliceRequest, slice_state: SliceState, index: Index, options: Options
) -> Reason | None:
    located, lookup = slice_state.located, slice_state.lookup
    if located is None or lookup is None:
        return Reason(ReasonKind.NEW)
    if not located.input:
        return Reason(ReasonKind.INCOMPLETE_ROWS)
    if differs_only_in_blocks(lookup.definition, request.version):
        return Reason(ReasonKind.BLOCKED)
    if lookup.definition != request.version:
        return Reason(ReasonKind.MEMBERS if request.is_set else ReasonKind.DEFINITION)
    if options.via not in ("auto", lookup.located_by) and lookup.located_by != NAMED_CAPTURES:
        return Reason(ReasonKind.OTHER_INDEX)
    is_unchanged = index.is_unchanged(lookup)
    gaps_allowed = lookup.unread_share <= options.max_index_gaps if is_unchanged else index.gaps_allowed
    if not lookup.complete and not gaps_allowed:
        return Reason(ReasonKind.GAPS_FORBIDDEN)
    if not is_unchanged:
        return Reason(ReasonKind.INDEX if lookup.complete else ReasonKind.GAP_FILLED)
    if lookup.unlisted_captures and options.accepts_removals:
        return Reason(ReasonKind.UNLISTED_CAPTURES, lookup.unlisted_captures)
    return None


def _find_fetch_reason(slice_state: SliceState, options: Options) -> Reason | None:
    located, fetched, note = slice_state.located, slice_state.fetched, slice_state.fetch
    if located is None or fetched is None:
        return Reason(ReasonKind.NEW)
    if not fetched.input:
        return Reason(ReasonKind.INCOMPLETE_ROWS)
    if fetched.input["captures"] != located.content or note is None:
        return Reason(ReasonKind.CAPTURES)
    if fetched.input["state"] != "complete":
        return Reason(ReasonKind.PENDING_CAPTURES, note.pending, note.last_attempt_at)
    if slice_state.lost_records:
        return Reason(ReasonKind.LOST_BYTES, slice_state.lost_records)
    return Reason(ReasonKind.LOST_CAPTURES, note.lost) if options.refetch and note.lost else None


def _find_parse_reason(slice_state: SliceState, options: Options) -> Reason | None:
    fetched, parsed = slice_state.fetched, slice_state.parsed
    if fetched is None or parsed is None:
        return Reason(ReasonKind.NEW)
    if not parsed.input:
        return Reason(ReasonKind.INCOMPLETE_ROWS)
    current_input = build_parse_input(fetched.content, options)
    differing = {name for name in current_input if parsed.input.get(name) != current_input[name]}
    kinds = {"records": ReasonKind.RECORDS, "parser": ReasonKind.PARSER, "markdown": ReasonKind.OPTIONS}
    return next((Reason(kind) for name, kind in kinds.items() if name in differing), None)
