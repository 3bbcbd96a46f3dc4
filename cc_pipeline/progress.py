"""Progress of long work. Stages report it; the command line or Dagster's log shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

#: ``(stage, done, total, detail)``; ``total`` is ``None`` while unknown.
ProgressSink = Callable[[str, int, int | None, str], None]


def _silent(stage: str, done: int, total: int | None, detail: str) -> None:
    del stage, done, total, detail


# a list, so that swapping the sink needs no global statement
_sinks: list[ProgressSink] = [_silent]


def report(stage: str, done: int, total: int | None = None, detail: str = "") -> None:
    """Reports progress to the current sink, if any."""
    _sinks[-1](stage, done, total, detail)


#: The stage of waiting for a source: ``done`` are the seconds left, and an empty detail means that it has ended.
WAITING = "waiting"
_STATUS_PAGE = "status.commoncrawl.org"


def report_refusal(host: str, reason: str, seconds_left: float, until: str) -> None:
    """Reports that no request is sent to ``host`` for ``seconds_left`` seconds, ``until`` a time in words, and what to
    do."""
    is_common_crawls = host.endswith(".commoncrawl.org") or host.startswith("commoncrawl.s3.")
    hint = f"; see {_STATUS_PAGE}" if is_common_crawls else ""
    report(
        WAITING,
        round(seconds_left),
        None,
        f"{host} accepts no requests now ({reason}): next try in {seconds_left:.0f} s, at {until}. "
        f"A run that is stopped keeps what it has fetched{hint}",
    )


def report_busy_home() -> None:
    """Reports that this job waits for another job of the home. ``end_wait`` follows when it is this job's turn."""
    report(WAITING, 0, None, "another job of this home uses the request rate; this job starts when that job ends")


def end_wait() -> None:
    """Reports that a wait has ended."""
    report(WAITING, 0)


def set_fallback_sink(sink: ProgressSink) -> None:
    """Sets the sink that is used while no other is set."""
    _sinks[0] = sink


def human_bytes(count: float) -> str:
    """Formats a number of bytes for people, e.g. ``1.4 MB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def list_first(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Joins the first ``most`` texts, and tells how many more there are: ``a, b and 3 more``."""
    remainder = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + remainder


def format_count(number: int, noun: str, verb: str = "") -> str:
    """Formats a number with its noun, e.g. ``1 row``, ``2,000 rows``. ``verb`` is the plural of a verb that follows:
    ``are`` gives ``1 row is`` and ``2 rows are``."""
    if number == 1:
        verb = _SINGULAR_VERBS.get(verb, f"{verb}s") if verb else ""
    else:
        noun += "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number:,} {noun} {verb}".rstrip()


#: Verbs whose singular is not their plural with an s.
_SINGULAR_VERBS = {"are": "is", "were": "was", "have": "has"}


def someone_watches() -> bool:
    """Whether a sink other than the fallback is set."""
    return len(_sinks) > 1


@contextmanager
def progress_to(sink: ProgressSink) -> Iterator[None]:
    """Sends progress to ``sink`` while the block runs, for all threads of this process."""
    _sinks.append(sink)
    try:
        yield
    finally:
        _sinks.remove(sink)
