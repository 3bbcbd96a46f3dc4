"""``doctor --live``: what a source is like now, a line a step and a line an assumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cc_pipeline.cli.output import coloured, console, whole_file
from cc_pipeline.progress import human_bytes
from cc_pipeline.settings import Settings

if TYPE_CHECKING:
    from cc_pipeline.stages.reports.live import Step

_OUTCOMES = {"done": ("ok  ", "green"), "skipped": ("note", "yellow"), "failed": ("bad ", "red")}
_HELD = {True: ("held        ", "green"), False: ("did not hold", "red"), None: ("not seen    ", "yellow")}


def look(settings: Settings, answers: Path | None) -> None:
    """Looks at the source and prints what came of it; writes all answers to the file ``answers``. Ends the command with
    status 1 where a step failed."""
    from cc_pipeline.stages.reports.live import look_live

    found = look_live(settings, told=_tell)
    for one in found.verdicts:
        evidence = f" ({one.evidence})" if one.evidence else ""
        console.print(coloured(_HELD[one.held], " ", (f"{one.name:<14}", "bold"), f" {one.says}{evidence}"))
    console.print(
        f"{found.requests} of at most {found.most} requests to {found.source}, {human_bytes(found.bytes)}, "
        f"{found.seconds:.0f} s",
    )
    if answers is not None:
        with whole_file(answers) as beside:
            beside.write_text(json.dumps(found.as_json(), indent=1) + "\n", encoding="utf-8")
    if found.failed:
        raise typer.Exit(1)


def _tell(step: Step) -> None:
    outcome = "skipped: " if step.outcome == "skipped" else ""
    console.print(coloured(_OUTCOMES[step.outcome], " ", (f"{step.name:<10}", "bold"), f" {outcome}{step.text}"))
