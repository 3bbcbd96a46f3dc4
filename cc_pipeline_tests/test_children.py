"""Child processes: what lies in the current folder is never run, and parser processes are told no secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cc_pipeline
from cc_pipeline import children
from cc_pipeline.documents.batch import pool, worker
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.batch.rows import rows_of
from cc_pipeline.documents.batch.worker import Input, Worker, open_slot, pack, unpack
from cc_pipeline.documents.page import Limits, PageInput, ParseOptions
from cc_pipeline_tests.documents.pages import identity, page
from cc_pipeline_tests.world import NEW, Bucket

PACKAGE = Path(cc_pipeline.__file__).parent
BIN = Path(sys.executable).parent
OPTIONS = ParseOptions(main_content=False, language=False)
#: What starts a process, or hands on a function that does.
STARTERS = re.compile(
    r"\bsubprocess\.(Popen|run|call|check_|get)|\bos\.(system|popen|fork|exec|spawn|posix_spawn)|ProcessPoolExecutor"
    r"|create_subprocess|\b(import|from) (multiprocessing|pty)\b|from subprocess import|[\"']-m[\"']"
)


def test_processes_are_started_in_one_place() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert [name for name, source in sources.items() if STARTERS.search(source)] == ["children.py"]


def test_nothing_that_a_parser_process_says_is_unpickled() -> None:
    for module in (pool, worker):
        source = Path(str(module.__file__)).read_text("utf-8")
        assert "pickle.load" not in source and ".recv()" not in source


#: A module that says that it was run, and then breaks.
TRAP = "import os\nopen(os.path.join({folder!r}, {name!r} + '.ran'), 'w').close()\nraise SystemExit('a trap was run')\n"
#: Modules of ours and of others that children import.
OTHERS = ("sitecustomize", "usercustomize", "cc_pipeline", "pyarrow", "selectolax", "lxml", "dagster", "numpy", "yaml")


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with a module for each of the standard library's, and more that Python would take from there."""
    folder = tmp_path / "traps"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *OTHERS):
        (folder / f"{name}.py").write_text(TRAP.format(folder=str(folder), name=name), "utf-8")
    code = f"import os; open(os.path.join({str(folder)!r}, 'pth.ran'), 'w').close()\n"
    (folder / "trap.pth").write_text(code, "utf-8")
    return folder


def ran(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ran"))


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_", "PYTHON"))
    }
    return kept | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CC_PIPELINE_WORKERS": "1"} | more


def command(folder: Path, env: dict[str, str], *words: object) -> str:
    done = subprocess.run(
        [str(BIN / "cc-pipeline"), *map(str, words)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.process
def test_a_run_and_a_page_from_a_folder_of_traps(bucket: Bucket, tmp_path: Path, traps: Path) -> None:
    places = ("--source", bucket[0], "--home", tmp_path / "home")
    command(traps, environment(tmp_path), "run", "-c", NEW, "example.com", *places)
    url = next(one.url for one in bucket[1].captures_of(NEW, domain="example.com", subset="warc") if one.kind == "html")
    assert command(traps, environment(tmp_path), "get", url, "--format", "text", "--source", bucket[0])
    assert ran(traps) == []


#: What a notebook does: the current folder is on the path, and so is that of a person's own modules.
NOTEBOOK = """
import sys
sys.path.append(sys.argv[2])
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.page import PageInput, ParseOptions
from cc_pipeline_tests.documents.pages import identity
sys.path[:0] = ["", sys.argv[1]]
page = PageInput("CC-MAIN-2024-22", "warc", "http://a.example/", payload=b"<title>T</title>", http_status=200)
[rows] = parse_batches([[page]], ParseOptions(), 1, identity)
assert rows["page_metadata"].to_pylist()[0]["content"]["title"] == "T"
"""


def test_parsing_from_a_folder_of_traps_and_with_it_on_the_path(tmp_path: Path, traps: Path) -> None:
    script = [sys.executable, "-P", "-c", NOTEBOOK, str(traps), str(PACKAGE.parent)]
    done = subprocess.run(script, cwd=traps, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ran(traps) == []


def told_its_environment(item: PageInput, failure: str | None = None) -> Input:
    """A reader that tells what the process that parses knows."""
    known = {**os.environ, "sys.path": os.pathsep.join(sys.path), "cwd": os.getcwd()}
    return replace(item, server_ip=json.dumps(known))


def test_a_parser_process_knows_no_secret_and_not_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secrets = ("AWS_SECRET_ACCESS_KEY", "CC_PIPELINE_WEBHOOK", "PGPASSWORD", "HTTPS_PROXY", "MY_TOKEN")
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path), str(libraries), "libraries"]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (found,) = parse_batches([[page("a")]], replace(OPTIONS, limits=Limits(seconds=29)), 1, told_its_environment)
    [row] = found["page_metadata"].to_pylist()
    known = json.loads(row["server_ip"])
    assert known["PYTHONSAFEPATH"] == "1"
    assert not {*known} & {*secrets, "PYTHONPATH"}
    assert "secret" not in known.values()
    path = known["sys.path"].split(os.pathsep)
    assert str(tmp_path) not in path and "" not in path
    assert path[-1] == str(libraries)
    assert known["cwd"] != str(tmp_path)


def test_other_children_keep_what_is_set_but_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/srv/modules", "here"]))
    whole = children.whole_environment({"NAME": "value"})
    assert (whole["PYTHONPATH"], whole["PYTHONSAFEPATH"], whole["NAME"]) == ("/srv/modules", "1", "value")
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    assert "PYTHONPATH" not in children.whole_environment()


def test_a_process_that_opens_a_remote_lake_knows_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("AWS_PROFILE", "SSL_CERT_FILE", "ALL_PROXY", "all_proxy", "https_proxy", "NO_PROXY")
    for name in ways:
        monkeypatch.setenv(name, "way")
    assert {*ways} <= children.neutral_environment(*children.REMOTE).keys()
    assert not {*ways} & children.neutral_environment().keys()


def test_a_command_leaves_the_current_folder_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/srv/modules"]))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/srv/modules", "/usr/lib/python3"])
    children.isolate_descendants()
    assert sys.path == ["/srv/modules", "/usr/lib/python3"]
    assert (os.environ["PYTHONPATH"], os.environ["PYTHONSAFEPATH"]) == ("/srv/modules", "1")


def packed(*markup: str) -> tuple[int, list[int]]:
    slot = open_slot()
    return slot, pack(slot, rows_of([page(text) for text in markup], OPTIONS, identity))


def test_an_answer_that_is_no_rows_is_refused() -> None:
    slot, lengths = packed("<title>a</title>", "<a href=/b>b</a>")
    assert unpack(slot, lengths, 1 << 30, 2)["page_metadata"].num_rows == 2
    swapped = [lengths[1], lengths[0], *lengths[2:]]
    for wrong, limit, pages in (
        ([-1, *lengths[1:]], 1 << 30, 2),
        ([lengths[0] + (1 << 40), *lengths[1:]], 1 << 62, 2),
        (lengths, sum(lengths) - 1, 2),
        (lengths, 1 << 30, 1),
        (swapped, 1 << 30, 2),
        ([0] * len(lengths), 1 << 30, 2),
    ):
        with pytest.raises(ValueError):
            unpack(slot, wrong, limit, pages)


def test_damaged_streams_are_refused_or_valid_rows() -> None:
    """Each byte of a stream turned, as a process may do that a page has taken over."""
    slot, lengths = packed("<title>a</title><p>text <a href=/b>b</a>")
    whole = os.pread(slot, sum(lengths), 0)
    refused = 0
    for at in range(0, len(whole), 31):
        os.pwrite(slot, bytes([whole[at] ^ 0xFF]), at)
        try:
            rows = unpack(slot, lengths, 1 << 30, 1)
        except ValueError:
            refused += 1
        else:
            for table in rows.values():
                with suppress(OverflowError):  # a time beyond Python's years
                    table.to_pylist()
        os.pwrite(slot, whole[at : at + 1], at)
    assert refused > 30


def test_a_process_that_answers_nonsense_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lying(Worker):
        lied = False

        def receive(self) -> dict[str, Any] | None:
            if not Lying.lied:
                Lying.lied = True
                os.pwrite(self._slots[self._numbers[0]], b"\xff" * 64, 0)
            return super().receive()

    pool.end()
    monkeypatch.setattr(pool, "Worker", Lying)
    (found,) = parse_batches([[page("<title>a</title>")]], OPTIONS, 1, identity)
    [row] = found["page_metadata"].to_pylist()
    assert (row["content"]["title"], row["flags"]) == ("a", None)
    pool.end()


class _Growing(tuple[tuple[str, str], ...]):
    def __iter__(self):
        kept = []
        while True:
            kept.append(b"x" * (32 << 20))


def grows(item: PageInput, failure: str | None = None) -> Input:
    """A reader of pages that take more memory, while they are parsed, than a parser process may have."""
    if failure is None and item.payload == b"grow":
        return replace(item, http_headers=_Growing())
    return identity(item, failure)


#: The system's bounds on a process away, as on macOS.
WITHOUT = """
import os, resource, sys
if hasattr(os, "sched_getaffinity"):
    del os.sched_getaffinity
if hasattr(os, "memfd_create"):
    del os.memfd_create
def refuse(*_):
    raise ValueError("no such bound here")
resource.setrlimit = refuse
from cc_pipeline.documents.batch.serve import bound
bound(resource.RLIMIT_DATA, 1 << 40)
from cc_pipeline.processes import usable_cores
assert usable_cores() == os.cpu_count()
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.page import PageInput, ParseOptions
from cc_pipeline_tests.documents.pages import identity
page = PageInput("CC-MAIN-2024-22", "warc", "http://a.example/", payload=b"<title>T</title>", http_status=200)
[rows] = parse_batches([[page]], ParseOptions(), 1, identity)
assert rows["page_metadata"].to_pylist()[0]["content"]["title"] == "T"
"""


def test_it_works_where_the_system_has_no_such_bounds() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.process
@pytest.mark.parametrize("told", [1 << 30, 1 << 40], ids=["by the system", "by its parent"])
def test_a_page_that_takes_too_much_memory_is_a_row(monkeypatch: pytest.MonkeyPatch, told: int) -> None:
    """A process that is told a bound that it never meets is ended by its parent."""
    plain = children.python_command
    monkeypatch.setattr(
        worker.children,
        "python_command",
        lambda program, limit, *rest, **more: plain(program, told, *rest, **more),
    )
    monkeypatch.setattr(pool, "_WATCH_SECONDS", 0.05)
    readable = pool._readable
    # as if others answered all the time
    monkeypatch.setattr(pool, "_readable", lambda busy: {*readable(busy), None})
    # no worker of another test
    options = replace(OPTIONS, limits=Limits(memory_bytes=1 << 30, links=told >> 20))
    (first, second) = _metadata(parse_batches([[page("<title>a</title>"), page("grow")]], options, 1, grows))
    assert first["content"]["title"] == "a"
    assert second["failure_detail"] == f"more than {1 << 30:,} bytes of memory"


def _metadata(parts: Iterable[pool.RecordBatches]) -> list[dict[str, Any]]:
    return [row for part in parts for row in part["page_metadata"].to_pylist()]


def test_what_a_process_uses_is_known_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, processor_time = children.usage_of(os.getpid())
    assert memory > 10 << 20 and processor_time
    monkeypatch.setattr(children, "_PROC", "/nowhere/{}")
    same_memory, processor_time = children.usage_of(os.getpid())
    assert same_memory == pytest.approx(memory, rel=0.5) and processor_time
    assert children.usage_of(2**22 + 1) == (0, "")
