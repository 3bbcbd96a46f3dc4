"""``copy``: copies the records of domains to a bucket or folder of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.addresses import scheme_of, shown
from cc_pipeline.cli import options
from cc_pipeline.cli.output import human_bytes, notice, progress_bars, warn, write_rows
from cc_pipeline.cli.question import Question, has_gaps, needs_harvest, open_question
from cc_pipeline.cli.running import all_runs, despite_gaps, step
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, normalise_root

if TYPE_CHECKING:
    from cc_pipeline.records.copying import CopyReport
    from cc_pipeline.transport.client import Transport

#: Uploads at the same time, unless ``--parallel`` says otherwise.
_UPLOADS = 4


def copy(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET…", show_default=False, help="Domains or other targets, as for lookup."),
    ],
    crawl: options.Crawls,
    to: Annotated[str, typer.Option("--to", show_default=False, help="Destination: s3://bucket/prefix, or a folder.")],
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            min=1,
            max=256,
            show_default=False,
            help="Requests to the source, and uploads, at the same time (default: the source's own limit; 4 uploads).",
        ),
    ] = None,
    convert: Annotated[
        str | None, typer.Option("--convert", show_default=False, help="warc: also write ARC records as WARC.")
    ] = None,
    part_mb: Annotated[int, typer.Option("--part-mb", min=1, max=4000, help="Largest size of a file, in MB.")] = 128,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", show_default=False, help="S3 endpoint of --to, if it is not AWS.")
    ] = None,
    via: options.Via = None,
    subset: options.Subsets = None,
    allow_gaps: options.AllowGaps = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Copy the records of domains to a bucket or folder of your own, as standard WARC files.

    The command finds, fetches and verifies records as `run` does, and keeps them in the lake. Then it writes them to
    the destination in files of at most --part-mb. Each file has a Parquet list of its captures beside it. You can stop
    the command at any time: run again, it fetches only records that the lake lacks and uploads only files that the
    destination lacks. S3 credentials come from the usual AWS chain.

    [bold]Examples[/]

      cc-pipeline copy example.com --crawl CC-MAIN-2024-22 --to s3://my-bucket/common_crawl --parallel 8

      cc-pipeline copy "rev:com.nytimes.blogs" -c CC-MAIN-2012 --to ./blogs --convert warc
    """
    from cc_pipeline.defs.launch import Launcher
    from cc_pipeline.stages.left_out import what_is_not_there

    if convert not in (None, "warc"):
        raise UserInputError(f"--convert is {convert!r}; the only conversion is warc")
    destination = normalise_root(to)
    if scheme_of(destination) in ("http", "https"):
        raise UserInputError(f"{shown(to)!r} cannot be written to; give s3://bucket/prefix or a folder")
    rows: list[Sequence[object]] = []
    with (
        open_question(
            targets,
            crawl,
            source=source,
            home=home,
            subset=subset,
            via=via,
            concurrency=parallel,
            allow_gaps=allow_gaps,
        ) as question,
        Launcher(question.workspace) as launcher,
        _open(question.settings, destination, endpoint) as place,
        progress_bars(),
    ):
        for one in question.crawls:
            if needs_harvest(question.workspace, one) or has_gaps(question.workspace, one):
                despite_gaps(partial(step, f"index {one}", partial(launcher.harvest, [one])))
            step(f"download {one}", partial(all_runs, launcher.fetch(one, question.targets)))
            report, fates = _upload(question, one, place, parallel or _UPLOADS, convert, part_mb)
            lost = {outcome: count for outcome, count in fates.items() if outcome != "fetched"}
            rows.append((one, report.records, report.parts, report.held, report.bytes, sum(lost.values())))
            _say(one, report, lost)
        notes = what_is_not_there(question.workspace, question.crawls, question.targets)
    write_rows(
        f"copied to {destination}", ["crawl", "records", "files", "there before", "bytes sent", "not copied"], rows
    )
    for note in notes:
        warn(note)


def _upload(
    question: Question, crawl: str, place: Transport, parallel: int, convert: str | None, part_mb: int
) -> tuple[CopyReport, dict[str, int]]:
    from collections import Counter

    from cc_pipeline import progress
    from cc_pipeline.records.copying import copy_parts, distinct_captures, plan_copy

    where = {"crawl": crawl, "target": [target.slug for target in question.targets]}
    records = question.workspace.lake.read("records", where)
    parts = plan_copy(records, crawl, convert=convert == "warc", part_bytes=part_mb * 1_000_000)
    report = copy_parts(
        parts,
        question.workspace.storage,
        place,
        question.workspace.scratch,
        crawl=crawl,
        parallel=parallel,
        progress=lambda done, total, sent, size: progress.report(
            f"upload {crawl}", done, total, f"{human_bytes(sent)} of {human_bytes(size)}"
        ),
    )
    return report, Counter(distinct_captures(records)["outcome"].to_pylist())


def _open(settings: Settings, destination: str, endpoint: str | None) -> Transport:
    from cc_pipeline.transport.client import Transport

    return Transport(destination, user_agent=settings.user_agent, s3_endpoint=endpoint, s3_region=settings.s3_region)


def _say(crawl: str, report: CopyReport, lost: dict[str, int]) -> None:
    for fault in report.faults:
        notice(f"{crawl}: left out: {fault}")
    if report.left_out > len(report.faults):
        notice(f"{crawl}: left out: {report.left_out - len(report.faults):,} more records that have no WARC form")
    for outcome, count in sorted(lost.items()):
        notice(f"{crawl}: {count:,} captures are {outcome}; to try them again: cc-pipeline replay --crawl {crawl} …")
