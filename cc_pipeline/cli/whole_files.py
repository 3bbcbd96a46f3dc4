"""``add-source``: files that are read whole, into the same tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.output import console, progress_bars, show_table
from cc_pipeline.cli.running import step
from cc_pipeline.settings import Settings, load_settings


def add_source(
    files: Annotated[list[str], typer.Argument(help="Local files, or keys in the source.", show_default=False)],
    kind: Annotated[str, typer.Option("--kind", help="sequencefile, wat or wet.", show_default=False)],
    crawl: Annotated[
        str | None,
        typer.Option("--crawl", "-c", help="The crawl the files belong to, if they do not say so.", show_default=False),
    ] = None,
    register_only: Annotated[
        bool, typer.Option("--register-only", help="Only make them partitions; read them later from the UI.")
    ] = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Read whole SequenceFiles of 2012, WAT or WET files, and publish cc.duckdb with their pages.

    [bold]Examples[/]

      cc-pipeline add-source metadata-00000 textData-00000 --kind sequencefile

      cc-pipeline add-source crawl-data/CC-MAIN-2024-22/segments/…/wat/….warc.wat.gz --kind wat

      cc-pipeline add-source texts.warc.wet.gz --kind wet --crawl CC-MAIN-2024-22
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.stages.whole_files import register
    from cc_pipeline.stages.workspace import open_workspace
    from cc_pipeline.wholefiles.files import identify

    settings = load_settings(source=source, home=home)
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
                step("files", lambda: launcher.read_source_files(slugs), console)
                step("cc.duckdb", launcher.publish, console)
    rows = [(_name(file.location), *_rows(settings, file.slug)) for file in found]
    show_table("rows", ["file", "metadata", "texts", "links", "feed items", "not readable"], rows)
    if any(row[-1] for row in rows):
        console.print('to see what could not be read: cc-pipeline sql "SELECT * FROM source_faults"', highlight=False)


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _rows(settings: Settings, slug: str) -> list[int]:
    from cc_pipeline.lake.moving import open_settled

    tables = ("page_metadata", "page_text", "page_links", "feed_items", "source_faults")
    with open_settled(settings) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM lake.{table} WHERE target = ?", [slug]).fetchone()
            for table in tables
        ]
    return [row[0] if row else 0 for row in counts]
