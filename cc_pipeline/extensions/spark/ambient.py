"""Settings on machines that are not ours: values from the driver, what lets somebody in from the machine itself.

Nothing secret and nothing of one machine travels. A worker's home is a folder in its executor's own working folder:
it holds the share of the request budget that all processes of the executor have in common, and files of tasks.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from cc_pipeline.errors import UserInputError
from cc_pipeline.processes import is_gone
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.settings.access import own_access
from cc_pipeline.settings.environment import PREFIX, text_in
from cc_pipeline.settings.places import split_places
from cc_pipeline.transport.budget import Opening, take_over
from cc_pipeline.transport.refusals import WAIT
from cc_pipeline.workspace.workspace import Workspace

#: Variables that say who somebody is at the source.
_WHO: Final = frozenset(
    {f"{PREFIX}SOURCE_USER", f"{PREFIX}SOURCE_PASSWORD", f"{PREFIX}SOURCE_QUERY", f"{PREFIX}SOURCE_HOST"}
)
_FOLDER: Final = "cc-pipeline"


def settings_here(settings_texts: Mapping[str, str], home: Path) -> Settings:
    """The settings of a job on this machine: ``settings_texts`` are texts by the names of their variables without the prefix
    (``settings/reading.py``). Of this machine's environment only what lets somebody in counts. Raises
    ``UserInputError``."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX) or name in _WHO}
    environ |= {f"{PREFIX}{name}": text for name, text in settings_texts.items()}
    machine_source = text_in(os.environ, "SOURCE")
    # the same places, perhaps with credentials in their addresses
    if machine_source is not None and _places(machine_source) == _places(settings_texts.get("SOURCE", "")):
        environ[f"{PREFIX}SOURCE"] = machine_source
    return load_settings(environ, home=str(home))


def _places(text: str) -> list[str]:
    return [*own_access(split_places(text))]


@contextmanager
def at_work(
    settings_texts: Mapping[str, str], workers: int, open_breakers: Collection[Opening] = ()
) -> Iterator[Workspace]:
    """The workspace of one task: places and budget, no tables. ``workers`` is how many executors share the source with
    whoever has started the job, ``open_breakers`` are the circuit breakers that opened elsewhere.

    Raises ``UserInputError`` where that is not known, since every worker would then ask as if it were alone.
    """
    if workers < 1:
        raise UserInputError("a worker does not start without the number of workers: it would not know its share")
    home = _own_folder()
    # a share of the budget is each executor's own, and what executors of one machine send together are their shares
    settings = replace(settings_here(settings_texts, home), budget=str(home / "budget.sqlite"))
    # a cluster does not wait for as long as a person
    wait = None if settings.wait is None else min(settings.wait, WAIT)
    # one share stays at home, where runs may go on beside the job; of leases whoever asks has some
    workspace = Workspace(replace(settings, hosts=settings.hosts * (workers + 1), wait=wait))
    take_over(settings.budget_path, open_breakers)
    _clear(home / "scratch")
    try:
        yield workspace
    finally:
        workspace.close()


def storage_in(workspace: Workspace, folder: Path) -> RecordStorage:
    """The stored records of the lake, with open files in ``folder``, which goes with the task."""
    return RecordStorage(workspace.place, spool=folder)


def _own_folder() -> Path:
    for base in (Path.cwd(), Path(tempfile.gettempdir())):
        folder = base / _FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder.resolve()
    return _folder_of_this_process()


@cache
def _folder_of_this_process() -> Path:
    # one for all its tasks: each new one would begin with a whole budget, and know of no breaker
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}-")).resolve()


def _clear(scratch: Path) -> None:
    """Deletes what tasks left here whose process was killed."""
    for path in scratch.iterdir() if scratch.is_dir() else ():
        if is_gone(path.name) is True:
            shutil.rmtree(path, ignore_errors=True)
