"""``certificate``: proof that nothing which two indexes list of targets was lost on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.commands.copy import open_place, own_place
from cc_pipeline.cli.lookups import open_question
from cc_pipeline.cli.output import notice, progress_bars, write_rows
from cc_pipeline.errors import EnvironmentFault, Incomplete, UserInputError
from cc_pipeline.settings import load_settings


def certificate(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The certificate (.json); its captures and its page lie beside it.")
    ],
    targets: Annotated[list[str] | None, typer.Argument(metavar="TARGET…", help="Targets, as of run.")] = None,
    crawl: Annotated[list[str] | None, typer.Option("--crawl", "-c", help="A crawl id; may be repeated.")] = None,
    verify: Annotated[
        str | None, typer.Option("--verify", help="A delivery of copy: hold the certificate against it.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option("--endpoint", help="S3 endpoint of the delivery.")] = None,
    subset: options.Subsets = None,
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Certify what the columnar index and ZipNum each list of targets, and what became of each capture.

    Both indexes are asked, whatever was asked before. The certificate counts captures that only one of them lists, and
    those fetched, missing, quarantined or never asked for; it names holes. It ends with status 3 where something is not
    complete. --verify reads a delivery instead: each byte is compared, and each capture that the certificate calls
    fetched is looked for. It says what it proves, and what not.

    [bold]Examples[/]

      cc-pipeline certificate example.com -c CC-MAIN-2024-22 --out example.json

      cc-pipeline certificate --out example.json --verify ./example
    """
    if verify is not None:
        if targets or crawl:
            raise UserInputError("--verify reads a certificate and a delivery; it takes no targets and no --crawl")
        _verify(out, verify, endpoint, home)
        return
    if not targets or not crawl:
        raise UserInputError("name targets and --crawl; or --verify a delivery")
    if out.suffix != ".json":
        raise UserInputError(f"--out is {out}; a certificate is a .json file, with others beside it")
    with open_question(targets, crawl, source=source, home=home, subset=subset, several=True) as question:
        from cc_pipeline.delivery.certificate import beside, certify
        from cc_pipeline.delivery.provenance import gather

        with progress_bars():
            provenance = gather(question.workspace, question.targets, question.crawls)
            document = certify(question.workspace, question.targets, question.crawls, provenance, out, notice)
    rows = [
        (one["crawl"], *(one["indexes"][kind]["captures"] for kind in ("parquet", "zipnum")),
         sum(one["only"].values()), one["outcomes"].get("fetched", 0), "; ".join(one["findings"]))
        for one in document["crawls"]
    ]  # fmt: skip
    write_rows(f"certified in {out}", ["crawl", "parquet", "zipnum", "in one alone", "fetched", "findings"], rows)
    notice(f"{beside(out, 'html')} is the page to show")
    if not document["complete"]:
        raise Incomplete(
            "the certificate says that something is not complete, and what",
            "Ask for what lacks (cc-pipeline run, harvest or replay with the same targets), then certify again.",
        )


def _verify(path: Path, delivery: str, endpoint: str | None, home: str | None) -> None:
    from cc_pipeline.delivery.certificate import verify_certificate

    if not path.is_file():
        raise UserInputError(f"there is no certificate {path}")
    with open_place(own_place(delivery), endpoint, load_settings(home=home)) as place, progress_bars():
        wrong = verify_certificate(path, place)
    for one in wrong:
        notice(f"wrong: {one}")
    if wrong:
        raise EnvironmentFault(
            f"{path} is not borne out by {delivery}: {len(wrong):,} findings",
            "Copy again what lacks or differs; a certificate that was changed has to be made again.",
        )
    notice("the delivery bears the certificate out")
