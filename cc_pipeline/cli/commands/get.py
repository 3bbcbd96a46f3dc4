"""``get``: one page as it was captured nearest to a date, with no home and no harvest beforehand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cc_pipeline.api.lookups import find_named_crawls, load_settings_without_home
from cc_pipeline.cli import options
from cc_pipeline.cli.command import EVERYDAY, Command
from cc_pipeline.cli.output import notice, warn, whole_file
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.progress import format_count, human_bytes

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.export.capture_forms import Form
    from cc_pipeline.extraction.nearest_capture import CrawlLookup, Nearest

#: The content of each form, for messages.
_FORM_CONTENTS: dict[Form, str] = {
    "html": "the page",
    "body": "the bytes of the body",
    "text": "its text",
    "markdown": "its text as Markdown",
    "warc": "a gzipped WARC record",
    "record": "the record as archived, gzipped",
    "json": "a JSON object",
}

#: The form of a file's suffix, for a file without --format.
_FORM_BY_SUFFIX: Final[Mapping[str, Form]] = {
    ".md": "markdown",
    ".txt": "text",
    ".json": "json",
    ".warc": "warc",
    ".warc.gz": "warc",
}


def get(
    overrides: Mapping[str, Any],
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of a page.")],
    date: Annotated[
        str | None, typer.Option("--at", help="The capture nearest to this time: 2019, 2019-05, 2019-05-01 …")
    ] = None,
    crawl: options.MaybeCrawls = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="html (UTF-8), markdown or text (its main content), json (texts, headers, "
            "links, the record's location), warc (one gzip member), record (the archive's exact "
            "bytes), body (the body's). Default: by the suffix of --out, or html.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file, not to standard output.")] = None,
    max_crawls: Annotated[
        int, typer.Option("--max-crawls", min=1, help="Maximum crawls to search, the nearest first.")
    ] = 10,
) -> None:
    """Get one page out of the archive: its newest capture, or the one nearest to a date.

    Crawls are searched one after the other, the nearest to the date first, until one has the page. The record is
    verified as in a run. No home is needed. If a home stores the capture, no request is sent.

    [bold]Examples[/]

      cc-pipeline get https://example.com/

      cc-pipeline get example.com/about --at 2019-05 --format markdown

      cc-pipeline get example.com --at 2012 --format warc --out example.warc.gz
    """
    from cc_pipeline.commoncrawl.conditions import period
    from cc_pipeline.export.capture_forms import render_capture, start_parser
    from cc_pipeline.extraction.nearest_capture import NoSuchCapture, find_nearest_capture
    from cc_pipeline.workspace.workspace import open_workspace

    form = _read_form(output, out)
    if out is None and form in ("warc", "record", "body") and sys.stdout.isatty():
        raise UserInputError(f"a terminal cannot show --format {form}; add --out FILE, or pipe the output to a program")
    target, wanted_time = _page_target(url), None if date is None else period(date)
    settings = load_settings_without_home(**overrides)
    start_parser(form)
    with open_workspace(settings) as workspace:
        crawl_ids = find_named_crawls(workspace, crawl)
        try:
            nearest = find_nearest_capture(
                workspace, target, wanted_time, crawls=crawl_ids, max_crawls=max_crawls, on_lookup=_report_lookup
            )
        except NoSuchCapture:
            if workspace.crawl_list.note is not None:
                notice(workspace.crawl_list.note)
            raise
        # a page that is stored here may have been found without the list
        if (crawl_ids is not None or not nearest.stored) and workspace.crawl_list.note is not None:
            notice(workspace.crawl_list.note)
        requests, size = workspace.transport.stats.requests, workspace.transport.stats.bytes
        data, note = render_capture(nearest, form)
        if out is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            with whole_file(out) as temporary_path:
                temporary_path.write_bytes(data)
        _report_capture(nearest, requests, size)
        if out is not None:
            notice(
                f"wrote {out}: {_FORM_CONTENTS[form]} ({nearest.record.declared_mime or 'no type'}), "
                f"{human_bytes(len(data))}"
            )
        if note:
            notice(note)
    if nearest.digest_check == "mismatch":
        warn("the payload has another digest than the index lists, so it may not be exactly what the crawler received")
    if nearest.record.truncated:
        warn(f"the crawler stored only the beginning of the page (truncated: {nearest.record.truncated})")
    if out is not None and not data:
        if form in ("html", "body"):
            raise EnvironmentFault(
                f"{out} is empty: the capture has no body",
                "Get another capture with --at, or the whole record with --format warc.",
            )
        raise EnvironmentFault(f"{out} is empty: no text was found in the page", "Use --format html, body or json.")


def _read_form(form_name: str | None, out: Path | None) -> Form:
    """Returns the form that a person named, or that of the file's suffix, or HTML."""
    if form_name is None:
        name = "" if out is None else out.name.lower()
        return next((form for suffix, form in _FORM_BY_SUFFIX.items() if name.endswith(suffix)), "html")
    form = next((known_form for known_form in _FORM_CONTENTS if known_form == form_name), None)
    if form is None:
        raise UserInputError(f"there is no format {form_name!r}; choose one of {', '.join(_FORM_CONTENTS)}")
    return form


def _page_target(url: str) -> Target:
    from cc_pipeline.commoncrawl.target_text import parse_target

    return parse_target(url if url.strip().lower().startswith("url:") else f"url:{url.strip()}")


def _report_lookup(crawl_lookup: CrawlLookup) -> None:
    if not crawl_lookup.captures:
        notice(f"{crawl_lookup.crawl}: {crawl_lookup.note or 'page not found'}")
    elif crawl_lookup.note:
        notice(f"{crawl_lookup.crawl}: {crawl_lookup.note}")


def _report_capture(nearest: Nearest, requests: int, size: int) -> None:
    from cc_pipeline.extraction.nearest_capture import read_capture_time

    moment = nearest.record.fetch_time or read_capture_time(nearest.row)
    capture_time = f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "at an unknown time"
    cost = "stored in this home" if nearest.stored else f"{format_count(requests, 'request')}, {human_bytes(size)}"
    status = nearest.record.http_status
    notice(
        f"{nearest.record.url or nearest.row['url']} in {nearest.row['crawl']}: captured {capture_time}, status "
        f"{'unknown' if status is None else status}, digest {nearest.digest_check}; {cost}"
    )


_OPTIONS = (options.INDEX, options.SUBSET, options.WAIT, *options.REMOTE)
COMMANDS = {"get": Command(get, EVERYDAY, 40, _OPTIONS)}
