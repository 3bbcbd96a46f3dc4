"""What a home hands on in files of their own: tables, queries, records, data sets of texts, pages about targets.

Each function is a command's work; what its rows show is in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from cc_pipeline.errors import EnvironmentFault, Incomplete, UserInputError, disk_trouble
from cc_pipeline.python.meaning import (
    STANDARD_INPUT,
    checked_format,
    chosen_targets,
    crawl_ids,
    lines_meant,
    refuse_unknown,
)
from cc_pipeline.python.rows import Held
from cc_pipeline.python.voice import voice
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.documents.document2012.json import Compat
    from cc_pipeline.export.cards import About
    from cc_pipeline.export.files import Handed
    from cc_pipeline.export.provenance import Provenance
    from cc_pipeline.export.table_files import Selection

FORMATS: Final = (
    "duckdb", "parquet", "jsonl", "csv", "wacz", "sequencefile", "metadata-json", "metadata-json-2012"
)  # fmt: skip
#: The metadata documents of 2012, a page a line; the latter with the bugs of their writer.
_DOCUMENTS: Final[Mapping[str, Compat]] = {"metadata-json": None, "metadata-json-2012": "2012"}
_OF_RECORDS: Final = ("wacz", "sequencefile")
_SUFFIXES: Final = {".duckdb": "duckdb", ".db": "duckdb", ".parquet": "parquet", ".jsonl": "jsonl",
                    ".ndjson": "jsonl", ".csv": "csv", ".wacz": "wacz"}  # fmt: skip
#: Rows of ``page_metadata`` held at a time: a row holds all links of its page.
_BATCH: Final = 200
#: Characters that would end a line or a column; no valid URL has them unescaped.
_ESCAPED: Final = {ord(character): f"%{ord(character):02X}" for character in "\t\r\n"}
#: Formats of a data set.
TEXTS: Final = ("parquet", "jsonl")
#: Words of a main text in a data set: at least, at most.
WORDS: Final = "50..100000"


@dataclass(frozen=True, slots=True)
class Export:
    """What was handed on. ``path`` is the file or folder, ``files`` are all that were written, those beside it too.
    ``rows`` say what is in it: of tables each with its rows and columns, of records how many of each crawl, of a data
    set what each filter took. ``notes`` are the lines of the command."""

    path: Path
    files: tuple[Path, ...]
    rows: Held
    notes: tuple[str, ...] = ()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        return self.rows._repr_html_()


@dataclass(frozen=True, slots=True)
class Said:
    """Who makes what is handed on, and where it will be found: for its papers."""

    creator: str = ""
    url: str = ""


def export(
    settings: Settings,
    out: Path,
    targets: Sequence[str] = (),
    crawls: Sequence[str] = (),
    *,
    format: str | None = None,
    tables: Sequence[str] = (),
    query: str | None = None,
    dataset: Path | None = None,
    allow_missing: bool = False,
    guard_formulas: bool = False,
    said: Said = Said(),  # frozen
) -> Export:
    """Writes what the home has to ``out``, in ``format`` or as its name says: published tables (some, or their rows of
    some targets and crawls), one query, a data set, or with a format of records those of targets.

    Raises ``UserInputError`` for words that mean nothing or do not go together, ``EnvironmentFault`` where nothing was
    published or the disk refuses, and ``Incomplete`` for records that lack planned captures unless they are
    ``allow_missing``: the file is there, and the error's ``report`` is the ``Export``.
    """
    if str(out) == STANDARD_INPUT:
        raise UserInputError("--out names a file or folder; to write rows to standard output: cc-pipeline sql --csv")
    chosen = format or _SUFFIXES.get(out.suffix.lower())
    if chosen is None:
        raise UserInputError(f"the name {out.name!r} does not say a format; add --format {'|'.join(FORMATS)}")
    checked_format(chosen, FORMATS)
    if sum(bool(one) for one in (tables, query, dataset)) > 1:
        raise UserInputError("choose one of --table, --query and --dataset")
    if chosen in _OF_RECORDS:
        if tables or query or dataset:
            raise UserInputError(f"--format {chosen} hands on records; it takes no --table, --query or --dataset")
        if not targets:
            raise UserInputError(f"--format {chosen} hands on the records of targets: name some")
        return _records(settings, out, chosen, targets, crawls, allow_missing, said)
    if chosen in _DOCUMENTS:
        if tables or dataset:
            raise UserInputError(f"--format {chosen} hands on page_metadata; it takes no --table and no --dataset")
        tables = () if query else ("page_metadata",)
    if (query or dataset) and (targets or crawls):
        raise UserInputError("targets and --crawl choose rows of tables; say it in the query instead")
    return _rows(settings, out, chosen, targets, crawls, tables, query, dataset, said, guarded=guard_formulas)


def _rows(
    settings: Settings,
    out: Path,
    chosen: str,
    domains: Sequence[str],
    crawls: Sequence[str],
    tables: Sequence[str],
    query: str | None,
    dataset: Path | None,
    said: Said,
    *,
    guarded: bool,
) -> Export:
    from cc_pipeline.export import table_files
    from cc_pipeline.export.cards import About
    from cc_pipeline.export.files import provenance_of, scratch_beside
    from cc_pipeline.export.formulas import GUARDED
    from cc_pipeline.export.provenance import gather
    from cc_pipeline.workspace.workspace import open_workspace

    targets = chosen_targets(domains)
    slugs = [target.slug for target in targets]
    with _opened(settings, dataset) as connection, scratch_beside(out) as scratch:
        table_files.bound_memory(connection, scratch)
        asked = [GUARDED] if chosen == "csv" and guarded else []
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
        about = About(f"{out.name}: pages of Common Crawl", said.creator, said.url)
        if dataset is not None:
            provenance = provenance_of(dataset, asked)
        else:
            with open_workspace(settings) as workspace:
                provenance = gather(workspace, targets, crawl_ids(crawls), asked)
            provenance = replace(provenance, published=table_files.published_at(connection))
        handed, files = _write(connection, selections, chosen, out, about, provenance, guarded=guarded)
    if not any(one.rows for one in handed):
        voice().note(f"{out} has no rows" + (f": this home shows nothing of {', '.join(domains)}" if domains else ""))
    return Export(out, files, _held(("name", "rows", "columns"), [(a.name, a.rows, len(a.columns)) for a in handed]))


def _write(
    connection: DuckDBPyConnection,
    selections: Sequence[Selection],
    chosen: str,
    out: Path,
    about: About,
    provenance: Provenance,
    *,
    guarded: bool,
) -> tuple[list[Handed], tuple[Path, ...]]:
    from cc_pipeline.export import table_files
    from cc_pipeline.export.files import whole_file, whole_folder, write_papers
    from cc_pipeline.publish.macros import MACROS

    if chosen == "duckdb":
        with whole_file(out) as path:
            # macros read several tables: they go along where all tables do
            macros = MACROS if {one.table for one in selections} >= set(table_files.OF_TARGETS) else ()
            handed = table_files.write_duckdb(connection, selections, path, provenance.as_rows(), macros)
        return handed, write_papers(out, about, provenance, handed, [out])
    if chosen in _DOCUMENTS:
        with whole_file(out) as path:
            handed = [_write_documents(connection, selections[0], _DOCUMENTS[chosen], path)]
        return handed, write_papers(out, about, provenance, handed, [out])
    if len(selections) == 1 and not (out.is_dir() or not out.suffix):
        with whole_file(out) as path:
            handed = [table_files.write_table(connection, selections[0], chosen, path, guarded=guarded)]
        return handed, write_papers(out, about, provenance, handed, [out])
    with whole_folder(out) as folder:
        data = [folder / f"{one.name}{table_files.SUFFIX[chosen]}" for one in selections]
        handed = [
            table_files.write_table(connection, one, chosen, path, guarded=guarded)
            for one, path in zip(selections, data, strict=True)
        ]
        write_papers(folder, about, provenance, handed, data)
    return handed, _in_folder(out)


def _write_documents(connection: DuckDBPyConnection, selection: Selection, compat: Compat, path: Path) -> Handed:
    """Writes the metadata document of each row, one a line: URL, tab, JSON. Raises ``UserInputError`` for a query that
    does not give whole rows of ``page_metadata``."""
    from cc_pipeline.documents.document2012.json import metadata_json
    from cc_pipeline.export.files import Handed
    from cc_pipeline.lake.reading import explained

    order = "" if selection.table is None else " ORDER BY crawl, warc_filename, warc_record_offset, url"
    rows = 0
    with explained(path), path.open("w", encoding="utf-8") as stream:
        result = connection.execute(f"SELECT * FROM ({selection.sql}){order}")
        columns = [column[0] for column in result.description or []]
        if not {"url", "disposition", "parsed_as"} <= {*columns}:
            raise UserInputError("documents are made of whole rows: --query 'SELECT * FROM page_metadata WHERE …'")
        while page := result.fetchmany(_BATCH):
            for values in page:
                row = dict(zip(columns, values, strict=True))
                url = (row["url"] or "").translate(_ESCAPED)
                stream.write(f"{url}\t{metadata_json(row, compat=compat)}\n")
            rows += len(page)
    return Handed(selection.name, rows)


def _records(
    settings: Settings,
    out: Path,
    chosen: str,
    domains: Sequence[str],
    crawls: Sequence[str],
    allow_missing: bool,
    said: Said,
) -> Export:
    from cc_pipeline.delivery.hand_on import crawls_with_records, hand_on_sequencefiles, hand_on_wacz
    from cc_pipeline.export.cards import About
    from cc_pipeline.export.files import Handed, scratch_beside, whole_file, whole_folder, write_papers
    from cc_pipeline.export.provenance import gather
    from cc_pipeline.workspace.workspace import open_workspace

    targets = chosen_targets(domains)
    if not settings.home.exists():
        raise EnvironmentFault(f"{settings.home} does not exist yet", "Fetch first: cc-pipeline run … --crawl …")
    with open_workspace(settings) as workspace, voice().bars():
        chosen_crawls = crawl_ids(crawls) or crawls_with_records(workspace, targets)
        if not chosen_crawls:
            raise EnvironmentFault(
                f"this home has no captures of {', '.join(domains)}",
                f"Fetch them first: cc-pipeline run {domains[0]} --crawl …",
            )
        asked = [f"crawls: {', '.join(chosen_crawls)}"]
        about = About(f"{out.name}: records of Common Crawl", said.creator, said.url)
        provenance = gather(workspace, targets, chosen_crawls, asked)
        if chosen == "sequencefile":
            with whole_folder(out) as folder:
                ledger, told_so = hand_on_sequencefiles(workspace, targets, chosen_crawls, folder)
                handed = Handed("text and metadata", sum(ledger.crawls.values()), ledger.crawls)
                write_papers(folder, about, provenance, [handed], _in_folder(folder))
            return Export(out, _in_folder(out), _by_crawl(ledger.crawls), tuple(told_so))
        with scratch_beside(out) as scratch, whole_file(out) as path:
            wacz, ledger = hand_on_wacz(workspace, targets, chosen_crawls, path, scratch)
        lost = {name: count for name, count in ledger.outcomes.items() if name != "fetched"}
        if wacz.left_out:
            lost["left out"] = wacz.left_out
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(lost.items()))
        note = f"{ledger.planned:,} captures were planned, {wacz.records:,} are here" + (f"; {told}" if lost else "")
        handed = Handed("records", wacz.records, ledger.crawls, note=note)
        more = "## Left out\n\n" + "\n".join(f"- {one}" for one in wacz.named) if wacz.named else ""
        written = write_papers(out, about, provenance, [handed], [out], more)
    notes = (f"{note}; {wacz.pages:,} pages are listed", *(f"left out: {one}" for one in wacz.named))
    done = Export(out, written, _by_crawl(ledger.crawls), notes)
    if lost and not allow_missing:
        lacking = Incomplete(
            f"{out} lacks {sum(lost.values()):,} of {ledger.planned:,} planned captures ({told})",
            "Ask for them again: cc-pipeline run … --crawl … --refetch, then export again. Or accept it: "
            "--allow-missing",
        )
        lacking.report = done
        raise lacking
    return done


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


def _bounds(words: str) -> tuple[int, int]:
    """The least and the most words of a text like ``50..100000``; an end that is left out is the usual one. Raises
    ``UserInputError``."""
    ends, usual = words.split(".."), WORDS.split("..")
    if len(ends) != 2 or not all(not end or end.isdecimal() for end in ends):
        raise UserInputError(f"--words is {words!r}; write it like {WORDS}, 200.. or ..5000")
    least, most = (int(end or default) for end, default in zip(ends, usual, strict=True))
    return least, most


def _dataset_query(folder: Path) -> str:
    from cc_pipeline.lake.reading import quoted

    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise UserInputError(f"{folder} holds no data set; make one: cc-pipeline dataset … --out {folder}")
    return f"SELECT * FROM read_parquet([{', '.join(quoted(str(path.resolve())) for path in files)}])"


def _in_folder(out: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in out.rglob("*") if path.is_file()))


def _by_crawl(counts: Mapping[str, int]) -> Held:
    return _held(("crawl", "records"), sorted(counts.items(), reverse=True))


def _held(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> Held:
    """A name and counts."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.int64() if place else pa.string()) for place, name in enumerate(names)])
    return Held(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema))


def dataset(
    settings: Settings,
    out: Path,
    targets: Sequence[str] = (),
    crawls: Sequence[str] = (),
    *,
    languages: Sequence[str] = (),
    words: str = WORDS,
    rules: str = "gopher,c4",
    near: float = 0.8,
    keep_copies: bool = False,
    respect: str = "",
    as_of: str = "fetch",
    known_only: bool = False,
    format: str = "parquet",
    said: Said = Said(),  # frozen
) -> Export:
    """Writes the folder of a data set: published main texts (of some targets and crawls) that a recipe leaves, with a
    datasheet. The words of the recipe are the command's.

    Raises ``UserInputError`` for words that mean nothing, ``EnvironmentFault`` where nothing was published or the disk
    refuses.
    """
    from cc_pipeline.delivery.dataset import Recipe, datasheet, sieve
    from cc_pipeline.delivery.respect import note_of_unread, wishes
    from cc_pipeline.export import table_files
    from cc_pipeline.export.cards import About
    from cc_pipeline.export.files import README, scratch_beside, whole_folder, write_papers
    from cc_pipeline.export.provenance import gather
    from cc_pipeline.lake.reading import explained, open_settled
    from cc_pipeline.workspace.workspace import open_workspace

    checked_format(format, TEXTS)
    named = tuple(name.strip() for name in rules.split(",") if name.strip() not in ("", "none"))
    recipe = Recipe(
        tuple(dict.fromkeys(_language(text) for text in languages)),
        *_bounds(words),
        named,
        not keep_copies,
        near or None,
        wishes(respect),
        _as_of(as_of),
        known_only,
    )
    meant = chosen_targets(targets)
    with open_settled(settings) as connection, scratch_beside(out) as scratch:
        table_files.bound_memory(connection, scratch)
        refuse_unknown(connection, settings, meant, targets)
        slugs, ids = [target.slug for target in meant], crawl_ids(crawls)
        [pages] = table_files.select_tables(connection, ["page_text"], slugs, ids)
        asked = [f"crawls: {', '.join(crawls)}"] if crawls else []
        with explained(settings.published_path):
            sieved = sieve(connection, pages.sql, recipe, scratch)
            unread = note_of_unread(connection, recipe.respect)
        sheet, told = datasheet(sieved, recipe)
        with open_workspace(settings) as workspace:
            provenance = gather(workspace, meant, ids or sieved.crawls, asked)
        provenance = replace(provenance, published=table_files.published_at(connection)).with_pages(sieved.by_domain)
        done = tuple(f"{step.name}: {step.wanted}; took {step.took:,} of {step.came:,}" for step in sieved.steps)
        spoken = tuple(name for name in sieved.by_language if name)
        about = About(f"{out.name}: main texts of Common Crawl", said.creator, said.url, spoken, done)
        with whole_folder(out) as folder:
            data = folder / f"texts{table_files.SUFFIX[format]}"
            handed = table_files.write_table(connection, table_files.Selection("texts", sieved.sql), format, data)
            with disk_trouble(folder):
                (folder / "datasheet.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
            write_papers(folder, about, provenance, [handed], [data, folder / "datasheet.json"], sheet, {"sieve": told})
    if unread is not None:
        voice().note(unread)
    if not sieved.left:
        voice().note(
            "no page is left; the datasheet says which filter took them"
            if sieved.pages
            else "there was no page to begin with: nothing of these targets and crawls was parsed"
        )
    took = [*((step.name, step.came, step.took) for step in sieved.steps if step.took), ("left", sieved.left, None)]
    words = f"{sieved.left:,} of {sieved.pages:,} pages, {sieved.words:,} words: {out}/{README} is the datasheet"
    return Export(out, _in_folder(out), _held(("filter", "came", "taken"), took), (words,))


def _as_of(text: str) -> Literal["fetch", "latest"]:
    if text == "fetch":
        return "fetch"
    if text == "latest":
        return "latest"
    raise UserInputError(f"--as-of is fetch or latest, not {text!r}")


def _language(text: str) -> str:
    from cc_pipeline.documents.html.text import ISO_639_3

    wanted = text.strip()
    found = ISO_639_3.get(wanted, wanted)
    if found not in ISO_639_3.values():
        raise UserInputError(f"{text!r} is no language that is detected; write en, de, zh … or eng, deu, zho …")
    return found


def reports(
    settings: Settings, targets: Sequence[str], out: Path | None = None, between: tuple[str, str] | None = None
) -> Iterator[Path]:
    """Writes a page about each target (to ``out``, or into the home), and gives their paths as they are written.
    ``between`` are the two crawls whose changes it tells in words, by default the last two. Raises ``UserInputError``
    for a target that was not run here, and for one ``out`` of several; ``EnvironmentFault`` where nothing was
    published."""
    from cc_pipeline.commoncrawl.target_text import slug_meant
    from cc_pipeline.publish.report import report_path, write_report

    meant = {slug_meant(text): text for text in lines_meant(targets)}
    if out is not None and len(meant) > 1:
        raise UserInputError("--out names one file, and there are several targets; leave it out, or name one target")
    for slug, text in meant.items():
        path = out or report_path(settings, slug)
        write_report(settings, slug, path, named=text, between=between)
        yield path
