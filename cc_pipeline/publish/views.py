"""The views of ``cc.duckdb``: they show each capture once, however many targets have it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE, CRAWL, NO_STATUS
from cc_pipeline.columns import Column, notes_of
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, key_rule
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR
from cc_pipeline.commoncrawl.surt import KeyRule
from cc_pipeline.documents.schemas import PAGE_COLUMNS
from cc_pipeline.index.catalog.rows import table_query
from cc_pipeline.index.catalog.schemas import COVERAGE_COLUMNS, INDEX_FILES_COLUMNS, ROW_GROUPS_COLUMNS
from cc_pipeline.lake.quoting import is_one_of, quote_literal
from cc_pipeline.lake.slice import FETCH, LOCATE, Stage
from cc_pipeline.lake.snapshot import RunQuery, Sql, ViewSpec
from cc_pipeline.publish.sql import todays_key
from cc_pipeline.records.schema import RECORD_COLUMNS
from cc_pipeline.workspace.schemas import (
    CAPTURES_COLUMNS,
    CRAWLS_COLUMNS,
    FETCHES_COLUMNS,
    LOOKUPS_COLUMNS,
    SOURCE_FAULTS_COLUMNS,
    SOURCE_FILES_COLUMNS,
    TARGETS_COLUMNS,
)

_KEY = ", ".join(CAPTURE)
#: Targets that a view names one by one.
_MAX_NAMED_TARGETS = 500

_LANGUAGES = "string_split(nullif(content_languages, ''), ',') AS content_languages"


@dataclass(frozen=True, slots=True)
class _CaptureTable:
    """A table with rows per capture and target, and how its view shows each capture once.

    ``order`` chooses the target if several have the same capture. ``distinct`` are the columns of ``order``, beside the
    capture's. ``replacement`` replaces a column that a reader wants in another form than the lake has; DuckDB computes
    it only if the column is selected. Tables ``of_pages`` are committed together by one stage. Rows ``from_files`` may
    come from files read whole, and then have their rows of ``page_metadata`` elsewhere."""

    name: str
    comment: str
    columns: Sequence[Column]
    order: str
    distinct: str = ""
    replacement: str = ""
    of_pages: bool = False
    from_files: bool = False


_FROM_RECORDS_FIRST = "(source_kind = 'records') DESC, target"
_CAPTURE_TABLES = (
    _CaptureTable(
        "captures",
        "One row per capture in the index, with every index column; ARC captures take time, "
        "status and digest from their record.",
        CAPTURES_COLUMNS,
        order="target",
        replacement=_LANGUAGES,
    ),
    _CaptureTable(
        "records",
        "One row per planned capture: its outcome, reason, digest check and the location of its bytes.",
        RECORD_COLUMNS,
        order="(outcome = 'fetched') DESC, target",
        distinct=", outcome",
    ),
    _CaptureTable(
        "page_metadata",
        "One row per record: the 2012 metadata schema for today's pages.",
        PAGE_COLUMNS["page_metadata"],
        order="(source_kind = 'records') DESC, (disposition = 'SUCCESS') DESC, target",
        distinct=", source_kind, disposition",
        of_pages=True,
    ),
    _CaptureTable(
        "page_text",
        "One row per page with text: full text, main content, language.",
        PAGE_COLUMNS["page_text"],
        order=_FROM_RECORDS_FIRST,
        distinct=", source_kind",
        replacement=_LANGUAGES,
        of_pages=True,
        from_files=True,
    ),
    _CaptureTable(
        "page_links",
        "One row per link of a page, with every attribute.",
        PAGE_COLUMNS["page_links"],
        order=_FROM_RECORDS_FIRST,
        distinct=", source_kind",
        # rel has a column of its own
        replacement="map_from_entries(list_filter(map_entries(attributes), lambda one: one.key <> 'rel')) AS "
        "attributes",
        of_pages=True,
        from_files=True,
    ),
    _CaptureTable(
        "feed_items",
        "One row per item of an RSS, Atom or JSON Feed.",
        PAGE_COLUMNS["feed_items"],
        order=_FROM_RECORDS_FIRST,
        distinct=", source_kind",
        of_pages=True,
        from_files=True,
    ),
)
_CAPTURES, _RECORDS, *_ = _CAPTURE_TABLES
_PAGE_METADATA = _CAPTURE_TABLES[2]

#: The target of a slice: for a part of a set the set.
WHOLE_TARGET = f"split_part(target, '{SEPARATOR}', 1)"
_OF_ARC = is_one_of("crawl", sorted(ARC_CRAWLS))
#: Which pages are shown: those that a condition rules out stay in the lake.
_NOT_RULED_OUT = "condition_match IS DISTINCT FROM 'no'"
#: Values of a target, from the rows of its slices.
_LOOKUPS = {
    "located_by": "max(located_by)",
    "subsets": "list_sort(list_distinct(flatten(list(subsets))))",
    "complete": "bool_and(complete)",
    "index_files": "max(index_files)",
    "unread_files": "max(unread_files)",
    "unread": "list_distinct(flatten(list(unread)))",
    "captures": "sum(captures)::BIGINT",
    "unlisted": "sum(unlisted)::BIGINT",
    "looked_up_at": "max(looked_up_at)",
}
_FETCHES = {
    **{name: f"sum({name})::BIGINT" for name in ("planned", "fetched", "pending", "lost")},
    "reason": "arg_max(reason, pending)",
    "example": "arg_max(example, pending)",
    "ask_pending": "sum(ask_pending)::BIGINT",
    "asks": "coalesce(min(asks) FILTER (ask_pending > 0), 0)",
    "failed_runs": "max(failed_runs)",
    "lost_reason": "max(lost_reason)",
    "mismatched": "sum(mismatched)::BIGINT",
    "last_attempt_at": "max(last_attempt_at)",
    "next_ask_at": "min(next_ask_at)",
}


@dataclass(frozen=True, slots=True)
class Sharing:
    """The rows that may be repeats: of these targets, which share keys with others; and of these crawls, which have
    files that were read whole."""

    targets: tuple[str, ...]
    crawls: tuple[str, ...]

    @property
    def sql(self) -> str:
        """A condition on ``target`` and ``crawl``."""
        conditions = (("target", self.targets), ("crawl", self.crawls))
        parts = [is_one_of(column, values) for column, values in conditions if values]
        return f"({' OR '.join(parts)})" if parts else "false"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The SURT keys of blocked sites, each range from its first key to the key behind its last (``None``: to the end);
    and the targets that are such a site, whose rows are shown."""

    ranges: tuple[tuple[bytes, bytes | None], ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """A condition on ``url_surtkey`` and ``target``: true for rows that are not shown."""
        parts = []
        for start, end in self.ranges:
            bound = "" if end is None else f" AND url_surtkey < {_quote_key(end)}"
            parts.append(f"(url_surtkey >= {_quote_key(start)}{bound})")
        exception = f" AND NOT {is_one_of(WHOLE_TARGET, self.targets)}" if self.targets else ""
        return f"coalesce(({' OR '.join(parts)}){exception}, false)"


def _quote_key(key: bytes) -> str:
    return quote_literal(key.decode("utf-8", "surrogateescape"))


def publication_views(
    left_out: Sequence[tuple[str, str, int]], sharing: Sharing, blocked: Blocked
) -> tuple[ViewSpec, ...]:
    """The published views, in an order in which each finds the names that it uses.

    Captures of several targets are looked for only where ``sharing`` says that there may be any.

    ``left_out`` names slices (crawl, target, epoch) whose notes are not shown: of purged targets, and with other rows
    than were committed. Rows of ``blocked`` sites are not shown, although their targets were not located again yet.

    A view over millions of rows is as quick as its table only if it neither leaves out rows nor joins any. So each is
    written for this publication, and compares keys only in rows of targets with repeats.
    """
    repeats = tuple(_build_repeats_view(table, sharing.sql) for table in _CAPTURE_TABLES)
    return (
        _build_left_out_view(left_out),
        _build_filters_view(blocked),
        *(_build_notes_view(stage, name, columns) for stage, name, columns in _NOTES),
        _build_plain_view("crawls", "Crawls of the source.", CRAWLS_COLUMNS, order="crawl DESC"),
        ViewSpec(
            "targets",
            f"SELECT * FROM lake.targets WHERE NOT {is_part('slug')}",
            "Targets looked up: slug, definition, version.",
            notes=notes_of(TARGETS_COLUMNS),
        ),
        _build_catalog_view("index_files", "Harvested index files, with values of their footers.", INDEX_FILES_COLUMNS),
        _build_catalog_view("row_groups", "Row groups of the columnar index with key ranges.", ROW_GROUPS_COLUMNS),
        _build_catalog_view(
            "coverage", "Index files expected, harvested and failed by crawl and harvested subset.", COVERAGE_COLUMNS
        ),
        ViewSpec(
            "lookups",
            _select_targets("lookups", _LOOKUPS),
            "Lookup of each (crawl, target): the index that was used, and whether files of it could not be read.",
            notes=notes_of(LOOKUPS_COLUMNS),
        ),
        ViewSpec(
            "set_members",
            f"SELECT crawl, {WHOLE_TARGET} AS target, one.member, sum(one.captures)::BIGINT AS captures FROM "
            "(SELECT crawl, target, unnest(members) AS one FROM lake.lookups) GROUP BY ALL",
            "Members of located sets with their number of captures; 0: nothing was found.",
            notes={
                "crawl": CRAWL.note,
                "target": "Slug of the set",
                "member": "Definition of the member",
                "captures": "Captures of the set that belong to the member; 0: nothing was found",
            },
        ),
        *repeats,
        _build_capture_view(_CAPTURES, _select_captures),
        ViewSpec(
            "capture_targets",
            _select_capture_targets,
            "Why a capture is here: one row per capture and target.",
            notes=notes_of(CAPTURES_COLUMNS) | {"target": "Slug of a target that the capture belongs to"},
        ),
        *(_build_capture_view(table, partial(_select_distinct, table)) for table in _CAPTURE_TABLES[1:]),
        ViewSpec(
            "ledger",
            f"SELECT {_KEY}, subset, url, domain, warc_record_length, outcome, reason, detail, digest_check, attempts, "
            "fetched_at, asks, last_ask_at FROM main.records",
            "One outcome per planned capture: planned = fetched + pending + lost.",
            notes=notes_of(RECORD_COLUMNS),
        ),
        ViewSpec(
            "quarantine",
            "SELECT * FROM main.records WHERE outcome <> 'fetched' AND stored_file IS NOT NULL",
            "Captures that are not fetched, of which other bytes are stored, with the reason.",
            notes=notes_of(RECORD_COLUMNS),
        ),
        ViewSpec(
            "fetches",
            _select_targets("fetches", _FETCHES),
            "State of each fetched partition: one row per target.",
            notes=notes_of(FETCHES_COLUMNS),
        ),
        _build_plain_view(
            "source_files", "Files that are read whole: kind, location, crawl, key.", SOURCE_FILES_COLUMNS
        ),
        _build_plain_view("source_faults", "Byte ranges of such files that could not be read.", SOURCE_FAULTS_COLUMNS),
    )


def _build_plain_view(table: str, comment: str, columns: Sequence[Column], order: str = "") -> ViewSpec:
    """A table of the lake as it is."""
    sql = f"SELECT * FROM lake.{table}" + (f" ORDER BY {order}" if order else "")
    return ViewSpec(table, sql, comment, notes=notes_of(columns))


def _build_catalog_view(table: str, comment: str, columns: Sequence[Column]) -> ViewSpec:
    """A table of the catalog, whose rows are all in one table."""
    return ViewSpec(table, table_query(table, "lake.row_groups"), comment, notes=notes_of(columns))


def _build_capture_view(table: _CaptureTable, sql: Sql) -> ViewSpec:
    return ViewSpec(table.name, sql, table.comment, notes=notes_of(table.columns))


def is_part(column: str) -> str:
    return f"contains({column}, '{SEPARATOR}')"


def _select_targets(table: str, columns: Mapping[str, str]) -> str:
    """Notes with a row for each slice, as a query with a row for each target."""
    aggregates = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return f"SELECT crawl, {WHOLE_TARGET} AS target, {aggregates} FROM lake.{table} GROUP BY ALL"


#: Views of notes in ``slices``, with the stage and their columns.
_NOTES = ((LOCATE, "lookups", LOOKUPS_COLUMNS), (FETCH, "fetches", FETCHES_COLUMNS))
#: Columns of these views that are no values of the note.
_ROW_COLUMNS = {"crawl": "crawl", "target": "target", "looked_up_at": "committed_at"}
_OF_DETAILS = ("unread", "members")
_JSON_TYPES = {pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.int32(): "INTEGER"}


def _build_notes_view(stage: Stage, name: str, columns: Sequence[Column]) -> ViewSpec:
    """The notes of a stage in rows of ``slices``, with a column for each value."""
    values: list[str] = []
    parsed: dict[str, dict[str, Any]] = {"note": {}, "details": {}}
    for column in columns:
        if column.name in _ROW_COLUMNS:
            values.append(f"{_ROW_COLUMNS[column.name]} AS {column.name}")
            continue
        source = "details" if column.name in _OF_DETAILS else "note"
        parsed[source][column.name] = _json_type(column.type)
        value = f"{source}.{column.name}"
        # a slice without gaps has no details
        value = f"coalesce({value}, [])" if source == "details" and not column.nullable else value
        values.append(f"{value} AS {column.name}")
    replaced = ", ".join(
        f"from_json({source}, {quote_literal(json.dumps(kinds))}) AS {source}"
        for source, kinds in parsed.items()
        if kinds
    )
    rows = (
        f"SELECT * REPLACE ({replaced}) FROM lake.slices ANTI JOIN lake.left_out USING (crawl, target, epoch) "
        f"WHERE stage = '{stage.label}' AND note <> '{{}}'"
    )
    comment = f"The notes of the stage {stage.label}, with a row for each slice."
    return ViewSpec(f"lake.{name}", f"SELECT {', '.join(values)} FROM ({rows})", comment, notes=notes_of(columns))


def _json_type(kind: pa.DataType) -> Any:
    """A type as ``from_json`` takes it."""
    if pa.types.is_list(kind):
        return [_json_type(kind.value_type)]
    if pa.types.is_struct(kind):
        return {member.name: _json_type(member.type) for member in kind}
    return "TIMESTAMPTZ" if pa.types.is_timestamp(kind) else _JSON_TYPES[kind]


def _build_repeats_view(table: _CaptureTable, where: str) -> ViewSpec:
    columns = f"{_KEY}, target{table.distinct}"

    def sql(run_query: RunQuery) -> str:
        table_sql = _select_published(table, run_query)
        query = (
            f"SELECT {_KEY}, target FROM (SELECT {columns}, "
            f"row_number() OVER (PARTITION BY {_KEY} ORDER BY {table.order}) AS place "
            # texts from files read whole have no offset, so their capture is not known
            f"FROM (SELECT DISTINCT {columns} FROM {table_sql} WHERE warc_record_offset IS NOT NULL AND {where})) "
            "WHERE place > 1"
        )
        if not table.from_files:
            return query
        # links of a file of 2012 are left out where the page itself was parsed, even if that has none
        return (
            f"{query} UNION SELECT {_KEY}, target FROM {table_sql} SEMI JOIN (FROM "
            f"{_select_published(_PAGE_METADATA, run_query)} "
            f"WHERE source_kind = 'records' AND {where}) USING ({_KEY}) WHERE source_kind <> 'records' AND {where}"
        )

    comment = f"Rows of {table.name} that another target's rows already show."
    return ViewSpec(f"lake.{table.name}_repeats", sql, comment, materialized=True)


def _select_distinct(table: _CaptureTable, run_query: RunQuery) -> str:
    """Each capture once. Rows of targets without repeats are not looked at."""
    table_sql = _select_published(table, run_query)
    hidden = _find_repeating_targets(table, run_query)
    replacements = [table.replacement] if table.replacement else []
    if _has_older_keys(table, run_query):
        replacements.append(f"{todays_key('url_surtkey')} AS url_surtkey")
    replaced = f" REPLACE ({', '.join(replacements)})" if replacements else ""
    if table is _CAPTURES:
        table_sql = _add_status(table_sql, run_query)
    # ``condition_match`` depends on the target
    plain = f"SELECT * EXCLUDE (target{'' if table.of_pages else ', condition_match'}){replaced} FROM {table_sql}"
    if hidden is None:
        return plain
    compared = f"{plain} ANTI JOIN lake.{table.name}_repeats USING ({_KEY}, target)"
    return f"{plain} WHERE NOT ({hidden}) UNION ALL {compared} WHERE {hidden}" if hidden else compared


def _has_older_keys(table: _CaptureTable, run_query: RunQuery) -> bool:
    """Whether some of its crawls have keys of an older rule than others: the published file has one key for a page."""
    crawls = run_query(f"SELECT DISTINCT crawl FROM lake.{table.name}")
    return any(key_rule(crawl) is not KeyRule.TODAY for (crawl,) in crawls)


def _add_status(table_sql: str, run_query: RunQuery) -> str:
    """Captures of which those without a status have that of the parsed page, in crawls with such captures. If an index
    has no status, they have none, or -1 as in the columnar index."""
    no_status = "fetch_status < 0 OR fetch_status IS NULL"
    crawls = run_query(
        f"SELECT DISTINCT crawl FROM lake.captures WHERE NOT ({_OF_ARC}) AND ({no_status}) ORDER BY crawl"
    )
    if not crawls:
        return table_sql
    of_crawls = is_one_of("crawl", [crawl for (crawl,) in crawls])
    parsed = (
        f"SELECT {_KEY}, TRY_CAST(any_value(http_result) AS SMALLINT) AS parsed_status FROM lake.page_metadata "
        f"WHERE {of_crawls} AND http_result IS NOT NULL GROUP BY ALL"
    )
    status = f"coalesce(nullif(c.fetch_status, {NO_STATUS}), p.parsed_status)"
    return f"(SELECT c.* REPLACE ({status} AS fetch_status) FROM {table_sql} c LEFT JOIN ({parsed}) p USING ({_KEY}))"


def _find_repeating_targets(table: _CaptureTable, run_query: RunQuery) -> str | None:
    """A condition for the targets with rows to leave out; empty if they are many, ``None`` if there are none."""
    targets = run_query(
        f"SELECT DISTINCT target FROM lake.{table.name}_repeats ORDER BY target LIMIT {_MAX_NAMED_TARGETS + 1}"
    )
    if not targets or len(targets) > _MAX_NAMED_TARGETS:
        return "" if targets else None
    return is_one_of("target", [target for (target,) in targets])


def _select_published(table: _CaptureTable, run_query: RunQuery) -> str:
    """A table without rows of blocked sites, and without pages that their target's condition rules out."""
    [(blocked, has_ruled_out)] = run_query("SELECT blocked, has_ruled_out FROM lake.row_filters")
    conditions = [f"NOT ({blocked})"] if blocked else []
    conditions += [_NOT_RULED_OUT] if table.of_pages and has_ruled_out else []
    return f"(FROM lake.{table.name} WHERE {' AND '.join(conditions)})" if conditions else f"lake.{table.name}"


def _build_filters_view(blocked: Blocked) -> ViewSpec:
    """One row: the condition for rows of blocked sites, if any row has one, and whether conditions rule out pages."""
    condition = blocked.sql if blocked.ranges else "false"
    rows = (
        f"SELECT CASE WHEN EXISTS (FROM lake.captures WHERE {condition}) THEN {quote_literal(condition)} END "
        "AS blocked, EXISTS (FROM lake.page_metadata WHERE condition_match = 'no') AS has_ruled_out"
    )
    return ViewSpec("lake.row_filters", rows, "Which rows the views leave out.", materialized=True)


def _build_left_out_view(slices: Sequence[tuple[str, str, int]]) -> ViewSpec:
    values = ", ".join(f"({quote_literal(crawl)}, {quote_literal(target)}, {epoch})" for crawl, target, epoch in slices)
    columns = "held(crawl, target, epoch)"
    rows = f"FROM (VALUES {values}) AS {columns}" if slices else f"FROM (VALUES ('', '', 0)) AS {columns} LIMIT 0"
    comment = "Rows of slices that do not count: of purged targets, and with other rows than were committed."
    return ViewSpec("lake.left_out", rows, comment, materialized=True)


def _select_capture_targets(run_query: RunQuery) -> str:
    """The captures with their targets. If a condition was undecided by the index, the result of the parsed page
    counts."""
    template = "SELECT DISTINCT {key}, subset, url, {whole} AS target, {meant} FROM {captures}"
    captures = _select_published(_CAPTURES, run_query)
    plain = template.format(key=_KEY, whole=WHOLE_TARGET, meant="condition_match", captures=captures)
    if not run_query("SELECT 1 FROM lake.captures WHERE starts_with(condition_match, 'unknown') LIMIT 1"):
        return plain
    pages = (
        f"(SELECT {_KEY}, target, condition_match AS page_match FROM lake.page_metadata WHERE condition_match IS "
        "NOT NULL)"
    )
    settled = template.format(
        key=_KEY,
        whole=WHOLE_TARGET,
        meant="coalesce(page_match, condition_match) AS condition_match",
        captures=captures,
    )
    return f"{settled} LEFT JOIN {pages} USING ({_KEY}, target)"


def _select_captures(run_query: RunQuery) -> str:
    query = _select_distinct(_CAPTURES, run_query)
    # the folders of the files decide
    if not run_query(f"SELECT 1 FROM lake.captures WHERE {_OF_ARC} LIMIT 1"):
        return query
    learned = ("fetch_time", "fetch_status", "content_digest", "content_mime_type")
    replaced = ", ".join(f"coalesce(c.{name}, r.{name}) AS {name}" for name in learned)
    return (
        f"SELECT * FROM ({query}) WHERE NOT ({_OF_ARC}) UNION ALL "
        f"SELECT * FROM ({query}) WHERE {_OF_ARC} AND archive_format <> 'arc' UNION ALL "
        f"SELECT c.* REPLACE ({replaced}) FROM (SELECT * FROM ({query}) WHERE {_OF_ARC} AND archive_format = 'arc') c "
        f"LEFT JOIN (SELECT * FROM ({_select_distinct(_RECORDS, run_query)}) WHERE {_OF_ARC}) r USING ({_KEY})"
    )
