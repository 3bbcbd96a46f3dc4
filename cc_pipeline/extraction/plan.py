"""Plans the stages of slices: a pure function of the requests and the slice states.

The input of a stage is the *content* of the one before it, so a change that changes no rows ends there:

    located from  the version of the target's definition, and the index that was asked
    fetched from  the content of the captures, and the digest policy
    parsed from   the content of the records, the parser, and its options

Nothing here reads a lake, a clock or the network. A stage after a planned one has the reason ``THEN``: whether it is
due is known once the earlier one was made, and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import product
from typing import Final

from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.extraction.blocked import is_all_blocked, same_but_for_blocks
from cc_pipeline.extraction.fetch_counts import Fetch
from cc_pipeline.extraction.shortfall import LOOKS, SECOND_LOOK, may_be_back
from cc_pipeline.extraction.standing import STAGES, Lookup, Standing
from cc_pipeline.index.locator import BOTH, GIVEN
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE, TORN, Slice, Stage
from cc_pipeline.settings import DIGEST_POLICIES, EXTRACTORS, Settings

#: Raised when the same inputs would give other rows of ``captures``, or of ``records``.
_LOCATED, _FETCHED = "1", "1"


class Why(Enum):
    """All reasons for which a stage of a slice is made, in words for a person; ``{n}`` and ``{since}`` are filled
    in."""

    NEW = "new"
    TOLD = "told to"
    DEFINITION = "the target's definition changed"
    BLOCKED = "a site of it was blocked, or is no longer"
    MEMBERS = "members of the set came or went"
    INDEX = "the index changed"
    HOLE = "a hole in the index was filled"
    NOT_WHOLE = "its index lacks files, which the settings do not allow"
    OTHER_INDEX = "another index is to be asked"
    UNLISTED = "{n} captures are no longer in the index, which nobody accepted"
    CAPTURES = "its captures changed"
    OPEN = "{n} captures are open since {since}"
    DOUBTED = "{n} captures are lost, which nobody accepted"
    PAYLOADS = "{n} payloads are not those of the index and are asked for once more"
    PERHAPS = "{n} captures were lost, or other than indexed, and may be right by now"
    LOST = "the bytes of {n} records are gone"
    POLICY = "digests are judged otherwise"
    RECORDS = "its records changed"
    PARSER = "the parser is newer"
    OPTIONS = "pages are to be parsed otherwise"
    TORN = "a run was killed while it was written"
    THEN = "then"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, with a count and a time if they are part of it."""

    why: Why
    n: int = 0
    since: datetime | None = None

    def __str__(self) -> str:
        since = "" if self.since is None else f"{self.since:%Y-%m-%d %H:%M} UTC"
        text = self.why.value.format(n=f"{self.n:,}", since=since)
        return text.replace("1 captures are", "1 capture is") if self.n == 1 else text


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of one slice: the version of its target's definition, whether the target is a set, and the labels of
    stages that are made in any case."""

    version: str
    is_set: bool = False
    told: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Index:
    """The indexes by which a subset of a crawl can be located: their versions by kind (``parquet``, ``zipnum``,
    ``btree``), and whether the gaps of the columnar one are allowed."""

    versions: Mapping[str, str]
    gaps_allowed: bool = True

    def version_of(self, kinds: str, reported_version: str) -> str:
        """The version of an index, or of several ``kinds`` that answered together. ``reported_version`` is used if none
        is known here."""
        return BOTH.join(self.versions.get(kind, reported_version) for kind in kinds.split(BOTH))

    def has(self, lookup: Lookup) -> bool:
        """Whether the index that located the slice is unchanged. An index that is no longer there, or has no known
        version, counts as unchanged."""
        noted_versions = zip(lookup.located_by.split(BOTH), lookup.index.split(BOTH), strict=False)
        return not lookup.index or all(self.versions.get(kind, version) == version for kind, version in noted_versions)


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that decide about rows: ``via`` names an index or ``auto``; the others as in the settings. Losses
    found ``before`` a time may be rechecked; ``None``: none is."""

    via: str = "auto"
    digest_policy: str = "record"
    extractor: str = "fast"
    markdown: bool = False
    parser: str = PARSER_VERSION
    before: datetime | None = None


def options_of(settings: Settings, now: datetime | None = None) -> Options:
    """The options of these settings, with the current parser."""
    recheck_before = None if now is None else now - SECOND_LOOK
    return Options(
        settings.via, settings.digest_policy, settings.extractor, settings.markdown, PARSER_VERSION, recheck_before
    )


@dataclass(frozen=True, slots=True)
class Todo:
    """The plan of one slice: the reason for which each stage is made; ``None``: the stage is up to date."""

    slice_: Slice
    locate: Reason | None = None
    fetch: Reason | None = None
    parse: Reason | None = None

    def of(self, stage: Stage) -> Reason | None:
        """The reason for which one stage is made."""
        return {LOCATE.label: self.locate, FETCH.label: self.fetch, PARSE.label: self.parse}[stage.label]

    @property
    def first(self) -> Reason | None:
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


def price_of(slice_state: Standing, stage: Stage, reason: Reason) -> Price:
    """The estimated cost of one stage of a slice in this state. The cost of a look-up depends on its neighbours
    (``extraction/shortest.py``)."""
    if stage is LOCATE or reason.why is Why.THEN:
        return Price(None, None, None, None)
    if stage is PARSE:
        fetch = slice_state.fetch
        return (
            Price(pages=None, stored=None) if fetch is None else Price(pages=fetch.fetched, stored=fetch.stored_bytes)
        )
    if slice_state.lookup is None:
        return Price(None, None)
    _, size, requests = slice_state.lookup.price
    if reason.why in (Why.DOUBTED, Why.PERHAPS):
        return Price(min(reason.n, LOOKS), None)
    if reason.why in (Why.OPEN, Why.LOST, Why.PAYLOADS):
        share = min(1.0, reason.n / max(1, slice_state.lookup.captures))
        return Price(min(reason.n, requests), int(size * share))
    return Price(requests, size)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of slices with a stage that is due, and the ``same`` slices, which are up to date, in the order of the
    requests."""

    todos: tuple[Todo, ...] = ()
    same: tuple[Slice, ...] = ()

    def of(self, stage: Stage, *, but: Collection[Why] = ()) -> dict[Slice, Reason]:
        """The slices whose ``stage`` is due, with the reason, without those whose reason is one of ``but``."""
        reasons = {slice_plan.slice_: slice_plan.of(stage) for slice_plan in self.todos}
        return {slice_: reason for slice_, reason in reasons.items() if reason is not None and reason.why not in but}


def plan(
    requests: Mapping[Slice, Wanted],
    slice_states: Mapping[Slice, Standing],
    indexes: Mapping[tuple[str, str], Index],
    options: Options,
    stages: Sequence[Stage] = STAGES,
) -> Plan:
    """Plans the requested slices, from their states, up to the ``stages`` given.

    ``indexes`` are by crawl and subset. A slice whose earlier stage is lacking and not among ``stages`` is planned no
    further: whoever wants records of a slice that was never located reports that.
    """

    def plan_slice(slice_: Slice, options: Options) -> Todo:
        index = indexes.get((slice_.crawl, slice_.subset), _NO_INDEX)
        return _todo(slice_, requests[slice_], slice_states[slice_], index, options, stages)

    slice_plans = {slice_: plan_slice(slice_, options) for slice_ in requests}
    # their recheck waits, and their other stages are planned
    slice_plans |= {
        slice_: plan_slice(slice_, replace(options, before=None)) for slice_ in _beyond(slice_plans.values())
    }
    return Plan(
        tuple(slice_plan for slice_plan in slice_plans.values() if slice_plan.first is not None),
        tuple(slice_ for slice_, slice_plan in slice_plans.items() if slice_plan.first is None),
    )


def _beyond(slice_plans: Iterable[Todo]) -> frozenset[Slice]:
    """The slices whose recheck waits for another command. Those rechecked longest ago come first, a few a command."""
    due_rechecks = [
        (slice_plan.fetch.since, slice_plan.slice_)
        for slice_plan in slice_plans
        if slice_plan.fetch and slice_plan.fetch.why is Why.PERHAPS
    ]
    return frozenset(slice_ for _, slice_ in sorted(due_rechecks)[LOOKS:])


_NO_INDEX: Final = Index({})


def _todo(
    slice_: Slice, request: Wanted, slice_state: Standing, index: Index, options: Options, stages: Sequence[Stage]
) -> Todo:
    rules: list[tuple[Stage, Callable[[], Reason | None]]] = [
        (LOCATE, lambda: _why_locate(request, slice_state, index, options)),
        (FETCH, lambda: _why_fetch(slice_state, options)),
        (PARSE, lambda: _why_parse(slice_state, options)),
    ]
    # a blocked site keeps its rows, so no stage may run
    is_blocked = is_all_blocked(request.version) and slice_state.located is not None and slice_state.lookup is not None
    reasons: dict[str, Reason | None] = {}
    for stage, rule in rules:
        if stage in stages:
            forced_reason = Reason(Why.TOLD) if stage.label in request.told else None
            reasons[stage.label] = (
                Reason(Why.THEN) if any(reasons.values()) else (None if is_blocked else rule()) or forced_reason
            )
    return Todo(slice_, reasons.get(LOCATE.label), reasons.get(FETCH.label), reasons.get(PARSE.label))


def located_from(crawl: str, version: str, kind: str, index: str) -> str:
    """The input digest of a located slice: the ``version`` of its target's definition, and the kind and version of the
    index."""
    return LOCATE.digest(version=_LOCATED, crawl=crawl, index=[kind, index], target=version)


def fetched_from(captures: str, policy: str) -> str:
    """The input digest of a completely fetched slice: the content digest of its captures, and the digest policy."""
    return FETCH.digest(version=_FETCHED, digest_policy=policy, located=captures)


def with_open(digest: str) -> str:
    """The input digest of a slice with pending captures. It differs from that of the complete slice."""
    return input_digest({"incomplete": digest})


def parsed_from(records: str, parser: str, extractor: str, markdown: bool) -> str:
    """The input digest of a parsed slice: the content digest of its records, the parser and its options."""
    return PARSE.digest(parser=parser, main_content=main_content(extractor, markdown), fetched=records)


def main_content(extractor: str, markdown: bool) -> str:
    """The options of main content as text for digests. It mentions Markdown only if that is on."""
    return f"{extractor} markdown" if markdown else extractor


def _why_locate(request: Wanted, slice_state: Standing, index: Index, options: Options) -> Reason | None:
    located, lookup = slice_state.located, slice_state.lookup
    if located is None:
        return Reason(Why.NEW)
    if lookup is None:
        return Reason(Why.TORN)
    if same_but_for_blocks(lookup.definition, request.version):
        return Reason(Why.BLOCKED)
    if lookup.definition != request.version:
        return Reason(Why.MEMBERS if request.is_set else Why.DEFINITION)
    if options.via not in ("auto", lookup.located_by) and lookup.located_by != GIVEN:
        return Reason(Why.OTHER_INDEX)
    if not lookup.complete and not index.gaps_allowed:
        return Reason(Why.NOT_WHOLE)
    if not index.has(lookup):
        return Reason(Why.INDEX if lookup.complete else Why.HOLE)
    return Reason(Why.UNLISTED, lookup.unlisted) if lookup.unlisted else None


def _why_fetch(slice_state: Standing, options: Options) -> Reason | None:
    if slice_state.located is None or slice_state.fetched is None:
        return Reason(Why.NEW)
    current_digest, captures = slice_state.fetched.made_from, slice_state.located.says
    if current_digest == TORN or slice_state.fetch is None:
        return Reason(Why.TORN)
    if current_digest == with_open(fetched_from(captures, options.digest_policy)):
        return Reason(Why.OPEN, slice_state.fetch.unsettled, slice_state.fetch.asked_at)
    if current_digest != fetched_from(captures, options.digest_policy):
        policy_digests = [fetched_from(captures, policy) for policy in DIGEST_POLICIES]
        return Reason(
            Why.POLICY if current_digest in [*policy_digests, *map(with_open, policy_digests)] else Why.CAPTURES
        )
    return Reason(Why.LOST, slice_state.lost) if slice_state.lost else _why_doubt(slice_state.fetch, options)


def _why_doubt(note: Fetch, options: Options) -> Reason | None:
    if note.losses_doubted:
        return Reason(Why.DOUBTED, note.settled)
    if note.mismatches_doubted:
        return Reason(Why.PAYLOADS, note.mismatched)
    if options.before is not None and note.asked_at < options.before and may_be_back(note):
        return Reason(Why.PERHAPS, note.settled or note.mismatched, note.asked_at)
    return None


def _why_parse(slice_state: Standing, options: Options) -> Reason | None:
    if slice_state.torn:
        return Reason(Why.TORN)
    if slice_state.fetched is None or slice_state.parsed is None:
        return Reason(Why.NEW)
    current_digest, records = slice_state.parsed.made_from, slice_state.fetched.says
    if current_digest == parsed_from(records, options.parser, options.extractor, options.markdown):
        return None
    # the former options are found by trying, so they need not be stored
    option_digests = {
        (*content_options,): parsed_from(records, options.parser, *content_options)
        for content_options in product(EXTRACTORS, (False, True))
    }
    if current_digest in option_digests.values():
        return Reason(Why.OPTIONS)
    # a version that is no number has none before it
    newest_parser = int(options.parser) if options.parser.isdecimal() else 0
    older_parsers = product(map(str, range(1, newest_parser)), EXTRACTORS, (False, True))
    return Reason(
        Why.PARSER
        if current_digest in (parsed_from(records, *parser_options) for parser_options in older_parsers)
        else Why.RECORDS
    )
