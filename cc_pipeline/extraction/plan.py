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
        words = self.why.value.format(n=f"{self.n:,}", since=since)
        return words.replace("1 captures are", "1 capture is") if self.n == 1 else words


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

    def version_of(self, by: str, told: str) -> str:
        """The version of the index ``by``, or of several that answered together. The version ``told`` by an index is
        used if none is known here."""
        return BOTH.join(self.versions.get(kind, told) for kind in by.split(BOTH))

    def has(self, found: Lookup) -> bool:
        """Whether the index that located the slice is unchanged. An index that is no longer there, or has no known
        version, counts as unchanged."""
        noted = zip(found.located_by.split(BOTH), found.index.split(BOTH), strict=False)
        return not found.index or all(self.versions.get(kind, version) == version for kind, version in noted)


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
    before = None if now is None else now - SECOND_LOOK
    return Options(settings.via, settings.digest_policy, settings.extractor, settings.markdown, PARSER_VERSION, before)


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


def price_of(stands: Standing, stage: Stage, reason: Reason) -> Price:
    """The estimated cost of one stage of a slice in this state. The cost of a look-up depends on its neighbours
    (``extraction/shortest.py``)."""
    if stage is LOCATE or reason.why is Why.THEN:
        return Price(None, None, None, None)
    if stage is PARSE:
        fetch = stands.fetch
        return (
            Price(pages=None, stored=None) if fetch is None else Price(pages=fetch.fetched, stored=fetch.stored_bytes)
        )
    if stands.lookup is None:
        return Price(None, None)
    _, size, requests = stands.lookup.price
    if reason.why in (Why.DOUBTED, Why.PERHAPS):
        return Price(min(reason.n, LOOKS), None)
    if reason.why in (Why.OPEN, Why.LOST, Why.PAYLOADS):
        share = min(1.0, reason.n / max(1, stands.lookup.captures))
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
        found = {todo.slice_: todo.of(stage) for todo in self.todos}
        return {slice_: why for slice_, why in found.items() if why is not None and why.why not in but}


def plan(
    wanted: Mapping[Slice, Wanted],
    standings: Mapping[Slice, Standing],
    indexes: Mapping[tuple[str, str], Index],
    options: Options,
    stages: Sequence[Stage] = STAGES,
) -> Plan:
    """Plans the requested slices, from their states, up to the ``stages`` given.

    ``indexes`` are by crawl and subset. A slice whose earlier stage is lacking and not among ``stages`` is planned no
    further: whoever wants records of a slice that was never located reports that.
    """

    def of(slice_: Slice, options: Options) -> Todo:
        index = indexes.get((slice_.crawl, slice_.subset), _NO_INDEX)
        return _todo(slice_, wanted[slice_], standings[slice_], index, options, stages)

    every = {slice_: of(slice_, options) for slice_ in wanted}
    # their recheck waits, and their other stages are planned
    every |= {slice_: of(slice_, replace(options, before=None)) for slice_ in _beyond(every.values())}
    return Plan(
        tuple(todo for todo in every.values() if todo.first is not None),
        tuple(slice_ for slice_, todo in every.items() if todo.first is None),
    )


def _beyond(todos: Iterable[Todo]) -> frozenset[Slice]:
    """The slices whose recheck waits for another command. Those rechecked longest ago come first, a few a command."""
    perhaps = [(todo.fetch.since, todo.slice_) for todo in todos if todo.fetch and todo.fetch.why is Why.PERHAPS]
    return frozenset(slice_ for _, slice_ in sorted(perhaps)[LOOKS:])


_NO_INDEX: Final = Index({})


def _todo(
    slice_: Slice, asked: Wanted, stands: Standing, index: Index, options: Options, stages: Sequence[Stage]
) -> Todo:
    rules: list[tuple[Stage, Callable[[], Reason | None]]] = [
        (LOCATE, lambda: _why_locate(asked, stands, index, options)),
        (FETCH, lambda: _why_fetch(stands, options)),
        (PARSE, lambda: _why_parse(stands, options)),
    ]
    # a blocked site keeps its rows, so no stage may run
    stays = is_all_blocked(asked.version) and stands.located is not None and stands.lookup is not None
    why: dict[str, Reason | None] = {}
    for stage, rule in rules:
        if stage in stages:
            told = Reason(Why.TOLD) if stage.label in asked.told else None
            why[stage.label] = Reason(Why.THEN) if any(why.values()) else (None if stays else rule()) or told
    return Todo(slice_, why.get(LOCATE.label), why.get(FETCH.label), why.get(PARSE.label))


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


def _why_locate(asked: Wanted, stands: Standing, index: Index, options: Options) -> Reason | None:
    made, found = stands.located, stands.lookup
    if made is None:
        return Reason(Why.NEW)
    if found is None:
        return Reason(Why.TORN)
    if same_but_for_blocks(found.definition, asked.version):
        return Reason(Why.BLOCKED)
    if found.definition != asked.version:
        return Reason(Why.MEMBERS if asked.is_set else Why.DEFINITION)
    if options.via not in ("auto", found.located_by) and found.located_by != GIVEN:
        return Reason(Why.OTHER_INDEX)
    if not found.complete and not index.gaps_allowed:
        return Reason(Why.NOT_WHOLE)
    if not index.has(found):
        return Reason(Why.INDEX if found.complete else Why.HOLE)
    return Reason(Why.UNLISTED, found.unlisted) if found.unlisted else None


def _why_fetch(stands: Standing, options: Options) -> Reason | None:
    if stands.located is None or stands.fetched is None:
        return Reason(Why.NEW)
    here, captures = stands.fetched.made_from, stands.located.says
    if here == TORN or stands.fetch is None:
        return Reason(Why.TORN)
    if here == with_open(fetched_from(captures, options.digest_policy)):
        return Reason(Why.OPEN, stands.fetch.unsettled, stands.fetch.asked_at)
    if here != fetched_from(captures, options.digest_policy):
        others = [fetched_from(captures, policy) for policy in DIGEST_POLICIES]
        return Reason(Why.POLICY if here in [*others, *map(with_open, others)] else Why.CAPTURES)
    return Reason(Why.LOST, stands.lost) if stands.lost else _why_doubt(stands.fetch, options)


def _why_doubt(note: Fetch, options: Options) -> Reason | None:
    if note.losses_doubted:
        return Reason(Why.DOUBTED, note.settled)
    if note.mismatches_doubted:
        return Reason(Why.PAYLOADS, note.mismatched)
    if options.before is not None and note.asked_at < options.before and may_be_back(note):
        return Reason(Why.PERHAPS, note.settled or note.mismatched, note.asked_at)
    return None


def _why_parse(stands: Standing, options: Options) -> Reason | None:
    if stands.torn:
        return Reason(Why.TORN)
    if stands.fetched is None or stands.parsed is None:
        return Reason(Why.NEW)
    here, records = stands.parsed.made_from, stands.fetched.says
    if here == parsed_from(records, options.parser, options.extractor, options.markdown):
        return None
    # the former options are found by trying, so they need not be stored
    otherwise = {(*each,): parsed_from(records, options.parser, *each) for each in product(EXTRACTORS, (False, True))}
    if here in otherwise.values():
        return Reason(Why.OPTIONS)
    # a version that is no number has none before it
    newest = int(options.parser) if options.parser.isdecimal() else 0
    older = product(map(str, range(1, newest)), EXTRACTORS, (False, True))
    return Reason(Why.PARSER if here in (parsed_from(records, *each) for each in older) else Why.RECORDS)
