"""A home in Python: ``cc_pipeline.open``.

A method has the name, the words, the errors and the limits of its command. Nothing heavy is loaded before it is needed:
``lookup`` and ``get`` import no Dagster and need no home.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cc_pipeline.api.facade import public
from cc_pipeline.api.reporter import Reporter, StderrReporter, use_reporter
from cc_pipeline.errors import Incomplete, UserInputError
from cc_pipeline.progress import format_count
from cc_pipeline.settings import Settings, load_settings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.api.add_captures import AddedCaptures
    from cc_pipeline.api.captures import Captures, Page
    from cc_pipeline.api.export import Export
    from cc_pipeline.api.rows import Answer, MemoryRows
    from cc_pipeline.api.target_runs import Part
    from cc_pipeline.export.table_files import Selection

Crawls = str | int | Sequence[str | int]
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True, repr=False)
class RunReport:
    """The result of a run. ``rows`` has one row for each crawl and target: ``change`` (new, updated, same, not run),
    ``captures``, ``new`` ones, ``pending`` (will be fetched again) and ``lost`` ones. ``notes`` are the lines of the
    command. ``forgotten`` are new targets without any capture, which are not kept."""

    rows: MemoryRows
    notes: tuple[str, ...]
    forgotten: tuple[str, ...]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self.rows.text_under(self._caption)

    @property
    def _caption(self) -> str:
        rows = list(self.rows)
        captures, *other_counts = (sum(row[name] for row in rows) for name in ("captures", "new", "pending", "lost"))
        counts = ", ".join(
            f"{count:,} {name}" for count, name in zip(other_counts, ("new", "pending", "lost"), strict=True)
        )
        forgotten = [
            f"no crawl of this run has captures of {target}, so this home does not keep the target"
            for target in self.forgotten
        ]
        return "\n".join((f"{format_count(captures, 'capture')}: {counts}", *self.notes, *forgotten))


class Home:
    """A folder of captures, records and pages, and the source they come from.

    ``settings`` come from the environment and the arguments of :func:`cc_pipeline.open`. ``reporter`` receives the
    messages of the work. Functions in the ``api`` module of an extension take a home.
    """

    def __init__(self, home: str | Path | None, overrides: dict[str, Any], reporter: Reporter) -> None:
        self._home_folder = None if home is None else str(home)
        self._overrides = overrides
        self.reporter = reporter
        self.settings: Settings = load_settings(home=self._home_folder, **overrides)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: no resource is held between two calls."""

    def __repr__(self) -> str:
        return f"Home({str(self.settings.home)!r}, source={self.settings.source!r})"

    @public
    def lookup(
        self,
        target: str | Sequence[str],
        *,
        crawls: Crawls = "newest",
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Captures:
        """Returns the captures of targets in crawls, from the cheapest index. No index is asked before they are read.

        ``target`` is a target as the commands take it, ``crawls`` are ids, ``newest``, ``all``, years or ranges,
        ``where`` is a condition (docs/targets.md). Raises ``UserInputError`` for invalid arguments.
        """
        from cc_pipeline.api.captures import DEFAULT_COLUMNS, Captures
        from cc_pipeline.api.lookups import load_settings_without_home, open_lookup
        from cc_pipeline.api.user_input import read_targets
        from cc_pipeline.commoncrawl.conditions import parse_condition
        from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES

        texts = [target] if isinstance(target, str) else list(target)
        condition = parse_condition(where).text if where else ""
        wrong = [name for name in columns or () if name not in NAMED_CAPTURES.names]
        if wrong:
            raise UserInputError(
                f"{wrong[0]!r} is not a column of a capture; these are: {', '.join(NAMED_CAPTURES.names)}"
            )
        settings = load_settings_without_home(self._home_folder, **self._overrides)
        targets = read_targets(texts)

        @contextmanager
        def ask() -> Iterator[Any]:
            with (
                use_reporter(self.reporter),
                open_lookup(settings, targets, _to_texts(crawls), where=condition) as question,
            ):
                yield question

        description = f"captures of {', '.join(texts)} in {', '.join(_to_texts(crawls))}"
        description += f" where {condition}" if condition else ""
        return Captures(ask, tuple(dict.fromkeys((*DEFAULT_COLUMNS, *(columns or ())))), limit, description)

    @public
    def get(
        self,
        url: str,
        at: str | datetime | None = None,
        *,
        crawls: Crawls | None = None,
        max_crawls: int = 10,
    ) -> Page:
        """Returns one page: its newest capture, or the one nearest to ``at`` (a time as ``2019-05``, or a ``datetime``,
        naive ones in UTC). Crawls are asked one after the other, the nearest first.

        Raises ``NoSuchCapture`` if no crawl has the page.
        """
        from cc_pipeline.api.captures import Page
        from cc_pipeline.api.lookups import find_named_crawls, load_settings_without_home
        from cc_pipeline.commoncrawl.conditions import period
        from cc_pipeline.commoncrawl.crawls import measure_gap
        from cc_pipeline.commoncrawl.target_text import parse_target
        from cc_pipeline.export.capture_forms import start_parser
        from cc_pipeline.extraction.nearest_capture import find_nearest_capture
        from cc_pipeline.workspace.workspace import open_workspace

        target = parse_target(url if url.strip().lower().startswith("url:") else f"url:{url.strip()}")
        moment = _to_utc(at) if isinstance(at, datetime) else None
        span = (moment, moment) if moment else period(at) if isinstance(at, str) else None
        settings = load_settings_without_home(self._home_folder, **self._overrides)
        start_parser(None)
        with use_reporter(self.reporter), open_workspace(settings) as workspace:
            named_crawls = find_named_crawls(workspace, None if crawls is None else _to_texts(crawls))
            nearest = find_nearest_capture(workspace, target, span, crawls=named_crawls, max_crawls=max_crawls)
        page = Page(nearest, None)
        if span is not None and page.captured is not None:
            page.distance = measure_gap(span, (page.captured, page.captured))
        return page

    @public
    def run(
        self,
        targets: str | Sequence[str],
        crawls: Crawls = "newest",
        *,
        refetch: bool = False,
        yes: bool = False,
        **choices: Any,
    ) -> RunReport:
        """Extracts targets from crawls, from the index to parsed pages, and publishes ``cc.duckdb``, through Dagster.

        ``choices`` are settings (docs/settings.md), as ``subsets=("warc", "robotstxt")`` or ``index="zipnum"``.
        ``refetch`` requests lost captures again. ``yes`` agrees to a cost above the limits of the settings. A repeated
        run does the remaining work. Raises ``Incomplete`` if the source did not return everything (the rest is stored,
        and the error's ``report`` has the details), ``UserInputError`` for invalid arguments and for a cost that nobody
        agreed to.
        """
        from cc_pipeline.api.choices import confirm_choices
        from cc_pipeline.api.target_runs import run_targets
        from cc_pipeline.api.user_input import read_targets
        from cc_pipeline.defs.engines import find_engine

        limits = {"max_bytes": _NO_LIMIT, "max_requests": _NO_LIMIT} if yes else {}
        settings = load_settings(home=self._home_folder, **{**self._overrides, **limits, **choices}, refetch=refetch)
        find_engine(settings.engine).check_ready(settings)
        parts: list[Part] = []
        with use_reporter(self.reporter):
            parsed_targets = read_targets(_to_texts(targets))
            settings = confirm_choices(settings, yes=yes)
            troubles = run_targets(settings, _to_texts(crawls), parsed_targets, yes=yes, on_part=parts.append)
        report = _make_report(parts)
        for trouble in troubles:
            if isinstance(trouble, Incomplete):
                trouble.report = report
            raise trouble
        return report

    @public
    def add_captures(
        self,
        file: str | Path,
        name: str | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        extend: bool = False,
        replace: bool = False,
    ) -> AddedCaptures:
        """Makes the captures that a file lists the target ``captures:NAME``, as the command ``files captures`` does
        (``extend`` is its ``--add``). The result has rows that cannot be used in ``wrong``. Raises as the command
        does."""
        from cc_pipeline.api.add_captures import add_captures

        settings = load_settings(home=self._home_folder, **self._overrides)
        with use_reporter(self.reporter):
            return add_captures(settings, file, name, columns=columns, extend=extend, replace=replace)

    @public
    def sql(self, query: str, parameters: Sequence[object] = ()) -> Answer:
        """Returns the rows of one query on the published tables; ``?`` in it stands for ``parameters``. The query is
        sent when the rows are read. Raises ``UserInputError`` if ``parameters`` is a text instead of a list."""
        from cc_pipeline.api.rows import Answer

        if isinstance(parameters, str):
            raise UserInputError(f"parameters is one text, {parameters!r}; write a list of values: [{parameters!r}]")
        return Answer(self.settings, query, parameters)

    @public
    def tables(self) -> list[str]:
        """Returns the names of the published tables."""
        return [row["name"] for row in self.sql("SELECT name FROM (SHOW TABLES) ORDER BY name")]

    @public
    def table(
        self,
        name: str,
        targets: str | Sequence[str] = (),
        crawls: Crawls = (),
        *,
        columns: str | Sequence[str] = (),
        where: str = "",
        limit: int = 0,
    ) -> Answer:
        """Returns a published table, or ``page_html``, the decoded markup of pages, or their rows of some targets and
        crawls: ``columns``, rows that meet ``where`` (a condition in SQL), at most ``limit`` (0: all). Raises
        ``UserInputError`` for an unknown table or column, for what is no condition on a row, and for a target or crawl
        that this home does not have."""
        from cc_pipeline.api.rows import Answer
        from cc_pipeline.api.user_input import resolve_home
        from cc_pipeline.export.row_choice import RowChoice
        from cc_pipeline.export.selections import open_selections
        from cc_pipeline.lake.published_file import open_for_queries

        choice = RowChoice(_to_texts(columns), where, limit)
        with open_for_queries(self.settings) as connection:
            chosen, crawl_ids = resolve_home(connection, self.settings, _to_texts(targets), _to_texts(crawls))
            slugs = [target.slug for target in chosen]

            def open_table(connection: DuckDBPyConnection) -> AbstractContextManager[list[Selection]]:
                return open_selections(connection, self.settings, [name], slugs, crawl_ids, choice)

            with open_table(connection) as [selection]:
                return Answer(self.settings, selection.sql, prepare=open_table if selection.is_streamed else None)

    @public
    def export(
        self,
        out: str | Path,
        targets: str | Sequence[str] = (),
        crawls: Crawls = (),
        *,
        format: str | None = None,
        tables: str | Sequence[str] = (),
        query: str | None = None,
        columns: str | Sequence[str] = (),
        where: str = "",
        limit: int = 0,
        new: bool = False,
        allow_missing: bool = False,
        guard_formulas: bool = False,
        creator: str = "",
        url: str = "",
    ) -> Export:
        """Exports data of this home: a file or folder that needs neither the home nor this program, with documents on
        the origin of its rows. ``format`` (default: that of the name) and the other arguments are those of the command.

        Raises ``UserInputError`` for arguments that are invalid or contradict each other, ``EnvironmentFault`` if
        nothing was published or the disk refuses, ``Incomplete`` if records lack planned captures (the file is there,
        and the error's ``report`` is the ``Export``).
        """
        from cc_pipeline.api.export import Attribution, export

        with use_reporter(self.reporter):
            return export(
                self.settings,
                Path(out),
                _to_texts(targets),
                _to_texts(crawls),
                format=format,
                tables=_to_texts(tables),
                query=query,
                columns=_to_texts(columns),
                where=where,
                limit=limit,
                new=new,
                allow_missing=allow_missing,
                guard_formulas=guard_formulas,
                attribution=Attribution(creator, url),
            )


@public
def open_home(
    home: str | Path | None = None,
    *,
    source: str | None = None,
    quiet: bool = False,
    reporter: Reporter | None = None,
    **settings: Any,
) -> Home:
    """Opens a home. ``home`` is its folder (default: ``CC_PIPELINE_HOME``, else ``data``), ``source`` the root of a
    Common Crawl bucket (default: the source that the home remembers, else Common Crawl's), ``settings`` are others of
    docs/settings.md by name. Costs are printed on standard error unless ``quiet``; a ``reporter`` receives them
    instead.

    Raises ``UserInputError`` for a value that cannot be used.
    """
    return Home(home, {"source": source, **settings}, reporter or StderrReporter(quiet=quiet))


def _to_texts(texts: Crawls) -> list[str]:
    """Returns one or several texts as a list; a year may be a number."""
    return [str(texts)] if isinstance(texts, str | int) else [str(text) for text in texts]


def _to_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _make_report(parts: Sequence[Part]) -> RunReport:
    import pyarrow as pa

    from cc_pipeline.api.rows import MemoryRows
    from cc_pipeline.api.target_runs import PARTITION_COLUMNS, list_partitions

    kinds = (*(pa.string() for _ in range(3)), *(pa.int64() for _ in range(4)))
    schema = pa.schema([*zip(PARTITION_COLUMNS, kinds, strict=True)])
    rows = [row for part in parts for row in list_partitions(part.changes, part.targets)]
    table = pa.Table.from_pylist([dict(zip(PARTITION_COLUMNS, row, strict=True)) for row in rows], schema)
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    definitions = {target.slug: target.definition for part in parts for target in part.targets}
    forgotten = sorted({definitions[slug] for part in parts for slug in part.forgotten})
    return RunReport(MemoryRows(table), notes, tuple(forgotten))
