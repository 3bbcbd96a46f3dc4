"""``export``: what a home has, handed on in files that open elsewhere: tables, queries, data sets, records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.guarding import guarding
from cc_pipeline.cli.output import checked_format, notice, progress_bars, warn, write_rows
from cc_pipeline.errors import EnvironmentFault, Incomplete, UserInputError
from cc_pipeline.python import meaning
from cc_pipeline.python.meaning import chosen_targets, crawl_ids, refuse_unknown
from cc_pipeline.settings import Settings, load_settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.delivery.cards import About
    from cc_pipeline.delivery.files import Handed
    from cc_pipeline.delivery.provenance import Provenance
    from cc_pipeline.delivery.table_files import Selection

FORMATS = ("duckdb", "parquet", "jsonl", "csv", "wacz", "sequencefile")
_OF_RECORDS = ("wacz", "sequencefile")
_SUFFIXES = {".duckdb": "duckdb", ".db": "duckdb", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
             ".csv": "csv", ".wacz": "wacz"}  # fmt: skip


def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file or folder to write.")],
    domain: Annotated[
        list[str] | None, typer.Option("--domain", "-d", help="Only rows of these targets; may be repeated.")
    ] = None,
    crawl: Annotated[list[str] | None, typer.Option("--crawl", "-c", help="Only rows of these crawls.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format", help="duckdb, parquet, jsonl, csv, wacz or sequencefile (default: by the name of --out)."
        ),
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="A published table; may be repeated.")
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="One query, as in sql.")] = None,
    dataset: Annotated[Path | None, typer.Option("--dataset", help="A folder that the command dataset wrote.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 although planned captures are not in a wacz.")
    ] = False,
    creator: options.Creator = "",
    url: options.Address = "",
    home: options.Home = None,
) -> None:
    """Hand on what this home has: a file (or folder) that needs neither the home nor this pipeline.

    It appears whole or not at all, with a README of where its rows came from (source, crawls with the digests of their
    indexes, what was asked, counts), the same as JSON, what became of each target as CSV, and a Croissant document of
    tables. A file that is there is replaced, a folder only if an export wrote it.

    [bold]duckdb[/]: one file with the rows inside, comments included. [bold]parquet, jsonl, csv[/]: a file for one
    table or query, a folder for several. [bold]wacz[/]: the stored records with an index and a list of pages, for
    ReplayWeb.page and other archive tools. [bold]sequencefile[/]: the text and metadata files of 2012.

    [bold]Examples[/]

      cc-pipeline export -d example.com --out example.duckdb

      cc-pipeline export -d example.com --table page_text --out pages.parquet

      cc-pipeline export --query "SELECT url, title FROM page_text" --out titles.jsonl

      cc-pipeline export -d example.com -c CC-MAIN-2012 --out example.wacz
    """
    if str(out) == meaning.STANDARD_INPUT:
        raise UserInputError("--out names a file or folder; to write rows to standard output: cc-pipeline sql --csv")
    chosen = output or _SUFFIXES.get(out.suffix.lower())
    if chosen is None:
        raise UserInputError(f"the name {out.name!r} does not say a format; add --format {'|'.join(FORMATS)}")
    checked_format(chosen, FORMATS)
    if sum(bool(one) for one in (table, query, dataset)) > 1:
        raise UserInputError("choose one of --table, --query and --dataset")
    settings = load_settings(home=home)
    if chosen in _OF_RECORDS:
        if table or query or dataset:
            raise UserInputError(f"--format {chosen} hands on records; it takes no --table, --query or --dataset")
        if not domain:
            raise UserInputError(f"--format {chosen} hands on the records of targets: add --domain")
        _export_records(settings, out, chosen, domain, crawl or [], allow_missing, (creator, url))
        return
    if (query or dataset) and (domain or crawl):
        raise UserInputError("--domain and --crawl choose rows of tables; say it in the query instead")
    _export_rows(settings, out, chosen, domain or [], crawl or [], table or [], query, dataset, (creator, url))


def _export_rows(
    settings: Settings,
    out: Path,
    chosen: str,
    domains: Sequence[str],
    crawls: Sequence[str],
    tables: Sequence[str],
    query: str | None,
    dataset: Path | None,
    said: tuple[str, str],
) -> None:
    from cc_pipeline.delivery import table_files
    from cc_pipeline.delivery.cards import About
    from cc_pipeline.delivery.files import provenance_of, scratch_beside
    from cc_pipeline.delivery.formulas import GUARDED
    from cc_pipeline.delivery.provenance import gather
    from cc_pipeline.workspace.workspace import open_workspace

    targets = chosen_targets(domains)
    slugs = [target.slug for target in targets]
    with _opened(settings, dataset) as connection, scratch_beside(out) as scratch:
        table_files.bound_memory(connection, scratch)
        asked = [GUARDED] if chosen == "csv" and guarding() else []
        if crawls:
            asked.append(f"crawls: {', '.join(crawls)}")
        selections: list[Selection]
        if dataset is not None:
            asked.append(f"data set: {dataset.resolve().name}")
            selections = [table_files.select_query(connection, _dataset_query(dataset), "dataset")]
        elif query is not None:
            selections = [table_files.select_query(connection, query)]
            asked.append(f"query: `{' '.join(selections[0].sql.split())}`")
        else:
            refuse_unknown(connection, settings, targets, domains)
            selections = table_files.select_tables(connection, tables, slugs, crawl_ids(crawls))
        about = About(f"{out.name}: pages of Common Crawl", *said)
        if dataset is not None:
            provenance = provenance_of(dataset, asked)
        else:
            with open_workspace(settings) as workspace:
                provenance = gather(workspace, targets, crawl_ids(crawls), asked)
            provenance = replace(provenance, published=table_files.published_at(connection))
        handed = _write(connection, selections, chosen, out, about, provenance)
    write_rows(
        f"handed on in {out}", ["name", "rows", "columns"], [(one.name, one.rows, len(one.columns)) for one in handed]
    )
    if not any(one.rows for one in handed):
        warn(f"{out} has no rows" + (f": this home shows nothing of {', '.join(domains)}" if domains else ""))


def _write(
    connection: DuckDBPyConnection,
    selections: Sequence[Selection],
    chosen: str,
    out: Path,
    about: About,
    provenance: Provenance,
) -> list[Handed]:
    from cc_pipeline.delivery import table_files
    from cc_pipeline.delivery.files import whole_file, whole_folder, write_papers
    from cc_pipeline.publish.macros import MACROS

    if chosen == "duckdb":
        with whole_file(out) as path:
            # macros read several tables: they go along where all tables do
            macros = MACROS if {one.table for one in selections} >= set(table_files.OF_TARGETS) else ()
            handed = table_files.write_duckdb(connection, selections, path, provenance.as_rows(), macros)
        write_papers(out, about, provenance, handed, [out])
    elif len(selections) == 1 and not _is_folder(out):
        with whole_file(out) as path:
            handed = [table_files.write_table(connection, selections[0], chosen, path, guarded=guarding())]
        write_papers(out, about, provenance, handed, [out])
    else:
        with whole_folder(out) as folder:
            files = [folder / f"{one.name}{table_files.SUFFIX[chosen]}" for one in selections]
            handed = [
                table_files.write_table(connection, one, chosen, path, guarded=guarding())
                for one, path in zip(selections, files, strict=True)
            ]
            write_papers(folder, about, provenance, handed, files)
    return handed


def _export_records(
    settings: Settings,
    out: Path,
    chosen: str,
    domains: Sequence[str],
    crawls: Sequence[str],
    allow_missing: bool,
    said: tuple[str, str],
) -> None:
    from cc_pipeline.delivery.cards import About
    from cc_pipeline.delivery.files import Handed, scratch_beside, whole_file, whole_folder, write_papers
    from cc_pipeline.delivery.hand_on import crawls_with_records, hand_on_sequencefiles, hand_on_wacz
    from cc_pipeline.delivery.provenance import gather
    from cc_pipeline.workspace.workspace import open_workspace

    targets = chosen_targets(domains)
    if not settings.home.exists():
        raise EnvironmentFault(f"{settings.home} does not exist yet", "Fetch first: cc-pipeline run --crawl … -d …")
    with open_workspace(settings) as workspace, progress_bars():
        chosen_crawls = crawl_ids(crawls) or crawls_with_records(workspace, targets)
        if not chosen_crawls:
            raise EnvironmentFault(
                f"this home has no captures of {', '.join(domains)}",
                f"Fetch them first: cc-pipeline run --crawl … --domain {domains[0]}",
            )
        asked = [f"crawls: {', '.join(chosen_crawls)}"]
        about = About(f"{out.name}: records of Common Crawl", *said)
        provenance = gather(workspace, targets, chosen_crawls, asked)
        if chosen == "sequencefile":
            with whole_folder(out) as folder:
                ledger, notes = hand_on_sequencefiles(workspace, targets, chosen_crawls, folder)
                handed = Handed("text and metadata", sum(ledger.crawls.values()), ledger.crawls)
                files = sorted(path for path in folder.rglob("*") if path.is_file())
                write_papers(folder, about, provenance, [handed], files)
            for note in notes:
                notice(note)
            write_rows(f"handed on in {out}", ["crawl", "records"], sorted(ledger.crawls.items(), reverse=True))
            return
        with scratch_beside(out) as scratch, whole_file(out) as path:
            wacz, ledger = hand_on_wacz(workspace, targets, chosen_crawls, path, scratch)
        lost = {name: count for name, count in ledger.outcomes.items() if name != "fetched"}
        if wacz.left_out:
            lost["left out"] = wacz.left_out
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(lost.items()))
        note = f"{ledger.planned:,} captures were planned, {wacz.records:,} are here" + (f"; {told}" if lost else "")
        handed = Handed("records", wacz.records, ledger.crawls, note=note)
        more = "## Left out\n\n" + "\n".join(f"- {one}" for one in wacz.named) if wacz.named else ""
        write_papers(out, about, provenance, [handed], [out], more)
    rows = [(crawl, count) for crawl, count in sorted(ledger.crawls.items(), reverse=True)]
    write_rows(f"handed on in {out}", ["crawl", "records"], rows)
    notice(f"{note}; {wacz.pages:,} pages are listed")
    for one in wacz.named:
        notice(f"left out: {one}")
    if lost and not allow_missing:
        raise Incomplete(
            f"{out} lacks {sum(lost.values()):,} of {ledger.planned:,} planned captures ({told})",
            "Ask for them again: cc-pipeline replay --crawl … --domain …, then export again. Or accept it: "
            "--allow-missing",
        )


@contextmanager
def _opened(settings: Settings, dataset: Path | None) -> Iterator[DuckDBPyConnection]:
    """The published file; of a data set nothing but DuckDB."""

    from cc_pipeline.lake.reading import open_settled

    if dataset is not None:
        from cc_pipeline.duck import connect

        with connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
        return
    with open_settled(settings) as connection:
        yield connection


def _dataset_query(folder: Path) -> str:
    from cc_pipeline.lake.reading import quoted

    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UserInputError(f"{folder} holds no data set; make one: cc-pipeline dataset -d … --out {folder}")
    return f"SELECT * FROM read_parquet([{', '.join(quoted(str(path.resolve())) for path in files)}])"


def _is_folder(out: Path) -> bool:
    return out.is_dir() or not out.suffix
