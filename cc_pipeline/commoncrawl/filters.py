"""Conditions on captures besides the target: time, status, MIME type, language.

An index may lack a value that a filter needs. Such rows stay, and the filter's name is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.crawls import has
from cc_pipeline.errors import UserInputError

_TIME = re.compile(r"(\d{4})-?(?:(\d\d)-?(?:(\d\d)(?:[T ]?(\d\d):?(?:(\d\d):?(\d\d)?)?)?)?)?Z?")
_STATUS = re.compile(r"[1-9]\d\d|[1-9]xx")
_MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/(?:\*|[a-z0-9][a-z0-9!#$&^_.+-]*)")
_LANGUAGE = re.compile(r"[a-z]{3}")


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that must all hold. An empty condition accepts every capture.

    ``from_time`` is inclusive and ``to_time`` exclusive, both aware UTC. ``mimes`` may end in ``/*``. ``languages``
    are ISO 639-3 codes, one of which must be among those of a page.
    """

    from_time: datetime | None = None
    to_time: datetime | None = None
    statuses: frozenset[int] = frozenset()
    mimes: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        *,
        from_time: str | None = None,
        to_time: str | None = None,
        status: str | None = None,
        mime: str | None = None,
        language: str | None = None,
    ) -> Filters:
        """From what a person types; lists are comma-separated.

        Times are ``2018``, ``2018-05``, ``2018-05-01``, ``2018-05-01T12:30`` or 4 to 14 digits, in UTC; ``to_time``
        includes the whole year, month, day … it names. Statuses are ``200`` or ``3xx``.
        Raises ``UserInputError`` with a reason.
        """
        filters = cls(
            from_time=_period(from_time)[0] if from_time else None,
            to_time=_period(to_time)[1] if to_time else None,
            statuses=frozenset(number for item in _items(status) for number in _statuses(item)),
            mimes=tuple(_checked(item, _MIME, "a MIME type, such as text/html or image/*") for item in _items(mime)),
            languages=tuple(
                _checked(item, _LANGUAGE, "a language; use ISO 639-3 codes such as eng, deu, zho")
                for item in _items(language)
            ),
        )
        if filters.from_time and filters.to_time and filters.from_time >= filters.to_time:
            raise UserInputError(f"the first time, {from_time}, is after the last, {to_time}, so nothing can match")
        return filters

    def apply(self, table: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
        """The rows of a capture table that may be meant, and the names of the filters (``time``, ``status``,
        ``mime``, ``language``) that could not be answered for some of these rows."""
        unsure: list[tuple[str, pa.Array]] = []
        keep: pa.Array | None = None
        for name, holds in self._conditions(table):
            unknown = pc.is_null(holds)
            unsure.append((name, unknown))
            mask = pc.fill_null(holds, True)
            keep = mask if keep is None else pc.and_(keep, mask)
        if keep is None:
            return table, ()
        unanswered = dict.fromkeys(name for name, mask in unsure if pc.any(pc.and_(mask, keep)).as_py())
        return table.filter(keep), tuple(unanswered)

    def _conditions(self, table: pa.Table) -> list[tuple[str, pa.Array]]:
        """For each filter whether it holds, row by row; null where the index does not say."""
        conditions: list[tuple[str, pa.Array]] = []
        if self.from_time is not None:
            at_least = pa.scalar(self.from_time, TIMESTAMP)
            conditions.append(("time", pc.greater_equal(table["fetch_time"], at_least)))
        if self.to_time is not None:
            conditions.append(("time", pc.less(table["fetch_time"], pa.scalar(self.to_time, TIMESTAMP))))
        if self.statuses:
            status = table["fetch_status"]
            known = pc.if_else(pc.greater(status, 0), status, None)  # -1 stands for a missing status
            wanted = pc.is_in(known, pa.array(sorted(self.statuses), pa.int16()))
            conditions.append(("status", pc.if_else(pc.is_valid(known), wanted, pa.scalar(None, pa.bool_()))))
        if self.mimes:
            mime = pc.utf8_lower(pc.coalesce(table["content_mime_detected"], table["content_mime_type"]))
            pattern = "|".join(re.escape(one).replace(r"/\*", "/.*") for one in self.mimes)
            conditions.append(("mime", pc.match_substring_regex(mime, f"^(?:{pattern})(?:[ ;]|$)")))
        if self.languages:
            spoken = table["content_languages"]
            holds = pc.match_substring_regex(spoken, f"(?:^|,)(?:{'|'.join(self.languages)})(?:,|$)")
            conditions.append(("language", pc.fill_null(holds, False) if _says_languages(table) else holds))
        return conditions


def _says_languages(table: pa.Table) -> bool:
    """Whether a missing language means that the crawler found none, and not that languages are unknown.

    Newer crawls detect languages, but a B-tree does not have them, and a reader may have left the column out. So a
    missing language counts as "none found" only in a table that names a language for some rows.
    """
    crawl = table["crawl"][0].as_py() if table.num_rows else ""
    return has(crawl, "content_languages") is not False and table["content_languages"].null_count < table.num_rows


def _items(text: str | None) -> list[str]:
    return [item.strip().lower() for item in (text or "").split(",") if item.strip()]


def _checked(item: str, pattern: re.Pattern[str], what: str) -> str:
    if not pattern.fullmatch(item):
        raise UserInputError(f"{item[:80]!r} is not {what}")
    return item


def _statuses(item: str) -> range:
    _checked(item, _STATUS, "an HTTP status; write 200 or 3xx")
    first = int(item.replace("x", "0"))
    return range(first, first + 100 if item.endswith("xx") else first + 1)


def _period(text: str) -> tuple[datetime, datetime]:
    """First moment of the year, month, day, hour, minute or second that ``text`` names, and the first one after."""
    match = _TIME.fullmatch(text.strip().upper())
    given = [int(part) for part in match.groups() if part is not None] if match else []
    year, month, day, hour, minute, second = (*given, *(0, 1, 1, 0, 0, 0)[len(given) :])
    try:
        begin = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if len(given) == 1:
            return begin, begin.replace(year=year + 1)
        if len(given) == 2:
            return begin, (begin + timedelta(days=31)).replace(day=1)
        units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))
        return begin, begin + units[len(given) - 3]
    except (ValueError, OverflowError) as fault:
        raise UserInputError(f"{text[:80]!r} is not a time; write 2018, 2018-05-01 or 2018-05-01T12:30") from fault
