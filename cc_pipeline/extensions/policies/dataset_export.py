"""Writes the folder of a data set, as the command ``dataset`` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from cc_pipeline.advice import option
from cc_pipeline.api.export import Export, make_count_rows
from cc_pipeline.api.reporter import get_reporter
from cc_pipeline.api.user_input import check_format, resolve_home
from cc_pipeline.documents.html.text import ISO_639_3
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.export import table_files
from cc_pipeline.export.cards import DatasetDescription
from cc_pipeline.export.files import (
    README,
    files_in,
    open_scratch_folder,
    refuse_empty,
    whole_folder,
    write_export_documents,
)
from cc_pipeline.export.provenance import gather_provenance
from cc_pipeline.export.stored_state import read_published_state
from cc_pipeline.extensions.policies.card import card_sections
from cc_pipeline.extensions.policies.dataset import Recipe, build_datasheet, filter_pages
from cc_pipeline.extensions.policies.usage_preferences import parse_preferences, unread_robots_note
from cc_pipeline.lake.published_file import open_home_publication, translate_errors
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import open_workspace

#: Formats of a data set.
TEXTS: Final = ("parquet", "jsonl")
#: Words of a main text: at least, at most.
WORDS: Final = "50..100000"


def make_dataset(
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
    creator: str = "",
    url: str = "",
) -> Export:
    """Writes the folder of a data set: the published main texts (of some targets and crawls) that pass a recipe, with a
    datasheet. The arguments of the recipe are those of the command.

    Raises ``UserInputError`` for invalid arguments, ``EnvironmentFault`` if nothing was published or the disk fails.
    """
    check_format(format, TEXTS)
    rule_names = tuple(name.strip() for name in rules.split(",") if name.strip() not in ("", "none"))
    recipe = Recipe(
        tuple(dict.fromkeys(_language(text) for text in languages)),
        *_bounds(words),
        rule_names,
        not keep_copies,
        near or None,
        parse_preferences(respect),
        _as_of(as_of),
        known_only,
    )
    with open_home_publication(settings) as connection, open_scratch_folder(out) as scratch:
        table_files.bound_memory(connection, scratch)
        selected_targets, ids = resolve_home(connection, settings, targets, crawls)
        slugs = [target.slug for target in selected_targets]
        [pages] = table_files.select_tables(connection, ["page_text"], slugs, ids)
        query_notes = [f"crawls: {', '.join(crawls)}"] if crawls else []
        with translate_errors(settings.published_path):
            filtered = filter_pages(connection, pages.sql, recipe, scratch)
            unread = unread_robots_note(connection, recipe.respect)
        if not filtered.kept_pages:
            refuse_empty(out)
        sheet, datasheet_document = build_datasheet(filtered, recipe)
        with open_workspace(settings) as workspace:
            state = read_published_state(connection, selected_targets, ids)
            provenance = gather_provenance(workspace, state, ids or filtered.crawls, query_notes)
        languages_found = tuple(name for name in filtered.by_language if name)
        description = DatasetDescription(f"{out.name}: main texts of Common Crawl", creator, url, languages_found)
        with whole_folder(out) as folder:
            data = folder / f"texts{table_files.SUFFIX[format]}"
            written_table = table_files.write_table(
                connection, table_files.Selection("texts", filtered.sql), format, data
            )
            with disk_trouble(folder):
                (folder / "datasheet.json").write_text(
                    json.dumps(datasheet_document, indent=1, ensure_ascii=False) + "\n", "utf-8"
                )
            sheet = f"{sheet}\n{card_sections(recipe)}"
            write_export_documents(
                folder,
                description,
                provenance,
                [written_table],
                [data, folder / "datasheet.json"],
                sheet,
                {"sieve": datasheet_document},
            )
    if unread is not None:
        get_reporter().note(unread)
    if not filtered.kept_pages:
        get_reporter().note(
            "no page is left; the datasheet counts the pages that each filter removed"
            if filtered.pages
            else "there are no pages to filter: nothing of these targets and crawls was parsed"
        )
    removed = [
        *((step.name, step.page_count, step.removed) for step in filtered.steps if step.removed),
        ("left", filtered.kept_pages, None),
    ]
    words = (
        f"{filtered.kept_pages:,} of {filtered.pages:,} pages, {format_count(filtered.words, 'word')}: "
        f"{out}/{README} is the datasheet"
    )
    return Export(out, files_in(out), make_count_rows(("filter", "came", "removed"), removed), (words,))


def _as_of(text: str) -> Literal["fetch", "latest"]:
    if text == "fetch":
        return "fetch"
    if text == "latest":
        return "latest"
    raise UserInputError(f"{option(as_of=None)} is fetch or latest, not {text!r}")


def _language(text: str) -> str:
    code = text.strip()
    iso_code = ISO_639_3.get(code, code)
    if iso_code not in ISO_639_3.values():
        raise UserInputError(f"{text!r} is not a language that is detected; write en, de, zh … or eng, deu, zho …")
    return iso_code


def _bounds(words: str) -> tuple[int, int]:
    """The minimum and maximum number of words of a text like ``50..100000``; an omitted end has its default. Raises
    ``UserInputError``.
    """
    ends, usual = words.split(".."), WORDS.split("..")
    if len(ends) != 2 or not all(not end or end.isdecimal() for end in ends):
        raise UserInputError(f"{option(words=None)} is {words!r}; write it like {WORDS}, 200.. or ..5000")
    min_words, max_words = (int(end or default) for end, default in zip(ends, usual, strict=True))
    return min_words, max_words
