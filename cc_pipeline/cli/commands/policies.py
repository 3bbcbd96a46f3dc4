"""``policies``: what the hosts of targets ask of robots, by their robots.txt captures."""

from __future__ import annotations

from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.output import write_rows
from cc_pipeline.cli.run_report import say_what_was_done
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.python import meaning
from cc_pipeline.python.choices import as_the_home_has_it
from cc_pipeline.python.materializing import Part
from cc_pipeline.python.meaning import checked_format
from cc_pipeline.settings import Settings, load_settings

#: Rows of the answer, a line for each crawl and target.
_SHOWN = """
    SELECT crawl, split_part(target, '~', 1) AS target, count(*) AS captures, count(DISTINCT (scheme, host, port)) AS
        origins, count(DISTINCT content_digest) AS contents, count_if(state = 'read') AS read,
        count_if(state = 'unavailable') AS "4xx", count_if(state = 'unreachable') AS "5xx",
        count_if(state NOT IN ('read', 'unavailable', 'unreachable')) AS "not known"
    FROM lake.site_policies WHERE list_contains(?, split_part(target, '~', 1)) GROUP BY ALL ORDER BY ALL
"""


def policies(
    targets: options.Targets,
    crawl: options.MaybeCrawls = None,
    output: Annotated[str, typer.Option("--format", help="table, csv or jsonl.")] = "table",
    source: options.Source = None,
    home: options.Home = None,
    via: options.Via = None,
    allow_gaps: options.AllowGaps = False,
    wait: options.Wait = None,
    yes: options.Yes = False,
) -> None:
    """Get the robots.txt captures of targets' hosts, read them, and publish what they ask of robots.

    Fills the table site_policies: rules, Content-Signal, Content-Usage, RSL licences and Crawl-delay, with the capture
    that each was read from. Of pages and prefixes the robots.txt of their hosts are meant. A page that is captured was
    allowed to Common Crawl's own robot, CCBot; the table has what was said to others, and of uses. Then ask:

      cc-pipeline sql "FROM consent_timeline('example.com')"

    [bold]Examples[/]

      cc-pipeline policies example.com                     (in the crawls that the home has of it)

      cc-pipeline policies prefix:https://www.example.com/blog/ --crawl CC-MAIN-2024-22

      cc-pipeline policies @sites.txt -c 2023..2024
    """
    from cc_pipeline.lake.reading import open_settled
    from cc_pipeline.policies.hosts import policy_targets
    from cc_pipeline.python.materializing import read_policies

    checked_format(output)
    settings = load_settings(
        source=source,
        home=home,
        via=via,
        max_index_gaps=options.most_gaps(allow_gaps),
        max_bytes=options.at_any_price(yes),
        max_requests=options.at_any_price(yes),
        wait=options.patience(wait),
    )
    named = meaning.read_targets(targets, settings)
    settings = as_the_home_has_it(settings, yes=yes)
    crawls = crawl or _crawls_of(settings, named)

    def say(part: Part) -> None:
        say_what_was_done(part.settings, part.done, part.targets, part.forgotten)

    troubles = read_policies(settings, crawls, named, yes=yes, told=say)
    try:
        with open_settled(settings) as connection:
            found = connection.execute(_SHOWN, [[target.slug for target in policy_targets(named)]])
            columns = [column[0] for column in found.description or []]
            write_rows("robots.txt captures", columns, found.fetchall(), output)
    except EnvironmentFault:
        # nothing is published where nothing was ever found
        if not troubles:
            raise
    for trouble in troubles:
        raise trouble


def _crawls_of(settings: Settings, targets: tuple[Target, ...]) -> list[str]:
    """The crawls in which the home has captures of the targets. Raises ``UserInputError`` where there is none."""
    from cc_pipeline.lake.slice import LOCATE
    from cc_pipeline.workspace.workspace import open_workspace

    slugs = {target.slug for target in targets}
    with open_workspace(settings) as workspace:
        found = {one.crawl for one in LOCATE.here(workspace.lake) if one.whole.target in slugs}
    if not found:
        raise UserInputError("no crawl was run for these targets in this home; name crawls: --crawl newest")
    return sorted(found, reverse=True)


COMMANDS = {"policies": Command(policies, FEATURES, 40)}
