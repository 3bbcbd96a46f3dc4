"""What this project assumes of Common Crawl's source, and which of it some answers bear out. Pure.

Each assumption is judged by what was seen, and by nothing else: ``True`` (it held), ``False`` (it did not), ``None``
(nothing was seen that could tell).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, Crawl
from cc_pipeline.stores.watched import Seen

#: A verdict, and the evidence in a few words.
Judged = tuple[bool | None, str]
#: The step that asked, and the answer.
Answers = Sequence[tuple[str, Seen]]

NOTHING: Final[Judged] = (None, "")
#: Steps that ask other places than the source.
_ELSEWHERE: Final = frozenset({"list", "s3", "mirror"})
_OK, _PARTIAL, _MISSING = 200, 206, 404
_REFUSED: Final = frozenset({401, 403, 429, 503})
_EXPLICIT = re.compile(r"bytes=(\d+)-(\d+)")
_STATED = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)", re.IGNORECASE)

_ANSWERED: Final = frozenset({_OK, _PARTIAL, 416})
_UNAVAILABLE = 503
#: Hours by which Pacific time is behind UTC, and what a crawler's clock may be off.
_PACIFIC, _SOON = (7, 8), 0.2


@dataclass(slots=True)
class Facts:
    """What a look at a source found out beside its answers; ``None`` for what it could not.

    ``crawls`` were listed. ``bounds`` are the keys of row groups in a footer's order. ``same`` tells whether both
    indexes named the same captures. ``records`` are those that were fetched: whether each is good, and its digest check
    or why it is not; ``arc_records`` are those of the ARC years. ``arc`` tells whether these have a ZipNum index,
    ``s3`` whether S3 had the same object, ``mirror`` whether the official mirror had the same record.

    ``keys`` and ``old_keys`` are pairs of a key in a ZipNum index and the one that is made of its URL here, of the
    crawl that was looked at and of one of 2015; ``old_member`` is what the member of 2015 looked like.
    ``record_ids`` are pairs of a capture's record id in both indexes, for captures that have one in either.
    ``pacific_hours`` are hours by which a response's ``Date`` is later than the ARC file of crawl-002 says.
    """

    crawls: tuple[Crawl, ...] | None = None
    bounds: list[tuple[bytes | None, bytes | None]] | None = None
    same: bool | None = None
    records: list[tuple[bool, str]] = field(default_factory=list)
    arc_records: list[tuple[bool, str]] = field(default_factory=list)
    arc: bool | None = None
    s3: bool | None = None
    mirror: bool | None = None
    keys: list[tuple[str, str]] = field(default_factory=list)
    old_keys: list[tuple[str, str]] = field(default_factory=list)
    old_member: OldMember | None = None
    record_ids: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    pacific_hours: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OldMember:
    """One member of a ZipNum index: how many records it has, how many of them say a status, and whether it ends with a
    line end and has a line for each."""

    records: int
    with_status: int
    is_ended: bool
    is_joined: bool


@dataclass(frozen=True, slots=True)
class Assumption:
    """``says`` is a sentence that is true where it holds."""

    name: str
    says: str
    judge: Callable[[Facts, Answers], Judged]


def _list(facts: Facts, answers: Answers) -> Judged:
    if facts.crawls:
        return True, f"{len(facts.crawls)} crawls, newest {facts.crawls[0].id}"
    came = any(seen.status == _OK for step, seen in answers if step == "list")
    return (False, "what came is no such list") if came else NOTHING


def _arc_years(facts: Facts, answers: Answers) -> Judged:
    if not facts.crawls:
        return NOTHING
    listed = {crawl.id for crawl in facts.crawls if crawl.cdx_api}
    lacking = [crawl for crawl in ARC_CRAWLS if crawl not in listed]
    return not lacking, f"without: {', '.join(lacking)}" if lacking else "all three"


def _path_list(facts: Facts, answers: Answers) -> Judged:
    statuses = [seen.status for step, seen in answers if step == "path list"]
    if _OK in statuses:
        return True, ""
    return (False, "none of the newest crawls has one") if _MISSING in statuses else NOTHING


def _ranges(facts: Facts, answers: Answers) -> Judged:
    asked = [(_EXPLICIT.fullmatch(seen.asked or ""), seen) for seen in _of_source(answers)]
    return _all(
        _spans(seen)[:2] == (int(match[1]), int(match[2]))
        for match, seen in asked
        if match and seen.status in _ANSWERED
    )


def _suffixes(facts: Facts, answers: Answers) -> Judged:
    asked = [seen for seen in _of_source(answers) if (seen.asked or "").startswith("bytes=-")]
    return _all(seen.status == _PARTIAL for seen in asked if seen.status in _ANSWERED)


def _totals(facts: Facts, answers: Answers) -> Judged:
    return _all(_spans(seen)[2] is not None for seen in _of_source(answers) if seen.status == _PARTIAL)


def _strong(facts: Facts, answers: Answers) -> Judged:
    return _all(seen.headers.get("etag", "").startswith('"') for seen in _objects(answers))


def _one_etag(facts: Facts, answers: Answers) -> Judged:
    tags: dict[str, list[str]] = {}
    for seen in _objects(answers):
        if etag := seen.headers.get("etag"):
            tags.setdefault(seen.key, []).append(etag)
    return _all(len(set(several)) == 1 for several in tags.values() if len(several) > 1)


def _missing(facts: Facts, answers: Answers) -> Judged:
    statuses = [seen.status for step, seen in answers if step == "missing" and seen.status]
    refused = any(seen.status in _REFUSED for step, seen in answers if step != "missing")
    # who is refused anyway learns nothing from a refusal
    if not statuses or (refused and statuses[-1] in _REFUSED):
        return NOTHING
    return statuses[-1] == _MISSING, f"status {statuses[-1]}"


def _bounds(facts: Facts, answers: Answers) -> Judged:
    return _all(None not in pair for pair in facts.bounds or ())


def _in_order(facts: Facts, answers: Answers) -> Judged:
    keys = [key for pair in facts.bounds or () for key in pair if key is not None]
    return _all(one <= other for one, other in pairwise(keys))


def _refused(facts: Facts, answers: Answers) -> Judged:
    return _all(seen.status not in _REFUSED for _, seen in answers if seen.status)


def _retry_after(facts: Facts, answers: Answers) -> Judged:
    return _all("retry-after" in seen.headers for _, seen in answers if seen.status in _REFUSED)


def _lone_503(facts: Facts, answers: Answers) -> Judged:
    """Whether requests that got a 503 were answered when they were sent again at once."""
    asked: dict[tuple[str, str, str | None], list[int]] = {}
    for _, seen in answers:
        if seen.status:
            asked.setdefault((seen.method, seen.key, seen.asked), []).append(seen.status)
    return _all(statuses[-1] in _ANSWERED for statuses in asked.values() if _UNAVAILABLE in statuses)


def _record_ids(facts: Facts, answers: Answers) -> Judged:
    return _all(one == other for one, other in facts.record_ids)


def _old_member(facts: Facts, answers: Answers) -> Judged:
    member = facts.old_member
    if member is None:
        return NOTHING
    return not member.is_ended, f"{member.records} records, {'some' if member.is_joined else 'none'} on one line"


def _old_status(facts: Facts, answers: Answers) -> Judged:
    member = facts.old_member
    return NOTHING if member is None else (not member.with_status, f"{member.with_status} of {member.records} have one")


def _pacific(facts: Facts, answers: Answers) -> Judged:
    held, _ = _all(any(abs(hours - behind) < _SOON for behind in _PACIFIC) for hours in facts.pacific_hours)
    return held, ", ".join(f"{hours:.2f} h" for hours in facts.pacific_hours)


def _good(facts: Facts, answers: Answers) -> Judged:
    return _all(good for good, _ in facts.records)


def _digests(facts: Facts, answers: Answers) -> Judged:
    return _all(check == "match" for good, check in facts.records if good and check in ("match", "mismatch"))


def _good_arc(facts: Facts, answers: Answers) -> Judged:
    return _all(good for good, _ in facts.arc_records)


#: A closed list: docs/live.md has a row for each.
ASSUMPTIONS: Final = (
    Assumption("list", "collinfo.json is a list of crawls in the form that is read", _list),
    Assumption("arc_listed", "the list has the three crawls of the ARC years, each with a CDX index", _arc_years),
    Assumption("path_list", "a crawl has a list of its columnar index files", _path_list),
    Assumption("ranges", "a range is answered with 206 and just these bytes", _ranges),
    Assumption("suffix_ranges", "a suffix range (bytes=-n) is answered with 206", _suffixes),
    Assumption("totals", "an answer to a range says how long the object is", _totals),
    Assumption("strong_etags", "each object has a strong ETag", _strong),
    Assumption("one_etag", "an object has the same ETag in each answer", _one_etag),
    Assumption("missing_404", "what is not there is answered with 404", _missing),
    Assumption("key_bounds", "a footer has the least and the greatest key of each row group", _bounds),
    Assumption("key_order", "the row groups of an index file are in the order of their keys", _in_order),
    Assumption(
        "same_captures", "the columnar and the ZipNum index name the same captures", lambda facts, _: (facts.same, "")
    ),
    Assumption(
        "keys",
        "keys of the ZipNum index are those that are made of its URLs here",
        lambda facts, _: _all(key == made for key, made in facts.keys),
    ),
    Assumption("record_ids", "CDXJ lines have the record ids of the columnar index", _record_ids),
    Assumption("old_members", "members of the ZipNum index of CC-MAIN-2015-06 have no last line end", _old_member),
    Assumption("old_status", "its lines have no status", _old_status),
    Assumption(
        "old_keys",
        "its keys are made of its URLs by the rule of before 2025",
        lambda facts, _: _all(key == made for key, made in facts.old_keys),
    ),
    Assumption("records", "where an index row points lies the record of its page", _good),
    Assumption("digests", "payloads have the digests that the index has of them", _digests),
    Assumption(
        "arc_zipnum",
        "CC-MAIN-2008-2009 has a ZipNum index where other crawls have theirs",
        lambda facts, _: (facts.arc, ""),
    ),
    Assumption("arc_records", "rows of that index lead to ARC records", _good_arc),
    Assumption("pacific_dates", "ARC files of crawl-002 have dates in Pacific time", _pacific),
    Assumption("no_refusal", "so few requests are not refused (401, 403, 429, 503)", _refused),
    Assumption("lone_503", "a request that gets a 503 is answered when it is sent once more", _lone_503),
    Assumption("retry_after", "a refusal says when to come back", _retry_after),
    Assumption("s3_same", "s3://commoncrawl has the same objects", lambda facts, _: (facts.s3, "")),
    Assumption("mirror_same", "the official mirror has the same records", lambda facts, _: (facts.mirror, "")),
)


def _of_source(answers: Answers) -> list[Seen]:
    return [seen for step, seen in answers if step not in _ELSEWHERE]


def _objects(answers: Answers) -> list[Seen]:
    return [seen for seen in _of_source(answers) if seen.status in (_OK, _PARTIAL)]


def _spans(seen: Seen) -> tuple[int | None, int | None, int | None]:
    """First and last byte and the total that an answer states."""
    match = _STATED.fullmatch(seen.headers.get("content-range", "").strip())
    if match is None or seen.status != _PARTIAL:
        return None, None, None
    return int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3])


def _all(held: Iterable[bool]) -> Judged:
    each = list(held)
    return (all(each), f"{sum(each)} of {len(each)}") if each else NOTHING
