"""``replay``: fetches quarantined and missing records again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from cc_pipeline.cli import options
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.cli.question import open_question
from cc_pipeline.cli.running import all_runs, step
from cc_pipeline.errors import Incomplete

if TYPE_CHECKING:
    from cc_pipeline.extraction.replay import Replay


def replay(
    crawl: options.Crawls,
    domain: options.Targets,
    wait: options.Wait = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Fetch quarantined and missing records again, then parse and publish those that were fetched.

    Ends with status 3 when the source gives none of them, or too few.

    To see why records are in quarantine: cc-pipeline sql "SELECT reason, count(*) FROM quarantine GROUP BY ALL".

    [bold]Examples[/]

      cc-pipeline replay --crawl CC-MAIN-2024-22 --domain example.com
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.extraction.replay import replay_records

    rows: list[Sequence[object]] = []
    replays: list[Replay] = []
    with (
        open_question(domain, crawl, source=source, home=home, wait=wait) as question,
        Launcher(question.workspace) as launcher,
        progress_bars(),
    ):
        slugs = [target.slug for target in question.targets]
        launcher.add_targets(question.targets)
        for one in question.crawls:
            done = replay_records(question.workspace, one, slugs)
            replays.append(done)
            for slug, figures in done.after.items():
                launcher.record_outside_run("records", one, slug, figures)
                before = done.before[slug]
                rows.append((one, slug, *(text for name in figures for text in (before[name], figures[name]))))
            if done.again:
                step(f"pages {one}", partial(all_runs, launcher.parse(one, done.again)))
        step("cc.duckdb", launcher.publish)
    columns = ["crawl", "target", "fetched", "now", "quarantined", "now", "missing", "now", "other payload", "now"]
    write_rows("what the replay changed", columns, rows)
    if any(row[5] or row[7] or row[9] for row in rows):
        query = "SELECT url, outcome, reason, settled FROM ledger WHERE outcome <> 'fetched'"
        notice(f'some records are still not fetched; to see why: cc-pipeline sql "{query}"')
    for done in replays:
        if done.trouble is not None:
            raise done.trouble
    if any(done.again for done in replays) and not any(done.recovered for done in replays):
        raise Incomplete(
            "none of the records that were missing, in quarantine or other than indexed came back as indexed",
            "The source has them as before. What it says of each is in the view ledger.",
        )
