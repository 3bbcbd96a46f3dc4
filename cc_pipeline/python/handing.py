"""Pages about targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cc_pipeline.errors import UserInputError
from cc_pipeline.python.meaning import lines_meant
from cc_pipeline.settings import Settings


def reports(
    settings: Settings, targets: Sequence[str], out: Path | None = None, between: tuple[str, str] | None = None
) -> Iterator[Path]:
    """Writes a page about each target (to ``out``, or into the home), and gives their paths as they are written.
    ``between`` are the two crawls whose changes it tells in words, by default the last two. Raises ``UserInputError``
    for a target that was not run here, and for one ``out`` of several; ``EnvironmentFault`` where nothing was
    published."""
    from cc_pipeline.commoncrawl.target_text import slug_meant
    from cc_pipeline.publish.report import report_path, write_report

    meant = {slug_meant(text): text for text in lines_meant(targets)}
    if out is not None and len(meant) > 1:
        raise UserInputError("--out names one file, and there are several targets; leave it out, or name one target")
    for slug, text in meant.items():
        path = out or report_path(settings, slug)
        write_report(settings, slug, path, named=text, between=between)
        yield path
