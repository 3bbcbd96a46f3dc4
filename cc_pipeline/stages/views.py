"""The views of ``cc.duckdb``: they show each capture once, however many targets have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cc_pipeline.commoncrawl.parts import SEPARATOR
from cc_pipeline.keys import CAPTURE
from cc_pipeline.lake.snapshot import ViewSpec, quoted

_KEY = ", ".join(CAPTURE)

#: Tables with rows per capture and target, and the order in which a target is chosen when several have the same
#: capture: for records a fetched one first, for pages one parsed from its own record first, and for metadata also a
#: SUCCESS before a FAILURE.
_PER_CAPTURE = {
    "captures": "target",
    "records": "(outcome = 'fetched') DESC, target",
    "page_metadata": "(source_kind = 'records') DESC, (disposition = 'SUCCESS') DESC, target",
    "page_text": "(source_kind = 'records') DESC, target",
    "page_links": "(source_kind = 'records') DESC, target",
    "feed_items": "(source_kind = 'records') DESC, target",
}

_COMMENTS = {
    "captures": "One row per capture the index names, with every index column; ARC captures take time, status and "
    "digest from their record.",
    "records": "One row per planned capture with one outcome, its reason, its digest check and where its bytes are.",
    "page_metadata": "One row per record: the 2012 metadata schema for today's pages.",
    "page_text": "One row per page with text: full text, main content, language.",
    "page_links": "One row per link of a page, with every attribute.",
    "feed_items": "One row per item of an RSS or Atom feed.",
}

#: Page tables whose rows may come from files read whole and then have page_metadata rows elsewhere.
_FROM_FILES_TOO = ("page_text", "page_links", "feed_items")

#: Tables that one stage commits one after the other.
_TOGETHER = ("page_metadata", "page_text", "page_links", "feed_items")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where repeats can be: rows of these targets, which share keys with others; and all of these crawls, of which
    files were read whole."""

    targets: tuple[str, ...]
    crawls: tuple[str, ...]

    @property
    def sql(self) -> str:
        """A condition on ``target`` and ``crawl``."""
        parts = [
            f"{column} IN ({', '.join(quoted(value) for value in values)})"
            for column, values in (("target", self.targets), ("crawl", self.crawls))
            if values
        ]
        return f"({' OR '.join(parts)})" if parts else "false"


def publication_views(held_back: Sequence[tuple[str, str]], sharing: Sharing) -> tuple[ViewSpec, ...]:
    """The published views, in an order in which each finds what it names.

    Captures that several targets have are looked for where ``sharing`` says that there can be any.

    ``held_back`` names (crawl, target) slices whose page tables have different digests, because a run was killed
    between two commits. The views leave out their rows until they are parsed again.
    """
    repeats = tuple(_repeats(table, order, sharing.sql) for table, order in _PER_CAPTURE.items())
    return (
        ViewSpec("crawls", "SELECT * FROM lake.crawls ORDER BY crawl DESC", "Crawls of the source."),
        ViewSpec(
            "targets",
            f"SELECT * FROM lake.targets WHERE NOT contains(slug, '{SEPARATOR}')",
            "Targets looked up: slug, definition, version.",
        ),
        ViewSpec("index_files", "SELECT * FROM lake.index_files", "Index files harvested, with their footer's facts."),
        ViewSpec("row_groups", "SELECT * FROM lake.row_groups", "Row groups of the columnar index with key ranges."),
        ViewSpec("coverage", "SELECT * FROM lake.coverage", "Index files expected, harvested and failed by crawl."),
        ViewSpec(
            "lookups",
            _of_sets("lookups", _LOOKUPS),
            "How each (crawl, target) was located: by which index, and whether files of it could not be read.",
        ),
        ViewSpec(
            "set_members",
            f"SELECT crawl, {_WHOLE} AS target, one.member, one.captures FROM "
            "(SELECT crawl, target, unnest(members) AS one FROM lake.lookups)",
            "Members of located sets and how many captures each has: with 0 nothing was found.",
        ),
        _held_back(held_back),
        *repeats,
        ViewSpec("captures", _captures(), _COMMENTS["captures"], all_but=("captures", _not_shown("captures"))),
        ViewSpec(
            "capture_targets",
            f"SELECT DISTINCT {_KEY}, subset, url, {_WHOLE} AS target FROM {_whole('captures')}",
            "Why a capture is here: one row per capture and target.",
        ),
        *(
            ViewSpec(table, _once(table), _COMMENTS[table], all_but=(table, _not_shown(table)))
            for table in _PER_CAPTURE
            if table != "captures"
        ),
        ViewSpec(
            "ledger",
            f"SELECT {_KEY}, subset, url, domain, warc_record_length, outcome, reason, detail, digest_check, attempts, "
            "fetched_at, settled, rounds FROM main.records",
            "One outcome per planned capture: planned = fetched + quarantined + missing.",
            all_but=("records", _not_shown("records")),
        ),
        ViewSpec(
            "quarantine",
            "SELECT * FROM main.records WHERE outcome = 'quarantined'",
            "Records set aside, with the reason.",
        ),
        ViewSpec("fetches", _of_sets("fetches", _FETCHES), "How each fetched partition stands: one row per target."),
        ViewSpec("source_files", "SELECT * FROM lake.source_files", "Files read whole: kind, place, crawl, key."),
        ViewSpec("source_faults", "SELECT * FROM lake.source_faults", "What in files read whole could not be read."),
    )


#: The target that a slice belongs to: of a part of a set the set.
_WHOLE = f"split_part(target, '{SEPARATOR}', 1)"
#: What is so of a set, from the rows of its parts; what is not named here is added up.
_LOOKUPS = {
    "located_by": "max(located_by)",
    "subsets": "any_value(subsets)",
    "complete": "bool_and(complete)",
    "index_files": "max(index_files)",
    "unread_files": "max(unread_files)",
    "unread": "list_distinct(flatten(list(unread)))",
    "captures": "sum(captures)::BIGINT",
    "looked_up_at": "max(looked_up_at)",
}
_FETCHES = {
    **{name: f"sum({name})::BIGINT" for name in ("planned", "fetched", "quarantined", "missing")},
    **{name: f"sum({name})::BIGINT" for name in ("unsettled", "given_up")},
    "reason": "arg_max(reason, unsettled)",
    "example": "arg_max(example, unsettled)",
    "rounds": "min(rounds)",
    "silent_runs": "max(silent_runs)",
    "asked_at": "max(asked_at)",
    "made_from": "min(made_from)",
}


def _of_sets(table: str, columns: Mapping[str, str]) -> str:
    """A table with a row for each slice, those of a set's parts as one."""
    parts = f"contains(target, '{SEPARATOR}')"
    given = ", ".join(("crawl", "target", *columns))
    summed = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return (
        f"SELECT {given} FROM lake.{table} WHERE NOT {parts} UNION ALL "
        f"SELECT crawl, {_WHOLE} AS target, {summed} FROM lake.{table} WHERE {parts} GROUP BY ALL"
    )


def _repeats(table: str, order: str, among: str) -> ViewSpec:
    extra = {"records": ", outcome", "captures": "", "page_metadata": ", source_kind, disposition"}.get(
        table, ", source_kind"
    )
    columns = f"{_KEY}, target{extra}"
    sql = (
        f"SELECT {_KEY}, target FROM (SELECT {columns}, "
        f"row_number() OVER (PARTITION BY {_KEY} ORDER BY {order}) AS place "
        # texts read from whole files have no offset: nothing says of which capture they are
        f"FROM (SELECT DISTINCT {columns} FROM {_whole(table)} WHERE warc_record_offset IS NOT NULL AND {among})) "
        "WHERE place > 1"
    )
    if table in _FROM_FILES_TOO:
        # a WAT file's links are left out where the page itself was parsed, even if that has none
        sql += (
            f" UNION SELECT {_KEY}, target FROM {_whole(table)} SEMI JOIN (FROM {_whole('page_metadata')} "
            f"WHERE source_kind = 'records' AND {among}) USING ({_KEY}) WHERE source_kind <> 'records' AND {among}"
        )
    comment = f"Rows of {table} that another target's rows already show."
    return ViewSpec(f"lake.{table}_repeats", sql, comment, materialized=True)


def _once(table: str) -> str:
    return f"SELECT * EXCLUDE (target) FROM {_whole(table)} ANTI JOIN lake.{table}_repeats USING ({_KEY}, target)"


def _not_shown(table: str) -> str:
    """The query for how many rows of a table its view leaves out; it reads nothing where nothing is left out."""
    lost = f"(SELECT count(*) FROM lake.{table} SEMI JOIN lake.parse_held_back USING (crawl, target))"
    held_back = f"(SELECT CASE WHEN count(*) = 0 THEN 0 ELSE {lost} END FROM lake.parse_held_back)"
    repeats = f"(SELECT count(*) FROM {_whole(table)} SEMI JOIN lake.{table}_repeats USING ({_KEY}, target))"
    repeated = f"(SELECT CASE WHEN count(*) = 0 THEN 0 ELSE {repeats} END FROM lake.{table}_repeats)"
    return f"SELECT {repeated} + {held_back if table in _TOGETHER else 0}"


def _whole(table: str) -> str:
    if table not in _TOGETHER:
        return f"lake.{table}"
    return f"(FROM lake.{table} ANTI JOIN lake.parse_held_back USING (crawl, target))"


def _held_back(pairs: Sequence[tuple[str, str]]) -> ViewSpec:
    values = ", ".join(f"({quoted(crawl)}, {quoted(target)})" for crawl, target in pairs)
    rows = (
        f"FROM (VALUES {values}) AS pairs(crawl, target)" if pairs else "SELECT '' AS crawl, '' AS target WHERE false"
    )
    comment = "Slices left out because a parse run was interrupted; run it again."
    return ViewSpec("lake.parse_held_back", rows, comment, materialized=True)


def _captures() -> str:
    once = _once("captures")
    learned = ("fetch_time", "fetch_status", "content_digest", "content_mime_type")
    replaced = ", ".join(f"coalesce(c.{name}, r.{name}) AS {name}" for name in learned)
    return (
        f"SELECT * FROM ({once}) WHERE archive_format <> 'arc' UNION ALL "
        f"SELECT c.* REPLACE ({replaced}) FROM ({once}) c "
        f"LEFT JOIN ({_once('records')}) r USING ({_KEY}) WHERE c.archive_format = 'arc'"
    )
