"""The command ``policies`` reads the robots.txt captures of targets' hosts. The command ``dataset`` exports main texts
filtered by published rules, with a datasheet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.api import user_input
from cc_pipeline.api.choices import confirm_choices
from cc_pipeline.api.target_runs import Part
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import row_format, show_export, write_rows
from cc_pipeline.cli.run_report import print_summary
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import Settings

_SUMMARY_COLUMNS = ("crawl", "target", "captures", "origins", "contents", "read", "4xx", "5xx", "not known")
#: The summary that the command prints, a row for each crawl and target.
_SUMMARY_SQL = """
    SELECT crawl, split_part(target, '~', 1) AS target, count(*) AS captures, count(DISTINCT (scheme, host, port)) AS
        origins, count(DISTINCT content_digest) AS contents, count_if(state = 'read') AS read,
        count_if(state = 'unavailable') AS "4xx", count_if(state = 'unreachable') AS "5xx",
        count_if(state NOT IN ('read', 'unavailable', 'unreachable')) AS "not known"
    FROM lake.site_policies WHERE list_contains(?, split_part(target, '~', 1)) GROUP BY ALL ORDER BY ALL
"""


def policies(
    settings: Settings,
    targets: options.Targets,
    crawl: options.MaybeCrawls = None,
    yes: bool = False,
) -> None:
    """Fetch and read the robots.txt captures of targets' hosts, and publish their rules for robots.

    Fills the table site_policies: rules, Content-Signal, Content-Usage, RSL licences and Crawl-delay, with the capture
    that each was read from. For pages and prefixes, the robots.txt of their hosts is read. Common Crawl's own robot,
    CCBot, was allowed to fetch every captured page; the table has the rules for other robots and for uses. Then query:

      cc-pipeline sql "FROM consent_timeline('example.com')"

    [bold]Examples[/]

      cc-pipeline policies example.com          (in the crawls that are here)

      cc-pipeline policies prefix:https://www.example.com/blog/ -c CC-MAIN-2024-22

      cc-pipeline policies @sites.txt -c 2023..2024
    """
    from cc_pipeline.extensions.policies.hosts import policy_targets
    from cc_pipeline.extensions.policies.robots_fetch import read_policies
    from cc_pipeline.lake.published_file import open_home_publication

    requested_targets = user_input.read_targets(targets)
    settings = confirm_choices(settings, yes=yes)
    crawls = crawl or _crawls_of(settings, requested_targets)

    def print_part(part: Part) -> None:
        if row_format() == "table":  # a program reads the rows of the answer alone
            print_summary([part])

    faults = read_policies(settings, crawls, requested_targets, yes=yes, on_part=print_part)
    try:
        with open_home_publication(settings) as connection:
            rows = connection.execute(_SUMMARY_SQL, [[target.slug for target in policy_targets(requested_targets)]])
            write_rows("robots.txt captures", _SUMMARY_COLUMNS, rows.fetchall())
    except EnvironmentFault:
        # Nothing is published if nothing was ever found.
        if not faults:
            raise
    for fault in faults:
        raise fault


def _crawls_of(settings: Settings, targets: tuple[Target, ...]) -> list[str]:
    """The crawls in which the home has captures of the targets. Raises ``UserInputError`` if there is none."""
    from cc_pipeline.lake.slice import LOCATE
    from cc_pipeline.lake.slices import list_slices
    from cc_pipeline.workspace.workspace import open_workspace

    with open_workspace(settings) as workspace:
        parts = workspace.rows_of([target.slug for target in targets])
        where = {"target": [part for slugs in parts.values() for part in slugs]}
        located_crawls = {slice_.crawl for slice_ in list_slices(workspace.lake, LOCATE, where)}
    if not located_crawls:
        raise UserInputError("this home has no captures of these targets; name crawls: --crawl newest")
    return sorted(located_crawls, reverse=True)


def dataset(
    settings: Settings,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET…", help="Only pages of these targets (default: all).")
    ] = None,
    crawl: options.MaybeCrawls = None,
    language: Annotated[
        list[str] | None, typer.Option("--language", "-l", help="en, de, eng …; may be repeated (default: all).")
    ] = None,
    words: Annotated[
        str,
        typer.Option("--words", metavar="MIN..MAX", help="Minimum and maximum words of a main text, as in 50..100000."),
    ] = "50..100000",
    rules: Annotated[
        str,
        typer.Option("--rules", help="Sets of rules, comma-separated: gopher, fineweb, c4, c4-tfds; or none."),
    ] = "gopher,c4",
    near: Annotated[
        float,
        typer.Option(
            "--near", help="Share of common five-word runs from which pages are near copies; 0 keeps near copies."
        ),
    ] = 0.8,
    keep_copies: Annotated[bool, typer.Option("--keep-copies", help="Also keep exact copies.")] = False,
    respect: Annotated[
        str,
        typer.Option(
            "--respect",
            help="Leave out pages that disallow any of these: tdm, noai, ai-train, ai-input, search, gptbot …",
        ),
    ] = "",
    as_of: Annotated[
        str, typer.Option("--as-of", help="Time of the preferences: fetch, or latest (the newest capture).")
    ] = "fetch",
    known_only: Annotated[
        bool, typer.Option("--known-only", help="With --respect: also leave out pages without known preferences.")
    ] = False,
    output: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    creator: options.Creator = "",
    url: options.Address = "",
) -> None:
    """Make a data set of published main texts, filtered by language, length and rules of Gopher and C4, without copies.

    The folder has the texts with their origin, a datasheet with the pages that each filter removed, the outcome of each
    target (targets.csv), a Croissant document, and a README that is a card for Hugging Face. A failed command leaves no
    folder.

    --respect reads robots.txt (fetched by cc-pipeline policies), headers and pages. With a robot's name it leaves out
    pages that this robot may not fetch. Common Crawl's own robot, CCBot, was allowed to fetch every captured page.
    Pages without known preferences are kept and counted, unless --known-only.

    [bold]Examples[/]

      cc-pipeline dataset set:press --language en --language de --out corpus

      cc-pipeline dataset set:press --respect tdm,noai --as-of latest --out corpus

      cc-pipeline dataset -l fra --words 200.. --near 0.7 --format jsonl --out fra
    """
    from cc_pipeline.extensions.policies.dataset_export import make_dataset

    export = make_dataset(
        settings,
        out,
        targets or (),
        crawl or (),
        languages=language or (),
        words=words,
        rules=rules,
        near=near,
        keep_copies=keep_copies,
        respect=respect,
        as_of=as_of,
        known_only=known_only,
        format=output,
        creator=creator,
        url=url,
    )
    show_export("pages that each filter removed", export)


_OPTIONS = (options.ALLOW_GAPS, options.WAIT, options.YES, *options.REMOTE)
COMMANDS = {
    "policies": Command(policies, FEATURES, 40, _OPTIONS, _SUMMARY_COLUMNS),
    "dataset": Command(dataset, FEATURES, 50, options.LOCAL),
}
