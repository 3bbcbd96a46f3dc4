"""``plan``: what a look-up and a fetch would cost, and what is known of a site before that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cc_pipeline.cli import options
from cc_pipeline.cli.index.facts_first import chosen_by, show_predicted
from cc_pipeline.cli.index.lookup import PLACE, AskFacts, Crawls, Format, Harvest, Texts, captures_of
from cc_pipeline.cli.output import checked_format, notice, write_rows
from cc_pipeline.cli.question import Question, open_question, sources_for

if TYPE_CHECKING:
    from cc_pipeline.index.locator import LookupPrice
    from cc_pipeline.records.plan import FetchPrice


def plan(
    targets: Texts,
    crawl: Crawls,
    via: options.Via = None,
    subset: options.Subsets = None,
    locate: Annotated[
        bool, typer.Option("--locate", help="Do the look-up too, and price the fetch of the captures it finds.")
    ] = False,
    harvest: Harvest = False,
    where: options.Where = None,
    facts: AskFacts = False,
    allow_gaps: options.AllowGaps = False,
    output: Format = "table",
    source: options.Source = None,
    home: options.Home = None,
) -> None:
    """Show what a look-up and a fetch would cost, before anything is read from the index.

    For the look-up it shows files, row groups, requests and bytes, which index will be used, and why. It can price the
    fetch only where the captures are known: from an earlier run, or with --locate.

    [bold]Examples[/]

      cc-pipeline plan example.com --crawl CC-MAIN-2024-22

      cc-pipeline plan example.com -c CC-MAIN-2025-18 --facts

      cc-pipeline plan suffix:gov.uk -c newest --where "prank10 > 5 and fetch_200 > 100"

      cc-pipeline plan suffix:gov.uk example.org -c newest -c CC-MAIN-2018-05 --via parquet --locate
    """
    checked_format(output)
    rows: list[Sequence[object]] = []
    notes: list[str] = []
    with open_question(
        targets, crawl, source=source, home=home, subset=subset, via=via, allow_gaps=allow_gaps, several=True
    ) as question:
        from cc_pipeline.index.lookup import price_lookup  # after the mistakes in values, which are told at once

        settings = question.settings
        for one in question.crawls:
            show_predicted(question, one, ask=facts)
            here = chosen_by(question, one, where)
            if not here.targets:
                continue
            sources = sources_for(question.workspace, one, settings.via, harvest=harvest)
            found = price_lookup(one, settings.subsets, here.targets, sources, via=settings.via)
            likely = found.bytes if found.likely_bytes is None else found.likely_bytes
            rows.append((one, "look-up", found.files, found.row_groups, found.requests, found.bytes, likely, found.why))
            notes += [f"{one}: {note}" for note in (*found.notes, *_repairable(here, one, found))]
            fetch = _located(here, one) if locate else _known(here, one)
            if fetch is None:
                notes.append(f"{one}: a fetch has no price until its captures are known; add --locate to find them")
            else:
                why = f"{fetch.captures:,} captures of {fetch.record_bytes:,} bytes"
                rows.append((one, "fetch", fetch.files, None, fetch.requests, fetch.bytes, fetch.bytes, why))
    columns = ["crawl", "step", "files", "row groups", "requests", "bytes at most", "bytes likely", "because"]
    write_rows("what it would cost", columns, rows, output)
    for note in notes:
        notice(note)


def _located(question: Question, crawl: str) -> FetchPrice:
    import pyarrow as pa

    from cc_pipeline.deliveries.copying import distinct_captures
    from cc_pipeline.records.plan import price_of

    return price_of(distinct_captures(pa.concat_tables(captures_of(question, crawl, PLACE, None, False))))


def _repairable(question: Question, crawl: str, price: LookupPrice) -> Sequence[str]:
    """A note when row groups are read only because they have no key bounds."""
    from cc_pipeline.commoncrawl.target import merge_ranges
    from cc_pipeline.index.catalog.catalog import open_catalog
    from cc_pipeline.index.catalog.price import plan_lookup, unbounded_note

    settings = question.settings
    if price.index != "parquet":
        return ()
    ranges = merge_ranges(keys for target in question.targets for keys in target.ranges)
    with open_catalog(settings.catalog_path) as catalog:
        unbounded = plan_lookup(catalog, crawl, settings.subsets, ranges).unbounded_row_groups
    return [f"{unbounded_note(unbounded)}: cc-pipeline repair --crawl {crawl}"] if unbounded else []


def _known(question: Question, crawl: str) -> FetchPrice | None:
    """The price of captures that earlier runs have located; ``None`` unless every target is."""
    from cc_pipeline.deliveries.copying import distinct_captures
    from cc_pipeline.keys import CAPTURE, PLACE
    from cc_pipeline.records.plan import price_of
    from cc_pipeline.stages.slice import LOCATE, slices_of

    lake = question.workspace.lake
    parts = question.workspace.parts([target.slug for target in question.targets])
    slugs = [part for own in parts.values() for part in own]
    if None in LOCATE.made_from(lake, slices_of(crawl, slugs)).values():
        return None
    columns = list(dict.fromkeys((*CAPTURE, *PLACE)))
    return price_of(distinct_captures(lake.read("captures", {"crawl": crawl, "target": slugs}, columns)))
