"""What is written appears whole or not at all, and what a killed writer leaves is known by its name."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cc_pipeline.atomic import folder_written_whole, parse_leftover_name, write_whole, written_whole
from cc_pipeline.processes import has_ended, this_process


def test_a_file_takes_the_place_of_another_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept.json"
    write_whole(path, "ü", durable=True)
    with written_whole(path) as beside:
        beside.write_bytes(b"after")
        assert path.read_text("utf-8") == "ü"
    assert path.read_bytes() == b"after"
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path, folder = tmp_path / "kept.db", tmp_path / "kept"
    write_whole(path, b"before")
    with pytest.raises(KeyError), written_whole(path) as beside:
        for name in (beside.name, f"{beside.name}.wal"):
            beside.with_name(name).write_bytes(b"half")
        beside.with_name(f"{beside.name}.tmp").mkdir()
        raise KeyError
    with folder_written_whole(folder) as new:
        (new / "one").touch()
    with pytest.raises(KeyError), folder_written_whole(folder) as new:
        (new / "two").touch()
        raise KeyError
    assert path.read_bytes() == b"before"
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "one", path]


def test_a_new_file_takes_nobodys_place(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(FileExistsError), written_whole(path, new=True) as beside:
        beside.write_text("mine")
        path.write_text("yours")
    assert path.read_text() == "yours"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", tmp_path):
        with pytest.raises(FileExistsError):
            write_whole(path, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and len(list(tmp_path.iterdir())) == 2


def test_nobody_else_ever_reads_what_is_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with written_whole(path, mode=0o600) as beside:
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        beside.write_text("key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_killed_writer_is_known_by_what_it_leaves(tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from cc_pipeline.atomic import written_whole\n"
        "with written_whole(Path('a.b.json')) as beside: beside.touch(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=os.environ | {"PYTHONPATH": os.getcwd()})
    (left,) = tmp_path.iterdir()
    for name in (left.name, f"{left.name}.wal", f"{left.name}.tmp"):
        found = parse_leftover_name(name)
        assert found is not None
        assert found[0] == "a.b.json"
        assert has_ended(found[1])
    assert parse_leftover_name(f".a.0123abcd.{this_process()}.part") == ("a", this_process())
    assert parse_leftover_name("a.part") is None


def test_a_folder_that_was_set_aside_is_no_leftover_to_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data set"
    folder.mkdir()
    (folder / "old").write_text("old")
    rename, killed = os.replace, []

    def dies_behind_the_first(source: Path, to: Path) -> None:
        killed.append(rename(source, to))
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))

    monkeypatch.setattr(os, "replace", dies_behind_the_first)
    with pytest.raises(KeyboardInterrupt), folder_written_whole(folder) as beside:
        (beside / "new").write_text("new")
    [aside] = [path for path in tmp_path.iterdir() if (path / "old").exists()]
    assert not folder.exists()
    assert parse_leftover_name(aside.name) is None
