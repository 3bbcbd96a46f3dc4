"""Renders the report of a target from ``cc.duckdb`` as one HTML file."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.domains import registered_domain
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.reports.charts import Chart, Column, draw_chart
from cc_pipeline.extensions.reports.findings import MAX_ROWS, Findings, Rows, find_target
from cc_pipeline.lake.published_file import open_bounded
from cc_pipeline.progress import format_count, human_bytes
from cc_pipeline.settings import Settings

_WEEKLY: Final = re.compile(r"CC-MAIN-(?P<year>20\d\d)-(?P<week>\d\d)")
_WEEKS: Final = 52
_TEXT: Final = 160
#: Maximum characters of a changed paragraph; changed paragraphs of a page that are shown at once, and when unfolded.
_PARAGRAPH: Final = 300
_FIRST_LINES: Final = 3
_LINES: Final = 30
#: Maximum paragraphs of a text to compare: the time grows with their square.
_MAX_COMPARED: Final = 2_000
#: Marks a report on the demo, or on any other mini crawl.
INVENTED_WEB: Final = "INVENTED WEB: a crawl generated for the demo; no page in it is real"
#: Maximum days between a crawl's week and a capture of it.
_MAX_DAYS_APART: Final = 60
_ADDRESS: Final = 96
#: Maximum characters of an address that becomes a link; few browsers support longer ones.
_MAX_LINK_CHARACTERS: Final = 2_000
#: Number of languages with a colour of their own; all others share one.
_MAX_COLOURS: Final = 6
_LANGUAGES: Final = {
    **{"eng": "English", "deu": "German", "fra": "French", "spa": "Spanish", "por": "Portuguese", "ita": "Italian"},
    **{"nld": "Dutch", "pol": "Polish", "rus": "Russian", "ukr": "Ukrainian", "ces": "Czech", "tur": "Turkish"},
    **{"jpn": "Japanese", "zho": "Chinese", "kor": "Korean", "ara": "Arabic", "fas": "Persian", "heb": "Hebrew"},
    **{"hin": "Hindi", "vie": "Vietnamese", "tha": "Thai", "ind": "Indonesian", "ell": "Greek", "hun": "Hungarian"},
    **{"swe": "Swedish", "dan": "Danish", "nor": "Norwegian", "fin": "Finnish", "ron": "Romanian", "bul": "Bulgarian"},
}
_OUTCOMES: Final = ("fetched", "pending", "lost")
_CHANGES: Final = ("same", "changed", "new", "gone")


def render_page(findings: Findings, *, is_invented: bool = False) -> str:
    """The HTML text of a report. ``is_invented``: its pages are those of a generated web."""
    page = _template().render(
        invented=INVENTED_WEB if is_invented else "",
        first_lines=_FIRST_LINES,
        found=findings,
        is_site=registered_domain(findings.slug) == findings.slug,
        totals=Counter(findings.totals),
        most=MAX_ROWS,
        held=[row for row in findings.crawls if row["captures"]],
        all_pages=sum(row["new_pages"] for row in findings.crawls),
        planned=sum(row["captures"] for row in findings.outcomes),
        fetched=sum(row["captures"] for row in findings.outcomes if row["outcome"] == "fetched"),
        over_time=_pages_chart(findings),
        changes=_changes(findings),
        when=_month_names(findings, long=True),
        pages_changed=[{**row, "lines": _lines(row)} for row in findings.changed_pages],
        languages=_languages(findings),
        completeness=_completeness(findings),
    )
    return "".join(
        character for character in page if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
    )


@cache
def _template() -> Template:
    # A name in the template that is not defined is an error.
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "comma": lambda number: "" if number is None else f"{number:,}",
        "count": format_count,
        "size": human_bytes,
        "percent": percent,
        "month": lambda moment: "" if moment is None else f"{moment:%b %Y}",
        "day": lambda moment: "" if moment is None else f"{moment:%Y-%m-%d}",
        "paragraph": lambda text: _shorten(text, _PARAGRAPH),
        "cut": _shorten,
        "shortened": _shorten_url,
        "followed": lambda url: url.lower().startswith(("http://", "https://")) and len(url) <= _MAX_LINK_CHARACTERS,
    }
    return environment.get_template("page.html.jinja")


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of pages between crawls, with a chart of consecutive crawls; ``newest`` are the counts of the pair of
    crawls that the page describes.
    """

    chart: Chart | None
    before: str
    after: str
    newest: Counter[str]


@dataclass(frozen=True, slots=True)
class Languages:
    """The most frequent languages (``leading``) with their shares; with a chart and its legend if there is more than
    one language.
    """

    leading: Sequence[tuple[str, str]]
    chart: Chart | None
    legend: Sequence[tuple[str, str]]


def _pages_chart(findings: Findings) -> Chart:
    return draw_chart(
        [
            Column(
                month_of(row["crawl"], row["first_fetch"]),
                f"{row['crawl']}: {row['pages']:,} pages, {row['new_pages']:,} of them new",
                [("known", row["pages"] - row["new_pages"]), ("new", row["new_pages"])],
                f"{row['pages']:,}",
            )
            for row in findings.crawls
        ],
        "Pages by crawl",
    )


def _changes(findings: Findings) -> Changes | None:
    if findings.between is None:
        return None
    pairs: dict[tuple[str, str], Counter[str]] = {}
    for row in findings.changes:
        pairs.setdefault((row["before"], row["after"]), Counter())[row["change"]] = row["pages"]
    month_name = _month_names(findings)
    columns = [
        Column(
            month_name(after),
            f"{before} to {after}: " + ", ".join(f"{counts[kind]:,} {kind}" for kind in _CHANGES),
            [(kind, -counts[kind] if kind == "gone" else counts[kind]) for kind in _CHANGES],
        )
        for (before, after), counts in pairs.items()
    ]
    drawn = draw_chart(columns, "Pages by change") if columns else None
    return Changes(drawn, *findings.between, Counter(findings.became))


def _lines(row: Mapping[str, Any]) -> list[str]:
    """The differing paragraphs of a changed page."""
    if row["change"] != "changed" or row["before_text"] is None or row["after_text"] is None:
        return []
    lines = list(islice(paragraphs_between(row["before_text"], row["after_text"]), _LINES + 1))
    return [*lines[:_LINES], "… and more"] if len(lines) > _LINES else lines


def paragraphs_between(before: str, after: str) -> Iterator[str]:
    """The paragraphs that only one of two texts has, in their order: ``- `` before, ``+ `` after."""
    old, new = _paragraphs(before), _paragraphs(after)
    for kind, before_start, before_end, after_start, after_end in SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal":
            yield from (f"- {paragraph}" for paragraph in old[before_start:before_end])
            yield from (f"+ {paragraph}" for paragraph in new[after_start:after_end])


def _paragraphs(text: str) -> list[str]:
    # a byte order mark is invisible and no word
    lines = [" ".join(line.split()) for line in text.replace("\ufeff", " ").split("\n")]
    return [line for line in lines if line][:_MAX_COMPARED]


def _month_names(findings: Findings, *, long: bool = False) -> Callable[[str], str]:
    """Returns a function that gives the month in which a crawl began to capture the target."""
    first = {row["crawl"]: row["first_fetch"] for row in findings.crawls}
    return lambda crawl: month_of(crawl, first.get(crawl), long=long)


def _languages(findings: Findings) -> Languages | None:
    total: Counter[str | None] = Counter()
    by_crawl: dict[str, Rows] = {}
    for row in findings.languages:
        total[row["language"]] += row["pages"]
        by_crawl.setdefault(row["crawl"], []).append(row)
    if not total:
        return None
    ranked = [language for language, _ in total.most_common() if language is not None]
    leading = [(language_name(language), percent(total[language], sum(total.values()))) for language in ranked[:3]]
    if len(ranked) < 2:
        return Languages(leading, None, ())
    colour = {language: f"c{min(place, _MAX_COLOURS)}" for place, language in enumerate(ranked)}
    bars, month_name = [], _month_names(findings)
    for crawl in [row["crawl"] for row in findings.crawls]:
        crawl_rows = sorted(by_crawl.get(crawl, []), key=lambda language_row: -total[language_row["language"]])
        if pages := sum(language_row["pages"] for language_row in crawl_rows):
            pieces = [
                (colour.get(language_row["language"], "c6"), 100 * language_row["pages"] / pages)
                for language_row in crawl_rows
            ]
            shares_text = ", ".join(
                f"{language_name(language_row['language'])} {language_row['pages']:,}"
                for language_row in crawl_rows[:MAX_ROWS]
            )
            bars.append(Column(month_name(crawl), f"{crawl}: {shares_text}", pieces))
    legend = [(f"c{place}", language_name(language)) for place, language in enumerate(ranked[:_MAX_COLOURS])]
    if len(ranked) > _MAX_COLOURS or None in total:
        legend.append(("c6", "others and unknown"))
    return Languages(leading, draw_chart(bars, "Share of pages by language", percent=True), legend)


def _completeness(findings: Findings) -> list[dict[str, Any]]:
    """For each crawl in which the target was located, oldest first: the number of located captures,
    and their outcomes.
    """
    completeness = {row["crawl"]: row["complete"] for row in findings.lookups}
    located = {row["crawl"]: row["captures"] + row["left_out"] + row["status_unknown"] for row in findings.crawls}
    became = {(row["crawl"], row["outcome"]): row["captures"] for row in findings.outcomes}
    return [
        {
            "crawl": crawl,
            "complete": completeness.get(crawl),
            "located": located.get(crawl, 0),
            "outcomes": [(outcome, became.get((crawl, outcome), 0)) for outcome in _OUTCOMES],
        }
        for crawl in sorted({*completeness, *located})
    ]


def language_name(code: str | None) -> str:
    """The name of a language, or its code if the name is unknown."""
    return "unknown" if code is None else _LANGUAGES.get(code, code[:12])


def percent(part: float, total: float) -> str:
    """A share in whole percents; 100 and 0 only if they are exact."""
    if not total or part in (0, total):
        return "100%" if part and part == total else "0%"
    share = 100 * part / total
    return f"{part / total:.0%}" if 1 <= share <= 99 else f"{min(99.9, max(0.1, share)):.1f}%"


def month_of(crawl: str, captured: datetime | None, *, long: bool = False) -> str:
    """The month of a capture: ``Jan 2018``. A time far from the week in the crawl's id comes from a wrong clock; then,
    and without a capture, it is the month of the crawl's id.
    """
    day = _week_of(crawl)
    if captured is not None and (day is None or abs((captured.replace(tzinfo=None) - day).days) <= _MAX_DAYS_APART):
        day = captured
    if day is None:
        return crawl.removeprefix("CC-MAIN-")
    return f"{day:%B %Y}" if long else f"{day:%b %Y}"


def _week_of(crawl: str) -> datetime | None:
    match = _WEEKLY.fullmatch(crawl)
    if match is None or not 1 <= int(match["week"]) <= _WEEKS:
        return None
    return datetime.fromisocalendar(int(match["year"]), int(match["week"]), 4)


def _shorten(text: str, max_characters: int = _TEXT) -> str:
    words = " ".join(text[: 4 * max_characters].split())
    return words if len(words) <= max_characters else words[: max_characters - 1] + "…"


def _shorten_url(url: str) -> str:
    """A URL without its scheme, shortened in the middle."""
    short_url = url.partition("://")[2] or url
    return (
        short_url if len(short_url) <= _ADDRESS else f"{short_url[: _ADDRESS * 2 // 3]}…{short_url[-_ADDRESS // 3 :]}"
    )


def report_path(settings: Settings, slug: str) -> Path:
    """The path of a target's report in its home."""
    return settings.home / "reports" / f"{slug}.html"


def write_report(
    settings: Settings,
    slug: str,
    path: Path | None = None,
    *,
    target_text: str = "",
    crawl_pair: tuple[str, str] | None = None,
) -> Findings:
    """Writes the report of a target from the published file, and returns its data.

    ``slug`` is the target's key, ``target_text`` the user's text for it; ``crawl_pair`` are the crawls to compare
    (default: the last two that have it). The file is ``path``, by default in the home, and appears complete or not at
    all.

    Raises ``EnvironmentFault`` if nothing was published or if reading or writing fails, ``UserInputError`` for a target
    that was not located.
    """
    report_file = path or report_path(settings, slug)
    try:
        findings = _read_findings(settings, slug, target_text, crawl_pair)
        write_whole(report_file, render_page(findings, is_invented=settings.is_mini_crawl))
    except (duckdb.Error, OSError) as error:
        raise EnvironmentFault(
            f"could not write the report {report_file}: {error}",
            "Check the disk and the lake. The next publication restores missing files of tables.",
        ) from error
    return findings


def _read_findings(settings: Settings, slug: str, target_text: str, crawl_pair: tuple[str, str] | None) -> Findings:
    with open_bounded(settings) as connection:
        return find_target(connection, slug, target_text, crawl_pair)
