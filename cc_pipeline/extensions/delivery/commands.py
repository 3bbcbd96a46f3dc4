"""``delivery``: copies records to a bucket or folder of the user's own, and verifies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cc_pipeline.addresses import redact_address, scheme_of
from cc_pipeline.advice import ANY, advise, option
from cc_pipeline.api.lookups import LookupRequest, has_gaps, needs_harvest, open_lookup
from cc_pipeline.api.run_steps import harvest_despite_gaps, run_step
from cc_pipeline.api.user_input import read_targets
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command, Group, Row
from cc_pipeline.cli.output import notice, progress_bars, warn, write_rows
from cc_pipeline.errors import EnvironmentFault, Incomplete, IndexIncomplete, UserInputError
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import Settings, normalise_root

if TYPE_CHECKING:
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.extensions.delivery.copying import CopyReport
    from cc_pipeline.extensions.delivery.verification import VerifyReport
    from cc_pipeline.transport.client import Transport

_COPY_COLUMNS = ("crawl", "records", "files", "already there", "bytes sent", "not copied")
_VERIFY_COLUMNS = ("crawl", "targets", "records", "not copied", "files", "wrong")
#: Uploads, or files read to verify, at the same time, unless ``--parallel`` says otherwise.
_DEFAULT_UPLOADS = 4
#: Maximum problems and missing captures that are printed.
_MAX_EXAMPLES = 20


def copy(
    settings: Settings,
    targets: options.Targets,
    crawl: options.Crawls,
    to: Annotated[str, typer.Option("--to", help="Destination: s3://bucket/prefix, or a folder.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 even if captures are pending or lost.")
    ] = False,
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            min=1,
            max=256,
            help="Concurrent requests to the source, and concurrent uploads (default: the source's own "
            "limit; 4 uploads).",
        ),
    ] = None,
    convert: Annotated[str | None, typer.Option("--convert", help="warc: also write ARC records as WARC.")] = None,
    file_mb: Annotated[
        int, typer.Option("--file-mb", min=1, max=4000, help="Maximum size of a new file, in MB.")
    ] = 128,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="S3 endpoint of the bucket, if it is not AWS.")
    ] = None,
) -> None:
    """Copy the records of domains to a bucket or folder of your own, as standard WARC files.

    The command finds, fetches and verifies records as `run` does, and stores them in the lake. Then it writes them to
    the destination in files of at most --file-mb. Each file has a Parquet list of its captures beside it. A manifest
    lists all files with their SHA-256, and missing captures with the reason. You can stop the command at any time:
    run again, it fetches only records that the lake lacks, and sends only records that are in no file of the manifest.
    S3 credentials come from the usual AWS chain.

    It ends with status 3 while planned captures are missing. `cc-pipeline delivery verify` checks a destination.

    [bold]Examples[/]

      cc-pipeline delivery copy example.com -c CC-MAIN-2024-22 --to s3://bucket/cc

      cc-pipeline delivery copy example.com -c CC-MAIN-2012 --to a --convert warc
    """
    if convert not in (None, "warc"):
        raise UserInputError(f"--convert is {convert!r}; the only conversion is warc")
    destination = parse_destination(to)
    settings = replace(settings, concurrency=parallel or settings.concurrency)
    from cc_pipeline.checks.omissions import describe_omitted_subsets
    from cc_pipeline.defs.stage_runner import StageRunner
    from cc_pipeline.extraction.blocklist import read_blocklist
    from cc_pipeline.extraction.lookup_notes import describe_gaps

    with (
        open_lookup(settings, read_targets(targets), crawl) as question,
        StageRunner(question.workspace) as runner,
        open_place(destination, endpoint, question.settings) as place,
        progress_bars(),
    ):
        deliver = partial(_deliver, question, place, parallel or _DEFAULT_UPLOADS, convert == "warc", file_mb)
        reports, source_error = _each_crawl(question, runner, deliver)
        notes = describe_gaps(question.workspace, question.crawls, question.targets)
        notes += describe_omitted_subsets(question.workspace, question.crawls, question.targets)
        notes += read_blocklist(question.workspace).describe_blocks(question.targets)
    _report_copies(destination, reports, notes)
    _finish_copy(
        [(crawl_id, report) for crawl_id, report in reports.items() if report.copy.lost],
        source_error,
        allow_missing,
        question.settings.subsets,
    )


def _each_crawl(
    question: LookupRequest, runner: StageRunner, deliver: Callable[[str], CopyReport]
) -> tuple[dict[str, CopyReport], Incomplete | None]:
    """Fetches and delivers each crawl. Returns the reports by crawl, and the last error of the source."""
    reports: dict[str, CopyReport] = {}
    source_error: Incomplete | None = None
    for crawl_id in question.crawls:
        if needs_harvest(question.workspace, crawl_id) or has_gaps(question.workspace, crawl_id):
            harvest_despite_gaps(partial(run_step, f"index {crawl_id}", partial(runner.harvest, [crawl_id])))
        try:
            run_step(f"download {crawl_id}", partial(runner.fetch, crawl_id, question.targets))
        except IndexIncomplete as error:
            source_error = error  # without a complete plan, a manifest would claim completeness
            continue
        except Incomplete as error:
            source_error = error  # complete partitions are delivered first
        reports[crawl_id] = deliver(crawl_id)
        _report_crawl(crawl_id, reports[crawl_id])
    return reports, source_error


def parse_destination(text: str) -> str:
    """Parses the destination of a delivery. Raises ``UserInputError`` if it cannot be written to."""
    destination = normalise_root(text)
    if scheme_of(destination) in ("http", "https"):
        raise UserInputError(f"{redact_address(text)!r} cannot be written to; give s3://bucket/prefix or a folder")
    return destination


def _deliver(
    question: LookupRequest, place: Transport, parallel: int, convert: bool, file_mb: int, crawl: str
) -> CopyReport:
    import pyarrow as pa

    from cc_pipeline import progress
    from cc_pipeline.capture_columns import RECORD_KEY_NAMES
    from cc_pipeline.export.provenance import gather_provenance, name_of
    from cc_pipeline.export.stored_state import read_lake_state
    from cc_pipeline.extensions.delivery.copying import Order, add_planned_captures, copy_records
    from cc_pipeline.extraction.slice_selection import expand_targets
    from cc_pipeline.lake.slice import LOCATE

    workspace, lake = question.workspace, question.workspace.lake
    slices = {*expand_targets(workspace, crawl, [target.slug for target in question.targets]).requested_slices}
    state = read_lake_state(workspace, question.targets, [crawl])
    notes = [row.note for row in state.slice_rows if row.stage == LOCATE.label and row.slice_ in slices]
    order = Order(
        crawl,
        tuple(name_of(target) for target in question.targets),
        question.settings.subsets,
        convert,
        file_mb * 1_000_000,
        max((note["unread_files"] for note in notes if note), default=0),
        workspace.address_of,
        gather_provenance(workspace, state, [crawl]).as_json(),
    )
    captures, records = (
        pa.Table.from_batches(
            state.stream(lake, table, crawl, names, slices),
            pa.schema([lake.specs[table].schema.field(name) for name in names]),
        )
        for table, names in (("captures", RECORD_KEY_NAMES), ("records", lake.specs["records"].schema.names))
    )
    return copy_records(
        order,
        add_planned_captures(records, captures),
        workspace.storage,
        place,
        workspace.scratch,
        parallel=parallel,
        progress=lambda done, total, sent, size: progress.report(
            f"upload {crawl}", done, total, f"{human_bytes(sent)} of {human_bytes(size)}"
        ),
    )


def open_place(destination: str, endpoint: str | None, settings: Settings) -> Transport:
    """Opens a transport to the place of a delivery."""
    from cc_pipeline.stores.answer import S3Options
    from cc_pipeline.transport.client import Transport
    from cc_pipeline.transport.source_client import SourceOptions

    return Transport(
        destination, SourceOptions(user_agent=settings.user_agent, s3=S3Options(endpoint, settings.s3_region))
    )


def _report_crawl(crawl: str, report: CopyReport) -> None:
    lost = sum(report.copy.lost.values())
    for row in report.copy.undelivered[:_MAX_EXAMPLES]:
        reason = ": ".join(filter(None, (row["reason"], row["detail"])))
        notice(f"{crawl}: {row['outcome']}: {row['url'] or row['warc_filename']} ({reason or 'no reason is known'})")
    if lost > _MAX_EXAMPLES:
        notice(
            f"{crawl}: {lost - _MAX_EXAMPLES:,} more; {advise('sql', 'FROM ledger')} lists all that were not fetched"
        )


def _report_copies(destination: str, reports: Mapping[str, CopyReport], notes: Sequence[str]) -> None:
    rows = [
        (crawl, report.copy.counts["delivered"], report.files, report.files_before, report.bytes,
         sum(report.copy.lost.values()))
        for crawl, report in reports.items()
    ]  # fmt: skip
    write_rows(f"copied to {destination}", _COPY_COLUMNS, rows)
    for note in notes:
        warn(note)


def _finish_copy(
    incomplete_reports: Sequence[tuple[str, CopyReport]],
    source_error: Incomplete | None,
    allow_missing: bool,
    subsets: Sequence[str],
) -> None:
    """Reports captures that were not copied, and raises ``Incomplete`` unless that is allowed. An error of the source
    is always raised.
    """
    loss_texts = []
    for crawl, report in incomplete_reports:
        counts = report.copy.lost
        lost = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        planned = report.copy.counts["planned"]
        loss_texts.append(f"{sum(counts.values()):,} of {planned:,} captures of {crawl} ({lost})")
    if loss_texts and allow_missing:
        notice(f"not delivered, which --allow-missing accepts: {'; '.join(loss_texts)}")
    if source_error is not None:
        raise source_error
    if loss_texts and not allow_missing:
        raise Incomplete(
            f"not delivered: {'; '.join(loss_texts)}",
            advise(
                "run",
                ANY,
                crawl=[crawl for crawl, _ in incomplete_reports],
                subset=subsets,
                refetch=True,
                sentence="The manifest lists them with their reasons. Fetch them again: {}, then copy again. Or accept "
                f"it: {option(allow_missing=True)}",
            ),
        )


def verify(
    settings: Settings,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A folder or s3://bucket/prefix that copy wrote to.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 even if captures are pending or lost.")
    ] = False,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="Number of files to read at the same time.")
    ] = _DEFAULT_UPLOADS,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="S3 endpoint of the bucket, if it is not AWS.")
    ] = None,
) -> None:
    """Compare the files in a bucket or folder with the manifest of copy. Reads every byte.

    Ends with status 1 if a file is missing or has another SHA-256, 3 if captures are pending or lost.

    [bold]Examples[/]

      cc-pipeline delivery verify s3://my-bucket/common_crawl
    """
    from cc_pipeline import progress
    from cc_pipeline.extensions.delivery.verification import verify_place

    destination = parse_destination(place)
    with open_place(destination, endpoint, settings) as opened, progress_bars():
        report = verify_place(
            opened,
            parallel=parallel,
            progress=lambda done, total, read, total_bytes: progress.report(
                "verify", done, total, f"{human_bytes(read)} of {human_bytes(total_bytes)}"
            ),
        )
    rows = [
        (copy.crawl, " ".join(copy.targets), copy.counts.get("delivered", 0), sum(copy.lost.values()),
         len(report.manifest.files_of(copy.crawl)), len(report.problems[copy.crawl]))
        for copy in report.manifest.copies
    ]  # fmt: skip
    write_rows(f"copies in {destination}", _VERIFY_COLUMNS, rows)
    _judge(destination, report, allow_missing)


def _judge(destination: str, report: VerifyReport, allow_missing: bool) -> None:
    for name in report.unlisted[:_MAX_EXAMPLES]:
        notice(f"note: {name}: the manifest does not name this file")
    problems = [problem for found in report.problems.values() for problem in found]
    for problem in problems[:_MAX_EXAMPLES]:
        notice(f"wrong: {problem}")
    copies = report.manifest.copies
    again = "Copy again with the same targets and --to"
    if problems:
        raise EnvironmentFault(
            f"{destination} differs from its manifest: {format_count(len(problems), 'file')}",
            f"{again}: differing files are replaced",
        )
    if stopped := [" ".join((copy.crawl, *copy.targets)) for copy in copies if not copy.complete]:
        raise Incomplete(f"a copy to {destination} was stopped and is incomplete: {', '.join(stopped)}", again)
    notice("all files match the manifest")
    if allow_missing:
        return
    if gaps := [" ".join((copy.crawl, *copy.targets)) for copy in copies if copy.unread_index_files]:
        raise Incomplete(
            "captures may not have been found: the index had gaps (files that could not be read) for "
            + ", ".join(gaps),
            f"{again}, without --allow-gaps. Or accept it: --allow-missing",
        )
    if lost := sum(sum(copy.lost.values()) for copy in copies):
        raise Incomplete(
            f"{format_count(lost, 'planned capture', 'were')} not copied",
            "The manifest lists them with their reasons. Accept it: --allow-missing",
        )


COMMANDS: Final[dict[str, Row]] = {
    "delivery": Group("Verified WARC files in your own bucket or folder (docs/extensions/delivery.md).", FEATURES, 60),
    "delivery copy": Command(
        copy, options=(options.SUBSET, options.ALLOW_GAPS, *options.REMOTE), columns=_COPY_COLUMNS
    ),
    "delivery verify": Command(verify, options=options.LOCAL, columns=_VERIFY_COLUMNS),
}
