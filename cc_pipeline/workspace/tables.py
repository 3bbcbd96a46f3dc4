"""The tables of the lake: those of the core in the order of the pipeline, then those of extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import pyarrow as pa

from cc_pipeline.capture_columns import CAPTURE_ORDER, SLICE
from cc_pipeline.documents.schemas import FEED_ITEMS_SCHEMA, PAGE_LINKS_SCHEMA, PAGE_METADATA_SCHEMA, PAGE_TEXT_SCHEMA
from cc_pipeline.extension import collect, refuse
from cc_pipeline.home import ExtensionTable
from cc_pipeline.index.catalog.schemas import CATALOG_ROW_GROUP, CATALOG_SCHEMA
from cc_pipeline.lake.evolution import Migration
from cc_pipeline.lake.lake import RemovedWith, TableSpec
from cc_pipeline.lake.slice import (
    BUILT,
    FETCH,
    HARVEST,
    LOCATE,
    MANIFEST,
    NAMED_CAPTURES,
    PARSE,
    Slice,
    Stage,
    note_digest_pattern,
)
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.workspace.schemas import (
    CAPTURES_SCHEMA,
    CRAWLS_SCHEMA,
    FETCHES_SCHEMA,
    INDEX_MANIFEST_SCHEMA,
    LOOKUPS_SCHEMA,
    SOURCE_FAULTS_SCHEMA,
    SOURCE_FILES_SCHEMA,
    TARGETS_SCHEMA,
)

BY_CRAWL = ("crawl",)
#: Columns about the origin of a row. Two equal captures may differ in them.
_LOOKUP_COLUMNS = ("located_by", "index_file", "index_position", "condition_match")
_STORED = (
    "condition_match", "detail", "stored_file", "stored_offset", "stored_length", "attempts", "fetched_at",
    "parser", "unsuccessful_runs",
)  # fmt: skip
_PARSED_BY = ("parser", "parser_version", "source_file")

#: The tables of the core.
CORE_TABLES: Final[tuple[TableSpec, ...]] = (
    TableSpec("crawls", CRAWLS_SCHEMA, (), ("crawl",)),
    TableSpec("targets", TARGETS_SCHEMA, ("slug",), ("slug",)),
    TableSpec("index_manifest", INDEX_MANIFEST_SCHEMA, BY_CRAWL, ("subset", "path"),
    stage=MANIFEST, is_published=False),
    TableSpec("row_groups", CATALOG_SCHEMA, BY_CRAWL, (), row_group_rows=CATALOG_ROW_GROUP, stage=HARVEST),
    # named captures are kept when a subset is deleted
    TableSpec(
        "named_captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, _LOOKUP_COLUMNS, stage=NAMED_CAPTURES,
        removed_with="target"
    ),
    TableSpec("lookups", LOOKUPS_SCHEMA, SLICE, ("target",), stage=LOCATE),
    TableSpec("captures", CAPTURES_SCHEMA, SLICE, CAPTURE_ORDER, _LOOKUP_COLUMNS, stage=LOCATE),
    TableSpec("records", RECORD_SCHEMA, SLICE, CAPTURE_ORDER, _STORED, stage=FETCH),
    TableSpec("fetches", FETCHES_SCHEMA, SLICE, ("target",), stage=FETCH),
    TableSpec("page_metadata", PAGE_METADATA_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("page_text", PAGE_TEXT_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("page_links", PAGE_LINKS_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("feed_items", FEED_ITEMS_SCHEMA, SLICE, (), _PARSED_BY, stage=PARSE),
    TableSpec("source_files", SOURCE_FILES_SCHEMA, ("slug",), ("slug",)),
    # here, targets are files
    TableSpec(
        "source_faults", SOURCE_FAULTS_SCHEMA, SLICE, (), ("source_file",), stage=BUILT, removed_with="nothing"
    ),
)  # fmt: skip

#: One migration for each layout above ``home.OLDEST_LAYOUT``. An added column needs none; renaming, retyping and
#: ending a column or table do.
MIGRATIONS: tuple[Migration, ...] = ()


def all_tables() -> tuple[TableSpec, ...]:
    """Returns the tables of the core, then those of the extensions in use."""
    return (*CORE_TABLES, *(spec for specs in tables_by_extension().values() for spec in specs))


def tables_by_extension() -> dict[str, Sequence[TableSpec]]:
    """Returns the tables of each extension in use that has any.

    An extension is refused, with the reason in ``find_extensions``, if it declares a table whose name is taken, or one
    with rows of targets that a purge cannot find by its stage.
    """
    owners = {spec.name: "the core" for spec in CORE_TABLES}
    tables: dict[str, Sequence[TableSpec]] = {}
    for extension, specs in collect("tables").items():
        problem = _find_problem(specs, owners)
        if problem:
            refuse(extension, problem)
        elif specs:
            tables[extension] = specs
            owners |= {spec.name: f"the extension {extension}" for spec in specs}
    return tables


def _find_problem(specs: Sequence[TableSpec], owners: Mapping[str, str]) -> str:
    for spec in specs:
        if not isinstance(spec, TableSpec):
            return f"it declares {spec!r}, which is no TableSpec"
        if spec.name in owners:
            return f"its table {spec.name} has the name of a table of {owners[spec.name]}"
        if [other_spec.name for other_spec in specs].count(spec.name) > 1:
            return f"it declares its table {spec.name} twice"
        may_go = "target" in spec.schema.names and spec.removed_with != "nothing"
        if may_go and (reason := _problem_of_rows(spec)):
            return (
                f"its table {spec.name} has rows of targets, but {reason}, so a purge cannot find them; mend that, or "
                'declare removed_with="nothing"'
            )
    return ""


def _problem_of_rows(spec: TableSpec) -> str:
    """Returns why a purge cannot find the rows of targets in a table; empty if it can."""
    if spec.slice_columns != SLICE:
        return "its slice columns are not crawl and target"
    if spec.stage is None:
        return "no stage"
    example = Slice("crawl", "target")
    if spec.stage.parse_digest_name(spec.stage.digest_name(example)) != example:
        return "the digests of its stage are not named LABEL:{crawl}:{target}"
    return ""


def note_of_table(extension: str, spec: TableSpec) -> ExtensionTable:
    """Returns the note of a table of an extension, for ``home.json``."""
    if not spec.has_targets or spec.stage is None:
        return ExtensionTable(extension, spec.name)
    digests = note_digest_pattern(spec.name) if spec.has_row_a_slice else spec.stage.name_pattern
    return ExtensionTable(extension, spec.name, spec.removed_with, digests)


def with_left_tables(
    noted_tables: Sequence[ExtensionTable], schema_of: Callable[[str], pa.Schema | None]
) -> tuple[TableSpec, ...]:
    """Returns all declared tables, then the existing ones among ``noted_tables`` whose extensions are not in use.

    ``schema_of`` returns the columns of a stored table, ``None`` if it cannot be read. An extension is refused if it
    declares a table that another extension made in this home.
    """
    makers = {table.table: table.extension for table in noted_tables}
    for extension, specs in tables_by_extension().items():
        for maker, name in ((makers.get(spec.name, extension), spec.name) for spec in specs):
            if maker != extension:
                refuse(extension, f"its table {name} has the name of one that the extension {maker} made in a home")
    declared = all_tables()
    names = {spec.name for spec in declared}
    left_specs = (
        _left_table(table, schema)
        for table in noted_tables
        if table.table not in names and (schema := schema_of(table.table)) is not None
    )
    return (*declared, *left_specs)


def _left_table(noted_table: ExtensionTable, schema: pa.Schema) -> TableSpec:
    if not noted_table.digests:
        return TableSpec(noted_table.table, schema, removed_with="nothing", former_extension=noted_table.extension)
    return TableSpec(
        noted_table.table,
        schema,
        SLICE,
        stage=Stage(noted_table.table, (noted_table.table,), noted_table.digests),
        removed_with=cast("RemovedWith", noted_table.removed_with),
        former_extension=noted_table.extension,
    )
