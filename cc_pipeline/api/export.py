"""The command ``export``: writes the data of a home to a file or folder that needs neither the home nor this
program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.advice import advise, option
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.api.rows import MemoryRows
from cc_pipeline.api.user_input import (
    STANDARD_INPUT,
    check_format,
    chosen_targets,
    resolve_home,
    resolve_home_crawls,
)
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.export.format import RecordFormat, RowFormat, Written
from cc_pipeline.export.formats import FORMATS
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.export.row_choice import RowChoice


@dataclass(frozen=True, slots=True, repr=False)
class Export:
    """A finished export. ``path`` is the file or folder, ``files`` are all files written, also those beside it.
    ``rows`` counts the content: rows and columns of each table, or records of each crawl. ``notes`` are the lines of
    the command."""

    path: Path
    files: tuple[Path, ...]
    rows: MemoryRows
    notes: tuple[str, ...] = ()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self.rows.text_under(self._caption)

    @property
    def _caption(self) -> str:
        other_files = [str(file) for file in self.files if file != self.path]
        extra_text = (
            ""
            if not other_files
            else f", with {other_files[0]}"
            if len(other_files) == 1
            else f", {format_count(len(self.files), 'file')}"
        )
        return "\n".join((f"{self.path}{extra_text}", *self.notes))


@dataclass(frozen=True, slots=True)
class Attribution:
    """The creator of an export and the URL where it will be found, for its documents."""

    creator: str = ""
    url: str = ""


NO_ATTRIBUTION: Final = Attribution()


def export(
    settings: Settings,
    out: Path,
    targets: Sequence[str] = (),
    crawls: Sequence[str] = (),
    *,
    format: str | None = None,
    tables: Sequence[str] = (),
    query: str | None = None,
    columns: Sequence[str] = (),
    where: str = "",
    limit: int = 0,
    new: bool = False,
    allow_missing: bool = False,
    guard_formulas: bool = False,
    attribution: Attribution = NO_ATTRIBUTION,
) -> Export:
    """Writes data of the home to ``out``, in ``format`` or the format of its name: published tables (all or ``tables``,
    also only rows of some targets and crawls), one query, or, with a format of records, the records of targets.
    ``columns``, ``where`` (a condition in SQL) and ``limit`` choose among the rows of one table or query. With ``new``
    only rows of slices that were committed since the export that the documents of ``out`` describe.

    Raises ``UserInputError`` for arguments that are invalid or contradict each other, ``EnvironmentFault`` if nothing
    was published or the disk refuses, and ``Incomplete`` if records lack planned captures and ``allow_missing`` is not
    set: the file is there, and the error's ``report`` is the ``Export``.
    """
    if str(out) == STANDARD_INPUT:
        raise UserInputError(
            "- is no file: export writes a file or folder. To write rows to standard output: "
            f"{advise('sql', 'QUERY', format='csv')}"
        )
    format_name = format or _guess_format(out)
    check_format(format_name, tuple(FORMATS))
    if tables and query:
        raise UserInputError("tables and a query exclude each other; name one of them")
    export_format = FORMATS[format_name]
    if isinstance(export_format, RecordFormat):
        if tables or query or columns or where or limit or new:
            raise UserInputError(
                f"the format {format_name} exports records; it takes no tables, query, columns, condition or limit"
            )
        if not targets:
            raise UserInputError(f"the format {format_name} exports the records of targets: name some")
        return _export_records(settings, out, export_format, targets, crawls, allow_missing, attribution)
    if export_format.only_table:
        if tables:
            raise UserInputError(f"the format {format_name} exports {export_format.only_table}; it takes no tables")
        tables = () if query else (export_format.only_table,)
    if new and (query or limit or not tables):
        raise UserInputError(f"new rows are those of tables: name them with {option(table=None)}, and no limit")
    if query and (targets or crawls):
        raise UserInputError("a query cannot be combined with targets or crawls; filter with WHERE in the query")
    from cc_pipeline.export.row_choice import RowChoice

    return _export_rows(
        settings,
        out,
        format_name,
        export_format,
        targets,
        crawls,
        tables,
        query,
        RowChoice(columns, where, limit),
        attribution,
        new=new,
        guarded=guard_formulas,
    )


def _guess_format(out: Path) -> str:
    for name, export_format in FORMATS.items():
        if out.suffix.lower() in export_format.suffixes:
            return name
    raise UserInputError(f"no export format follows from the name {out.name!r}; name a format: {', '.join(FORMATS)}")


def _export_rows(
    settings: Settings,
    out: Path,
    format_name: str,
    row_format: RowFormat,
    domains: Sequence[str],
    crawls: Sequence[str],
    tables: Sequence[str],
    query: str | None,
    choice: RowChoice,
    attribution: Attribution,
    *,
    new: bool,
    guarded: bool,
) -> Export:
    from cc_pipeline.export import table_files
    from cc_pipeline.export.cards import DatasetDescription
    from cc_pipeline.export.files import open_scratch_folder
    from cc_pipeline.export.format import RowsRequest
    from cc_pipeline.export.formulas import GUARDED
    from cc_pipeline.export.new_rows import list_exported_rows, read_exported_rows
    from cc_pipeline.export.provenance import gather_provenance
    from cc_pipeline.export.selections import open_selections
    from cc_pipeline.export.stored_state import read_published_state
    from cc_pipeline.lake.published_file import open_home_publication
    from cc_pipeline.workspace.workspace import open_workspace

    with open_home_publication(settings) as connection, open_scratch_folder(out) as scratch, ExitStack() as stack:
        table_files.bound_memory(connection, scratch)
        targets, crawl_ids = resolve_home(connection, settings, domains, crawls)
        filters = [*([GUARDED] if format_name == "csv" and guarded else []), *choice.describe()]
        filters += [f"crawls: {', '.join(crawl_ids)}"] if crawl_ids else []
        exported = None
        if query is not None:
            selections = [choice.narrow(connection, table_files.select_query(connection, query))]
            filters.append(f"query: `{' '.join(query.split())}`")
        else:
            slugs = [target.slug for target in targets]
            earlier = read_exported_rows(out, tables, choice.where) if new else None
            opened = open_selections(connection, settings, tables, slugs, crawl_ids, choice, earlier)
            selections = stack.enter_context(opened)
            if not choice.limit:
                exported_tables = [selection.name for selection in selections]
                exported = list_exported_rows(connection, exported_tables, choice.where, slugs, crawl_ids).as_json()
        queries = [selection.sql for selection in selections]
        if new and not table_files.has_rows(connection, queries):
            return Export(out, (), make_count_rows(("name",), ()), ("no rows were committed since the last export",))
        table_files.keep_full_file(connection, out, queries)
        card = DatasetDescription(f"{out.name}: pages of Common Crawl", attribution.creator, attribution.url)
        with open_workspace(settings) as workspace:
            state = read_published_state(connection, targets, crawl_ids)
            provenance = replace(gather_provenance(workspace, state, crawl_ids, filters), exported=exported)
        request = RowsRequest(connection, selections, format_name, out, card, provenance, guarded)
        written = row_format.write(request)
    if not any(rows for _, rows, *_ in written.rows):
        chosen = " in ".join(filter(None, (", ".join(domains), ", ".join(crawls))))
        names = ", ".join(selection.name for selection in selections)
        get_reporter().note(f"{out} has no rows" + (f": there are none of {chosen} in {names}" if chosen else ""))
    return _make_export(out, written)


def _export_records(
    settings: Settings,
    out: Path,
    record_format: RecordFormat,
    domains: Sequence[str],
    crawls: Sequence[str],
    allow_missing: bool,
    attribution: Attribution,
) -> Export:
    from cc_pipeline.export.cards import DatasetDescription
    from cc_pipeline.export.format import RecordsRequest
    from cc_pipeline.export.provenance import gather_provenance
    from cc_pipeline.export.stored_state import read_lake_state
    from cc_pipeline.lake.slice import LOCATE
    from cc_pipeline.lake.slices import list_slices
    from cc_pipeline.workspace.workspace import open_workspace

    targets = chosen_targets(domains)
    if not settings.home.exists():
        raise EnvironmentFault(
            f"the home {settings.home} does not exist yet, so there are no records to export",
            advise("run", *domains, crawl="newest", sentence="Run the targets first: {}"),
        )
    with open_workspace(settings) as workspace, get_reporter().bars():
        stored = {slice_.crawl for slice_ in list_slices(workspace.lake, LOCATE)} if crawls else ()
        state = read_lake_state(workspace, targets, resolve_home_crawls(crawls, stored))
        chosen_crawls = sorted(state.count_rows("records"), reverse=True)
        if not chosen_crawls:
            raise EnvironmentFault(
                f"this home has no records of {', '.join(domains)} to export: none was fetched, or no crawl that was "
                "run has captures",
                advise("run", domains[0], crawl="newest", sentence="Run it for a crawl that has captures of it: {}"),
            )
        card = DatasetDescription(f"{out.name}: records of Common Crawl", attribution.creator, attribution.url)
        provenance = gather_provenance(workspace, state, chosen_crawls, [f"crawls: {', '.join(chosen_crawls)}"])
        written = record_format.write(RecordsRequest(workspace, state, chosen_crawls, out, card, provenance))
    exported = _make_export(out, written)
    if written.incomplete is not None and not allow_missing:
        written.incomplete.report = exported
        raise written.incomplete
    return exported


def _make_export(out: Path, written: Written) -> Export:
    return Export(out, written.files, make_count_rows(written.columns, written.rows), written.notes)


def make_count_rows(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> MemoryRows:
    """Returns rows of a name and counts."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.int64() if place else pa.string()) for place, name in enumerate(names)])
    return MemoryRows(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema))
