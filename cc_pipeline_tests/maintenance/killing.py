"""Fetches that are killed while another fetch and maintenance run: a program of its own, whose children do all the
work.

It opens no table itself, since the Delta library's threads do not survive a fork. Each child ends with 0, or has
written its traceback to standard error.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.maintenance.maintain import _sweep_records, run_maintenance
from cc_pipeline.processes import this_process
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.extraction.stored import dangling, without_varying
from cc_pipeline_tests.world import NEW, harvest

#: What is killed, what runs beside it and overlaps it, and what both take records over from until its rows go.
KILLED, BESIDE, BEFORE = (
    parse_target(text) for text in ("example.com", "set:both = example.com, example-foo.com", "host:www.example.com")
)
KILLS = 15
#: What each child would import for itself.
SHARED = ("aiohttp", "fsspec", "pandas", "pyarrow.dataset", "pyarrow.pandas_compat", "uvloop", "warcio")
#: What no run leaves behind, below the home.
DEBRIS = (
    ".*.part*",
    "scratch/*",
    "spool/**/*.warc.gz",
    f"lake/records/{NEW}/open/*",
    f"lake/records/{NEW}/.*",
    f"lake/records/{NEW}/*.rows.jsonl",
    f"lake/records/{NEW}/leases/*",
    f"lake/records/{NEW}/leases/.*",
    f"lake/records/{NEW}/superseded/.*",
)


def child(home: Path, url: str, work: Callable[[Workspace], None]) -> int:
    """Does ``work`` in a process of its own; its id."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        with open_workspace(load_settings({}, source=url, home=str(home))) as workspace:
            work(workspace)
        status = 0
    except BaseException:  # a child never goes on as its parent
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(number: int) -> int:
    """Waits for a child; its status, below 0 where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def prepare(workspace: Workspace) -> None:
    harvest(workspace)
    targets = [KILLED, BESIDE, BEFORE]
    workspace.register_targets(targets)
    locate_captures(workspace, NEW, [target.slug for target in targets])
    fetch_captures(workspace, NEW, [BEFORE.slug])
    for path in (workspace.settings.home / "lake" / "records" / NEW).iterdir():
        os.utime(path, (1, 1))
    # another lookup finds none of them any more; the fetch of that is left to each round
    slice_ = Slice(NEW, BEFORE.slug)
    none = workspace.lake.read("captures", slice_.where).slice(0, 0)
    digests = {LOCATE.digest_name(slice_): compute_input_digest({"no captures": True})}
    workspace.lake.commit("captures", none, [slice_.where], digests)


def maintenance(workspace: Workspace, whole: bool) -> None:
    """Ends what the others count on, and leaves no grace to stored records that no fetch holds."""
    fetch_captures(workspace, NEW, [BEFORE.slug])
    for _ in range(3):
        _sweep_records(workspace, 0)
    if whole:
        run_maintenance(workspace, retention_hours=0)


def plain_run(workspace: Workspace) -> None:
    for target in (KILLED, BESIDE, BEFORE):
        fetch_captures(workspace, NEW, [target.slug])
    publish_warehouse(workspace)


def run_and_check(workspace: Workspace, undisturbed: Path) -> None:
    """A plain run after all that; what is committed before it is whole as well."""
    home = workspace.settings.home
    assert dangling(workspace) == [], "rows that were committed name what was swept"
    plain_run(workspace)
    with open_workspace(load_settings({}, source=workspace.settings.source, home=str(undisturbed))) as other:
        wanted = without_varying(other.lake.read("records"))
    found = workspace.lake.read("records")
    assert without_varying(found) == wanted, "the tables are those of the undisturbed run"
    assert dangling(workspace, found) == []
    left = [str(path.relative_to(home)) for pattern in DEBRIS for path in home.glob(pattern) if path.is_file()]
    left += [str(path) for path in (home / "scratch").glob("*") if path.name != this_process()]
    assert left == [], f"debris: {left}"


def disturbed(number: int, folder: Path, url: str, moment: float) -> bool:
    """One round; whether the fetch still ran when it was killed."""
    home = Path(shutil.copytree(folder / "base", folder / f"round-{number}"))
    whole = number % 3 == 0
    beside = [
        child(home, url, lambda workspace: maintenance(workspace, whole)),
        child(home, url, lambda workspace: (fetch_captures(workspace, NEW, [BESIDE.slug]), None)[1]),
    ]
    killed = child(home, url, lambda workspace: (fetch_captures(workspace, NEW, [KILLED.slug]), None)[1])
    time.sleep(moment)
    os.kill(killed, signal.SIGKILL)
    was_killed = ended(killed) == -signal.SIGKILL
    assert [ended(one) for one in beside] == [0, 0]
    assert ended(child(home, url, lambda workspace: run_and_check(workspace, folder / "undisturbed"))) == 0
    shutil.rmtree(home)
    return was_killed


def main(folder: Path, url: str) -> None:
    for name in SHARED:
        import_module(name)
    assert ended(child(folder / "base", url, prepare)) == 0
    shutil.copytree(folder / "base", folder / "undisturbed")
    assert ended(child(folder / "undisturbed", url, plain_run)) == 0
    kills, span = 0, 1.0
    for number in range(2 * KILLS):
        share = (kills + 0.5) / KILLS
        if disturbed(number, folder, url, span * share):
            kills += 1
            # late moments are to be late in the fetch, on a busy machine too
            span *= 1.2 if share > 0.8 else 1.0
        else:
            span *= 0.8
        if kills == KILLS:
            return
    sys.exit(f"only {kills} fetches were killed before they ended")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
