"""Settings of a job on a worker's machine: values from the driver, and credentials from the machine's own environment.

No secret and no value of one machine is sent. A worker's home is a folder in its executor's working folder. It has the
request budget that all processes of the executor share, and files of tasks.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from cc_pipeline.errors import UserInputError
from cc_pipeline.processes import has_ended
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.settings.environment import PREFIX, text_in
from cc_pipeline.settings.source_addresses import normalise_root
from cc_pipeline.transport.rate_limiter import WAIT
from cc_pipeline.workspace.workspace import Workspace

#: Variables with the user's identity at the source.
_IDENTITY_VARIABLES: Final = frozenset({f"{PREFIX}SOURCE_USER", f"{PREFIX}SOURCE_PASSWORD", f"{PREFIX}SOURCE_QUERY"})
_FOLDER: Final = "cc-pipeline"


def read_job_settings(settings_texts: Mapping[str, str], home: Path) -> Settings:
    """The settings of a job on this machine: ``settings_texts`` are texts by the names of their variables without the
    prefix (``settings/reading.py``). From this machine's environment, only credentials are used. Raises
    ``UserInputError``.
    """
    environ = {
        name: text for name, text in os.environ.items() if not name.startswith(PREFIX) or name in _IDENTITY_VARIABLES
    }
    environ |= {f"{PREFIX}{name}": text for name, text in settings_texts.items()}
    machine_source = text_in(os.environ, "SOURCE")
    # the same source, perhaps with credentials in its address
    if machine_source is not None and normalise_root(machine_source) == settings_texts.get("SOURCE"):
        environ[f"{PREFIX}SOURCE"] = machine_source
    return load_settings(environ, home=str(home))


@contextmanager
def open_task_workspace(settings_texts: Mapping[str, str], workers: int) -> Iterator[Workspace]:
    """Opens the workspace of one task: locations and budget, no tables. ``workers`` is how many executors share the
    limits of the source.

    Raises ``UserInputError`` if the number of workers is not known, since every worker would then use the whole rate.
    """
    if workers < 1:
        raise UserInputError(
            "the number of workers is not set, so a worker does not know its share of the request rate"
        )
    home = _executor_folder()
    # Each executor has its own share of the budget, also if one machine has several executors.
    settings = replace(read_job_settings(settings_texts, home), budget=str(home / "budget.sqlite"))
    # A cluster waits less long than a user.
    wait = None if settings.wait is None else min(settings.wait, WAIT)
    workspace = Workspace(replace(settings, rate_shares=workers, wait=wait))
    _clear(home / "scratch")
    try:
        yield workspace
    finally:
        workspace.close()


def storage_in(workspace: Workspace, folder: Path) -> RecordStorage:
    """The stored records of the lake, with open files in ``folder``, which is deleted with the task."""
    return RecordStorage(workspace.place, spool=folder)


def _executor_folder() -> Path:
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
    # All tasks of the process use one folder: a new one would have a full budget.
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}-")).resolve()


def _clear(scratch: Path) -> None:
    """Deletes the scratch folders of killed processes."""
    for path in scratch.iterdir() if scratch.is_dir() else ():
        if has_ended(path.name) is True:
            shutil.rmtree(path, ignore_errors=True)
