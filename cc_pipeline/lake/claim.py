"""The note of a lake that lies apart from any home: whose tables it holds, in which layout, made with which settings.

Several homes may work on one lake if they have the same source. The first writes the note, with a put that only one
can win; the others read it. The layout of the lake is that of its tables, whatever a home's own note says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import shown
from cc_pipeline.errors import EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.home import LAKE_NOTE, HomeNote, as_written, parsed, read_note, refuse_unknown_layout, write_note
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

_LONGEST: Final = 64 * 1024


def claim_lake(lake: Transport, home: Path, source: str) -> None:
    """Writes the lake's note where there is none, and lets ``home``, which has a note, follow the lake's layout.

    Raises ``UserInputError`` for a lake of another source; ``UnknownLayout`` for a lake of another layout;
    ``EnvironmentFault`` for a note that is none, and when the place cannot be read or written.
    """
    mine = read_note(home)
    assert mine is not None
    noted = _read(lake)
    if noted is None:
        _write(lake, HomeNote(source, mine.layout, mirrors=_others(mine, source)), only_if_absent=True)
        # another home may have been first, also at a server that does not keep conditional puts
        noted = _read(lake) or mine
    if noted.source not in (shown(source), *map(shown, mine.places)) and shown(source) not in noted.places:
        raise UserInputError(
            f"the lake {lake.source} holds tables of {noted.source}, not of {shown(source)}. Set CC_PIPELINE_LAKE to "
            "another place for this source, or work on that lake with a home of its source"
        )
    refuse_unknown_layout(f"the lake {lake.source}", noted)
    if noted.layout != mine.layout:
        # migrated by another home, or not yet migrated although this home was, with another lake
        write_note(home, replace(mine, layout=noted.layout))


def note_layout(lake: Transport, home: Path, source: str) -> None:
    """Writes down that the lake's tables have the layout of ``home``, which has just migrated them."""
    mine, noted = read_note(home), _read(lake)
    assert mine is not None
    chosen = noted.chosen if noted is not None else {}
    _write(lake, HomeNote(source, mine.layout, chosen, mirrors=_others(mine, source)))


def agree(lake: Transport, values: Mapping[str, str | bool], *, anew: bool = False) -> None:
    """Notes settings that the lake's rows are made with (of ``settings.CHOICES``): the first home's, or ``anew`` these.

    Raises ``UserInputError`` where others are noted: homes with different ones would parse each other's pages again and
    again. A lake without a note is left alone.
    """
    noted = _read(lake)
    if noted is None:
        return
    others = {name: value for name, value in noted.chosen.items() if values.get(name, value) != value}
    if others and not anew:
        theirs = " ".join(f"{name}={as_written(value)}" for name, value in others.items())
        raise UserInputError(
            f"all homes of the lake {lake.source} make its rows with {theirs}. Make this home like them: cc-pipeline "
            f"settings {theirs}; or let this home change it with cc-pipeline settings, and then every other one"
        )
    if anew or not values.keys() <= noted.chosen.keys():
        _write(lake, replace(noted, chosen={**noted.chosen, **values}))


def _read(lake: Transport) -> HomeNote | None:
    try:
        data = lake.read_all(LAKE_NOTE, _LONGEST).data
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return None
        raise _refused(lake, "read", fault) from fault
    try:
        return parsed(data, Path(lake.source))
    except ValueError as error:
        raise EnvironmentFault(
            f"{lake.source}/{LAKE_NOTE} does not say whose tables the lake holds",
            "Look at the file: it was not written by cc_pipeline. Delete it if the lake is yours, then run it again.",
        ) from error


def _write(lake: Transport, noted: HomeNote, *, only_if_absent: bool = False) -> None:
    further: dict[str, object] = {"mirrors": list(noted.mirrors)} if noted.mirrors else {}
    further |= {"settings": dict(noted.chosen)} if noted.chosen else {}
    text = json.dumps({"source": shown(noted.source), "layout": noted.layout} | further, indent=1) + "\n"
    try:
        with disk_trouble(Path(lake.source) / LAKE_NOTE):
            lake.put(LAKE_NOTE, text.encode(), only_if_absent=only_if_absent)
    except RangeFault as fault:
        raise _refused(lake, "written", fault) from fault


def _others(mine: HomeNote, source: str) -> tuple[str, ...]:
    return tuple(place for place in map(shown, mine.places) if place != shown(source))


def _refused(lake: Transport, done: str, fault: RangeFault) -> EnvironmentFault:
    return EnvironmentFault(
        f"the lake {lake.source} cannot be {done}: {fault}",
        "Check CC_PIPELINE_LAKE, CC_PIPELINE_LAKE_ENDPOINT and the AWS credentials: this key may not do that there.",
    )
