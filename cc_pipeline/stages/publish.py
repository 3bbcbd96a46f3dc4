"""Publishing: the lake as it stands now, as one DuckDB snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from cc_pipeline import __version__
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.parts import with_subset
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction.overlap import sharing
from cc_pipeline.extraction.slice import PARSE, READ_FILES, Slice
from cc_pipeline.home import locked
from cc_pipeline.keys import SLICE
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.lake.pins import pin, unpin
from cc_pipeline.lake.reading import s3_place
from cc_pipeline.lake.snapshot import Copying, Publication, publish
from cc_pipeline.lake.streaming import stream_table
from cc_pipeline.stages.keeping.debris import clear_debris
from cc_pipeline.stages.questions.macros import MACROS
from cc_pipeline.stages.questions.notes import note_of
from cc_pipeline.stages.source_files import registered
from cc_pipeline.stages.tables import TABLES
from cc_pipeline.stages.views import Sharing, publication_views
from cc_pipeline.stages.workspace import Workspace

#: Tables that no published view shows and that a copy leaves out: they are for looking captures up, and large.
NOT_COPIED = ("index_manifest", "column_chunks")


def publish_warehouse(workspace: Workspace) -> Publication:
    """Builds ``cc.duckdb`` from pinned versions of all tables and swaps it in; one publisher at a time on a host.

    By the setting ``publish`` it holds views over the lake's files, or their rows. Raises ``EnvironmentFault`` where
    it cannot be built; the file of before then stays. Raises ``UserInputError`` in a home that publishes nothing.
    """
    settings = workspace.settings
    if settings.publish == "none":
        raise UserInputError(
            "this home publishes no cc.duckdb: CC_PIPELINE_PUBLISH is none. Publish on the host that does, or set it "
            "to views or copy here"
        )
    copied = settings.publish == "copy"
    with locked(settings.home / "publish.lock"):
        clear_debris(settings)
        lake = workspace.lake
        pinned = [lake.pin(spec.name) for spec in TABLES if not copied or spec.name not in NOT_COPIED]
        # a stage may commit while this pins one table after the other, so judge by the pinned versions
        held_back = interrupted_slices(workspace, {table.spec.name: table.version for table in pinned})
        remote = s3_place(settings) if any(table.files for table in pinned) else None
        rows = None if remote is None else lambda table: stream_table(lake, table)
        shared = settings.lake_is_apart
        if shared and not copied:
            pin(workspace.place, settings.home, pinned, and_before=True)
        published = publish(
            settings.published_path,
            pinned,
            publication_views(
                [(slice_.crawl, slice_.target) for slice_ in held_back],
                Sharing(_sharing(workspace), tuple(sorted(_read_whole(workspace)))),
            ),
            macros=MACROS,
            notes=note_of,
            s3=remote,
            copying=Copying(workspace.scratch / "publish", rows) if copied else None,
            made_as=made_as(workspace),
        )
        if shared and copied:
            unpin(workspace.place, settings.home)
        elif shared:
            pin(workspace.place, settings.home, pinned)
        return published


def made_as(workspace: Workspace) -> str:
    """A digest of how :func:`publish_warehouse` makes the file, whatever is in the tables: by which version of this
    program and which settings, and of tables that lie where."""
    settings = workspace.settings
    views = publication_views([], Sharing((), ()))
    return input_digest(
        {
            "program": __version__,
            "publish": settings.publish,
            "lake": [str(workspace.lake.root), settings.lake_endpoint],
            "views": [[view.name, view.comment, view.sql if isinstance(view.sql, str) else ""] for view in views],
            "macros": repr(MACROS),
        }
    )


def interrupted_slices(workspace: Workspace, versions: Mapping[str, int] | None = None) -> list[Slice]:
    """Slices whose page tables are not from one run, as of ``versions`` by table (default: now).

    A run that is killed between two commits leaves such slices. Their rows are not published until it has run again.
    """
    at = versions or {}
    parsed = sorted({slice_ for table in PARSE.tables for slice_ in _parsed(workspace, table, at.get(table))})
    files = [Slice(file.crawl, slug) for slug, file in registered(workspace).items()]
    return PARSE.interrupted(workspace.lake, parsed, at) + READ_FILES.interrupted(workspace.lake, files, at)


def _sharing(workspace: Workspace) -> tuple[str, ...]:
    """The slices of targets that can share captures with others, in whatever subset."""
    return tuple(sorted(with_subset(slug, subset) for slug in sharing(workspace) for subset in SUBSETS))


def _read_whole(workspace: Workspace) -> set[str]:
    """Crawls of which files were read whole: their rows may be of any page."""
    return {file.crawl for file in registered(workspace).values() if file.crawl}


def _parsed(workspace: Workspace, table: str, version: int | None) -> list[Slice]:
    """Slices of a page table that were ever committed, by the names of their digests."""
    names = workspace.lake.digest_names(table, version)
    if names is not None:
        return [slice_ for slice_ in map(PARSE.slice_of, names) if slice_ is not None]
    # the log does not tell: the rows do, and the captures of what was never parsed
    rows = [workspace.lake.read(one, columns=SLICE).group_by(SLICE).aggregate([]) for one in ("captures", table)]
    return [Slice(row["crawl"], row["target"]) for one in rows for row in one.to_pylist()]
