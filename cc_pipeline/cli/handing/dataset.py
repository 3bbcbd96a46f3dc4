"""``dataset``: main texts of some languages, filtered by published rules, without copies, with a datasheet."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.handing.handed import chosen_targets, crawl_ids, published, refuse_unknown, told_source
from cc_pipeline.cli.output import checked_format, notice, warn, write_rows
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.settings import load_settings

_FORMATS = ("parquet", "jsonl")


def dataset(
    out: Annotated[Path, typer.Option("--out", "-o", show_default=False, help="The folder to write.")],
    domain: Annotated[
        list[str] | None,
        typer.Option("--domain", "-d", show_default=False, help="Pages of these targets (default: all there are)."),
    ] = None,
    crawl: Annotated[
        list[str] | None,
        typer.Option("--crawl", "-c", show_default=False, help="Pages of these crawls (default: all)."),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option("--language", "-l", show_default=False, help="en, de, eng …; may be repeated (default: all)."),
    ] = None,
    min_words: Annotated[int, typer.Option("--min-words", min=0, help="Words of a main text at least.")] = 50,
    max_words: Annotated[int, typer.Option("--max-words", min=1, help="Words of a main text at most.")] = 100_000,
    rules: Annotated[str, typer.Option("--rules", help="gopher, c4, or both with a comma; none.")] = "gopher,c4",
    near: Annotated[
        float, typer.Option("--near", help="Share of five-word runs in common of near copies; 0 keeps them.")
    ] = 0.8,
    keep_copies: Annotated[bool, typer.Option("--keep-copies", help="Keep exact copies too.")] = False,
    output: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    home: options.Home = None,
) -> None:
    """Make a data set of published pages' main texts: languages, length, the rules of Gopher and C4, no copies.

    The folder has the texts with where each came from, and a datasheet of what each filter took, for people and as
    JSON. It appears whole or not at all.

    [bold]Examples[/]

      cc-pipeline dataset -d set:press --language en --language de --out corpus

      cc-pipeline dataset -l fra --min-words 200 --rules gopher --near 0.7 --format jsonl --out francais
    """
    from cc_pipeline.deliveries import tables as handing
    from cc_pipeline.deliveries.dataset import Recipe, datasheet, sieve
    from cc_pipeline.deliveries.whole import README, Origin, scratch_beside, whole_folder, write_readme

    checked_format(output, _FORMATS)
    named = tuple(name.strip() for name in rules.split(",") if name.strip() not in ("", "none"))
    recipe = Recipe(
        tuple(dict.fromkeys(_language(text) for text in language or [])),
        min_words,
        max_words,
        named,
        not keep_copies,
        near or None,
    )
    settings = load_settings(home=home)
    targets = chosen_targets(domain or [])
    with published(settings) as connection, scratch_beside(out) as scratch:
        handing.bound_memory(connection, scratch)
        slugs = [target.slug for target in targets]
        refuse_unknown(connection, settings, targets)
        [pages] = handing.select_tables(connection, ["page_text"], slugs, crawl_ids(crawl or []))
        asked = [f"targets: {', '.join(domain)}"] if domain else []
        asked += [f"crawls: {', '.join(crawl)}"] if crawl else []
        asked.append(f"recipe: {recipe}")
        sieved = sieve(connection, pages.sql, recipe, scratch)
        versions, when = handing.publication(connection)
        source = told_source(settings)
        origin = Origin(str(settings.home), source, asked, versions, when if isinstance(when, datetime) else None)
        about = [("home", origin.home), ("source", source or ""), *(("asked", one) for one in asked)]
        about += [(f"version of {name}", str(version)) for name, version in sorted(versions.items())]
        sheet, told = datasheet(sieved, recipe, about)
        with whole_folder(out) as folder:
            data = folder / f"texts{handing.SUFFIX[output]}"
            handed = handing.write_table(connection, handing.Selection("texts", sieved.sql), output, data)
            with disk_trouble(folder):
                (folder / "datasheet.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", "utf-8")
            files = [data, folder / "datasheet.json"]
            title = f"{out.name}: main texts of Common Crawl"
            write_readme(folder / README, title, origin, [handed], files, sheet, root=folder)
    write_rows(
        "what each filter took",
        ["filter", "came", "taken"],
        [*((step.name, step.came, step.took) for step in sieved.steps if step.took), ("left", sieved.left, None)],
    )
    notice(f"{sieved.left:,} of {sieved.pages:,} pages, {sieved.words:,} words: {out}/{README} is the datasheet")
    if not sieved.left:
        warn(
            "no page is left; the datasheet says which filter took them"
            if sieved.pages
            else "there was no page to begin with: nothing of these targets and crawls was parsed"
        )


def _language(text: str) -> str:
    from cc_pipeline.documents.html.text import ISO_639_3

    wanted = text.strip()
    found = ISO_639_3.get(wanted, wanted)
    if found not in ISO_639_3.values():
        raise UserInputError(f"{text!r} is no language that is detected; write en, de, zh … or eng, deu, zho …")
    return found
