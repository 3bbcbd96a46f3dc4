"""``add-source``: files that are read whole into the same tables, and archive files that become a collection."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.commands.catalog import show_coverage
from cc_pipeline.cli.output import console, progress_bars, show_table
from cc_pipeline.python.running import agreed_builds, build_indexes, despite_gaps, say_damage, step
from cc_pipeline.settings import Settings, claim_home, load_settings


def add_source(
    files: Annotated[list[str], typer.Argument(help="Local files, or keys in the source; of kind warc addresses too.")],
    kind: Annotated[str, typer.Option("--kind", help="sequencefile, wat, wet, or warc (ARC too).")],
    crawl: Annotated[
        str | None,
        typer.Option(
            "--crawl",
            "-c",
            help="The crawl the files belong to, if they do not say so; of kind warc the collection they are added to.",
        ),
    ] = None,
    register_only: Annotated[
        bool, typer.Option("--register-only", help="Only write them down; read or index them later from the UI.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Of kind warc: agree to a price without being asked.")] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Read whole SequenceFiles of 2012, WAT or WET files, and publish cc.duckdb with their pages.

    Of WARC and ARC files an index is built instead. They become a collection that every command takes as a crawl, and
    records are fetched from where the files lie.

    [bold]Examples[/]

      cc-pipeline add-source metadata-00000 textData-00000 --kind sequencefile

      cc-pipeline add-source crawl-data/CC-MAIN-2024-22/segments/…/wat/….warc.wat.gz --kind wat

      cc-pipeline add-source texts.warc.wet.gz --kind wet --crawl CC-MAIN-2024-22

      cc-pipeline add-source *.warc.gz https://example.org/more.warc.gz --kind warc --crawl press

      cc-pipeline run --crawl LOCAL-press --domain example.com      (the pages of a site in them)
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.pagefiles.files import identify
    from cc_pipeline.pagefiles.stage import register
    from cc_pipeline.workspace.source_files import ARCHIVE
    from cc_pipeline.workspace.workspace import open_workspace

    settings = load_settings(source=source, home=home)
    if kind == ARCHIVE:
        _add_archives(settings, files, crawl, register_only, yes)
        return
    with open_workspace(settings) as workspace:
        found = [identify(workspace.transport, named, kind, crawl) for named in files]
        new = register(workspace, found)
        slugs = list(dict.fromkeys(file.slug for file in found))
        show_table(
            "files read whole",
            ["file", "crawl", "partition key", ""],
            [(_name(file.location), file.crawl, file.slug, "new" if file in new else "known") for file in found],
        )
        with Launcher(workspace) as launcher:
            if register_only:
                launcher.add_source_files(slugs)
                return
            with progress_bars():
                step("files", lambda: launcher.read_source_files(slugs), aside=False)
                step("cc.duckdb", launcher.publish, aside=False)
    rows = [(_name(file.location), *_rows(settings, file.slug)) for file in found]
    show_table("rows", ["file", "metadata", "texts", "links", "feed items", "not readable"], rows)
    if any(row[-1] for row in rows):
        console.print('to see what could not be read: cc-pipeline sql "SELECT * FROM source_faults"')


def _add_archives(settings: Settings, files: list[str], named: str | None, register_only: bool, yes: bool) -> None:
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.indexing.archives import collection_id, register_archives
    from cc_pipeline.workspace.workspace import open_workspace

    crawl = collection_id(named)
    claim_home(settings)
    with open_workspace(settings) as workspace:
        added = register_archives(workspace, files, crawl)
        show_table("archive files", ["file", "collection"], [(_name(file.location), crawl) for file in added])
        if register_only:
            return
        to_build = agreed_builds(workspace, [crawl], yes)
        with Launcher(workspace) as launcher, progress_bars():
            build_indexes(launcher, to_build, aside=False)
            despite_gaps(lambda: step("index", lambda: launcher.harvest_what_is_new([crawl]), aside=False))
        say_damage(workspace, [crawl])
    show_coverage(settings, [crawl])
    console.print(f"the pages of a site in them: cc-pipeline run --crawl {crawl} --domain …")


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _rows(settings: Settings, slug: str) -> list[int]:
    from cc_pipeline.lake.reading import open_settled

    tables = ("page_metadata", "page_text", "page_links", "feed_items", "source_faults")
    with open_settled(settings) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM lake.{table} WHERE target = ?", [slug]).fetchone()
            for table in tables
        ]
    return [row[0] if row else 0 for row in counts]
