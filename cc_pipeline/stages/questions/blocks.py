"""What a report is made of: sections, tables, texts by strangers, figures as people read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from cc_pipeline.stages.questions.findings import MOST

_WEEKLY: Final = re.compile(r"CC-MAIN-(?P<year>20\d\d)-(?P<week>\d\d)")
_WEEKS: Final = 52
_TEXT: Final = 160
_ADDRESS: Final = 96
#: Characters of an address that is a link; browsers take few longer ones.
_FOLLOWED: Final = 2_000
_LANGUAGES: Final = {
    **{"eng": "English", "deu": "German", "fra": "French", "spa": "Spanish", "por": "Portuguese", "ita": "Italian"},
    **{"nld": "Dutch", "pol": "Polish", "rus": "Russian", "ukr": "Ukrainian", "ces": "Czech", "tur": "Turkish"},
    **{"jpn": "Japanese", "zho": "Chinese", "kor": "Korean", "ara": "Arabic", "fas": "Persian", "heb": "Hebrew"},
    **{"hin": "Hindi", "vie": "Vietnamese", "tha": "Thai", "ind": "Indonesian", "ell": "Greek", "hun": "Hungarian"},
    **{"swe": "Swedish", "dan": "Danish", "nor": "Norwegian", "fin": "Finnish", "ron": "Romanian", "bul": "Bulgarian"},
}
Cells = Sequence[object]


def section(title: str, words: str, *parts: Markup) -> Markup:
    """A heading, a sentence or two, and what follows; empty parts are left out."""
    return Markup('<section><h2>{}</h2><p class="lede">{}</p>{}</section>').format(
        title,
        words,
        Markup("").join(part for part in parts if part),
    )


def titled(title: str, columns: Sequence[str], rows: Sequence[Cells], total: int) -> Markup:
    """A table below a heading of its own, and how many rows it was cut by; nothing where it has no rows."""
    if not rows:
        return Markup("")
    return Markup("<h3>{}</h3>{}{}").format(title, table(columns, rows), more(total))


def more(total: int) -> Markup:
    """How many rows of ``total`` are not shown."""
    return Markup("<small>{:,} more</small>").format(total - MOST) if total > MOST else Markup("")


def folded(words: str, content: Markup) -> Markup:
    """What is shown on request."""
    return Markup("<details><summary>{}</summary>{}</details>").format(words, content)


def table(heads: Sequence[str], rows: Iterable[Cells]) -> Markup:
    """A table; a head that begins with ``#`` is of a column of figures."""
    figures = [head.startswith("#") for head in heads]
    head = [
        Markup("<th{}>{}</th>").format(Markup(' class="n"' if number else ""), text.removeprefix("#"))
        for text, number in zip(heads, figures, strict=True)
    ]
    lines = [
        Markup("<tr>{}</tr>").format(
            Markup("").join(_cell(value, number) for value, number in zip(row, figures, strict=True))
        )
        for row in rows
    ]
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>').format(
        Markup("").join(head), Markup("\n").join(lines)
    )


def _cell(value: object, number: bool) -> Markup:
    if isinstance(value, int):
        value = f"{value:,}"
    plain = "" if value is None else value
    return Markup('<td class="n">{}</td>' if number else "<td>{}</td>").format(plain)


def clean(value: str) -> str:
    """Without what is no character: controls, and halves of pairs that no encoding can write."""
    return "".join(one for one in value if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cs"))


def text_by(value: str | None, most: int = _TEXT) -> Markup:
    """Text by strangers, cut, in a direction of its own."""
    if not value:
        return Markup("")
    text = " ".join(value[: 4 * most].split())
    return Markup("<bdi>{}</bdi>").format(text if len(text) <= most else text[: most - 1] + "…")


def address(url: str | None) -> Markup:
    """A URL, shortened in its middle; a link where a browser may follow it."""
    if not url:
        return Markup("")
    shown = url.partition("://")[2] or url
    if len(shown) > _ADDRESS:
        shown = f"{shown[: _ADDRESS * 2 // 3]}…{shown[-_ADDRESS // 3 :]}"
    if not url.lower().startswith(("http://", "https://")) or len(url) > _FOLLOWED:
        return text_by(shown)
    return Markup('<a href="{}" rel="noopener noreferrer nofollow"><bdi>{}</bdi></a>').format(url, shown)


def language(code: str | None) -> str:
    """The name of a language, else its code."""
    return "unknown" if code is None else _LANGUAGES.get(code, code[:12])


def count(number: int, noun: str) -> str:
    """A number and what is counted."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(part: float, whole: float) -> str:
    """Whole percents; 100 and 0 only where it is all or nothing."""
    if not whole or part in (0, whole):
        return "100%" if part and part == whole else "0%"
    return (
        f"{min(99.9, max(0.1, 100 * part / whole)):.1f}%"
        if not 1 <= 100 * part / whole <= 99
        else f"{part / whole:.0%}"
    )


def month(moment: datetime | None, *, long: bool = False) -> str:
    """``May 2024``."""
    return "" if moment is None else f"{moment:%B %Y}" if long else f"{moment:%b %Y}"


def crawl_month(crawl: str, *, long: bool = False) -> str:
    """When a crawl was, by its id: ``May 2024`` of CC-MAIN-2024-22, and of the first ones the year.

    Clocks of records are sometimes wrong; a week of the year is not.
    """
    found = _WEEKLY.fullmatch(crawl)
    if found is None or not 1 <= int(found["week"]) <= _WEEKS:
        return crawl.removeprefix("CC-MAIN-")
    return month(datetime.fromisocalendar(int(found["year"]), int(found["week"]), 4), long=long)


def day(moment: Any) -> Markup:
    """``2024-05-18``."""
    return Markup('<span class="t">{}</span>').format("" if moment is None else f"{moment:%Y-%m-%d}")
