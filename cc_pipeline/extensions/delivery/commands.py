"""``delivery``: delivers records to a bucket or folder of the user's own, verifies it, and certifies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.addresses import redact_address, scheme_of
from cc_pipeline.api.lookups import LookupRequest, has_gaps, needs_harvest
from cc_pipeline.api.run_steps import harvest_despite_gaps, run_step, start_all_runs
from cc_pipeline.cli import options
from cc_pipeline.cli.command import FEATURES, Command
from cc_pipeline.cli.lookups import open_question
from cc_pipeline.cli.output import notice, progress_bars, warn, write_rows
from cc_pipeline.errors import EnvironmentFault, Incomplete, IndexIncomplete, UserInputError
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import Settings, load_settings, normalise_root

if TYPE_CHECKING:
    from cc_pipeline.defs.launcher import Launcher
    from cc_pipeline.extensions.delivery.verification import VerifyReport
    from cc_pipeline.extensions.delivery.writer import DeliveryReport
    from cc_pipeline.transport.client import Transport

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Verified WARC files in your own bucket or folder, with a certificate (docs/extensions/delivery.md).",
)
#: Uploads, or files read to verify, at the same time, unless ``--parallel`` says otherwise.
_DEFAULT_UPLOADS = 4
#: Maximum problems and missing captures that are printed.
_MAX_EXAMPLES = 20


@app.command()
def copy(
    targets: options.Targets,
    crawl: options.Crawls,
    to: Annotated[str, typer.Option("--to", help="Destination: s3://bucket/prefix, or a folder.")],
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 even if planned captures are missing.")
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
    part_mb: Annotated[
        int, typer.Option("--part-mb", min=1, max=4000, help="Maximum size of a new file, in MB.")
    ] = 128,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="S3 endpoint of the bucket, if it is not AWS.")
    ] = None,
    via: options.Via = None,
    subset: options.Subsets = None,
    allow_gaps: options.AllowGaps = False,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Copy the records of domains to a bucket or folder of your own, as standard WARC files.

    The command finds, fetches and verifies records as `run` does, and stores them in the lake. Then it writes them to
    the destination in files of at most --part-mb. Each file has a Parquet list of its captures beside it. A manifest
    lists all files with their SHA-256, and every missing capture with the reason. You can stop the command at any time:
    run again, it fetches only records that the lake lacks, replaces files that differ from the manifest, and sends only
    records that the destination lacks. S3 credentials come from the usual AWS chain.

    It ends with status 3 while planned captures are missing. `cc-pipeline delivery verify` checks a destination.

    [bold]Examples[/]

      cc-pipeline delivery copy example.com -c CC-MAIN-2024-22 --to s3://bucket/cc

      cc-pipeline delivery copy example.com -c CC-MAIN-2012 --to a --convert warc
    """
    if convert not in (None, "warc"):
        raise UserInputError(f"--convert is {convert!r}; the only conversion is warc")
    destination = parse_destination(to)
    from cc_pipeline.checks.omissions import describe_omissions
    from cc_pipeline.defs.launcher import Launcher
    from cc_pipeline.extraction.blocklist import read_blocklist

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
        open_place(destination, endpoint, question.settings) as place,
        progress_bars(),
    ):
        deliver = partial(_deliver, question, place, parallel or _DEFAULT_UPLOADS, convert == "warc", part_mb)
        reports, source_error = _each_crawl(question, launcher, deliver)
        notes = describe_omissions(question.workspace, question.crawls, question.targets)
        notes += read_blocklist(question.workspace).describe_blocks(question.targets)
    _report_copies(destination, reports, notes)
    _finish_copy(
        [(crawl_id, report) for crawl_id, report in reports.items() if _count_lost(report)], source_error, allow_missing
    )


def _each_crawl(
    question: LookupRequest, launcher: Launcher, deliver: Callable[[str], DeliveryReport]
) -> tuple[dict[str, DeliveryReport], Incomplete | None]:
    """Fetches and delivers each crawl. Returns the reports by crawl, and the last error of the source."""
    reports: dict[str, DeliveryReport] = {}
    source_error: Incomplete | None = None
    for crawl_id in question.crawls:
        if needs_harvest(question.workspace, crawl_id) or has_gaps(question.workspace, crawl_id):
            harvest_despite_gaps(partial(run_step, f"index {crawl_id}", partial(launcher.harvest, [crawl_id])))
        try:
            run_step(f"download {crawl_id}", partial(start_all_runs, launcher.fetch(crawl_id, question.targets)))
        except IndexIncomplete as error:
            source_error = error  # without a complete plan, a manifest would claim completeness
            continue
        except Incomplete as error:
            source_error = error  # complete partitions are delivered first
        reports[crawl_id] = deliver(crawl_id)
        _report_crawl(crawl_id, reports[crawl_id])
    return reports, source_error


def _count_lost(report: DeliveryReport) -> int:
    return sum(report.lost.values())


def parse_destination(text: str) -> str:
    """Parses the destination of a delivery. Raises ``UserInputError`` if it cannot be written to."""
    destination = normalise_root(text)
    if scheme_of(destination) in ("http", "https"):
        raise UserInputError(f"{redact_address(text)!r} cannot be written to; give s3://bucket/prefix or a folder")
    return destination


def _deliver(
    question: LookupRequest, place: Transport, parallel: int, convert: bool, part_mb: int, crawl: str
) -> DeliveryReport:
    from cc_pipeline import progress
    from cc_pipeline.capture_columns import RECORD_KEY_NAMES
    from cc_pipeline.export.provenance import gather_provenance
    from cc_pipeline.extensions.delivery.manifest import stable_provenance
    from cc_pipeline.extensions.delivery.writer import Order, add_planned_captures, deliver
    from cc_pipeline.extraction.slice_selection import expand_targets
    from cc_pipeline.extraction.slice_state import read_slice_states
    from cc_pipeline.lake.slice import LOCATE

    workspace = question.workspace
    slices = expand_targets(workspace, crawl, [target.slug for target in question.targets]).requested_slices
    lookups = [slice_state.lookup for slice_state in read_slice_states(workspace, slices, (LOCATE,)).values()]
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    captures = workspace.lake.read("captures", where, [*RECORD_KEY_NAMES, "located_by"])
    indexes = captures["located_by"].unique().to_pylist()
    order = Order(
        crawl,
        tuple(target.definition for target in question.targets),
        question.settings.subsets,
        convert,
        part_mb * 1_000_000,
        tuple(name for name in indexes if name),
        max((lookup.unread_files for lookup in lookups if lookup is not None), default=0),
        workspace.address_of,
        stable_provenance(gather_provenance(workspace, question.targets, [crawl])),
    )
    return deliver(
        order,
        add_planned_captures(workspace.lake.read("records", where), captures.select(RECORD_KEY_NAMES)),
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


def _report_crawl(crawl: str, report: DeliveryReport) -> None:
    for note in report.notes:
        notice(f"{crawl}: {note}")
    lost = _count_lost(report)
    for row in report.manifest.not_there[:_MAX_EXAMPLES]:
        reason = row["left_out"] or ": ".join(filter(None, (row["reason"], row["detail"])))
        outcome = "left out" if row["left_out"] else row["outcome"]
        notice(f"{crawl}: {outcome}: {row['url'] or row['warc_filename']} ({reason or 'no reason is known'})")
    if lost > _MAX_EXAMPLES:
        notice(f"{crawl}: {lost - _MAX_EXAMPLES:,} more are listed in the delivery's ledger")


def _report_copies(destination: str, reports: Mapping[str, DeliveryReport], notes: Sequence[str]) -> None:
    write_rows(
        f"copied to {destination}",
        ["crawl", "records", "files", "already there", "bytes sent", "not copied"],
        [
            (
                crawl,
                report.manifest.counts["delivered"],
                report.parts,
                report.parts_before,
                report.bytes,
                _count_lost(report),
            )
            for crawl, report in reports.items()
        ],
    )
    for note in notes:
        warn(note)


def _finish_copy(
    incomplete_reports: Sequence[tuple[str, DeliveryReport]], source_error: Incomplete | None, allow_missing: bool
) -> None:
    """Reports missing captures, and raises ``Incomplete`` unless they are allowed. An error of the source is always
    raised.
    """
    loss_texts = []
    for crawl, report in incomplete_reports:
        lost = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.lost.items())
        loss_texts.append(
            f"{sum(report.lost.values()):,} of {report.manifest.counts['planned']:,} captures of {crawl} ({lost})"
        )
    if loss_texts and allow_missing:
        notice(f"not delivered, which --allow-missing accepts: {'; '.join(loss_texts)}")
    if source_error is not None:
        raise source_error
    if loss_texts and not allow_missing:
        raise Incomplete(
            f"not delivered: {'; '.join(loss_texts)}",
            "The manifest and its ledger list each with its reason. Fetch them again: cc-pipeline run … --crawl "
            f"{incomplete_reports[0][0]} --refetch, then copy again. Or accept it: --allow-missing",
        )


@app.command()
def verify(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A folder or s3://bucket/prefix that copy wrote to.")],
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="Compare the delivery with this certificate (.json) instead.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="End with status 0 even if planned captures are missing.")
    ] = False,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="Number of files to read at the same time.")
    ] = _DEFAULT_UPLOADS,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="S3 endpoint of the bucket, if it is not AWS.")
    ] = None,
    home: options.Home = None,
) -> None:
    """Check the deliveries in a bucket or folder against their manifests, or against a certificate. Reads every byte.

    Ends with status 1 if anything differs from a manifest or the certificate, 3 if planned captures are missing. With a
    certificate, every capture that it lists as fetched must be in the delivery. The certificate states what it proves,
    and what not.

    [bold]Examples[/]

      cc-pipeline delivery verify s3://my-bucket/common_crawl

      cc-pipeline delivery verify ./example --certificate example.json
    """
    if certificate is not None:
        _verify_certificate(certificate, place, endpoint, home)
        return
    _verify(place, endpoint, home, parallel, allow_missing)


def _verify(text: str, endpoint: str | None, home: str | None, parallel: int, allow_missing: bool) -> None:
    from cc_pipeline import progress
    from cc_pipeline.extensions.delivery.verification import verify_place

    destination = parse_destination(text)
    settings = load_settings(home=home)
    with open_place(destination, endpoint, settings) as place, progress_bars():
        report = verify_place(
            place,
            parallel=parallel,
            progress=lambda done, total, read, total_bytes: progress.report(
                "verify", done, total, f"{human_bytes(read)} of {human_bytes(total_bytes)}"
            ),
        )
    rows: list[Sequence[object]] = []
    for check in report.deliveries:
        manifest = check.manifest
        if manifest is None:
            rows.append((check.key, "", "", "", "", "", len(check.problems)))
            continue
        counts, total_bytes = manifest.counts, sum(entry.size for entry in manifest.files)
        lost = counts.get("planned", 0) - counts.get("delivered", 0)
        target_texts = " ".join(manifest.targets)
        rows.append(
            (
                manifest.crawl,
                target_texts,
                counts.get("delivered", 0),
                lost,
                len(manifest.parts),
                total_bytes,
                len(check.problems),
            )
        )
    write_rows(
        f"deliveries in {destination}", ["crawl", "targets", "records", "not there", "files", "bytes", "wrong"], rows
    )
    _judge(destination, report, allow_missing)


def _judge(destination: str, report: VerifyReport, allow_missing: bool) -> None:
    for note in report.notes[:_MAX_EXAMPLES]:
        notice(f"note: {note}")
    problems = report.all_problems
    for reason in problems[:_MAX_EXAMPLES]:
        notice(f"wrong: {reason}")
    if problems:
        omitted = f" ({len(problems) - _MAX_EXAMPLES:,} more than shown)" if len(problems) > _MAX_EXAMPLES else ""
        raise EnvironmentFault(
            f"{destination} differs from the lists of files that copies wrote (manifest-….json): {len(problems):,} "
            f"differences{omitted}",
            "Copy again with the same targets and --to: differing files are replaced",
        )
    if report.unfinished:
        raise Incomplete(
            f"a copy to {destination} was stopped and is incomplete: {', '.join(report.unfinished[:_MAX_EXAMPLES])}",
            "Copy again with the same targets and --to",
        )
    if report.with_unread_index_files and not allow_missing:
        raise Incomplete(
            "captures may be missing: the index had gaps (files that could not be read) for "
            f"{', '.join(report.with_unread_index_files[:_MAX_EXAMPLES])}",
            "Copy again with the same targets and --to, without --allow-gaps. Or accept it: --allow-missing",
        )
    if report.undelivered_captures and not allow_missing:
        raise Incomplete(
            f"{format_count(report.undelivered_captures, 'planned capture', 'are')} missing; all files in the "
            "manifests are present",
            "The ledgers list each with its reason. Accept it: --allow-missing",
        )
    notice("all files match the manifests")


@app.command("certify")
def certify_(
    targets: options.Targets,
    crawl: options.Crawls,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The certificate (.json); its list of captures and its page are written beside it."
        ),
    ],
    subset: options.Subsets = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Certify which captures of targets the columnar index and ZipNum list, and the outcome of each capture.

    Both indexes are searched, whatever earlier lookups used. The certificate counts captures that only one of them
    lists, and captures that were fetched, missing, quarantined or never requested. It lists index gaps. The command
    ends with status 3 if anything is incomplete. `cc-pipeline delivery verify --certificate` compares the certificate
    with a delivery.

    [bold]Examples[/]

      cc-pipeline delivery certify example.com -c CC-MAIN-2024-22 --out proof.json
    """
    if out.suffix != ".json":
        raise UserInputError(f"--out is {out}; give a name that ends in .json (other files are written beside it)")
    with open_question(targets, crawl, source=source, home=home, subset=subset) as question:
        from cc_pipeline.export.provenance import gather_provenance
        from cc_pipeline.extensions.delivery.certificate import certify, sibling_file

        with progress_bars():
            provenance = gather_provenance(question.workspace, question.targets, question.crawls)
            document = certify(question.workspace, question.targets, question.crawls, provenance, out, notice)
    rows = [
        (crawl["crawl"], *(crawl["indexes"][kind]["captures"] for kind in ("parquet", "zipnum")),
         sum(crawl["only"].values()), crawl["outcomes"].get("fetched", 0), "; ".join(crawl["findings"]))
        for crawl in document["crawls"]
    ]  # fmt: skip
    write_rows(f"certified in {out}", ["crawl", "parquet", "zipnum", "in one index only", "fetched", "findings"], rows)
    notice(f"{sibling_file(out, 'html')} is the certificate as a page")
    if not document["complete"]:
        raise Incomplete(
            "the certificate is not complete; its findings say why",
            "Fetch missing captures (cc-pipeline run with the same targets and crawls), harvest an index that was not "
            "searched or has gaps (cc-pipeline index harvest --crawl …), then certify again.",
        )


def _verify_certificate(path: Path, delivery: str, endpoint: str | None, home: str | None) -> None:
    from cc_pipeline.extensions.delivery.certificate import verify_certificate

    if not path.is_file():
        raise UserInputError(f"there is no certificate {path}")
    with open_place(parse_destination(delivery), endpoint, load_settings(home=home)) as place, progress_bars():
        problems = verify_certificate(path, place)
    for problem in problems:
        notice(f"wrong: {problem}")
    if problems:
        raise EnvironmentFault(
            f"{path} does not match {delivery}: {len(problems):,} differences",
            "Copy again to replace missing and differing files. If the certificate itself was changed, certify again.",
        )
    notice("the delivery matches the certificate")


COMMANDS = {"delivery": Command(app, FEATURES, 60)}
