"""Reports from Python; the function takes a home (``cc_pipeline.open``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cc_pipeline.api.facade import public
from cc_pipeline.errors import UserInputError

if TYPE_CHECKING:
    from cc_pipeline.api.home import Home
    from cc_pipeline.settings import Settings


@public
def report(
    home: Home,
    targets: str | Sequence[str],
    out: str | Path | None = None,
    between: tuple[str, str] | None = None,
) -> list[Path]:
    """Writes a page about each target (an HTML file: ``out``, by default in the home) and returns their paths.
    ``between`` are the two crawls whose changes the page describes (default: the last two).

    Raises ``UserInputError`` for a target that was not run here, and for one ``out`` with several targets.
    """
    from cc_pipeline.api.reporter import use_reporter

    target_texts = [targets] if isinstance(targets, str) else list(targets)
    with use_reporter(home.reporter):
        return list(reports(home.settings, target_texts, None if out is None else Path(out), between))


def reports(
    settings: Settings, targets: Sequence[str], out: Path | None = None, crawl_pair: tuple[str, str] | None = None
) -> Iterator[Path]:
    """Writes a page about each target (to ``out``, or into the home), and yields each path when it is written.
    ``crawl_pair`` are the two crawls whose changes the page describes, by default the last two. Raises
    ``UserInputError`` for a target that was not run here, and for one ``out`` with several targets;
    ``EnvironmentFault`` if nothing was published.
    """
    from cc_pipeline.api.user_input import expand_lists
    from cc_pipeline.commoncrawl.target_text import parse_slug
    from cc_pipeline.extensions.reports.page import report_path, write_report

    texts_by_slug = {parse_slug(text): text for text in expand_lists(targets)}
    if out is not None and len(texts_by_slug) > 1:
        raise UserInputError("out names one file, and there are several targets; leave it out, or name one target")
    for slug, text in texts_by_slug.items():
        path = out or report_path(settings, slug)
        write_report(settings, slug, path, target_text=text, crawl_pair=crawl_pair)
        yield path
